"""Write the tables of quality of docs/quality.md and README.md, from the results of benchmarks.

python docs/quality_tables.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tables import RESULTS, filled, setting, table

PAGES = (Path(__file__).parent / "quality.md", Path(__file__).parents[1] / "README.md")
LEVEL = 0.05
LAMBDARANK = "LightGBM, lambdarank"
CHOOSING = 100
"""From which seed on generated tables were for choosing; see `large_tables.py`."""

KINDS = {"single": "mean over the seeds", "ensemble": "ensemble"}

Result = Mapping[str, Any]


def result() -> dict[str, Any]:
    """Return the numbers of the benchmark."""
    return json.loads((RESULTS / "quality.json").read_text())


def whole(found: Result) -> list[str]:
    """Return the methods that have been measured on every set."""
    sets = [one["methods"] for one in found["sets"]]
    return [name for name in sets[0] if all(name in methods for methods in sets)]


def cell(one: Result) -> str:
    """Return NDCG@10: bold if better than the baseline, italic if worse, a dagger if it may differ.

    >>> cell({"ndcg_10": 0.5, "p": 0.01, "p_holm": 0.04, "difference": [0.1, 0.05, 0.15]})
    '**0.5000**'
    >>> cell({"ndcg_10": 0.5, "p": 0.01, "p_holm": 0.04, "difference": [-0.1, -0.15, -0.05]})
    '*0.5000*'
    >>> cell({"ndcg_10": 0.5, "p": 0.04, "p_holm": 0.4, "difference": [0.1, 0.05, 0.15]})
    '0.5000†'
    """
    text = f"{one['ndcg_10']:.4f}"
    if one.get("p_holm", 1) < LEVEL:
        return f"**{text}**" if one["difference"][0] > 0 else f"*{text}*"
    return text + ("†" if one.get("p", 1) < LEVEL else "")


def difference(one: Result) -> str:
    """Return a difference with its interval.

    >>> difference({"difference": [0.01, -0.002, 0.022]})
    '+0.0100 [-0.0020, +0.0220]'
    """
    if "difference" not in one:
        return "-"
    mean, low, high = one["difference"]
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def overview(found: Result) -> str:
    """Return the table of all methods and sets: single / ensemble."""
    rows = []
    for name in whole(found):
        cells = []
        for one in found["sets"]:
            row = one["methods"][name]
            mark = " (b)" if one["baseline"] == name else ""
            cells.append(f"{cell(row['single'])} / {cell(row['ensemble'])}{mark}")
        rows.append([name, *cells])
    seeds = found["seeds"]
    header = [f"NDCG@10 over {seeds} seed{'s' * (seeds > 1)}, mean / ensemble"]
    return table([*header, *(one["set"] for one in found["sets"])], rows)


def verdicts(found: Result) -> str:
    """Return where the methods of `beside` differ from the baseline, a line each."""
    lines = []
    for name in found["sets"][0]["beside_trees"]:
        for kind, words in KINDS.items():
            positions: dict[str, list[str]] = {"better": [], "worse": [], "no real difference": []}
            for one in found["sets"]:
                row = one["methods"][name][kind]
                real = row["p_holm"] < LEVEL
                sign = "better" if row["difference"][0] > 0 else "worse"
                positions[sign if real else "no real difference"].append(one["set"])
            said = [f"{word} on {', '.join(sets)}" for word, sets in positions.items() if sets]
            lines.append(f"- {name}, {words}: {'; '.join(said)}.")
    return "\n".join(lines)


def details(found: Result, one: Result) -> str:
    """Return the table of one set, with the differences from the baseline."""
    rows = []
    for name in whole(found):
        row = one["methods"][name]
        chosen = [str(x) for x in row["chosen"] if x is not None]
        rows.append(
            [
                name,
                difference(row["single"]),
                difference(row["ensemble"]),
                f"{row['deviation_over_seeds']:.4f}",
                ", ".join(chosen) or "-",
                f"{row['cpu_seconds_a_seed']:.0f}",
            ]
        )
    folds = f"{one['folds']} folds" if one["folds"] > 1 else "one fold"
    head = (
        f"{one['lists']} test lists in {folds}, {one['rows']:,} rows of {one['columns']} columns. "
        f"Differences from {one['baseline']}:\n\n"
    )
    header = [
        "", *KINDS.values(), "deviation over the seeds", "leaves or learning rate, by fold",
        "CPU seconds a seed",
    ]  # fmt: skip
    return head + table(header, rows)


def beside(found: Result) -> str:
    """Return the differences of our ranker and the blend from each row of LightGBM."""
    rows = []
    for one in found["sets"]:
        for name, kinds in one["beside_trees"].items():
            if name not in whole(found):
                continue
            for tree in kinds["single"]:
                cells = [
                    f"{difference(kinds[kind][tree])}, p {kinds[kind][tree]['p']:.3f}"
                    for kind in KINDS
                ]
                rows.append([one["set"], f"{name} - {tree}", *cells])
    return table(["", "", *KINDS.values()], rows)


def boosting(found: Result) -> str:
    """Return NDCG@10 of each objective, and its difference from lambdarank."""
    names = [*dict.fromkeys(name for one in found["sets"] for name in one["methods"])]
    rows = []
    for name in names:
        cells = []
        for one in found["sets"]:
            row = one["methods"].get(name)
            text = "not run" if row is None else f"{row['single']['ndcg_10']:.4f}"
            if row is not None and name in one["beside_trees"]:
                test = one["beside_trees"][name]["single"][LAMBDARANK]
                text += f", {difference(test)}, p {test['p']:.2f}"
            cells.append(text)
        rows.append([name, *cells])
    return table(["NDCG@10", *(one["set"] for one in found["sets"])], rows)


def boosting_times(found: Result) -> str:
    """Return the training time of each objective."""
    times = found["times"]
    rows = [
        [name, f"{seconds:.2f}", f"{times['times_lambdarank'][name]:.1f}"]
        for name, seconds in times["seconds_a_tree"].items()
    ]
    return table(["", "CPU seconds a tree", "times lambdarank"], rows)


def large(found: Result) -> str:
    """Return the table of the large generated tables, by seeds that took no part in a choice.

    NDCG@10 is bold if it is better than LightGBM's after Holm's correction, italic if worse.
    """
    rows: list[list[str]] = []
    for one in found["comparisons"]:
        if one["seeds"][0] >= CHOOSING:
            continue
        trials = [
            trial
            for trial in found["trials"]
            if trial["data"] == one["data"]
            and trial["ranker"] in (one["ranker"], "LightGBM")
            and trial["seed"] in one["seeds"]
        ]
        seconds = {
            name: np.mean([x["seconds"] for x in trials if x["ranker"] == name])
            for name in (one["ranker"], "LightGBM")
        }
        name = one["ranker"] if one["ranker"] == "blend" else f"`{one['ranker']}`"
        rows.append(
            [
                one["data"],
                name,
                f"{one['trees']:.4f}",
                cell(one),
                difference(one),
                f"{one['p_holm']:.4f}",
                f"{seconds['LightGBM']:.0f}",
                f"{seconds[one['ranker']]:.0f}",
            ]
        )
    header = ["table, rows", "", "LightGBM", "NDCG@10", "difference", "p, Holm"]
    return table([*header, "CPU seconds of LightGBM", "CPU seconds"], rows)


def first(found: Result) -> str:
    """Return NDCG@10 and CPU seconds of LightGBM, the network and their average, by set.

    The best value of a row is bold, whether or not the difference is more than chance.
    """
    names = ("LightGBM", "NeuralRanker()", "blend")
    rows: list[list[str]] = []
    for data in dict.fromkeys(one["data"] for one in found["trials"]):
        trials = [one for one in found["trials"] if one["data"] == data and one["seed"] < CHOOSING]
        runs = [[one for one in trials if one["ranker"] == name] for name in names]
        if min(map(len, runs)) < 3:  # drawn once
            continue
        values = [np.mean([one["ndcg_10"] for one in each]) for each in runs]
        cells = [f"{x:.3f}" for x in values]
        cells = [f"**{x}**" if x == max(cells) else x for x in cells]
        seconds = [f"{np.mean([one['seconds'] for one in each]):.0f}" for each in runs]
        rows.append([data, *cells, " / ".join(seconds)])
    return table(["NDCG@10", "LightGBM", "`NeuralRanker()`", "both", "CPU seconds"], rows)


def tables() -> dict[str, str]:
    """Return every table by its name."""
    found = result()
    trees = json.loads((RESULTS / "boosting.json").read_text())
    named = {"setting": setting(found), "overview": overview(found), "beside": beside(found)}
    named["verdicts"] = verdicts(found)
    named |= {"boosting": boosting(trees), "boosting times": boosting_times(trees)}
    by_default = json.loads((RESULTS / "large_tables.json").read_text())
    named |= {"large": large(by_default), "first": first(by_default)}
    return named | {one["set"]: details(found, one) for one in found["sets"]}


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(), tables()))
        print(f"wrote {page}")  # noqa: T201

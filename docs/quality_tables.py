"""Write the tables and pictures of docs/quality.md and the first page, from results of benchmarks.

python docs/quality_tables.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import RESULTS, filled, setting, table

RESULT = RESULTS / "large_tables.json"
FULL = RESULTS / "large_tables_full.json"
PLOT = Path(__file__).parent / "img" / "quality.svg"
FIRST_PLOT = Path(__file__).parent / "img" / "beside_trees.svg"
PAGES = (Path(__file__).parent / "quality.md", Path(__file__).parents[1] / "README.md")
LEVEL = 0.05
TREES, NETWORK, BOTH, OURS = "LightGBM", "NeuralRanker()", "blend", "Blend()"
SEARCHES = {"LightGBM, tuned": "LightGBM", "XGBoost, tuned": "XGBoost"}
SEARCHES |= {"CatBoost, tuned": "CatBoost"}
SHORT = {**SEARCHES, "LightGBM, bagged": "bagged forests"}
"""The kinds of trees of `rivals.py`; those of `SEARCHES` have `search_seconds`."""
LAMBDARANK = "LightGBM, lambdarank"
CHOOSING = 100
"""From which seed on generated tables were for choosing; see `large_tables.py`."""

NO_DROPOUT = "scorer=MLPScorer(hidden=(128, 64), dropout=0.0)"
TRIES = {
    "LightGBM": "LightGBM",
    "NeuralRanker()": "`NeuralRanker()`",
    "Bfloat16()": "matrix products in bfloat16",
    f"NeuralRanker({NO_DROPOUT})": "no dropout",
    "NeuralRanker(members=3)": "3 members",
    "Bfloat16(members=3)": "3 members, bfloat16",
    f"Bfloat16(members=3, {NO_DROPOUT})": "3 members, no dropout, bfloat16",
    "NeuralRanker(max_epochs=8)": "8 epochs instead of 15",
    "NeuralRanker(scorer=MLPScorer(hidden=(64, 32)))": "half the hidden units",
    "NeuralRanker(batch_size=128)": "128 lists per step",
    "choosing(400, 2, 150)()": "columns chosen in half the steps",
    "OneProduct()": "one matrix product for all members",
    "OneProductBfloat16()": "one matrix product for all members, in bfloat16",
    "OneLayer()": "members share the first layer",
    "Autocast()": "autocast to bfloat16",
    "Compiled()": "`torch.compile`",
}
"""The tries of `large_tables.py` in words."""

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
    return table(["", "CPU seconds per tree", "times lambdarank"], rows)


def defaults(found: Result) -> str:
    """Return the table of LightGBM, the network and their average, a row for each set.

    NDCG@10 is bold if it is better than LightGBM's after Holm's correction, italic if worse.
    """
    rows: list[list[str]] = []
    for data, each in _compared(found).items():
        network, both = (each.get(name) for name in (NETWORK, BOTH))
        if network is None or both is None:
            continue
        seconds = [_seconds(found, network, name) for name in (TREES, NETWORK)]
        seconds.append(_seconds(found, both, BOTH))
        rows.append(
            [
                data,
                f"{network['trees']:.4f}",
                *(f"{cell(one)} ({one['difference'][0]:+.4f})" for one in (network, both)),
                " / ".join(f"{x:.0f}" for x in seconds),
            ]
        )
    seconds = f"CPU seconds: {TREES} / `{NETWORK}` / both"
    return table(["table, rows", TREES, f"`{NETWORK}`", "both", seconds], rows)


def full(found: Result) -> str:
    """Return the table of the best trees on the test lists, `NeuralRanker()` and `Blend()`.

    NDCG@10 is bold if it is better than the trees' after Holm's correction, italic if worse.
    """
    rows: list[list[str]] = []
    for data, each in _beside_best(found).items():
        ours = [(name, each[name]) for name in (NETWORK, OURS) if name in each]
        trees = ours[0][1]["rival"]
        key = "search_seconds" if trees in SEARCHES else "seconds"
        seconds = [_seconds(found, ours[0][1], trees, x) for x in ("seconds", key)]
        seconds += [_seconds(found, one, name) for name, one in ours]
        cells = [f"{cell(one)} ({one['difference'][0]:+.4f})" for _, one in ours]
        times = " / ".join(f"{x:.0f}" for x in seconds)
        best = f"{ours[0][1]['trees']:.4f} {SHORT[trees]}"
        rows.append([data, best, *cells, *[""] * (2 - len(ours)), times])
    seconds = f"CPU seconds: fit / search / `{NETWORK}` / `{OURS}`"
    return table(["table, rows", "trees", f"`{NETWORK}`", f"`{OURS}`", seconds], rows)


def first(found: Result) -> str:
    """Return the table of `full` without its larger tables, differences and times."""
    rows = []
    for data, each in _beside_best(found).items():
        if data.endswith(("300,000", "1,000,000")):
            continue
        ours = [each.get(name) for name in (NETWORK, OURS)]
        trees = each[NETWORK]
        best = f"{trees['trees']:.4f} {SHORT[trees['rival']]}"
        rows.append([data, best, *("" if one is None else cell(one) for one in ours)])
    return table(["NDCG@10", "trees", f"`{NETWORK}`", f"`{OURS}`"], rows)


def count(found: Result) -> str:
    """Return on how many sets ours are better or worse than the best trees, after Holm."""
    rows = []
    for name in (NETWORK, OURS):
        each = [x[name] for x in _beside_best(found).values() if name in x]
        sure = [x["difference"][0] for x in each if x["p_holm"] < LEVEL]
        ahead, behind = sum(x > 0 for x in sure), sum(x < 0 for x in sure)
        counts = (len(each), ahead, len(each) - ahead - behind, behind)
        rows.append([f"`{name}`", *map(str, counts)])
    return table(["", "sets", "better", "neither", "worse"], rows)


def rivals(found: Result) -> str:
    """Return NDCG@10 of each kind of trees, and the CPU seconds of its search, by set and draw."""
    trials = [x for x in found["trials"] if x["ranker"] in SHORT and "validation" in x]
    rows = []
    for data, seed in dict.fromkeys((x["data"], x["seed"]) for x in trials):
        own = {x["ranker"]: x for x in trials if (x["data"], x["seed"]) == (data, seed)}
        if len(own) < 2:
            continue
        best = max(own, key=lambda name: np.mean(own[name]["validation"]))
        cells = []
        for name in SHORT:
            one = own.get(name, {})
            seconds = np.sum(one.get("search_seconds", one.get("seconds", 0)))
            text = f"{one['ndcg_10']:.4f}" if one else ""
            text = f"**{text}**" if name == best else text
            cells.append(f"{text} ({seconds:.0f})" if one else "")
        rows.append([data, *cells])
    used = [i for i in range(len(SHORT)) if any(row[i + 1] for row in rows)]
    titles = [[*SHORT.values()][i] for i in used]
    return table(["", *titles], [[row[0], *(row[i + 1] for i in used)] for row in rows])


def _beside_best(found: Result) -> dict[str, dict[str, Result]]:
    """Return the comparisons with the best trees by set and ranker."""
    kept: dict[str, dict[str, Result]] = {}
    for one in found["best"]:
        kept.setdefault(one["data"], {})[one["ranker"]] = one
    return kept


def efforts(found: Result) -> str:
    """Return the table of the other efforts, a row for each set and effort."""
    rows: list[list[str]] = []
    for data, each in _compared(found).items():
        for name, one in each.items():
            if name in (NETWORK, BOTH):
                continue
            seconds = [_seconds(found, one, ranker) for ranker in (TREES, name)]
            own = [f"`{name}`", f"{one['trees']:.4f}", cell(one), difference(one)]
            rows.append([data, *own, " / ".join(f"{x:.0f}" for x in seconds)])
    header = ["table, rows", "ours", f"NDCG@10, {TREES}", "NDCG@10, ours", "difference"]
    return table([*header, f"CPU seconds: {TREES} / ours"], rows)


def blends(found: Result, searches: Result) -> str:
    """Return the table of `Blend()`, with the interval over draws where there are several.

    The last column divides its seconds by those of LightGBM: of one fit, and of the search of the
    number of leaves, by the ratio of both in `searches`.
    """
    rows: list[list[str]] = []
    for data, each in _compared(found).items():
        one = each[OURS]
        over = one.get("over_draws")
        seconds = [_seconds(found, one, ranker) for ranker in (TREES, OURS)]
        times = seconds[1] / seconds[0]
        search = _seconds(searches, one, TREES, "search_seconds") / _seconds(searches, one, TREES)
        draws = "" if over is None else f"[{over[0]:+.4f}, {over[1]:+.4f}]"
        rows.append(
            [
                data,
                str(len(one["seeds"])),
                f"{one['trees']:.4f}",
                cell(one),
                difference(one),
                draws,
                " / ".join(f"{x:.0f}" for x in seconds),
                f"{times:.1f} / {times / search:.1f}",
            ]
        )
    header = ["table, rows", "draws or seeds", TREES, f"`{OURS}`", "difference", "over draws"]
    seconds = f"CPU seconds: {TREES} / `{OURS}`"
    return table([*header, seconds, f"times {TREES}'s fit / search"], rows)


def tries(found: Result) -> str:
    """Return what each try of a cheaper fit gains, and its CPU seconds."""
    return _by_ranker(found, TRIES, "NeuralRanker()", seconds=True)


def levels(found: Result) -> str:
    """Return what each rule for the levels of categories gains."""
    plain = "NeuralRanker(members=2, columns='all')"
    every = "NeuralRanker(members=2, columns='all', max_levels=5000)"
    names = {plain: "the `max_levels` most frequent", every: "all levels"}
    for fewest in (2, 3, 5, 10, 20, 50):
        for inner in (plain, every):
            names[f"rare({inner}, {fewest})"] = f"levels of at least {fewest} rows"
    names["level_decay(1.0)(members=2, columns='all')"] = "the default, with weight decay"
    names["level_dropout(0.1)(members=2, columns='all')"] = "the default, with dropout of levels"
    return _by_ranker(found, names, plain)


def parts(found: Result) -> str:
    """Return the CPU seconds of each part of a fit; those of less than two seconds are one."""
    fits = found["fits"]
    names = dict.fromkeys(part for one in fits for part in one["seconds"])
    long = [x for x in names if max(one["seconds"].get(x, 0) for one in fits) >= 2]
    rows = [[x, *(f"{one['seconds'].get(x, 0):.1f}" for one in fits)] for x in long]
    small = [sum(x for part, x in one["seconds"].items() if part not in long) for one in fits]
    rows.append(["smaller parts", *(f"{x:.1f}" for x in small)])
    rows.append(["all", *(f"{sum(one['seconds'].values()):.0f}" for one in fits)])
    titles = [f"{one['table']}, {one['rows']:,}" for one in fits]
    return table(["CPU seconds", *titles], rows)


def steps(found: Result) -> str:
    """Return the milliseconds of a training step, by each try."""
    each = found["steps"]
    rows = [
        [TRIES[f"{name}()"], *(f"{one['milliseconds'][name]:.0f}" for one in each)]
        for name in each[0]["milliseconds"]
    ]
    return table(["CPU milliseconds", *(f"{one['columns']} columns" for one in each)], rows)


def _by_ranker(
    found: Result, names: Mapping[str, str], against: str, *, seconds: bool = False
) -> str:
    """Return differences of rankers from one, a row for each label and a column for each set.

    Draws that confirm a choice have a column of their own.
    """
    compared = {(x["data"], x["seeds"][0] < CHOOSING, x["ranker"]): x for x in found["comparisons"]}
    sets = sorted({key[:2] for key in compared}, key=lambda one: (one[1], one[0]))
    rows: dict[str, list[str]] = {}
    for name, label in names.items():
        cells = rows.setdefault(label, [""] * len(sets))
        for position, (data, confirming) in enumerate(sets):
            one = compared.get((data, confirming, name))
            if name == against:
                one = next(x for key, x in compared.items() if key[:2] == (data, confirming))
                text = f"{one['against']:.4f}"
            elif one is None:
                continue
            else:
                text = _marked(one)
            if seconds:
                text += f" ({_seconds(found, one, name):.0f})"
            cells[position] = text
    titles = [data + ", other draws" * confirming for data, confirming in sets]
    return table(["", *titles], [[label, *cells] for label, cells in rows.items() if any(cells)])


def _marked(one: Result) -> str:
    """Return a difference: bold if it is better, italic if worse, a dagger if it may differ.

    >>> _marked({"difference": [0.01, 0.0, 0.0], "p": 0.01, "p_holm": 0.02})
    '**+0.0100**'
    """
    text = f"{one['difference'][0]:+.4f}"
    if one["p_holm"] < LEVEL:
        return f"**{text}**" if one["difference"][0] > 0 else f"*{text}*"
    return text + "†" * (one["p"] < LEVEL)


def _compared(found: Result) -> dict[str, dict[str, Result]]:
    """Return the comparisons by set and ranker, of seeds that took no part in a choice."""
    kept: dict[str, dict[str, Result]] = {}
    for one in found["comparisons"]:
        if one["seeds"][0] < CHOOSING:
            kept.setdefault(one["data"], {})[one["ranker"]] = one
    return kept


def _seconds(found: Result, one: Result, ranker: str, key: str = "seconds") -> float:
    """Return the mean CPU seconds of a ranker over the seeds of a comparison."""
    return float(
        np.mean(
            [
                np.sum(trial[key])  # of each fold
                for trial in found["trials"]
                if (trial["data"], trial["ranker"]) == (one["data"], ranker)
                and trial["seed"] in one["seeds"]
            ]
        )
    )


def draw(found: Result, path: Path) -> None:
    """Draw the differences of the network and of both from LightGBM, with their intervals."""
    sets = {x: each for x, each in _compared(found).items() if {NETWORK, BOTH} <= {*each}}
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.36 * len(sets)), layout="constrained")
    _differences(axes, sets, (NETWORK, BOTH), size=8)
    axes.set_xlim(-0.02, 0.08)
    label = f"NDCG@10 minus LightGBM's, with 95 % intervals: {NETWORK} in blue, both in orange"
    figure.supxlabel(label, fontsize=9)
    _save(figure, path)


def draw_first(found: Result, path: Path) -> None:
    """Draw the differences of the network and `Blend()` from the best trees, for the first page."""
    sets = _beside_best(found)
    figure, axes = plt.subplots(figsize=(6.4, 1.3 + 0.36 * len(sets)), layout="constrained")
    _differences(axes, sets, (NETWORK, OURS), size=11)
    figure.supxlabel("NDCG@10 minus that of the best trees, 95 % intervals", fontsize=11)
    figure.legend(loc="outside upper center", ncols=2, fontsize=11, frameon=False)
    _save(figure, path)


def _differences(
    axes: Axes, sets: dict[str, dict[str, Result]], names: Sequence[str], size: int
) -> None:
    """Draw the differences of two rankers, a row for each set; one may not have been measured."""
    for shift, name, color in zip((0.15, -0.15), names, ("C0", "C1"), strict=True):
        rows = [(i, each[name]) for i, each in enumerate(reversed(sets.values())) if name in each]
        heights = [height + shift for height, _ in rows]
        mean, low, high = np.transpose([one["difference"] for _, one in rows])
        style = {"fmt": "o", "ms": 4, "color": color, "capsize": 2, "label": name}
        axes.errorbar(mean, heights, xerr=[mean - low, high - mean], **style)
    axes.axvline(0, color="0.5", lw=1)
    axes.set_yticks(range(len(sets)), [*reversed(sets)], fontsize=size)
    axes.grid(axis="x", alpha=0.3)


def _save(figure: Figure, path: Path) -> None:
    """Save a picture: the same numbers give the same file."""
    with matplotlib.rc_context({"svg.hashsalt": "ltr"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def tables() -> dict[str, str]:
    """Return every table by its name."""
    found = result()
    trees = json.loads((RESULTS / "boosting.json").read_text())
    named = {"setting": setting(found), "overview": overview(found)}
    named |= {"boosting": boosting(trees), "boosting times": boosting_times(trees)}
    by_default = json.loads(RESULT.read_text())
    named |= {"defaults": defaults(by_default), "efforts": efforts(by_default)}
    ours = json.loads((RESULTS / "large_tables_blend.json").read_text())
    leaves = json.loads((RESULTS / "large_tables_leaves.json").read_text())
    for name, rows in (("tries", tries), ("levels", levels)):
        named[name] = rows(json.loads((RESULTS / f"large_tables_{name}.json").read_text()))
    fits = json.loads((RESULTS / "fit_parts.json").read_text())
    named |= {"parts": parts(fits), "steps": steps(fits)}
    beside = json.loads(FULL.read_text())
    named |= {"full": full(beside), "first": first(beside)}
    named |= {"count": count(beside), "rivals": rivals(beside)}
    return named | {"blends": blends(ours, leaves)}


if __name__ == "__main__":
    draw(json.loads(RESULT.read_text()), PLOT)
    draw_first(json.loads(FULL.read_text()), FIRST_PLOT)
    for page in PAGES:
        page.write_text(filled(page.read_text(), tables()))
        print(f"wrote {page}")  # noqa: T201

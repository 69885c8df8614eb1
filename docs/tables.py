"""Write the benchmarks' tables into the pages of `PAGES`: `python docs/tables.py`.

The text between `<!-- table NAME -->` and `<!-- end -->` on these pages comes from the JSON files
in benchmarks/results. A test checks that the pages and the files agree.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / page
    for page in (
        "docs/operators/comparison.md",
        "docs/recipes.md",
        "docs/losses/training.md",
        "docs/losses/unbiased.md",
        "benchmarks/trials.md",
        "docs/text-rerankers.md",
        "docs/tuning.md",
    )
]
RESULTS = ROOT / "benchmarks" / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first column aligned left, numbers aligned right.

    >>> print(table(["a", "b"], [["x", "1"]]))
    | a | b |
    | :-- | --: |
    | x | 1 |
    """
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits, without an exponent if it can be avoided.

    >>> number(0.012345), number(1234.5), number(0.0), number(2.5e-7), number(None)
    ('0.0123', '1230', '0', '2.5e-07', '-')
    """
    if x is None:
        return "-"
    rounded = float(f"{x:.{digits}g}")
    if rounded == 0 or abs(rounded) >= 1e-4:
        return f"{rounded:.10f}".rstrip("0").rstrip(".")
    return f"{rounded:g}"


def _ranks(size: Mapping[str, Any]) -> str:
    header = [
        "operator", "temperature", "mean error", "error, top 10", "largest error", "gradient",
        "no gradient, %", "ms", "MB",
    ]  # fmt: skip
    rows = [
        [
            row["operator"],
            number(row["temperature"]),
            number(row["mean"]),
            number(row["top"]),
            number(row["largest"]),
            number(row["gradient"]),
            number(100 * row["still"], 2),
            number(1e3 * row["seconds"]),
            number(row["bytes"] / 1e6),
        ]
        for row in size["ranks"]
    ]
    return table(header, rows)


def _values(size: Mapping[str, Any]) -> str:
    rows = [
        [
            row["operator"],
            number(row["temperature"]),
            number(row["mean"]),
            number(row["largest"]),
            number(row["gradient"]),
            number(1e3 * row["seconds"]),
            number(row["bytes"] / 1e6),
        ]
        for row in size["values"]
    ]
    header = ["operator", "temperature", "mean error", "largest error", "gradient", "ms", "MB"]
    return table(header, rows)


def _cubed(result: Mapping[str, Any]) -> str:
    rows = [
        [
            str(size["n"]),
            number(1e3 * size["seconds"]["published"]),
            number(1e3 * size["seconds"]["row_sums"]),
            number(1e3 * size["seconds"]["ours"]),
            number(size["ratio"], 2),
            number(size["difference_float64"], 1),
            number(size["error_float32"]["published"], 1),
            number(size["error_float32"]["ours"], 1),
        ]
        for size in result["sizes"]
    ]
    header = [
        "n", "published, ms", "row sums, ms", "ours, ms", "published / ours",
        "difference of the matrices, float64", "error of published, float32",
        "error of ours, float32",
    ]  # fmt: skip
    return table(header, rows)


def _steps(result: Mapping[str, Any]) -> str:
    settings = list(result["rows"][0]["seconds"])
    rows = [
        [
            row["recipe"],
            row["precision"],
            number(1e3 * row["seconds"][settings[0]]),
            *(number(row["seconds"][name] / row["seconds"][settings[0]]) for name in settings[1:]),
        ]
        for row in result["rows"]
    ]
    first, *others = settings
    return table(["recipe", "precision", f"{first}, ms", *(f"{s}, ratio" for s in others)], rows)


def _training(result: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{row['hidden']}, {row['layers']}",
            number(row["documents_per_second"]["bare"]),
            number(row["documents_per_second"]["fit"]),
            number(row["ratio"], 2),
        ]
        for row in result["rows"]
    ]
    return table(["layers", "bare loop, documents/s", "ltr fit, documents/s", "ratio"], rows)


def _goal(result: Mapping[str, Any]) -> str:
    rows = []
    for name, row in result["sets"].items():
        found = {loss: values["test"] for loss, values in row["losses"].items()}
        ours = next(loss for loss in found if "softmax=" in loss)
        cells = [name, str(row["lists"]), f"{found[ours]:.4f}"]
        for other, test in row["differences"].items():
            mean, low, high = test["interval"]
            p = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}], p = {test['p_holm']:.3f}"
            cells.append(f"{found[other]:.4f} ({p})")
        without = ours.replace(", softmax=1.0", "")
        rest = (without, "SoftNDCG(mean='harmonic')", "ApproxNDCG(0.1)")
        cells += [f"{found[loss]:.4f}" if loss in found else "" for loss in rest]
        rows.append(cells)
    header = ["data", "lists", "harmonic", "SoftmaxLoss()", "XENDCG, random gammas"]
    header += ["harmonic, without softmax=1.0", "SoftNDCG(mean='harmonic')", "ApproxNDCG(0.1)"]
    return table(header, rows)


def _against(result: Mapping[str, Any]) -> str:
    """Return NDCG@10 of the ranker that the others are compared with, and their differences."""
    comparisons = result["comparisons"]
    rankers = list(dict.fromkeys(row["ranker"] for row in comparisons))
    rows = []
    for data in dict.fromkeys(row["data"] for row in comparisons):
        found = {row["ranker"]: row for row in comparisons if row["data"] == data}
        first = found[rankers[0]]
        cells = [data, str(first["lists"]), f"{first['against']:.4f}"]
        for ranker in rankers:
            row = found[ranker]
            cells.append(f"{row['difference'][0]:+.4f} ± {row['standard_error']:.4f}")
        rows.append(cells)
    losses = [f"`{ranker.partition('loss=')[2][:-1]}`" for ranker in rankers]
    return table(["data", "lists", "default, XENDCG", *losses], rows)


def _compared(row: Mapping[str, Any]) -> str:
    """Return the difference from the first loss, with its interval and its p-value."""
    if "difference" not in row:
        return ""
    mean, low, high = row["difference"]
    p = f"= {row['p_holm']:.3f}" if row["p_holm"] >= 0.0005 else "< 0.001"
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}], p {p}"


def _embeddings(result: Mapping[str, Any]) -> str:
    rows = [
        [f"`{row['loss']}`", f"{row['ndcg_10']:.4f}", _compared(row), number(row["seconds"])]
        for row in result["losses"]
    ]
    return table(["loss", "NDCG@10", "difference from `SoftmaxLoss()`", "CPU seconds"], rows)


def _rerankers(result: Mapping[str, Any]) -> str:
    """Return the losses, the best one first, for the number of lists that has the most trials.

    The last columns are MRR for other numbers of lists; some losses have no other.
    """
    trials = {
        lists: sum(len(row["seeds"]) for row in rows) for lists, rows in result["summary"].items()
    }
    base, *others = sorted(trials, key=lambda lists: -trials[lists])
    found = {lists: {row["loss"]: row for row in rows} for lists, rows in result["summary"].items()}
    rows = []
    best_first = [
        row["loss"]
        for lists in (base, *others)
        for row in sorted(result["summary"][lists], key=lambda row: -row["mrr"])
    ]
    for name in dict.fromkeys(best_first):
        row = found[base].get(name)
        library, _, loss = name.partition(" ")
        cells = [f"{row[metric]:.3f}" if row else "" for metric in ("mrr", "ndcg_10", "p_1")]
        step = number(row["step_seconds"]) if row and loss else ""
        more = [f"{found[one][name]['mrr']:.3f}" if name in found[one] else "" for one in others]
        label = f"{library} `{loss}`" if loss else "before training"
        rows.append([label, *cells, _compared(row or {}), step, *more])
    header = ["loss", "MRR", "NDCG@10", "P@1", "MRR, difference from `SoftmaxLoss()`", "step, s"]
    return table([*header, *(f"MRR, {int(one):,} lists" for one in others)], rows)


def _reranker_memory(result: Mapping[str, Any]) -> str:
    rows = [
        [f"`cached={row['cached']}`", number(row["peak_mib"]), number(row["step_seconds"])]
        for row in result["memory"]
    ]
    documents = result["memory"][0]["documents"]
    return table([f"{documents} documents in 16 lists", "peak memory, MiB", "step, s"], rows)


def _distillation(result: Mapping[str, Any]) -> str:
    """Return the teacher, the students of two layers and the student before training."""
    rows = []
    for row in sorted(result["summary"], key=lambda row: -row["mrr"]):
        kind, _, loss = row["loss"].partition(" ")
        names = {"the": "the teacher", "none": "before training"}
        name = names.get(kind, f"{kind}: `{loss}`")
        cells = [f"{row[metric]:.3f}" for metric in ("mrr", "ndcg_10", "p_1")]
        model = "teacher" if kind == "the" else "student"
        times = number(row["step_seconds"]) if loss else "", number(result["scoring"][model])
        rows.append([name, *cells, _compared(row), *times])
    base = "MRR, difference from labels: `SoftmaxLoss()`"
    header = ["learns from", "MRR", "NDCG@10", "P@1", base]
    return table([*header, "step, s", "scoring 1,000 documents, s"], rows)


def _first_stage(result: Mapping[str, Any]) -> str:
    """Return the first stages, and the rerankers of their candidates, of the most training lists.

    The last column is MRR of each seed with fewer lists.
    """
    few, many = sorted(result["summary"], key=int)
    fewer = {row["loss"]: row for row in result["summary"][few]}
    rows = []
    for row in result["summary"][many]:
        name = row["loss"].replace("trained", "+ reranker, trained")
        recall = [f"{x:.3f}" for x in row["recall"].values()]
        cells = [f"{row[metric]:.3f}" for metric in ("mrr", "ndcg_10")]
        seeds = fewer[row["loss"]]["seed_mrr"] if "trained" in row["loss"] else ()
        each = ", ".join(f"{x:.3f}" for x in seeds)
        rows.append([name, *recall, *cells, _compared(row), number(row["query_ms"]), each])
    recall = [f"recall@{k}" for k in result["summary"][many][0]["recall"]]
    base = "MRR, difference from the fused list"
    header = ["stage", *recall, "MRR", "NDCG@10", base, "one query, ms"]
    return table([*header, f"MRR of each seed, {int(few):,} lists"], rows)


def _retrievers(result: Mapping[str, Any]) -> str:
    """Return the losses of a retriever, the best one first."""
    rows = []
    for row in sorted(result["summary"], key=lambda row: -row["mrr"]):
        kind, _, loss = row["loss"].partition(" ")
        name = f"{kind} `{loss}`" if loss else "before training"
        step = number(row["step_seconds"]) if loss else ""
        rows.append([name, *_found(row), _compared(row), step])
    base = "MRR, difference from `MultipleNegativesRankingLoss()`"
    return table(["loss", *_recalls(result["summary"]), base, "step, s"], rows)


def _searches(result: Mapping[str, Any]) -> str:
    """Return the stages of a search with a retriever."""
    rows = [[row["loss"], *_found(row), _compared(row)] for row in result["search_summary"]]
    base = "MRR, difference from BM25 and trained retriever, fused"
    return table(["stage", *_recalls(result["search_summary"]), base], rows)


def _recalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [*(f"recall@{k}" for k in rows[0]["recall"]), "MRR", "NDCG@10"]


def _found(row: Mapping[str, Any]) -> list[str]:
    return [f"{x:.3f}" for x in (*row["recall"].values(), row["mrr"], row["ndcg_10"])]


def _retriever_steps(result: Mapping[str, Any]) -> str:
    """Return time and memory of a retriever's step."""
    rows = []
    for row in result["steps"]:
        kind, _, loss = row["loss"].partition(" ")
        options = "".join(f", `{name}={value}`" for name, value in row["options"].items())
        cells = [str(row["lists"]), number(row["step_seconds"]), number(row["peak_mib"])]
        rows.append([f"{kind} `{loss}`{options}", *cells])
    return table(["loss", "lists", "step, s", "peak memory, MiB"], rows)


def _candidates(result: Mapping[str, Any]) -> str:
    """Return time and memory of `ltr lists` by the number of rows."""
    rows = [
        [f"{row['rows']:,}" if row["rows"] else "only the import", *map(number, values)]
        for row in result["sizes"]
        for values in [(row["seconds"], row["peak_mib"])]
    ]
    return table(["rows of the run", "CPU seconds", "peak memory, MiB"], rows)


def _standardized(result: Mapping[str, Any]) -> str:
    """Return the means over the seeds of each loss, set and operator."""
    rows = []
    for name, row in result["losses"].items():
        (own, standard), cells = row["operators"], row["operators"].values()
        loss = f"`{name.format('...')}`"
        line = [loss, f"`{own}`", f"`{standard}`", row["metric"]]
        for data in next(iter(cells)):
            line += [f"{fmean(one['test'] for one in each[data]):.4f}" for each in cells]
        rows.append(line)
    header = ["loss", "own operator", "standardized operator", "metric"]
    data = [
        f"{name}, {kind}" for name in ("generated", "MQ2008") for kind in ("own", "standardized")
    ]
    return table([*header, *data], rows)


def _trials(result: Mapping[str, Any]) -> str:
    """Return the greatest gain of each special case at each size, and where the gain is largest."""
    sizes = result["sizes"]
    rows = []
    for name, cases in result["trials"].items():
        gains = {
            (case, size): times["without_ms"] / times["with_ms"]
            for case, measured in cases.items()
            for size, times in measured.items()
        }
        (most, _), gain = max(gains.items(), key=lambda pair: pair[1])
        line = [[g for (_, s), g in gains.items() if s == size] for size in sizes]
        cells = [f"{max(found):.2f}" if found else "-" for found in line]
        rows.append([name, *cells, most, "yes" if gain >= result["earned"] else "no"])
    header = ["taken out", *(size.replace("x", " x ") for size in sizes), "gains most", "earned"]
    return table(header, rows)


def _text(result: Mapping[str, Any]) -> str:
    loss, whole = result["given logits"], result["whole"]
    rows = []
    for name in dict.fromkeys([*loss, *whole]):
        library, _, kind = name.partition(" ")
        alone = loss.get(name)
        cells = [number(1e3 * alone["seconds"]), number(alone["MiB"])] if alone else ["-", "-"]
        cells.append(number(whole.get(name, {}).get("seconds")))
        rows.append(
            [f"`{kind.removesuffix(', cached')}`, {library}{', cached' * (', ' in kind)}", *cells]
        )
    return table(["loss", "the loss alone, ms", "its memory, MiB", "the whole step, s"], rows)


def _text_memory(result: Mapping[str, Any]) -> str:
    measured = {(row["lists"], row["cached"]): row["MiB"] for row in result["memory"]}
    names = {"the batch": f"{result['documents']:,} documents in {result['queries']} lists"}
    rows = [
        [names.get(lists, lists), *(number(measured[lists, cached]) for cached in (False, True))]
        for lists in dict.fromkeys(row["lists"] for row in result["memory"])
    ]
    return table(["peak memory of a step, MiB", "`cached=False`", "`cached=True`"], rows)


def _tuning(result: Mapping[str, Any]) -> str:
    """Return what a search gained on the test lists of each set."""
    header = ["test lists", "defaults", "tuned", "difference [95 %]", "p", "folds", "trials pruned"]
    rows = []
    for name, one in result["sets"].items():
        default, tuned = (model["mean"]["mean"] for model in one["test"]["models"])
        found = one["test"]["models"][1]
        gain = found["difference"]
        pruned = sum(fold["pruned"] for fold in one["folds"])
        rows.append(
            [
                f"{name}, {one['test']['lists']}",
                f"{default:.4f}",
                f"{tuned:.4f}",
                f"{gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]",
                f"{found['p']:.2f}",
                f"{len(one['folds'])} of 5",
                f"{pruned} of {one['trials'] * len(one['folds'])}",
            ]
        )
    return table(header, rows)


def _clicks(result: Mapping[str, Any]) -> str:
    """Return NDCG@10 of each ranker that is trained on clicks, and what positions change."""
    sets = result["sets"]
    rows = []
    for name in next(iter(sets.values()))["rankers"]:
        cells = []
        for one in sets.values():
            found = one["rankers"][name]
            cell = f"{found['ndcg_10']:.3f}"
            if "difference" in found:
                mean, error = found["difference"]
                cell += f", {mean:+.3f} ± {error:.3f}"
            cells.append(cell)
        rows.append([name, *cells])
    header = [
        f"{name}, {one['sessions']:,} sessions, {len(found['seeds'])} seeds"
        for name, one in sets.items()
        for found in [next(iter(one["rankers"].values()))]
    ]
    return table(["trained with", *header], rows)


def _propensities(result: Mapping[str, Any]) -> str:
    """Return the time and the errors of each way to estimate propensities."""
    names = {
        "harvesting": "harvesting: documents at several positions",
        "swaps": "random swaps",
        "em": "regression-EM",
        "em, features": "regression-EM with features",
    }
    rows = [
        [names[name], f"{one['seconds']:.1f}", f"{one['error']:.1%}", f"{one['inside']} of 9"]
        for name, one in result["propensities"].items()
    ]
    return table(["method", "CPU seconds", "largest error", "inside the interval"], rows)


def setting(result: Mapping[str, Any]) -> str:
    """Return the versions, the processor and the threads as a sentence."""
    where = result["environment"]
    threads = "one thread" if where["threads"] == 1 else f"{where['threads']} threads"
    return f"torch {where['torch']}, Python {where['python']}, {where['processor']}, {threads}."


def tables() -> dict[str, str]:
    """Return every table by its name."""
    names = (
        "compare_operators", "neuralsort_cubed", "training_step", "training", "soft_ndcg_goal",
        "standardized", "trials", "text", "tuning", "large_tables_losses",
        "embeddings", "rerankers", "clicks", "distillation", "first_stage",
        "retrievers", "candidates",
    )  # fmt: skip
    compared, cubed, step, training, goal, standardized, trials, text, tuning, *rest = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in names
    )
    losses, embeddings, rerankers, clicks, distillation, first_stage, *rest = rest
    retrievers, candidates = rest
    found = {"setting": setting(compared), "setting cubed": setting(cubed)}
    found |= {"setting step": setting(step), "step": _steps(step)}
    found |= {"setting training": setting(training), "training": _training(training)}
    found |= {"goal": _goal(goal), "standardized": _standardized(standardized)}
    found |= {"losses": _against(losses), "embeddings": _embeddings(embeddings)}
    found |= {"setting rerankers": setting(rerankers), "rerankers": _rerankers(rerankers)}
    found |= {"rerankers memory": _reranker_memory(rerankers)}
    found |= {"distillation": _distillation(distillation), "first stage": _first_stage(first_stage)}
    found |= {"retrievers": _retrievers(retrievers), "searches": _searches(retrievers)}
    found |= {"retriever steps": _retriever_steps(retrievers)}
    found |= {"candidates": _candidates(candidates)}
    found |= {"setting trials": setting(trials), "trials": _trials(trials)}
    found |= {"setting text": setting(text), "text": _text(text)}
    found |= {"text memory": _text_memory(text), "tuning": _tuning(tuning)}
    found |= {"clicks": _clicks(clicks), "propensities": _propensities(clicks)}
    kinds: dict[str, Callable[[Mapping[str, Any]], str]] = {"ranks": _ranks, "values": _values}
    for size in compared["sizes"]:
        for kind, make in kinds.items():
            head = f"n = {size['n']}, {size['lists']} lists, float32:\n\n"
            found[f"{kind} {size['n']}"] = head + make(size)
    head = f"{cubed['lists']} lists, temperature {cubed['temperature']:g}:\n\n"
    return found | {"cubed": head + _cubed(cubed)}


def filled(page: str, found: Mapping[str, str]) -> str:
    """Return the page with new tables.

    >>> filled("<!-- table a -->old<!-- end -->", {"a": "new"}).split()
    ['<!--', 'table', 'a', '-->', 'new', '<!--', 'end', '-->']
    """
    return re.sub(
        r"(<!-- table (.+?) -->).*?(<!-- end -->)",
        lambda match: f"{match[1]}\n\n{found[match[2]]}\n\n{match[3]}",
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(), tables()))

"""The tables of a sweep, which pandas draws from its results, and the sentence below them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ltr.cli import given_options
from recipes.results import Result

if TYPE_CHECKING:
    from recipes.sweep import Run, Sweep

NOT_RUN = "not run"
_NO_VERSIONS = ("device", "processor", "threads", "commit")
"""The entries of an environment that are no versions of libraries."""


def render(sweep: "Sweep", runs: Sequence["Run"], content: dict[str, Any]) -> str:
    """Return the content of `table.md`.

    A cell is the mean over all runs at its position, with the standard deviation. Published numbers
    have rows of their own below ours. What was not run at all has neither row nor column.

    Args:
        sweep: says what makes the rows and columns.
        runs: all runs of the sweep, finished or not.
        content: that of `results.json`.
    """
    found = {one["name"]: one for one in content["runs"] if "metrics" in one}
    parts = []
    if sweep.metrics:
        rows = [
            {
                "variant": run.variant,
                "metric": sweep.metrics[metric],
                "column": label(sweep.columns, run.point[sweep.columns]),
                "finished": run.name in found,
                "value": value_of(found.get(run.name, {}), metric),
            }
            for run in runs
            for metric in sweep.metrics
        ]
        frame = pd.DataFrame(rows, dtype=object)  # so that None stays None
        other = "metric" if sweep.rows == "variant" else "variant"
        for title, part in frame.groupby(other, sort=False):
            cells = part.groupby([sweep.rows, "column"], sort=False)[["finished", "value"]]
            grid: Any = cells.apply(summary).unstack("column")
            grid = grid.reindex(part[sweep.rows].unique(), columns=part["column"].unique())
            grid = _with_published(sweep, grid.fillna(""), str(title))
            if not len(grid):
                continue
            titles = [str(title)] if len(frame[other].unique()) > 1 else []
            if length := length_of(sweep.epochs, found.values()):
                titles.append(f"({length})" if titles else length)
            parts.append("\n\n".join([*[f"### {' '.join(titles)}"] * bool(titles), markdown(grid)]))
    spread = " ± is the standard deviation over the runs of a cell."
    parts.append(caption(runs, content) + spread * any("±" in part for part in parts))
    parts.append(sweep.below(list(runs), found))
    notes = [f"[{number}] {source}" for number, source in enumerate(sweep.published, start=1)]
    parts.append(f"Published: {'; '.join(notes)}." if notes else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def _with_published(sweep: "Sweep", grid: pd.DataFrame, title: str) -> pd.DataFrame:
    """Return the rows and columns of which anything was run, with the published numbers."""
    ran = ~grid.isin(["", NOT_RUN])
    grid = grid.loc[ran.any(axis=1), ran.any()]
    rows: dict[str, list[str]] = {}
    for name, row in grid.iterrows():
        rows[str(name)] = list(row)
        here = (str(name), title) if sweep.rows == "variant" else (title, str(name))
        for count, numbers in enumerate(sweep.published.values(), start=1):
            for (variant, metric), values in numbers.items():
                if (variant, sweep.metrics[metric]) != here:
                    continue
                decimals = max(len(repr(one).partition(".")[2]) for one in values.values())
                texts = {label(sweep.columns, k): f"{v:.{decimals}f}" for k, v in values.items()}
                rows[f"{name}, published [{count}]"] = [texts.get(c, "") for c in grid.columns]
    found = {name: line for name, line in rows.items() if any(line)}
    return pd.DataFrame.from_dict(found, orient="index", columns=grid.columns)


def label(name: str, value: Any) -> str:
    """Return a value of `Run.point` in words.

    >>> label("n", 5), label("images", "MNIST")
    ('n 5', 'MNIST')
    """
    return value if isinstance(value, str) else f"{name} {value}"


def value_of(result: Result, metric: str) -> float | None:
    """Return a result's value of a metric, or its "seconds" or "epochs".

    >>> value_of({"metrics": {"test_mrr": 0.5}, "seconds": 3.0}, "seconds")
    3.0
    """
    return result.get("metrics", {}).get(metric, result.get(metric))


def summary(runs: pd.DataFrame) -> str:
    """Return mean and sample standard deviation of the values of some runs, as text.

    >>> columns = {"finished": [True, True, False], "value": [0.5, 0.7, None]}
    >>> summary(pd.DataFrame(columns, dtype=object))
    '0.6000 ± 0.1414 (2 of 3)'
    """
    finished, planned = sum(runs["finished"]), len(runs)
    values = [float(one) for one in runs["value"] if one is not None]
    if not finished:
        return NOT_RUN
    if not values:
        return "-"  # such as the training time of a run that is not trained
    mean = float(np.mean(values))
    part = "" if finished == planned else f" ({finished} of {planned})"
    spread = f" ± {number(float(np.std(values, ddof=1)), like=mean)}" if len(values) > 1 else ""
    return number(mean) + spread + part


def number(value: float, like: float | None = None) -> str:
    """Return a number with four decimals, or with one if it, or `like`, is 10 or more.

    >>> number(0.49981), number(128.43), number(2.5, like=100.0)
    ('0.4998', '128.4', '2.5')
    """
    return f"{value:.1f}" if abs(value if like is None else like) >= 10 else f"{value:.4f}"


def markdown(grid: pd.DataFrame) -> str:
    """Return a table of text in Markdown; the index makes the first column.

    >>> print(markdown(pd.DataFrame({"NDCG@10": ["0.5000"]}, index=["SoftNDCG"])))
    |  | NDCG@10 |
    |:--|--:|
    | SoftNDCG | 0.5000 |
    """
    lines = [[grid.index.name or "", *grid.columns]]
    lines += [[str(name), *map(str, row)] for name, row in grid.iterrows()]
    text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([text[0], "|:--" + "|--:" * grid.shape[1] + "|", *text[1:]])


def length_of(published: int | None, results: Iterable[Result]) -> str:
    """Return whether runs have the published number of epochs, and how many seeds; "" without one.

    >>> length_of(100, [{"epochs": 3, "seed": 1}, {"epochs": 30, "seed": 1}])
    'shortened: 3 to 30 of 100 epochs, 1 seed'
    >>> length_of(100, [{"epochs": 100, "seed": 1}, {"epochs": 100, "seed": 2}])
    'full length: 100 epochs, 2 seeds'
    """
    trained = [result for result in results if "epochs" in result]
    if published is None or not trained:
        return ""
    epochs = sorted({result["epochs"] for result in trained})
    seeds = len({result["seed"] for result in trained})
    some = " to ".join(str(one) for one in dict.fromkeys([epochs[0], epochs[-1]]))
    whole = epochs[0] >= published
    said = f"full length: {some}" if whole else f"shortened: {some} of {published}"
    return f"{said} epochs, {seeds} seed{'s' * (seeds > 1)}"


def caption(runs: Sequence["Run"], content: dict[str, Any]) -> str:
    """Return a sentence on the finished runs: their count, epochs, seeds, machines, versions."""
    found = {one["name"]: one for one in content["runs"] if "metrics" in one}
    done = [(run, found[run.name]) for run in runs if run.name in found]
    results = [result for _, result in done]
    trained = [result for result in results if "epochs" in result]
    seeds = sorted({result["seed"] for result in results})
    overrides = given_options(content["overrides"])
    given = {name: option.value for name, option in overrides.items()}
    of_data = [run.options.get("data.seed", given.get("data.seed")) for run, _ in done]
    of_data = [str(seed) for seed in dict.fromkeys(of_data) if seed is not None]
    precision = content["config"].get("trainer", {}).get("precision")
    precision = given.get("trainer.precision", precision)
    finished = "all" if len(done) == len(runs) else f"{len(done)} of"
    parts = [f"{finished} {len(runs)} runs finished"]
    if trained:
        epochs, steps = (_span([one[key] for one in trained]) for key in ("epochs", "steps"))
        parts.append(f"trained {epochs} epoch{'s' * (epochs != '1')}, {steps} steps")
    parts += [f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"] * bool(seeds)
    parts += [f"data.seed {', '.join(of_data)}"] * bool(of_data)
    parts += [f"precision {precision}"] * bool(precision)
    environments = [result["environment"] for result in results]
    parts += dict.fromkeys(_machine(one) for one in environments)
    parts += dict.fromkeys(_versions(one) for one in environments)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _machine(environment: Mapping[str, str]) -> str:
    threads = environment["threads"]
    device = environment["device"]
    if device.startswith("cpu") and "processor" in environment:
        device = f"cpu ({environment['processor']})"
    return f"{device}, {threads} thread{'s' * (threads != '1')}"


def _versions(environment: Mapping[str, str]) -> str:
    names = [name for name in environment if name not in _NO_VERSIONS]
    return ", ".join(f"{name} {environment[name]}" for name in names)

"""The tables of `ltr bench`. A cell is a mean over the options that the table does not show."""

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from ltr.cli.bench_file import Place
from ltr.cli.chosen import Result, chosen_runs
from ltr.cli.plan import Plan, in_words

NOT_RUN = "not run"

_PUBLISHED = ", published ["

_MEAN = "mean"
"""Stands for all values of an option of the grid."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: "" if there is only one.
        head: the columns' headings.
        rows: their cells, the row's name first.
    """

    title: str
    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return the table in Markdown.

        >>> print(Table("", ["", "NDCG@10"], [["SoftNDCG", "0.5000"]]).markdown())
        |  | NDCG@10 |
        |:--|--:|
        | SoftNDCG | 0.5000 |
        """
        lines = [self.head, *self.rows]
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        text = [f"| {' | '.join(line)} |" for line in cells]
        text.insert(1, "|:--" + "|--:" * (len(self.head) - 1) + "|")
        title = [f"### {self.title}", ""] if self.title else []
        return "\n".join([*title, *text])


def number(value: float, like: float | None = None) -> str:
    """Return a number with four decimals, or with one if it, or `like`, is 10 or more.

    >>> number(0.49981), number(128.43), number(2.5, like=100.0)
    ('0.4998', '128.4', '2.5')
    """
    return f"{value:.1f}" if abs(value if like is None else like) >= 10 else f"{value:.4f}"


def value_of(result: Result, metric: str) -> float | None:
    """Return a run's value of a metric, or its "seconds" or "epochs".

    >>> value_of({"metrics": {"test_mrr": 0.5}, "seconds": 3.0}, "seconds")
    3.0
    """
    value = result["metrics"].get(metric, result.get(metric))
    return value if isinstance(value, (int, float)) else None


def runs_of(plan: Plan, results: dict[str, Result]) -> pd.DataFrame:
    """Return a row for each metric of each shown run, finished or not.

    The columns are `variant`, `metric`, the options of the grid, `finished` and `value`. Of a
    search only the chosen run counts, once all its runs are finished.
    """
    rows = [
        {
            **run.place,
            "metric": metric,
            "finished": result is not None,
            "value": None if result is None else value_of(result, metric),
        }
        for run, result in chosen_runs(plan, results)
        for metric in plan.metrics
    ]
    return pd.DataFrame(rows, dtype=object)  # so that None stays None


def summary(runs: pd.DataFrame) -> str:
    """Return mean and sample standard deviation of the values of some runs, as text.

    >>> columns = {"finished": [True, True, False], "value": [0.5, 0.7, None]}
    >>> summary(pd.DataFrame(columns, dtype=object))
    '0.6000 ± 0.1414 (2 of 3)'
    """
    finished, planned = sum(runs["finished"]), len(runs)
    values = [value for value in runs["value"] if value is not None]
    if not finished:
        return NOT_RUN
    if not values:
        return "-"  # such as the training time of a run that is not trained
    part = "" if finished == planned else f" ({finished} of {planned})"
    if all(isinstance(value, int) for value in values) and len(set(values)) == 1:
        return f"{values[0]}{part}"  # such as epochs
    mean, sd = _mean_and_sd(values)
    assert mean is not None
    return number(mean) + ("" if sd is None else f" ± {number(sd, like=mean)}") + part


def _mean_and_sd(values: list[float]) -> tuple[float | None, float | None]:
    """Return the mean, and the sample standard deviation of two or more values."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def make_tables(plan: Plan, results: dict[str, Result]) -> list[Table]:
    """Return the tables, one for each variant or metric if these are neither rows nor columns.

    If an option of the grid makes the columns (or rows), a last column (or row) has the mean and
    standard deviation over it. What was not run at all has neither row nor column. Published
    numbers have their own rows below ours, or their own columns beside ours if the variants are
    columns.
    """
    layout = plan.table
    across = layout.columns == "variant"
    main, other = (layout.columns, layout.rows) if across else (layout.rows, layout.columns)
    kinds = [kind for kind in ("variant", "metric") if kind not in (main, other)]
    runs = _with_means(plan, runs_of(plan, results))
    groups = runs.groupby([*kinds, main, other], sort=False)
    cells = groups[["finished", "value"]].apply(summary).to_dict()
    tables, titles = [], list(itertools.product(*(_values(plan, kind) for kind in kinds)))
    for title in titles:
        lines: dict[str, list[str]] = {}
        for value in _values(plan, main):
            label = _label(plan, main, value)
            keys = [(*title, value, one) for one in _values(plan, other)]
            line = [cells.get(key, "") for key in keys]
            if not _was_run(line):
                continue
            lines[label] = line
            places = [_place(dict(zip([*kinds, main, other], key, strict=True))) for key in keys]
            for count, source in enumerate(sources_of(plan), start=1):
                entries = [one for one in plan.published if one.source == source]
                found = [next(filter(None, (e.at(p) for e in entries)), "") for p in places]
                if any(found):
                    lines[f"{label}{_PUBLISHED}{count}]"] = found
        if not lines:
            continue
        labels = [_label(plan, other, value) for value in _values(plan, other)]
        grid = pd.DataFrame.from_dict(lines, orient="index", columns=labels)
        ours = grid[~grid.index.str.contains(_PUBLISHED, regex=False)]
        grid = grid.loc[:, [_was_run(ours[label]) for label in labels]]
        grid = grid.T if across else grid
        body = [[label, *line] for label, line in zip(grid.index, grid.to_numpy(), strict=True)]
        words = [_label(plan, kind, value) for kind, value in zip(kinds, title, strict=True)]
        name = ", ".join(words) if len(titles) > 1 else ""
        if length := length_of(plan, results):
            name = f"{name} ({length})" if name else length
        tables.append(Table(name, ["", *grid.columns], body))
    return tables


def _was_run(cells: Iterable[str]) -> bool:
    return any(cell not in ("", NOT_RUN) for cell in cells)


def length_of(plan: Plan, results: dict[str, Result]) -> str:
    """Return whether the runs have the published length, and how many seeds; "" if there is none.

    >>> from ltr.cli.bench_file import Layout
    >>> plan = Plan("sort", [], {}, [], [], {}, {}, Layout(), [], epochs=100)
    >>> length_of(plan, {"a": {"epochs": 3, "seed": 1}, "b": {"epochs": 30, "seed": 1}})
    'shortened: 3 to 30 of 100 epochs, 1 seed'
    >>> length_of(plan, {"a": {"epochs": 100, "seed": 1}, "b": {"epochs": 100, "seed": 2}})
    'full length: 100 epochs, 2 seeds'
    """
    trained = [result for result in results.values() if "epochs" in result]
    if plan.epochs is None or not trained:
        return ""
    epochs = sorted({result["epochs"] for result in trained})
    seeds = len({result["seed"] for result in trained})
    some = " to ".join(str(one) for one in dict.fromkeys([epochs[0], epochs[-1]]))
    whole = epochs[0] >= plan.epochs
    said = f"full length: {some}" if whole else f"shortened: {some} of {plan.epochs}"
    return f"{said} epochs, {seeds} seed{'s' * (seeds > 1)}"


def sources_of(plan: Plan) -> list[str]:
    """Return the distinct sources of the published numbers; the table numbers them from 1."""
    return list(dict.fromkeys(one.source for one in plan.published))


def summaries(plan: Plan, results: dict[str, Result]) -> list[dict[str, Any]]:
    """Return mean, standard deviation and values of each cell of the tables.

    A cell is a metric of a variant at a `point`: a value of the option of the grid that makes the
    rows or columns, if one does. The mean is over all other options, such as seeds. Where the table
    shows the mean over that option, there is a cell for it too.
    """
    options = [kind for kind in (plan.table.rows, plan.table.columns) if kind in plan.grid]
    runs = runs_of(plan, results)
    if plan.table.mean and options:
        runs = pd.concat([runs, runs.assign(**dict.fromkeys(options, _MEAN))])
    found = []
    for key, group in runs.groupby(["variant", "metric", *options], sort=False):
        variant, metric, *point = cast(tuple[Any, ...], key)
        values = [value for value in group["value"] if value is not None]
        mean, sd = _mean_and_sd(values)
        found.append(
            {
                "variant": variant,
                "point": _place(dict(zip(options, point, strict=True))),
                "metric": metric,
                "name": plan.metrics[metric],
                "mean": mean,
                "sd": sd,
                "finished": sum(group["finished"]),
                "planned": len(group),
                "values": values,
            }
        )
    return found


def _values(plan: Plan, kind: str) -> list[Any]:
    """Return the values that make the rows or columns, the mean last."""
    if kind in ("variant", "metric"):
        return plan.variants if kind == "variant" else list(plan.metrics)
    several = plan.table.mean and len(plan.grid[kind]) > 1
    return [*plan.grid[kind], _MEAN] if several else plan.grid[kind]


def _with_means(plan: Plan, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs, and again those that enter a mean, with `_MEAN` as their value."""
    for kind in (plan.table.rows, plan.table.columns):
        if kind in plan.grid and _MEAN in _values(plan, kind):
            runs = pd.concat([runs, runs.assign(**{kind: _MEAN})])
    return runs


def _place(place: Place) -> Place:
    return {key: value for key, value in place.items() if value != _MEAN}


def _label(plan: Plan, kind: str, value: Any) -> str:
    if kind == "metric":
        return plan.metrics[value]
    return value if kind == "variant" or value == _MEAN else in_words(kind, value)

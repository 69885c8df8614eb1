"""The tables of `ltr bench`: mean and standard deviation over what a table does not show."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ltr.cli.plan import Plan, short_name

Result = dict[str, Any]
"""One run's result.json: `variant`, `point`, `metrics`, `seconds` and more."""

NOT_RUN = "not run"


@dataclass(frozen=True)
class Summary:
    """Mean and spread of some runs.

    Attributes:
        values: of the runs that have one.
        finished: how many runs are finished.
        planned: how many runs there are to be.
    """

    values: list[float]
    finished: int
    planned: int

    @property
    def mean(self) -> float | None:
        """The mean; None without a value."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation (n - 1); None for fewer than two values."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        """Such as "0.4998 ± 0.0031", and how many of the runs, if not all.

        >>> str(Summary([0.5, 0.7], finished=2, planned=2)), str(Summary([0.5], 1, planned=2))
        ('0.6000 ± 0.1414', '0.5000 (1 of 2)')
        """
        if not self.finished:
            return NOT_RUN
        if self.mean is None:
            return "-"  # such as the training time of a run that is not trained
        spread = "" if self.sd is None else f" ± {number(self.sd, like=self.mean)}"
        part = "" if self.finished == self.planned else f" ({self.finished} of {self.planned})"
        return number(self.mean) + spread + part


@dataclass(frozen=True)
class Table:
    """A table to be printed.

    Attributes:
        title: "" if there is only one.
        head: the columns' headings.
        rows: their cells, the row's name first.
    """

    title: str
    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table in Markdown.

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
    """A number with as many digits as are worth reading, or as a number like it has.

    >>> number(0.49981), number(128.43), number(2.5, like=100.0), number(math.nan)
    ('0.4998', '128.4', '2.5', 'nan')
    """
    return f"{value:.1f}" if abs(value if like is None else like) >= 10 else f"{value:.4f}"


def value_of(result: Result, metric: str) -> float | None:
    """A run's value of a metric, or its "seconds" or "epochs".

    >>> value_of({"metrics": {"test_mrr": 0.5}, "seconds": 3.0}, "seconds")
    3.0
    """
    value = result["metrics"].get(metric, result.get(metric))
    return value if isinstance(value, (int, float)) else None


def summarise(plan: Plan, results: dict[str, Result], metric: str, **where: Any) -> Summary:
    """A metric over the runs of a variant (`variant=`) at values of the grid's options.

    Args:
        plan: of the bench.
        results: finished runs by name.
        metric: its logged name.
        where: variant, and the grid's options.
    """
    runs = [
        run
        for run in plan.runs
        if all((run.variant if k == "variant" else run.point[k]) == v for k, v in where.items())
    ]
    found = [value_of(results[run.name], metric) for run in runs if run.name in results]
    values = [value for value in found if value is not None]
    return Summary(values, finished=len(found), planned=len(runs))


def make_tables(plan: Plan, results: dict[str, Result]) -> list[Table]:
    """The tables, one for each variant or metric if these are neither rows nor columns.

    A last column (or row) has mean and standard deviation over an option of the grid that makes
    the columns (or rows).
    """
    shown = (plan.rows, plan.columns)
    kinds = [kind for kind in ("variant", "metric") if kind not in shown]
    tables = []
    for fixed in _product(plan, kinds):
        title = ", ".join(_label(plan, kind, value) for kind, value in fixed.items())
        columns = _with_mean(plan, plan.columns)
        head = ["", *(label for label, _ in columns)]
        rows = []
        for label, row in _with_mean(plan, plan.rows):
            places = [{**fixed, **row, **column} for _, column in columns]
            rows.append([label, *(str(summarise(plan, results, **place)) for place in places)])
        several = math.prod(len(_values(plan, kind)) for kind in kinds) > 1
        tables.append(Table(title if several else "", head, rows))
    return tables


def summaries(plan: Plan, results: dict[str, Result]) -> list[dict[str, Any]]:
    """Mean, standard deviation and values of each metric of each variant, over all its runs."""
    return [
        {
            "variant": variant,
            "metric": metric,
            "name": heading,
            "mean": summary.mean,
            "sd": summary.sd,
            "finished": summary.finished,
            "planned": summary.planned,
            "values": summary.values,
        }
        for variant in plan.variants
        for metric, heading in plan.metrics.items()
        for summary in [summarise(plan, results, metric, variant=variant)]
    ]


def _values(plan: Plan, kind: str) -> Sequence[Any]:
    if kind == "variant":
        return plan.variants
    return list(plan.metrics) if kind == "metric" else plan.grid[kind]


def _label(plan: Plan, kind: str, value: Any) -> str:
    if kind == "variant":
        return value
    return plan.metrics[value] if kind == "metric" else f"{short_name(kind)} {value}"


def _with_mean(plan: Plan, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The rows or columns: their names, and which runs they are of."""
    values = _values(plan, kind)
    entries = [(_label(plan, kind, value), {kind: value}) for value in values]
    if kind not in ("variant", "metric") and len(values) > 1:
        entries.append(("mean", {}))
    return entries


def _product(plan: Plan, kinds: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    for kind in kinds:
        found = [{**one, kind: value} for one in found for value in _values(plan, kind)]
    return found

"""The tables of `ltr bench`: mean and standard deviation over what a table does not show."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ltr.cli.chosen import Result, chosen_runs
from ltr.cli.plan import Plan, in_words

NOT_RUN = "not run"

_Line = tuple[str, dict[str, Any], str | None]
"""A row or column: its name, which runs it is of, and the source if it is of published numbers."""


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
        if not self.planned:
            return ""  # no such run is meant to be
        if not self.finished:
            return NOT_RUN
        if self.mean is None:
            return "-"  # such as the training time of a run that is not trained
        if all(isinstance(value, int) for value in self.values) and not self.sd:
            return f"{self.values[0]}" + self._part  # such as epochs
        spread = "" if self.sd is None else f" ± {number(self.sd, like=self.mean)}"
        return number(self.mean) + spread + self._part

    @property
    def _part(self) -> str:
        return "" if self.finished == self.planned else f" ({self.finished} of {self.planned})"


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

    Of runs that a search chooses from, the chosen one counts, once all of them are finished.

    Args:
        plan: of the bench.
        results: finished runs by name.
        metric: its logged name.
        where: variant, and the grid's options.
    """
    here = [
        result
        for run, result in chosen_runs(plan, results)
        if all(run.place[k] == v for k, v in where.items())
    ]
    found = [value_of(result, metric) for result in here if result is not None]
    values = [value for value in found if value is not None]
    return Summary(values, finished=len(found), planned=len(here))


def make_tables(plan: Plan, results: dict[str, Result]) -> list[Table]:
    """The tables, one for each variant or metric if these are neither rows nor columns.

    A last column (or row) has mean and standard deviation over an option of the grid that makes
    the columns (or rows). Published numbers are in rows of their own below ours, or in columns
    beside ours where the variants are columns.
    """
    shown = (plan.rows, plan.columns)
    kinds = [kind for kind in ("variant", "metric") if kind not in shown]
    across = plan.columns == "variant"  # then published numbers are in columns
    several = math.prod(len(_values(plan, kind)) for kind in kinds) > 1
    tables = []
    for fixed in _product(plan, kinds):
        rows, columns = _with_mean(plan, plan.rows), _with_mean(plan, plan.columns)
        if across:
            columns = _with_published(plan, columns, [{**fixed, **place} for _, place, _ in rows])
        else:
            rows = _with_published(plan, rows, [{**fixed, **place} for _, place, _ in columns])
        head = ["", *(label for label, _, _ in columns)]
        body = [
            [
                label,
                *(
                    _cell(plan, results, {**fixed, **row, **column}, source or beside)
                    for _, column, beside in columns
                ),
            ]
            for label, row, source in rows
        ]
        title = ", ".join(_label(plan, kind, value) for kind, value in fixed.items())
        tables.append(Table(title if several else "", head, body))
    return tables


def _cell(plan: Plan, results: dict[str, Result], place: dict[str, Any], source: str | None) -> str:
    """Ours, or what is published in that source."""
    if source is None:
        return str(summarise(plan, results, **place))
    found = [one for one in plan.published if one.source == source and one.at(place) is not None]
    return f"{found[0].at(place):.{found[0].decimals}f}" if found else ""


def _with_published(plan: Plan, lines: list[_Line], others: list[dict[str, Any]]) -> list[_Line]:
    """Rows (or columns), and after each the sources that have a number in it."""
    sources = sources_of(plan)
    found: list[_Line] = []
    for label, place, _ in lines:
        found.append((label, place, None))
        places = [{**place, **other} for other in others]
        for number, source in enumerate(sources, start=1):
            entries = [one for one in plan.published if one.source == source]
            if any(one.at(here) is not None for one in entries for here in places):
                found.append((f"{label}, published [{number}]", place, source))
    return found


def sources_of(plan: Plan) -> list[str]:
    """The sources of the published numbers, each once; their numbers in the table are 1, 2, ..."""
    return list(dict.fromkeys(one.source for one in plan.published))


def summaries(plan: Plan, results: dict[str, Result]) -> list[dict[str, Any]]:
    """Mean, standard deviation and values of what each cell of the tables is made of.

    That is of each metric of each variant, at each value of an option of the grid that makes the
    rows or columns (`point`), over all others, such as seeds; and over that option too where
    the table has its mean.
    """
    options = [kind for kind in (plan.rows, plan.columns) if kind not in ("variant", "metric")]
    points = _product(plan, options)
    if plan.mean and options:
        points.append({})
    return [
        {
            "variant": variant,
            "point": point,
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
        for point in points
        for summary in [summarise(plan, results, metric, variant=variant, **point)]
    ]


def _values(plan: Plan, kind: str) -> Sequence[Any]:
    if kind == "variant":
        return plan.variants
    return list(plan.metrics) if kind == "metric" else plan.grid[kind]


def _label(plan: Plan, kind: str, value: Any) -> str:
    if kind == "variant":
        return value
    return plan.metrics[value] if kind == "metric" else in_words(kind, value)


def _with_mean(plan: Plan, kind: str) -> list[_Line]:
    """The rows or columns."""
    values = _values(plan, kind)
    entries: list[_Line] = [(_label(plan, kind, value), {kind: value}, None) for value in values]
    if plan.mean and kind not in ("variant", "metric") and len(values) > 1:
        entries.append(("mean", {}, None))
    return entries


def _product(plan: Plan, kinds: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    for kind in kinds:
        found = [{**one, kind: value} for one in found for value in _values(plan, kind)]
    return found

"""Evaluate arrays of labels and scores: means with intervals, values of each list, paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ltr.arrays import as_names, as_numbers, as_qids, check_labels, numbered
from ltr.gains import Gain, gain_function
from ltr.metrics.comparison import Comparison, Interval, Test, compare
from ltr.metrics.named import AnyMeasure, Measure, Metric, as_measures
from ltr.metrics.ranked import check_empty
from ltr.metrics.ties import check_ties
from ltr.reports.documents import repeated_name
from ltr.reports.drawing import draw_means
from ltr.reports.evaluated import Evaluated, evaluate_table
from ltr.reports.results import Results, comparison_note, means_table
from ltr.reports.scored_tables import Scored
from ltr.reports.slices import COMPUTED, Segments, Slices, list_values, segments, slice_models

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DEFAULT = ("ndcg@10", "map", "mrr")
"""The default metrics of `evaluate`."""


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`: `print` it, or use `result["ndcg@10"]`, an `Interval`.

    Attributes:
        name: a name for the scores, in tables and plots.
        qids: the qid of each list, as given in its first row, in the order of these rows.
        values: for each metric's name, its values, float64 (lists,); NaN for a list that is left
            out.
        intervals: the mean of each metric, with its interval.
        empty: how many lists have no relevant item.
        confidence: the level of the intervals, in (0, 1).
        resamples: how many bootstrap samples were drawn.
        seed: the seed of the bootstrap draws.
        options: the arguments `gain`, `empty` and `ties` of `evaluate`, by name.
        measures: the metrics, by name.
        table: the rows of all lists, which `report` needs.
        segments: the slice of each list, by the name of each column of `by`.
        slices: the means of each slice, with their intervals; None without `by`.
    """

    name: str
    qids: list[Any]
    values: dict[str, np.ndarray]
    intervals: dict[str, Interval]
    empty: int
    confidence: float
    resamples: int
    seed: int
    options: dict[str, Any]
    measures: dict[str, AnyMeasure] = field(repr=False)
    table: Scored = field(repr=False)
    segments: dict[str, Segments] = field(default_factory=dict, repr=False)
    slices: Slices | None = field(default=None, repr=False)

    def __getitem__(self, metric: Metric) -> Interval:
        """Return the mean of a metric, with its interval; see `evaluate` for the names."""
        return self.intervals[self._title(metric)]

    def __str__(self) -> str:
        lines = means_table("mean", self.intervals, self.values, self._draws())
        if self.empty:
            lines.append(f"{self.empty:,} of {len(self.qids):,} lists have no relevant item")
        return "\n".join([*lines, *([] if self.slices is None else ["", str(self.slices)])])

    @property
    def per_list(self) -> "pd.DataFrame":
        """The values of each list: one row per list, by its qid, and one column per metric."""
        import pandas as pd

        return pd.DataFrame(self.values, index=pd.Index(self.qids, name="qid"))

    def compare(
        self,
        other: "Evaluation",
        metric: Metric | None = None,
        *,
        names: tuple[str, str] | None = None,
        test: Test = "randomization",
    ) -> Comparison:
        """Compare this evaluation with one of other scores on the same lists, in any order.

        Args:
            other: the other evaluation; the differences are `other` minus `self`.
            metric: the metric. Default: the first one.
            names: the names of the two evaluations in the table. Default: their own names, or
                "self" and "other" if the names are equal.
            test: see `ltr.metrics.compare`.

        Returns:
            The paired test, with this evaluation's confidence, resamples and seed. The caption of
            its table names the metric, the gain if the metric has one, and the sign of the
            differences.

        Raises:
            ValueError: a qid is in only one of the evaluations, one of them lacks the metric, they
                have different `gain`, `empty` or `ties`, fewer than two lists have a value in both,
                or an option is wrong.
        """
        names = names or self._names(other)
        title, values = self._paired(other, metric)
        comparison = compare(*values, names=names, test=test, **self._draws())
        note = comparison_note(self.measures[title], self.options, names)
        return replace(comparison, note=note)

    def compare_slices(
        self,
        other: "Evaluation",
        metric: Metric | None = None,
        *,
        test: Test = "randomization",
    ) -> Slices:
        """Compare the two evaluations in each slice of this evaluation's `by`.

        Holm's correction is for the number of slices of a column that are tested. A slice of fewer
        than 20 lists has no interval and no test.

        Args:
            other: as in `compare`.
            metric: as in `compare`.
            test: as in `compare`.

        Raises:
            ValueError: this evaluation has no slices, or as in `compare`.

        >>> qid, segment = [i // 2 for i in range(80)], ["new"] * 40 + ["old"] * 40
        >>> labels, scores = [1, 0] * 40, [0.1, 0.2] * 20 + [0.2, 0.1] * 20
        >>> before = evaluate(labels, scores, qid, ["mrr"], by={"age": segment}, name="before")
        >>> after = evaluate(labels, labels, qid, ["mrr"], name="after")
        >>> print(before.compare_slices(after))
        mrr
        age  lists  queries  before   after            difference [95%]  p (Holm)
        new     20     50 %  0.5000  1.0000  +0.5000 [+0.5000, +0.5000]    0.0002
        old     20     50 %  1.0000  1.0000  +0.0000 [+0.0000, +0.0000]    1.0000
        """
        if not self.segments:
            raise ValueError("compare_slices needs slices: give `by` to evaluate")
        title, values = self._paired(other, metric)
        pairs = zip(self._names(other), values, strict=True)
        models = {name: {title: x} for name, x in pairs}
        return slice_models(self.segments, models, test=test, **self._draws())

    def _names(self, other: "Evaluation") -> tuple[str, str]:
        return ("self", "other") if self.name == other.name else (self.name, other.name)

    def _paired(
        self, other: "Evaluation", metric: Metric | None
    ) -> tuple[str, tuple[np.ndarray, np.ndarray]]:
        """Return a metric's name and both evaluations' values of the same lists."""
        title = self._title(metric) if metric is not None else next(iter(self.values))
        if other.options != self.options:
            raise ValueError(f"other must have the options {self.options}, got {other.options}")
        values = other.values[other._title(title)][self._positions(other)]
        return title, (self.values[title], values)

    def _draws(self) -> dict[str, Any]:
        return {"confidence": self.confidence, "resamples": self.resamples, "seed": self.seed}

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the means with their intervals.

        Args:
            axes: the axes to draw in. Default: the axes of a new figure, `plot().figure`.

        Returns:
            The axes. The method needs matplotlib (the extra `plots`).
        """
        label = f"{self.name}: {100 * self.confidence:g}% interval"
        return draw_means(self.intervals, label, "Evaluation.plot", axes)

    def report(
        self,
        path: str | PathLike[str],
        *others: "Evaluation",
        test: Test = "randomization",
    ) -> None:
        """Write an HTML page that needs no other file, as `ltr evaluate --html` does.

        The page shows the means with their intervals, the distribution of the values over lists,
        and the best and worst lists by the first metric, with their documents. If there are
        `others`, it shows the differences instead of the values, and also paired tests with Holm's
        correction and how far the rankings agree. Pass `doc_id` to `evaluate` so that documents
        have names. If `evaluate` got `by`, the page shows each slice, with its worst lists.

        Args:
            path: the file, written completely or not at all; its folder is made if it is missing.
            others: evaluations of other scores on the same lists, which may be in any order. Each
                has a name of its own, and is compared with this evaluation.
            test: see `ltr.metrics.compare`.

        Raises:
            ValueError: a qid is in only one of two evaluations; one of `others` lacks a metric of
                this evaluation, or has a different `gain`, `empty` or `ties`; two evaluations have
                the same name, or fewer than two lists with a value in both; the path is a folder;
                or jinja2 (the extra `report`) is not installed.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> labels, qid = [0, 2, 1, 0, 1], ["a", "a", "a", "b", "b"]
        >>> before = evaluate(labels, [0.1, 0.9, 0.3, 0.4, 0.2], qid, name="before")
        >>> after = evaluate(labels, [0.1, 0.9, 0.3, 0.4, 0.5], qid, name="after")
        >>> page = Path(mkdtemp(), "report.html")
        >>> before.report(page, after)
        >>> "against" in page.read_text()
        True
        """
        models = [self._evaluated([*range(len(self.qids))])]
        for other in others:
            if other.options != self.options:
                raise ValueError(
                    f"others must have the options {self.options}, got {other.options} for "
                    f"{other.name!r}"
                )
            for title in self.values:
                other._title(title)
            if other.name in [model.name for model in models]:
                raise ValueError(f"others must have different names, got {other.name!r} twice")
            models.append(other._evaluated(self._positions(other)))
        Results.of(models, self.segments, self._draws(), self.options, test=test).write_page(path)

    def _positions(self, other: "Evaluation") -> list[int]:
        """Return the indices of this evaluation's lists in another evaluation."""
        own, others = self.table.qids, other.table.qids
        position = {qid: i for i, qid in enumerate(others)}
        known = {*own}
        alone = [qid for qid in own if qid not in position]
        alone += [qid for qid in others if qid not in known]
        if alone:
            raise ValueError(
                f"other must have the same lists: {len(alone):,} qids are in only one of "
                f"the two, such as {alone[0]!r}"
            )
        return [position[qid] for qid in own]

    def _evaluated(self, positions: Sequence[int]) -> Evaluated:
        """Return the lists at these indices, with their documents."""
        (scores,) = self.table.scores
        return Evaluated(
            self.name,
            [self.table.qids[i] for i in positions],
            self.measures,
            {title: values[[*positions]] for title, values in self.values.items()},
            self.empty,
            documents=self.table.documents(scores),
        )

    def _title(self, metric: Metric) -> str:
        if isinstance(metric, str) and metric in self.values:
            return metric
        (measure,) = as_measures([metric])
        if measure.title not in self.values:
            raise ValueError(f"metric must be one of {', '.join(self.values)}, got {metric!r}")
        return measure.title


def evaluate(
    labels: Any,
    scores: Any,
    qid: Any,
    metrics: Sequence[Metric | Measure] = DEFAULT,
    *,
    by: Any = None,
    doc_id: Any = None,
    gain: Gain = "exp2",
    empty: float | Literal["skip", "error"] = 0,
    ties: Literal["stable", "expected", "worst"] = "stable",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    name: str = "scores",
) -> Evaluation:
    """Evaluate scores against labels: return the mean of each metric with a confidence interval.

    The values are those that `ltr evaluate` prints for a table of the same rows. Arrays may come
    from numpy, pandas, polars or Arrow, or be lists or tensors; scores are compared in float64.

    Args:
        labels: (rows,), numbers >= 0; above 0 is relevant.
        scores: (rows,), the higher the better; equal scores are ranked as `ties` says.
        qid: (rows,), the query of each row: numbers, text or dates, in any order. Two rows have the
            same query if `ltr.columns.qid_text` gives the same text.
        metrics: names with or without a cutoff, such as "ndcg@10", "map" and "mrr" (the default);
            names of ir_measures and trec_eval, such as "nDCG@10", "RR" and "P_5", work too. Or, as
            in `NeuralRanker(metric=)`, objects of a metric class, whose own options hold, and
            functions of one list's labels, scores and qids; higher must be better.
        by: (rows,), a value that all rows of a list share, such as a category: each value is a
            slice with its own means, in `Evaluation.slices`. Or several such columns by name.
            Instead of a column, "length" is the number of documents and "relevant" the number of
            relevant ones. Numbers with more than 20 different values are cut into four ranges with
            about equal numbers of lists; a missing value is a slice.
        doc_id: (rows,), the name of each row's document, for `Evaluation.report`. Default: the
            number of the row.
        gain: the gain of NDCG, DCG and RBP by name: "exp2" (2^label - 1, as in LightGBM and
            XGBoost) or "linear" (the label, as in trec_eval, ir_measures and scikit-learn).
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: how equal scores are ranked: "stable" (in the order of the rows), "worst" (in the
            order with the worst value) or "expected" (the mean over all orders).
        confidence: the level of the intervals, in (0, 1).
        resamples: the number of bootstrap samples.
        seed: the seed of the bootstrap draws.
        name: a name for the scores, in tables and plots.

    Raises:
        ValueError: arrays have different lengths, a label or score is not finite, a label is below
            0, a qid is missing, a document occurs twice in a list, a value of `by` changes inside a
            list, a column of `by` has fewer than two values or more than 1,000, or a metric or
            option is unknown. Or two functions have the same name, or one of them returns no finite
            number.

    >>> labels, scores = [0, 2, 1, 0, 1], [0.1, 0.9, 0.3, 0.4, 0.2]
    >>> result = evaluate(labels, scores, ["a", "a", "a", "b", "b"], ["ndcg@10", "mrr"])
    >>> print(result)
                          mean [95%]  lists
    ndcg@10  0.8155 [0.6309, 1.0000]      2
    mrr      0.7500 [0.5000, 1.0000]      2
    >>> result["nDCG@10"].mean
    0.8154648767857288
    >>> result.per_list["mrr"].to_dict()
    {'a': 1.0, 'b': 0.5}
    >>> from ltr.metrics import MRR
    >>> best = MRR(relevant_from=2, empty="skip")
    >>> evaluate(labels, scores, ["a", "a", "a", "b", "b"], [best])[best].mean
    1.0
    """
    measures = as_measures(metrics)
    if not measures:
        raise ValueError(f"metrics must have at least one name, got {metrics!r}")
    grades = _rows("labels", labels)
    predicted = _rows("scores", scores, len(grades))
    check_labels("labels", grades)
    lists, queries = numbered(as_qids("qid", qid, len(grades)))
    documents = None
    if doc_id is not None:
        names = as_qids("doc_id", doc_id, len(grades), what="a document")
        documents = np.array(names.cast(pa.string()).to_pylist(), dtype=object)
    if documents is not None and (row := repeated_name(lists, documents)) is not None:
        raise ValueError(
            f"doc_id must be unique within each list, got {documents[row]!r} again in row {row}"
        )
    gain_function(gain)  # this checks the gain, even if no metric takes it
    options: dict[str, Any] = {"gain": gain, "empty": check_empty(empty), "ties": check_ties(ties)}
    qids = queries.cast(pa.string()).to_pylist()
    table = Scored(qids, lists, grades, [predicted], documents)
    (evaluated,) = evaluate_table(table, [name], measures, options, float(grades.max(initial=0)))
    draws: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    results = Results.of([evaluated], _segments(by, table), draws, options)
    return Evaluation(
        name,
        _given("qid", qid, np.unique(lists, return_index=True)[1]),
        evaluated.values,
        {title: x for title, x in results.metrics.items() if isinstance(x, Interval)},
        evaluated.empty,
        **draws,
        options=options,
        measures=evaluated.measures,
        table=table,
        segments=results.segments,
        slices=results.slices,
    )


def _segments(by: Any, table: Scored) -> dict[str, Segments]:
    """Return the slice of each list, by the name of each column."""
    if by is None:
        return {}
    if isinstance(by, str):
        named: Mapping[Any, Any] = {by: by}
    else:
        named = by if isinstance(by, Mapping) else {getattr(by, "name", None) or "by": by}
    if not named:
        raise ValueError("by must have at least one column, got none")
    segments_by_column = {}
    for name, values in named.items():
        if isinstance(values, str) and values not in COMPUTED:
            raise ValueError(f"by must be values of rows, or one of {COMPUTED}, got {values!r}")
        argument = "by" if not isinstance(by, Mapping) else f"by[{name!r}]"
        if isinstance(values, str):
            of_lists = table.counts()[values]
        else:
            of_lists = list_values(argument, values, table.lists, table.qids)
        segments_by_column[str(name)] = segments(argument, of_lists)
    return segments_by_column


def _given(name: str, values: Any, rows: np.ndarray) -> list[Any]:
    """Return the values of some rows, as given."""
    array = as_names(name, values)
    if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] == "ns":
        import pandas as pd

        # numpy's `tolist` would turn nanoseconds into whole numbers.
        array = pd.Series(array).astype(object).to_numpy()
    return array[rows].tolist()


def _rows(name: str, values: Any, rows: int | None = None) -> np.ndarray:
    array = as_numbers(name, values).astype(np.float64)
    if array.ndim != 1 or (rows is not None and len(array) != rows):
        wanted = "(rows,)" if rows is None else f"({rows},) as labels have"
        raise ValueError(f"{name} must have shape {wanted}, got {array.shape}")
    if not len(array):
        raise ValueError(f"{name} must have at least one row, got none")
    if (bad := np.flatnonzero(~np.isfinite(array))).size:
        raise ValueError(f"{name} must be finite, got {array[bad[0]]} in row {bad[0]}")
    return array

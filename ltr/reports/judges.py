"""Whether judges agree: kappa, alpha, the order of systems, and how many grades it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from ltr.arrays import as_names, as_numbers, list_numbers
from ltr.metrics.comparison import Interval, check_draws, text_table
from ltr.metrics.named import AnyMeasure, Metric, as_measures
from ltr.names import plural
from ltr.reports.evaluated import evaluate_table
from ltr.reports.scored_tables import Scored
from ltr.shapes import check_choice

Weights = Literal["quadratic", "linear", "none"]
Level = Literal["ordinal", "interval", "nominal"]

_MOST_GRADES = 100
_GROUPS = 2000  # more queries are joined at random into this many groups, which are drawn
_CHUNK = 1 << 22  # about this many values are drawn at a time, to limit the memory


class Grades(NamedTuple):
    """The grades of several judges.

    Attributes:
        judges: the names of the judges.
        grades: the different grades, ascending.
        codes: (judges, rows) the index of each grade in `grades`; -1 for a missing grade.
    """

    judges: tuple[str, ...]
    grades: np.ndarray
    codes: np.ndarray


class JudgePair(NamedTuple):
    """How far two judges agree on the rows that both have graded.

    Attributes:
        a: the name of one judge.
        b: the name of the other judge.
        rows: the number of these rows.
        kappa: Cohen's weighted kappa; NaN if both always give the same single grade.
        tau: Kendall's tau-b between the systems' orders by either judge; None without `systems`.
        confusion: (grades, grades) the number of rows by the grades of `a` (down) and of `b`.
    """

    a: str
    b: str
    rows: int
    kappa: Interval
    tau: Interval | None
    confusion: np.ndarray


@dataclass(frozen=True)
class JudgeAgreement:
    """The result of `agreement`: `print` it.

    Attributes:
        pairs: each two judges.
        alpha: Krippendorff's alpha of all judges.
        grades: the different grades, ascending.
        rows: how many rows have at least two grades.
        left_out: how many rows have fewer than two grades, and so do not count.
        qids: the queries, in the order of their first rows.
        disagreement: (queries,) the mean squared difference of two judges' grades; NaN for a query
            without a row of two grades.
        weights: the weights of kappa.
        level: the level of measurement of alpha.
        confidence: the level of the intervals, in (0, 1).
    """

    pairs: tuple[JudgePair, ...]
    alpha: Interval
    grades: tuple[float, ...]
    rows: int
    left_out: int
    qids: list[Any]
    disagreement: np.ndarray = field(repr=False)
    weights: Weights
    level: Level
    confidence: float

    def most_different(self, number: int = 10) -> list[tuple[Any, float]]:
        """Return the queries on which judges disagree most, with the mean squared difference."""
        known = np.flatnonzero(~np.isnan(self.disagreement))
        order = known[np.argsort(-self.disagreement[known], kind="stable")][:number]
        return [(self.qids[i], float(self.disagreement[i])) for i in order]

    def __str__(self) -> str:
        level = f"[{100 * self.confidence:g}%]"
        has_tau = self.pairs[0].tau is not None
        head = ["", "rows", f"kappa {level}", *([f"tau of systems {level}"] if has_tau else [])]
        rows = [
            [f"{x.a}, {x.b}", f"{x.rows:,}", str(x.kappa), *([str(x.tau)] if has_tau else [])]
            for x in self.pairs
        ]
        lines = text_table(head, rows)
        lines.append(f"alpha ({self.level}): {self.alpha}; kappa with {self.weights} weights")
        rows_left = f"{self.left_out:,} {plural(self.left_out, 'row')}"
        left_out = f"; {rows_left} with fewer than two grades" if self.left_out else ""
        queries = f"{len(self.qids):,} {plural(len(self.qids), 'query', 'queries')}"
        lines.append(f"{self.rows:,} {plural(self.rows, 'row')} of {queries}{left_out}")
        if len(self.pairs) == 1:
            (pair,) = self.pairs
            names = [f"{grade:g}" for grade in self.grades]
            table = [[n, *map(str, x)] for n, x in zip(names, pair.confusion, strict=True)]
            lines += ["", *text_table([f"{pair.a} \\ {pair.b}", *names], table)]
        return "\n".join(lines)


def read_grades(a: Any, b: Any = None) -> Grades:
    """Return the grades of judges, checked.

    Raises:
        ValueError: as in `agreement`.
    """
    if not isinstance(a, Mapping):
        if b is None:
            raise ValueError("b must be the grades of another judge, got None")
        a = {"a": a, "b": b}
    elif b is not None:
        raise ValueError("b must be None if a is a mapping of all judges")
    if len(a) < 2:
        raise ValueError(f"at least two judges are needed, got {list(a)}")
    columns = []
    for name, values in a.items():
        column = as_numbers(f"grades of {name!r}", values).astype(np.float64)
        if column.ndim != 1 or (columns and len(column) != len(columns[0])):
            wanted = f"({len(columns[0])},) as the others" if columns else "(rows,)"
            raise ValueError(f"grades of {name!r} must have shape {wanted}, got {column.shape}")
        if (bad := np.flatnonzero(np.isinf(column))).size:
            raise ValueError(f"grades of {name!r} must be finite or NaN, got inf in row {bad[0]}")
        if np.isnan(column).all():
            raise ValueError(f"grades of {name!r} must have at least one grade, got none")
        columns.append(column + 0.0)  # -0.0 is 0.0
    table = np.stack(columns)
    grades = np.unique(table[~np.isnan(table)])
    if len(grades) > _MOST_GRADES:
        raise ValueError(
            f"grades must have at most {_MOST_GRADES} different values, got {len(grades):,}"
        )
    codes = np.where(np.isnan(table), -1, np.searchsorted(grades, table)).astype(np.int64)
    return Grades(tuple(map(str, a)), grades, codes)


def agreement(
    a: Any,
    b: Any = None,
    qid: Any = None,
    *,
    systems: Mapping[str, Any] | None = None,
    metric: Metric = "ndcg@10",
    weights: Weights = "quadratic",
    level: Level = "ordinal",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> JudgeAgreement:
    r"""Measure how far judges agree, such as a language model and a human.

    **Kappa** of two judges is 1 - (observed disagreement) / (expected disagreement). The expected
    disagreement is that of independent judges with the same frequencies of grades. Kappa is 1 for
    equal grades, and 0 for agreement by chance.
    **Alpha** measures the same for any number of judges, with missing grades. It does not depend on
    which judge gave a grade.
    **Tau** measures what matters for an evaluation: whether both judges put the systems in the same
    order.

    Args:
        a: (rows,) the grades of one judge, finite; NaN for a missing grade. Or the grades of two or
            more judges by name.
        b: (rows,) the grades of the other judge; None if `a` is a mapping.
        qid: (rows,) the query of each row, in any order, the unit of the intervals. Default: each
            row is a query of its own.
        systems: the scores (rows,) of two or more rankers, by name, for `JudgePair.tau`. It needs
            `qid`. The systems rank the rows that both judges graded.
        metric: the metric of the systems, such as "ndcg@10"; then grades must be >= 0.
        weights: the cost of a difference d of two grades in kappa: "quadratic" is d^2, "linear" is
            |d|, and "none" is 1 for any difference. In scikit-learn, d is the difference of the
            grades' indices.
        level: "ordinal" (ranks), "interval" (d^2) or "nominal" for alpha.
        confidence: the level of the intervals, in (0, 1).
        resamples: the number of bootstrap samples of queries.
        seed: the seed of the draws.

    Returns:
        A `JudgeAgreement`. Its intervals are percentiles over samples of queries. They are too
        narrow for fewer than about 20 queries. More than 2,000 queries are first joined at random
        into 2,000 groups, and samples consist of groups. If all grades are equal, no disagreement
        can be expected, and kappa and alpha are NaN.
        Cost: O(rows * judges^2) time and O(rows * judges) memory, and one evaluation of each system
        for each judge of each pair.

    Raises:
        ValueError: there are fewer than two judges or systems, lengths differ, a grade is infinite,
            no two judges graded the same row, there are more than 100 different grades, `systems`
            lack `qid`, or an option is wrong.

    Reference: Cohen, "Weighted kappa", Psychological Bulletin 1968; Krippendorff, "Computing
    Krippendorff's alpha-reliability", 2011.

    >>> human, llm = [0, 1, 2, 0, 1, 2, 0, 0], [0, 1, 2, 1, 1, 2, 0, 1]
    >>> result = agreement({"human": human, "llm": llm}, qid=[1, 1, 2, 2, 3, 3, 4, 4])
    >>> print(result)
                rows              kappa [95%]
    human, llm     8  0.8000 [0.5000, 1.0000]
    alpha (ordinal): 0.7750 [0.2708, 1.0000]; kappa with quadratic weights
    8 rows of 4 queries
    <BLANKLINE>
    human \ llm  0  1  2
    0            2  2  0
    1            0  2  0
    2            0  0  2
    >>> result.most_different(2)
    [(2, 0.5), (4, 0.5)]
    """
    check_choice("weights", weights, "quadratic", "linear", "none")
    check_choice("level", level, "ordinal", "interval", "nominal")
    confidence, resamples, seed = check_draws(confidence, resamples, seed)
    given = read_grades(a, b)
    judges, grades, codes = given
    rows = codes.shape[1]
    lists = np.arange(rows) if qid is None else list_numbers(qid, rows)
    qids = lists.tolist() if qid is None else _first(qid, lists)
    counts = (codes >= 0).sum(0)
    if not (counts > 1).any():
        raise ValueError("at least two judges must have graded the same row, got none")
    measure = _measure(metric, systems, qid, grades)
    rng = np.random.default_rng(seed)
    groups = _groups(lists, rng)
    drawn = _draws(int(groups.max()) + 1, resamples, rng)
    kinds = len(grades)
    together = np.zeros((int(groups.max()) + 1, kinds * kinds))
    squares, compared = np.zeros(len(qids)), np.zeros(len(qids))
    pairs = []
    for judge, other in combinations(range(len(judges)), 2):
        both = np.flatnonzero((codes[judge] >= 0) & (codes[other] >= 0))
        x, y = codes[judge, both], codes[other, both]
        cells, cell = groups[both] * kinds * kinds, x * kinds + y
        sums = np.bincount(cells + cell, minlength=together.size).reshape(together.shape)
        share = 1 / (counts[both] - 1)  # Krippendorff's weight of a pair of grades
        together += np.bincount(cells + cell, share, together.size).reshape(together.shape)
        squares += np.bincount(lists[both], (grades[x] - grades[y]) ** 2, len(qids))
        compared += np.bincount(lists[both], minlength=len(qids))
        kappas = _kappas(np.r_[sums.sum(0)[None], drawn @ sums], grades, weights)
        tau = None
        if measure is not None and systems is not None and len(both):
            of_judge, of_other = (
                _system_values(grades[c], systems, both, lists, len(qids), measure) for c in (x, y)
            )
            taus = _system_taus(of_judge, of_other, groups, lists, drawn)
            tau = _interval(taus, confidence)
        elif measure is not None:
            tau = Interval(np.nan, np.nan, np.nan)
        confusion = sums.sum(0).reshape(kinds, kinds).astype(np.int64)
        kappa = _interval(kappas, confidence)
        pairs.append(JudgePair(judges[judge], judges[other], len(both), kappa, tau, confusion))
    alphas = _alphas(np.r_[together.sum(0)[None], drawn @ together], grades, level)
    return JudgeAgreement(
        pairs=tuple(pairs),
        alpha=_interval(alphas, confidence),
        grades=tuple(grades.tolist()),
        rows=int((counts > 1).sum()),
        left_out=int((counts < 2).sum()),
        qids=qids,
        disagreement=np.divide(
            squares, compared, out=np.full(len(qids), np.nan), where=compared > 0
        ),
        weights=weights,
        level=level,
        confidence=confidence,
    )


def _first(qid: Any, lists: np.ndarray) -> list[Any]:
    """Return the name of each query, as given in its first row."""
    return as_names("qid", qid)[np.unique(lists, return_index=True)[1]].tolist()


def _measure(
    metric: Metric, systems: Mapping[str, Any] | None, qid: Any, grades: np.ndarray
) -> AnyMeasure | None:
    """Return the metric of the systems, or None without systems; check the arguments for them."""
    if systems is None:
        return None
    if not isinstance(systems, Mapping) or len(systems) < 2:
        raise ValueError(f"systems must be at least two rankers' scores by name, got {systems!r}")
    if qid is None:
        raise ValueError("qid must be the query of each row if systems are given, got None")
    if grades[0] < 0:
        raise ValueError(f"grades must be >= 0 to evaluate systems, got {grades[0]:g}")
    (measure,) = as_measures([metric])
    return measure


def _groups(lists: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the group of each row: its query, or one of 2,000 groups of queries."""
    number = int(lists.max()) + 1
    if number <= _GROUPS:
        return lists
    return rng.permutation(np.arange(number) % _GROUPS)[lists]


def _draws(groups: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each sample contains each group, float64 (resamples, groups)."""
    return rng.multinomial(groups, np.full(groups, 1 / groups), resamples).astype(np.float64)


def _interval(values: np.ndarray, confidence: float) -> Interval:
    """Return the first value, with the percentiles of the others."""
    known = values[1:][~np.isnan(values[1:])]
    if np.isnan(values[0]) or not len(known):
        return Interval(float(values[0]), np.nan, np.nan)
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values[0]), float(low), float(high))


def _ratio(observed: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return 1 - observed / expected; NaN where nothing is expected."""
    ratio = np.full(len(observed), np.nan)
    np.divide(observed, expected, out=ratio, where=expected > 0)
    return 1 - ratio


def _kappas(tables: np.ndarray, grades: np.ndarray, weights: Weights) -> np.ndarray:
    """Return the kappa of each confusion table (tables, grades * grades)."""
    kinds = len(grades)
    distance = np.abs(grades[:, None] - grades)
    distance = {"quadratic": distance**2, "linear": distance, "none": distance > 0}[weights]
    tables = tables.reshape(-1, kinds, kinds)
    expected = ((tables.sum(2) @ distance) * tables.sum(1)).sum(1)
    return _ratio((tables * distance).sum((1, 2)) * tables.sum((1, 2)), expected)


def _alphas(tables: np.ndarray, grades: np.ndarray, level: Level) -> np.ndarray:
    """Return the alpha of each table (tables, grades * grades) of pairs of grades.

    Each pair counts once, with weight 1 / (grades of its row - 1).
    """
    kinds = len(grades)
    tables = tables.reshape(-1, kinds, kinds)
    tables = tables + tables.transpose(0, 2, 1)  # the coincidences
    totals = tables.sum(2)
    if level == "ordinal":
        # Twice the middle rank of each grade; the constant does not matter.
        middle = 2 * np.cumsum(totals, 1) - totals
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    elif level == "interval":
        distance = ((grades[:, None] - grades) ** 2)[None]
    else:
        distance = (grades[:, None] != grades)[None].astype(np.float64)
    observed = (tables * distance).sum((1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum((1, 2))
    return _ratio(observed * (totals.sum(1) - 1), expected)


def _system_values(
    labels: np.ndarray,
    systems: Mapping[str, Any],
    rows: np.ndarray,
    lists: np.ndarray,
    number: int,
    measure: AnyMeasure,
) -> np.ndarray:
    """Return the metric of each system on each query (queries, systems); NaN without labels."""
    columns = []
    for name, scores in systems.items():
        column = as_numbers(f"scores of {name!r}", scores).astype(np.float64)
        if column.shape != lists.shape:
            raise ValueError(
                f"scores of {name!r} must have shape {lists.shape}, got {column.shape}"
            )
        if (bad := np.flatnonzero(~np.isfinite(column))).size:
            raise ValueError(
                f"scores of {name!r} must be finite, got {column[bad[0]]} in row {bad[0]}"
            )
        columns.append(column[rows])
    known, own = np.unique(lists[rows], return_inverse=True)
    table = Scored(known.tolist(), own.astype(np.int64), labels, columns)
    options: dict[str, Any] = {"gain": "exp2", "empty": 0, "ties": "stable"}
    models = evaluate_table(table, list(systems), [measure], options, float(labels.max()))
    values = np.full((number, len(columns)), np.nan)
    values[known] = np.stack([model.values[measure.title] for model in models], axis=1)
    return values * (1 if measure.higher_is_better else -1)


def _system_taus(
    x: np.ndarray, y: np.ndarray, groups: np.ndarray, lists: np.ndarray, drawn: np.ndarray
) -> np.ndarray:
    """Return the tau of the systems' means by two judges: of all queries, then of each sample."""
    group_of_list = groups[np.unique(lists, return_index=True)[1]]
    means = []
    for values in (x, y):
        filled = np.nan_to_num(values)
        sums = np.stack([np.bincount(group_of_list, c, drawn.shape[1]) for c in filled.T], axis=1)
        # All systems have the same number of queries, so sums have the order of the means.
        means.append(np.r_[sums.sum(0)[None], drawn @ sums])
    return tau_b(*means)


def tau_b(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b of each two rows (rows, n); NaN if one of them has one value alone.

    Values that differ by rounding alone are tied.

    >>> tau_b(np.array([[1.0, 2, 3]]), np.array([[1.0, 3, 2]])).round(4)
    array([0.3333])
    """
    first, second = np.triu_indices(x.shape[1], 1)
    signs = []
    for values in (x, y):
        difference = values[:, first] - values[:, second]
        slack = 1e-12 * np.abs(values).max(1, keepdims=True, initial=0)
        signs.append(np.sign(difference) * (np.abs(difference) > slack))
    product = (signs[0] * signs[1]).sum(1)
    size = np.sqrt((signs[0] ** 2).sum(1) * (signs[1] ** 2).sum(1))
    return np.divide(product, size, out=np.full(len(x), np.nan), where=size > 0)


@dataclass(frozen=True)
class GradesNeeded:
    """The result of `grades_needed`: `print` it.

    Attributes:
        order: the names of the systems, the best first, by all queries.
        queries: numbers of queries, ascending; the last one is all queries.
        grades: for each of them, the mean number of grades that they take.
        same_order: for each of them, the fraction of samples with the systems in the same order.
        tau: for each of them, the mean of Kendall's tau-b between the two orders.
        needed: the smallest of these numbers from which on `same_order` is at least
            `probability`; None if even all queries are not enough.
        probability: the probability that was asked for.
    """

    order: tuple[str, ...]
    queries: tuple[int, ...]
    grades: tuple[float, ...]
    same_order: tuple[float, ...]
    tau: tuple[float, ...]
    needed: int | None
    probability: float

    def __str__(self) -> str:
        columns = zip(self.queries, self.grades, self.same_order, self.tau, strict=True)
        rows = [[f"{q:,}", f"{g:,.0f}", f"{s:.3f}", f"{t:.3f}"] for q, g, s, t in columns]
        enough = "not even all queries" if self.needed is None else f"{self.needed:,} queries"
        return "\n".join(
            [
                *text_table(["queries", "grades", "same order", "mean tau"], rows),
                f"{enough} keep the order {' > '.join(self.order)} with probability "
                f"{self.probability:g}",
            ]
        )


def grades_needed(
    grades: Any,
    systems: Mapping[str, Any],
    qid: Any,
    *,
    metric: Metric = "ndcg@10",
    probability: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> GradesNeeded:
    """Estimate how many graded queries are enough to order the systems as all queries do.

    Samples of queries are drawn with replacement, as if they were new queries. The order by all
    queries counts as the true one. If two systems hardly differ, half of all samples swap them, so
    leave one of them out.

    Args:
        grades: (rows,) >= 0; NaN for a row without a grade, which does not count.
        systems: the scores (rows,) of two or more rankers, by name.
        qid: (rows,) the query of each row, in any order.
        metric: the metric of the systems.
        probability: how often the order must hold, in (0, 1).
        resamples: how many samples to draw of each size.
        seed: the seed of the draws.

    Returns:
        A `GradesNeeded` for 5, 10, 20, 50, ... and all queries.
        Cost: one evaluation of each system, and O(queries * systems * resamples) time.

    Raises:
        ValueError: shapes or values are wrong, there are fewer than two systems or queries.

    >>> qid, grades = [i // 4 for i in range(400)], [0, 1, 2, 0] * 100
    >>> draw = np.random.default_rng(0)
    >>> scores = {n: grades + s * draw.normal(size=400) for n, s in [("a", 2), ("b", 0.5)]}
    >>> print(grades_needed(grades, scores, qid))
    queries  grades  same order  mean tau
    5            20       0.956     0.916
    10           40       0.998     0.996
    20           80       1.000     1.000
    50          200       1.000     1.000
    100         400       1.000     1.000
    5 queries keep the order b > a with probability 0.95
    """
    probability, resamples, seed = check_draws(probability, resamples, seed)
    values = as_numbers("grades", grades).astype(np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"grades must have shape (rows,), got {values.shape}")
    if np.isinf(values).any():
        raise ValueError("grades must be finite or NaN, got inf")
    rows = np.flatnonzero(~np.isnan(values))
    if not len(rows):
        raise ValueError("grades must have at least one grade, got none")
    lists = list_numbers(qid, len(values))
    measure = _measure(metric, systems, lists, np.array([values[rows].min()]))
    assert measure is not None  # there are systems
    known = np.unique(lists[rows])
    if len(known) < 2:
        raise ValueError("at least two queries with grades are needed, got one")
    table = _system_values(values[rows], systems, rows, lists, int(lists.max()) + 1, measure)
    # A query without a value has none for any system, so that 0 keeps their order.
    table = np.nan_to_num(table[known])
    total, mean_rows = table.mean(0), len(rows) / len(known)
    sizes = [k * 10**e for e in range(8) for k in (1, 2, 5) if 5 <= k * 10**e < len(known)]
    rng = np.random.default_rng(seed)
    same, taus = [], []
    for size in (*sizes, len(known)):
        means = _drawn_means(table, size, resamples, rng)
        sample_taus = tau_b(means, np.broadcast_to(total, means.shape))
        same.append(float((sample_taus > 1 - 1e-9).mean()))
        taus.append(float(np.nanmean(sample_taus)) if not np.isnan(sample_taus).all() else np.nan)
    short = [number for number, x in enumerate(same) if x < probability]
    first = short[-1] + 1 if short else 0
    all_sizes = (*sizes, len(known))
    names = list(systems)
    return GradesNeeded(
        order=tuple(names[i] for i in np.argsort(-total, kind="stable")),
        queries=all_sizes,
        grades=tuple(size * mean_rows for size in all_sizes),
        same_order=tuple(same),
        tau=tuple(taus),
        needed=all_sizes[first] if first < len(all_sizes) else None,
        probability=probability,
    )


def _drawn_means(
    table: np.ndarray, size: int, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the means (resamples, systems) over `size` rows drawn with replacement."""
    columns: Sequence[np.ndarray] = [*np.ascontiguousarray(table.T)]
    means = np.empty((resamples, len(columns)))
    rows = max(1, _CHUNK // size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = rng.integers(0, len(table), (stop - start, size), dtype=np.int32)
        for number, column in enumerate(columns):
            means[start:stop, number] = column[drawn].mean(1)
    return means

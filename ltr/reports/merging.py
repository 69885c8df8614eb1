"""Merge the grades of several judges by the model of Dawid and Skene."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ltr.arrays import list_numbers
from ltr.metrics.comparison import Interval, check_draws, text_table
from ltr.names import plural
from ltr.reports.judges import read_grades

_BLOCKS = 20  # the jackknife leaves out one of this many groups of queries at a time
_TOLERANCE = 1e-6
_STEPS = 500


@dataclass(frozen=True)
class MergedGrades:
    """The result of `merge_grades`: `print` it.

    Attributes:
        grades: (grades,) the different grades, ascending.
        posterior: (rows, grades) the probability that a grade is the true one; NaN for a row that
            nobody graded.
        labels: (rows,) the mean grade by the posterior: float labels, which losses and metrics
            take.
        best: (rows,) the most probable grade.
        majority: (rows,) the most frequent grade, for comparison; the mean of equally frequent
            ones.
        frequencies: (grades,) how frequent each true grade is.
        confusion: for each judge, (grades, grades): the probability of the grade that the judge
            gives (across), for each true grade (down).
        accuracy: for each judge, the probability of giving the true grade, with its interval.
        ungraded: how many rows nobody graded.
        steps: how many steps the fit took.
        confidence: the level of the intervals, in (0, 1).
    """

    grades: np.ndarray
    posterior: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    best: np.ndarray = field(repr=False)
    majority: np.ndarray = field(repr=False)
    frequencies: np.ndarray
    confusion: dict[str, np.ndarray]
    accuracy: dict[str, Interval]
    ungraded: int
    steps: int
    confidence: float

    def __str__(self) -> str:
        head = ["", f"accuracy [{100 * self.confidence:g}%]"]
        lines = text_table(head, [[name, str(x)] for name, x in self.accuracy.items()])
        known = ~np.isnan(self.best)
        changed = int((self.best[known] != self.majority[known]).sum())
        rows, without = len(self.best), self.ungraded
        ungraded = f"; nobody graded {without:,} {plural(without, 'row')}" if without else ""
        lines.append(
            f"{rows:,} {plural(rows, 'row')}; the most probable grade of {changed:,} is not that "
            f"of the majority{ungraded}"
        )
        return "\n".join(lines)


class _Model(NamedTuple):
    """The model of Dawid and Skene.

    Attributes:
        frequencies: (grades,).
        confusion: (judges, grades, grades).
        posterior: (patterns, grades).
        steps: how many steps the fit took.
    """

    frequencies: np.ndarray
    confusion: np.ndarray
    posterior: np.ndarray
    steps: int

    def accuracies(self) -> np.ndarray:
        """Return the accuracy of each judge, (judges,)."""
        return np.einsum("k,jkk->j", self.frequencies, self.confusion)


def merge_grades(
    judges: Mapping[str, Any],
    qid: Any = None,
    *,
    smoothing: float = 1.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> MergedGrades:
    """Merge noisy grades of several judges, and weight each judge by reliability.

    In the model of Dawid and Skene, each row has a true grade. Given this grade, judges make errors
    independently of each other, and each judge has a confusion matrix. The
    expectation-maximization algorithm starts from the majority and finds the matrices that explain
    the grades best. So a judge who often guesses counts little, and a judge who always grades one
    too high counts in full.

    With two judges or few rows, the majority is as good, because the model needs rows that three
    judges share. If most judges make the same errors, these errors count as the truth.

    Args:
        judges: the grades (rows,) of two or more judges, by name; NaN for a missing grade.
        qid: (rows,) the query of each row, in any order, the unit of the intervals. Default: each
            row is a query of its own.
        smoothing: how many grades are added to each row of a confusion matrix and to the
            frequencies, in equal parts, so that few grades give no probability of 0; >= 0.
        confidence: the level of the intervals, in (0, 1).
        seed: the seed of the groups of queries.

    Returns:
        A `MergedGrades`. The intervals of the accuracies are by a jackknife: the model is fit
        again without each of 20 random groups of queries, and the logarithms of the odds have a
        Student distribution. With fewer than 20 queries, the ends are NaN.
        Cost: rows with the same grades are one, so few judges cost O(rows); memory O(rows *
        (judges + grades)).

    Raises:
        ValueError: as for `agreement`, or `smoothing` is below 0.

    Reference: Dawid and Skene, "Maximum likelihood estimation of observer error-rates using the EM
    algorithm", Applied Statistics 1979.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 3, 300)
    >>> judges = {
    ...     f"right {p:.0%}": np.where(rng.random(300) < p, true, (true + 1) % 3)
    ...     for p in (0.9, 0.7, 0.6, 0.5)
    ... }
    >>> merged = merge_grades(judges)
    >>> print(merged)
                        accuracy [95%]
    right 90%  0.8837 [0.8420, 0.9155]
    right 70%  0.7104 [0.6656, 0.7515]
    right 60%  0.6086 [0.5541, 0.6606]
    right 50%  0.5249 [0.4685, 0.5807]
    300 rows; the most probable grade of 112 is not that of the majority
    >>> [round(float((x == true).mean()), 2) for x in (merged.best, merged.majority)]
    [0.99, 0.62]
    """
    confidence, _, seed = check_draws(confidence, 1, seed)
    if not isinstance(smoothing, Real) or not 0 <= smoothing < np.inf:
        raise ValueError(f"smoothing must be >= 0, got {smoothing!r}")
    if not isinstance(judges, Mapping):
        raise ValueError(f"judges must be grades by name, got {type(judges).__name__}")
    names, grades, codes = read_grades(judges)
    rows = codes.shape[1]
    lists = np.arange(rows) if qid is None else list_numbers(qid, rows)
    patterns, which = np.unique(codes, axis=1, return_inverse=True)
    which = which.ravel()
    known = np.flatnonzero((patterns >= 0).any(0))
    graded = (codes >= 0).any(0)
    position = np.full(patterns.shape[1], -1)
    position[known] = np.arange(len(known))
    patterns = patterns[:, known]
    counts = np.bincount(position[which[graded]], minlength=len(known)).astype(np.float64)
    votes = _votes(patterns, len(grades))
    model = _fit(patterns, counts, votes / votes.sum(1, keepdims=True), float(smoothing))

    rng = np.random.default_rng(seed)
    queries = int(lists.max()) + 1
    ends = np.full((2, len(names)), np.nan)
    if queries >= _BLOCKS:
        block = rng.permutation(np.arange(queries) % _BLOCKS)[lists]
        cells = block[graded] * len(known) + position[which[graded]]
        of_blocks = np.bincount(cells, minlength=_BLOCKS * len(known)).reshape(_BLOCKS, -1)
        parts = [_fit(patterns, counts - x, model.posterior, float(smoothing)) for x in of_blocks]
        ends = _jackknife(model.accuracies(), np.stack([p.accuracies() for p in parts]), confidence)
    top = votes == votes.max(1, keepdims=True)

    def of_rows(values: np.ndarray) -> np.ndarray:
        """Return the values of the rows' patterns; NaN for a row that nobody graded."""
        of_row = np.full((rows, *values.shape[1:]), np.nan)
        of_row[graded] = values[position[which[graded]]]
        return of_row

    middle = zip(names, model.accuracies().tolist(), *ends.tolist(), strict=True)
    return MergedGrades(
        grades=grades,
        posterior=of_rows(model.posterior),
        labels=of_rows(model.posterior @ grades),
        best=of_rows(grades[model.posterior.argmax(1)]),
        majority=of_rows((top @ grades) / top.sum(1)),
        frequencies=model.frequencies,
        confusion=dict(zip(names, model.confusion, strict=True)),
        accuracy={name: Interval(*interval) for name, *interval in middle},
        ungraded=int((~graded).sum()),
        steps=model.steps,
        confidence=confidence,
    )


def _votes(patterns: np.ndarray, kinds: int) -> np.ndarray:
    """Return how many judges gave each grade, (patterns, grades)."""
    votes = np.zeros((patterns.shape[1], kinds))
    for codes in patterns:
        graded = np.flatnonzero(codes >= 0)
        votes[graded, codes[graded]] += 1
    return votes


def _fit(
    patterns: np.ndarray, counts: np.ndarray, posterior: np.ndarray, smoothing: float
) -> _Model:
    """Fit the model by expectation-maximization, from a first posterior.

    Args:
        patterns: (judges, patterns) the index of each judge's grade; -1 for a missing one.
        counts: (patterns,) how many rows have each pattern.
        posterior: (patterns, grades) the posterior to begin with.
        smoothing: see `merge_grades`.
    """
    kinds = posterior.shape[1]
    added = smoothing / kinds
    graded = [np.flatnonzero(codes >= 0) for codes in patterns]
    steps = 0
    while True:
        weighted = counts[:, None] * posterior
        frequencies = weighted.sum(0) + added
        frequencies = frequencies / frequencies.sum()
        confusion = np.empty((len(patterns), kinds, kinds))
        for judge, (codes, own) in enumerate(zip(patterns, graded, strict=True)):
            for grade in range(kinds):
                sums = np.bincount(codes[own], weighted[own, grade], kinds) + added
                # A true grade that the judge never met tells nothing of the judge.
                confusion[judge, grade] = sums / sums.sum() if sums.sum() > 0 else 1 / kinds
        with np.errstate(divide="ignore"):
            logs = np.log(confusion)
            log_posterior = np.tile(np.log(frequencies), (len(posterior), 1))
        for judge, (codes, own) in enumerate(zip(patterns, graded, strict=True)):
            log_posterior[own] += logs[judge].T[codes[own]]
        log_posterior -= log_posterior.max(1, keepdims=True)
        new = np.exp(log_posterior)
        new /= new.sum(1, keepdims=True)
        steps += 1
        change = np.abs(new - posterior).max()
        posterior = new
        if change < _TOLERANCE or steps == _STEPS:
            return _Model(frequencies, confusion, posterior, steps)


def _jackknife(values: np.ndarray, parts: np.ndarray, confidence: float) -> np.ndarray:
    """Return the ends (2, judges) of the accuracies' intervals.

    Args:
        values: (judges,) the accuracies.
        parts: (blocks, judges) the accuracies without each block.
        confidence: the level of the intervals.
    """

    def odds(x: np.ndarray) -> np.ndarray:
        inside = np.clip(x, 1e-9, 1 - 1e-9)
        return np.log(inside / (1 - inside))

    logits, of_parts = odds(values), odds(parts)
    blocks = len(parts)
    error = np.sqrt((blocks - 1) / blocks * ((of_parts - of_parts.mean(0)) ** 2).sum(0))
    from scipy.stats import t  # takes a second, which other reports need not wait

    half = t.ppf((1 + confidence) / 2, blocks - 1) * error
    return 1 / (1 + np.exp(-np.stack([logits - half, logits + half])))

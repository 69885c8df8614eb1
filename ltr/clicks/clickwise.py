"""Estimates from the log of one fixed ranker, by the ratio of click probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ltr.arrays import as_numbers, list_numbers
from ltr.clicks.evaluation import LogEstimate
from ltr.metrics.comparison import Interval, text_table
from ltr.metrics.resampling import normal_quantile
from ltr.names import plural


@dataclass(frozen=True)
class ClickwiseEvaluation:
    """The result of `evaluate_clickwise`: `print` it.

    Attributes:
        cips: the reward of a session, by click-based inverse propensities.
        cdr: the reward of a session, by the doubly robust form; None without `predicted`.
        sessions: how many sessions the log has.
        units: how many sessions or queries the intervals count as independent.
        clicked: how many clicks the log has.
        effective: how many clicks of equal weight w would be as precise: (sum w)^2 / sum w^2.
        largest: the largest weight of a click.
        confidence: the level of the intervals.
    """

    cips: LogEstimate
    cdr: LogEstimate | None
    sessions: int
    units: int
    clicked: float
    effective: float
    largest: float
    confidence: float

    def __str__(self) -> str:
        level = f"[{100 * self.confidence:g}%]"
        rows = []
        for name, found in (("CIPS", self.cips), ("CDR", self.cdr)):
            if found is not None:
                mean, low, high = found.difference
                difference = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
                rows.append([name, str(found.new), str(found.baseline), difference])
        head = ["", f"new {level}", f"logged {level}", f"difference {level}"]
        caption = (
            f"{self.sessions:,} {plural(self.sessions, 'session')}, {self.clicked:,.0f} "
            f"{plural(round(self.clicked), 'click that counts', 'clicks that count')} as "
            f"{self.effective:,.0f} of equal weight (largest: {self.largest:.3g}); normal "
            f"intervals over {self.units:,} {plural(self.units, 'unit')}"
        )
        return "\n".join([*text_table(head, rows), caption])


def evaluate_clickwise(
    clicks: Any,
    logged: Any,
    new: Any,
    session: Any,
    *,
    reward: Any = None,
    predicted: Any = None,
    qid: Any = None,
    confidence: float = 0.95,
) -> ClickwiseEvaluation:
    """Estimate the reward of a new ranker from the log of one fixed ranker.

    If one ranker never changes, its rankings are not random, so estimates that divide the new
    ranker's probability of a ranking by the old one's do not apply. Clicks are random: a document
    that the old ranker showed is clicked with probability `logged`, and would be clicked with
    probability `new`. Let c, 0 or 1, be the click on a document, and r the reward of a click. Each
    document adds

    - CIPS: c r w, with the weight w = new / logged;
    - CDR: new q + w c (r - q), where q is a model's prediction of the reward of a click.

    The expectation of c r w is logged E[r] w = new E[r]. So CIPS has no bias if the ratio w is
    right. Examination propensities are enough instead of probabilities, because the relevance
    cancels in the position-based model. With rewards of 1, CIPS then equals the row `clicks` of
    `evaluate_log`. CDR has the same expectation if `new` and w are right, whatever q is. Its
    variance is lower if q is close to r. If q is right, `logged` may be wrong. CDR needs
    probabilities, not propensities.

    **Limits.** Such a log does not determine the propensities: no document was shown at two
    positions, so `PositionBias.estimate` raises an error. Take them from random swaps, another log
    or a click model. A document that was never shown has `logged` 0. If the new ranker shows one,
    the log contains nothing about it, which is an error. Pass the rows of all documents that either
    ranker shows.

    Args:
        clicks: (rows,) 1 for a click, 0 for none; any other value >= 0 counts as that many clicks.
        logged: (rows,) the click probability of the logged ranking, in [0, 1]; 0 if not shown.
        new: (rows,) the click probability of the new ranking, in [0, 1]; 0 if not shown.
        session: (rows,) the session of each row, one showing of one list.
        reward: (rows,) the reward of a click; NaN where there was no click. Default: 1.
        predicted: (rows,) the predicted reward of a click, for CDR.
        qid: (rows,) the query of each row, the unit of the intervals. Default: the session.
        confidence: the level of the intervals, in (0, 1).

    Returns:
        A `ClickwiseEvaluation`. "logged" is the mean reward in the log. The probabilities count as
        known: the intervals do not contain their uncertainty. Cost: linear.

    Raises:
        ValueError: shapes or values are wrong, there is no click, a document with `logged` 0 was
            clicked or has `new` above 0, a click has no reward, or there are fewer than two units.

    Reference: Tanaka and others, "Off-policy evaluation for ranking policies under deterministic
    logging policies", ICLR 2026 (arXiv 2603.21485), for the ratio of click probabilities. The
    doubly robust form is derived above; it was not compared with the formulas of the paper.

    >>> session, clicks = [0, 0, 1, 1, 2, 2], [1, 0, 0, 1, 0, 1]
    >>> logged, new = [0.8, 0.2] * 3, [0.4, 0.4] * 3  # the two documents change positions
    >>> print(evaluate_clickwise(clicks, logged, new, session))
                        new [95%]             logged [95%]            difference [95%]
    CIPS  1.5000 [0.5200, 2.4800]  1.0000 [1.0000, 1.0000]  +0.5000 [-0.4800, +1.4800]
    3 sessions, 3 clicks that count as 2 of equal weight (largest: 2); normal intervals over 3 units
    """
    clicked = _column("clicks", clicks, None, np.inf)
    rows = len(clicked)
    old, other = _column("logged", logged, rows, 1), _column("new", new, rows, 1)
    lists = list_numbers(session, rows, "session", "a session")
    units = lists if qid is None else list_numbers(qid, rows)
    quantile = normal_quantile(confidence)
    if not clicked.any():
        raise ValueError("clicks must have at least one click, got none")
    if units.max() == 0:
        raise ValueError("at least two sessions or queries are needed for intervals, got one")
    if (bad := np.flatnonzero((old == 0) & (clicked > 0))).size:
        raise ValueError(f"logged must be above 0 where there is a click, got 0 in row {bad[0]}")
    if (bad := np.flatnonzero((old == 0) & (other > 0))).size:
        lost = 100 * other[bad].sum() / other.sum()
        raise ValueError(
            f"the log has no support for {len(bad):,} rows, {lost:.1f} % of the new ranker's "
            f"clicks: new is above 0 and logged is 0, such as in row {bad[0]}"
        )
    rewards = np.ones(rows)
    if reward is not None:
        rewards = _finite("reward", reward, rows, where=clicked > 0)
    weight = clicked * np.divide(other, old, out=np.zeros(rows), where=old > 0)
    count = int(lists.max()) + 1
    first = np.zeros(rows)
    first[np.unique(lists, return_index=True)[1]] = 1
    sessions = np.bincount(units, first)

    def interval(gains: np.ndarray) -> Interval:
        """Return the mean of a session, with the interval of a ratio of sums over units."""
        of_units = np.bincount(units, gains)
        mean = of_units.sum() / count
        rest = of_units - mean * sessions
        error = quantile * np.sqrt(rest @ rest * len(rest) / (len(rest) - 1)) / count
        return Interval(float(mean), float(mean - error), float(mean + error))

    def estimate(gains: np.ndarray) -> LogEstimate:
        was = clicked * rewards
        return LogEstimate(interval(gains), interval(was), interval(gains - was))

    robust = None
    if predicted is not None:
        model = _finite("predicted", predicted, rows)
        robust = estimate(other * model + weight * (rewards - model))
    return ClickwiseEvaluation(
        cips=estimate(weight * rewards),
        cdr=robust,
        sessions=count,
        units=int(units.max()) + 1,
        clicked=float(clicked.sum()),
        effective=float(weight.sum() ** 2 / (weight @ weight)) if weight.any() else 0.0,
        largest=float(weight.max()),
        confidence=confidence,
    )


def _column(name: str, values: Any, rows: int | None, most: float) -> np.ndarray:
    """Return a column of finite numbers in [0, most], float64 (rows,), or raise an error."""
    column = as_numbers(name, values).astype(np.float64)
    if column.ndim != 1 or rows not in (None, len(column)):
        raise ValueError(f"{name} must have the shape ({rows or 'rows'},), got {column.shape}")
    if (bad := np.flatnonzero(~((column >= 0) & (column <= most) & np.isfinite(column)))).size:
        wanted = "finite and >= 0" if most == np.inf else f"in [0, {most:g}]"
        raise ValueError(f"{name} must be {wanted}, got {column[bad[0]]:g} in row {bad[0]}")
    return column


def _finite(name: str, values: Any, rows: int, where: Any = True) -> np.ndarray:
    """Return a column of numbers (rows,), finite at the given rows and 0 at the others."""
    column = as_numbers(name, values).astype(np.float64)
    if column.shape != (rows,):
        raise ValueError(f"{name} must have the shape ({rows},), got {column.shape}")
    needed = np.broadcast_to(where, column.shape)
    if (bad := np.flatnonzero(needed & ~np.isfinite(column))).size:
        raise ValueError(f"{name} must be finite, got {column[bad[0]]:g} in row {bad[0]}")
    return np.where(needed, column, 0.0)

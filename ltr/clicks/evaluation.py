"""Estimates of how a new ranker would perform, from clicks on the lists of another ranker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ltr.arrays import as_names, as_numbers, as_scores, list_numbers
from ltr.clicks.position_bias import PositionBias, inverse_propensity_weights
from ltr.gains import log2_discount
from ltr.metrics.comparison import Interval, text_table
from ltr.metrics.resampling import normal_quantile
from ltr.names import plural
from ltr.shapes import check_top_k


class LogEstimate(NamedTuple):
    """An estimate for the new ranker, for the baseline, and for the difference.

    Each field is an `Interval(mean, low, high)`. The difference is new - baseline, on the same
    clicks.
    """

    new: Interval
    baseline: Interval
    difference: Interval


@dataclass(frozen=True)
class LogEvaluation:
    """The result of `evaluate_log`: `print` it.

    Attributes:
        clicks: the clicks per session, estimated by inverse propensities.
        looks: the fraction of relevant documents that users look at, a self-normalized estimate.
        dcg: the DCG per session, estimated by inverse propensities.
        ndcg: the NDCG, a self-normalized estimate.
        top_k: the cutoff of these four estimates, or None.
        sessions: how many sessions the log has.
        units: how many sessions or queries the intervals count as independent.
        clicked: how many clicks the log has.
        effective: how many clicks of equal weight would give estimates as precise as the logged
            clicks with their weights w: (sum w)^2 / sum w^2. If this number is small, a few clicks
            at positions that users rarely look at dominate the estimates, and the intervals are too
            short.
        confidence: the level of the intervals.
    """

    clicks: LogEstimate
    looks: LogEstimate
    dcg: LogEstimate
    ndcg: LogEstimate
    top_k: int | None
    sessions: int
    units: int
    clicked: float
    effective: float
    confidence: float

    def __str__(self) -> str:
        cutoff = "" if self.top_k is None else f"@{self.top_k}"
        named = {"clicks": self.clicks, "looks": self.looks, "DCG": self.dcg, "NDCG": self.ndcg}
        rows = [
            [
                f"{name}{cutoff}",
                str(new),
                str(old),
                f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]",
            ]
            for name, (new, old, d) in named.items()
        ]
        level = f"[{100 * self.confidence:g}%]"
        head = ["", f"new {level}", f"baseline {level}", f"difference {level}"]
        caption = (
            f"{self.sessions:,} {plural(self.sessions, 'session')}, {self.clicked:,.0f} "
            f"{plural(round(self.clicked), 'click that counts', 'clicks that count')} as "
            f"{self.effective:,.0f} of equal weight; normal intervals over {self.units:,} "
            f"{plural(self.units, 'unit')}"
        )
        return "\n".join([*text_table(head, rows), caption])


def evaluate_log(
    scores: Any,
    clicks: Any,
    position: Any,
    session: Any,
    bias: PositionBias | Sequence[float],
    *,
    baseline: Any = None,
    qid: Any = None,
    top_k: int | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
) -> LogEvaluation:
    """Estimate how a new ranker would perform, from clicks on the lists of another ranker.

    A session is one showing of one list, and a row is one document of a session. The new ranker
    reorders the documents of each session, among the positions at which they were shown.

    **Model.** A user looks at position k with probability p(k), the propensity. After a look, the
    user clicks on document i with probability g(i), the relevance of i, whatever the position and
    the other documents are. Let k(i) be the position at which document i was shown, and c(i), 0 or
    1, the click on it. The expectation of c(i) is p(k(i)) g(i). Let r(i) be the position that the
    new ranker gives to document i, and f any function of positions. Then the sum over documents of
    c(i) f(r(i)) / p(k(i)) has the same expectation as the sum of g(i) f(r(i)).

    | | f(r) | divided by | estimates |
    | --- | --- | --- | --- |
    | `clicks` | p(r) | number of sessions | clicks in a session |
    | `dcg` | 1 / log2(1 + r) | number of sessions | DCG of a session, with gains g(i) |
    | `looks` | p(r) | sum of c(i) / p(k(i)) | fraction of relevance that is looked at |
    | `ndcg` | 1 / log2(1 + r) | sum of c(i) / p(k(i)) | DCG for each unit of relevance |

    `clicks` and `dcg` are inverse propensity estimates, which have no bias. `looks` and `ndcg` are
    self-normalized: their divisor, the sum of the weights c(i) / p(k(i)), estimates the sum of
    g(i). The bias of such ratios vanishes as the log grows. If some weights are large, such ratios
    vary less than inverse propensity estimates. If all propensities are wrong by the same factor,
    `clicks` and `ndcg` do not change, but `looks` and `dcg` do.

    `ndcg` is the NDCG if each list has one relevant document; then the best value is 1. With
    several relevant documents, it is the mean discount over these documents, and the best value is
    below 1. The ideal DCG of such lists cannot be estimated from clicks without bias. The DCG of
    all rankers would be divided by the same ideal DCG, so leaving out this divisor changes neither
    which ranker is better nor the ratio of two rankers' values.

    **Intervals** are normal approximations, by the delta method for ratios. Their units are the
    sessions, or the queries if `qid` is given. Sessions of one query have the same documents, so
    give `qid` if the result should hold for other queries too. If the propensities come from
    `PositionBias.estimate`, the intervals include the uncertainty of the propensities, by the delta
    method from the bootstrap of the estimate; otherwise the propensities count as known. The
    uncertainty of `dcg` and `looks` is large: propensities are known only relative to position 1.

    **Limits.** A new ranker that was trained on the same clicks looks better than it is: keep some
    queries for the evaluation. The new ranker only reorders the documents that were shown.
    Documents that the old ranker never showed cannot be evaluated. The model does not hold for
    users whose clicks depend on other documents, such as users who stop after a click. Positions at
    which few users look have few clicks, which have large weights: see `effective`. `clip` limits
    the weights, and adds a bias to all estimates, toward 0 for `clicks` and `dcg`.

    Args:
        scores: (rows,), the scores of the new ranker, not NaN. Documents with equal scores are in
            the order of the rows.
        clicks: (rows,), 1 for a click, 0 for none. Any other value >= 0 counts as that many clicks.
        position: (rows,), the position at which each document was shown, a whole number >= 1.
        session: (rows,), the name of each row's session, in any order. A session has at most one
            document at each position. For training on clicks, this is the `qid`.
        bias: the `PositionBias`, or the propensities of positions 1, 2, and so on, each in (0, 1].
            Later positions have the last propensity.
        baseline: (rows,), the scores of a ranker to compare with. Default: the order of the log.
        qid: (rows,), the query of each row, the unit of the intervals; the same in all rows of a
            session. Default: the session.
        top_k: the cutoff. Later positions count as 0, as if the lists ended at position `top_k`.
            Default: all positions count.
        clip: the largest inverse propensity; larger ones are reduced to it. Default: no limit.
        confidence: the level of the intervals, in (0, 1).

    Returns:
        A `LogEvaluation`. A session without a click counts as a session with 0 clicks.

    Raises:
        ValueError: a score is NaN, a click is negative or not finite, a position is below 1 or not
            whole, a session has two documents at one position or two queries, a propensity is
            outside (0, 1], shapes differ, there is no click at all, there are fewer than two
            units, or fewer than two or half of the resamples of `bias` determine all propensities.
            For a wrong value, the message names the row.

    Cost: two sorts of the rows; one second for 200,000 sessions of ten documents.

    Reference: Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased feedback",
    WSDM 2017; Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay and Wen, "Offline evaluation of
    ranking policies with click models", KDD 2018 (the item-position and position-based estimators);
    Swaminathan and Joachims, "The self-normalized estimator for counterfactual learning", NeurIPS
    2015.

    >>> session, position = [0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2]
    >>> clicks, scores = [1, 0, 0, 1, 0, 1], [1, 2, 1, 2, 1, 2]  # exchange the two documents
    >>> print(evaluate_log(scores, clicks, position, session, bias=[1.0, 0.5]))
                          new [95%]           baseline [95%]            difference [95%]
    clicks  1.5000 [0.5200, 2.4800]  1.0000 [1.0000, 1.0000]  +0.5000 [-0.4800, +1.4800]
    looks   0.9000 [0.6648, 1.1352]  0.6000 [0.3648, 0.8352]  +0.3000 [-0.1704, +0.7704]
    DCG     1.5436 [0.6492, 2.4381]  1.1746 [1.0035, 1.3457]  +0.3691 [-0.3543, +1.0924]
    NDCG    0.9262 [0.7526, 1.0998]  0.7047 [0.5311, 0.8784]  +0.2214 [-0.1258, +0.5687]
    3 sessions, 3 clicks that count as 3 of equal weight; normal intervals over 3 units
    """
    clicked = _column("clicks", clicks, None, 0)
    rows = len(clicked)
    shown_at = _column("position", position, rows, 1)
    if (bad := np.flatnonzero(shown_at % 1)).size:
        raise ValueError(f"position must be whole, got {shown_at[bad[0]]:g} in row {bad[0]}")
    if not isinstance(bias, PositionBias):
        table = as_numbers("bias", bias)
        if table.ndim != 1:
            raise ValueError(f"bias must be a PositionBias or propensities (n,), got {bias!r}")
        bias = PositionBias(examination=table.tolist())
    lists = list_numbers(session, rows, "session", "a session")
    units = lists if qid is None else list_numbers(qid, rows)
    quantile, cutoff = normal_quantile(confidence), check_top_k(top_k)
    if not clicked.any():
        raise ValueError("clicks must have at least one click, got none")
    if units.max() == 0:
        units_are = "sessions" if qid is None else "queries"
        raise ValueError(f"at least two {units_are} are needed for intervals, got one")
    by_position = np.lexsort((shown_at, lists))
    _check_sessions(session, lists, shown_at, by_position, None if qid is None else units)

    def ranked(name: str, values: Any) -> np.ndarray:
        """Return the position at which a ranker would show each row, (rows,)."""
        column = as_scores(values, name)
        if column.shape != (rows,):
            raise ValueError(f"{name} must have the shape of clicks ({rows},), got {column.shape}")
        position_of_row = np.empty_like(shown_at)
        position_of_row[np.lexsort((-column.astype(np.float64), lists))] = shown_at[by_position]
        return position_of_row

    new_at = ranked("scores", scores)
    old_at = shown_at if baseline is None else ranked("baseline", baseline)
    inverse = inverse_propensity_weights(torch.from_numpy(shown_at), bias, clip=clip).numpy()
    weight = clicked * inverse
    # A clipped weight does not depend on the propensity.
    unsure = weight if clip is None else weight * (inverse < clip)
    covariance = _covariance(bias)

    def of_units(x: np.ndarray) -> np.ndarray:
        return np.bincount(units, x)

    def slopes(x: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Return the sum of x at each position of `covariance`; later positions add to the last."""
        most = len(covariance)
        return np.bincount(np.minimum(where, most).astype(np.int64) - 1, x, most)

    first = np.zeros(rows)
    first[np.unique(lists, return_index=True)[1]] = 1
    divisors = [
        (of_units(first), np.zeros(len(covariance))),
        (of_units(weight), -slopes(unsure, shown_at)),
    ]

    def interval(
        gains: np.ndarray, slope: np.ndarray, divisor: np.ndarray, slope_below: np.ndarray
    ) -> Interval:
        """Return the ratio of two sums, with an interval that includes uncertain propensities.

        Args:
            gains: (units,), the terms of the numerator.
            slope: (positions,), the numerator's derivatives with respect to the log propensities.
            divisor: (units,), the terms of the denominator.
            slope_below: (positions,), the same derivatives of the denominator.
        """
        mean = gains.sum() / divisor.sum()
        rest, tilt = gains - mean * divisor, slope - mean * slope_below
        variance = rest @ rest * len(rest) / (len(rest) - 1) + tilt @ covariance @ tilt
        error = quantile * np.sqrt(variance) / divisor.sum()
        return Interval(float(mean), float(mean - error), float(mean + error))

    estimates: dict[str, LogEstimate] = {}
    for names, value in ((("clicks", "looks"), bias), (("dcg", "ndcg"), log2_discount)):
        parts = []
        for where in (new_at, old_at):
            counted = value(torch.from_numpy(where)).numpy()
            counted = counted if cutoff is None else counted * (where <= cutoff)
            slope = -slopes(unsure * counted, shown_at)
            if value is bias:
                slope += slopes(weight * counted, where)
            parts.append((of_units(weight * counted), slope))
        new, old = parts
        parts.append((new[0] - old[0], new[1] - old[1]))
        for name, divisor in zip(names, divisors, strict=True):
            estimates[name] = LogEstimate(*(interval(*part, *divisor) for part in parts))
    return LogEvaluation(
        **estimates,
        top_k=cutoff,
        sessions=int(first.sum()),
        units=int(units.max()) + 1,
        clicked=float(clicked.sum()),
        effective=float(weight.sum() ** 2 / (weight @ weight)),
        confidence=confidence,
    )


def _check_sessions(
    session: Any,
    lists: np.ndarray,
    position: np.ndarray,
    order: np.ndarray,
    query: np.ndarray | None,
) -> None:
    """Raise an error if a session has two documents at one position, or two queries.

    Args:
        session: (rows,), the names of the sessions, for errors.
        lists: (rows,), the index of each row's session.
        position: (rows,), where each document was shown.
        order: (rows,), the rows by session, then by position.
        query: (rows,), the index of each row's query, or None.
    """

    def first(differs: np.ndarray) -> tuple[Any, Any, Any] | None:
        """Return two rows of one session and its name: the first for which `differs` is True."""
        same = lists[order[1:]] == lists[order[:-1]]
        pairs = np.flatnonzero(same & differs)
        if not pairs.size:
            return None
        before, after = order[pairs[0]], order[pairs[0] + 1]
        return before, after, as_names("session", session)[before]

    if found := first(position[order[1:]] == position[order[:-1]]):
        before, after, name = found
        raise ValueError(
            f"position must differ within a session, got {position[before]:g} in rows {before} and "
            f"{after} of session {name}: session must name one showing of one list, not the query"
        )
    if query is not None and (found := first(query[order[1:]] != query[order[:-1]])):
        before, after, name = found
        raise ValueError(
            f"qid must be the same within a session, got two queries in rows {before} and {after} "
            f"of session {name}"
        )


def _covariance(bias: PositionBias) -> np.ndarray:
    """Return the covariance of the logarithms of propensities (positions, positions).

    It is 0, with shape (1, 1), if the propensities do not come from `PositionBias.estimate` or have
    no interval.
    """
    if bias.draws is None:
        return np.zeros((1, 1))
    known = bias.draws[(bias.draws > 0).all(1)]
    if 2 * len(known) < len(bias.draws) or len(known) < 2:
        raise ValueError(
            f"bias has {len(known)} of {len(bias.draws)} resamples that tell all positions, too "
            "few for an interval: estimate it with a smaller top_k, or more resamples"
        )
    return np.atleast_2d(np.cov(np.log(known).T))


def _column(name: str, values: Any, rows: int | None, least: int) -> np.ndarray:
    """Return a column of finite numbers >= least, float64 (rows,), or raise an error."""
    column = as_numbers(name, values).astype(np.float64)
    if column.ndim != 1 or rows not in (None, len(column)):
        raise ValueError(f"{name} must have the shape ({rows or 'rows'},), got {column.shape}")
    if (bad := np.flatnonzero(~((column >= least) & np.isfinite(column)))).size:
        raise ValueError(
            f"{name} must be finite and >= {least}, got {column[bad[0]]:g} in row {bad[0]}"
        )
    return column

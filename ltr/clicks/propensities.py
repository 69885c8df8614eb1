"""The propensities of positions, estimated from a log: `PositionBias.estimate`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import norm, t

from ltr.arrays import as_numbers, as_qids, list_numbers, numbered
from ltr.clicks.strengths import bradley_terry_strengths
from ltr.shapes import check_at_least, check_choice, check_top_k

Solver = Callable[[np.ndarray], np.ndarray]
"""A function of the weights of the queries (queries,) that returns the propensities (positions,),
relative to the first position; an unknown propensity is NaN."""

_STEPS = 1000
"""The largest number of steps of the maximum likelihood estimate without features."""

_ROUNDS = 100
"""The largest number of rounds of regression-EM; each round fits a classifier."""

_SETTLED, _ROUGH = 1e-6, 1e-3
"""Propensities have converged if a step changes none of them by more than the fraction `_SETTLED`,
or if a round of regression-EM changes none of them by more than the fraction `_ROUGH`."""

_TAIL = 0.025
"""The probability outside a 95 % interval on either side."""

_LEAST, _MOST = 1e-12, 1 - 1e-6
"""Limits of divisors: the least positive divisor, and the largest p in a divisor 1 - p."""


@dataclass
class _Cells:
    """A log, summed by (query, document, position).

    Attributes:
        query: (cells,), the index of the query, from 0.
        document: (cells,), the index of the document, from 0, ascending; a document has one query.
        position: (cells,), the position, from 0, ascending within a document.
        clicks: (cells,), the number of clicks.
        shown: (cells,), the number of impressions.
        row: (documents,), for each document, the index of its first row in the log that counts.
        queries: the number of queries.
        positions: the number of positions.
    """

    query: np.ndarray
    document: np.ndarray
    position: np.ndarray
    clicks: np.ndarray
    shown: np.ndarray
    row: np.ndarray
    queries: int
    positions: int

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values (cells,) at each position."""
        return np.bincount(self.position, values, self.positions)

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values (cells,) for each document."""
        return np.bincount(self.document, values, len(self.row))


def estimate(
    clicks: Any,
    position: Any,
    qid: Any,
    doc_id: Any,
    *,
    method: str,
    impressions: Any,
    swap: Any,
    features: Any,
    classifier: Any,
    top_k: int | None,
    resamples: int,
    seed: int,
) -> tuple[list[float], list[tuple[float, float]] | None, np.ndarray | None]:
    """Return the propensities, their intervals, and the propensities of each resample.

    See `PositionBias.estimate`.
    """
    check_choice("method", method, "harvesting", "em", "swaps")
    check_at_least("resamples", resamples, 0)
    draw = np.random.default_rng(check_at_least("seed", seed, 0))
    if (swap is None) == (method == "swaps"):
        raise ValueError(f'swap is for method "swaps" alone, which needs it, got method {method!r}')
    if (features is None) != (classifier is None) or (features is not None and method != "em"):
        raise ValueError('features and classifier go together, with method "em"')
    if doc_id is None and method != "swaps" and features is None:
        raise ValueError(f'doc_id must be given for method "{method}", got None')
    cells = _cells(clicks, position, qid, doc_id, impressions, swap, top_k)
    if features is not None:
        solve = _regression(cells, features, classifier, len(as_numbers("clicks", clicks)))
    else:
        wins = _wins(cells)
        solve = _likelihood(cells, wins) if method == "em" else _all_pairs(cells, wins)
    relative = solve(np.ones(cells.queries))
    # A position without clicks is unknown. If it is position 1, all positions are unknown.
    relative[cells.at(cells.clicks) == 0] = np.nan
    if np.isnan(relative).any():
        raise ValueError(_unknown(cells, relative))
    largest = _largest(relative, cells.at(cells.clicks))
    examination = np.minimum(relative / largest, 1.0).tolist()
    if not resamples or cells.queries == 1:
        return examination, None, None
    even = np.full(cells.queries, 1 / cells.queries)
    tries = [solve(draw.multinomial(cells.queries, even).astype(float)) for _ in range(resamples)]
    tries = np.array(tries) / largest
    # A propensity that is unknown in a resample could have any value from 0 to infinity.
    low, high = (np.where(np.isnan(tries), unknown, tries) for unknown in (0.0, np.inf))
    tail = _tail(cells.queries)
    low = np.quantile(low, tail, axis=0, method="lower")
    high = np.quantile(high, 1 - tail, axis=0, method="higher")
    return examination, [*zip(low.tolist(), high.tolist(), strict=True)], tries


def _largest(relative: np.ndarray, clicks: np.ndarray) -> float:
    """Return the largest propensity relative to position 1, unless it is larger by chance.

    The largest of many estimates is too large: if a position has few clicks, its estimate can
    exceed all others by chance, and a division by it would make all propensities too low. So a
    later position sets the unit only if it exceeds position 1 with confidence, by the Poisson
    errors of the numbers of clicks, at 2.5 % for all positions together.

    Args:
        relative: (positions,), the propensities divided by that of position 1.
        clicks: (positions,), the number of clicks at each position, > 0.
    """
    quantile = norm.isf(_TAIL / len(clicks))
    at_least = relative * np.exp(-quantile * np.sqrt(1 / clicks + 1 / clicks[0]))
    at_least[0] = 1.0
    return float(relative[at_least.argmax()])


def _tail(queries: int) -> float:
    """Return the fraction of resamples below a 95 % interval, from resamples of few queries.

    A bootstrap distribution is too narrow by the factor sqrt(1 - 1 / queries), and a normal
    quantile is too small where a t quantile is needed. The fraction corrects both (Hesterberg,
    "What teachers should know about the bootstrap", The American Statistician 2015).
    """
    return float(norm.sf(np.sqrt(queries / (queries - 1)) * t.isf(_TAIL, queries - 1)))


def _cells(
    clicks: Any,
    position: Any,
    qid: Any,
    doc_id: Any,
    impressions: Any,
    swap: Any,
    top_k: int | None,
) -> _Cells:
    """Check the log, and return it summed by (query, document, position).

    With `swap`, the rows at positions 1 and k of all sessions of a query with swap k count as one
    document, because chance decides which document is at which of the two positions.
    """
    clicked = _column("clicks", clicks, None)
    rows = len(clicked)
    where = _column("position", position, rows)
    _check_each("position", where, "a whole number >= 1", (where >= 1) & (where % 1 == 0))
    shown = np.ones(rows) if impressions is None else _column("impressions", impressions, rows)
    _check_each("impressions", shown, "a number > 0", (shown > 0) & (shown < np.inf))
    good = (clicked >= 0) & (clicked <= shown)
    _check_each("clicks", clicked, "at least 0 and at most the impressions of the row", good)
    query = list_numbers(qid, rows)
    limit = check_top_k(top_k)
    kept = np.full(rows, True) if limit is None else where <= limit
    if swap is not None:
        document = _column("swap", swap, rows)
        good = (document == 0) | (document >= 2) & (document % 1 == 0)
        _check_each("swap", document, "0 or a position >= 2", good)
        kept &= (document > 0) & ((where == 1) | (where == document))
    elif doc_id is not None:
        names = as_qids("doc_id", doc_id, rows, what="a document")
        document, _ = numbered(names)
    else:
        document = np.arange(rows)
    if not kept.any():
        wanted = "" if limit is None else f" at a position <= {limit}"
        wanted += "" if swap is None else " in an experiment with swap > 0"
        raise ValueError(f"no row of clicks is{wanted}")
    query, document, where = (x[kept].astype(np.int64) for x in (query, document, where - 1))
    both = query * (document.max() + 1) + document
    _, first, both = np.unique(both, return_index=True, return_inverse=True)
    positions = int(where.max()) + 1
    key, cell = np.unique(both * positions + where, return_inverse=True)
    document = key // positions
    return _Cells(
        query[first][document],
        document,
        key % positions,
        np.bincount(cell, clicked[kept]),
        np.bincount(cell, shown[kept]),
        np.flatnonzero(kept)[first],
        int(query.max()) + 1,
        positions,
    )


def _column(name: str, values: Any, rows: int | None) -> np.ndarray:
    """Return numbers (rows,) as float64, or raise an error that names the argument."""
    column = as_numbers(name, values).astype(np.float64)
    if column.ndim != 1 or not len(column) or rows not in (None, len(column)):
        wanted = "at least one value" if rows is None else f"one value for each of the {rows} rows"
        raise ValueError(f"{name} must have {wanted}, got shape {column.shape}")
    return column


def _check_each(name: str, values: np.ndarray, wanted: str, good: np.ndarray) -> None:
    """Raise an error for the first value that is not `good`."""
    if (bad := np.flatnonzero(~good)).size:
        raise ValueError(f"{name} must be {wanted}, got {values[bad[0]]:g} in row {bad[0]}")


def _unknown(cells: _Cells, relative: np.ndarray) -> str:
    """Return the error message for positions without an estimate."""
    reasons = np.full(len(relative), "no clicked document shown there leads to position 1", object)
    reasons[cells.at(cells.clicks) == 0] = "no clicks"
    reasons[cells.at(cells.shown) == 0] = "never shown"
    unknown = np.flatnonzero(np.isnan(relative))
    said = "; ".join(f"{k + 1} ({reasons[k]})" for k in unknown[:3])
    said += f"; {len(unknown) - 3} more" if len(unknown) > 3 else ""
    known = int(np.isnan(relative).argmax())
    hint = f": top_k={known} estimates those before" if known else ""
    return f"the log does not tell the propensity of position {said}{hint}"


def _wins(cells: _Cells) -> csr_array:
    """Return each query's weighted clicks at i for all positions i and j, (queries, positions^2).

    A document with C_i clicks in N_i impressions at i, and C_j clicks in N_j impressions at j,
    counts as C_i N_j / (N_i + N_j) clicks at i and C_j N_i / (N_i + N_j) clicks at j, with
    Mantel-Haenszel weights. So both positions count as if they had the same number of impressions,
    and a document with few impressions at one of the positions counts little.
    """
    size, step = cells.positions, 0
    if size == 1:
        return csr_array((cells.queries, 1))
    rows, columns, values = [], [], []
    while True:  # each iteration finds pairs of cells that are `step` apart
        step += 1
        (i,) = np.nonzero(cells.document[:-step] == cells.document[step:])
        if not len(i):
            break
        for first, second in ((i, i + step), (i + step, i)):
            both = cells.shown[first] + cells.shown[second]
            rows.append(cells.query[first])
            columns.append(cells.position[first] * size + cells.position[second])
            values.append(cells.clicks[first] * cells.shown[second] / both)
    if not rows:
        raise ValueError(
            "no document was shown at two positions, so the log does not tell their propensities: "
            'use random swaps, or method "em" with features'
        )
    content = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    return csr_array(content, shape=(cells.queries, size * size))


def _linked(wins: np.ndarray) -> np.ndarray:
    """Return the positions that comparisons (positions, positions) link to the first position.

    For these positions the likelihood has a maximum: between any two of them, a chain of
    comparisons with clicks leads from one to the other, and another chain leads back (Ford, 1957).
    """
    _, group = connected_components(csr_array(wins > 0), connection="strong")
    return np.flatnonzero(group == group[0])


def _all_pairs(cells: _Cells, wins: csr_array) -> Solver:
    """Return the solver that compares all pairs of positions.

    For positions i and j, the clicks W_ij at i and W_ji at j are on the same documents, so their
    means have the ratio of the propensities, theta_i : theta_j. The solver maximizes the likelihood
    of all pairs. Each pair has a mean relevance r_ij: W_ij has the mean theta_i r_ij, and W_ji has
    the mean theta_j r_ij. With the Poisson likelihood, the best r_ij is
    (W_ij + W_ji) / (theta_i + theta_j). What remains to maximize is the sum over all i and j of
    W_ij log(theta_i / (theta_i + theta_j)), which is concave in log theta.
    """

    def solve(weights: np.ndarray) -> np.ndarray:
        won = (wins.T @ weights).reshape(cells.positions, cells.positions)
        linked = _linked(won)
        relative = np.full(cells.positions, np.nan)
        if len(linked) == 1:
            relative[linked] = 1.0
        else:
            strengths, _ = bradley_terry_strengths(won[np.ix_(linked, linked)])
            relative[linked] = np.exp(strengths - strengths[0])
        return relative

    return solve


def _likelihood(cells: _Cells, wins: csr_array) -> Solver:
    """Return the solver without features, which fits a Poisson model to the clicks.

    Document d has N theta_k gamma_d expected clicks at position k. Here N is the number of
    impressions of d at k, theta_k is the propensity, and gamma_d is the relevance. The solver
    maximizes the Poisson likelihood. With this likelihood, the gammas do not bias theta, however
    few impressions each document has. (With the Bernoulli likelihood, the gammas would bias theta:
    with four impressions per document, theta would be nearly flat.) Each step solves exactly for
    the gammas, then for theta.
    """
    state = [np.ones(cells.positions)]

    def solve(weights: np.ndarray) -> np.ndarray:
        weight, theta = weights[cells.query], state[0]
        clicks, shown = cells.clicks * weight, cells.shown * weight
        linked = _linked((wins.T @ weights).reshape(cells.positions, cells.positions))
        for _ in range(_STEPS):
            before = theta
            gamma = cells.of(cells.clicks) / cells.of(cells.shown * theta[cells.position])
            theta = _looks(cells, gamma, clicks, shown)
            if np.allclose(theta[linked], before[linked], rtol=_SETTLED, atol=0):
                break
        else:
            _warn_unsettled(_STEPS)
        state[0] = theta
        relative = np.full(cells.positions, np.nan)
        relative[linked] = theta[linked] / theta[0]
        return relative

    return solve


def _looks(cells: _Cells, gamma: np.ndarray, clicks: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Return the theta whose expected clicks equal the logged clicks by position, up to a factor.

    The largest theta is 1.
    """
    looks = cells.at(clicks) / np.maximum(cells.at(shown * gamma[cells.document]), _LEAST)
    return np.maximum(looks / max(looks.max(), _LEAST), _LEAST)


def _regression(cells: _Cells, features: Any, classifier: Any, rows: int) -> Solver:
    """Return the solver of regression-EM, in which a classifier predicts relevance from features.

    In each round, the classifier is fitted to two copies of each document: one is relevant, with
    the clicks as its weight; the other is irrelevant, and its weight is the expected number of
    impressions that users looked at without a click. So the looks are the only hidden variables. In
    Wang et al., the relevance of documents that nobody looked at is hidden too: if clicks are rare,
    each of their rounds changes the relevance little. After the fit, the propensities are chosen so
    that the expected clicks at each position, with the fitted relevance, equal the logged clicks up
    to a factor.
    """
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    table = as_numbers("features", features)
    if table.ndim != 2 or len(table) != rows:
        raise ValueError(f"features must have the shape ({rows}, columns), got {table.shape}")
    if not has_fit_parameter(classifier, "sample_weight"):
        raise ValueError(f"classifier must take sample_weight, got {classifier!r}")
    if not hasattr(classifier, "predict_proba"):
        raise ValueError(f"classifier must have predict_proba, got {classifier!r}")
    own = table[cells.row]
    twice = np.concatenate([own, own])
    classes = np.repeat([1, 0], len(own))
    rates = cells.at(cells.clicks) / np.maximum(cells.at(cells.shown), _LEAST)
    state = [rates / max(rates.max(), _LEAST), np.full(len(own), 0.5)]

    def solve(weights: np.ndarray) -> np.ndarray:
        weight, (theta, gamma) = weights[cells.query], state
        clicks, shown = cells.clicks * weight, cells.shown * weight
        if not clicks.any():
            return np.full(cells.positions, np.nan)
        for _ in range(_ROUNDS):
            looks, relevant = theta[cells.position], gamma[cells.document]
            chance = np.minimum(looks * relevant, _MOST)
            missed = (shown - clicks) * looks * (1 - relevant) / (1 - chance)
            both = np.concatenate([cells.of(clicks), cells.of(missed)])
            model: Any = clone(classifier)
            model.fit(twice[both > 0], classes[both > 0], both[both > 0])
            gamma = model.predict_proba(own)[:, list(model.classes_).index(1)]
            before, theta = theta, _looks(cells, gamma, clicks, shown)
            if np.allclose(theta, before, rtol=_ROUGH, atol=0):
                break
        else:
            _warn_unsettled(_ROUNDS)
        state[:] = theta, gamma
        return np.where(cells.at(clicks) > 0, theta / theta[0], np.nan)

    return solve


def _warn_unsettled(steps: int) -> None:
    warnings.warn(
        f"the propensities still changed after {steps} steps of em", RuntimeWarning, stacklevel=5
    )

"""Fuse the rankings of several rankers into one."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from ltr.arrays import as_numbers, rank, rows_by_list
from ltr.metrics.trec import Run
from ltr.rerank.normalization import NORMALIZATIONS, Normalization, normalize_scores
from ltr.rerank.rankers import AnyRun, Array, Rankers, are_runs, read_runs
from ltr.shapes import check_choice, check_whole

Method = Literal["rrf", "combsum", "combmnz", "borda", "condorcet"]
METHODS = ("rrf", "combsum", "combmnz", "borda", "condorcet")


@overload
def fuse(
    rankers: Sequence[AnyRun],
    *,
    method: Method = "rrf",
    normalize: Normalization = "min_max",
    weights: Any = None,
    k: int = 60,
) -> Run: ...


@overload
def fuse(
    rankers: Array | Sequence[Array | Sequence[float]],
    qid: Any = None,
    *,
    method: Method = "rrf",
    normalize: Normalization = "min_max",
    weights: Any = None,
    k: int = 60,
) -> np.ndarray: ...


def fuse(
    rankers: Any,
    qid: Any = None,
    *,
    method: Method = "rrf",
    normalize: Normalization = "min_max",
    weights: Any = None,
    k: int = 60,
) -> np.ndarray | Run:
    """Fuse the rankings of several rankers into one.

    The fused score of a document d is a sum over the rankers. Each ranker adds its weight times:

    - "rrf", reciprocal rank fusion: 1 / (k + position of d). A ranker that did not retrieve d adds
      0.
    - "combsum": the normalized score of d. A ranker that did not retrieve d adds 0. With "min_max"
      and "rank", 0 is at most the lowest normalized score. But with "z", 0 is the mean normalized
      score: do not use "z" for short runs.
    - "combmnz": the same as "combsum". The sum is then multiplied by the number of rankers that
      retrieved d.
    - "borda": m + 1 - position of d, where m is the number of documents that any ranker retrieved.
      A ranker that retrieved n of them divides the points of the last m - n positions equally among
      the other documents.
    - "condorcet": a vote for d against each document below d. A document that the ranker did not
      retrieve is below all documents that the ranker retrieved; there is no vote between two
      documents that the ranker did not retrieve. The fused score is then 1, plus 1 for each
      document that d beats by votes, plus 1/2 for each tie (Copeland's count). Unless majorities
      form a cycle, this is the order of Condorcet-fuse.

    Args:
        rankers: a list of runs, a list of arrays (rows,), or one array (rankers, rows). A run is
            the name of a TREC file, or a dict with the score of each document for each query. In an
            array, NaN means that the ranker did not retrieve the document.
        qid: (rows,), the query of each row of arrays, in any order. Default: all rows are one list.
            Runs have their own queries.
        method: see above.
        normalize: how "combsum" and "combmnz" normalize the scores of a ranker in a list: see
            `normalize_scores`. The other methods use positions and ignore `normalize`.
        weights: (rankers,), finite, >= 0, not all 0. Default: 1 for each.
        k: the constant of "rrf", a whole number >= 1.

    Returns:
        For arrays, scores (rows,) float64. For runs, one run with all queries and documents of the
        runs, the best document first. A run that lacks a query has retrieved nothing for the query.
        The order of the rankers does not matter. If a ranker gives equal scores, it ranks the rows
        of arrays in their order, and documents of runs by descending name, as in trec_eval.

    Raises:
        ValueError: there is no ranker; a score is infinite, or in a run NaN or no number; no ranker
            has a score for a row; a run shares no query with the others; shapes differ; a file is
            invalid; an option is unknown or out of range.

    Cost: one sort for each ranker; "condorcet" takes O(n^2) time and memory for a list of n rows.

    References: Cormack et al., "Reciprocal rank fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009; Fox and Shaw, "Combination of multiple searches", TREC-2, 1994;
    Aslam and Montague, "Models for metasearch", SIGIR 2001; Montague and Aslam, "Condorcet fusion
    for improved retrieval", CIKM 2002.

    >>> fuse([[3.0, 2.0, 1.0], [0.1, 0.9, np.nan]], method="borda").tolist()
    [5.0, 5.0, 2.0]
    >>> bm25, neural = {"q": {"a": 7.0, "b": 5.0}}, {"q": {"b": 0.9, "c": 0.8}}
    >>> [*fuse([bm25, neural])["q"]]
    ['b', 'a', 'c']
    """
    if not are_runs(rankers):
        rows = Rankers.of_arrays(rankers, qid)
        if (lost := np.flatnonzero(np.isnan(rows.scores).all(0))).size:
            raise ValueError(f"rankers must have a score for each row, got none for row {lost[0]}")
        return fuser(rows, method, normalize, k)(_checked(weights, len(rows.scores)))
    if qid is not None:
        raise ValueError("qid must be None for runs, which have their own queries")
    rows = Rankers.of_runs(read_runs(rankers))
    total = fuser(rows, method, normalize, k)(_checked(weights, len(rows.scores)))
    fused: Run = {qid: {} for qid in rows.qids}
    lists: list[int] = rows.lists.tolist()
    order: list[int] = np.lexsort((-total, rows.lists)).tolist()
    for row in order:
        fused[rows.qids[lists[row]]][rows.names[row]] = float(total[row])
    return fused


def fuser(
    rows: Rankers, method: Method, normalize: Normalization, k: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of the weights (rankers,) that returns the fused scores (rows,).

    >>> fuser(Rankers.of_arrays([[2.0, 1.0]], None), "rrf", "none", 1)(np.ones(1)).tolist()
    [0.5, 0.3333333333333333]
    """
    check_choice("method", method, *METHODS)
    check_choice("normalize", normalize, *NORMALIZATIONS)
    check_whole("k", k)
    if method == "condorcet":
        return lambda weights: _copeland(rows, weights)
    points = np.zeros(rows.scores.shape)
    sizes = np.bincount(rows.lists)[rows.lists]
    for own, scores in zip(points, rows.scores, strict=True):
        has = ~np.isnan(scores)
        ranked, lists = scores[has], rows.lists[has]
        if method == "rrf":
            own[has] = 1 / (k + rank(ranked, lists))
        elif method == "borda":
            count = np.bincount(lists, minlength=len(sizes))[rows.lists]
            own[:] = (sizes - count + 1) / 2
            own[has] = sizes[has] - rank(ranked, lists) + 1
        else:
            own[has] = normalize_scores(ranked, lists, normalize)
    retrieved = (~np.isnan(rows.scores)).sum(0) if method == "combmnz" else 1

    def total(weights: np.ndarray) -> np.ndarray:
        # Without sorting, rounding would depend on the order of the rankers, and could break ties.
        return np.sort(weights[:, None] * points, axis=0).sum(0) * retrieved

    return total


def _copeland(rows: Rankers, weights: np.ndarray) -> np.ndarray:
    total = np.zeros(len(rows.lists))
    for members in rows_by_list(rows.lists):
        # A margin is the weight of the votes for the row's document minus that for the column's.
        margins = np.zeros((len(members), len(members)))
        for weight, scores in zip(weights, rows.scores[:, members], strict=True):
            has = ~np.isnan(scores)
            position = np.full(len(members), len(members) + 1)
            position[has] = rank(scores[has])
            margins += weight * np.sign(position - position[:, None])
        margins[np.abs(margins) <= 1e-12 * weights.sum()] = 0  # this is a tie, up to rounding
        # A document ties with itself, which gives 1/2. The last term adds another 1/2.
        total[members] = (margins > 0).sum(1) + (margins == 0).sum(1) / 2 + 1 / 2
    return total


def _checked(weights: Any, count: int) -> np.ndarray:
    if weights is None:
        return np.ones(count)
    values = as_numbers("weights", weights).astype(np.float64)
    if values.shape != (count,):
        raise ValueError(f"weights must have one number for each of {count} rankers, got {weights}")
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(f"weights must be finite, >= 0 and not all 0, got {weights}")
    return values

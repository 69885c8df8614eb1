"""Choose the weights of rankers on labelled lists."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ltr.arrays import as_numbers, check_labels, list_numbers
from ltr.rerank.fusion import Method, fuser
from ltr.rerank.normalization import Normalization
from ltr.rerank.rankers import Rankers, are_runs, read_runs


def fusion_weights(
    rankers: Any,
    labels: Any,
    qid: Any = None,
    *,
    metric: str = "ndcg@10",
    method: Method = "combsum",
    normalize: Normalization = "min_max",
    k: int = 60,
) -> np.ndarray:
    """Return the weights for `fuse` that are best by a metric on labelled lists.

    The search is that of `Blend`: it goes through the rankers, at most five times, and tries each
    weight in steps of 1/20. The result is equal weights, unless the gain over equal weights exceeds
    two of its standard errors. The queries must not be those for which you report results.

    Args:
        rankers: as in `fuse`.
        labels: (rows,), finite and >= 0. For runs: the judgement of each document for each query,
            as from `read_qrels`; a judgement below 0 counts as no judgement.
        qid: as in `fuse`.
        metric: the name of a metric that is higher for better rankings.
        method: as in `fuse`. Give `fuse` the same method, normalization and k.
        normalize: as in `fuse`.
        k: as in `fuse`.

    Returns:
        The weights (rankers,), >= 0, with sum 1. Judged queries that no run has, and queries
        without judgements, do not count. A list without a relevant document counts as 0. A document
        that no ranker retrieved is last in its list.

    Raises:
        ValueError: as in `fuse`, except that a row may have no score; labels are invalid or do not
            fit the rows; no query of the runs is judged; the metric is unknown, or lower values of
            it are better.

    >>> labels, qid = [1, 0, 0] * 8, np.repeat(np.arange(8), 3)
    >>> fusion_weights([[3.0, 2.0, 1.0] * 8, [1.0, 3.0, 2.0] * 8], labels, qid).round(2).tolist()
    [0.7, 0.3]
    """
    from ltr.estimators.scoring import values_of_lists
    from ltr.estimators.weights import best_weights

    if are_runs(rankers):
        if qid is not None:
            raise ValueError("qid must be None for runs, which have their own queries")
        rows, grades = _judged(rankers, labels)
    else:
        rows, grades = Rankers.of_arrays(rankers, qid), as_numbers("labels", labels)
        if grades.shape != rows.lists.shape:
            raise ValueError(f"labels must have shape {rows.lists.shape}, got {grades.shape}")
        if not len(grades):
            raise ValueError("labels must have at least one row, got none")
        check_labels("labels", grades)
    scored = ~np.isnan(rows.scores).all(0)
    own = rows.lists[scored]
    fused = fuser(
        Rankers(rows.scores[:, scored], list_numbers(own, len(own))), method, normalize, k
    )
    lists = list_numbers(rows.lists, len(rows.lists))

    def values(weights: np.ndarray) -> np.ndarray:
        scores = fused(weights)
        # A relevant document that no ranker retrieved comes last, and counts in the ideal.
        total = np.full(len(lists), scores.min(initial=0) - 1)
        total[scored] = scores
        return values_of_lists(total, grades.astype(np.float64), lists, metric=metric)

    return best_weights(len(rows.scores), values)


def _judged(rankers: Any, qrels: Any) -> tuple[Rankers, np.ndarray]:
    """Return the runs restricted to judged queries, and the label of each row.

    There is a row for each document that a run retrieved, and for each other relevant document.
    """
    if not isinstance(qrels, Mapping):
        raise ValueError(f"labels must be judgements by document by query for runs, got {qrels!r}")
    runs = read_runs(rankers)
    qids = [qid for qid in qrels if any(qid in run for run in runs)]
    if not qids:
        raise ValueError("labels must judge a query of the runs, got none of them")
    relevant = {qid: _relevant(qrels[qid], qid) for qid in qids}
    judged = [{qid: run[qid] for qid in qids if qid in run} for run in runs]
    rows = Rankers.of_runs([*judged, relevant])
    pairs = zip((rows.qids[number] for number in rows.lists), rows.names, strict=True)
    labels = [max(qrels[qid].get(name, 0), 0) for qid, name in pairs]
    return Rankers(rows.scores[:-1], rows.lists, rows.names, rows.qids), np.array(labels)


def _relevant(judged: Any, qid: str) -> dict[str, float]:
    """Return the relevant documents of a query, each with the score 0."""
    try:
        return {name: 0.0 for name, label in judged.items() if label > 0}
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"labels must be numbers by document by query for runs, got {judged!r} for {qid!r}"
        ) from error

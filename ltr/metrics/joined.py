"""A TREC run and its judgements as padded lists, on which metrics have trec_eval's values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ltr.shapes import check_whole

if TYPE_CHECKING:
    from ltr.metrics.core import MetricCore


@dataclass(frozen=True)
class JoinedRun:
    """The result of `join`: a run and its judgements as lists, one for each judged query.

    A list holds, in this order: the retrieved documents, as trec_eval sorts them; unjudged fillers
    up to position `depth`; and the judged documents that the run lacks, relevant documents last. So
    a metric with any `top_k` up to `depth` gives no credit for documents that were not retrieved,
    but counts them in the ideal and among the relevant documents.

    Attributes:
        qids: the query ids of the lists, in the order of the qrels.
        scores: (lists, n) float64: 0 for the best score of a list, -1 for the next lower score, and
            so on; -depth for a filler, and -depth - 1 for a document that the run lacks.
        labels: (lists, n) float64; 0 for a document that is not judged.
        mask: (lists, n) bool, True for a document or a filler; all False for a skipped query.
        judged: (lists, n) bool, True for a judged document.
        depth: how many positions come before the documents that the run lacks.
        missing: the number of judged queries that the run lacks.
        unjudged: the number of queries of the run that have no judgements, and so no list here.
    """

    qids: list[str]
    scores: Tensor
    labels: Tensor
    mask: Tensor
    judged: Tensor
    depth: int
    missing: int
    unjudged: int

    def values(self, metric: "MetricCore") -> Tensor:
        """Return a metric's value for each list, (lists,) float64; NaN for a list that is left out.

        Args:
            metric: a metric with a `top_k` up to `depth`, such as `NDCG(top_k=10)`. Without a
                `top_k`, all retrieved documents count; precision, F1 and F-beta need a `top_k`. A
                metric of the set of retrieved documents, such as `SetPrecision()`, works too.

        Raises:
            ValueError: `top_k` is above `depth`, or missing for a metric that needs it; the metric
                has a `threshold`; or the metric needs whole lists, as rank correlations and
                rank-biased overlap do.
        """
        return metric.of_run(self.depth).measure(
            self.scores, self.labels, mask=self.mask, judged=self.judged, reduction="none"
        )


def join(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    depth: int = 100,
    skip_missing: bool = False,
    allow_disjoint: bool = False,
) -> JoinedRun:
    """Return the lists of a run with the labels of its documents, for the metrics.

    Documents are in trec_eval's order: by descending score, rounded to float32, and by descending
    name if scores are equal. Unjudged documents have label 0.

    Args:
        run: for each query, the score of each retrieved document.
        qrels: for each query, the judgement of each document; < 0 means not judged.
        depth: the largest `top_k` that a metric may have. It is raised, if necessary, to the larger
            of two numbers: the length of the longest retrieved list, and the largest number of
            relevant documents of a query.
        skip_missing: leave out judged queries that the run lacks, as trec_eval does. By default
            such queries have lists without retrieved documents, as with `trec_eval -c`.
        allow_disjoint: allow a run with none of the judged queries. By default this is an error.

    Returns:
        The lists. Memory: lists * (depth + the largest number of judged documents that the run
        lacks for a query).

    Raises:
        ValueError: a score is NaN; run and qrels have no query in common; qrels have no query.

    >>> from ltr.metrics import NDCG
    >>> qrels = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 1}}
    >>> lists = join({"q1": {"a": 0.5, "b": 1.5}, "q3": {"a": 1.0}}, qrels, depth=10)
    >>> lists.values(NDCG(top_k=10, gain="linear"))
    tensor([0.2398, 0.0000], dtype=torch.float64)
    >>> lists.missing, lists.unjudged
    (1, 1)
    """
    check_whole("depth", depth)
    known = {
        qid: {d: r for d, r in judgements.items() if r >= 0} for qid, judgements in qrels.items()
    }
    if not allow_disjoint and not known.keys() & run.keys():
        raise ValueError("run and qrels must have a query in common, got none")
    if not known:
        raise ValueError("qrels must have at least one query, got none")
    relevant = [sum(label > 0 for label in labels.values()) for labels in known.values()]
    lengths = [len(run[qid]) for qid in known if qid in run]
    depth = max(depth, *relevant, *lengths)
    lacking = [
        sorted((r for d, r in labels.items() if d not in run.get(qid, {})))
        for qid, labels in known.items()
    ]
    shape = (len(known), depth + max(map(len, lacking)))
    scores, labels = np.full(shape, -float(depth)), np.zeros(shape)
    judged, mask = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for i, (qid, known_labels) in enumerate(known.items()):
        if skip_missing and qid not in run:
            continue
        retrieved = run.get(qid, {})
        order = trec_order(retrieved)
        sorted_scores = _float32([retrieved[name] for name in order])
        n, end = len(order), depth + len(lacking[i])
        judgements = [known_labels.get(name) for name in order]
        scores[i, :n] = 0.0
        scores[i, 1:n] -= np.cumsum(sorted_scores[1:] != sorted_scores[:-1])
        scores[i, depth:end] = -float(depth + 1)
        labels[i, :n] = [label or 0 for label in judgements]
        labels[i, depth:end] = lacking[i]
        judged[i, :n] = [label is not None for label in judgements]
        judged[i, depth:end] = True
        mask[i, :end] = True
    columns = {"scores": scores, "labels": labels, "mask": mask, "judged": judged}
    tensors = {name: torch.from_numpy(x) for name, x in columns.items()}
    missing, unjudged = len(known.keys() - run.keys()), len(run.keys() - known.keys())
    return JoinedRun([*known], **tensors, depth=depth, missing=missing, unjudged=unjudged)


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Return documents in trec_eval's order: by float32 score, then by name, both descending.

    >>> trec_order({"a": 1.0, "b": 1.0, "c": 2.0})
    ['c', 'b', 'a']
    """
    names = list(scores)
    values = _float32(list(scores.values()))
    if np.isnan(values).any():
        raise ValueError(
            f"scores must not be NaN, got NaN for {names[np.isnan(values).argmax()]!r}"
        )
    order = np.argsort(-values, kind="stable")
    if len(np.unique(values)) < len(values):
        keys = [
            (value, raw_bytes(name)) for value, name in zip(values.tolist(), names, strict=True)
        ]
        order = sorted(range(len(names)), key=keys.__getitem__, reverse=True)
    return [names[i] for i in order]


def _float32(values: Sequence[float]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64).astype(np.float32)


def raw_bytes(name: str) -> bytes:
    """Return the bytes of a name as they are in a file: trec_eval compares names byte by byte.

    >>> raw_bytes("FT911-3")
    b'FT911-3'
    """
    return name.encode("utf-8", "surrogateescape")

"""Metrics of the hits: precision, recall, F1, R-precision, hit rate and top-k accuracy."""

from typing import Unpack

from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import (
    Ties,
    check_ties,
    first_hit,
    first_in_order,
    hits_of,
    placed_sum,
    within,
)
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, check_whole, largest, positions


def precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Precision@k: the fraction of relevant items among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        weights: (..., n), >= 0, weights of the relevant items. Default: 1.
        top_k: k. It is the divisor even for a list with fewer items, as in trec_eval.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=2)
    tensor(0.5000)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, weights, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _precision(lists, top_k, empty, ties), reduction)


def _precision(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    divisor = top_k or lists.lengths.clamp(min=1)
    values = placed_sum(within(hits, top_k), hits, lists, ties) / divisor
    return list_values(values, hits.any(-1), lists, empty)


class Precision(RankingMetric):
    """Precision@k: the fraction of relevant items among the first k.

    The arguments are those of `functional.precision`.

    >>> import torch
    >>> Precision(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(precision)
    core = staticmethod(_precision)
    takes_weights = True
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)


def recall(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Recall@k: the fraction of the relevant items that are among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        weights: (..., n), >= 0, weights of the relevant items. Default: 1.
        top_k: k. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> recall(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=1)
    tensor(0.5000)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, weights, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _recall(lists, top_k, empty, ties), reduction)


def _recall(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    total = hits.sum(-1)
    values = placed_sum(within(hits, top_k), hits, lists, ties) / total.where(total > 0, 1.0)
    return list_values(values, total > 0, lists, empty)


class Recall(RankingMetric):
    """Recall@k: the fraction of the relevant items that are among the first k.

    The arguments are those of `functional.recall`.

    >>> import torch
    >>> Recall(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(recall)
    core = staticmethod(_recall)
    takes_weights = True
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)


def f1(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """F1@k: the harmonic mean of precision and recall at k, 2 * hits / (k + relevant items).

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Precision divides by it, even for a list with fewer items.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> f1(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=2)
    tensor(0.5000)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _f1(lists, top_k, empty, ties), reduction)


def _f1(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    relevant = hits.sum(-1)
    found = placed_sum(within(hits, top_k), hits, lists, ties)
    values = 2 * found / ((top_k or lists.lengths) + relevant).clamp(min=1)
    return list_values(values, relevant > 0, lists, empty)


class F1(RankingMetric):
    """F1@k: the harmonic mean of precision and recall at k.

    The arguments are those of `functional.f1`.

    >>> import torch
    >>> F1(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(f1)
    core = staticmethod(_f1)
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)


def r_precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """R-precision: the precision at rank R, where R is the number of relevant items.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; items below rank k count as not relevant, but R stays. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> r_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.5000)
    """
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid)
    return batch.measure(lambda lists: _r_precision(lists, top_k, empty, ties), reduction)


def _r_precision(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    total = hits.sum(-1)
    first = (positions(hits) <= total.unsqueeze(-1)) * within(hits, top_k)
    values = placed_sum(first, hits, lists, ties) / total.clamp(min=1)
    return list_values(values, total > 0, lists, empty)


class RPrecision(RankingMetric):
    """R-precision: the precision at rank R, where R is the number of relevant items.

    The arguments are those of `functional.r_precision`.

    >>> import torch
    >>> RPrecision()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(r_precision)
    core = staticmethod(_r_precision)

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)


def hit_rate(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Hit rate, or success@k: whether a relevant item is among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> hit_rate(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 2.0]), top_k=1)
    tensor(0.)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _hit_rate(lists, top_k, empty, ties), reduction)


def _hit_rate(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    first = first_hit(lists.labels > 0, lists, ties)
    values = (first * within(first, top_k)).sum(-1)
    return list_values(values, (lists.labels > 0).any(-1), lists, empty)


class HitRate(RankingMetric):
    """Hit rate, or success@k: whether a relevant item is among the first k.

    The arguments are those of `functional.hit_rate`.

    >>> import torch
    >>> HitRate(top_k=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.)
    """

    function = staticmethod(hit_rate)
    core = staticmethod(_hit_rate)
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)


def top_k_accuracy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int = 1,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k accuracy: whether an item with the largest label of its list is among the first k.

    With one-hot labels the items are classes and this is a classifier's top-k accuracy.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        labels: (..., n), >= 0. An item with the largest label counts if that label is above 0.
        top_k: k.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Russakovsky et al., "ImageNet large scale visual recognition challenge", 2015.

    >>> import torch
    >>> top_k_accuracy(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]), top_k=2)
    tensor(1.)
    """
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid)
    return batch.measure(lambda lists: _top_k_accuracy(lists, top_k, empty, ties), reduction)


def _top_k_accuracy(lists: Ranked, top_k: int, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_whole("top_k", top_k)
    best = (lists.labels > 0) & (lists.labels == largest(lists.labels).unsqueeze(-1))
    first = first_hit(best, lists, ties)
    values = (first * within(first, top_k)).sum(-1)
    return list_values(values, best.any(-1), lists, empty)


class TopKAccuracy(RankingMetric):
    """Top-k accuracy: whether the item with the largest label is among the first k.

    The arguments are those of `functional.top_k_accuracy`.

    >>> import torch
    >>> TopKAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.)
    """

    function = staticmethod(top_k_accuracy)
    core = staticmethod(_top_k_accuracy)

    def __init__(
        self,
        top_k: int = 1,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)

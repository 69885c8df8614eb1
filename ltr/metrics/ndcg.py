"""Exact discounted cumulative gain, plain (DCG) and normalized (NDCG)."""

from collections.abc import Callable
from typing import Unpack

from torch import Tensor

from ltr.gains import Discount, Gain, discount_function, gain_function, ideal_dcg, item_gains
from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, first_in_order, placed_sum, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, positions


def ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    short_list_value: float | None = None,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """NDCG@k: DCG@k, divided by its largest value for these labels.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        weights: (..., n), >= 0, factors of the gains, also in the ideal. Default: 1.
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.
        short_list_value: the value of a list with fewer than `top_k` items (LETOR 4's script: 0).
            Default: its NDCG over the items that it has.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option, a
            gain function that returns a negative number, or gains that overflow (2^label from label
            128 on in float32).

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002;
    Burges et al., "Learning to rank using gradient descent", 2005, for this gain and discount.

    >>> import torch
    >>> ndcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, weights, lengths=lengths, qid=qid, first=first)
    return batch.measure(
        lambda lists: _ndcg(lists, top_k, gain, discount, empty, short_list_value, ties), reduction
    )


def _ndcg(
    lists: Ranked,
    top_k: int | None,
    gain: Gain,
    discount: Discount,
    empty: Empty,
    short_list_value: float | None,
    ties: Ties,
) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    full = discount_function(discount)
    gains, lists = _gains(lists, gain)
    ideal = ideal_dcg(gains, full, top_k)
    lists = _check_sums(ideal, lists)
    values = _sum(gains, lists, full, top_k, ties) / ideal.where(ideal > 0, 1.0)
    found = list_values(values, ideal > 0, lists, empty)
    if short_list_value is None or top_k is None:
        return found
    short = (lists.lengths > 0) & (lists.lengths < top_k)
    return found._replace(values=found.values.masked_fill(short, float(short_list_value)))


class NDCG(RankingMetric):
    """NDCG: the discounted gain of the relevant items, relative to that of the best order.

    The arguments are those of `functional.ndcg`.

    >>> import torch
    >>> NDCG(top_k=1)(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(1.)
    """

    function = staticmethod(ndcg)
    core = staticmethod(_ndcg)
    takes_weights = True
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        short_list_value: float | None = None,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(
            top_k=top_k,
            gain=gain,
            discount=discount,
            empty=empty,
            short_list_value=short_list_value,
            ties=ties,
            **options,
        )


def dcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """DCG@k: sum of gain * discount over the first k items.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        weights: (..., n), >= 0, factors of the gains. Default: 1.
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option, a
            gain function that returns a negative number, or gains that overflow (2^label from label
            128 on in float32).

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002.

    >>> import torch
    >>> dcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, weights, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _dcg(lists, top_k, gain, discount, empty, ties), reduction)


def _dcg(
    lists: Ranked, top_k: int | None, gain: Gain, discount: Discount, empty: Empty, ties: Ties
) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    gains, lists = _gains(lists, gain)
    values = _sum(gains, lists, discount_function(discount), top_k, ties)
    return list_values(values, (gains > 0).any(-1), _check_sums(values, lists), empty)


class DCG(RankingMetric):
    """DCG: the sum of the items' gains, discounted by their ranks.

    The arguments are those of `functional.dcg`.

    >>> import torch
    >>> DCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]]))
    tensor(0.6309)
    """

    function = staticmethod(dcg)
    core = staticmethod(_dcg)
    takes_weights = True
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(
            top_k=top_k, gain=gain, discount=discount, empty=empty, ties=ties, **options
        )


def _gains(lists: Ranked, gain: Gain) -> tuple[Tensor, Ranked]:
    """Return the gains times the weights; check the gains of a user's function."""
    gains = item_gains(lists.labels, lists.mask, lists.weights, gain_function(gain))
    if isinstance(gain, str):
        return gains, lists
    return gains, lists.check(
        (gains < 0).any(-1), lambda: f"gain must be >= 0 for every label, got {gains.min():g}"
    )


def _check_sums(sums: Tensor, lists: Ranked) -> Ranked:
    most = lists.labels
    return lists.check(
        ~sums.isfinite(),
        lambda: f"gains must be finite in {sums.dtype}, got labels up to {most.max():g}",
    )


def _sum(
    gains: Tensor,
    lists: Ranked,
    discount: Callable[[Tensor], Tensor],
    top_k: int | None,
    ties: Ties,
) -> Tensor:
    if ties == "stable" and top_k is not None:
        gains = gains[..., :top_k]
        return (gains * discount(positions(gains))).sum(-1)
    values = discount(positions(gains)) * within(gains, top_k)
    return placed_sum(values, gains, lists, ties)

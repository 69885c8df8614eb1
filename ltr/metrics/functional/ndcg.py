"""Discounted cumulative gain, and normalised, exact."""

from collections.abc import Callable

import torch
from torch import Tensor

from ltr._shapes import check_top_k, count, positions
from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    item_gains,
)
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._ranking import Ranked, Ties, check_ties, placed_sum, rank, within


def ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    short: float | None = None,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """NDCG@k: sum of gain * discount over the first k, over its largest value for these labels.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0, graded relevance.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, multiply the gains, in the ideal too. Default: 1.
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        short: what a list with fewer than `top_k` items counts (LETOR 4's script: 0). Default:
            its NDCG over the items that it has.
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option; a
            gain function gives what is negative, or gains overflow (2^label from label 128 on in
            float32).

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002;
    Burges et al., "Learning to rank using gradient descent", 2005, for this gain and discount.

    >>> ndcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    full = discount_function(discount)
    lists = rank(scores, labels, mask, weights)
    gains = _gains(lists, gain)
    best = _rising(gains)[..., -(top_k or gains.shape[-1]) :]
    ideal = _finite((best * full(positions(best)).flip(-1)).sum(-1), lists)
    values = _dcg(gains, lists, full, top_k, ties) / ideal.where(ideal > 0, 1.0)
    values = list_values(values, ideal > 0, lists.scores, lists.mask, empty)
    if short is not None and top_k is not None:
        length = count(gains, lists.mask).squeeze(-1)
        values = values.masked_fill((length > 0) & (length < top_k), float(short))
    return reduce_lists(values, reduction)


def dcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """DCG@k: sum of gain * discount over the first k items.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0, graded relevance.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, multiply the gains. Default: 1.
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option; a
            gain function gives what is negative, or gains overflow (2^label from label 128 on in
            float32).

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002.

    >>> dcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    full = discount_function(discount)
    lists = rank(scores, labels, mask, weights)
    gains = _gains(lists, gain)
    values = _finite(_dcg(gains, lists, full, top_k, ties), lists)
    return reduce_lists(
        list_values(values, (gains > 0).any(-1), lists.scores, lists.mask, empty), reduction
    )


def _gains(lists: Ranked, gain: Gain) -> Tensor:
    """The gains times the weights; those of a user's function are looked at."""
    gains = item_gains(lists.labels, lists.mask, lists.weights, gain_function(gain))
    if not isinstance(gain, str) and (gains < 0).any():
        raise ValueError(f"gain must be >= 0 for every label, got {gains.min():g}")
    return gains


def _finite(sums: Tensor, lists: Ranked) -> Tensor:
    if not bool(sums.isfinite().all()):
        raise ValueError(
            f"gains must be finite in {sums.dtype}, got labels up to {lists.labels.max():g}"
        )
    return sums


def _rising(gains: Tensor) -> Tensor:
    """The gains of each list, sorted; on the CPU by numpy, in a fraction of torch's time."""
    if gains.device.type != "cpu":
        return gains.sort(dim=-1).values
    import numpy as np

    return torch.from_numpy(np.sort(gains.numpy(), axis=-1))


def _dcg(
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

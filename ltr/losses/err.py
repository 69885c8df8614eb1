"""1 - expected reciprocal rank on soft ranks."""

from functools import partial

import torch
from torch import Tensor

from ltr.gains import CUT_WIDTH, log_left, stop_probabilities
from ltr.kernels.sorting import falling_values
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import cut, one_draw, rank_operator, reciprocal_rank, shortfall
from ltr.operators import RankOperator, truncated
from ltr.shapes import check_number, check_top_k, positions


class SoftERR(RankingLoss):
    """1 - soft ERR: sum over i of R_i / rank_i * product over j before i of (1 - R_j).

    R = (2^label - 1) / 2^max_label is the probability that a reader stops at the item. "j before
    i" is a smooth step of the difference of their soft ranks: 1/2 if the ranks are equal, and as
    wide as the smooth cut at k. With hard ranks and `normalize=False` the loss is exactly 1 - ERR.
    By default ERR is divided by its ideal, so the minimum of the loss is 0.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0 if the item's soft rank is 1. Of two items with tied scores, each
    is before the other by one half.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: ERR@k, by a smooth cut at rank k + 1/2 (the ideal is cut exactly). Default: all.
        max_label: the highest grade of the scale, such as 4. Labels above it count as that grade.
            Default: the largest label of each list.
        normalize: whether to divide by the ERR of the ideal order. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    A weight w replaces R by 1 - (1 - R)^w, as if the reader looked at the item w times. A weight
    of 0 makes the item irrelevant, and small R grow in proportion to w. (If weights multiplied the
    terms of the sum instead, no sort by a key would give the best order: which of two neighbors
    should come first would depend on their rank.)

    The ideal is the order by falling R, with the weights included. To see this, take neighbors a
    and b at ranks r and r + 1. "a first" adds R_a / r + (1 - R_a) R_b / (r + 1), times the
    probability that the reader arrives there. That exceeds "b first" by the same probability times
    (R_a - R_b) / (r (r + 1)). Nothing behind the two changes. So no order is better than the
    ideal, and with hard ranks the loss is >= 0 and 0 only at an ideal order.

    Cost: the operator's, and O(n^2) time and memory.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
    relevance", CIKM 2009.

    >>> from ltr.operators import HardRank
    >>> loss = SoftERR(HardRank(), max_label=1, normalize=False)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))  # 1 - 1/4 - 1/12
    tensor(0.6667)
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        max_label: float | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.top_k = check_top_k(top_k)
        self.max_label = _check_max_label(max_label)
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - soft ERR of each list."""
        return _err(
            scores,
            labels,
            mask,
            weights,
            operator=self.operator,
            top_k=self.top_k,
            max_label=self.max_label,
            normalize=self.normalize,
        )


def _err(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    top_k: int | None,
    max_label: float | None,
    normalize: bool,
) -> Tensor:
    stops = stop_probabilities(labels, mask, max_label, weights)
    ideal = ideal_err(stops, top_k)
    operator, scores, mask = one_draw(operator, scores, mask)
    arrivals = _arrival_probabilities(stops, operator(scores, mask), operator.whole_ranks)
    discounts = operator.discounts(cut(reciprocal_rank, top_k, operator), scores, mask)
    err = (stops * discounts * arrivals).sum(-1)
    if normalize:
        return shortfall(err, ideal)
    return torch.where(ideal > 0, 1 - err, 0 * err)


def ideal_err(stops: Tensor, top_k: int | None = None) -> Tensor:
    """Return the largest ERR (...) of any order, for stop probabilities (..., n).

    >>> ideal_err(torch.tensor([0.0, 0.5, 0.5]))  # 1/2 + 1/2 * 1/2 * 1/2
    tensor(0.6250)
    """
    stops = falling_values(stops)
    left = log_left(stops)
    arrivals = (left.cumsum(-1) - left).exp()
    discount = reciprocal_rank if top_k is None else truncated(reciprocal_rank, top_k, exact=True)
    return (stops * arrivals * discount(positions(stops))).sum(-1)


def _arrival_probabilities(stops: Tensor, ranks: Tensor, whole: bool) -> Tensor:
    """Return how likely a reader arrives at each item: the product over j before i of 1 - R_j."""
    gaps = ranks.unsqueeze(-1) - ranks.unsqueeze(-2)
    before = (gaps > 0).to(gaps.dtype) if whole else 0.5 + torch.atan(gaps / CUT_WIDTH) / torch.pi
    itself = torch.eye(gaps.shape[-1], dtype=torch.bool, device=gaps.device)
    before = torch.where(itself, 0.0, before)
    return log_left(stops.unsqueeze(-2) * before).sum(-1).exp()


def _check_max_label(max_label: float | None) -> float | None:
    if max_label is not None:
        check_number("max_label", max_label, minimum=0.0, strict=True)
    return max_label


def soft_err_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    top_k: int | None = None,
    max_label: float | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return 1 - soft ERR: scores, labels, mask, weights (..., n) -> a scalar.

    This is the function form of `SoftERR`, which documents the arguments, the errors and the
    special cases.

    >>> from ltr.operators import HardRank
    >>> soft_err_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.5000)
    """
    return loss_of_lists(
        partial(
            _err,
            operator=rank_operator(operator),
            top_k=check_top_k(top_k),
            max_label=_check_max_label(max_label),
            normalize=normalize,
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )

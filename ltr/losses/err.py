"""1 - expected reciprocal rank on soft ranks."""

import torch
from torch import Tensor

from ltr._shapes import check_number, check_top_k, positions
from ltr.gains import log_left, stop_probabilities
from ltr.kernels.sorting import falling_values
from ltr.losses._soft import cut, one_draw, reciprocal_rank, shortfall
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import RankOperator, SigmoidRank, truncated
from ltr.operators.base import CUT_WIDTH, check_operator


class SoftERR(RankingLoss):
    """1 - soft ERR: sum over i of R_i / rank_i * product over j before i of (1 - R_j).

    R = (2^label - 1) / 2^max_label, and "j before i" is a smooth step of the difference of their
    soft ranks: 1/2 if they are equal, as wide as the smooth cut at k. With hard ranks and
    `normalize=False` this is exactly 1 - ERR. Divided by the ideal, the default, it falls to 0.

    What unusual lists give: no relevant item, or all masked: 0, with a graph. One item: 0 if its
    soft rank is 1. Tied scores: each stands before the other by one half.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: ERR@k, by a smooth cut at rank k + 1/2 (the ideal is cut exactly). Default: all.
        max_label: the highest grade of the scale, such as 4; labels above it count as that one.
            Default: the largest label of each list.
        normalize: whether to divide by the ERR of the order by labels. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    A weight w turns R into 1 - (1 - R)^w, as if the reader looked at the item w times: 0 makes it
    irrelevant, and small R grow in proportion. (Weights on the terms of the sum alone would leave
    no order that is best by a key: of two neighbors, which should come first would depend on
    their rank.)

    The ideal is the order by falling R, as weighted. Of neighbors a and b at ranks r and r + 1, "a
    first" adds the probability to come there times R_a / r + (1 - R_a) R_b / (r + 1), which is
    more than "b first" by that times (R_a - R_b) / (r (r + 1)); nothing behind them changes. So
    no order has more, and the loss is >= 0 with hard ranks, 0 at an ideal order alone.

    Cost: the operator's, and O(n^2) time and memory.

    Raises:
        ValueError: an argument that is none of these, named with its value.

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
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        self.top_k = check_top_k(top_k)
        if max_label is not None:
            check_number("max_label", max_label, minimum=0.0, strict=True)
        self.max_label = max_label
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """1 - soft ERR of each list."""
        stops = stop_probabilities(labels, mask, self.max_label, weights)
        ideal = self._ideal(stops)
        operator, scores, mask = one_draw(self.operator, scores, mask)
        reach = _reached(stops, operator(scores, mask), operator.whole_ranks)
        discounts = operator.discounts(cut(reciprocal_rank, self.top_k, operator), scores, mask)
        err = (stops * discounts * reach).sum(-1)
        if self.normalize:
            return shortfall(err, ideal)
        return torch.where(ideal > 0, 1 - err, 0 * err)

    def _ideal(self, stops: Tensor) -> Tensor:
        stops = falling_values(stops)
        left = log_left(stops)
        reach = (left.cumsum(-1) - left).exp()
        discount = reciprocal_rank
        if self.top_k is not None:
            discount = truncated(discount, self.top_k, exact=True)
        return (stops * reach * discount(positions(stops))).sum(-1)


def _reached(stops: Tensor, ranks: Tensor, whole: bool) -> Tensor:
    """How likely a reader comes to each item: the product over j before i of (1 - R_j)."""
    gaps = ranks.unsqueeze(-1) - ranks.unsqueeze(-2)
    before = (gaps > 0).to(gaps.dtype) if whole else 0.5 + torch.atan(gaps / CUT_WIDTH) / torch.pi
    itself = torch.eye(gaps.shape[-1], dtype=torch.bool, device=gaps.device)
    before = torch.where(itself, 0.0, before)
    return log_left(stops.unsqueeze(-2) * before).sum(-1).exp()


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
    """1 - soft ERR, as a function: scores, labels, mask, weights (..., n) -> a scalar.

    See `SoftERR` for the arguments, the errors and what unusual lists give.

    >>> from ltr.operators import HardRank
    >>> soft_err_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.5000)
    """
    loss = SoftERR(operator, top_k, max_label, normalize, reduction)
    return loss(scores, labels, mask, weights, lengths=lengths, padding=padding)

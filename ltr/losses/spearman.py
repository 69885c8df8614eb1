"""1 - Spearman's rank correlation on soft ranks."""

from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.listmle import tie_groups
from ltr.losses.soft import rank_operator
from ltr.operators import RankOperator
from ltr.shapes import count, largest, masked_fill, positions


def average_ranks(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the exact ranks (..., n): 1 is the highest, and equal values share their mean rank.

    Masked items come last. The ranks have no gradient. Cost: one sort.

    >>> average_ranks(torch.tensor([5.0, 7.0, 5.0, 1.0]))
    tensor([2.5000, 1.0000, 2.5000, 4.0000])
    """
    values = masked_fill(values.detach(), mask, -torch.inf)
    if not values.shape[-1]:
        return values
    ordered, order = values.sort(dim=-1, descending=True, stable=True)
    places = positions(values).expand(values.shape)
    new = ordered[..., 1:] != ordered[..., :-1]
    edge = torch.ones_like(new[..., :1]) if new.shape[-1] else torch.ones_like(values).bool()
    first = torch.where(torch.cat([edge, new], -1)[..., : values.shape[-1]], places, 0.0)
    last = torch.where(torch.cat([new, edge], -1)[..., : values.shape[-1]], places, torch.inf)
    start = first.cummax(-1).values
    end = last.flip(-1).cummin(-1).values.flip(-1)
    return torch.zeros_like(values).scatter(-1, order, (start + end) / 2)


def weighted_ranks(values: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the total weight above each item plus half the weight of its equals: (..., n).

    An item is one of its own equals. With weights of 1 the result is `average_ranks` - 1/2. It has
    no gradient by the values. Cost: one sort.

    >>> weighted_ranks(torch.tensor([5.0, 7.0, 5.0]), torch.tensor([1.0, 4.0, 2.0]))
    tensor([5.5000, 2.0000, 5.5000])
    """
    weights = masked_fill(weights, mask)
    if not values.shape[-1]:
        return weights
    ordered, order = masked_fill(values.detach(), mask, -torch.inf).sort(
        dim=-1, descending=True, stable=True
    )
    first, last = tie_groups(ordered)
    behind = weights.gather(-1, order).cumsum(-1)
    before = torch.cat([torch.zeros_like(behind[..., :1]), behind[..., :-1]], -1)
    middle = (before.gather(-1, first) + behind.gather(-1, last)) / 2
    return torch.zeros_like(middle).scatter(-1, order, middle)


class SpearmanLoss(RankingLoss):
    """1 - Spearman's correlation of the soft ranks with the ranks of the labels.

    The correlation is cov(soft ranks, label ranks) divided by its largest value, the variance of
    the label ranks. Equal labels share their mean rank. The loss is 0 at the right ranks, 1 where
    all scores are equal, and 2 for the opposite order. It is linear in the soft ranks, so it has a
    gradient even where all scores are tied. With hard ranks and no equal labels it is exactly
    1 - rho. For labels 0 and 1 the normalized correlation is 2 AUC - 1.

    With `normalize=False` the covariance is divided by both standard deviations: that of the label
    ranks and that of 1, ..., m. With hard ranks the loss is then 1 - rho with equal labels too, but
    its minimum is above 0 in that case.

    Special cases: the loss is 0, with a zero gradient, if all labels are equal, for one item, and
    for a fully masked list.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        normalize: see above. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Labels may be any numbers, such as a teacher's scores. A weight is the room that an item takes
    among the ranks of the labels, instead of 1 (see `weighted_ranks`). Two items in the wrong order
    then cost the weight between them, including half of their own weights. So with hard ranks the
    loss is >= 0. It is 0 only if no pair of different labels is in the wrong order, except pairs
    with no weight between them. (If weights multiplied the terms of the covariance instead, a heavy
    item could gain by a rank beyond its own.)

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Spearman, "The proof and measurement of association between two things", 1904; as a
    loss on soft ranks Blondel, Teboul, Berthet and Djolonga, "Fast differentiable sorting and
    ranking", ICML 2020 (they use the squared distance of the ranks).

    >>> from ltr.operators import HardRank
    >>> loss = SpearmanLoss(HardRank())
    >>> loss(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([0.0, 1.0, 2.0]))
    tensor(0.5000)
    """

    grades = False

    def __init__(
        self,
        operator: RankOperator | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - the soft correlation of each list."""
        return _missing_correlation(
            scores, labels, mask, weights, operator=self.operator, normalize=self.normalize
        )


def _missing_correlation(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    normalize: bool,
) -> Tensor:
    real = masked_fill(torch.ones_like(scores), mask)
    m = count(scores, mask)
    wanted = masked_fill(average_ranks(labels, mask), mask)
    room = wanted if weights is None else masked_fill(weighted_ranks(labels, weights, mask), mask)
    centered = real * (room - room.sum(-1, keepdim=True) / m.clamp(min=1))
    # the largest covariance: that of the wanted ranks
    most = (centered * wanted).sum(-1)
    # if all labels are equal, the variance is a rounding error, not 0
    differ = (
        largest(masked_fill(labels, mask, -torch.inf))
        + largest(masked_fill(-labels, mask, -torch.inf))
        > 0
    )
    defined = differ & (most > 0)
    most = torch.where(defined, most, 1.0)
    ranks = operator(scores, mask)
    if normalize:
        loss = (centered * (wanted - ranks)).sum(-1) / most
    else:
        m = m.squeeze(-1)
        full = m * (m.square() - 1).clamp(min=1) / 12
        variance = torch.where(defined, centered.square().sum(-1), 1.0)
        loss = 1 - (centered * ranks).sum(-1) / (variance * full).sqrt()
    return torch.where(defined, loss, 0 * ranks.sum(-1))


def spearman_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return 1 - Spearman's correlation: the function form of `SpearmanLoss`.

    >>> from ltr.operators import HardRank
    >>> spearman_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(2.)
    """
    return loss_of_lists(
        partial(_missing_correlation, operator=rank_operator(operator), normalize=normalize),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )

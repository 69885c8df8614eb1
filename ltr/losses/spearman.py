"""1 - Spearman's rank correlation on soft ranks."""

import torch
from torch import Tensor

from ltr._shapes import count, largest, masked_fill, positions
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.losses.listmle import tie_groups
from ltr.operators import RankOperator, SigmoidRank
from ltr.operators.base import check_operator


def average_ranks(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Exact ranks (..., n), 1 = the highest; equal values share their mean rank. No gradient.

    Masked items come last. Cost: one sort.

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
    """The weight that stands above each item, and half of that of its equals: (..., n).

    With weights of 1 it is `average_ranks` - 1/2. No gradient by the values. Cost: one sort.

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

    cov(soft ranks, label ranks) over its largest value, which is the variance of the label ranks:
    equal labels share their mean rank. It is 0 at the right ranks, 1 where all scores are equal,
    2 for the opposite order, linear in the soft ranks, and so has a gradient also where all are
    tied. With hard ranks and no equal labels it is exactly 1 - rho; with `normalize=False` the
    covariance is divided by both deviations, those of the labels' ranks and of 1..m, and the loss
    is 1 - rho with equal labels too, but does not fall to 0 then. For labels 0 and 1 the
    normalised correlation is 2 AUC - 1.

    What unusual lists give: all labels equal, one item, or all masked: 0, with a graph.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        normalize: see above. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Labels may be any numbers, a teacher's scores too. Weights give the items room among the ranks
    of the labels: instead of 1, each takes up its weight (`weighted_ranks`). Two items in the
    wrong order then cost the weight between them, with half of their own, so that the loss is
    >= 0 with hard ranks, and 0 only if no pair of different labels is in the wrong order, unless
    nothing between the two has a weight. (Weights on the terms of the covariance have no such
    order: a heavy item gains by a rank beyond its own.)

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Spearman, "The proof and measurement of association between two things", 1904; as a
    loss on soft ranks Blondel, Teboul, Berthet and Djolonga, "Fast differentiable sorting and
    ranking", ICML 2020 (they take the squared distance of the ranks).

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
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """1 - the soft correlation of each list."""
        real = masked_fill(torch.ones_like(scores), mask)
        m = count(scores, mask)
        wanted = masked_fill(average_ranks(labels, mask), mask)
        room = (
            wanted if weights is None else masked_fill(weighted_ranks(labels, weights, mask), mask)
        )
        centred = real * (room - room.sum(-1, keepdim=True) / m.clamp(min=1))
        # the largest covariance, where ranks are the wanted ones
        most = (centred * wanted).sum(-1)
        # one label has a variance of rounding errors
        parted = (
            largest(masked_fill(labels, mask, -torch.inf))
            + largest(masked_fill(-labels, mask, -torch.inf))
            > 0
        )
        defined = parted & (most > 0)
        most = torch.where(defined, most, 1.0)
        ranks = self.operator(scores, mask)
        if self.normalize:
            loss = (centred * (wanted - ranks)).sum(-1) / most
        else:
            m = m.squeeze(-1)
            full = m * (m.square() - 1).clamp(min=1) / 12
            variance = torch.where(defined, centred.square().sum(-1), 1.0)
            loss = 1 - (centred * ranks).sum(-1) / (variance * full).sqrt()
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
    """1 - Spearman's correlation, as a function: (..., n) each -> a scalar. See `SpearmanLoss`.

    >>> from ltr.operators import HardRank
    >>> spearman_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(2.)
    """
    return SpearmanLoss(operator, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )

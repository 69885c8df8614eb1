"""1 - Spearman's rank correlation on soft ranks."""

import torch
from torch import Tensor

from ltr._shapes import count, hide, largest, positions
from ltr.losses.base import RankingLoss, Reduction
from ltr.operators import RankOperator, SigmoidRank
from ltr.operators.base import check_operator


def average_ranks(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Exact ranks (..., n), 1 = the highest; equal values share their mean rank. No gradient.

    Masked items come last. Cost: one sort.

    >>> average_ranks(torch.tensor([5.0, 7.0, 5.0, 1.0]))
    tensor([2.5000, 1.0000, 2.5000, 4.0000])
    """
    values = hide(values.detach(), mask, -torch.inf)
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

    Labels may be any numbers, a teacher's scores too. Weights weigh the items in covariance and
    variance.

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
        w = hide(torch.ones_like(scores) if weights is None else weights, mask)
        total = w.sum(-1, keepdim=True)
        total = torch.where(total > 0, total, 1.0)
        wanted = average_ranks(labels, mask)
        centred = hide(wanted, mask) - (w * hide(wanted, mask)).sum(-1, keepdim=True) / total
        variance = (w * centred.square()).sum(-1)
        # one label has a variance of rounding errors
        parted = (
            largest(hide(labels, mask, -torch.inf)) + largest(hide(-labels, mask, -torch.inf)) > 0
        )
        defined = parted & (variance > 0)
        variance = torch.where(defined, variance, 1.0)
        ranks = self.operator(scores, mask)
        if self.normalize:
            loss = (w * centred * (wanted - ranks)).sum(-1) / variance
        else:
            m = count(scores, mask).squeeze(-1)
            full = total.squeeze(-1) * (m.square() - 1).clamp(min=1) / 12
            loss = 1 - (w * centred * ranks).sum(-1) / (variance * full).sqrt()
        return torch.where(defined, loss, 0 * ranks.sum(-1))


def spearman_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
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
        scores, labels, mask, weights, lengths=lengths
    )

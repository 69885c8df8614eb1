"""RankNet: the pairwise logistic loss."""

from typing import cast

from torch import Tensor

from ltr.losses.base import Lengths, Reduction
from ltr.losses.pair_costs import LogisticCost
from ltr.losses.pairwise import PairwiseLoss, pairwise_loss


class RankNet(PairwiseLoss):
    """Pairwise logistic loss: the mean of log(1 + exp(-(s_i - s_j) / temperature)).

    The mean goes over the pairs with y_i > y_j. `PairwiseLoss` documents weights, special cases
    and cost. The loss is always finite: a pair that is wrong by 90 costs 90, with a slope of -1.

    Args:
        temperature: > 0, in units of score (the paper's 1 / sigma).
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Burges et al., "Learning to rank using gradient descent", ICML 2005.

    >>> import torch
    >>> RankNet()(torch.tensor([0.0, 0.0, 90.0]), torch.tensor([1.0, 0.0, 0.0]))
    tensor(45.3466)
    """

    def __init__(
        self, temperature: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(LogisticCost(temperature), None, normalize, reduction)

    @property
    def temperature(self) -> float:
        """The temperature of the logistic cost."""
        return cast(LogisticCost, self.cost).temperature


def ranknet_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the pairwise logistic loss: the function form of `RankNet`.

    >>> import torch
    >>> ranknet_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    return pairwise_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        cost=LogisticCost(temperature),
        normalize=normalize,
    )

"""ApproxNDCG: SoftNDCG under its most common name."""

from typing import cast

from torch import Tensor

from ltr.gains import Discount, Gain
from ltr.losses.base import Lengths, Reduction
from ltr.losses.ndcg import SoftNDCG, soft_ndcg_loss
from ltr.operators import SigmoidRank


class ApproxNDCG(SoftNDCG):
    """1 - NDCG on ranks by sigmoids of score differences: `SoftNDCG(SigmoidRank(temperature))`.

    Args:
        temperature: of the sigmoids, in units of the scores (1 / alpha in the paper). 0 gives hard
            ranks. Default: 0.1.
        top_k: NDCG@k, by a smooth cut at rank k + 1/2 (the ideal is cut exactly). Default: all.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    `SoftNDCG` documents special cases, weights and errors.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010; Bruch, Zoghi, Bendersky and Najork, "Revisiting
    approximate metric optimization in the age of deep neural networks", SIGIR 2019.

    >>> import torch
    >>> scores, labels = torch.tensor([0.2, 0.9, 0.4]), torch.tensor([2.0, 0.0, 1.0])
    >>> ApproxNDCG(0.3)(scores, labels) == SoftNDCG(SigmoidRank(0.3))(scores, labels)
    tensor(True)
    """

    def __init__(
        self,
        temperature: float = 0.1,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(SigmoidRank(temperature), top_k, gain, discount, reduction)

    @property
    def temperature(self) -> float:
        """The temperature of the sigmoids."""
        return cast(SigmoidRank, self.operator).temperature


def approx_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 0.1,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the ApproxNDCG loss: the function form of `ApproxNDCG`.

    >>> import torch
    >>> approx_ndcg_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor(0.3691)
    """
    return soft_ndcg_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        operator=SigmoidRank(temperature),
        top_k=top_k,
        gain=gain,
        discount=discount,
    )

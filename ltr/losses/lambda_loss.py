"""LambdaRank and the LambdaLoss family: pairwise losses that weight pairs by a metric."""

from typing import cast

from torch import Tensor

from ltr.gains import Discount, Gain
from ltr.losses.base import Lengths, Reduction
from ltr.losses.pair_costs import LogisticCost
from ltr.losses.pair_weights import DeltaNDCG, NDCGLoss2PP
from ltr.losses.pairs import PairWeights, Truncation
from ltr.losses.pairwise import PairwiseLoss, pairwise_loss


class LambdaLoss(PairwiseLoss):
    """Weighted pairwise logistic loss: sum of w_ij log(1 + exp(-(s_i - s_j) / tau)) / sum of w_ij.

    The sums go over the pairs with y_i > y_j. `pair_weights` computes the weights from the labels
    and the current ranks. They have no gradient, as in an EM step. With normalize=False and
    temperature 1 the loss is log(2) times the bound of the paper, which has logarithms to base 2.

    | `pair_weights` | the metric that the loss bounds or follows |
    | --- | --- |
    | `NDCGLoss2PP()`, the default; `NDCGLoss2()`; `NDCGLoss1()` | NDCG (Wang et al. 2018) |
    | `DeltaNDCG()` | NDCG: LambdaRank |
    | `ARPLoss1()`, `ARPLoss2()` | average relevance position (Wang et al. 2018) |
    | `DeltaMAP()`, `DeltaMRR()`, `DeltaPrecision()` | MAP, MRR, precision at k |
    | `LabelDifference()` | RankNet with graded pairs |

    The loss is 0, with a zero gradient, for a list without a pair of weight above 0, with one item,
    or fully masked. Labels may be any numbers >= 0: "exp2" gains do not overflow.

    Args:
        pair_weights: a `PairWeights`. Default: `NDCGLoss2PP()`.
        temperature: > 0, in units of score (the paper's 1 / sigma).
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument has none of these values.

    Reference: Wang, Li, Golbandi, Bendersky and Najork, "The LambdaLoss framework for ranking
    metric optimization", CIKM 2018.

    >>> import torch
    >>> from ltr.losses import NDCGLoss2
    >>> LambdaLoss(NDCGLoss2(top_k=5))(torch.zeros(4), torch.tensor([0.0, 1.0, 2.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(
        self,
        pair_weights: PairWeights | None = None,
        temperature: float = 1.0,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        chosen = NDCGLoss2PP() if pair_weights is None else pair_weights
        super().__init__(LogisticCost(temperature), chosen, normalize, reduction)

    @property
    def temperature(self) -> float:
        """The temperature of the logistic cost."""
        return cast(LogisticCost, self.cost).temperature


class LambdaRank(LambdaLoss):
    """LambdaRank as a loss: a pair's weight is the change of NDCG if the two items swap places.

    It is `LambdaLoss(DeltaNDCG(...))`. Its gradient is LambdaRank's, divided by the sum of the
    weights.

    Args:
        top_k: NDCG@k. Default: the whole list.
        truncation: how pairs are cut at `top_k`, see `DeltaNDCG`.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (the default), "letor4", or a function of the ranks.
        temperature: > 0, in units of score.
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Burges, Ragno and Le, "Learning to rank with nonsmooth cost functions", NeurIPS
    2006.

    >>> import torch
    >>> LambdaRank(top_k=2)(torch.tensor([0.0, 0.0, 90.0]), torch.tensor([1.0, 0.0, 0.0]))
    tensor(33.6536)
    """

    def __init__(
        self,
        top_k: int | None = None,
        truncation: Truncation = "metric",
        gain: Gain = "exp2",
        discount: Discount = "log2",
        temperature: float = 1.0,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        weights = DeltaNDCG(top_k, truncation, gain, discount)
        super().__init__(weights, temperature, normalize, reduction)

    @property
    def top_k(self) -> int | None:
        """The cut of the pair weights."""
        return self._delta.top_k

    @property
    def truncation(self) -> Truncation:
        """How the pair weights cut at `top_k`."""
        return self._delta.truncation

    @property
    def gain(self) -> Gain:
        """The gain of the labels."""
        return self._delta.gain

    @property
    def discount(self) -> Discount:
        """The discount of the ranks."""
        return self._delta.discount

    @property
    def _delta(self) -> DeltaNDCG:
        return cast(DeltaNDCG, self.pair_weights)


def lambda_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    pair_weights: PairWeights | None = None,
    temperature: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return a loss of the LambdaLoss family: the function form of `LambdaLoss`.

    >>> import torch
    >>> lambda_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
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
        pair_weights=NDCGLoss2PP() if pair_weights is None else pair_weights,
        normalize=normalize,
    )


def lambdarank_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    top_k: int | None = None,
    truncation: Truncation = "metric",
    gain: Gain = "exp2",
    discount: Discount = "log2",
    temperature: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return LambdaRank's loss: the function form of `LambdaRank`.

    >>> import torch
    >>> lambdarank_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
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
        pair_weights=DeltaNDCG(top_k, truncation, gain, discount),
        normalize=normalize,
    )

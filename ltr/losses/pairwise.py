"""Pairwise losses: a cost for each pair of a list's items that have different labels."""

import math
from typing import cast

import torch
from torch import Tensor

from ltr.gains import Discount, Gain
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.pair_costs import (
    ExponentialCost,
    HingeCost,
    LogisticCost,
    PairCost,
    SoftZeroOneCost,
    SquaredCost,
)
from ltr.losses.pair_sums import pair_sums
from ltr.losses.pair_weights import DeltaNDCG, NDCGLoss2PP, PairWeights, Truncation
from ltr.shapes import check_flag


class PairwiseLoss(RankingLoss):
    """The general pairwise loss, with any cost of a pair and any pair weights.

    With scores s, labels y, and sums over the pairs of items with y_i > y_j, the loss of a list is

        sum of w_ij * cost(s_i - s_j) / sum of w_ij

    This is a weighted mean over pairs. The weight w_ij is the pair weight times the item weight of
    i, the item with the higher label. Two items with the same label are not a pair. Pairs with tied
    scores are treated like other pairs. The loss is 0, with a zero gradient, for a fully masked
    list, and for a list without a pair, such as a list with one item.

    Cost: O(n) memory for each list, in the backward too. The time is O(n^2) in general. On the
    CPU it is O(n log n + n g) for the logistic cost, if the pair weights can be written as gains
    and discounts (`PairWeights.graded`) and no list has more than 32 distinct labels; g is the
    number of distinct labels.

    Args:
        cost: the cost of a pair. Default: `LogisticCost()`.
        pair_weights: the weight of a pair. Default: 1.
        normalize: whether a list's sum of costs is divided by the sum of its weights. Default:
            True.

    Raises:
        ValueError: an argument is invalid.

    >>> PairwiseLoss(HingeCost())(torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """

    def __init__(
        self,
        cost: PairCost | None = None,
        pair_weights: PairWeights | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.cost = LogisticCost() if cost is None else cost
        if not isinstance(self.cost, PairCost):
            raise ValueError(f"cost must be a PairCost, got {cost!r}")
        self.pair_weights = PairWeights() if pair_weights is None else pair_weights
        if not isinstance(self.pair_weights, PairWeights):
            raise ValueError(f"pair_weights must be a PairWeights, got {pair_weights!r}")
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean, or sum, over each list's pairs."""
        total, weight = pair_sums(self.cost, self.pair_weights, scores, labels, mask, weights)
        return total / torch.where(weight > 0, weight, 1.0) if self.normalize else total


class PairwiseHinge(PairwiseLoss):
    """Pairwise hinge loss: the mean of max(0, margin - (s_i - s_j)) over pairs with y_i > y_j.

    For weights, special cases and cost see `PairwiseLoss`. At the margin itself the gradient is 0.

    Args:
        margin: the margin, > 0, in units of the scores. Default: 1.
        normalize: see `PairwiseLoss`.

    Reference: Herbrich, Graepel and Obermayer, "Large margin rank boundaries for ordinal
    regression", 2000; Joachims, "Optimizing search engines using clickthrough data", KDD 2002.

    >>> PairwiseHinge()(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.5000)
    """

    def __init__(self, margin: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(HingeCost(margin), None, normalize, reduction)

    @property
    def margin(self) -> float:
        """The least difference of scores at which a pair costs nothing."""
        return cast(HingeCost, self.cost).margin


class PairwiseSoftZeroOne(PairwiseLoss):
    """Smoothed fraction of pairs in the wrong order: the mean of sigmoid(-(s_i - s_j) / tau).

    The mean is over the pairs with y_i > y_j. For weights, special cases and cost see
    `PairwiseLoss`. The cost of a pair is bounded, so the loss is robust to pairs with wrong labels.
    For the same reason, a pair in the wrong order by many times the temperature has almost no
    gradient. So the scores of a list should be close together at the start of training.

    Args:
        temperature: tau >= 1e-30, in units of the scores. As the temperature approaches 0, the loss
            approaches the fraction itself. Without tied labels and scores, this fraction is (1 -
            Kendall's tau) / 2. Default: 1.
        normalize: see `PairwiseLoss`.

    >>> PairwiseSoftZeroOne()(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """

    def __init__(
        self, temperature: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(SoftZeroOneCost(temperature), None, normalize, reduction)

    @property
    def temperature(self) -> float:
        """The temperature of the sigmoids."""
        return cast(SoftZeroOneCost, self.cost).temperature


class PairwiseExponential(PairwiseLoss):
    """Pairwise exponential loss, as in RankBoost: the mean of exp(-(s_i - s_j)) over pairs.

    For weights, special cases and cost see `PairwiseLoss`. The mean is over the pairs with y_i >
    y_j. For a pair in the wrong order by more than `limit`, the exponential is replaced by its
    tangent, and the cost has a maximum, so that sums over pairs do not overflow (see
    `ExponentialCost`). So for all finite score differences, the loss and its gradient are finite,
    even in float32.

    Args:
        limit: the difference s_j - s_i at which the tangent begins, > 0 and <= 60. Default: 20.
        normalize: see `PairwiseLoss`.

    Reference: Freund, Iyer, Schapire and Singer, "An efficient boosting algorithm for combining
    preferences", JMLR 2003.

    >>> PairwiseExponential()(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(2.7183)
    """

    def __init__(self, limit: float = 20.0, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(ExponentialCost(limit), None, normalize, reduction)

    @property
    def limit(self) -> float:
        """The difference s_j - s_i at which the tangent begins."""
        return cast(ExponentialCost, self.cost).limit


class PairwiseMSE(PairwiseLoss):
    """Squared error of score differences: the mean of ((s_i - s_j) - (y_i - y_j))^2 over pairs.

    For weights, special cases and cost see `PairwiseLoss`. Only pairs with y_i > y_j count, as in
    all pairwise losses here. In rax and TF-Ranking, pairs of items with equal labels count too.

    Args:
        normalize: see `PairwiseLoss`.

    >>> PairwiseMSE()(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.0]))
    tensor(6.2500)
    """

    grades = False

    def __init__(self, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(SquaredCost(), None, normalize, reduction)


class RankNet(PairwiseLoss):
    """Pairwise logistic loss: the mean of log(1 + exp(-(s_i - s_j) / temperature)).

    The mean is over the pairs with y_i > y_j. For weights, special cases and cost see
    `PairwiseLoss`. No exponential overflows: at temperature 1, a pair in the wrong order by 90
    costs 90, with a gradient of -1.

    Args:
        temperature: >= 1e-30, in units of the scores (the paper's 1 / sigma). Default: 1.
        normalize: see `PairwiseLoss`.

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


class PairwiseDCGHinge(RankingLoss):
    """Pairwise hinge loss with a discount like that of DCG.

    The loss is 1 - 1 / log2(2 + H). H is the sum of max(0, margin - (s_i - s_j)) over the pairs
    with y_i > y_j.

    With a margin of 1, H is an upper bound on the number of pairs in the wrong order. If only one
    item is relevant, this number is the item's rank - 1, so 1 / log2(2 + H) is a lower bound on the
    item's discount 1 / log2(1 + rank). A list with more errors counts less, because of the
    discount: the gradient decreases like 1 / (H log(H)^2), while the gradient of `PairwiseHinge` is
    constant. The loss lies between 0 and 1. It is 0 if every pair is in the right order by at
    least the margin.

    The loss is 0, with a zero gradient, for a fully masked list, and for a list without a pair,
    such as a list with one item. Pairs with tied scores are treated like other pairs. The weight of
    item i, which has the higher label, multiplies the hinge of the pair. Cost: O(n^2) time, O(n)
    memory.

    Args:
        margin: > 0, in units of the scores. Default: 1.

    Raises:
        ValueError: margin or reduction is invalid.

    Reference: Agarwal, Takatsu, Zaitsev and Joachims, "A general framework for counterfactual
    learning-to-rank", SIGIR 2019, in which each relevant item has its own bound on the rank.
    pytorchltr's `PairwiseDCGHingeLoss`, -1 / log(2 + H), has one sum over the list's pairs. The
    loss here is that of pytorchltr, shifted and scaled to lie between 0 and 1.

    >>> PairwiseDCGHinge()(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))  # H = 2
    tensor(0.5000)
    """

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.cost = HingeCost(margin)
        self.margin = self.cost.margin

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - 1 / log2(2 + H) of each list."""
        total, _ = pair_sums(self.cost, PairWeights(), scores, labels, mask, weights)
        # Without log1p, a rounding error could make the loss negative.
        over = torch.log1p(total / 2)
        return over / (math.log(2) + over)


class LambdaLoss(PairwiseLoss):
    """Pairwise logistic loss whose pair weights make it bound or follow a metric, such as NDCG.

    With scores s, labels y and the temperature tau, the loss of a list is

        sum of w_ij log(1 + exp(-(s_i - s_j) / tau)) / sum of w_ij

    The sums are over the pairs with y_i > y_j. With `ARPLoss1` and `NDCGLoss1`, they are over all
    pairs in both orders. `pair_weights` computes the weights w_ij from the labels and the current
    ranks. The weights have no gradient, as in an EM step. With normalize=False and temperature 1
    the loss is log(2) times the paper's bound, because the paper uses logarithms to base 2.

    | `pair_weights` | the metric that the loss bounds or follows |
    | --- | --- |
    | `NDCGLoss2PP()`, the default; `NDCGLoss2()`; `NDCGLoss1()` | NDCG (Wang et al. 2018) |
    | `DeltaNDCG()` | NDCG: LambdaRank |
    | `ARPLoss1()`, `ARPLoss2()` | average relevance position (Wang et al. 2018) |
    | `DeltaMAP()`, `DeltaMRR()`, `DeltaPrecision()` | MAP, MRR, precision at k |
    | `LabelDifference()` | RankNet with graded pairs |

    The loss is 0, with a zero gradient, for a fully masked list, and for a list without a pair of
    weight above 0, such as a list with one item. Labels may be any finite numbers >= 0: "exp2"
    gains do not overflow.

    Args:
        pair_weights: a `PairWeights`. Default: `NDCGLoss2PP()`.
        temperature: >= 1e-30, in units of the scores (the paper's 1 / sigma). Default: 1.
        normalize: see `PairwiseLoss`.

    Raises:
        ValueError: an argument is invalid.

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
    """LambdaRank as a loss: a pair's weight is the change of NDCG if its items swap positions.

    This is `LambdaLoss(DeltaNDCG(...))`. By default its gradient is the paper's LambdaRank gradient
    divided by the sum of the weights.

    Args:
        top_k: k of NDCG@k. Default: the whole list.
        truncation: how the cutoff `top_k` limits the pairs, see `DeltaNDCG`.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.
        temperature: >= 1e-30, in units of the scores. Default: 1.
        normalize: see `PairwiseLoss`.

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
        """The cutoff of the pair weights."""
        return self._delta.top_k

    @property
    def truncation(self) -> Truncation:
        """How the pair weights use the cutoff `top_k`."""
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

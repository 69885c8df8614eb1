"""Softmax losses: the divergence of softmax(scores) from a distribution over the items."""

from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from ltr.gains import Gain, check_gain, gain_function, item_gains, ndcg_gains
from ltr.kernels.sorting import runs
from ltr.losses.base import RankingLoss, Reduction, without_removed
from ltr.losses.listmle import log_sums_from
from ltr.losses.soft import real_weights, weighted_mean
from ltr.shapes import (
    below_largest,
    check_flag,
    check_number,
    check_soft_temperature,
    check_whole,
    masked_fill,
)

Gamma = float | Literal["random"]

MEAN_GAMMA = 0.5
"""The mean of the random gammas of `XENDCG`."""


def softmax_divergence(
    scores: Tensor, relevance: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return KL(p || q) and the sum of p * q, for p = relevance / its sum and q = softmax(scores).

    Args:
        scores: (..., n).
        relevance: (..., n), >= 0, 0 under the mask.
        mask: (..., n) bool or None.

    Returns:
        Two tensors (...). Both are 0, with a zero gradient, for a list whose relevance is 0 for all
        items. The divergence is the cross-entropy minus the entropy of p. The entropy is a
        constant, so the divergence has the gradient of the cross-entropy, and its minimum is 0. An
        item of relevance 0 with a score of -inf counts as masked.

    >>> softmax_divergence(torch.zeros(2), torch.tensor([3.0, 0.0]), None)
    (tensor(0.6931), tensor(0.5000))
    """
    mask = without_removed(scores, relevance, mask)
    filled = torch.where(mask, scores, -torch.inf)
    filled = torch.where(mask.any(-1, keepdim=True), filled, 0.0)
    log_q = masked_fill(filled.log_softmax(-1), mask)
    total = relevance.sum(-1, keepdim=True)
    p = relevance / torch.where(total > 0, total, 1.0)
    divergence = (torch.xlogy(p, p) - p * log_q).sum(-1)
    return divergence, (p * log_q.exp()).sum(-1)


def weighted(relevance: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return relevance times the item weights, with 0 under the mask."""
    return masked_fill(relevance if weights is None else relevance * weights, mask)


class SoftmaxLoss(RankingLoss):
    """Softmax cross-entropy of the scores against the labels, which are divided by their sum.

    With scores s, labels y, weights w, and p_i = w_i y_i / sum of w_j y_j, the loss is
    KL(p || softmax(s)). This is the cross-entropy, -(sum of p_i log softmax(s)_i), minus the
    entropy of p. Subtracting the entropy does not change the gradient, and makes the minimum of the
    loss 0. With one relevant item i the loss is -log softmax(s)_i. `ListNet` uses another p,
    softmax(y), which is above 0 for irrelevant items too.

    With `normalize=False` the labels are not divided by their sum, as in rax. The loss is then
    multiplied by the sum of w_j y_j, so a list with more relevance counts more. The loss equals
    rax's cross-entropy, -(sum of w_i y_i log softmax(s)_i), minus the smallest value of this
    cross-entropy. (In TF-Ranking, a weight for each list has the same effect.)

    The loss is 0, with a zero gradient, for a fully masked list, and for a list that has no
    relevant item or only one item. Cost: O(n).

    Args:
        normalize: whether w_i y_i is divided by the sum over the list. Default: True.

    Raises:
        ValueError: an argument is invalid.

    Reference: Bruch, Wang, Bendersky and Najork, "An analysis of the softmax cross entropy loss
    for learning-to-rank with binary relevance", ICTIR 2019.

    >>> SoftmaxLoss()(torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 0.0]))  # log(4)
    tensor(1.3863)
    >>> SoftmaxLoss(normalize=False)(torch.zeros(4), torch.tensor([0.0, 3.0, 0.0, 0.0]))
    tensor(4.1589)
    """

    def __init__(self, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.normalize = check_flag("normalize", normalize)

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return the relevance (..., n), >= 0, which takes the place of y in p: here the labels."""
        return labels

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list."""
        labels = masked_fill(labels, mask)
        shares = weighted(self.relevance(labels, mask), mask, weights)
        shares = shares * (labels > 0).any(-1, keepdim=True)
        divergence = softmax_divergence(scores, shares, mask)[0]
        return divergence if self.normalize else shares.sum(-1) * divergence


class ListNet(SoftmaxLoss):
    """Softmax cross-entropy between softmax(labels) and softmax(scores).

    This is ListNet's top-one loss, KL(softmax(y / temperature) || softmax(s)), with labels y and
    scores s: the paper's cross-entropy between the two softmaxes, minus the entropy of the labels'
    softmax. Weights multiply the labels' softmax before it is normalized. The loss is smallest if
    the scores equal y / temperature up to a constant, so the correct order is not enough.
    `SoftmaxLoss` has no such target for the scores of irrelevant items.

    The loss is 0, with a zero gradient, for a fully masked list, and for a list without a relevant
    item. (The paper's loss would make the scores of such a list equal.) For a list whose labels are
    all equal and above 0, the loss is 0 if all scores are equal. Cost: O(n).

    Args:
        temperature: the temperature of the labels' softmax, >= 1e-30. A small temperature
            emphasizes the highest labels. Default: 1.

    Reference: Cao, Qin, Liu, Tsai and Li, "Learning to rank: from pairwise approach to listwise
    approach", ICML 2007.

    >>> ListNet()(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 1.0]))
    tensor(0.)
    """

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.temperature = check_soft_temperature(temperature)

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return exp(label / temperature), divided by its largest value in the list."""
        most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
        return ((labels - most) / self.temperature).exp()


class XENDCG(SoftmaxLoss):
    """Softmax cross-entropy with targets that make it a bound on NDCG (XE-NDCG).

    With label y_i, the target p_i is proportional to 2^y_i - gamma_i, so the cross-entropy bounds
    NDCG. The paper draws each gamma_i from [0, 1] at every step. The default here is the mean of
    such a draw, 1/2, which needs no random numbers. In eval mode, "random" takes this mean too, so
    a validation loss has no noise. The entropy of p is subtracted, so the minimum of the loss is 0.
    Weights multiply 2^y - gamma. Labels of 128 or more do not overflow.

    The loss is 0, with a zero gradient, for a fully masked list, and for a list without a relevant
    item. Cost: O(n).

    Args:
        gamma: a number in [0, 1] for all items, or "random" for the paper's draws, in training mode
            only. Default: 0.5.

    Raises:
        ValueError: gamma is neither in [0, 1] nor "random".

    Reference: Bruch, "An alternative cross entropy loss for learning-to-rank", WWW 2021.

    >>> XENDCG(gamma=1.0)(torch.zeros(4), torch.tensor([0.0, 2.0, 0.0, 0.0]))  # log(4)
    tensor(1.3863)
    """

    def __init__(self, gamma: Gamma = MEAN_GAMMA, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        if isinstance(gamma, str):
            known = gamma == "random"
        else:
            known = isinstance(gamma, Real) and not isinstance(gamma, bool) and 0 <= gamma <= 1
        if not known:
            raise ValueError(f"gamma must lie in [0, 1] or be 'random', got {gamma!r}")
        self.gamma: Gamma = gamma

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return 2^y - gamma, divided by 2^(max y)."""
        most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
        gamma = self.gamma
        if isinstance(gamma, str):
            gamma = torch.rand_like(labels) if self.training else MEAN_GAMMA
        return torch.exp2(labels - most) - gamma * torch.exp2(-most)


class PolyOneSoftmax(SoftmaxLoss):
    """Softmax cross-entropy plus a term that decreases with the probability of the relevant items.

    The added term is the first term of PolyLoss, epsilon (1 - sum of p_i q_i). Here q is the
    softmax of the scores, and p is the labels divided by their sum, as in `SoftmaxLoss`. With one
    relevant item the minimum of the loss is 0. With several relevant items, the added term stays
    above 0.

    The loss is 0, with a zero gradient, for a fully masked list, and for a list without a relevant
    item. Cost: O(n).

    Args:
        epsilon: the factor of the added term, >= 0. Default: 1.

    Reference: Leng et al., "PolyLoss: a polynomial expansion perspective of classification loss
    functions", ICLR 2022.

    >>> PolyOneSoftmax(epsilon=2.0)(torch.zeros(2), torch.tensor([0.0, 1.0]))  # log(2) + 2 / 2
    tensor(1.6931)
    """

    def __init__(self, epsilon: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.epsilon = check_number("epsilon", epsilon, minimum=0.0)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list plus the added term."""
        relevance = weighted(masked_fill(labels, mask), mask, weights)
        divergence, agreement = softmax_divergence(scores, relevance, mask)
        defined = (relevance > 0).any(-1)
        return divergence + self.epsilon * (defined.to(scores.dtype) - agreement)


class CalibratedSoftmax(RankingLoss):
    """Softmax loss that also fixes the scale of the scores, by a virtual item in each list.

    Each list gets a virtual item with score 0 and label `anchor`. This item fixes the scale: at the
    minimum of the loss, exp(s_i) = y_i / anchor, with scores s and labels y. The loss is the
    divergence of `SoftmaxLoss` over the n + 1 items, and its minimum is 0. The loss of a list
    without a relevant item is above 0 here, and lowers the scores of the list. The loss is 0, with
    a zero gradient, for a fully masked list and if all weights are 0. Cost: O(n).

    Args:
        anchor: the virtual item's label, > 0. Default: 1.

    Reference: Yan, Qin, Wang, Bendersky and Najork, "Scale calibration of deep ranking models",
    KDD 2022.

    >>> CalibratedSoftmax()(torch.tensor([0.0]), torch.tensor([0.0]))  # log(2)
    tensor(0.6931)
    """

    every_item = True

    def __init__(self, anchor: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.anchor = check_number("anchor", anchor, minimum=0.0, strict=True)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list, its virtual item included."""

        def with_anchor(x: Tensor, value: float | bool) -> Tensor:
            return torch.cat([x, torch.full_like(x[..., :1], value)], -1)

        if not scores.shape[-1]:
            return scores.sum(-1)
        relevance = with_anchor(weighted(labels, mask, weights), self.anchor)
        with_virtual = None if mask is None else with_anchor(mask, True)
        each = softmax_divergence(with_anchor(scores, 0.0), relevance, with_virtual)[0]
        if weights is None:
            return each
        return torch.where((masked_fill(weights, mask) > 0).any(-1), each, 0 * each)


class UniqueSoftmax(RankingLoss):
    """Softmax loss in which each relevant item competes only with items of lower labels.

    With scores s, labels y and gains g, the loss is the sum over i of g_i log(1 + sum over y_j <
    y_i of exp(s_j - s_i)), divided by the sum of g_i. The minimum of the loss is 0, even with tied
    labels. Weights multiply the gains.

    With `normalize=False` there is no division, as in TF-Ranking and rax. A list with more
    relevance then counts more, and gains of 2^128 overflow in float32.

    The loss is 0, with a zero gradient, for a fully masked list, and for a list that has no
    relevant item, only one item, or only equal labels. Cost: one sort of the labels.

    Args:
        gain: "exp2" (2^label - 1, the default, as in TF-Ranking and rax), "linear", or a function
            of the labels. If `normalize` is True, labels of 128 or more do not overflow.
        normalize: whether to divide by the sum of the gains. Default: True.

    Raises:
        ValueError: an argument is invalid.

    Reference: Zhu and Klabjan, "Listwise learning to rank by exploring unique ratings", WSDM 2020.

    >>> UniqueSoftmax()(torch.zeros(3), torch.tensor([1.0, 1.0, 0.0]))  # log(2), not log(3)
    tensor(0.6931)
    """

    def __init__(self, gain: Gain = "exp2", normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.gain: Gain = check_gain(gain)
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean, or sum, over the items of each list."""
        n = scores.shape[-1]
        if not n:
            return scores.sum(-1)
        if self.normalize:
            gains = ndcg_gains(labels, mask, weights, self.gain)
        else:
            gains = item_gains(labels, mask, weights, gain_function(self.gain))
        mask = without_removed(scores, gains, mask)
        y, order = masked_fill(labels, mask, torch.inf).sort(dim=-1, descending=True, stable=True)
        s = masked_fill(scores, mask).gather(-1, order)
        g = gains.gather(-1, order)
        end = runs(y)[1]
        below, rivals = end.clamp(max=n - 1), end < n
        top, rest = (x.gather(-1, below) for x in log_sums_from(s))
        behind = torch.where(rivals, (top - s) + rest, 0 * s)
        each = torch.logaddexp(torch.zeros_like(s), behind)
        each = torch.where(rivals & (g > 0), each, 0 * s)
        return weighted_mean(each, g) if self.normalize else (g * each).sum(-1)


class SoftmaxLossAtK(RankingLoss):
    """Softmax loss of the relevant items that are near the first k (SL@K), to optimize NDCG@k.

    Let b be the k-th highest score of the list. The loss is the mean over the items i, weighted by
    the gains g_i, of

        sigmoid((s_i - b) / weight_temperature) log(sum over j of exp((s_j - s_i) / temperature))

    The sum is over all items j, and s are the scores. The sigmoid is a smooth form of the condition
    that item i is among the first k. An item far below the cutoff counts little, because NDCG@k
    ignores the item. The sigmoid has no gradient, like the pair weights of `LambdaRank`; in the
    paper only b has none. If the sigmoid had a gradient, an item below the cutoff could lower its
    loss by moving further down. If a list has fewer than k items, all sigmoids are 1. With
    temperature 1 and labels that are 0 or 1, the loss is then the cross-entropy of `SoftmaxLoss`.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list, and for a list that
    has no relevant item or only one item. Weights multiply the gains. The minimum is 0 for one
    relevant item, and above 0 for several.

    Args:
        top_k: k, a whole number >= 1. Default: 10.
        temperature: the temperature of the softmax, in units of the scores, >= 1e-30. Default: 1.
        weight_temperature: the temperature of the sigmoid, in units of the scores, >= 1e-30.
            Default: 1.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels. The paper's
            labels are 0 and 1.

    Cost: O(n), and the time to find the k-th highest score.

    Raises:
        ValueError: an argument is invalid.

    Reference: Yang et al., "Breaking the top-K barrier: advancing top-K ranking metrics
    optimization in recommender systems", KDD 2025 (arXiv 2508.05673). In the paper, b is estimated
    from a sample of the items.

    >>> scores, labels = torch.zeros(3), torch.tensor([0.0, 1.0, 0.0])
    >>> SoftmaxLossAtK()(scores, labels), SoftmaxLossAtK(top_k=1)(scores, labels)  # log(3) * 1, 1/2
    (tensor(1.0986), tensor(0.5493))
    """

    def __init__(
        self,
        top_k: int = 10,
        temperature: float = 1.0,
        weight_temperature: float = 1.0,
        gain: Gain = "exp2",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.top_k = check_whole("top_k", top_k)
        self.temperature = check_soft_temperature(temperature)
        self.weight_temperature = check_soft_temperature(weight_temperature, "weight_temperature")
        self.gain: Gain = check_gain(gain)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean of the relevant items' losses."""
        if not scores.shape[-1]:
            return scores.sum(-1)
        gains = ndcg_gains(labels, mask, weights, self.gain)
        mask = without_removed(scores, gains, mask)
        real = mask | ~mask.any(-1, keepdim=True)
        s = below_largest(scores, mask) / self.temperature
        each = masked_fill(s, real, -torch.inf).logsumexp(-1, keepdim=True) - s
        if self.top_k <= scores.shape[-1]:
            filled = masked_fill(scores.detach(), mask, -torch.inf)
            above = masked_fill(filled, mask) - filled.topk(self.top_k, -1).values[..., -1:]
            each = each * (above / self.weight_temperature).sigmoid()
        return weighted_mean(each, gains)


class Distillation(RankingLoss):
    """Divergence between the softmax of a teacher's scores and the softmax of the scores.

    The loss is KL(softmax(labels / T) || softmax(scores / T)) * T^2. The labels are the teacher's
    scores, and each softmax is over the items of a list. The loss is 0 if the scores of each list
    equal the labels up to a constant. The factor T^2 keeps the size of the gradients as T grows:
    for large T the loss tends to half the variance of the differences between scores and labels.
    The labels may be any finite numbers.

    Other losses accept a teacher's scores as labels too. `SpearmanLoss` and `PairwiseMSE` take any
    labels. `SoftNDCG(gain="linear")` and the listwise losses take labels >= 0. `RankNet`,
    `PairwiseHinge` and `ListMLE` use only the order of the labels, but the labels must be >= 0:
    subtract the smallest label first.

    Special cases: the loss is 0, with a zero gradient, for one item and for a fully masked list.
    Ties need no special treatment.

    Args:
        temperature: T >= 1e-30. Default: 1.

    An item of weight w counts like w copies of the item, in both softmaxes.

    Raises:
        ValueError: temperature is not >= 1e-30.

    Reference: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015;
    Cao, Qin, Liu, Tsai and Li, "Learning to rank: from pairwise approach to listwise approach",
    ICML 2007, which calls these softmaxes top-one probabilities.

    >>> teacher = torch.tensor([2.0, -1.0, 0.5])
    >>> Distillation()(teacher + 3, teacher).abs() < 1e-6
    tensor(True)
    """

    grades = False
    every_item = True

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.temperature = check_soft_temperature(temperature)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list."""
        if not scores.shape[-1]:
            return scores.sum(-1)
        w = real_weights(scores, mask, weights)
        real = w > 0
        log_w = torch.where(real, w, 1.0).log()
        student = _log_softmax(scores, self.temperature, log_w, real)
        teacher = _log_softmax(labels, self.temperature, log_w, real)
        terms = teacher.exp() * (teacher - student)
        divergence = torch.where(real, terms, 0.0).sum(-1)
        # A NaN score is a mistake even if its weight is 0, so it makes the loss NaN.
        return self.temperature**2 * divergence + 0 * masked_fill(scores, mask).sum(-1)

    def extra_repr(self) -> str:
        """Return the temperature, and the reduction unless it is the default, for `print`."""
        return ", ".join(filter(None, [f"temperature={self.temperature:g}", super().extra_repr()]))


def _log_softmax(x: Tensor, temperature: float, log_w: Tensor, real: Tensor) -> Tensor:
    """Return the log-softmax of x / temperature + log_w over the real items.

    The values of all other items are finite.
    """
    used = real | ~real.any(-1, keepdim=True)
    x = below_largest(x, real) / temperature + log_w
    return torch.where(used, x - torch.where(used, x, -torch.inf).logsumexp(-1, keepdim=True), 0.0)

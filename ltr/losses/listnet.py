"""Softmax losses: the divergence of the scores' softmax from a distribution over the items."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, check_flag, loss_of_lists
from ltr.shapes import check_number, masked_fill

Gamma = float | Literal["random"]


def softmax_divergence(
    scores: Tensor, relevance: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return KL(p || q) and sum of p * q, with p = relevance / its sum and q = softmax(scores).

    Args:
        scores: (..., n).
        relevance: (..., n), >= 0, 0 under the mask.
        mask: (..., n) bool or None.

    Returns:
        Two tensors (...). Both are 0, with a zero gradient, for a list whose relevance is all 0.
        The divergence is the cross-entropy minus the entropy of p. That entropy is a constant, so
        the divergence has the gradient of the cross-entropy, and its minimum is 0.

    >>> softmax_divergence(torch.zeros(2), torch.tensor([3.0, 0.0]), None)
    (tensor(0.6931), tensor(0.5000))
    """
    filled = scores
    if mask is not None:
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
    """Softmax cross-entropy between the labels, divided by their sum, and softmax(scores).

    With p_i = w_i y_i / sum of w_j y_j, the loss is KL(p || softmax(s)). This is the cross-entropy
    - sum of p_i log softmax(s)_i minus the entropy of p. The entropy does not change the gradient;
    without it the minimum of the loss is 0. For one relevant item the loss is -log softmax(s) of
    that item. `ListNet` uses another p: softmax(y), in which irrelevant items have a share too.

    With `normalize=False` the labels are not divided by their sum, as in rax. The loss is then
    multiplied by the sum of w_j y_j, so a list with more relevance counts more. It equals rax's
    cross-entropy - sum of w_i y_i log softmax(s)_i minus that cross-entropy's smallest value.
    (TF-Ranking reaches the same by giving each list a weight.)

    The loss is 0, with a zero gradient, for a list without a relevant item, with one item, or
    fully masked. Cost: O(n).

    Args:
        normalize: whether p is divided by its sum. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument has none of these values.

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
        """Return what p is proportional to, (..., n), >= 0. Labels are 0 under the mask."""
        return labels

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list."""
        return _divergence(
            scores, labels, mask, weights, relevance=self.relevance, normalize=self.normalize
        )


class ListNet(SoftmaxLoss):
    """ListNet's top-one loss: KL(softmax(y) || softmax(s)).

    It is the paper's cross-entropy between the probabilities of being first, minus the entropy of
    softmax(y). Weights multiply softmax(y) before it is normalized. The loss is smallest where the
    scores equal the labels up to a constant, which is more than a right order. `SoftmaxLoss`
    requires less.

    The loss is 0, with a zero gradient, for a list without a relevant item or fully masked. (The
    paper's loss would pull the scores of such a list together.) If all labels are equal and above
    0, the loss is 0 where all scores are equal. Cost: O(n).

    Args:
        temperature: of the labels' softmax, > 0. A small one stresses the highest labels.
            Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Cao, Qin, Liu, Tsai and Li, "Learning to rank: from pairwise approach to listwise
    approach", ICML 2007.

    >>> ListNet()(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 1.0]))
    tensor(0.)
    """

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.temperature = _check_temperature(temperature)

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return exp(label / temperature), divided by the largest of the list."""
        return _exponential(labels, mask, temperature=self.temperature)


class XENDCG(SoftmaxLoss):
    """Cross-entropy that bounds NDCG: p_i is proportional to 2^y_i - gamma_i.

    The paper draws each gamma_i from [0, 1] at every step. The default here is the mean, 1/2,
    which needs no random numbers. The entropy of p is subtracted, so the minimum is 0. Weights
    multiply 2^y - gamma. Labels of 128 and more do not overflow.

    The loss is 0, with a zero gradient, for a list without a relevant item or fully masked.
    Cost: O(n).

    Args:
        gamma: a number in [0, 1], or "random". Default: 0.5.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: gamma is neither in [0, 1] nor "random".

    Reference: Bruch, "An alternative cross entropy loss for learning-to-rank", WWW 2021.

    >>> XENDCG(gamma=1.0)(torch.zeros(4), torch.tensor([0.0, 2.0, 0.0, 0.0]))  # log(4)
    tensor(1.3863)
    """

    def __init__(self, gamma: Gamma = 0.5, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.gamma: Gamma = _check_gamma(gamma)

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return 2^y - gamma, divided by 2^(max y)."""
        return _power_minus_gamma(labels, mask, gamma=self.gamma)


class PolyOneSoftmax(SoftmaxLoss):
    """Softmax cross-entropy plus PolyLoss's first term, epsilon (1 - sum of p_i q_i).

    Here q is softmax(s), and p are the labels divided by their sum, as in `SoftmaxLoss`. With one
    relevant item the minimum of the loss is 0. With several, the new term stays above 0.

    The loss is 0, with a zero gradient, for a list without a relevant item or fully masked.
    Cost: O(n).

    Args:
        epsilon: the factor of the new term, >= 0. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

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
        """Return the divergence of each list plus the new term."""
        return _poly_one(scores, labels, mask, weights, epsilon=self.epsilon)


def _divergence(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    relevance: Callable[[Tensor, Tensor | None], Tensor],
    normalize: bool = True,
) -> Tensor:
    labels = masked_fill(labels, mask)
    shares = weighted(relevance(labels, mask), mask, weights)
    shares = shares * (labels > 0).any(-1, keepdim=True)
    divergence = softmax_divergence(scores, shares, mask)[0]
    return divergence if normalize else shares.sum(-1) * divergence


def _labels(labels: Tensor, mask: Tensor | None) -> Tensor:
    return labels


def _exponential(labels: Tensor, mask: Tensor | None, *, temperature: float) -> Tensor:
    most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
    return ((labels - most) / temperature).exp()


def _power_minus_gamma(labels: Tensor, mask: Tensor | None, *, gamma: Gamma) -> Tensor:
    most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
    value = torch.rand_like(labels) if isinstance(gamma, str) else gamma
    return torch.exp2(labels - most) - value * torch.exp2(-most)


def _poly_one(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    epsilon: float,
) -> Tensor:
    relevance = weighted(masked_fill(labels, mask), mask, weights)
    divergence, agreement = softmax_divergence(scores, relevance, mask)
    defined = (relevance > 0).any(-1)
    return divergence + epsilon * (defined.to(scores.dtype) - agreement)


def _check_temperature(temperature: float) -> float:
    return check_number("temperature", temperature, minimum=0.0, strict=True)


def _check_gamma(gamma: Gamma) -> Gamma:
    known = gamma == "random" if isinstance(gamma, str) else 0 <= gamma <= 1
    if not known:
        raise ValueError(f"gamma must lie in [0, 1] or be 'random', got {gamma!r}")
    return gamma


def softmax_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the softmax cross-entropy: the function form of `SoftmaxLoss`.

    >>> softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_divergence, relevance=_labels, normalize=check_flag("normalize", normalize)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )


def listnet_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return ListNet's top-one loss: the function form of `ListNet`.

    >>> listnet_loss(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 1.0]))
    tensor(0.)
    """
    return loss_of_lists(
        partial(
            _divergence,
            relevance=partial(_exponential, temperature=_check_temperature(temperature)),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )


def xe_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    gamma: Gamma = 0.5,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the XE-NDCG loss: the function form of `XENDCG`.

    >>> xe_ndcg_loss(torch.zeros(2), torch.tensor([0.0, 1.0]), gamma=1.0)
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_divergence, relevance=partial(_power_minus_gamma, gamma=_check_gamma(gamma))),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )


def poly_one_softmax_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    epsilon: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the poly-1 softmax loss: the function form of `PolyOneSoftmax`.

    >>> poly_one_softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(1.1931)
    """
    return loss_of_lists(
        partial(_poly_one, epsilon=check_number("epsilon", epsilon, minimum=0.0)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )

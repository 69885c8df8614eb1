"""Losses by one softmax over the list: its divergence from a distribution that the labels give."""

from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_number, masked_fill
from ltr.losses.base import Lengths, RankingLoss, Reduction


def softmax_divergence(
    scores: Tensor, relevance: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """KL(p || softmax of the scores) with p = relevance / its sum, and the sum of p * softmax.

    Args:
        scores: (..., n).
        relevance: (..., n), >= 0, 0 under the mask.
        mask: (..., n) bool or None.

    Returns:
        (...) each; both are 0 with a graph for a list whose relevance is 0 throughout. The
        divergence is the cross-entropy less the entropy of p, a constant: so it falls to 0, with
        the gradient of the cross-entropy.

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
    """Relevance times the item weights, 0 under the mask."""
    return masked_fill(relevance if weights is None else relevance * weights, mask)


class SoftmaxLoss(RankingLoss):
    """Softmax cross-entropy: the items' labels, as shares of their sum, against softmax(scores).

    p_i = w_i y_i / sum of w_j y_j; the loss is KL(p || softmax(s)): the cross-entropy
    - sum of p_i log softmax(s)_i, less the entropy of p, so that it falls to 0; the gradient is
    the same. With one relevant item it is -log softmax(s) there. `ListNet` differs in p alone:
    there softmax(y), which gives irrelevant items a share too.

    With `normalize=False` the labels count as they are, as in rax (TF-Ranking gets there by
    weighing each list): the sum of w_j y_j times that, so a list with more relevance counts for
    more. It is rax's cross-entropy - sum of w_i y_i log softmax(s)_i less its smallest value.

    No relevant item, one item, or all masked: 0, with a graph. O(n).

    Args:
        normalize: whether p is divided by its sum. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument that is none of these.

    Reference: Bruch, Wang, Bendersky and Najork, "An analysis of the softmax cross entropy loss
    for learning-to-rank with binary relevance", ICTIR 2019.

    >>> SoftmaxLoss()(torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 0.0]))  # log(4)
    tensor(1.3863)
    >>> SoftmaxLoss(normalize=False)(torch.zeros(4), torch.tensor([0.0, 3.0, 0.0, 0.0]))
    tensor(4.1589)
    """

    def __init__(self, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(reduction)
        if not isinstance(normalize, bool):
            raise ValueError(f"normalize must be True or False, got {normalize!r}")
        self.normalize = normalize

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """What the labels count in p, up to a factor: (..., n), >= 0; labels 0 under the mask."""
        return labels

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The divergence of each list."""
        labels = masked_fill(labels, mask)
        relevance = weighted(self.relevance(labels, mask), mask, weights)
        relevance = relevance * (labels > 0).any(-1, keepdim=True)
        divergence = softmax_divergence(scores, relevance, mask)[0]
        return divergence if self.normalize else relevance.sum(-1) * divergence


class ListNet(SoftmaxLoss):
    """ListNet's top-one loss: KL(softmax(y) || softmax(s)).

    The paper's cross-entropy between the chances to be first, less the entropy of softmax(y).
    Weights multiply softmax(y), before it is normalised. It is smallest where scores equal labels
    up to a constant, so it asks for more than an order; `SoftmaxLoss` asks for less.

    No relevant item, or all masked: 0, with a graph (the paper would draw such scores together);
    equal labels above 0: 0 where the scores are equal. O(n).

    Args:
        temperature: of the labels' softmax, > 0: small ones stress the highest labels.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Cao, Qin, Liu, Tsai and Li, "Learning to rank: from pairwise approach to listwise
    approach", ICML 2007.

    >>> ListNet()(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 1.0]))
    tensor(0.)
    """

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Exponential of the label over the temperature, the largest being 1."""
        most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
        return ((labels - most) / self.temperature).exp()


class XENDCG(SoftmaxLoss):
    """Cross-entropy that bounds NDCG: p_i in proportion to 2^y_i - gamma_i, against softmax(s).

    The paper draws gamma_i from [0, 1] anew each time; the default is its mean, 1/2, which needs
    no random numbers. Less the entropy of p, so that it falls to 0. Weights multiply 2^y - gamma.
    Labels of 128 and more do not overflow.

    No relevant item, or all masked: 0, with a graph. O(n).

    Args:
        gamma: a number in [0, 1], or "random".
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: gamma is neither.

    Reference: Bruch, "An alternative cross entropy loss for learning-to-rank", WWW 2021.

    >>> XENDCG(gamma=1.0)(torch.zeros(4), torch.tensor([0.0, 2.0, 0.0, 0.0]))  # log(4)
    tensor(1.3863)
    """

    def __init__(self, gamma: float | Literal["random"] = 0.5, reduction: Reduction = "mean"):
        super().__init__(reduction=reduction)
        known = gamma == "random" if isinstance(gamma, str) else 0 <= gamma <= 1
        if not known:
            raise ValueError(f"gamma must lie in [0, 1] or be 'random', got {gamma!r}")
        self.gamma: float | Literal["random"] = gamma

    def relevance(self, labels: Tensor, mask: Tensor | None) -> Tensor:
        """2^y - gamma, over 2^(max y)."""
        most = labels.amax(-1, keepdim=True) if labels.shape[-1] else labels
        gamma = torch.rand_like(labels) if isinstance(self.gamma, str) else self.gamma
        return torch.exp2(labels - most) - gamma * torch.exp2(-most)


class PolyOneSoftmax(SoftmaxLoss):
    """PolyLoss's first term on top of softmax: `SoftmaxLoss` + epsilon (1 - sum of p_i q_i).

    q is softmax(s), p the labels' shares as in `SoftmaxLoss`. With one relevant item it falls to
    0; with more the new term does not.

    No relevant item, or all masked: 0, with a graph. O(n).

    Args:
        epsilon: >= 0, how much the new term counts.
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
        """The divergence of each list and its first term once more."""
        relevance = weighted(masked_fill(labels, mask), mask, weights)
        divergence, agreement = softmax_divergence(scores, relevance, mask)
        defined = (relevance > 0).any(-1)
        return divergence + self.epsilon * (defined.to(scores.dtype) - agreement)


class CalibratedSoftmax(RankingLoss):
    """Softmax with an anchor: a virtual item of score 0 and label `anchor` joins each list.

    Scores get a scale: at the minimum exp(s_i) = y_i / anchor. The divergence is that of
    `SoftmaxLoss` on the n + 1 items, and falls to 0. A list without a relevant item does define
    a loss here: its scores shall fall. All masked: 0, with a graph. O(n).

    Args:
        anchor: the virtual item's label, > 0.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Yan, Qin, Wang, Bendersky and Najork, "Scale calibration of deep ranking models",
    KDD 2022.

    >>> CalibratedSoftmax()(torch.tensor([0.0]), torch.tensor([0.0]))  # log(2)
    tensor(0.6931)
    """

    def __init__(self, anchor: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.anchor = check_number("anchor", anchor, minimum=0.0, strict=True)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The divergence of each list with its anchor."""

        def with_anchor(x: Tensor, value: float | bool) -> Tensor:
            return torch.cat([x, torch.full_like(x[..., :1], value)], -1)

        if not scores.shape[-1]:
            return scores.sum(-1)
        relevance = with_anchor(weighted(labels, mask, weights), self.anchor)
        mask = None if mask is None else with_anchor(mask, True)
        return softmax_divergence(with_anchor(scores, 0.0), relevance, mask)[0]


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
    """Softmax cross-entropy, as a function: see `SoftmaxLoss`.

    >>> softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return SoftmaxLoss(normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
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
    """ListNet's top-one loss, as a function: see `ListNet`.

    >>> listnet_loss(torch.tensor([5.0, 6.0]), torch.tensor([0.0, 1.0]))
    tensor(0.)
    """
    return ListNet(temperature, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def xe_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    gamma: float | Literal["random"] = 0.5,
    reduction: Reduction = "mean",
) -> Tensor:
    """XE-NDCG, as a function: see `XENDCG`.

    >>> xe_ndcg_loss(torch.zeros(2), torch.tensor([0.0, 1.0]), gamma=1.0)
    tensor(0.6931)
    """
    return XENDCG(gamma, reduction)(scores, labels, mask, weights, lengths=lengths, padding=padding)


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
    """Poly-1 softmax, as a function: see `PolyOneSoftmax`.

    >>> poly_one_softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(1.1931)
    """
    return PolyOneSoftmax(epsilon, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def calibrated_softmax_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    anchor: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Softmax with an anchor, as a function: see `CalibratedSoftmax`.

    >>> calibrated_softmax_loss(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor(0.)
    """
    return CalibratedSoftmax(anchor, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )

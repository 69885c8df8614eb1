"""Losses by the likelihood of an order: ListMLE, p-ListMLE, and the unique softmax."""

from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_top_k, masked_fill, positions
from ltr.gains import Discount, Gain, discount_function, gain_function, item_gains, ndcg_gains
from ltr.losses._soft import weighted_mean
from ltr.losses.base import Lengths, RankingLoss, Reduction

Ties = Literal["mean", "random", "first"]


def log_sums_from(x: Tensor) -> Tensor:
    """Logarithm of the sum of exp(x_k) over k >= i, for each i: (..., n). O(n log n).

    By doubling, with logaddexp: `logcumsumexp` has no second derivative where a gradient is 0.

    >>> log_sums_from(torch.tensor([0.0, 0.0]))
    tensor([0.6931, 0.0000])
    """
    shift = 1
    while shift < x.shape[-1]:
        x = torch.cat([torch.logaddexp(x[..., :-shift], x[..., shift:]), x[..., -shift:]], -1)
        shift *= 2
    return x


def tie_groups(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For sorted labels (..., n) the first and the last index of each item's ties, (..., n).

    >>> tie_groups(torch.tensor([3.0, 1.0, 1.0]))
    (tensor([0, 1, 1]), tensor([0, 2, 2]))
    """
    n = labels.shape[-1]
    index = torch.arange(n, device=labels.device).expand(labels.shape)
    new = torch.ones_like(labels, dtype=torch.bool)
    new = torch.cat([new[..., :1], labels[..., 1:] != labels[..., :-1]], -1)
    ends = torch.cat([new[..., 1:], torch.ones_like(new[..., :1])], -1)
    first = torch.where(new, index, 0).cummax(-1).values
    last = torch.where(ends, index, n).flip(-1).cummin(-1).values.flip(-1)
    return first, last


def _has_pair(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Whether two real items differ in their labels: (...)."""
    return masked_fill(labels, mask, -torch.inf).amax(-1) > masked_fill(
        labels, mask, torch.inf
    ).amin(-1)


class ListMLE(RankingLoss):
    """Negative log-likelihood of the labels' order under Plackett and Luce's model of the scores.

    For the items in the order of their labels, pi, the highest first,

        sum over k of log(sum over l >= k of exp(s_pi(l))) - s_pi(k)

    Labels with ties name more than one order. `ties` says which is meant:

    - "mean" (the default): as likely each, by Efron's approximation: at the l-th place of d tied
      items (l = 0, 1, ...) the sum holds the tied ones by 1 - l / d; less log(d!), the number of
      such orders, so that the loss falls to 0. It does not depend on the order of the list.
    - "random": one of them, drawn anew each time, as rax, allRank and TF-Ranking do.
    - "first": that of the list. Beware where the list is sorted by an earlier ranker.

    No two labels that differ (no relevant item too), one item, or all masked: 0, with a graph.
    Weights multiply each item's term. Among tied items ("mean") they are shares of the place: it is
    the divergence of the chances to stand there from those shares, times the mean weight, so that
    the loss is never below 0. One sort of the labels.

    Args:
        top_k: only the terms of the first k places (top-k ListMLE). Default: all.
        ties: "mean", "random" or "first".
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: top_k or ties is none of these.

    Reference: Xia, Liu, Wang, Zhang and Li, "Listwise approach to learning to rank: theory and
    algorithm", ICML 2008; Efron, "The efficiency of Cox's likelihood function for censored data",
    1977, for the ties.

    >>> ListMLE()(torch.zeros(3), torch.tensor([0.0, 2.0, 1.0]))  # log(3!)
    tensor(1.7918)
    """

    def __init__(
        self, top_k: int | None = None, ties: Ties = "mean", reduction: Reduction = "mean"
    ):
        super().__init__(reduction)
        self.top_k = check_top_k(top_k)
        if ties not in ("mean", "random", "first"):
            raise ValueError(f"ties must be 'mean', 'random' or 'first', got {ties!r}")
        self.ties: Ties = ties

    def place_weights(self, place: Tensor, m: Tensor) -> Tensor:
        """What the term at each place 1, 2, ..., m counts: place (..., n), m (..., 1)."""
        if self.top_k is None:
            return torch.ones_like(place)
        return (place <= self.top_k).to(place.dtype)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The negative log-likelihood of each list."""
        n = scores.shape[-1]
        if not n:
            return scores.sum(-1)
        defined = _has_pair(labels, mask)
        # padding comes first: no sum from a place on then holds any of it
        y, order = self._sort(masked_fill(labels, mask, torch.inf))
        s = masked_fill(scores, mask).gather(-1, order)
        hidden = scores.new_zeros(s.shape)
        if mask is not None:
            hidden = (~mask).sum(-1, keepdim=True).to(s.dtype).expand_as(s)
        place = positions(s) - hidden
        real = place > 0
        weight = real * self.place_weights(place.clamp(min=1), n - hidden[..., :1])
        u = None if weights is None else masked_fill(weights, mask).gather(-1, order)

        from_here = log_sums_from(s)
        if self.ties != "mean":
            each = from_here - s
            return _total(weight if u is None else weight * u, each, real, defined)
        first, last = tie_groups(y)
        size = (last - first + 1).to(s.dtype)
        gone = positions(s) - 1 - first.to(s.dtype)
        below = (last + 1).clamp(max=n - 1)
        # the tied by 1 - gone/size and all below: (1 - gone/size) R + gone/size L
        rest = from_here.gather(-1, first) + torch.log1p(-gone / size)
        both = (gone > 0) & (last < n - 1)
        low = from_here.gather(-1, below) + torch.log(gone.clamp(min=1) / size)
        rest = torch.where(both, torch.logaddexp(rest, torch.where(both, low, rest)), rest)
        mean_weight = _group_mean(weight, first, last, size)
        entropy = torch.log(size)
        if u is not None:
            each = _group_mean(u, first, last, size)
            entropy = _entropy(u, each, first, last, size)
            weight, mean_weight = weight * each, mean_weight * u
        term = rest - torch.log1p(-gone / size) - entropy
        return _total(weight, term, real, defined) - _total(mean_weight, s, real, defined)

    def _sort(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self.ties != "random":
            y, order = labels.sort(dim=-1, descending=True, stable=True)
            return y, order
        shuffled = torch.rand_like(labels).argsort(-1)
        y, order = labels.gather(-1, shuffled).sort(dim=-1, descending=True, stable=True)
        return y, shuffled.gather(-1, order)

    def extra_repr(self) -> str:
        """What is not the default."""
        options = [] if self.top_k is None else [f"top_k={self.top_k}"]
        options += [] if self.ties == "mean" else [f"ties={self.ties!r}"]
        return ", ".join([*options, *filter(None, [super().extra_repr()])])


def _total(weight: Tensor, each: Tensor, real: Tensor, defined: Tensor) -> Tensor:
    return (weight * torch.where(real, each, 0.0)).sum(-1) * defined


def _group_mean(x: Tensor, first: Tensor, last: Tensor, size: Tensor) -> Tensor:
    """Mean of x over each item's ties: the difference of sums from the end, where x is small."""
    sums = x.flip(-1).cumsum(-1).flip(-1)
    sums = torch.cat([sums, torch.zeros_like(sums[..., :1])], -1)
    return (sums.gather(-1, first) - sums.gather(-1, last + 1)) / size


def _entropy(u: Tensor, mean: Tensor, first: Tensor, last: Tensor, size: Tensor) -> Tensor:
    """Entropy of the shares of u in each item's ties, whose mean is `mean`."""
    some = mean > 0
    mean = torch.where(some, mean, 1.0)
    logs = _group_mean(torch.xlogy(u, u), first, last, size)
    return torch.where(some, torch.log(size * mean) - logs / mean, torch.log(size))


class PListMLE(ListMLE):
    """Position-aware ListMLE: the term of place k counts alpha(k), so that the top matters most.

    The paper's alpha(k) = 2^(m - k) - 1 for m items, here over alpha(1): lists of any length, of
    more than 127 items too, have finite weights between 0 and 1. Else as `ListMLE`.

    Args:
        discount: None for the paper's alpha; "log2", "letor4", or a function of the places.
        ties: see `ListMLE`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: discount or ties is none of these.

    Reference: Lan, Zhu, Guo, Niu and Cheng, "Position-aware ListMLE: a sequential learning process
    for ranking", UAI 2014.

    >>> PListMLE()(torch.zeros(3), torch.tensor([0.0, 2.0, 1.0]))  # log(3) + log(2) / 3
    tensor(1.3297)
    """

    def __init__(
        self,
        discount: Discount | None = None,
        ties: Ties = "mean",
        reduction: Reduction = "mean",
    ):
        super().__init__(None, ties, reduction)
        if discount is not None:
            discount_function(discount)  # a ValueError for what is none
        self.discount: Discount | None = discount

    def place_weights(self, place: Tensor, m: Tensor) -> Tensor:
        """Alpha over its largest."""
        if self.discount is not None:
            return discount_function(self.discount)(place)
        end = torch.exp2(1 - m)
        return (torch.exp2(1 - place) - end).clamp(min=0) / torch.where(m > 1, 1 - end, 1.0)


class UniqueSoftmax(RankingLoss):
    """Each relevant item against those of lower labels alone: no item competes with its equals.

    sum of g_i log(1 + sum over y_j < y_i of exp(s_j - s_i)) / sum of g_i, with the gain g. It
    falls to 0 whatever the ties. Weights multiply the gains. With `normalize=False` it is the sum,
    as in TF-Ranking ("exp2") and rax ("linear"): a list with more relevance counts for more, and
    gains of 2^128 overflow in float32. No relevant item, one item, no pair,
    or all masked: 0, with a graph. One sort of the labels.

    Args:
        gain: "exp2" (2^label - 1, the default, as TF-Ranking), "linear" (as rax), or a function.
            Labels of 128 and more do not overflow, where `normalize` is True.
        normalize: whether to divide by the sum of the gains. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument that is none of these.

    Reference: Zhu and Klabjan, "Listwise learning to rank by exploring unique ratings", WSDM 2020.

    >>> UniqueSoftmax()(torch.zeros(3), torch.tensor([1.0, 1.0, 0.0]))  # log(2), not log(3)
    tensor(0.6931)
    """

    def __init__(self, gain: Gain = "exp2", normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(reduction)
        gain_function(gain)  # a ValueError for what is none
        self.gain: Gain = gain
        if not isinstance(normalize, bool):
            raise ValueError(f"normalize must be True or False, got {normalize!r}")
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The weighted mean, or sum, of each list."""
        n = scores.shape[-1]
        if not n:
            return scores.sum(-1)
        if self.normalize:
            gains = ndcg_gains(labels, mask, weights, self.gain)
        else:
            gains = item_gains(labels, mask, weights, gain_function(self.gain))
        y, order = masked_fill(labels, mask, torch.inf).sort(dim=-1, descending=True, stable=True)
        s = masked_fill(scores, mask).gather(-1, order)
        g = gains.gather(-1, order)
        last = tie_groups(y)[1]
        low = log_sums_from(s).gather(-1, (last + 1).clamp(max=n - 1))
        rivals = last < n - 1
        each = torch.logaddexp(s, torch.where(rivals, low, s)) - s
        each = torch.where(rivals & (g > 0), each, 0 * s)
        return weighted_mean(each, g) if self.normalize else (g * each).sum(-1)


def list_mle_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    top_k: int | None = None,
    ties: Ties = "mean",
    reduction: Reduction = "mean",
) -> Tensor:
    """ListMLE, as a function: see `ListMLE`.

    >>> list_mle_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return ListMLE(top_k, ties, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def p_list_mle_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    discount: Discount | None = None,
    ties: Ties = "mean",
    reduction: Reduction = "mean",
) -> Tensor:
    """Position-aware ListMLE, as a function: see `PListMLE`.

    >>> p_list_mle_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return PListMLE(discount, ties, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def unique_softmax_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    gain: Gain = "exp2",
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Unique softmax, as a function: see `UniqueSoftmax`.

    >>> unique_softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return UniqueSoftmax(gain, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )

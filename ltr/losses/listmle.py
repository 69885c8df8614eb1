"""Negative log-likelihoods of the correct order: ListMLE and p-ListMLE."""

from typing import Literal

import torch
from torch import Tensor

from ltr.gains import Discount, discount_function
from ltr.kernels.sorting import runs
from ltr.losses.base import RankingLoss, Reduction
from ltr.shapes import check_choice, check_top_k, largest, masked_fill, positions

LabelTies = Literal["mean", "random", "first"]


def log_sums_from(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(sum of exp(x_k) over k >= i) for each i, as a sum of two terms: (..., n) each.

    The first term is the largest x_k over k >= i, without a gradient (0 if it is not finite), and
    the second term is the rest, between 0 and log(n). In float32 one number would not hold both:
    numbers near 1e6 are 1/16 apart. The largest value is that of the summed items, since relative
    to a much larger value these items would all be equal.

    Each step doubles the number of terms in every sum, with `logaddexp`. Cost: O(n log n).
    `logcumsumexp` is not used: it has no second derivative if a gradient is 0.

    >>> log_sums_from(torch.tensor([1e9, 0.0, 0.0]))
    (tensor([1.0000e+09, 0.0000e+00, 0.0000e+00]), tensor([0.0000, 0.6931, 0.0000]))
    """
    top = x.detach().flip(-1).cummax(-1).values.flip(-1)
    top = torch.where(top.isfinite(), top, 0.0)
    # The sum of two terms that are both 0 would have a NaN gradient.
    rest, shift = (x - top).clamp(min=torch.finfo(x.dtype).min), 1
    while shift < x.shape[-1]:
        later = rest[..., shift:] + (top[..., shift:] - top[..., :-shift])
        rest = torch.cat([torch.logaddexp(rest[..., :-shift], later), rest[..., -shift:]], -1)
        shift *= 2
    return top, rest


def labels_differ(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return whether each list has real items with different labels: (...) bool.

    >>> labels_differ(torch.tensor([[1.0, 2.0], [1.0, 1.0]]), None)
    tensor([ True, False])
    """
    highest, lowest = (largest(masked_fill(x, mask, -torch.inf)) for x in (labels, -labels))
    return highest + lowest > 0


class ListMLE(RankingLoss):
    """ListMLE: the negative log-likelihood of the correct order, in the Plackett-Luce model.

    In this model, an order is drawn item by item, with the probabilities softmax(s) of the
    remaining items, given their scores s. Let pi(1), pi(2), ... be the items by descending label.
    The loss is

        sum over k of log(sum over l >= k of exp(s_pi(l))) - s_pi(k)

    If labels are tied, several orders are correct. `ties` determines which correct orders count:

    - "mean" (the default): all correct orders count equally, by Efron's approximation. At position
      a of d tied items (a = 0, 1, ..., d - 1), the tied items have the factor 1 - a / d in the
      inner sum. The logarithm of the number of orders of the tied items, log(d!), is subtracted, so
      the minimum is 0. The result does not depend on the order of the items in the list.
    - "random": one correct order, drawn at each call, as in rax, allRank and TF-Ranking. In eval
      mode nothing is drawn, so a validation loss has no noise: the loss is the mean over the
      correct orders, by the approximation of "mean", without subtracting log(d!).
    - "first": the correct order in which tied items stay in the order of the list. If an earlier
      ranker sorted the list, its order leaks into the loss.

    The loss is 0, with a zero gradient, if no two labels differ (no relevant item, for example),
    for one item, and for a fully masked list. Cost: one sort of the labels.

    Weights multiply each item's term. With ties "mean", the weights of tied items, divided by their
    sum, are the target probabilities at each of their positions. The term of a position is then the
    divergence of the model's probabilities from the targets, times the mean weight of the tied
    items. So the loss is never below 0.

    Args:
        top_k: count only the terms of the first k positions (top-k ListMLE). Default: all.
        ties: "mean", "random" or "first".

    Raises:
        ValueError: top_k or ties is invalid.

    Reference: Xia, Liu, Wang, Zhang and Li, "Listwise approach to learning to rank: theory and
    algorithm", ICML 2008; Efron, "The efficiency of Cox's likelihood function for censored data",
    1977, for the ties.

    >>> ListMLE()(torch.zeros(3), torch.tensor([0.0, 2.0, 1.0]))  # log(3!)
    tensor(1.7918)
    """

    def __init__(
        self, top_k: int | None = None, ties: LabelTies = "mean", reduction: Reduction = "mean"
    ):
        super().__init__(reduction)
        self.top_k = check_top_k(top_k)
        check_choice("ties", ties, "mean", "random", "first")
        self.ties: LabelTies = ties

    def position_weights(self, position: Tensor, m: Tensor) -> Tensor:
        """Return the weights of the terms at positions (..., n) in lists of m (..., 1) items."""
        if self.top_k is None:
            return torch.ones_like(position)
        return (position <= self.top_k).to(position.dtype)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the negative log-likelihood of each list."""
        n = scores.shape[-1]
        if not n:
            return scores.sum(-1)
        defined = labels_differ(labels, mask)
        # Padding is sorted to the front, so that a sum from a real item to the end contains no
        # padding.
        drawn = self.ties == "random" and self.training
        y, order = _sort(masked_fill(labels, mask, torch.inf), drawn)
        s = masked_fill(scores, mask).gather(-1, order)
        padded = scores.new_zeros(s.shape)
        if mask is not None:
            padded = (~mask).sum(-1, keepdim=True).to(s.dtype).expand_as(s)
        position = positions(s) - padded
        real = position > 0
        weight = real * self.position_weights(position.clamp(min=1), n - padded[..., :1])
        u = None if weights is None else masked_fill(weights, mask).gather(-1, order)

        top, from_here = log_sums_from(s)
        if drawn or self.ties == "first":
            each = (top - s) + from_here
            return _total(weight if u is None else weight * u, each, real, defined)
        first, end = runs(y)
        size = (end - first).to(s.dtype)
        gone = positions(s) - 1 - first.to(s.dtype)
        below = end.clamp(max=n - 1)
        # `rest` is the logarithm of the inner sum. In this sum, the tied items have the factor
        # 1 - gone / size, and all items below them the factor 1. Let R be the sum of exp(s) from
        # the first tied item on, and L the sum over the items below the tied items. Then the inner
        # sum is (1 - gone / size) R + (gone / size) L. All logarithms are relative to the largest
        # score from the first tied item on, which the tied items share.
        highest = top.gather(-1, first)
        rest = from_here.gather(-1, first) + torch.log1p(-gone / size)
        both = (gone > 0) & (end < n)
        low = from_here.gather(-1, below) + (top.gather(-1, below) - highest)
        low = low + torch.log(gone.clamp(min=1) / size)
        rest = torch.where(both, torch.logaddexp(rest, torch.where(both, low, rest)), rest)
        mean_weight = _group_mean(weight, first, end, size)
        entropy = torch.log(size)
        if u is not None:
            each = _group_mean(u, first, end, size)
            entropy = _entropy(u, each, first, end, size)
            weight, mean_weight = weight * each, mean_weight * u
        term = rest
        if self.ties == "mean":
            term = rest - torch.log1p(-gone / size) - entropy
        missed = highest - s
        return _total(weight, term, real, defined) + _total(mean_weight, missed, real, defined)

    def extra_repr(self) -> str:
        """Return the arguments that are not the default."""
        options = [] if self.top_k is None else [f"top_k={self.top_k}"]
        options += [] if self.ties == "mean" else [f"ties={self.ties!r}"]
        return ", ".join([*options, *filter(None, [super().extra_repr()])])


class PListMLE(ListMLE):
    """Position-aware ListMLE: the first positions have the largest weights.

    Position k has the weight alpha(k). In the paper, alpha(k) is 2^(m - k) - 1 for m items. Here
    alpha is divided by alpha(1). So the weights lie between 0 and 1 for lists of any length. (In
    float32, alpha(1) overflows for more than 128 items.) Everything else is as in `ListMLE`.

    Args:
        discount: the weights of the positions: None for the paper's alpha (default), "log2",
            "letor4", or a function of the positions.
        ties: see `ListMLE`.

    Raises:
        ValueError: discount or ties is invalid.

    Reference: Lan, Zhu, Guo, Niu and Cheng, "Position-aware ListMLE: a sequential learning process
    for ranking", UAI 2014.

    >>> PListMLE()(torch.zeros(3), torch.tensor([0.0, 2.0, 1.0]))  # log(3) + log(2) / 3
    tensor(1.3297)
    """

    def __init__(
        self,
        discount: Discount | None = None,
        ties: LabelTies = "mean",
        reduction: Reduction = "mean",
    ):
        super().__init__(None, ties, reduction)
        if discount is not None:
            discount_function(discount)  # this checks the discount
        self.discount: Discount | None = discount

    def position_weights(self, position: Tensor, m: Tensor) -> Tensor:
        """Return alpha / alpha(1), or the discounts of the positions if `discount` is not None."""
        if self.discount is not None:
            return discount_function(self.discount)(position)
        end = torch.exp2(1 - m)
        return (torch.exp2(1 - position) - end).clamp(min=0) / torch.where(m > 1, 1 - end, 1.0)


def _sort(labels: Tensor, shuffle: bool) -> tuple[Tensor, Tensor]:
    """Return the descending labels and their indices; tied labels are in list or random order."""
    if not shuffle:
        y, order = labels.sort(dim=-1, descending=True, stable=True)
        return y, order
    shuffled = torch.rand_like(labels).argsort(-1)
    y, order = labels.gather(-1, shuffled).sort(dim=-1, descending=True, stable=True)
    return y, shuffled.gather(-1, order)


def _total(weight: Tensor, each: Tensor, real: Tensor, defined: Tensor) -> Tensor:
    return (weight * torch.where(real, each, 0.0)).sum(-1) * defined


def _group_mean(x: Tensor, first: Tensor, end: Tensor, size: Tensor) -> Tensor:
    """Return the mean of x over the items that are tied with each item, the item included.

    The sum over the tied items is the difference of two sums that begin at the end of the list. The
    weights of positions are smallest there, so little precision is lost.
    """
    sums = x.flip(-1).cumsum(-1).flip(-1)
    sums = torch.cat([sums, torch.zeros_like(sums[..., :1])], -1)
    return (sums.gather(-1, first) - sums.gather(-1, end)) / size


def _entropy(u: Tensor, mean: Tensor, first: Tensor, end: Tensor, size: Tensor) -> Tensor:
    """Return, for each item, the entropy of u / (sum of u) over the items tied with it.

    The item itself is one of the tied items. `mean` is the mean of u over the tied items, and
    `size` their number. The result is log(size) if u is 0 for all tied items.
    """
    has_mean = mean > 0
    mean = torch.where(has_mean, mean, 1.0)
    logs = _group_mean(torch.xlogy(u, u), first, end, size)
    return torch.where(has_mean, torch.log(size * mean) - logs / mean, torch.log(size))

"""Losses by the likelihood of an order: ListMLE and p-ListMLE."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ltr.gains import Discount, discount_function
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.shapes import check_top_k, masked_fill, positions

Ties = Literal["mean", "random", "first"]


def log_sums_from(x: Tensor) -> Tensor:
    """Return the logarithm of the sum of exp(x_k) over k >= i, for each i: (..., n).

    The sums are made by doubling, with `logaddexp`, in O(n log n). `logcumsumexp` is not used: it
    has no second derivative where a gradient is 0.

    >>> log_sums_from(torch.tensor([0.0, 0.0]))
    tensor([0.6931, 0.0000])
    """
    shift = 1
    while shift < x.shape[-1]:
        x = torch.cat([torch.logaddexp(x[..., :-shift], x[..., shift:]), x[..., -shift:]], -1)
        shift *= 2
    return x


def tie_groups(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the last index of each item's ties, for sorted labels: (..., n) each.

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


class ListMLE(RankingLoss):
    """Negative log-likelihood of the order by labels under the Plackett-Luce model of the scores.

    With pi, the items in the order of their labels, the highest first, the loss is

        sum over k of log(sum over l >= k of exp(s_pi(l))) - s_pi(k)

    Labels with ties define more than one order. `ties` chooses among them:

    - "mean" (the default): all these orders are equally likely, by Efron's approximation. At the
      l-th place of d tied items (l = 0, 1, ...) the inner sum counts the tied items with a factor
      1 - l / d. The logarithm of the number of such orders, log(d!), is subtracted, so the minimum
      is 0. The result does not depend on the order of the list.
    - "random": one of these orders, drawn at each call, as in rax, allRank and TF-Ranking.
    - "first": the order of the list. This leaks the order of a list that an earlier ranker sorted.

    The loss is 0, with a zero gradient, if no two labels differ (no relevant item, for example),
    for one item, and for a fully masked list. Cost: one sort of the labels.

    Weights multiply each item's term. With ties "mean" the weights of tied items are their shares
    of the places. The term is then the divergence of the model's probabilities from these shares,
    times the mean weight of the tied items, so the loss is never below 0.

    Args:
        top_k: count only the terms of the first k places (top-k ListMLE). Default: all.
        ties: "mean", "random" or "first".
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: top_k or ties has none of these values.

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
        self.ties: Ties = _check_ties(ties)

    def place_weights(self, place: Tensor, m: Tensor) -> Tensor:
        """Return the weight of the term at each place 1, 2, ..., m: place (..., n), m (..., 1)."""
        return _first_places(place, m, top_k=self.top_k)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the negative log-likelihood of each list."""
        return _likelihood(
            scores, labels, mask, weights, place_weights=self.place_weights, ties=self.ties
        )

    def extra_repr(self) -> str:
        """Return the arguments that are not the default."""
        options = [] if self.top_k is None else [f"top_k={self.top_k}"]
        options += [] if self.ties == "mean" else [f"ties={self.ties!r}"]
        return ", ".join([*options, *filter(None, [super().extra_repr()])])


class PListMLE(ListMLE):
    """Position-aware ListMLE: the term of place k has the weight alpha(k), so the top counts most.

    The paper's alpha(k) is 2^(m - k) - 1 for m items. Here it is divided by alpha(1), so the
    weights lie between 0 and 1 for lists of any length, of more than 127 items too. Everything
    else is as in `ListMLE`.

    Args:
        discount: the weights of the places: None for the paper's alpha, "log2", "letor4", or a
            function of the places.
        ties: see `ListMLE`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: discount or ties has none of these values.

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
        _place_discount(discount)  # raises ValueError for an unknown discount
        self.discount: Discount | None = discount

    def place_weights(self, place: Tensor, m: Tensor) -> Tensor:
        """Return alpha divided by its largest value."""
        return _discounted_places(place, m, discount=_place_discount(self.discount))


def _likelihood(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    place_weights: Callable[[Tensor, Tensor], Tensor],
    ties: Ties,
) -> Tensor:
    n = scores.shape[-1]
    if not n:
        return scores.sum(-1)
    defined = _has_pair(labels, mask)
    # padding is sorted to the front: no sum from a place to the end contains any of it
    y, order = _sort(masked_fill(labels, mask, torch.inf), ties)
    s = masked_fill(scores, mask).gather(-1, order)
    padded = scores.new_zeros(s.shape)
    if mask is not None:
        padded = (~mask).sum(-1, keepdim=True).to(s.dtype).expand_as(s)
    place = positions(s) - padded
    real = place > 0
    weight = real * place_weights(place.clamp(min=1), n - padded[..., :1])
    u = None if weights is None else masked_fill(weights, mask).gather(-1, order)

    from_here = log_sums_from(s)
    if ties != "mean":
        each = from_here - s
        return _total(weight if u is None else weight * u, each, real, defined)
    first, last = tie_groups(y)
    size = (last - first + 1).to(s.dtype)
    gone = positions(s) - 1 - first.to(s.dtype)
    below = (last + 1).clamp(max=n - 1)
    # the tied items with a factor 1 - gone / size, and all items below: with R the sum from the
    # first tied item and L the sum below the ties, (1 - gone / size) R + (gone / size) L
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


def _has_pair(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return whether two real items of each list differ in their labels: (...)."""
    return masked_fill(labels, mask, -torch.inf).amax(-1) > masked_fill(
        labels, mask, torch.inf
    ).amin(-1)


def _sort(labels: Tensor, ties: Ties) -> tuple[Tensor, Tensor]:
    """Return falling labels and their indices, with ties in list order or in random order."""
    if ties != "random":
        y, order = labels.sort(dim=-1, descending=True, stable=True)
        return y, order
    shuffled = torch.rand_like(labels).argsort(-1)
    y, order = labels.gather(-1, shuffled).sort(dim=-1, descending=True, stable=True)
    return y, shuffled.gather(-1, order)


def _first_places(place: Tensor, m: Tensor, *, top_k: int | None) -> Tensor:
    """Return 1 for the first `top_k` places and 0 for the others."""
    return torch.ones_like(place) if top_k is None else (place <= top_k).to(place.dtype)


def _discounted_places(
    place: Tensor, m: Tensor, *, discount: Callable[[Tensor], Tensor] | None
) -> Tensor:
    """Return `discount` of the places; for None, (2^(m - k) - 1) / (2^(m - 1) - 1) at place k."""
    if discount is not None:
        return discount(place)
    end = torch.exp2(1 - m)
    return (torch.exp2(1 - place) - end).clamp(min=0) / torch.where(m > 1, 1 - end, 1.0)


def _total(weight: Tensor, each: Tensor, real: Tensor, defined: Tensor) -> Tensor:
    return (weight * torch.where(real, each, 0.0)).sum(-1) * defined


def _group_mean(x: Tensor, first: Tensor, last: Tensor, size: Tensor) -> Tensor:
    """Return the mean of x over each item's ties.

    It is the difference of two sums from the end, since there x is small and little is lost.
    """
    sums = x.flip(-1).cumsum(-1).flip(-1)
    sums = torch.cat([sums, torch.zeros_like(sums[..., :1])], -1)
    return (sums.gather(-1, first) - sums.gather(-1, last + 1)) / size


def _entropy(u: Tensor, mean: Tensor, first: Tensor, last: Tensor, size: Tensor) -> Tensor:
    """Return the entropy of the shares of u among each item's ties, whose mean is `mean`."""
    some = mean > 0
    mean = torch.where(some, mean, 1.0)
    logs = _group_mean(torch.xlogy(u, u), first, last, size)
    return torch.where(some, torch.log(size * mean) - logs / mean, torch.log(size))


def _check_ties(ties: Ties) -> Ties:
    if ties not in ("mean", "random", "first"):
        raise ValueError(f"ties must be 'mean', 'random' or 'first', got {ties!r}")
    return ties


def _place_discount(discount: Discount | None) -> Callable[[Tensor], Tensor] | None:
    return None if discount is None else discount_function(discount)


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
    """Return the negative log-likelihood of the order: the function form of `ListMLE`.

    >>> list_mle_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(
            _likelihood,
            place_weights=partial(_first_places, top_k=check_top_k(top_k)),
            ties=_check_ties(ties),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
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
    """Return the position-aware negative log-likelihood: the function form of `PListMLE`.

    >>> p_list_mle_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(
            _likelihood,
            place_weights=partial(_discounted_places, discount=_place_discount(discount)),
            ties=_check_ties(ties),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )

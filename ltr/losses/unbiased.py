"""Learning from clicks: inverse propensity weights for any loss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ltr.clicks.position_bias import PositionBias, check_clip, inverse_propensity_weights
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.fairness import Penalized, unreduced
from ltr.losses.ndcg import SoftNDCG
from ltr.shapes import check_flag, masked_fill, positions


class Unbiased(RankingLoss):
    r"""Position-bias correction of a loss on clicks: clicks at rarely seen positions count more.

    A click has the weight v = 1 / propensity. The propensity of a position is the probability that
    a user looks at it. So a click at a position that few users look at also counts for the users
    who did not look.

    **Estimate.** Item i of a list has the relevance r_i. A user looks at the item with probability
    theta_i > 0 (`PositionBias`), and clicks if the item is relevant. So the click is c_i = r_i o_i,
    with o_i = 1 if the user looks, else 0. Since E[o_i] = theta_i and v_i = 1 / theta_i, it follows
    that E[v_i c_i] = r_i. Let L(r) be the given loss for the labels r, and L({i}) its value if only
    item i is relevant. Two estimates are available:

        split=True:   sum over the clicks of v_i L({i})
        split=False:  m L(c; weights v_i / m), where m = sum of v_i c_i / sum of c_i

    With `split`, each click becomes a separate list, in which only the clicked item is relevant.
    The sum is linear in the clicks. So the expected value of the sum is the sum of L({i}) over the
    relevant items, for every loss in which `every_item` is False. If 1 - L({i}) is the discount at
    the rank of i, as for `SoftNDCG(mean="arithmetic")`, the expected value is the number of
    relevant items minus the DCG. The cost is that of one list for each click.

    Without `split`, the loss of a list is multiplied by the mean weight m of its clicks, and within
    the list the clicks have the weights v_i / m. The factor m is needed since most losses divide by
    the gains of the list or by an ideal value: without m, the weight of a single click would
    cancel. A loss that is linear in the weights, such as `SoftmaxLoss(normalize=False)`, has the
    same value as with the weights v_i. The expected value of the estimate is:

    - For one relevant item: exactly L(r). For a list with one click, both estimates are equal.
    - For `SoftmaxLoss(normalize=False)`: exactly L(r), except for an entropy that does not depend
      on the scores. So the gradient is exact.
    - For several relevant items and other losses: approximately L(r). A loss that divides by the
      gains is a mean over the clicks, and a mean over the clicked items is not the mean over the
      relevant items. The ideal value of a metric, the pairs of a pairwise loss, and the competing
      items in `UniqueSoftmax` depend on all clicks together, and count a relevant item without a
      click as irrelevant.

    For these other losses an exact estimate exists, but it is useless for training. Let f(C) be an
    estimate from the set C of clicked items, and let the o_i be independent. The condition E[f] =
    L(R) for all sets R of relevant items then determines f: f(C) is the sum over the subsets S of C
    of a_S times the product of v_i over S, with a_S = sum over the subsets T of S of (-1)^(|S| -
    |T|) L(T). This f has 2^|C| terms of both signs, with products of weights. f is a plain sum over
    the clicks only if L(R) is the sum of L({i}) over R, and then it is the estimate of `split`.

    Losses in which every item counts, relevant or not (`every_item` is True, as in pointwise losses
    and regression), have no factor m. In these losses, all items have the weights v_i; `split` and
    `self_normalize` have no effect. The relevance that such a loss learns from clicks is biased.

    In a `Penalized` loss, the penalty does not estimate anything from clicks, so only the loss is
    corrected: `Unbiased(Penalized(loss, penalty))` equals `Penalized(Unbiased(loss), penalty)`.

    **Variance.** `clip` limits the weights. Clicks at rarely seen positions then count too little,
    but their weights no longer dominate. `self_normalize` divides the loss by the mean weight of
    the batch's clicks, sum of v_i c_i / sum of c_i over all lists of the batch. So the step of the
    optimizer does not depend on how many clicks at rarely seen positions a batch has. The estimate
    then has a bias, which vanishes as batches grow.

    Without position bias the result is L, or with `split` the sum of L({i}) over the clicks.
    Special cases are those of the given loss. For a list without a click, a ranking loss is 0 with
    a zero gradient. A label above 1 is a click that counts more, by the gain of the loss.

    Args:
        loss: any `RankingLoss` that takes weights. Default: `SoftNDCG()`.
        bias: the propensities. Default: `PositionBias()`, which gives 1 / position.
        clip: the largest weight. Default: no limit.
        split: whether each click becomes a separate list, see above. Default: False. If True, the
            number of lists depends on the labels' values, so `torch.compile` breaks the graph here,
            `vmap` fails, and on a GPU the computation waits for the device.
        self_normalize: whether to divide by the mean weight of the batch. Default: False.
        reduction: replaces the reduction of the loss.

    `forward` has one more argument, `position` (..., n): the positions at which the items were
    shown, counted from 1. By default, the real items are numbered in the order of the list. Weights
    act as in the given loss. In m and in the mean weight of the batch, they multiply the clicks.

    Raises:
        ValueError: an argument is invalid (the message names it and its value); shapes differ.

    Reference: Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased feedback",
    WSDM 2017, for the sum over clicks; Agarwal, Takatsu, Zaitsev and Joachims, "A general framework
    for counterfactual learning-to-rank", SIGIR 2019, for metrics that are sums over items; Wang,
    Golbandi, Bendersky, Metzler and Najork, "Position bias estimation for unbiased learning to rank
    in personal search", WSDM 2018, for the propensities; Swaminathan and Joachims, "The
    self-normalized estimator for counterfactual learning", NeurIPS 2015.

    >>> from ltr.losses import SoftmaxLoss
    >>> scores, clicks = torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 1.0])
    >>> Unbiased(SoftmaxLoss(), split=True)(scores, clicks) / torch.log(torch.tensor(4.0))  # 2 + 4
    tensor(6.)
    >>> from ltr.operators import HardRank
    >>> clicks = torch.tensor([1.0, 0.0, 1.0])
    >>> Unbiased(SoftNDCG(HardRank()))(torch.tensor([2.0, 1.0, 3.0]), clicks)  # the rare one first
    tensor(0.)
    """

    grades = False  # the given loss checks the labels itself

    def __init__(
        self,
        loss: RankingLoss | None = None,
        bias: PositionBias | None = None,
        clip: float | None = None,
        split: bool = False,
        self_normalize: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.loss = unreduced(SoftNDCG() if loss is None else loss)
        self.bias = PositionBias() if bias is None else bias
        if not isinstance(self.bias, nn.Module):
            raise ValueError(f"bias must be a PositionBias, got {bias!r}")
        self.clip = check_clip(clip)
        self.split = check_flag("split", split)
        self.self_normalize = check_flag("self_normalize", self_normalize)
        self.every_item = self.loss.every_item
        self.side_inputs = tuple(dict.fromkeys(("position", *self.loss.side_inputs)))

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        **given: Any,
    ) -> Tensor:
        """Return the loss of scores (..., n) against clicks (..., n); see `RankingLoss.forward`."""
        if self.self_normalize and not self.every_item:
            self._check_names(given)
            weight, number = (
                _SumOfClicks(inverse)(scores, labels, mask, weights, **given)
                for inverse in (self._inverse, None)
            )
            mean = torch.where(number > 0, weight / torch.where(number > 0, number, 1.0), 1.0)
            given["batch_mean"] = torch.ones_like(scores) * mean
        return super().forward(scores, labels, mask, weights, **given)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        position: Tensor | None = None,
        batch_mean: Tensor | None = None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each list on clicks (..., n) at positions (..., n)."""
        position = _positions_shown(scores, mask, position)
        inverse = self._inverse(position)
        if batch_mean is not None:
            inverse = inverse / masked_fill(batch_mean, mask, 1.0)
        if "position" in self.loss.side_inputs:
            extra["position"] = position
        weights = None if weights is None else masked_fill(weights, mask)
        given = scores, masked_fill(labels, mask), mask, weights
        return self._corrected(self.loss, inverse, *given, **extra)

    def _corrected(
        self,
        loss: RankingLoss,
        inverse: Tensor,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each list, given the inverse propensities (..., n) of the items."""
        if isinstance(loss, Penalized):
            own, others = loss.shared(extra)
            value = self._corrected(loss.loss, inverse, scores, labels, mask, weights, **own)
            return value + loss.strength * loss.penalty(scores, labels, mask, weights, **others)
        if loss.every_item:
            weights = inverse if weights is None else weights * inverse
            return loss(scores, labels, mask, weights, **extra)
        if self.split:
            return _sum_over_clicks(loss, inverse, scores, labels, mask, weights, **extra)
        mean, weights = _weights_of_clicks(inverse, labels, weights)
        return mean * loss(scores, labels, mask, weights, **extra)

    def _inverse(self, position: Tensor) -> Tensor:
        return inverse_propensity_weights(position, self.bias, clip=self.clip)


class _SumOfClicks(RankingLoss):
    """The sum of all lists' clicks, each times `inverse` of its position if `inverse` is given."""

    grades = False

    def __init__(self, inverse: Callable[[Tensor], Tensor] | None):
        super().__init__("sum")
        self.inverse = inverse

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        position: Tensor | None = None,
        **extra: Tensor,
    ) -> Tensor:
        clicks = labels.clamp(min=0)
        counted = masked_fill(clicks if weights is None else clicks * weights, mask)
        if self.inverse is not None:
            counted = counted * self.inverse(_positions_shown(scores, mask, position))
        return counted.sum(-1)


def click_weights(loss: nn.Module, position: Tensor) -> Tensor | None:
    """Return the weights (..., n) of clicks at positions (..., n) in a loss, or None.

    The result is None if the loss (in a `Penalized`, the loss without the penalty) is not an
    `Unbiased`.

    >>> click_weights(Penalized(Unbiased(clip=3.0)), torch.tensor([1, 2, 9]))
    tensor([1., 2., 3.])
    """
    while isinstance(loss, Penalized):
        loss = loss.loss
    if not isinstance(loss, Unbiased):
        return None
    return inverse_propensity_weights(position, loss.bias, clip=loss.clip)


def one_click_lists(labels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a ragged list for each click of the given lists, with this click as the only one.

    Args:
        labels: (N,), above 0 for a click; the lists follow one after the other.
        lengths: (B,), the number of items of each list.

    Returns:
        The clicked items (clicks,) and the items of the new lists (M,), as indices in `labels`;
        then the labels (M,) and the lengths (clicks,) of the new lists.

    >>> one_click_lists(torch.tensor([1.0, 0.0, 2.0, 0.0]), torch.tensor([3, 1]))
    (tensor([0, 2]), tensor([0, 1, 2, 0, 1, 2]), tensor([1., 0., 0., 0., 0., 2.]), tensor([3, 3]))
    """
    clicks = (labels > 0).nonzero().squeeze(-1)
    which = torch.repeat_interleave(lengths)[clicks]
    starts, sizes = (lengths.cumsum(0) - lengths)[which], lengths[which]
    before = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    items = torch.arange(len(before)) - before + starts.repeat_interleave(sizes)
    alone = torch.where(items == clicks.repeat_interleave(sizes), labels[items], 0)
    return clicks, items, alone, sizes


def _sum_over_clicks(
    loss: RankingLoss,
    inverse: Tensor,
    scores: Tensor,
    clicks: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    **extra: Tensor,
) -> Tensor:
    """Return, for each list, the sum over its clicks of inverse * (loss with only this click)."""
    n = scores.shape[-1]
    if not n:
        return scores.sum(-1)
    shape = torch.broadcast_shapes(scores.shape, clicks.shape)
    which, item = (clicks.expand(shape).reshape(-1, n) > 0).nonzero(as_tuple=True)

    def of_clicks(x: Tensor) -> Tensor:
        return x.expand(shape).reshape(-1, n)[which]

    alone = torch.zeros_like(of_clicks(clicks))
    at = item.unsqueeze(-1)
    alone = alone.scatter(-1, at, of_clicks(clicks).gather(-1, at))
    each = loss(
        of_clicks(scores),
        alone,
        None if mask is None else of_clicks(mask),
        None if weights is None else of_clicks(weights),
        **{name: of_clicks(x) for name, x in extra.items()},
    )
    each = each * of_clicks(inverse).gather(-1, at).squeeze(-1)
    # A NaN score makes the loss NaN, even in a list without a click.
    lists = 0 * masked_fill(scores, mask).expand(shape).sum(-1).flatten()
    return lists.index_add(0, which, each).view(shape[:-1])


def _positions_shown(scores: Tensor, mask: Tensor | None, position: Tensor | None) -> Tensor:
    """Return the positions (..., n) at which the items were shown, 1 under the mask.

    By default, the real items are numbered in the order of the list.
    """
    if position is None:
        position = positions(scores).expand(scores.shape)
        position = position if mask is None else mask.cumsum(-1).to(scores.dtype)
    return masked_fill(position, mask, 1.0)


def _weights_of_clicks(
    inverse: Tensor, clicks: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the mean inverse propensity m of each list's clicks, and the weights relative to m.

    m is 1 for a list without a click.
    """
    counted = clicks.clamp(min=0) if weights is None else clicks.clamp(min=0) * weights
    number = counted.sum(-1)
    has_clicks = number > 0
    mean = torch.where(
        has_clicks, (inverse * counted).sum(-1) / torch.where(has_clicks, number, 1.0), 1.0
    )
    relative = torch.where(clicks > 0, inverse / mean.unsqueeze(-1), 1.0)
    return mean, relative if weights is None else weights * relative

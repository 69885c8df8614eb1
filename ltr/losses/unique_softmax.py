"""The unique softmax: a softmax for each relevant item, over the items of lower labels."""

from functools import partial

import torch
from torch import Tensor

from ltr.gains import Gain, gain_function, item_gains, ndcg_gains
from ltr.losses.base import Lengths, RankingLoss, Reduction, check_flag, loss_of_lists
from ltr.losses.listmle import log_sums_from, tie_groups
from ltr.losses.soft import weighted_mean
from ltr.shapes import masked_fill


class UniqueSoftmax(RankingLoss):
    """Softmax loss in which each relevant item competes only with items of lower labels.

    With the gain g, the loss is sum of g_i log(1 + sum over y_j < y_i of exp(s_j - s_i)) divided
    by the sum of g_i. Its minimum is 0, with any ties. Weights multiply the gains.

    With `normalize=False` the sum is not divided, as in TF-Ranking ("exp2") and rax ("linear"). A
    list with more relevance then counts more, and gains of 2^128 overflow in float32.

    The loss is 0, with a zero gradient, for a list without a relevant item, with one item, without
    a pair, or fully masked. Cost: one sort of the labels.

    Args:
        gain: "exp2" (2^label - 1, the default, as in TF-Ranking), "linear" (as in rax), or a
            function. If `normalize` is True, labels of 128 and more do not overflow.
        normalize: whether to divide by the sum of the gains. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument has none of these values.

    Reference: Zhu and Klabjan, "Listwise learning to rank by exploring unique ratings", WSDM 2020.

    >>> UniqueSoftmax()(torch.zeros(3), torch.tensor([1.0, 1.0, 0.0]))  # log(2), not log(3)
    tensor(0.6931)
    """

    def __init__(self, gain: Gain = "exp2", normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(reduction)
        gain_function(gain)  # raises ValueError for an unknown gain
        self.gain: Gain = gain
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean, or sum, of each list."""
        return _unique(scores, labels, mask, weights, gain=self.gain, normalize=self.normalize)


def _unique(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    gain: Gain,
    normalize: bool,
) -> Tensor:
    n = scores.shape[-1]
    if not n:
        return scores.sum(-1)
    if normalize:
        gains = ndcg_gains(labels, mask, weights, gain)
    else:
        gains = item_gains(labels, mask, weights, gain_function(gain))
    y, order = masked_fill(labels, mask, torch.inf).sort(dim=-1, descending=True, stable=True)
    s = masked_fill(scores, mask).gather(-1, order)
    g = gains.gather(-1, order)
    last = tie_groups(y)[1]
    low = log_sums_from(s).gather(-1, (last + 1).clamp(max=n - 1))
    rivals = last < n - 1
    each = torch.logaddexp(s, torch.where(rivals, low, s)) - s
    each = torch.where(rivals & (g > 0), each, 0 * s)
    return weighted_mean(each, g) if normalize else (g * each).sum(-1)


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
    """Return the unique softmax loss: the function form of `UniqueSoftmax`.

    >>> unique_softmax_loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_unique, gain=gain, normalize=check_flag("normalize", normalize)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )

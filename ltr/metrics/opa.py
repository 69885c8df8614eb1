"""Ordered pair accuracy."""

from typing import Unpack

import torch
from torch import Tensor

from ltr.kernels.sorting import runs
from ltr.metrics.core import EmptyCore, TiesArguments, TiesCore, measured_by
from ltr.metrics.pairs import dense_ranks, rising_pairs
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.shapes import masked_fill


class OPACore(TiesCore, EmptyCore):
    """The arithmetic of `opa`."""

    takes_weights = True

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        ones = torch.ones_like(lists.labels) if lists.weights is None else lists.weights
        ones = masked_fill(ones, lists.mask)
        pairs = _pairs_by_label(lists.labels, ones, lists.mask)

        def wrong(positions: Tensor | None) -> Tensor:
            y = lists.labels if positions is None else lists.labels.gather(-1, positions)
            w = ones if positions is None else ones.gather(-1, positions)
            return rising_pairs(dense_ranks(y), None, w)

        if self.ties == "stable":
            lost = wrong(None)
        else:
            lost = wrong(lists.tied_by(lists.labels)[1])
            if self.ties == "expected":
                lost = (lost + wrong(lists.tied_by(lists.labels, descending=True)[1])) / 2
        values = 1 - lost / pairs.where(pairs > 0, 1.0)
        return list_values(values.to(lists.scores.dtype), pairs > 0, lists, self.empty)


@measured_by(OPACore)
def opa(scores: Tensor, labels: Tensor, **shared: Unpack[TiesArguments]) -> Tensor:
    """Ordered pair accuracy: the fraction of pairs of items that are in the right order.

    Only pairs of items with different labels count. With weights, a pair has the weight of the item
    with the higher label.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        empty: the value of a list without two different labels: a number, "skip" or "error".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost:
        O(n log n) time, O(n) memory.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Joachims, "Optimizing search engines using clickthrough data", KDD 2002.

    >>> opa(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]))
    tensor(0.6667)
    """
    ...


def _pairs_by_label(labels: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum over pairs with different labels of the weight of the higher-labelled item.

    Padded positions have label 0, so they count as lower than each item with a label above 0. The
    number of padded positions is therefore subtracted.
    """
    ordered, order = labels.sort(dim=-1)
    padding = 0 if mask is None else (~mask).sum(-1, keepdim=True)
    lower = runs(ordered)[0] - padding
    return (lower.clamp(min=0) * weights.gather(-1, order)).double().sum(-1)

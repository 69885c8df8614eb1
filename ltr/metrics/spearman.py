"""Spearman's rank correlation."""

from typing import Unpack

from torch import Tensor

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.metrics.core import EmptyArguments, EmptyCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import tied_means
from ltr.shapes import masked_fill, positions


class SpearmanCore(EmptyCore):
    """The arithmetic of `spearman`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        order = descending_order(lists.labels, lists.mask)
        x = _centered(lists.scores, lists.mask)
        y = in_list_order(_centered(lists.labels.gather(-1, order), lists.mask), order)
        size = x.square().sum(-1).sqrt() * y.square().sum(-1).sqrt()
        values = ((x * y).sum(-1) / size.where(size > 0, 1.0)).clamp(-1, 1)
        return list_values(values.to(lists.scores.dtype), size > 0, lists, self.empty)


@measured_by(SpearmanCore)
def spearman(scores: Tensor, labels: Tensor, **shared: Unpack[EmptyArguments]) -> Tensor:
    """Spearman's rho: the correlation of the ranks by score and by label.

    Tied items all have the mean of their ranks.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        empty: the value of a list for which rho is not defined (one item; all labels or all scores
            equal): a number, "skip" or "error".

    Returns:
        A scalar in [-1, 1], or (...) with reduction="none". A fully masked list is left out.
        The definition covers ties, so there is no option `ties`. Cost: two sorts.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Spearman, "The proof and measurement of association between two things", 1904.

    >>> import torch
    >>> spearman(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0, 1.0]))
    tensor(1.)
    """
    ...


def _centered(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the ranks of sorted values minus the mean rank, float64, 0 in the padding.

    Equal values all have the mean of their ranks. This mean is a multiple of 1/2, so it is exact.
    """
    ranks = tied_means(positions(values.double()), values.double(), mask)
    n = ranks.shape[-1] if mask is None else mask.sum(-1, keepdim=True)
    return masked_fill(ranks - (n + 1) / 2, mask)

"""Cross-entropy between the correct order and a soft permutation, to learn to sort."""

import torch
from torch import Tensor

from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.listmle import labels_differ
from ltr.losses.soft import finite_log, real_weights, sort_operator, weighted_mean
from ltr.operators import SoftSort, SortOperator, descending_order
from ltr.operators.permutation import check_rows
from ltr.shapes import masked_fill


def true_order(labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the indices of the items by descending label, ties by descending score: (..., n).

    Masked items come last. The result has no gradient. Cost: two sorts.

    >>> true_order(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 9.0]))
    tensor([1, 2, 0])
    """
    by_score = descending_order(masked_fill(scores.detach(), mask), mask)
    keys = masked_fill(labels.detach(), mask).gather(-1, by_score)
    real = None if mask is None else mask.gather(-1, by_score)
    return by_score.gather(-1, descending_order(keys, real))


class PermutationCrossEntropy(RankingLoss):
    """Cross-entropy between the correct order and a soft permutation.

    The loss is the mean of -log P[i, order_i] over positions i. P is the soft permutation matrix,
    and order_i is the item at position i of the order by descending label.

    The loss is computed in log space (`log_prob`), so it has a gradient even if an item is far
    from its correct position. No matrix is built if the operator needs none. Items with equal
    labels may be in any order: their correct positions follow the order of their scores.

    Special cases: the loss is 0, with a zero gradient, for one item, if all labels are equal (every
    order is correct), and for a fully masked list. The operator decides how tied scores share the
    positions. An element of P that is exactly 0, as with sorting networks and hard permutations,
    counts as 1e-38 and has no gradient.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item. Default: `SoftSort()`.

    With weights, the mean over the positions is weighted: a position has the weight of its correct
    item.

    Raises:
        ValueError: the operator has no permutation; in `forward`, the operator does not give a row
            for each item.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020. (These papers add 1e-20 inside the logarithm, which is not needed here.)

    >>> labels = torch.tensor([0.0, 1.0, 2.0])
    >>> PermutationCrossEntropy()(torch.tensor([0.0, 2.0, 1.0]), labels)  # (10 + 10 + 0) / 3
    tensor(6.6667)
    """

    grades = False
    every_item = True

    def __init__(self, operator: SortOperator | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the cross-entropy of each list."""
        P = self.operator.permutation(scores, mask)
        check_rows(P.rows, scores.shape[-1])
        order = true_order(labels, scores, mask)
        w = real_weights(scores, mask, weights)
        log_p = finite_log(P.log_prob(order.expand(P.scores.shape)))
        loss = weighted_mean(-log_p, w.gather(-1, order))
        return torch.where(labels_differ(labels, mask), loss, 0 * loss)

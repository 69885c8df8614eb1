"""Cross-entropy between the true order and a relaxed permutation: the sorting task's loss."""

from functools import partial

import torch
from torch import Tensor

from ltr._shapes import largest, masked_fill
from ltr.losses._soft import finite_log, sort_operator, weighted_mean
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.operators import SoftSort, SortOperator, descending_order


def true_order(labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The items in order of falling label, equal labels in order of falling score: (..., n).

    Masked items come last. Cost: two sorts; no gradient.

    >>> true_order(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 9.0]))
    tensor([1, 2, 0])
    """
    by_score = descending_order(masked_fill(scores.detach(), mask), mask)
    keys = masked_fill(labels.detach(), mask).gather(-1, by_score)
    real = None if mask is None else mask.gather(-1, by_score)
    return by_score.gather(-1, descending_order(keys, real))


class PermutationCrossEntropy(RankingLoss):
    """Mean over the positions i of -log P[i, order_i]: the order by labels against P.

    Through `log_prob`, in logarithms, so that an item far from its place has a gradient, and
    without the matrix where the operator needs none. Items of equal labels may stand either way
    round: each takes the place that the scores give it among them.

    What unusual lists give: one item, all labels equal (every order is right), or all masked: 0,
    with a graph. Tied scores: what the operator gives them. An entry that the operator has as
    exactly 0 (sorting networks, hard permutations) counts 1e-38, without a gradient.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `SoftSort()`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make the mean over the positions a weighted one, by the item that belongs there.

    Raises:
        ValueError: an operator that has no permutation or, in `forward`, not a row for each item.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020. (Their 1e-20 inside the logarithm has no use here.)

    >>> labels = torch.tensor([0.0, 1.0, 2.0])
    >>> PermutationCrossEntropy()(torch.tensor([0.0, 2.0, 1.0]), labels)  # (10 + 10 + 0) / 3
    tensor(6.6667)
    """

    grades = False

    def __init__(self, operator: SortOperator | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The cross-entropy of each list."""
        return _cross_entropy(scores, labels, mask, weights, operator=self.operator)


def _cross_entropy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: SortOperator,
) -> Tensor:
    P = operator.permutation(scores, mask)
    n = scores.shape[-1]
    if P.rows != n:
        raise ValueError(f"operator must give {n} rows, one for each item, got {P.rows}")
    order = true_order(labels, scores, mask)
    w = masked_fill(torch.ones_like(scores) if weights is None else weights, mask)
    log_p = finite_log(P.log_prob(order.expand(P.scores.shape)))
    loss = weighted_mean(-log_p, w.gather(-1, order))
    highest = largest(masked_fill(labels, mask, -torch.inf))
    lowest = -largest(masked_fill(-labels, mask, -torch.inf))
    return torch.where(highest > lowest, loss, 0 * loss)


def permutation_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy with the true order, as a function. See `PermutationCrossEntropy`.

    >>> permutation_cross_entropy(torch.tensor([9.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    return loss_of_lists(
        partial(
            _cross_entropy,
            operator=sort_operator(operator, SoftSort, "permutation_cross_entropy"),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )

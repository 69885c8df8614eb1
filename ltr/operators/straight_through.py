"""Straight-through operators: hard results forward, soft gradients backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ltr.gains import with_exact_cutoff
from ltr.kernels.sorting import descending_order
from ltr.operators.base import RankOperator, SortOperator, check_operator, rank_steps
from ltr.operators.order import expected_ranks, hard_membership, hard_ranks
from ltr.operators.permutation import HardPermutation, SoftPermutation, check_rows
from ltr.operators.softsort import SoftSort
from ltr.operators.stochastic import Stochastic, needs_matrix
from ltr.shapes import check_whole, masked_fill, real_scores


def _straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    # Return the values of `hard` with the derivatives of `soft`, to any order.
    return hard.detach() + (soft - soft.detach())


@dataclass(eq=False, repr=False)
class StraightThroughPermutation(SoftPermutation, tensors=("hard_part", "soft_part")):
    """A permutation with the values of a hard permutation H and the gradients of a soft one, S.

    The matrix is H + (S - S.detach()). Products use the products of H and of S, so a matrix is
    built only if the products of S build one.

    Args:
        hard_part: H, the hard permutation.
        soft_part: S, the soft permutation, in the shape of H.

    >>> P = StraightThrough(SoftSort(0.5)).permutation(torch.tensor([1.0, 3.0, 2.0]))
    >>> P.dense()
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [1., 0., 0.]])
    """

    hard_part: SoftPermutation
    soft_part: SoftPermutation

    @property
    def scores(self) -> Tensor:  # type: ignore[override]
        """Return the scores (..., n) that were sorted."""
        return self.soft_part.scores

    @property
    def mask(self) -> Tensor | None:  # type: ignore[override]
        """Return the mask (..., n) bool, or None."""
        return self.soft_part.mask

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.soft_part.rows

    def top(self, k: int) -> StraightThroughPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        return StraightThroughPermutation(self.hard_part.top(k), self.soft_part.top(k))

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n): zeros and ones."""
        return _straight_through(self.hard_part.dense(), self.soft_part.dense())

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, 0 or -inf, with the gradient of log S."""
        soft = self.soft_part.log_dense()
        return _straight_through(
            self.hard_part.log_dense(), torch.where(soft == -torch.inf, 0.0, soft)
        )

    def hard(self) -> Tensor:
        """Return the order (..., n) int64."""
        return self.hard_part.hard()

    # Products with S.detach() are subtracted, so that the gradient of V or W comes from H alone.

    def _product(self, V: Tensor) -> Tensor:
        soft = self.soft_part.matmul(V) - self.soft_part.detach().matmul(V)
        return self.hard_part.matmul(V) + soft

    def _transposed_product(self, W: Tensor) -> Tensor:
        soft = self.soft_part.mT.matmul(W) - self.soft_part.detach().mT.matmul(W)
        return self.hard_part.mT.matmul(W) + soft


class StraightThrough(SortOperator):
    """An operator with hard values and the gradients of a soft operator.

    Ranks, permutations, discounts and memberships have exactly the values of `HardRank`. The
    `top_k` of a loss is an exact cutoff for the value and a smooth cutoff for the gradient. The
    matrix of a permutation P is H + (S - S.detach()), with a hard H and a soft S. In `P.mv(v)` the
    scores get the gradient of S, and v gets the gradient of H. Ties stay in list order. A NaN score
    changes only its own list.

    Args:
        operator: any `RankOperator`; `permutation` needs a `SortOperator`. Default: `SoftSort()`.
            To add noise, write `Stochastic(StraightThrough(operator))`.

    Cost: the cost of the operator, plus one sort.

    Raises:
        ValueError: the operator is a `Stochastic`; `permutation` is called, and the operator has no
            permutation.

    Reference: Bengio, Léonard and Courville, "Estimating or propagating gradients through
    stochastic neurons for conditional computation", 2013.

    >>> from ltr.operators import SigmoidRank
    >>> scores = torch.tensor([0.3, 0.7, 0.5], requires_grad=True)
    >>> ranks = StraightThrough(SigmoidRank(temperature=1.0))(scores)
    >>> ranks
    tensor([3., 1., 2.], grad_fn=<AddBackward0>)
    >>> ranks[0].backward()
    >>> scores.grad.sign()
    tensor([-1.,  1.,  1.])
    """

    spreads_nan = True

    def __init__(self, operator: RankOperator | None = None):
        super().__init__()
        if isinstance(operator, Stochastic):
            raise ValueError(
                "operator must not be a Stochastic, since the hard ranks would not see its noise: "
                "write Stochastic(StraightThrough(...))"
            )
        self.operator = SoftSort() if operator is None else check_operator(operator)

    @property
    def exact_cutoff(self) -> bool:
        """Return `exact_cutoff` of the operator, which decides the cutoff of the gradient."""
        return self.operator.exact_cutoff

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return hard ranks (..., n), with soft gradients; weights are refused."""
        return RankOperator.forward(self, scores, mask, weights)  # this does not build a matrix

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return hard ranks (..., n), with the gradient of the operator's ranks."""
        return _straight_through(expected_ranks(scores, mask), self.operator(scores, mask))

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the hard permutation (..., n, n), with soft gradients.

        Raises:
            ValueError: the operator has no permutation, or its permutation does not have n rows or
                does not list its tensors.
        """
        operator = needs_matrix(self.operator, "StraightThrough.permutation")
        soft = operator.permutation(scores, mask)
        n = scores.shape[-1]
        if not soft.is_registered:  # such a permutation cannot be detached
            name = type(soft).__name__
            raise ValueError(
                "operator must return a permutation that lists its tensors (tensors=...), got "
                f"{name}"
            )
        check_rows(soft.rows, n)
        hard = HardPermutation(descending_order(scores, mask), scores, mask)
        return StraightThroughPermutation(hard, soft)

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return `discount` of the hard ranks, with the gradient of the operator's discounts."""
        soft = self.operator.discounts(discount, scores, mask)
        exact = with_exact_cutoff(discount)  # only the gradient uses a smooth cutoff
        return _straight_through(masked_fill(exact(hard_ranks(scores, mask)), mask), soft)

    def top_k(self, k: int, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return membership in the first k, 0 or 1, with the gradient of the soft membership."""
        k = check_whole("k", k)
        soft = self.operator.top_k(k, scores, mask)
        return _straight_through(hard_membership(k, real_scores(scores, mask), mask), soft)

    def before(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the steps of the hard ranks, 0 or 1, with the gradient of the soft steps."""
        soft = self.operator.before(scores, mask)
        return _straight_through(rank_steps(hard_ranks(scores, mask), exact=True), soft)

"""Relaxed permutation matrices: what a sort operator gives, and what can be done with one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from ltr._shapes import count, hide, positions


class SoftPermutation:
    """A row-stochastic matrix (..., rows, n): row i says which item stands at position i.

    This class does everything from `log_dense`; a subclass that knows better overrides what it
    can do without the matrix. With a mask, the columns of masked items and the rows past the m
    real items are 0.

    Attributes:
        scores: (..., n) what was sorted, with 0 under the mask, float32 at least.
        mask: (..., n) bool, or None.

    >>> from ltr.operators import SoftSort
    >>> P = SoftSort(temperature=0.1).permutation(torch.tensor([0.0, 1.0]))
    >>> P.dense().round(decimals=3)
    tensor([[0., 1.],
            [1., 0.]])
    >>> P.ranks().round(decimals=3)
    tensor([2., 1.])
    """

    scores: Tensor
    mask: Tensor | None

    def log_dense(self) -> Tensor:
        """The logarithm of the matrix, (..., rows, n); -inf where the matrix is 0 by the mask."""
        raise NotImplementedError(f"{type(self).__name__} must define log_dense")

    def top(self, k: int) -> SoftPermutation:
        """The first k rows (all of them if there are fewer)."""
        raise NotImplementedError(f"{type(self).__name__} must define top")

    @property
    def rows(self) -> int:
        """The number of rows: n, or k after `top(k)`."""
        return self.log_dense().shape[-2]

    @property
    def shape(self) -> torch.Size:
        """(..., rows, n)."""
        return torch.Size((*self.scores.shape[:-1], self.rows, self.scores.shape[-1]))

    @property
    def mT(self) -> TransposedPermutation:
        """The transpose, (..., n, rows)."""
        return TransposedPermutation(self)

    def dense(self) -> Tensor:
        """The matrix itself, (..., rows, n): for reading, plots and tests."""
        return self.log_dense().exp()

    def mv(self, v: Tensor) -> Tensor:
        """P v: v (..., n) -> (..., rows)."""
        return (self.dense() * hide(v, self.mask).unsqueeze(-2)).sum(-1)

    def matmul(self, V: Tensor) -> Tensor:
        """P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        if self.mask is not None:
            V = hide(V, self.mask.unsqueeze(-1))
        return _matmul(self.dense(), V)

    def __matmul__(self, V: Tensor) -> Tensor:
        return self.matmul(V)

    def row_mask(self) -> Tensor | None:
        """(..., rows) bool: which rows stand for a real item; None without a mask."""
        if self.mask is None:
            return None
        return positions(self.scores, self.rows) <= count(self.scores, self.mask)

    def ranks(self) -> Tensor:
        """Soft ranks (..., n): the transpose applied to 1..n; m + 1 where masked.

        Raises:
            ValueError: after `top(k)`, when rows are missing.
        """
        self._needs_all_rows("ranks")
        places = positions(self.scores).expand(self.scores.shape)
        ranks = self.mT.mv(places)
        if self.mask is None:
            return ranks
        return torch.where(self.mask, ranks, count(ranks, self.mask) + 1)

    def sort(self) -> Tensor:
        """Soft sorted scores (..., rows), in falling order; 0 past the real items."""
        return self.mv(self.scores)

    def log_prob(self, order: Tensor) -> Tensor:
        """Log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0. Its negative mean is the sorting task's cross-entropy.
        """
        picked = self.log_dense().gather(-1, order.unsqueeze(-1)).squeeze(-1)
        return hide(picked, self.row_mask())

    def hard(self) -> Tensor:
        """The order (..., n) int64 nearest to this matrix, a permutation in every list.

        Row-wise argmax where that is a permutation, else the linear assignment of largest sum
        (scipy, on the CPU). Masked items come last, in the order of the list.

        Raises:
            ValueError: after `top(k)`, when rows are missing.
        """
        self._needs_all_rows("hard")
        return _assign(self.dense().detach(), self.mask)

    def _needs_all_rows(self, method: str) -> None:
        n = self.scores.shape[-1]
        if self.rows != n:
            raise ValueError(f"{method} needs all {n} rows of the permutation, got {self.rows}")


class TransposedPermutation:
    """The transpose of a `SoftPermutation`: (..., n, rows)."""

    def __init__(self, permutation: SoftPermutation):
        self.mT = permutation

    @property
    def shape(self) -> torch.Size:
        """(..., n, rows)."""
        *batch, rows, n = self.mT.shape
        return torch.Size((*batch, n, rows))

    def dense(self) -> Tensor:
        """The matrix itself, (..., n, rows)."""
        return self.mT.dense().mT

    def mv(self, w: Tensor) -> Tensor:
        """P^T w: w (..., rows) -> (..., n)."""
        w = hide(w, self.mT.row_mask())
        return (self.mT.dense() * w.unsqueeze(-1)).sum(-2)

    def matmul(self, W: Tensor) -> Tensor:
        """P^T W by torch.matmul's rules: W (..., rows, d) -> (..., n, d)."""
        rows = self.mT.row_mask()
        return _matmul(self.dense(), W if rows is None else hide(W, rows.unsqueeze(-1)))

    def __matmul__(self, W: Tensor) -> Tensor:
        return self.matmul(W)


class DensePermutation(SoftPermutation):
    """A `SoftPermutation` that keeps the logarithm of its matrix: O(rows n) memory.

    Args:
        log_matrix: (..., rows, n), each real row with a log-sum-exp of 0.
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order where the operator knows it (`hard` returns it).
    """

    def __init__(
        self,
        log_matrix: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        order: Tensor | None = None,
    ):
        self.log_matrix = log_matrix
        self.scores = scores
        self.mask = mask
        self.order = order

    def log_dense(self) -> Tensor:
        """The logarithm of the matrix, (..., rows, n)."""
        return self.log_matrix

    def top(self, k: int) -> DensePermutation:
        """The first k rows (all of them if there are fewer).

        >>> from ltr.operators import SoftSort
        >>> P = SoftSort(temperature=0.1).permutation(torch.tensor([0.3, 0.1, 0.2]))
        >>> P.top(2).shape
        torch.Size([2, 3])
        """
        if k < 1:
            raise ValueError(f"k must be >= 1, got {k}")
        return DensePermutation(self.log_matrix[..., :k, :], self.scores, self.mask, self.order)

    def hard(self) -> Tensor:
        """The order (..., n) int64: the operator's own where it is known."""
        self._needs_all_rows("hard")
        return super().hard() if self.order is None else self.order


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    # autocast would round the matrix and the ranks to half precision
    with torch.autocast(a.device.type, enabled=False):
        return torch.matmul(a, b.to(a.dtype))


def _assign(matrix: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        # the t-th masked item is certain to stand at position m + t
        place = (~mask).cumsum(-1) + count(matrix[..., 0, :], mask)
        certain = ~mask.unsqueeze(-2) & (positions(matrix).unsqueeze(-1) == place.unsqueeze(-2))
        matrix = matrix + certain.to(matrix.dtype)
    order = matrix.argmax(-1)
    n = order.shape[-1]
    places = torch.arange(n, device=order.device)
    broken = (order.sort(-1).values != places).any(-1).reshape(-1).nonzero().squeeze(-1)
    if broken.numel():
        from scipy.optimize import linear_sum_assignment

        order = order.clone()
        lists, orders = matrix.reshape(-1, n, n), order.view(-1, n)
        for i in broken.tolist():
            _, columns = linear_sum_assignment(lists[i].nan_to_num().cpu().numpy(), maximize=True)
            orders[i] = torch.as_tensor(columns, device=order.device)
    return order


def _flatten(P: DensePermutation) -> tuple[list[Tensor], tuple[bool, bool]]:
    # vmap refuses a leaf that is None, so the context says which are there
    present = (P.mask is not None, P.order is not None)
    return [t for t in (P.log_matrix, P.scores, P.mask, P.order) if t is not None], present


def _unflatten(tensors: Iterable[Tensor], present: tuple[bool, bool]) -> DensePermutation:
    left = iter(tensors)
    log_matrix, scores = next(left), next(left)
    mask, order = (next(left) if there else None for there in present)
    return DensePermutation(log_matrix, scores, mask, order)


register_pytree_node(
    DensePermutation,
    _flatten,
    _unflatten,
    serialized_type_name="ltr.operators.DensePermutation",
)

"""Soft permutation matrices, which the sort operators return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

# This function is private, but `torch.export.register_dataclass`, the public one, turns plain
# numbers into leaves.
from torch.utils._pytree import register_pytree_node

from ltr.operators.order import inverse, nan_in_list
from ltr.shapes import check_whole, count, full_precision, masked_fill, positions, with_masked


class _Fields(NamedTuple):
    """A class of permutations, and the names of its tensors and of its plain values."""

    owner: type[SoftPermutation]
    tensors: tuple[str, ...]
    static: tuple[str, ...]


class SoftPermutation:
    """A soft permutation matrix: row i has, for each item, the probability of being at position i.

    The matrix is (..., rows, n), and its rows sum to 1. This class computes everything from
    `log_dense`. A subclass overrides the methods that it can compute without the matrix; for
    products it overrides `_product` and `_transposed_product`. A subclass that lists its tensors is
    a pytree node, so functions under `vmap`, `torch.compile` and `torch.export` can return such a
    permutation, and `detach` works. With a mask, the columns of masked items and the rows past the
    m real items are 0.

    Args (of a subclass, after its bases):
        tensors: names of attributes that hold a tensor, a permutation, None or a tuple of tensors.
            The constructor takes all of `tensors` and `static` by name, and only stores them.
        static: names of attributes that hold plain numbers, strings or None.

    Attributes:
        scores: (..., n), the scores that were sorted, 0 under the mask, at least float32.
        mask: (..., n) bool, or None.

    >>> from ltr.operators import SoftSort
    >>> P = SoftSort(temperature=0.1).permutation(torch.tensor([0.0, 1.0]))
    >>> P.dense().round(decimals=3)
    tensor([[0., 1.],
            [1., 0.]])
    >>> P.ranks().round(decimals=3)
    tensor([2., 1.])
    >>> from ltr.operators import DensePermutation
    >>> class Named(DensePermutation, tensors=("log_matrix", "scores", "mask", "order")):
    ...     pass
    """

    scores: Tensor
    mask: Tensor | None
    _fields: ClassVar[_Fields | None] = None

    def __init_subclass__(
        cls, tensors: Sequence[str] | None = None, static: Sequence[str] = ()
    ) -> None:
        super().__init_subclass__()
        if tensors is not None:
            cls._fields = _Fields(cls, tuple(tensors), tuple(static))
            _register(cls._fields)

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n); -inf for masked elements."""
        raise NotImplementedError(f"{type(self).__name__} must define log_dense")

    def top(self, k: int) -> SoftPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        raise NotImplementedError(f"{type(self).__name__} must define top")

    @property
    def is_registered(self) -> bool:
        """Return whether the class lists its tensors, so that the permutation can be detached."""
        return self._fields is not None and self._fields.owner is type(self)

    def detach(self) -> Self:
        """Return the permutation without gradients.

        Raises:
            ValueError: the class does not list its tensors.
        """
        fields = self._fields
        if fields is None or fields.owner is not type(self):
            raise ValueError(
                f"{type(self).__name__} must list its tensors (tensors=...) to be detached"
            )
        return self._replaced(**{name: _detached(getattr(self, name)) for name in fields.tensors})

    def _replaced(self, **changes: Any) -> Any:
        """Return the permutation with some tensors or plain values replaced, by name."""
        fields = self._fields
        assert fields is not None
        same = [name for name in (*fields.tensors, *fields.static) if name not in changes]
        return fields.owner(**changes, **{name: getattr(self, name) for name in same})

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.log_dense().shape[-2]

    @property
    def shape(self) -> torch.Size:
        """Return the shape (..., rows, n)."""
        return torch.Size((*self.scores.shape[:-1], self.rows, self.scores.shape[-1]))

    @property
    def mT(self) -> TransposedPermutation:
        """Return the transpose, (..., n, rows)."""
        return TransposedPermutation(self)

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n): for inspection, plots and tests."""
        return self.log_dense().exp()

    def mv(self, v: Tensor) -> Tensor:
        """Return P v, in the dtype of the scores: v (..., n) -> (..., rows)."""
        check_axis("v", v, -1, self.scores.shape[-1])
        return self._product(self._typed(v.unsqueeze(-1), self.mask)).squeeze(-1)

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        check_axis("V", V, -2, self.scores.shape[-1])
        return self.mv(V) if V.dim() == 1 else self._product(self._typed(V, self.mask))

    def __matmul__(self, V: Tensor) -> Tensor:
        return self.matmul(V)

    def row_mask(self) -> Tensor | None:
        """Return which rows belong to a real item, (..., rows) bool; None without a mask."""
        if self.mask is None:
            return None
        return positions(self.scores, self.rows) <= count(self.scores, self.mask)

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): the transpose applied to 1..n; m + 1 where masked.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        self._needs_all_rows("ranks")
        position = positions(self.scores).expand(self.scores.shape)
        return with_masked(self.mT.mv(position), self.mask)

    def sort(self) -> Tensor:
        """Return soft sorted scores (..., rows), in descending order; 0 past the real items."""
        return self.mv(self.scores)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0. Minus the mean of the results is the cross-entropy loss of
        the sorting task.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_order(order, self.rows)
        picked = take_along(self.log_dense(), order.unsqueeze(-1), -1).squeeze(-1)
        return masked_fill(picked, self.row_mask())

    def hard(self) -> Tensor:
        """Return the order (..., n) int64 nearest to the matrix: a permutation of every list.

        The order is the linear assignment with the largest sum of elements (scipy, on the CPU). If
        the row-wise argmax is a permutation, the order is this argmax. Masked items come last, in
        the order of the list.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        self._needs_all_rows("hard")
        return assignment(self.dense(), self.row_mask(), self.mask)

    def _product(self, V: Tensor) -> Tensor:
        # Return P V. The columns V (..., n, d) have the dtype of the scores and are 0 under the
        # mask.
        return matmul(self.dense(), V)

    def _transposed_product(self, W: Tensor) -> Tensor:
        # Return P^T W. The columns W (..., rows, d) have the dtype of the scores and are 0 past the
        # real rows.
        return matmul(W.mT, self.dense()).mT  # the gradient then has the layout of the matrix

    def _typed(self, columns: Tensor, real: Tensor | None) -> Tensor:
        columns = columns.to(self.scores.dtype)
        return columns if real is None else masked_fill(columns, real.unsqueeze(-1))

    def _needs_all_rows(self, method: str) -> None:
        n = self.scores.shape[-1]
        if self.rows != n:
            raise ValueError(f"{method} needs all {n} rows of the permutation, got {self.rows}")


class TransposedPermutation:
    """The transpose of a `SoftPermutation`: (..., n, rows).

    >>> P = HardPermutation(torch.tensor([1, 2, 0]), torch.tensor([0.1, 0.9, 0.4]))
    >>> P.mT.mv(torch.tensor([10.0, 20.0, 30.0]))
    tensor([30., 10., 20.])
    """

    def __init__(self, permutation: SoftPermutation):
        self.mT = permutation

    @property
    def shape(self) -> torch.Size:
        """Return the shape (..., n, rows)."""
        *batch, rows, n = self.mT.shape
        return torch.Size((*batch, n, rows))

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., n, rows)."""
        return self.mT.dense().mT

    def mv(self, w: Tensor) -> Tensor:
        """Return P^T w: w (..., rows) -> (..., n)."""
        check_axis("w", w, -1, self.mT.rows)
        return self.matmul(w.unsqueeze(-1)).squeeze(-1)

    def matmul(self, W: Tensor) -> Tensor:
        """Return P^T W by torch.matmul's rules: W (..., rows, d) -> (..., n, d)."""
        check_axis("W", W, -2, self.mT.rows)
        if W.dim() == 1:
            return self.mv(W)
        return self.mT._transposed_product(self.mT._typed(W, self.mT.row_mask()))

    def __matmul__(self, W: Tensor) -> Tensor:
        return self.matmul(W)


def check_axis(name: str, x: Tensor, dim: int, size: int) -> None:
    """Raise a ValueError unless x is a tensor with `size` items along `dim`.

    A vector counts as a matrix with one column, as in `torch.matmul`.
    """
    if not isinstance(x, Tensor) or not x.dim() or x.shape[max(dim, -x.dim())] != size:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        wanted = f"(..., {size})" if dim == -1 else f"(..., {size}, d)"
        raise ValueError(f"{name} must be a tensor {wanted}, got {got}")


def check_order(order: Tensor, rows: int) -> None:
    """Raise a ValueError unless `order` is an int64 tensor (..., rows)."""
    check_axis("order", order, -1, rows)
    if order.dtype != torch.int64:
        raise ValueError(f"order must be int64, got {order.dtype}")


def check_rows(rows: int, n: int) -> None:
    """Raise `ValueError` unless the operator's matrix has a row for each of n items.

    >>> check_rows(3, 5)
    Traceback (most recent call last):
    ValueError: operator must give 5 rows, one for each item, got 3
    """
    if rows != n:
        raise ValueError(f"operator must give {n} rows, one for each item, got {rows}")


def take_along(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """Return `torch.take_along_dim` for a negative dim; x or index may lack batch axes."""
    if x.shape == index.shape:
        return x.gather(dim, index)
    axes = max(x.dim(), index.dim())
    x, index = (t[(None,) * (axes - t.dim())] for t in (x, index))
    return torch.take_along_dim(x, index, dim)


def rows_of_top(P: SoftPermutation, k: int) -> int:
    """Return how many rows `P.top(k)` has.

    >>> from ltr.operators import SoftSort
    >>> rows_of_top(SoftSort().permutation(torch.tensor([0.3, 0.1, 0.2])), 9)
    3
    """
    return min(check_whole("k", k), P.rows)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b in the dtype of a, even under autocast."""
    b = b.to(a.dtype)
    # For one column or one row, torch.matmul takes up to twice as long as a sum if lists are short.
    if b.shape[-1] == 1:
        return (a * b.mT).sum(-1, keepdim=True)
    if a.shape[-2] == 1:
        return (a.mT * b).sum(-2, keepdim=True)
    with full_precision(a):
        return torch.matmul(a, b)


def assignment(matrix: Tensor, row_mask: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return the column assigned to each row, (..., n) int64, for the largest sum of elements.

    The matrix is (..., n, n), and the masks are (..., n). scipy computes the assignment on the CPU.
    Real rows get real columns; all other rows get the other columns in order.

    >>> assignment(torch.tensor([[0.0, 2.0], [1.0, 2.0]]), None, None)
    tensor([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    n = matrix.shape[-1]
    if matrix.numel() == 0:
        return matrix.new_empty(matrix.shape[:-1], dtype=torch.int64)
    real = torch.ones(matrix.shape[:-1], dtype=torch.bool)
    rows = (real if row_mask is None else row_mask.cpu()).reshape(-1, n)
    columns = (real if mask is None else mask.cpu()).reshape(-1, n)
    lists = matrix.detach().double().nan_to_num(nan=0.0, posinf=None, neginf=-torch.inf).cpu()
    order = torch.empty_like(rows, dtype=torch.int64)
    for i, matrix_of_list in enumerate(lists.reshape(-1, n, n)):
        row, column = rows[i].nonzero().squeeze(-1), columns[i].nonzero().squeeze(-1)
        r, c = linear_sum_assignment(matrix_of_list[row][:, column].numpy(), maximize=True)
        matched_rows, matched = row[r], column[c]
        free = torch.ones(2, n, dtype=torch.bool)
        free[0, matched_rows] = False
        free[1, matched] = False
        order[i, matched_rows] = matched
        order[i, free[0]] = free[1].nonzero().squeeze(-1)
    return order.view(matrix.shape[:-1]).to(matrix.device)


def _detached(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_detached(x) for x in value)
    return None if value is None else value.detach()


def _register(fields: _Fields) -> None:
    # Register the class of `fields` as a pytree node.
    def flatten(P: SoftPermutation) -> tuple[list[Tensor], list[Any]]:
        # vmap refuses a leaf that is None, so the context says which leaves are present.
        leaves: list[Tensor] = []
        kinds: list[int | str | None] = []
        for name in fields.tensors:
            value = getattr(P, name)
            if isinstance(value, tuple):
                kinds.append(len(value))
                leaves.extend(value)
            elif value is None:
                kinds.append(None)
            else:
                kinds.append("tensor")
                leaves.append(value)
        return leaves, [kinds, [getattr(P, name) for name in fields.static]]

    def unflatten(leaves: Iterable[Tensor], context: list[Any]) -> SoftPermutation:
        left, (kinds, values) = iter(leaves), context
        arguments = dict(zip(fields.static, values, strict=True))
        for name, kind in zip(fields.tensors, kinds, strict=True):
            if kind is None:
                arguments[name] = None
            elif kind == "tensor":
                arguments[name] = next(left)
            else:
                arguments[name] = tuple(next(left) for _ in range(kind))
        return fields.owner(**arguments)

    name = f"ltr.operators.{fields.owner.__name__}"
    register_pytree_node(fields.owner, flatten, unflatten, serialized_type_name=name)


@dataclass(eq=False, repr=False)
class DensePermutation(SoftPermutation, tensors=("log_matrix", "scores", "mask", "order")):
    """A `SoftPermutation` that keeps the logarithm of its matrix: O(rows * n) memory.

    Args:
        log_matrix: (..., rows, n), each real row with a log-sum-exp of 0.
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, which `hard` returns; None if the operator does not
            know it.

    >>> import torch
    >>> matrix = torch.tensor([[0.1, 0.9], [0.9, 0.1]])
    >>> DensePermutation(matrix.log(), torch.tensor([1.0, 2.0])).sort()
    tensor([1.9000, 1.1000])
    """

    log_matrix: Tensor
    scores: Tensor
    mask: Tensor | None = None
    order: Tensor | None = None

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n)."""
        return self.log_matrix

    def top(self, k: int) -> DensePermutation:
        """Return the first k rows, or all rows if there are fewer.

        >>> import torch
        >>> from ltr.operators import SoftSort
        >>> P = SoftSort(temperature=0.1).permutation(torch.tensor([0.3, 0.1, 0.2]))
        >>> P.top(2).shape
        torch.Size([2, 3])
        """
        return self._replaced(log_matrix=self.log_matrix[..., : check_whole("k", k), :])

    def hard(self) -> Tensor:
        """Return the order (..., n) int64: `order`, or the linear assignment if `order` is None."""
        self._needs_all_rows("hard")
        return super().hard() if self.order is None else self.order


@dataclass(eq=False, repr=False)
class HardPermutation(SoftPermutation, tensors=("order", "scores", "mask"), static=("num_rows",)):
    """A hard permutation, stored as an order: every product is a gather, in O(n).

    A list with a NaN score gives NaN everywhere.

    Args:
        order: (..., n) int64: item `order[..., i]` is at position i; masked items come last.
        scores: (..., n).
        mask: (..., n) bool, or None.
        num_rows: the number of rows, or None for all n.

    >>> P = HardPermutation(torch.tensor([1, 2, 0]), torch.tensor([0.1, 0.9, 0.4]))
    >>> P.sort()
    tensor([0.9000, 0.4000, 0.1000])
    >>> P.ranks()
    tensor([3., 1., 2.])
    """

    order: Tensor
    scores: Tensor
    mask: Tensor | None = None
    num_rows: int | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.scores.shape[-1] if self.num_rows is None else self.num_rows

    def top(self, k: int) -> HardPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        return self._replaced(num_rows=rows_of_top(self, k))

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n): 0 or -inf."""
        n = self.scores.shape[-1]
        items = torch.arange(n, device=self.scores.device)
        chosen = self.order[..., : self.rows].unsqueeze(-1) == items
        log_p = nan_in_list(
            torch.where(chosen, 0.0, -torch.inf).to(self.scores.dtype), self.scores.unsqueeze(-2)
        )
        rows = self.row_mask()
        return log_p if rows is None else masked_fill(log_p, rows.unsqueeze(-1), -torch.inf)

    def hard(self) -> Tensor:
        """Return the order (..., n) int64."""
        self._needs_all_rows("hard")
        return self.order

    def _product(self, V: Tensor) -> Tensor:
        return nan_in_list(
            take_along(V, self.order[..., : self.rows].unsqueeze(-1), -2), self.scores.unsqueeze(-2)
        )

    def _transposed_product(self, W: Tensor) -> Tensor:
        W = pad_rows(W, self)
        return nan_in_list(
            take_along(W, inverse(self.order).unsqueeze(-1), -2), self.scores.unsqueeze(-2)
        )


def pad_rows(W: Tensor, P: SoftPermutation) -> Tensor:
    """Return W (..., rows, d) as (..., n, d), with zeros for the rows that `top` left out."""
    return torch.nn.functional.pad(W, (0, 0, 0, P.scores.shape[-1] - P.rows))

"""Soft permutations that store scores instead of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import in_order
from ltr.kernels.named import gaussian, laplace, sign
from ltr.kernels.softsort_ranks import compiled_ranks, fused
from ltr.kernels.sorting import descending_order, in_list_order
from ltr.kernels.sums import kernel_sums, prefers_dense
from ltr.operators.distributions import abs_power
from ltr.operators.order import descending, descending_scores
from ltr.operators.permutation import (
    SoftPermutation,
    check_order,
    matmul,
    pad_rows,
    rows_of_top,
    take_along,
)
from ltr.operators.tiles import MOST_ELEMENTS, Tiles, over_tiles
from ltr.shapes import below_largest, count, masked_fill, positions, widened

Given = Sequence[tuple[Tensor, int]]
"""Tensors, each with the number of its own last axes; batch axes come before those axes."""


@dataclass(eq=False, repr=False)
class LazyPermutation(SoftPermutation):
    """Base class of soft permutations by row softmax, which store scores instead of a matrix.

    Products build the whole matrix if it is small. Otherwise they build some rows at a time, in
    O(n) memory, and build these rows again for the derivatives. A subclass defines `row_numbers`,
    `item_numbers` and `logits_of`. It overrides the products if it has a faster way for long lists.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order. If None, the scores are sorted each time that an
            order is needed; `ordered` sorts them once. The matrix of a short list does not need the
            order.
        temperature: > 0.
        num_rows: the number of rows, or None for all n.
    """

    scores: Tensor
    mask: Tensor | None
    order: Tensor | None
    temperature: float
    num_rows: int | None = field(default=None, kw_only=True)

    def ordered(self) -> Self:
        """Return the permutation, with its order if the products need an order."""
        return self if self.is_short else self._replaced(order=self.hard_order())

    def hard_order(self) -> Tensor:
        """Return the hard order, (..., n) int64."""
        return descending_order(self.scores, self.mask) if self.order is None else self.order

    def row_numbers(self) -> Tensor:
        """Return the value on which the logits of each row depend, (..., rows)."""
        raise NotImplementedError(f"{type(self).__name__} must define row_numbers")

    def item_numbers(self) -> list[Tensor]:
        """Return the values on which the logits of each item depend, (..., n) each."""
        raise NotImplementedError(f"{type(self).__name__} must define item_numbers")

    def logits_of(self, rows: Tensor, *items: Tensor) -> Tensor:
        """Return the logits (..., r, n) for some row values (..., r) and the values of all items.

        The logits may have a wider dtype than the scores. The mask is ignored.
        """
        raise NotImplementedError(f"{type(self).__name__} must define logits_of")

    @property
    def is_short(self) -> bool:
        """Return whether the products build the matrix."""
        return True

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n), in O(n^2) memory."""
        return self._matrix(self.row_mask(), self.mask, self.row_numbers(), *self.item_numbers())

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n), in O(n^2) memory."""
        given = self.row_numbers(), *self.item_numbers()
        return self._matrix(self.row_mask(), self.mask, *given, log=True)

    def _matrix(
        self, real: Tensor | None, mask: Tensor | None, rows: Tensor, *items: Tensor, log=False
    ) -> Tensor:
        # Return some rows of the matrix, or their logarithm. `real` (..., r) is True for rows of
        # real items.
        logits = self.logits_of(rows, *items)
        real = None if real is None else real.unsqueeze(-1)
        if mask is not None and real is not None:
            # Rows past the real items keep finite logits until the softmax is done.
            logits = torch.where(mask.unsqueeze(-2) | ~real, logits, -torch.inf)
        if logits.dtype != self.scores.dtype and logits.shape[-1]:
            logits = (logits - logits.detach().amax(-1, keepdim=True)).to(self.scores.dtype)
        if log:
            return masked_fill(torch.log_softmax(logits, -1), real, -torch.inf)
        return masked_fill(torch.softmax(logits, -1), real)

    def _product(self, V: Tensor) -> Tensor:
        return self._over_rows(lambda P, V: matmul(P, V).mT, items=[(V, 2)]).mT

    def _transposed_product(self, W: Tensor) -> Tensor:
        # This computes (W.mT P).mT: with P.mT W, the gradient of P would have the layout of P.mT
        # and would be copied.
        given = [(W.mT, 2)]
        return self._over_rows(lambda P, W: matmul(W, P).mT, rows=given, summed=True)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_order(order, self.rows)

        def picked(log_p: Tensor, order: Tensor) -> Tensor:
            return log_p.gather(-1, order.unsqueeze(-1)).squeeze(-1)

        log_p = self._over_rows(picked, rows=[(order, 1)], log=True)
        return masked_fill(log_p, self.row_mask())

    def _over_rows(
        self,
        compute: Callable[[Tensor, Tensor], Tensor],
        *,
        items: Given = (),
        rows: Given = (),
        summed: bool = False,
        log: bool = False,
    ) -> Tensor:
        # Call `compute` for each tile of rows of the matrix, with the tensor in `items`, which is
        # passed whole, or the tensor in `rows`, whose last axis is split in the same way as the
        # rows. Sum the results over the tiles, or join them.
        x, own = (*items, *rows)[0]
        whole_matrix = self.scores.numel() * self.rows <= MOST_ELEMENTS
        if self.is_short and whole_matrix and x.shape[: x.dim() - own] == self.scores.shape[:-1]:
            # For so small a matrix, tiles would only cost time.
            return compute(self.log_dense() if log else self.dense(), x)
        numbers, real = self.item_numbers(), self.row_mask()
        masks, has_real = [] if self.mask is None else [self.mask], real is not None
        whole = [*((x, 1) for x in (*masks, *numbers)), *items]
        tiled = [(self.row_numbers(), 1), *([] if real is None else [(real, 1)]), *rows]
        batch = torch.broadcast_shapes(*(x.shape[: x.dim() - own] for x, own in (*whole, *tiled)))
        given = [x.expand(*batch, *x.shape[x.dim() - own :]) for x, own in (*whole, *tiled)]

        def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
            numbered, (row, *others) = list(whole), tiled
            mask = numbered.pop(0) if masks else None
            known = others.pop(0) if has_real else None
            more = others or [numbered.pop()]
            results = [compute(self._matrix(known, mask, row, *numbered, log=log), *more)]
            return (results, []) if summed else ([], results)

        task = Tiles(part, len(whole), int(summed), int(not summed), self.scores.shape[-1])
        return over_tiles(task, *given, most=MOST_ELEMENTS if self.is_short else 0)[0]

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.scores.shape[-1] if self.num_rows is None else self.num_rows

    def top(self, k: int) -> Self:
        """Return the first k rows, or all rows if there are fewer."""
        return self._replaced(num_rows=rows_of_top(self, k))

    def hard(self) -> Tensor:
        """Return the order (..., n) int64."""
        self._needs_all_rows("hard")
        return self.hard_order()


@dataclass(eq=False, repr=False)
class PowerPermutation(
    LazyPermutation,
    tensors=("scores", "mask", "order"),
    static=("temperature", "power", "num_rows"),
):
    """The matrix of `SoftSort` with any power: softmaxes of -|s_[i] - s_j|^power / temperature.

    Here s_[i] is the i-th highest score.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        power: > 0.
        num_rows: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = PowerPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2, power=3.0)
    >>> P.ranks()
    tensor([2.3110, 1.1834, 2.5056])
    """

    power: float

    def row_numbers(self) -> Tensor:
        """Return the scores in descending order, (..., rows)."""
        tops = descending_scores(self.scores, self.mask)
        return masked_fill(tops[..., : self.rows], self.row_mask())

    def item_numbers(self) -> list[Tensor]:
        """Return the scores, (..., n)."""
        return [self.scores]

    def logits_of(self, rows: Tensor, *items: Tensor) -> Tensor:
        """Return -distance / temperature, (..., r, n)."""
        return (
            abs_power(rows.unsqueeze(-1) - items[0].unsqueeze(-2), self.power) / -self.temperature
        )


class KernelPermutation(
    PowerPermutation,
    tensors=("scores", "mask", "order"),
    static=("temperature", "power", "num_rows"),
):
    """The matrix of `SoftSort` with power 1 or 2; for long lists, its products do not build it.

    In sorted order the matrix is diag(1 / c) K, with K_ij = exp(-|t_i - t_j|^power / temperature)
    for the sorted scores t, and c = K 1. Products, ranks, sorted values and `log_prob` cost O(n)
    time and memory after the sort, and so do derivatives of any order. The matrix is built only by
    `log_dense`, by `dense` and, for short lists (`ltr.kernels.use`), by `log_prob` and the
    products. A list with a NaN score gives NaN. An infinite score makes all ranks of its list NaN,
    and at least one row of the matrix.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        power: 1 or 2.
        num_rows: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = KernelPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2, power=1)
    >>> P.ranks()
    tensor([2.7751, 1.0788, 2.1461])
    """

    @property
    def is_short(self) -> bool:
        """Return whether lists of this shape use the matrix (`ltr.kernels.use`)."""
        return prefers_dense(f"softsort {self.power:g}", self.scores.shape)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_order(order, self.rows)
        if self.is_short:
            return super().log_prob(order)
        points = self._points()
        picked = take_along(self.scores, order, -1)
        gaps = abs_power(points[..., : self.rows] - picked, self.power)
        log_p = -gaps / self.temperature - self._normalizers(points)[..., : self.rows].log()
        if self.mask is not None:  # a masked item has probability 0
            log_p = torch.where(take_along(self.mask, order, -1), log_p, -torch.inf)
        return masked_fill(log_p, self.row_mask())

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): the transpose applied to 1..n; m + 1 where masked.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        if self.power != 1 or self.num_rows is not None or not fused(self.scores):
            return SoftPermutation.ranks(self.ordered())
        return compiled_ranks(self.scores, self.mask, self.order, self.temperature)

    def _points(self) -> Tensor:
        return descending(self.scores, self.hard_order(), self.mask)

    def _sums(self, points: Tensor, columns: list[Tensor]) -> tuple[Tensor, ...]:
        kernel, scale = kernel_of(self.power, self.temperature, points.dtype)
        outputs = [(i, kernel) for i in range(len(columns))]
        batch = torch.broadcast_shapes(points.shape, *(column.shape for column in columns))
        columns = [column.expand(batch) for column in columns]
        lists = in_order(
            points.expand(batch), None if self.mask is None else self.mask.expand(batch)
        )
        return kernel_sums(points.expand(batch), columns, outputs, lists, scale)

    def _normalizers(self, points: Tensor) -> Tensor:
        # Return c (..., n), which is at least 1 for real items and 1 for others.
        (c,) = self._sums(points, [points.new_ones(())])
        return c if self.mask is None else torch.where(self._real(points), c, 1.0)

    def _real(self, points: Tensor) -> Tensor:
        return positions(points) <= count(points, self.mask)

    def _product(self, V: Tensor) -> Tensor:
        if self.is_short:
            return super()._product(V)
        if not V.shape[-1]:
            return self._product(V.sum(-1, keepdim=True))[..., :0]
        points = self._points()
        columns = [take_along(v, self.hard_order(), -1) for v in V.unbind(-1)]
        *products, c = self._sums(points, [*columns, points.new_ones(())])
        if self.mask is not None:
            c = torch.where(self._real(points), c, 1.0)
        return torch.stack([(y / c)[..., : self.rows] for y in products], -1)

    def _transposed_product(self, W: Tensor) -> Tensor:
        if self.is_short:
            return super()._transposed_product(W)
        if not W.shape[-1]:
            return self._transposed_product(W.sum(-1, keepdim=True))[..., :0]
        points = self._points()
        c = self._normalizers(points)
        products = self._sums(points, [w / c for w in pad_rows(W, self).unbind(-1)])
        return to_items(torch.stack(products, -1), self.hard_order())


def to_items(Y: Tensor, order: Tensor) -> Tensor:
    """Move the rows of Y (..., n, d) from descending order to the order of the list."""
    return torch.empty_like(Y).scatter(-2, order.unsqueeze(-1).expand(Y.shape), Y)


def kernel_of(power: float, temperature: float, dtype: torch.dtype) -> tuple[Kernel, float]:
    """Return the kernel exp(-|x|^power) and its scale, temperature^(1/power), for power 1 or 2.

    >>> kernel_of(2, 0.01, torch.float32)[1]
    0.1
    """
    if power == 1:
        return laplace(), temperature
    return gaussian(dtype), temperature**0.5


def sums_of_distances(points: Tensor, m: Tensor) -> Tensor:
    """Return the sums over k of |t_j - t_k| for descending points t (..., n), in O(n) time.

    All terms are multiples of gaps between neighbors, and no term is negative. So no digits cancel,
    and tied points have equal sums.

    Args:
        points: (..., n), descending; all points after the m-th are equal to the m-th.
        m: (..., 1), the number of real points, in the dtype of the points.

    >>> sums_of_distances(torch.tensor([5.0, 2.0, 2.0]), torch.tensor([3.0]))
    tensor([6., 3., 3.])
    """
    above = positions(points)  # this is the number of points above the gap after each point
    before = (points.roll(1, -1) - points) * (above - 1)  # this is 0 at the first point
    after = (points - points.roll(-1, -1)) * (m - above).clamp(min=0)
    return before.cumsum(-1) + after.flip(-1).cumsum(-1).flip(-1)


class NeuralSortPermutation(
    LazyPermutation, tensors=("scores", "mask", "order"), static=("temperature", "num_rows")
):
    """The matrix of `NeuralSort`; for long lists, its products do not store it.

    Products, ranks, sorted values and `log_prob` cost O(n^2) time and O(n) memory, as do
    derivatives of any order. A list with a score that is not finite gives NaN.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        num_rows: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = NeuralSortPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2)
    >>> P.ranks()
    tensor([2.7952, 1.0494, 2.1553])
    """

    def row_numbers(self) -> Tensor:
        """Return m + 1 - 2 i for the rows i = 1, 2, ..., with m real items; in float64."""
        s = self.scores
        return widened(count(s, self.mask) + 1 - 2 * positions(s, self.rows))

    def item_numbers(self) -> list[Tensor]:
        """Return the scores minus the largest, and A_j = sum over k of |s_j - s_k|, in float64.

        The two terms of a logit are about n times as large as the differences between logits, so
        float32 would keep too few digits. Shifting all scores adds the same value to all logits of
        a row, so the softmax does not change.
        """
        s = below_largest(widened(self.scores), self.mask)
        if prefers_dense("neuralsort", s.shape):
            gaps = (s.unsqueeze(-1) - s.unsqueeze(-2)).abs()
            mask = None if self.mask is None else self.mask.unsqueeze(-2)
            return [s, masked_fill(gaps, mask).sum(-1)]
        order = self.hard_order()
        points = descending(s, order, self.mask)
        fixed, ones = points.detach(), points.new_ones(()).expand(points.shape)
        # `change` has the value 0. It gives the result the derivatives of the sums of
        # sign(s_j - s_k) (s_j - s_k), with sign(0) = 0.
        change = points - fixed
        outputs = [(0, sign()), (1, sign())]
        balance, others = kernel_sums(fixed, [ones, change], outputs, in_order(fixed, self.mask))
        sums = sums_of_distances(fixed, count(fixed, self.mask)) + (balance * change - others)
        return [s, in_list_order(sums, order)]

    def logits_of(self, rows: Tensor, *items: Tensor) -> Tensor:
        """Return the logits (..., r, n) in float64."""
        (s, sums), tau = items, self.temperature
        return torch.addcmul(
            sums.unsqueeze(-2) / -tau, rows.unsqueeze(-1), s.unsqueeze(-2), value=1 / tau
        )

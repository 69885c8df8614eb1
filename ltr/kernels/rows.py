"""Row-softmax matrices of sorted scores, a tile of rows at a time: the bare operations.

With falling points t_0 >= t_1 >= ..., the matrix P has the rows softmax over j of L_ij, where

- power p:     L_ij = -|t_i - t_j|^p / temperature (SoftSort);
- power None:  L_ij = -sum over the gaps g_l = t_l - t_(l+1) between i and j of (2 c + 1) g_l, the
  gaps counted by c = 0, 1, ... from i outwards, / temperature (NeuralSort).

Both are 0 at j = i and fall to each side, so a row ends where they pass a cut: a band. Everything
is a sum over rows or over columns of P times a weight. A weight is named by two whole numbers:
(u, v) is sign(x)^v |x|^(u p - v), x = t_i - t_j (0 at x = 0), for a power, and (j - i)^u else.
These are closed under differentiation, see `ltr.kernels.rows_function`.
"""

from typing import Any

import torch
from torch import Tensor

from ltr.kernels._rows_torch import (
    flat,
    tiled_row_log_sums,
    tiled_row_products,
    tiled_row_vjp,
)
from ltr.kernels.implementations import implementation

torch.library.define(
    "ltr::row_products",
    "(Tensor points, Tensor lengths, Tensor columns, float temperature, float? power, int rows, "
    "int[] blocks, bool transposed) -> Tensor",
)
torch.library.define(
    "ltr::row_log_sums",
    "(Tensor points, Tensor lengths, float temperature, float? power, int rows) -> Tensor",
)
torch.library.define(
    "ltr::row_vjp",
    "(Tensor points, Tensor lengths, Tensor G, Tensor V, float temperature, float? power, "
    "int rows, int[] blocks) -> Tensor",
)


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    power: float | None,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Sums over j of w_ij P_ij V_jc, or with `transposed` over i of w_ij P_ij W_ic.

    Args:
        points: (..., n), falling; those past the real ones are finite.
        lengths: (...) int64, how many of them are real. The other rows and columns of P are 0.
        columns: V (..., n, d), or W (..., rows, d) if transposed.
        temperature: > 0.
        power: > 0, or None for NeuralSort.
        rows: only the first so many rows of P count.
        blocks: (size, u, v) of each block of neighboring columns, flattened: their weight.
        transposed: sum over rows.

    Returns:
        (..., rows, d), or (..., n, d) if transposed. A list with points that are not finite gives
        NaN or nonsense. Cost: O(n w d) time for rows w entries wide, or O(n d) for NeuralSort's
        wide rows, and O(n d) memory. It has no derivatives.
    """
    return torch.ops.ltr.row_products(
        points, lengths, columns, temperature, power, rows, blocks, transposed
    )


def row_log_sums(
    points: Tensor, lengths: Tensor, temperature: float, power: float | None, rows: int
) -> Tensor:
    """The logarithm of the sum over j of exp(L_ij), (..., rows); 0 past the real rows.

    Arguments and cost as for `row_products`. Each is >= 0, as L_ii is 0. It has no derivatives.
    """
    return torch.ops.ltr.row_log_sums(points, lengths, temperature, power, rows)


def row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    power: float | None,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """The gradient of the sum over i, j and c of w_ijc P_ij G_ic V_jc, in one sweep.

    With D_ij = P_ij (M_ij - r_i), M_ij the sum over c of w_ijc G_ic V_jc and r_i its mean in row i.
    Arguments as for `row_products`: G is (..., rows, d), V is (..., n, d).

    Returns:
        For a power the gradient by the points, (..., n, 1). For NeuralSort (..., n, 2): the sums
        over i of D_ij and of (j - i) D_ij. It has no derivatives.
    """
    return torch.ops.ltr.row_vjp(points, lengths, G, V, temperature, power, rows, blocks)


@torch.library.register_fake("ltr::row_vjp")
def _(points, lengths, G, V, temperature, power, rows, blocks):
    return points.new_empty((*points.shape, 2 if power is None else 1))


@torch.library.register_fake("ltr::row_products")
def _(points, lengths, columns, temperature, power, rows, blocks, transposed):
    count = points.shape[-1] if transposed else rows
    return columns.new_empty((*points.shape[:-1], count, columns.shape[-1]))


@torch.library.register_fake("ltr::row_log_sums")
def _(points, lengths, temperature, power, rows):
    return points.new_empty((*points.shape[:-1], rows))


def _row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    power: float | None,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return tiled_row_products(
            points, lengths, columns, temperature, power, rows, blocks, transposed
        )
    t, m, columns = flat(points, lengths, columns)
    numbers = (temperature,) if power is None else (temperature, power)
    out = compiled.row_products(t, m, columns, *numbers, rows, blocks, transposed)
    return out.reshape(*points.shape[:-1], *out.shape[-2:])


def _row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    power: float | None,
    rows: int,
    blocks: list[int],
) -> Tensor:
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return tiled_row_vjp(points, lengths, G, V, temperature, power, rows, blocks)
    t, m, G, V = flat(points, lengths, G, V)
    numbers = (temperature,) if power is None else (temperature, power)
    out = compiled.row_vjp(t, m, G, V, *numbers, rows, blocks)
    return out.reshape(*points.shape, out.shape[-1])


def _row_log_sums(
    points: Tensor, lengths: Tensor, temperature: float, power: float | None, rows: int
) -> Tensor:
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return tiled_row_log_sums(points, lengths, temperature, power, rows)
    t, m = flat(points, lengths)
    numbers = (temperature,) if power is None else (temperature, power)
    return compiled.row_log_sums(t, m, *numbers, rows).reshape(*points.shape[:-1], rows)


torch.library.impl("ltr::row_products", "CompositeExplicitAutograd", tiled_row_products)
torch.library.impl("ltr::row_log_sums", "CompositeExplicitAutograd", tiled_row_log_sums)
torch.library.impl("ltr::row_vjp", "CompositeExplicitAutograd", tiled_row_vjp)
torch.library.impl("ltr::row_products", "CPU", _row_products)
torch.library.impl("ltr::row_vjp", "CPU", _row_vjp)
torch.library.impl("ltr::row_log_sums", "CPU", _row_log_sums)


def _compiled(points: Tensor, rows: int, power: float | None) -> Any:
    # the module with the compiled rows, or None; numba is there by the choice all kernels share
    if not points.numel() or not rows:
        return None
    if implementation("cpu").__module__ != "ltr.kernels._numba":
        return None
    from ltr.kernels import _rows_numba, _rows_power_numba

    if power is None:
        return _rows_numba
    return _rows_power_numba if _rows_power_numba.takes(power) else None

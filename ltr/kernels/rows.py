"""NeuralSort's matrices of sorted scores, a tile of rows at a time: operations without derivatives.

With descending points t_0 >= t_1 >= ..., the matrix P has the rows softmax over j of

    L_ij = -sum over the gaps g_l = t_l - t_(l+1) between i and j of (2 c + 1) g_l / temperature,

the gaps counted by c = 0, 1, ... from i outwards. L_ij is 0 at j = i and decreases on each side. So
a row can end at a cutoff: the rows form a band. Every result is a sum of P times a weight (j -
i)^u, over rows or over columns. Derivatives of such sums have the same form, see
`ltr.kernels.rows_function`.
"""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from ltr.kernels import tied_rows
from ltr.kernels.choice import implementation

torch.library.define(
    "ltr::row_products",
    "(Tensor points, Tensor lengths, Tensor columns, float temperature, int rows, "
    "int[] blocks, bool transposed) -> Tensor",
)
torch.library.define(
    "ltr::row_log_sums",
    "(Tensor points, Tensor lengths, float temperature, int rows) -> Tensor",
)
torch.library.define(
    "ltr::row_vjp",
    "(Tensor points, Tensor lengths, Tensor G, Tensor V, float temperature, int rows, "
    "int[] blocks) -> Tensor",
)


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Return sums over j of w_ij P_ij V_jc, or with `transposed` over i of w_ij P_ij W_ic.

    Args:
        points: (..., n), descending; points past the real ones are finite.
        lengths: (...) int64, the number of real points. The other rows and columns of P are 0.
        columns: V (..., n, d), or W (..., rows, d) if transposed.
        temperature: > 0.
        rows: The number of rows of P that count, from the first.
        blocks: (size, u) of each block of adjacent columns, flattened: their weight.
        transposed: Whether to sum over rows instead of columns.

    Returns:
        (..., rows, d), or (..., n, d) if transposed. A list with points that are not finite gives
        NaN or undefined numbers. Cost: O(n w d) time for rows w entries wide, or O(n d) for lists
        of equal points, and O(n d) memory. It has no derivatives.
    """
    return torch.ops.ltr.row_products(
        points, lengths, columns, temperature, rows, blocks, transposed
    )


def row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    """Return the logarithm of the sum over j of exp(L_ij), (..., rows); 0 past the real rows.

    Arguments and cost as for `row_products`. Each is >= 0, as L_ii is 0. It has no derivatives.
    """
    return torch.ops.ltr.row_log_sums(points, lengths, temperature, rows)


def row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """Return the derivatives of the sum over i, j and c of w_ijc P_ij G_ic V_jc, in one sweep.

    It is the vector-Jacobian product of `row_products`. The arguments are the same, with G
    (..., rows, d) and V (..., n, d). Below, D_ij = P_ij (M_ij - r_i), where M_ij is the sum over c
    of w_ijc G_ic V_jc and r_i is its mean in row i.

    Returns:
        (..., n, 2): the sums over i of D_ij and of (j - i) D_ij. It has no derivatives.
    """
    return torch.ops.ltr.row_vjp(points, lengths, G, V, temperature, rows, blocks)


@torch.library.register_fake("ltr::row_vjp")
def _(points, lengths, G, V, temperature, rows, blocks):
    return points.new_empty((*points.shape, 2))


@torch.library.register_fake("ltr::row_products")
def _(points, lengths, columns, temperature, rows, blocks, transposed):
    count = points.shape[-1] if transposed else rows
    return columns.new_empty((*points.shape[:-1], count, columns.shape[-1]))


@torch.library.register_fake("ltr::row_log_sums")
def _(points, lengths, temperature, rows):
    return points.new_empty((*points.shape[:-1], rows))


def _row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    count = points.shape[-1] if transposed else rows

    def tied(t: Tensor, m: Tensor, V: Tensor) -> Tensor:
        return tied_rows.row_products(m, V, count, blocks, transposed)

    def others(t: Tensor, m: Tensor, V: Tensor) -> Tensor:
        compute = implementation(t.device.type).row_products
        return compute(t, m, V, temperature, rows, blocks, transposed)

    return _by_ties(tied, others, (count, columns.shape[-1]), points, lengths, columns)


def _row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    def tied(t: Tensor, m: Tensor) -> Tensor:
        return tied_rows.row_log_sums(t, m, rows)

    def others(t: Tensor, m: Tensor) -> Tensor:
        return implementation(t.device.type).row_log_sums(t, m, temperature, rows)

    return _by_ties(tied, others, (rows,), points, lengths)


def _row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    def tied(t: Tensor, m: Tensor, G: Tensor, V: Tensor) -> Tensor:
        return tied_rows.row_vjp(m, G, V, blocks)

    def others(t: Tensor, m: Tensor, G: Tensor, V: Tensor) -> Tensor:
        compute = implementation(t.device.type).row_vjp
        return compute(t, m, G, V, temperature, rows, blocks)

    return _by_ties(tied, others, (points.shape[-1], 2), points, lengths, G, V)


def _by_ties(
    tied: Callable[..., Tensor],
    others: Callable[..., Tensor],
    shape: tuple[int, ...],
    points: Tensor,
    lengths: Tensor,
    *columns: Tensor,
) -> Tensor:
    # Compute lists of equal points by `tied`, and all other lists by `others`: results (lists,
    # *shape). Both take one batch axis.
    *batch, n = points.shape
    if not points.numel() or not prod(shape):
        return points.new_zeros((*batch, *shape))
    lists = prod(batch)
    flat = (x.reshape(lists, *x.shape[-2:]) for x in columns)
    given = points.reshape(lists, n), lengths.reshape(lists), *flat
    which = tied_rows.are_tied(*given[:2]) if n >= tied_rows.SHORTEST else None
    if which is None or not which.any():
        found = others(*given)
    elif which.all():
        found = tied(*given)
    else:
        found = points.new_empty((lists, *shape))
        found[which] = tied(*(x[which] for x in given))
        found[~which] = others(*(x[~which] for x in given))
    return found.view(*batch, *shape)


torch.library.impl("ltr::row_products", "CompositeExplicitAutograd", _row_products)
torch.library.impl("ltr::row_log_sums", "CompositeExplicitAutograd", _row_log_sums)
torch.library.impl("ltr::row_vjp", "CompositeExplicitAutograd", _row_vjp)

"""The operations on rows on the CPU: NeuralSort's, those of a power, or plain PyTorch's."""

from typing import Any

from torch import Tensor

from ltr.kernels import reference
from ltr.kernels.cpu import neuralsort_rows, power_rows
from ltr.kernels.reference.rows import flat


def _compiled(points: Tensor, rows: int, power: float | None) -> Any:
    # return the module for this power, or None
    if not points.numel() or not rows:
        return None
    if power is None:
        return neuralsort_rows
    return power_rows if power_rows.takes(power) else None


def _numbers(temperature: float, power: float | None) -> tuple[float, ...]:
    return (temperature,) if power is None else (temperature, power)


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
    """Compute `ltr.kernels.rows.row_products`."""
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return reference.row_products(
            points, lengths, columns, temperature, power, rows, blocks, transposed
        )
    t, m, columns = flat(points, lengths, columns)
    numbers = _numbers(temperature, power)
    out = compiled.row_products(t, m, columns, *numbers, rows, blocks, transposed)
    return out.reshape(*points.shape[:-1], *out.shape[-2:])


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
    """Compute `ltr.kernels.rows.row_vjp`."""
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return reference.row_vjp(points, lengths, G, V, temperature, power, rows, blocks)
    t, m, G, V = flat(points, lengths, G, V)
    out = compiled.row_vjp(t, m, G, V, *_numbers(temperature, power), rows, blocks)
    return out.reshape(*points.shape, out.shape[-1])


def row_log_sums(
    points: Tensor, lengths: Tensor, temperature: float, power: float | None, rows: int
) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums`."""
    compiled = _compiled(points, rows, power)
    if compiled is None:
        return reference.row_log_sums(points, lengths, temperature, power, rows)
    t, m = flat(points, lengths)
    found = compiled.row_log_sums(t, m, *_numbers(temperature, power), rows)
    return found.reshape(*points.shape[:-1], rows)

"""NeuralSort's rows in plain PyTorch, many at a time where points are tied or near each other.

The mathematics is that of `ltr.kernels.cpu.row_blocks`: the rows of a block share a Taylor
series around the middle one, so that P is the product of two narrow matrices.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

LEAST = 64
"""The fewest rows of a block. Fewer rows are computed with their matrix."""

LONG = 1024
"""Lists up to this length are computed with their matrix."""


def plan_blocks(
    t: Tensor, begin: Tensor, end: Tensor, temperature: float
) -> Iterator[tuple[int, int, int, int, float]]:
    """Divide the rows of one list into blocks: rows first to last - 1, columns left to right - 1.

    Args:
        t: (n,), falling.
        begin: (rows,) int64, the first column of each row's band.
        end: (rows,) int64, the last one + 1.
        temperature: > 0.

    Yields:
        first, last, left, right and the largest |y|, which is NaN for rows to be computed one by
        one.
    """
    rows, limit = len(begin), widest(t)
    points, low, high = t.tolist(), begin.tolist(), end.tolist()
    first, size = 0, rows
    while first < rows:
        size = min(4 * size, rows - first)
        while True:
            left, right, h = low[first], high[first + size - 1], size // 2
            middle = points[first + h]
            far = max(points[left] - middle, middle - points[right - 1])
            y = 2 * h * (far / temperature)
            if y <= limit:
                break
            if size <= LEAST:
                y = math.nan
                break
            size = max(size // 2, LEAST)
        yield first, first + size, left, right, y
        first += size


def widest(t: Tensor) -> float:
    """Return the largest |y| for which the terms of the series lose no digits of the dtype."""
    return 1.0 if t.device.type == "mps" else 4.0


class RowBlock:
    """Rows first to last - 1 of P as X F^T / sums, X (1, R, terms) and F (1, C, terms).

    Args:
        t: (1, n), falling.
        place: first, last, left, right and the largest |y|, from `plan_blocks`.
        temperature: > 0.
        cut: see `ltr.kernels.reference.rows.row_cut`.
    """

    def __init__(
        self, t: Tensor, place: tuple[int, int, int, int, float], temperature: float, cut: float
    ):
        first, last, left, right, largest = place
        t = t if t.device.type == "mps" else t.double()
        h = (last - first) // 2
        middle = first + h
        gaps = (t[0, left : right - 1] - t[0, left + 1 : right]) / temperature
        odd = 1 + 2 * torch.arange(right - left, device=t.device, dtype=t.dtype)
        after = (gaps[middle - left :] * odd[: right - 1 - middle]).cumsum(-1)
        before = (gaps[: middle - left].flip(0) * odd[: middle - left]).cumsum(-1).flip(0)
        logits = -torch.cat([before, t.new_zeros(1), after])
        self.from_middle = torch.arange(left, right, device=t.device, dtype=t.dtype) - middle
        self.to_middle = middle - torch.arange(first, last, device=t.device, dtype=t.dtype)
        terms = count_terms(largest, cut)
        y = 2 * h * (t[0, middle] - t[0, left:right]) / temperature
        order = torch.arange(1, terms, device=t.device, dtype=t.dtype)
        self.F = _powers(y.unsqueeze(-1) / order, logits.exp()).unsqueeze(0)
        x = -self.to_middle / max(h, 1)
        steps = x.unsqueeze(-1).expand(-1, terms - 1)
        self.X = _powers(steps, torch.ones_like(x)).unsqueeze(0)
        self.sums = self.X @ self.F.sum(-2).unsqueeze(-1)  # (1, R, 1), with L_cc = 0
        self.own = logits[first - left : last - left] + x * y[first - left : last - left]
        self.shape = (last - first, right - left)

    def log_sums(self) -> Tensor:
        """Return the logarithm of the sum over j of exp(L_ij), (1, R), with L_ii = 0."""
        return self.sums.log().squeeze(-1) - self.own

    def products(self, u: int, v: int, V: Tensor) -> Tensor:
        """Return the sum over j of (j - i)^u P_ij V_j: V (1, C, d) -> (1, R, d). v is unused."""
        V, o, d = V.to(self.F.dtype), self.from_middle.unsqueeze(-1), self.to_middle.unsqueeze(-1)
        parts = [
            math.comb(u, k) * d ** (u - k) * (self.X @ (self.F.mT @ (o**k * V)))
            for k in range(u + 1)
        ]
        return sum(parts[1:], parts[0]) / self.sums

    def spread(self, u: int, v: int, W: Tensor) -> Tensor:
        """Return the sum over i of (j - i)^u P_ij W_i: W (1, R, d) -> (1, C, d). v is unused."""
        W, o, d = W / self.sums, self.from_middle.unsqueeze(-1), self.to_middle.unsqueeze(-1)
        parts = [
            math.comb(u, k) * o**k * (self.F @ (self.X.mT @ (d ** (u - k) * W)))
            for k in range(u + 1)
        ]
        return sum(parts[1:], parts[0])

    def vjp(self, G: Tensor, V: Tensor, blocks: list[int]) -> Tensor:
        """Return the sums over i of D_ij and of (j - i) D_ij, (1, C, 2): see `row_vjp`."""
        V = V.to(self.F.dtype)
        r, out, start = 0, 0, 0
        for size, u in zip(blocks[::3], blocks[1::3], strict=True):
            g, values = (x[..., start : start + size] for x in (G, V))
            start += size
            r = r + (g * self.products(u, 0, values)).sum(-1, keepdim=True)
            near, far = ((values * self.spread(u + k, 0, g)).sum(-1) for k in (0, 1))
            out = out + torch.stack([near, far], -1)
        r = torch.as_tensor(r)
        return out - torch.cat([self.spread(0, 0, r), self.spread(1, 0, r)], -1)


def count_terms(largest: float, cut: float) -> int:
    """Return how many terms of the series of exp are enough for |x y| up to `largest`.

    >>> count_terms(0.0, 44.0), count_terms(4.0, 44.0)
    (1, 32)
    """
    small, term, terms = math.exp(-min(cut, 37.0)), 1.0, 1
    while True:
        term *= largest / terms
        if term <= small:
            return terms
        terms += 1


def _powers(steps: Tensor, start: Tensor) -> Tensor:
    # start times the running products of the steps: (k, terms - 1), (k,) -> (k, terms)
    return torch.cat([start.unsqueeze(-1), steps], -1).cumprod(-1)

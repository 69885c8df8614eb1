"""The kernel sums in plain PyTorch, for any device: the reference for the compiled sums.

Each node gives a linear recurrence x_p = a_p x_{p-1} + b_p along the sorted scores, once from the
top and once from the bottom. `scan` splits a long recurrence into parallel blocks, so that its
Python loops take only about sqrt(n) steps for n positions. Long lists are processed in chunks to
limit the memory. Each sweep continues with the states at the end of the previous chunk.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.kernels.interface import SumNumbers
from ltr.kernels.lists import SortedLists
from ltr.shapes import NO_FLOAT64

FARTHEST = 745.0  # exp(-745) is the smallest positive double

SCAN_VALUES = 1 << 17
"""The most values in a scan, unless one chunk has more. All nodes of a few short lists fit."""

CHUNK = 1 << 15
"""The number of items of a row in one chunk on the CPU, where a chunk should fit the cache."""

CHUNK_ELSEWHERE = 1 << 20
"""The same on other devices, which a small chunk would leave mostly idle."""


def kernel_sums(
    scores: Tensor,
    lists: SortedLists,
    columns: Sequence[Tensor],
    numbers: SumNumbers,
) -> list[Tensor]:
    """Compute `ltr.kernels.interface.Implementation.kernel_sums` on any device."""
    scale, nodes, rows, sources = numbers
    n, sources = scores.shape[-1], list(sources)  # as an index, a tuple would mean several axes
    order, lengths = lists.order, lists.lengths
    table = torch.tensor(rows, dtype=_exact(scores), device=scores.device).view(len(sources), -1)
    own = table[:, :1].unsqueeze(-1)
    above, below = table[:, 1:].view(len(sources), 2, -1).unbind(1)
    size = CHUNK if scores.device.type == "cpu" else CHUNK_ELSEWHERE
    out = [torch.empty(scores.shape, dtype=scores.dtype, device=scores.device) for _ in sources]
    given = [y.reshape(-1, y.shape[-1]) for y in (scores, lengths, *columns)]
    positions = None if order is None else order.reshape(-1, n)
    together = max(1, max(size, SCAN_VALUES) // max(n, 1))
    for first in range(0, len(given[0]), together):
        some = slice(first, first + together)
        part = _Lists(
            *(y[some] for y in given), order=None if positions is None else positions[some]
        )
        down = _Sweep(scale, nodes, above, sources)
        up = _Sweep(scale, nodes, below, sources)
        _sums(part, (down, up), own, [y.view(-1, n)[some] for y in out], size)
    return out


def _exact(x: Tensor) -> torch.dtype:
    return x.dtype if x.device.type in NO_FLOAT64 else torch.float64


class _Chunk(NamedTuple):
    """Consecutive positions of B sorted rows: points x (B, p), values v (C, B, p) of C columns."""

    x: Tensor  # it is 0 if the point is not finite, and the last real point at the masked positions
    v: Tensor  # it is 0 if the value or its point is not finite, or if the position is masked
    real: Tensor  # it says whether the position holds a real item
    # It says whether the position holds a real item whose value or point is not finite.
    bad: Tensor  # (C, B, p)


class _Lists:
    """The lists in some rows. Only one chunk at a time is sorted and converted to `_exact(x)`."""

    def __init__(self, x: Tensor, lengths: Tensor, *columns: Tensor, order: Tensor | None):
        self.x, self.lengths, self.columns, self.order = x, lengths, columns, order
        last = (lengths - 1).clamp(min=0)
        self.lowest = x.gather(-1, last if order is None else order.gather(-1, last))

    def chunk(self, first: int, last: int) -> _Chunk:
        """Return the chunk of the positions `first` to `last` - 1."""
        order = None if self.order is None else self.order[:, first:last]
        x, *v = (
            y[:, first:last] if order is None else y.gather(-1, order)
            for y in (self.x, *self.columns)
        )
        real = torch.arange(first, last, device=x.device) < self.lengths
        x, v = torch.where(real, x, self.lowest).to(_exact(x)), torch.stack(v).to(_exact(x))
        usable = real & x.isfinite() & v.isfinite()
        x, v = torch.where(x.isfinite(), x, 0.0), torch.where(usable, v, 0.0)
        return _Chunk(x, v, real, real & ~usable)


def _sums(
    lists: _Lists, sweeps: "tuple[_Sweep, _Sweep]", own: Tensor, out: list[Tensor], size: int
) -> None:
    # Fill out[o] (B, n). The first sweep goes down the lists, and the second sweep goes up.
    down, up = sweeps
    rows, n = lists.x.shape
    chunks = [(first, min(first + size, n)) for first in range(0, n, size)]
    chunk = lru_cache(1)(lists.chunk)  # if there is only one chunk, both sweeps share it
    # If a score is not finite, all sums of its list are NaN. If a value of a column is not finite,
    # only the sums of this column in its list are NaN.
    spoiled = torch.zeros(len(lists.columns), rows, 1, dtype=torch.bool, device=lists.x.device)
    partial: list[Tensor] = []
    for bounds in chunks:
        x, v, _, bad = chunk(*bounds)
        spoiled |= bad.any(-1, keepdim=True)
        partial.append(down.step(x, v))
    for first, last in reversed(chunks):
        x, v, real, _ = chunk(first, last)
        result = up.step(-x.flip(-1), v.flip(-1)).flip(-1)
        result += partial.pop()
        result += own * v[up.sources]
        result = torch.where(spoiled[up.sources], torch.nan, result).where(real, 0.0)
        for y, each in zip(out, result.to(out[0].dtype), strict=True):
            if lists.order is None:
                y[:, first:last] = each
            else:
                y.scatter_(-1, lists.order[:, first:last], each)


class _Sweep:
    """The sums over the items before each item in the direction of the sweep, chunk by chunk."""

    def __init__(self, scale: float, nodes: Sequence[float], weights: Tensor, sources: list[int]):
        self.scale, self.sources = scale, sources
        self.weights = weights
        first, step = complex(nodes[0], nodes[1]), complex(nodes[2], nodes[3])
        self.nodes = [first + m * step for m in range(int(nodes[4]))]
        self.is_complex = first.imag != 0 or step.imag != 0
        self.together: int | None = None
        self.states: dict[str, Tensor] = {}
        self.last: tuple[Tensor, Tensor] | None = None

    def step(self, x: Tensor, v: Tensor) -> Tensor:
        """Return the sums (outputs, B, p) of the next p positions.

        Args:
            x: (B, p), the points, descending in each list.
            v: (C, B, p), the values.
        """
        last_x, last_v = self.last or (x[:, :1], torch.zeros_like(v[..., :1]))
        self.last = x[:, -1:].clone(), v[..., -1:].clone()
        gaps = torch.cat([last_x, x[:, :-1]], -1).sub_(x).mul_(self.scale)
        before = torch.cat([last_v, v[..., :-1]], -1)
        constant, linear, tie, *_ = self.weights.unbind(-1)
        result = torch.zeros_like(v[self.sources])
        if constant.any() or linear.any():
            ones = torch.ones_like(gaps)
            passed = self._scan("constant", ones, before)
            result += constant[:, None, None] * passed[self.sources]
            if linear.any():
                moved = self._scan("linear", ones, passed * gaps)
                result += linear[:, None, None] * moved[self.sources]
        if tie.any():
            tied = (gaps == 0).to(x.dtype)
            result += tie[:, None, None] * self._scan("tied", tied, tied * before)[self.sources]
        if self.together is None:
            self.together = max(1, SCAN_VALUES // v.numel())
        for begin in range(0, len(self.nodes), self.together):
            result += self._nodes(slice(begin, begin + self.together), before, gaps)
        return result

    def _nodes(self, some: slice, before: Tensor, gaps: Tensor) -> Tensor:
        count = len(self.nodes)
        w = self.weights[:, 3 : 3 + count].mT[some, :, None, None]
        kind = torch.promote_types(gaps.dtype, torch.complex64)
        nodes = torch.tensor(self.nodes[some], dtype=kind).to(gaps.device)[:, None, None, None]
        gaps = gaps.clamp(max=FARTHEST)
        decay = (-nodes.real * gaps).clamp_(min=-FARTHEST).exp_()
        if not self.is_complex:
            states = self._scan(f"node {some.start}", decay, decay * before)[:, self.sources]
            return (w * states).sum(0)
        decay = torch.polar(decay, -nodes.imag * gaps)
        states = self._scan(f"node {some.start}", decay, decay * before)[:, self.sources]
        w = torch.complex(w, self.weights[:, 3 + count :].mT[some, :, None, None])
        return (w * states).real.sum(0)

    def _scan(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        # The sums continue where the previous chunk ended.
        before = self.states.get(name)
        if before is not None:
            b = torch.cat([b[..., :1] + a[..., :1] * before, b[..., 1:]], -1)
        values = scan(a, b)
        self.states[name] = values[..., -1:].clone()
        return values


def scan(a: Tensor, b: Tensor) -> Tensor:
    """Return x_p = a_p x_{p-1} + b_p along the last axis, x_0 = b_0; a is broadcast to b's shape.

    >>> scan(torch.tensor([0.5]).expand(3), torch.tensor([1.0, 1.0, 1.0]))
    tensor([1.0000, 1.5000, 1.7500])
    """
    n = b.shape[-1]
    if n < 2:
        return b
    a = a[(None,) * (b.dim() - a.dim())]
    blocks = max(1, int(n**0.5) if n > 64 else 1)
    size = -(-n // blocks)
    blocks = -(-n // size)
    extra = blocks * size - n
    # The first axis is the position in the block, so that a step of the loop reads one row.
    x, factors = (
        pad(t, (0, extra)).unflatten(-1, (blocks, size)).movedim(-1, 0).contiguous() for t in (b, a)
    )
    for p in range(1, size):
        x[p].addcmul_(factors[p], x[p - 1])
    if blocks > 1:
        factors = factors.cumprod(0)
        # Each block begins with the state at the end of the previous block.
        left = pad(scan(factors[-1], x[-1])[..., :-1], (1, 0))
        x.addcmul_(factors, left)
    return x.movedim(0, -1).flatten(-2)[..., :n]

"""The kernel sums in plain PyTorch, for any device: what the compiled ones are checked against.

Each node is a linear recurrence x_p = a_p x_{p-1} + b_p along the sorted scores, once from the top
and once from the bottom. `scan` does them by blocks side by side, so that no Python loop is longer
than about the square root of the list.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

FARTHEST = 745.0  # exp(-745) is the smallest double
TOGETHER = 1 << 20  # so many numbers are scanned at a time, for speed on short lists


def kernel_sums(
    scores: Tensor,
    order: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    columns: list[Tensor],
    scale: float,
    nodes: list[float],
    rows: list[float],
    sources: list[int],
) -> list[Tensor]:
    """As `ltr::kernel_sums`: scores, order, columns (..., N), starts, lengths (..., R)."""
    n, sources = scores.shape[-1], list(sources)  # a tuple would index several axes
    order = None if order is None else order.reshape(-1, n)
    begins, inside, ids = _layout(starts, lengths, n)
    exact = scores.dtype if scores.device.type == "mps" else torch.float64
    x, *v = (
        y.reshape(-1, n) if order is None else y.reshape(-1, n).gather(-1, order)
        for y in (scores, *columns)
    )
    x, v = x.to(exact), torch.stack(v).to(exact)
    # what is not finite spoils its list, in a column the outputs of that column
    usable = inside & x.isfinite() & v.isfinite()
    spoiled = _any_in_list(inside & ~usable, ids)[sources]
    x, v = torch.where(inside & x.isfinite(), x, 0.0), torch.where(usable, v, 0.0)
    numbers = torch.tensor(rows, dtype=exact, device=x.device).view(len(sources), -1)
    weights = numbers[:, 1:].view(len(sources), 2, -1).unbind(1)
    result = numbers[:, :1].unsqueeze(-1) * v[sources]
    result += _side(x, v, begins, scale, nodes, weights[0], sources)
    ends = pad(begins[:, 1:] | ~inside[:, 1:], (0, 1), value=True)
    below = _side(-x.flip(-1), v.flip(-1), ends.flip(-1), scale, nodes, weights[1], sources)
    result += below.flip(-1)
    result = torch.where(spoiled, torch.nan, torch.where(inside, result, 0.0)).to(scores.dtype)
    if order is not None:
        result = torch.empty_like(result).scatter_(-1, order.expand(result.shape), result)
    return [y.clone().view(scores.shape) for y in result]


def _layout(starts: Tensor, lengths: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    # for each place: does a list begin here, is it in a list, which list is it (0 is none)
    starts, lengths = (y.reshape(-1, y.shape[-1]) for y in (starts, lengths))
    some = (lengths > 0).long()
    edges = starts.new_zeros(len(starts), n + 1)
    begins = edges.scatter_add(-1, starts, some)
    inside = begins.scatter_add(-1, starts + lengths, -some).cumsum(-1)[:, :n] > 0
    begins = begins[:, :n] > 0
    return begins, inside, begins.cumsum(-1) * inside


def _any_in_list(flags: Tensor, ids: Tensor) -> Tensor:
    ids = ids.expand(flags.shape)
    per_list = pad(torch.zeros_like(ids), (0, 1)).scatter_add(-1, ids, flags.long())
    return per_list.gather(-1, ids) > 0


def _side(
    x: Tensor,
    v: Tensor,
    begins: Tensor,
    scale: float,
    nodes: list[float],
    weights: Tensor,
    sources: list[int],
) -> Tensor:
    # what the items before each one, in this direction, add: (outputs, B, N)
    gaps = torch.where(begins, 0.0, pad((x[:, :-1] - x[:, 1:]) * scale, (1, 0)))
    keep = (~begins).to(x.dtype)
    before = keep * pad(v[..., :-1], (1, 0))
    constant, linear, tie, *_ = weights.unbind(-1)
    result = torch.zeros_like(v[sources])
    if constant.any() or linear.any():
        passed = scan(keep, before)
        result += constant[:, None, None] * passed[sources]
        if linear.any():
            result += linear[:, None, None] * scan(keep, passed * gaps)[sources]
    if tie.any():
        tied = keep * (gaps == 0)
        result += tie[:, None, None] * scan(tied, tied * before)[sources]
    count = int(nodes[4])
    if not count:
        return result
    real, imaginary = weights[:, 3 : 3 + count], weights[:, 3 + count :]
    first, step = complex(nodes[0], nodes[1]), complex(nodes[2], nodes[3])
    is_complex = first.imag != 0 or step.imag != 0
    values = [first + m * step for m in range(count)]
    if is_complex:
        values = torch.tensor(values, dtype=torch.promote_types(x.dtype, torch.complex64))
    else:
        values = torch.tensor([value.real for value in values], dtype=x.dtype)
    values = values.to(x.device)
    w = torch.complex(real, imaginary) if is_complex else real
    together = max(1, TOGETHER // v.numel())
    for begin in range(0, count, together):
        some = slice(begin, begin + together)
        # a gap is negative in spoiled lists alone, whose infinities would reach the next one
        far = values[some, None, None, None] * gaps.clamp(min=0, max=FARTHEST)
        decay = keep * torch.exp(-far.real.clamp(max=FARTHEST))
        if is_complex:
            decay = torch.polar(decay, -far.imag)
        states = scan(decay, decay * before)[:, sources]
        parts = w.mT[some, :, None, None] * states
        result += (parts.real if is_complex else parts).sum(0)
    return result


def scan(a: Tensor, b: Tensor) -> Tensor:
    """x_p = a_p x_{p-1} + b_p along the last axis, x_0 = b_0; a is broadcast against b.

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
    # position in the block first: a step of the loop is one row
    x, factors = (
        pad(t, (0, extra)).unflatten(-1, (blocks, size)).movedim(-1, 0).contiguous() for t in (b, a)
    )
    for p in range(1, size):
        x[p].addcmul_(factors[p], x[p - 1])
    if blocks > 1:
        factors = factors.cumprod(0)
        # a block begins with what the blocks before it leave
        left = pad(scan(factors[-1], x[-1])[..., :-1], (1, 0))
        x.addcmul_(factors, left)
    return x.movedim(0, -1).flatten(-2)[..., :n]

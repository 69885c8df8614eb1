"""The operations on rows in plain PyTorch, on any device: a tile of rows at a time.

The band of each row is found by bisection, and the logits of a tile are running sums from the
diagonal outwards.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ltr.shapes import full_precision, widened

TILE = 1 << 18
"""The entries of a tile on the CPU. A tile bounds the memory, and should fit the cache."""

TILE_ELSEWHERE = 1 << 20
"""The entries of a tile on other devices, which a small tile would leave idle."""

STEP = 32
"""The number of rows whose bands are examined at a time."""

WHOLE = 256
"""Lists up to this length use whole rows: finding their bands would take as long."""


def row_cutoff(points: Tensor) -> float:
    """Return the largest -L_ij that counts in a row. Elements beyond it are below rounding.

    Rows are concave in j, so all elements beyond the cutoff sum to at most exp(-cutoff) of the row.
    """
    return 44.0 if points.dtype == torch.float64 else 20.0


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Compute `ltr.kernels.rows.row_products` of points (B, n)."""
    count = points.shape[-1] if transposed else rows
    out = columns.new_zeros((len(points), count, columns.shape[-1]))
    for some, first, left, tile in _tiles(points, lengths, temperature, rows):
        last, right = first + tile.shape[0], left + tile.shape[1]
        for position, u in _columns(blocks):
            P = tile.weighted(u)
            if transposed:
                out[some, left:right, position] += _product(
                    P.mT, columns[some, first:last, position]
                )
            else:
                out[some, first:last, position] = _product(P, columns[some, left:right, position])
    return out


def row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums` of points (B, n)."""
    out = points.new_zeros((len(points), rows))
    for some, first, _, tile in _tiles(points, lengths, temperature, rows):
        out[some, first : first + tile.shape[0]] = tile.sums.log().squeeze(-1)
    return out


def row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """Compute `ltr.kernels.rows.row_vjp` of points (B, n)."""
    out = points.new_zeros((*points.shape, 2))
    for some, first, left, tile in _tiles(points, lengths, temperature, rows):
        last, right = first + tile.shape[0], left + tile.shape[1]
        D = torch.zeros_like(tile.P)
        for position, u in _columns(blocks):
            M = _product(G[some, first:last, position], V[some, left:right, position].mT)
            D += M.mul_(tile.weighted(u))
        D.sub_(tile.P * D.sum(-1, keepdim=True))
        out[some, left:right, 0] += D.sum(-2)
        out[some, left:right, 1] += D.mul_(tile.difference).sum(-2)
    return out


def _columns(blocks: list[int]) -> list[tuple[slice, int]]:
    # return the columns of each block, and the power of their weight
    found, start = [], 0
    for size, u in zip(blocks[::2], blocks[1::2], strict=True):
        found.append((slice(start, start + size), u))
        start += size
    return found


def _product(a: Tensor, b: Tensor) -> Tensor:
    if b.shape[-1] == 1 and a.stride(-1) == 1:  # mv calls gemv, bmm does not
        return torch.stack([x.mv(y) for x, y in zip(a, b.squeeze(-1), strict=True)]).unsqueeze(-1)
    with full_precision(a):
        return torch.bmm(a, b)


class _Tile:
    """P (lists, R, C), its sums before the softmax's division (lists, R, 1), and j - i."""

    def __init__(self, P: Tensor, difference: Tensor, real: Tensor):
        sums = P.sum(-1, keepdim=True)
        self.sums = torch.where(real, sums, 1.0)
        self.P = P.mul_(torch.where(real, 1 / sums, 0.0))
        self.difference = difference

    @property
    def shape(self) -> torch.Size:
        """Return the shape (R, C)."""
        return self.P.shape[-2:]

    def weighted(self, u: int) -> Tensor:
        """Return (j - i)^u P_ij."""
        return self.P if u == 0 else self.difference**u * self.P


def _tiles(
    points: Tensor, lengths: Tensor, temperature: float, rows: int
) -> Iterator[tuple[slice, int, int, _Tile]]:
    """Yield tiles that cover the first rows: (lists, first row, first column, tile)."""
    n = points.shape[-1]
    size = TILE if points.device.type == "cpu" else TILE_ELSEWHERE
    together = max(1, size // (n * min(n, 64)))
    for start in range(0, len(points), together):
        some = slice(start, min(start + together, len(points)))
        for first, left, tile in _by_gaps(points[some], lengths[some], temperature, rows, size):
            yield some, first, left, tile


def _by_gaps(
    t: Tensor, lengths: Tensor, temperature: float, rows: int, size: int
) -> Iterator[tuple[int, int, _Tile]]:
    n = t.shape[-1]
    position = torch.arange(n, device=t.device)
    dead = position >= lengths.unsqueeze(-1)
    # gaps past the real items are infinite, so that rows end there
    gaps = ((t[:, :-1] - t[:, 1:]) / temperature).masked_fill(dead[:, 1:], torch.inf)
    begin, end = torch.zeros_like(position), torch.full_like(position, n)
    if n > WHOLE:
        begin, end = _bands(gaps, row_cutoff(t))
    begin, end, position = begin[:rows], end[:rows], position[:rows]
    blocks = list(_blocks(begin, end, len(t), size))
    reaches = _maxima(torch.stack([position - begin, end - 1 - position]))
    gaps = torch.nn.functional.pad(gaps, (n, n), value=torch.inf)  # rows end at the edges too
    for first, last, _, _ in blocks:
        steps = slice(first // STEP, (last - 1) // STEP + 1)
        # The logits are running sums from the diagonal outwards, where nothing cancels: step k
        # of row i adds gap i + k to the right, and gap i - 1 - k to the left.
        before, after = (max(side[steps]) for side in reaches)
        R, width = last - first, before + last - first + after
        P = t.new_zeros((len(t), R, width))
        stride = (R * width, width + 1, 1)  # one column further in each row
        P.as_strided((len(t), R), stride[:2], before).fill_(1.0)
        odd = 1 + 2 * torch.arange(max(before, after), device=t.device, dtype=t.dtype)
        if after:
            found = gaps[:, n + first : n + last - 1 + after].unfold(-1, after, 1)
            sums = (found * odd[:after]).cumsum(-1)
            P.as_strided((len(t), R, after), stride, before + 1).copy_(sums.neg_().exp_())
        if before:
            found = gaps[:, n + first - before : n + last - 1].unfold(-1, before, 1)
            sums = (found * odd[:before].flip(-1)).flip(-1).cumsum(-1).flip(-1)
            P.as_strided((len(t), R, before), stride, 0).copy_(sums.neg_().exp_())
        left, right = max(0, first - before), min(n, last + after)
        P = P[..., left - first + before : right - first + before]
        row = torch.arange(first, last, device=t.device, dtype=t.dtype).unsqueeze(-1)
        offset = torch.arange(left, right, device=t.device, dtype=t.dtype) - row
        yield first, left, _Tile(P, offset, ~dead[:, first:last].unsqueeze(-1))


def _bands(gaps: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    # Find the columns of each row, begin to end - 1, (n,), in any of the lists, by bisection. The
    # logits come from prefix sums here. Gaps are clipped beyond the cutoff: the sums stay small.
    gaps = widened(gaps).clamp(max=cutoff)
    n = gaps.shape[-1] + 1
    number = torch.arange(n, device=gaps.device)
    zero = torch.nn.functional.pad(gaps.cumsum(-1), (1, 0))
    one = torch.nn.functional.pad((gaps * number[:-1]).cumsum(-1), (1, 0))
    slope = (2 * number - 1).to(gaps.dtype)

    def inside(j: Tensor) -> Tensor:
        far = 2 * (one.gather(-1, j) - one) - slope * (zero.gather(-1, j) - zero)
        return far <= cutoff

    row = number.expand(len(gaps), n)
    near, most = row, torch.full_like(row, n - 1)
    fewest, close = torch.zeros_like(row), row
    for _ in range(n.bit_length()):
        middle = (near + most + 1) // 2
        good = inside(middle)
        near, most = torch.where(good, middle, near), torch.where(good, most, middle - 1)
        middle = (fewest + close) // 2
        good = inside(middle)
        fewest, close = torch.where(good, fewest, middle + 1), torch.where(good, middle, close)
    # a NaN is inside no band
    return torch.minimum(close, row).amin(0), torch.maximum(near, row).amax(0) + 1


def _maxima(x: Tensor) -> list[list[int]]:
    # return the maximum of each STEP neighbors
    short = -x.shape[-1] % STEP
    return torch.nn.functional.pad(x, (0, short)).unflatten(-1, (-1, STEP)).amax(-1).tolist()


def _blocks(
    begin: Tensor, end: Tensor, lists: int, size: int
) -> Iterator[tuple[int, int, int, int]]:
    # Yield blocks of rows, first to last - 1, with the columns left to right - 1 of their bands.
    # begin and end (rows,) both grow with the row. Only this function waits for the device.
    rows = len(begin)
    ends = end[torch.arange(STEP - 1, rows + STEP - 1, STEP, device=end.device).clamp(max=rows - 1)]
    starts, ends = torch.stack([begin[::STEP], ends]).tolist()
    k = 0
    while k < len(starts):
        more = k + 1
        # As many rows as fit, but not so many that most of the tile lies beside their bands.
        most = max(128, (ends[k] - starts[k]) // 2)
        while more < len(starts):
            taken = min(rows, (more + 1) * STEP) - k * STEP
            if taken > most or lists * taken * (ends[more] - starts[k]) > size:
                break
            more += 1
        left, right = starts[k], ends[more - 1]
        first, last = k * STEP, min(rows, more * STEP)
        fit = max(1, size // (lists * (right - left)))  # fewer than STEP rows if they are wide
        for i in range(first, last, fit):
            yield i, min(i + fit, last), left, right
        k = more

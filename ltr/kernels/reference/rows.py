"""The operations on rows in plain PyTorch, on any device: a tile of rows at a time.

For NeuralSort the band of each row is found by bisection, and the logits of a tile are running
sums from the diagonal outwards. For a power they come from differences of the points.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ltr.shapes import widened

TILE = 1 << 18
"""The entries of a tile on the CPU. A tile bounds the memory, and should fit the cache."""

TILE_ELSEWHERE = 1 << 20
"""The entries of a tile on other devices, which a small tile would leave idle."""

STEP = 32
"""The number of rows whose bands are examined at a time."""

WHOLE = 256
"""Lists up to this length use whole rows: finding their bands would take as long."""


def row_cut(points: Tensor, power: float | None) -> float:
    """Return the largest -L_ij that counts in a row. Entries beyond it are below rounding.

    Rows of NeuralSort are concave in j, so all entries beyond the cut sum to at most exp(-cut) of
    the row. For a power's row the bound is n exp(-cut).
    """
    cut = 44.0 if points.dtype == torch.float64 else 20.0
    return cut if power is None else cut + math.log(max(points.shape[-1], 1))


def flat(points: Tensor, lengths: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors with all batch axes merged into one."""
    *batch, n = points.shape
    lists = math.prod(batch)
    others = (x.reshape(lists, *x.shape[-2:]) for x in columns)
    return points.reshape(lists, n), lengths.reshape(lists), *others


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
    *batch, n = points.shape
    points, lengths, columns = flat(points, lengths, columns)
    places: dict[tuple[int, int], list[slice]] = {}
    start = 0
    for size, u, v in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        places.setdefault((u, v), []).append(slice(start, start + size))
        start += size
    # join the columns of each weight
    parts = {w: torch.cat([columns[..., s] for s in found], -1) for w, found in places.items()}
    count = n if transposed else rows
    sums = {w: V.new_zeros((len(points), count, V.shape[-1])) for w, V in parts.items()}
    for some, first, left, tile in _tiles(points, lengths, temperature, power, rows):
        last, right = first + tile.shape[0], left + tile.shape[1]
        for w, V in parts.items():
            if transposed:
                sums[w][some, left:right] += tile.spread(*w, V[some, first:last])
            else:
                sums[w][some, first:last] = tile.products(*w, V[some, left:right])
    out = columns.new_empty((len(points), count, columns.shape[-1]))
    for w, found in places.items():
        start = 0
        for s in found:
            size = s.stop - s.start
            out[..., s] = sums[w][..., start : start + size]
            start += size
    return out.reshape(*batch, count, columns.shape[-1])


def row_log_sums(
    points: Tensor, lengths: Tensor, temperature: float, power: float | None, rows: int
) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums`."""
    batch = points.shape[:-1]
    points, lengths = flat(points, lengths)
    out = points.new_zeros((len(points), rows))
    for some, first, _, tile in _tiles(points, lengths, temperature, power, rows):
        out[some, first : first + tile.shape[0]] = tile.log_sums()
    return out.reshape(*batch, rows)


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
    *batch, n = points.shape
    points, lengths, G, V = flat(points, lengths, G, V)
    out = points.new_zeros((len(points), n, 2 if power is None else 1))
    for some, first, left, tile in _tiles(points, lengths, temperature, power, rows):
        last, right = first + tile.shape[0], left + tile.shape[1]
        D = slope = None
        start = 0
        for size, u, v in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
            place = slice(start, start + size)
            start += size
            M = _product(G[some, first:last, place], V[some, left:right, place].mT)
            factor = 0.0 if power is None else u * power - v
            if factor:  # the weight depends on x too
                steep = tile.weighted(u, v + 1).mul(M).mul_(factor)
                slope = steep if slope is None else slope.add_(steep)
            M = M.mul_(tile.weighted(u, v))
            D = M if D is None else D.add_(M)
        if D is None:
            continue
        D.sub_(tile.P * D.sum(-1, keepdim=True))
        if power is None:
            out[some, left:right, 0] += D.sum(-2)
            out[some, left:right, 1] += D.mul_(tile.difference).sum(-2)
            continue
        D.mul_(tile.weight(1, 1)).mul_(-power / temperature)
        D = D if slope is None else D.add_(slope)
        out[some, first:last, 0] += D.sum(-1)
        out[some, left:right, 0] -= D.sum(-2)
    return out.reshape(*batch, *out.shape[-2:])


def _product(a: Tensor, b: Tensor) -> Tensor:
    if b.shape[-1] == 1 and a.stride(-1) == 1:  # mv calls gemv, bmm does not
        return torch.stack([x.mv(y) for x, y in zip(a, b.squeeze(-1), strict=True)]).unsqueeze(-1)
    if not torch.amp.is_autocast_available(a.device.type):
        return torch.bmm(a, b)
    with torch.autocast(a.device.type, enabled=False):
        return torch.bmm(a, b)


class _Tile:
    """P (lists, R, C), its sums before the softmax's division (lists, R, 1), and its weights.

    `difference` is x for a power, with `raised` = |x|^power, and j - i for NeuralSort.
    """

    def __init__(
        self,
        P: Tensor,
        difference: Tensor,
        real: Tensor,
        raised: Tensor | None = None,
        power: float | None = None,
    ):
        sums = P.sum(-1, keepdim=True)
        self.sums = torch.where(real, sums, 1.0)
        self.P = P.mul_(torch.where(real, 1 / sums, 0.0))
        self.difference = difference
        self.raised = raised
        self.power = power
        self.size: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """Return the shape (R, C)."""
        return self.P.shape[-2:]

    def log_sums(self) -> Tensor:
        """Return the logarithm of the sum over j of exp(L_ij), (lists, R)."""
        return self.sums.log().squeeze(-1)

    def products(self, u: int, v: int, V: Tensor) -> Tensor:
        """Return the sum over j of w_ij P_ij V_j: V (lists, C, d) -> (lists, R, d)."""
        return _product(self.weighted(u, v), V)

    def spread(self, u: int, v: int, W: Tensor) -> Tensor:
        """Return the sum over i of w_ij P_ij W_i: W (lists, R, d) -> (lists, C, d)."""
        return _product(self.weighted(u, v).mT, W)

    def weight(self, u: int, v: int) -> Tensor:
        """Return the weights w_ij."""
        x, raised = self.difference, self.raised
        if raised is None:
            return x if u == 1 else x**u
        if self.power == 2 and v == 2 * u:  # x^0, smooth at 0
            return torch.ones_like(x)
        if self.size is None:
            self.size = torch.where(x == 0, torch.inf, x).abs()
        # |x|^(u p - v) in steps that stay within the range: powers would take much longer
        w = raised / self.size if min(u, v) else torch.ones_like(x).masked_fill_(x == 0, 0.0)
        if min(u, v) > 1:
            w = w ** min(u, v)
        for _ in range(u - v):
            w = w * raised
        for _ in range(v - u):
            w = w / self.size
        return torch.copysign(w, x) if v % 2 else w

    def weighted(self, u: int, v: int) -> Tensor:
        """Return w_ij P_ij."""
        return self.P if u == v == 0 else self.weight(u, v) * self.P


def _tiles(
    points: Tensor, lengths: Tensor, temperature: float, power: float | None, rows: int
) -> Iterator[tuple[slice, int, int, _Tile]]:
    """Yield tiles that cover the first rows: (lists, first row, first column, tile)."""
    n = points.shape[-1]
    if not rows or not len(points):
        return
    size = TILE if points.device.type == "cpu" else TILE_ELSEWHERE
    together = max(1, size // (n * min(n, 64)))
    for start in range(0, len(points), together):
        lists = slice(start, min(start + together, len(points)))
        t, m = points[lists], lengths[lists]
        if power is None:
            tiles = _by_gaps(t, m, temperature, rows, size)
        else:
            tiles = _by_power(t, m, temperature, power, rows, size)
        for first, left, tile in tiles:
            yield lists, first, left, tile


def _by_power(
    t: Tensor, lengths: Tensor, temperature: float, power: float, rows: int, size: int
) -> Iterator[tuple[int, int, _Tile]]:
    n = t.shape[-1]
    place = torch.arange(n, device=t.device)
    dead = place >= lengths.unsqueeze(-1)
    begin, end = torch.zeros_like(place), torch.full_like(place, n)
    if n > WHOLE:
        reach = (row_cut(t, power) * temperature) ** (1 / power)
        begin = torch.searchsorted(-t, -t - reach).amin(0)
        end = torch.searchsorted(-t, -t + reach, right=True).amax(0)
        # a NaN makes the search return any place
        begin, end = torch.minimum(begin, place), torch.maximum(end, place + 1)
    for first, last, left, right in _blocks(begin[:rows], end[:rows], len(t), size):
        x = t[:, first:last].unsqueeze(-1) - t[:, left:right].unsqueeze(-2)
        raised = x.abs() if power == 1 else x.abs().pow_(power)
        P = (raised / -temperature).exp_()
        raised.clamp_(
            max=min(800 * temperature, torch.finfo(t.dtype).max)
        )  # keep weights finite where P is 0
        P.masked_fill_(dead[:, left:right].unsqueeze(-2), 0.0)
        yield first, left, _Tile(P, x, ~dead[:, first:last].unsqueeze(-1), raised, power)


def _by_gaps(
    t: Tensor, lengths: Tensor, temperature: float, rows: int, size: int
) -> Iterator[tuple[int, int, _Tile]]:
    n = t.shape[-1]
    place = torch.arange(n, device=t.device)
    dead = place >= lengths.unsqueeze(-1)
    # gaps past the real items are infinite, so that rows end there
    gaps = ((t[:, :-1] - t[:, 1:]) / temperature).masked_fill(dead[:, 1:], torch.inf)
    begin, end = torch.zeros_like(place), torch.full_like(place, n)
    if n > WHOLE:
        begin, end = _bands(gaps, row_cut(t, None))
    begin, end, place = begin[:rows], end[:rows], place[:rows]
    blocks = list(_blocks(begin, end, len(t), size))
    reaches = _maxima(torch.stack([place - begin, end - 1 - place]))
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


def _bands(gaps: Tensor, cut: float) -> tuple[Tensor, Tensor]:
    # Find the columns of each row, begin to end - 1, (n,), in any of the lists, by bisection. The
    # logits come from prefix sums here. Clipped gaps are beyond the cut, and the sums stay small.
    gaps = widened(gaps).clamp(max=cut)
    n = gaps.shape[-1] + 1
    number = torch.arange(n, device=gaps.device)
    zero = torch.nn.functional.pad(gaps.cumsum(-1), (1, 0))
    one = torch.nn.functional.pad((gaps * number[:-1]).cumsum(-1), (1, 0))
    slope = (2 * number - 1).to(gaps.dtype)

    def inside(j: Tensor) -> Tensor:
        far = 2 * (one.gather(-1, j) - one) - slope * (zero.gather(-1, j) - zero)
        return far <= cut

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

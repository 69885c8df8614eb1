"""The device code of the kernel sums in Triton; `sums.py` explains and launches it."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false
# pyright: reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
# Triton's type hints do not cover constexpr and static_range

import triton
import triton.language as tl


@triton.jit
def _decay(x):
    # 1 - exp(-x) and exp(-x) for x >= 0, both with all their digits
    if x.dtype == tl.float64:
        terms: tl.constexpr = 16
        farthest: tl.constexpr = 745.0
    else:
        terms: tl.constexpr = 9
        farthest: tl.constexpr = 104.0
    near = tl.minimum(x, 0.7)
    e = 1.0 - near * (1.0 / terms)
    for k in tl.static_range(1, terms - 1):
        e = 1.0 - near * (1.0 / (terms - k)) * e
    e = near * e
    d = tl.exp(-tl.minimum(x, farthest))
    is_near = x < 0.7
    return tl.where(is_near, e, 1.0 - d), tl.where(is_near, 1.0 - e, d)


@triton.jit
def _complex_decay(x, angle):
    # the same for exp(-x - i angle); where exp(-x) is 0 the angle does not matter
    e, d = _decay(x)
    half = 0.5 * tl.where(d > 0.0, angle, 0.0)
    sine, cosine = tl.sin(half), tl.cos(half)
    real, imaginary = 2.0 * d * sine * sine, 2.0 * d * sine * cosine
    return e + real, imaginary, d - real, -imaginary


@triton.jit
def _step(e, d, x):
    # d x, computed from e = 1 - d or from d, whichever has more digits
    return tl.where(e < 0.5, x - e * x, d * x)


@triton.jit
def _join(e1, d1, b1, e2, d2, b2):
    e = e1 + e2 - e1 * e2
    return e, tl.where(e < 0.5, 1.0 - e, d1 * d2), b2 + _step(e2, d2, b1)


@triton.jit
def _times(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def _power(er, ei, dr, di, fr, fi, gr, gi):
    # e and d of the product of two complex decays d and g, where e = 1 - d and f = 1 - g
    efr, efi = _times(er, ei, fr, fi)
    er, ei = er + fr - efr, ei + fi - efi
    dr, di = _times(dr, di, gr, gi)
    near = dr * dr + di * di > 0.25
    return er, ei, tl.where(near, 1.0 - er, dr), tl.where(near, -ei, di)


@triton.jit
def _complex_step(er, ei, dr, di, xr, xi):
    exr, exi = _times(er, ei, xr, xi)
    dxr, dxi = _times(dr, di, xr, xi)
    near = dr * dr + di * di > 0.25
    return tl.where(near, xr - exr, dxr), tl.where(near, xi - exi, dxi)


@triton.jit
def _complex_join(er1, ei1, dr1, di1, br1, bi1, er2, ei2, dr2, di2, br2, bi2):
    br, bi = _complex_step(er2, ei2, dr2, di2, br1, bi1)
    er, ei, dr, di = _power(er1, ei1, dr1, di1, er2, ei2, dr2, di2)
    return er, ei, dr, di, br2 + br, bi2 + bi


@triton.jit
def _linear_join(f1, g1, c1, s1, f2, g2, c2, s2):
    # count c and linear sum s after a stretch: c2 + f c1 and s2 + f s1 + g c1, f is 0 or 1
    return f1 * f2, f2 * g1 + f1 * g2, c2 + f2 * c1, s2 + f2 * s1 + g2 * c1


@triton.jit
def _pick(slots, values, slot):
    return tl.sum(tl.where(slots == slot, values, 0.0))


@triton.jit(do_not_specialize=["n", "batch", "pieces", "count"])
def sweep(
    x,  # (batch, n)
    order,  # (batch, n) int64; unused with IN_ORDER
    values,  # (columns, batch, n)
    out,  # (outputs, batch, n)
    begins,  # (batch, pieces) int64: where the lists begin; unused with BLOCKS
    sizes,  # (batch, pieces) int64: their lengths; unused with BLOCKS
    labels,  # with BLOCKS (columns, batch, n) int32: each place's list, 0 for none, < 0 if spoiled
    table,  # first, step, then (columns, WIDTH, OUTPUTS): the profiles' numbers
    targets,  # (columns, OUTPUTS) int32: which outputs, -1 for none
    ends,  # (6, 2, batch * columns, SLOTS, pieces): the output with ENDS
    seeds,  # (2, 2, batch * columns, SLOTS, pieces): the states to begin with
    scale: tl.float64,
    n,
    batch,
    pieces,
    count,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,  # a power of two, at least 3 + count
    OUTPUTS: tl.constexpr,  # a power of two, at least the number of outputs of one column
    IN_ORDER: tl.constexpr,  # the scores are in falling order already
    BLOCKS: tl.constexpr,  # a piece is a block of its row, not a list
    ENDS: tl.constexpr,  # write what each block adds instead of sums
    SINGLE: tl.constexpr,  # a piece is one block
    COMPLEX: tl.constexpr,
    TIES: tl.constexpr,
    SUMS: tl.constexpr,
    LINEAR: tl.constexpr,
):
    """Sum over the items before each item: `sums.py` says how."""
    dtype = x.dtype.element_ty
    largest: tl.constexpr = 1e300 if x.dtype.element_ty == tl.float64 else 1e30
    piece = tl.program_id(0)
    column = tl.program_id(1)
    columns = tl.num_programs(1)
    row = (piece // pieces).to(tl.int64)
    width = 7 + 4 * count
    if BLOCKS:
        begin = (piece % pieces).to(tl.int64) * BLOCK
        end = tl.minimum(begin + BLOCK, n)
        labels += (column * batch + row) * n
    else:
        begin = tl.load(begins + piece)
        end = begin + tl.load(sizes + piece)
    x += row * n
    order += row * n
    values += (column * batch + row) * n
    out += row * n
    first_re, first_im = tl.load(table), tl.load(table + 1)
    step_re, step_im = tl.load(table + 2), tl.load(table + 3)
    kind = tl.arange(0, OUTPUTS)[:, None]
    table += 4 + column * width * OUTPUTS + kind
    goal = tl.load(targets + column * OUTPUTS + kind)
    lane = tl.arange(0, BLOCK)[None, :]
    slots = tl.arange(0, SLOTS)[None, :]
    one = tl.full((1, BLOCK), 1.0, dtype)
    scales = tl.full((1, BLOCK), scale, dtype)
    result = tl.zeros((OUTPUTS, BLOCK), dtype)
    spoiled = tl.full((), 0, tl.int32)
    chunks = 1 if SINGLE else ((end - begin + BLOCK - 1) // BLOCK).to(tl.int32)

    for side in tl.static_range(2):  # from the top down, then from the bottom up
        plane = ((side * batch + row) * columns + column) * SLOTS * pieces + piece % pieces
        area = 2 * batch.to(tl.int64) * columns * SLOTS * pieces  # for one number of a state
        if BLOCKS and not ENDS:
            kept_re = tl.load(seeds + plane + slots * pieces, slots < 3 + count, 0.0)
            kept_im = tl.load(seeds + area + plane + slots * pieces, slots < 3 + count, 0.0)
        else:
            kept_re = tl.zeros((1, SLOTS), dtype)
            kept_im = tl.zeros((1, SLOTS), dtype)
        weights = table + (1 + side * (3 + 2 * count)) * OUTPUTS
        if not SINGLE and side == 1:
            tl.debug_barrier()  # the first side's sums have been written
        for chunk in range(chunks):
            base = begin + (chunk if side == 0 else chunks - 1 - chunk) * BLOCK
            place = base + lane
            inside = place < end
            near = place - 1 if side == 0 else place + 1
            if BLOCKS:
                label = tl.load(labels + place, inside, 0)
                exists = inside & (near >= 0) & (near < n)
                linked = (label != 0) & (label == tl.load(labels + near, exists, 0))
            else:
                linked = inside & (near >= begin) & (near < end)
            item, other = place, near
            if not IN_ORDER:
                item = tl.load(order + place, inside, 0)
                other = tl.load(order + near, linked, 0)
            point, value = tl.load(x + item, inside, 0.0), tl.load(values + item, inside, 0.0)
            beside, v = tl.load(x + other, linked, 0.0), tl.load(values + other, linked, 0.0)
            finite = (tl.abs(point) < float("inf")) & (tl.abs(value) < float("inf"))
            clean = finite & (tl.abs(beside) < float("inf")) & (tl.abs(v) < float("inf"))
            if not BLOCKS and side == 0:
                spoiled = tl.maximum(spoiled, tl.max(tl.where(finite, 0, 1)))
            difference = beside - point if side == 0 else point - beside
            difference = tl.where(linked & clean, difference, 0.0)
            v = tl.where(linked & clean, v, 0.0)
            gap = tl.minimum(tl.maximum(difference, 0.0) * scales, largest)
            last = lane == ((tl.minimum(end - base, BLOCK) - 1) if side == 0 else 0)
            at = ends + plane + lane * 0
            spots = out + goal.to(tl.int64) * (batch.to(tl.int64) * n) + item
            stored = inside & (goal >= 0)
            if not ENDS:
                if side == 0:
                    result = tl.load(table) * tl.where(finite, value, 0.0)
                elif not SINGLE:
                    result = tl.load(spots, stored, 0.0)

            if TIES:
                e = tl.where(linked & (difference == 0.0), 0.0, one)
                e, d, b = tl.associative_scan((e, 1.0 - e, v - e * v), 1, _join, side == 1)
                if ENDS:
                    tl.store(at, e, last)
                    tl.store(at + 2 * area, d, last)
                    tl.store(at + 4 * area, b, last)
                else:
                    b += _step(e, d, _pick(slots, kept_re, 0))
                    result += tl.load(weights + 2 * OUTPUTS) * b
                    if not SINGLE:
                        kept_re = tl.where(slots == 0, tl.sum(tl.where(last, b, 0.0)), kept_re)
            if SUMS:
                f = tl.where(linked, one, 0.0)
                f, g, c, s = tl.associative_scan((f, gap, v, v * gap), 1, _linear_join, side == 1)
                if ENDS:
                    tl.store(at + pieces, f, last)
                    tl.store(at + 2 * pieces, g, last)
                    tl.store(at + 4 * area + pieces, c, last)
                    tl.store(at + 4 * area + 2 * pieces, s, last)
                else:
                    before = _pick(slots, kept_re, 1)
                    s += f * _pick(slots, kept_re, 2) + g * before
                    c += f * before
                    result += tl.load(weights) * c
                    if LINEAR:
                        result += tl.load(weights + OUTPUTS) * s
                    if not SINGLE:
                        kept_re = tl.where(slots == 1, tl.sum(tl.where(last, c, 0.0)), kept_re)
                        kept_re = tl.where(slots == 2, tl.sum(tl.where(last, s, 0.0)), kept_re)
            weight = weights + 3 * OUTPUTS
            if COMPLEX:
                er, ei, dr, di = _complex_decay(first_re * gap, first_im * gap)
                er, dr = tl.where(linked, er, 1.0), tl.where(linked, dr, 0.0)
                fr, fi, gr, gi = _complex_decay(step_re * gap, step_im * gap)
                for m in range(count):
                    br, bi = _complex_step(er, ei, dr, di, v, tl.zeros_like(v))
                    ur, ui, pr, pi, br, bi = tl.associative_scan(
                        (er, ei, dr, di, br, bi), 1, _complex_join, side == 1
                    )
                    if ENDS:
                        to = at + (3 + m) * pieces
                        tl.store(to, ur, last)
                        tl.store(to + area, ui, last)
                        tl.store(to + 2 * area, pr, last)
                        tl.store(to + 3 * area, pi, last)
                        tl.store(to + 4 * area, br, last)
                        tl.store(to + 5 * area, bi, last)
                    else:
                        before_re = _pick(slots, kept_re, 3 + m)
                        before_im = _pick(slots, kept_im, 3 + m)
                        more_re, more_im = _complex_step(ur, ui, pr, pi, before_re, before_im)
                        br += more_re
                        bi += more_im
                        result += tl.load(weight) * br
                        result -= tl.load(weight + count * OUTPUTS) * bi
                        if not SINGLE:
                            now_re = tl.sum(tl.where(last, br, 0.0))
                            now_im = tl.sum(tl.where(last, bi, 0.0))
                            kept_re = tl.where(slots == 3 + m, now_re, kept_re)
                            kept_im = tl.where(slots == 3 + m, now_im, kept_im)
                        weight += OUTPUTS
                    er, ei, dr, di = _power(er, ei, dr, di, fr, fi, gr, gi)
            else:
                e, d = _decay(first_re * gap)
                e, d = tl.where(linked, e, 1.0), tl.where(linked, d, 0.0)
                f, g = _decay(step_re * gap)
                for m in range(count):
                    u, p, b = tl.associative_scan((e, d, _step(e, d, v)), 1, _join, side == 1)
                    if ENDS:
                        to = at + (3 + m) * pieces
                        tl.store(to, u, last)
                        tl.store(to + 2 * area, p, last)
                        tl.store(to + 4 * area, b, last)
                    else:
                        b += _step(u, p, _pick(slots, kept_re, 3 + m))
                        result += tl.load(weight) * b
                        if not SINGLE:
                            now = tl.sum(tl.where(last, b, 0.0))
                            kept_re = tl.where(slots == 3 + m, now, kept_re)
                        weight += OUTPUTS
                    d = d * g
                    e = e + f - e * f
                    d = tl.where(e < 0.5, 1.0 - e, d)

            if not ENDS:
                if BLOCKS and side == 1:
                    stored &= label != 0
                    result = tl.where(label < 0, float("nan"), result)
                if not BLOCKS and side == 1:
                    result = tl.where(spoiled > 0, float("nan"), result)
                if side == 1 or not SINGLE:
                    tl.store(spots, result, stored)


@triton.jit(do_not_specialize=["rows", "pieces"])
def chain(
    ends,  # (6, 2, rows, SLOTS, pieces): what each block adds, by `sweep` with ENDS
    seeds,  # (2, 2, rows, SLOTS, pieces): the output, the states before each block
    rows,
    pieces,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
    COMPLEX: tl.constexpr,
    TIES: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Join the states at the ends of a row's blocks."""
    slot = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    area = 2 * rows.to(tl.int64) * SLOTS * pieces
    lane = tl.arange(0, BLOCK)[None, :]
    chunks = (pieces + BLOCK - 1) // BLOCK
    zero = tl.full((), 0.0, ends.dtype.element_ty)
    for side in tl.static_range(2):
        plane = ((side * rows + row) * SLOTS + slot) * pieces
        last = lane == (BLOCK - 1 if side == 0 else 0)
        kept, more = zero, zero
        for chunk in range(chunks):
            place = (chunk if side == 0 else chunks - 1 - chunk) * BLOCK + lane
            inside = place < pieces
            near = place - 1 if side == 0 else place + 1  # the block that comes before
            exists = (near >= 0) & (near < pieces)
            at, to = ends + plane + near, seeds + plane + place
            if slot == 1:
                if SUMS:
                    f = tl.load(at, exists, 1.0)
                    g = tl.load(at + pieces, exists, 0.0)
                    c = tl.load(at + 4 * area, exists, 0.0)
                    s = tl.load(at + 4 * area + pieces, exists, 0.0)
                    f, g, c, s = tl.associative_scan((f, g, c, s), 1, _linear_join, side == 1)
                    s += f * more + g * kept
                    c += f * kept
                    tl.store(to, c, inside)
                    tl.store(to + pieces, s, inside)
                    kept = tl.sum(tl.where(last, c, 0.0))
                    more = tl.sum(tl.where(last, s, 0.0))
            elif slot == 0:
                if TIES:
                    kept = _chain_real(at, to, exists, inside, last, kept, area, side)
            elif slot >= 3:
                if COMPLEX:
                    er, ei = tl.load(at, exists, 0.0), tl.load(at + area, exists, 0.0)
                    dr = tl.load(at + 2 * area, exists, 1.0)
                    di = tl.load(at + 3 * area, exists, 0.0)
                    br = tl.load(at + 4 * area, exists, 0.0)
                    bi = tl.load(at + 5 * area, exists, 0.0)
                    er, ei, dr, di, br, bi = tl.associative_scan(
                        (er, ei, dr, di, br, bi), 1, _complex_join, side == 1
                    )
                    before_re, before_im = _complex_step(er, ei, dr, di, kept, more)
                    br += before_re
                    bi += before_im
                    tl.store(to, br, inside)
                    tl.store(to + area, bi, inside)
                    kept = tl.sum(tl.where(last, br, 0.0))
                    more = tl.sum(tl.where(last, bi, 0.0))
                else:
                    kept = _chain_real(at, to, exists, inside, last, kept, area, side)


@triton.jit
def _chain_real(at, to, exists, inside, last, kept, area, side: tl.constexpr):
    e, d = tl.load(at, exists, 0.0), tl.load(at + 2 * area, exists, 1.0)
    b = tl.load(at + 4 * area, exists, 0.0)
    e, d, b = tl.associative_scan((e, d, b), 1, _join, side == 1)
    b += _step(e, d, kept)
    tl.store(to, b, inside)
    return tl.sum(tl.where(last, b, 0.0))

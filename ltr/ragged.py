"""Lists without padding: their lengths, queries, padded chunks and nested tensors."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ltr.shapes import refuse_nested, selectable

Lengths = Tensor | Sequence[int]
"""The lengths (R,) of R ragged lists: whole numbers in a tensor, a numpy array or a list."""

Chunk = tuple[Tensor, Tensor | None, list[Tensor]]
"""The indices of some lists (B,), their mask (B, longest) or None, and their padded columns."""

CHUNK_POSITIONS = 1 << 20
"""The most positions of a chunk with several lists."""

ITEMS_PER_LENGTH = 1 << 15
"""With at least this many items per distinct length on average, chunks have no padding."""

SPARE_POSITIONS = 1 << 14
"""Up to this many padded positions cost less than one more chunk."""


def check_exclusive(
    mask: Tensor | None,
    lengths: Lengths | None,
    qid: Tensor | None,
    nested: bool = False,
    padding: float | None = None,
) -> None:
    """Raise `ValueError` if more than one of the arguments defines the lists.

    `padding` may be given only alone or with a mask.

    >>> check_exclusive(None, [1, 2], torch.tensor([1, 2, 2]))
    Traceback (most recent call last):
    ValueError: mask, lengths and qid exclude each other, got lengths and qid
    """
    kinds = {"mask": mask, "lengths": lengths, "qid": qid, "nested tensors": nested or None}
    chosen = [name for name, x in kinds.items() if x is not None]
    if len(chosen) > 1:
        raise ValueError(f"mask, lengths and qid exclude each other, got {' and '.join(chosen)}")
    if padding is not None and chosen not in ([], ["mask"]):
        raise ValueError(f"padding must be None with {chosen[0]}, got {padding!r}")


def check_lengths(scores: Tensor, lengths: Lengths, name: str = "scores") -> Tensor:
    """Return lengths (R,) as int64; raise a ValueError if they do not fit flat scores (N,).

    Signs and the sum of the lengths are checked only on the CPU, outside `torch.compile`. On other
    devices these checks would wait for the device.

    >>> check_lengths(torch.zeros(3), [1, 2])
    tensor([1, 2])
    """
    refuse_nested(**{name: scores})
    if not isinstance(scores, Tensor) or scores.dim() != 1:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{name} must be flat (N,) if lengths are given, got {got}")
    if name == "scores" and not scores.is_floating_point():
        raise ValueError(f"scores must be floating point, got {scores.dtype}")
    given = lengths
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths, device=scores.device)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"lengths must be whole numbers (lists,), got {given!r}") from None
        lengths = lengths if lengths.numel() else lengths.long()  # an empty list became float32
    fractions = lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool
    if lengths.dim() != 1 or fractions:
        raise ValueError(f"lengths must be whole numbers (lists,), got {given!r}")
    lengths = lengths.long()
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
        if (lengths < 0).any():
            raise ValueError(f"lengths must be >= 0, got {int(lengths.min())}")
        if int(lengths.sum()) != len(scores):
            raise ValueError(f"lengths must sum to {len(scores)} {name}, got {int(lengths.sum())}")
    return lengths


def list_ids(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return the index of each item's list, (N,) int64.

    >>> import torch
    >>> list_ids(torch.zeros(3), torch.tensor([2, 0, 1]))
    tensor([0, 0, 2])
    """
    numbers = torch.arange(len(lengths), device=lengths.device)
    return numbers.repeat_interleave(lengths, output_size=len(scores))


def group_columns(columns: dict[str, Tensor], qid: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return columns (N, ...) with one list after the other, and lengths (R,): see `group_by_qid`.

    The columns have "scores" among them.

    Raises:
        ValueError: the scores are not (N,), or qid is not a tensor of N integers.

    >>> group_columns({"scores": torch.tensor([1.0, 2.0, 3.0])}, torch.tensor([7, -3, 7]))
    ({'scores': tensor([2., 1., 3.])}, tensor([1, 2]))
    """
    scores = columns["scores"]
    if scores.dim() != 1:
        raise ValueError(f"scores must be flat (N,) if qid is given, got {tuple(scores.shape)}")
    order, lengths = group_by_qid(qid, len(scores))
    if order is not None:  # the backward of `index_select` is faster than that of x[order]
        columns = {name: selectable(x).index_select(0, order) for name, x in columns.items()}
    return columns, lengths


def group_by_qid(qid: Tensor, n: int) -> tuple[Tensor | None, Tensor]:
    """Return the order of n rows by ascending qid, and the length of each list.

    Rows with the same qid are one list, in which they keep their order. For `values` (n,) of the
    rows, `values[order]` are ragged lists.

    Args:
        qid: (n,), in any order, of any integer dtype and on any device; ids may be negative.
        n: the number of rows.

    Returns:
        order (n,) int64, or None if the rows are in this order already; and lengths (R,) int64 of
        the R lists by ascending qid. Under `torch.compile` the order is never None, R is not known,
        and lengths are (n,): the lengths of the R lists, then zeros. Cost: one sort, or one pass if
        the ids are in order. Outside `torch.compile` the call waits for the device, to learn R.

    Raises:
        ValueError: qid is not a tensor of n integers.

    >>> group_by_qid(torch.tensor([7, -3, 7]), 3)
    (tensor([1, 0, 2]), tensor([1, 2]))
    """
    if not isinstance(qid, Tensor):
        raise ValueError(f"qid must be a tensor of integers ({n},), got a {type(qid).__name__}")
    refuse_nested(qid=qid)
    kind = qid.dtype
    fractions = kind.is_floating_point or kind.is_complex or kind == torch.bool
    if fractions or qid.shape != (n,):
        raise ValueError(f"qid must be integers ({n},), got {kind} {tuple(qid.shape)}")
    if kind in (torch.uint16, torch.uint32):  # torch does not sort these types
        qid = qid.long()
    elif kind == torch.uint64:
        qid = qid.view(torch.int64) ^ -(2**63)  # this keeps the order, but in signed integers
    if torch.compiler.is_compiling():
        ids, order = qid.sort(stable=True)
        new = torch.cat([ids.new_zeros(min(n, 1)), ids[1:] != ids[:-1]])
        lengths = torch.zeros_like(order)
        return order, lengths.scatter_add(0, new.cumsum(0), torch.ones_like(order))
    if _ascends(qid[:1024]):  # this is a quick check before all ids are checked
        ids, lengths = qid.unique_consecutive(return_counts=True)
        if _ascends(ids):
            return None, lengths
    if kind == torch.int64:
        low, high = qid.aminmax()
        if low >= -(2**31) and high < 2**31:
            qid = qid.int()  # torch sorts int32 in half the time
    ids, order = qid.sort(stable=True)
    return order, ids.unique_consecutive(return_counts=True)[1]


def _ascends(ids: Tensor) -> bool:
    return bool((ids[1:] >= ids[:-1]).all())


def chunks(lengths: Tensor, *columns: Tensor) -> Iterator[Chunk]:
    """Yield ragged lists as padded chunks, for code with masks, such as losses and metrics.

    A chunk has lists of nearly equal lengths, so that little padding is needed. It is a tuple of
    the indices of its lists (B,); their mask (B, longest), or None if no position is padded; and
    the columns (B, longest, ...), which are 0 in the padding. Lists of length 0 are in no chunk. If
    there are no items, the only chunk has 0 lists.

    Under `torch.compile` the shapes of all chunks depend only on N and R, so one graph serves any
    lengths. The first chunk has the lists of 1 to 8 items, the second those of 9 to 32 items, the
    third those of 33 to 128 items, and so on. A chunk has as many rows as there can be lists of its
    lengths, given N and R. A row without a list is all masked, and its index is R, which is the
    index of no list. All chunks together have O(N log(N)) positions.

    Args:
        lengths: (R,) int64, the number of items of each list; see `check_lengths`.
        columns: (N, ...) each, one list after the other. Derivatives pass through to the columns.

    >>> for lists, mask, [values] in chunks(torch.tensor([1, 2]), torch.tensor([2, 1, 3])):
    ...     print(lists.tolist(), mask.tolist(), values.tolist())
    [0, 1] [[True, False], [True, True]] [[2, 0], [1, 3]]
    """
    n = len(columns[0])
    if not n:
        cut = iter([(lengths.new_zeros(0), lengths.new_zeros(0, 1), None)])
    else:
        cut = _fixed_chunks(lengths, n) if torch.compiler.is_compiling() else _chunks(lengths)
    for lists, items, mask in cut:
        padded = []
        for column in columns:  # `index_select` has a faster backward pass than `column[items]`
            values = selectable(column).index_select(0, items.flatten())
            values = values.unflatten(0, items.shape)
            if mask is not None:
                values.masked_fill_(~mask.view(*mask.shape, *[1] * (column.dim() - 1)), 0)
            padded.append(values)
        yield lists, mask, padded


def from_chunks(parts: Sequence[tuple[Tensor, Tensor]], size: int, fill: float = 0.0) -> Tensor:
    """Return the values (..., size) of all lists, from the values in each chunk of `chunks`.

    Args:
        parts: for each chunk, the indices of its lists (B,) and the values of these lists (..., B).
        size: the number of lists R.
        fill: the value of a list that is in no chunk.

    >>> from_chunks([(torch.tensor([2, 0]), torch.tensor([5.0, 6.0]))], 3)
    tensor([6., 0., 5.])
    """
    indices, of_chunks = zip(*parts, strict=True)
    lists, values = torch.cat(indices), torch.cat(of_chunks, -1)
    whole = values.new_full((*values.shape[:-1], size + 1), fill)
    return whole.scatter(-1, lists.expand(values.shape), values)[..., :size]


def _chunks(lengths: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield the lists (B,), the items (B, longest) and the mask of each chunk: see `chunks`."""
    starts = lengths.cumsum(0) - lengths
    by_length, numbers = lengths.sort(stable=True)
    filled = by_length > 0
    by_length, numbers = by_length[filled], numbers[filled]
    for first, last in _cuts(by_length):
        lists, longest = numbers[first:last], int(by_length[last - 1])
        position = torch.arange(longest, device=lengths.device)
        items, mask = starts[lists].unsqueeze(-1) + position, None
        if int(by_length[first]) < longest:
            mask = position < by_length[first:last].unsqueeze(-1)
            items = torch.where(mask, items, 0)
        yield lists, items, mask


def _cuts(by_length: Tensor) -> list[tuple[int, int]]:
    """Return the bounds [first, stop) of each chunk, among lists sorted by ascending length.

    If there are many items per distinct length, all lists of a chunk have the same length.
    Otherwise the lists of a chunk have at most 8 items, have lengths that differ by at most a
    quarter, or need little padding.
    """
    sizes, counts = by_length.unique_consecutive(return_counts=True)
    exact = int(by_length.sum()) >= ITEMS_PER_LENGTH * len(sizes)
    cuts: list[tuple[int, int]] = []
    position, least, longest, spare = 0, 0, 0, 0
    for size, lists in zip(sizes.tolist(), counts.tolist(), strict=True):
        rows = max(1, CHUNK_POSITIONS // size)
        end = position + lists
        if cuts and not exact:
            first, last = cuts[-1]
            padding = spare + (last - first) * (size - longest)
            near = size <= max(8, least * 5 / 4) or padding <= SPARE_POSITIONS
            if near and first + rows > last:
                position, longest, spare = min(end, first + rows), size, padding
                cuts[-1] = (first, position)
        while position < end:
            least, longest, spare = size, size, 0
            cuts.append((position, min(end, position + rows)))
            position = cuts[-1][1]
    return cuts


def _fixed_chunks(lengths: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield chunks like `_chunks`, with shapes that depend only on n and the number of lists."""
    starts = lengths.cumsum(0) - lengths
    by_length, lists = lengths.sort(descending=True)
    last, width = 0, min(8, n)
    while last < n:
        rows = min(len(lengths), n // (last + 1))
        row = (lengths > width).sum() + torch.arange(rows, device=lengths.device)
        real = row < len(lengths)
        row = row.clamp(max=len(lengths) - 1)
        size = torch.where(real & (by_length[row] > last), by_length[row], 0)
        position = torch.arange(width, device=lengths.device)
        mask = position < size.unsqueeze(-1)
        items = torch.where(mask, starts[lists[row]].unsqueeze(-1) + position, 0)
        yield torch.where(size > 0, lists[row], len(lengths)), items, mask
        last, width = width, min(4 * width, n)


def sum_lists(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the sum of the values of each list: ragged values (..., N) -> (..., R).

    >>> import torch
    >>> sum_lists(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 0, 1]))
    tensor([3., 0., 3.])
    """
    total = values.new_zeros((*values.shape[:-1], len(lengths)))
    return total.index_add(-1, list_ids(values[(0,) * (values.dim() - 1)], lengths), values)


def flatten_nested(
    scores: Tensor, **others: Tensor | None
) -> tuple[Tensor, dict[str, Tensor | None], Tensor]:
    """Return the flat values (N,) of nested scores and of others, and their lengths (R,).

    Gradients flow back into the nested tensors. Others that are None stay None.

    Raises:
        ValueError: a tensor is not nested, its layout is not `torch.jagged`, it does not have two
            dimensions, or its lists do not have the lengths of the lists of the scores.

    >>> scores = torch.nested.nested_tensor([[0.1], [0.2, 0.3]], layout=torch.jagged)
    >>> flatten_nested(scores, weights=None)
    (tensor([0.1000, 0.2000, 0.3000]), {'weights': None}, tensor([1, 2]))
    """
    values, lengths = _parts("scores", scores)
    flat: dict[str, Tensor | None] = {}
    for name, x in others.items():
        if x is None:
            flat[name] = None
            continue
        flat[name], own = _parts(name, x)
        if not _equal(own, lengths):
            raise ValueError(f"{name} must have lists of the same lengths as scores")
    return values, flat, lengths


def _parts(name: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values (N,) of the lists, without gaps, and the lengths (R,) of the lists."""
    if not isinstance(x, Tensor) or not x.is_nested:
        raise ValueError(f"{name} must be nested if scores are nested")
    if x.layout != torch.jagged or x.dim() != 2:
        raise ValueError(
            f"{name} must be nested with layout=torch.jagged and two dimensions "
            f"(lists, items), got {x.layout} and {x.dim()}"
        )
    nested: Any = x  # torch does not declare the methods of nested tensors
    lengths, offsets = nested.lengths(), nested.offsets()
    if lengths is None:
        return nested.values(), offsets.diff()
    # The result of `torch.nested.narrow` has further values between its lists, and the backward of
    # its `contiguous` fails in torch 2.13.
    before = offsets[:-1] - (lengths.cumsum(0) - lengths)
    items = before.repeat_interleave(lengths)
    items = items + torch.arange(len(items), device=items.device)
    return nested.values()[items], lengths


def _equal(own: Tensor, lengths: Tensor) -> bool:
    # On a device other than the CPU, a comparison of values would wait for the device. So lengths
    # of the same shape count as equal there.
    if own is lengths or own.shape != lengths.shape:
        return own is lengths
    if own.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    return torch.equal(own, lengths)

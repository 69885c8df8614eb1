"""Lists in sorted order: the begin and the length of each list, and its items from the top down."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order, group_order
from ltr.shapes import check_lists, refuse_nested

Lengths = Tensor | Sequence[int]
"""The lengths (R,) of ragged lists: whole numbers in a tensor, a numpy array or a list."""


@dataclass(frozen=True)
class SortedLists:
    """Lists along the last axis of scores (..., N), and the order of their items.

    Padded batches have one list per row: `starts` (..., 1) is 0, and `lengths` (..., 1) is the
    number of real items. Ragged batches have all lists in one row.

    Args:
        order: (..., N) int64, the items (positions in the row), list by list, by descending score;
            None if the scores themselves are in that order.
        starts: (..., R) int64, the position in `order` where each list begins.
        lengths: (..., R) int64, the number of items of each list. Items in no list get 0.
    """

    order: Tensor | None
    starts: Tensor
    lengths: Tensor


def sort_lists(scores: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Sort padded lists (..., n) with their mask (..., n) bool. Cost: one sort.

    Raises:
        ValueError: scores are not floating point, or the mask is not bool or of another shape.

    >>> import torch
    >>> sort_lists(torch.tensor([[0.1, 0.9, 0.5]])).order
    tensor([[1, 2, 0]])
    """
    check_lists(scores, mask=mask)
    order = descending_order(scores.detach(), mask)
    shape = (*order.shape[:-1], 1)
    starts = order.new_zeros(shape)
    if mask is None:
        return SortedLists(order, starts, order.new_full(shape, order.shape[-1]))
    return SortedLists(order, starts, mask.sum(-1, keepdim=True))


def in_order(points: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Return the lists of points (..., n) that are already descending, with masked points last.

    The mask may be in any order: only its number of real items counts.

    >>> import torch
    >>> in_order(torch.tensor([3.0, 2.0, 0.0]), torch.tensor([True, False, True])).lengths
    tensor([2])
    """
    shape = (*points.shape[:-1], 1)
    starts = points.new_zeros(shape, dtype=torch.int64)
    if mask is None:
        return SortedLists(None, starts, starts + points.shape[-1])
    return SortedLists(None, starts, mask.sum(-1, keepdim=True))


def sort_ragged(scores: Tensor, lengths: Lengths) -> SortedLists:
    """Sort ragged lists without padding. Cost: two sorts.

    Args:
        scores: (N,), the scores of one list after another.
        lengths: (R,) whole numbers, the number of items of each list; they sum to N.

    Raises:
        ValueError: a wrong shape or dtype, or, on the CPU, lengths that are negative or do not
            sum to N.

    >>> import torch
    >>> sort_ragged(torch.tensor([0.1, 0.9, 0.2, 0.3, 0.4]), torch.tensor([2, 3])).order
    tensor([1, 0, 4, 3, 2])
    """
    lengths = check_lengths(scores, lengths)
    order = group_order(descending_order(scores.detach()), list_ids(scores, lengths))
    return SortedLists(order, lengths.cumsum(0) - lengths, lengths)


def check_lengths(scores: Tensor, lengths: Lengths, name: str = "scores") -> Tensor:
    """Return lengths (R,) as int64, or raise a ValueError unless they fit the flat values (N,).

    The values of lengths are checked only on the CPU; on other devices a check would wait for the
    device.

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
        lengths = lengths if lengths.numel() else lengths.long()  # no numbers: float32
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


def positions_in_lists(lists: SortedLists, like: Tensor) -> Tensor:
    """Return the hard rank 1, 2, ... of each item in its ragged list, (N,), in `like`'s dtype."""
    assert lists.order is not None
    rank = torch.arange(1, len(like) + 1, device=like.device)
    rank = rank - lists.starts.repeat_interleave(lists.lengths, output_size=len(like))
    return torch.empty_like(rank).scatter(0, lists.order, rank).to(like.dtype)


def group_by_qid(qid: Tensor, n: int) -> tuple[Tensor | None, Tensor]:
    """Return the order of n rows by ascending qid, and the length of each list.

    Rows with the same qid are one list. They keep their order. `values[order]` are ragged lists.

    Args:
        qid: (n,), in any order, of any integer dtype and on any device; negative ids are ids too.
        n: the number of rows.

    Returns:
        order (n,) int64, or None if the rows are in this order already; and lengths (R,) int64 of
        the R lists by ascending qid. In `torch.compile` the order is never None, R is not known,
        and lengths are (n,): those of the R lists, then zeros. Cost: one sort, or one pass if the
        ids are in order. The number of lists is read from the device.

    Raises:
        ValueError: qid is not a tensor of n integers.

    >>> group_by_qid(torch.tensor([7, -3, 7]), 3)
    (tensor([1, 0, 2]), tensor([1, 2]))
    """
    if not isinstance(qid, Tensor):
        raise ValueError(f"qid must be a tensor of integers ({n},), got {qid!r}")
    refuse_nested(qid=qid)
    kind = qid.dtype
    fractions = kind.is_floating_point or kind.is_complex or kind == torch.bool
    if fractions or qid.shape != (n,):
        raise ValueError(f"qid must be integers ({n},), got {kind} {tuple(qid.shape)}")
    if kind in (torch.uint16, torch.uint32):  # torch does not sort these types
        qid = qid.long()
    elif kind == torch.uint64:
        qid = qid.view(torch.int64) ^ -(2**63)  # the same order, signed
    if torch.compiler.is_compiling():
        ids, order = qid.sort(stable=True)
        new = torch.cat([ids.new_zeros(min(n, 1)), ids[1:] != ids[:-1]])
        lengths = torch.zeros_like(order)
        return order, lengths.scatter_add(0, new.cumsum(0), torch.ones_like(order))
    if _ascends(qid[:1024]):  # a quick look: all of them may be in order
        ids, lengths = qid.unique_consecutive(return_counts=True)
        if _ascends(ids):
            return None, lengths
    if kind == torch.int64:
        low, high = qid.aminmax()
        if low >= -(2**31) and high < 2**31:
            qid = qid.int()  # sorts in half the time
    ids, order = qid.sort(stable=True)
    return order, ids.unique_consecutive(return_counts=True)[1]


def _ascends(ids: Tensor) -> bool:
    return bool((ids[1:] >= ids[:-1]).all())


def pad_lists(lengths: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return the mask and the padded values (lists, longest) of ragged values (N,).

    Padded positions are 0. `padded[mask]` gives the flat values.

    Raises:
        ValueError: values are not flat, or, on the CPU, lengths do not sum to N.

    >>> import torch
    >>> mask, padded = pad_lists(torch.tensor([1, 2]), torch.tensor([0.1, 0.2, 0.3]))
    >>> padded
    tensor([[0.1000, 0.0000],
            [0.2000, 0.3000]])
    """
    for value in values:
        check_lengths(value, lengths, "values")
    longest = int(lengths.max()) if len(lengths) else 0
    mask = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(-1)
    padded = (value.new_zeros(mask.shape).masked_scatter(mask, value) for value in values)
    return mask, *padded


def length_tiles(lengths: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield padded tiles of ragged lists, whose shapes depend only on n and the number of lists.

    `torch.compile` needs that: `pad_lists` reads the longest length. The first tile has the lists
    of up to 8 items, the next those of up to 32, then 128, and so on. A tile has as many rows as n
    items can make such lists; most rows may be empty. All tiles together have O(n log(n))
    positions. Lists of length 0 are in no tile.

    Args:
        lengths: (R,) int64, R >= 1.
        n: the number of items, >= 1.

    Yields:
        The lists (rows,) and the items (rows, width) as int64 indices, and the mask (rows, width).
        A row without a list is all masked, and has the index of some list.

    >>> [(lists, items, mask)] = length_tiles(torch.tensor([1, 2]), 3)
    >>> items[mask]
    tensor([1, 2, 0])
    """
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
        yield lists[row], items, mask
        last, width = width, min(4 * width, n)


def sum_lists(values: Tensor, lengths: Tensor) -> Tensor:
    """Return the sum of ragged values (..., N) in each list: (..., R).

    >>> import torch
    >>> sum_lists(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 0, 1]))
    tensor([3., 0., 3.])
    """
    total = values.new_zeros((*values.shape[:-1], len(lengths)))
    return total.index_add(-1, list_ids(values[(0,) * (values.dim() - 1)], lengths), values)

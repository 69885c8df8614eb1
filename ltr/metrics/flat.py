"""Flat values with list ids, in chunks of lists of nearly equal length."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ltr.metrics.values import Reduction, reduce_values

PLACES = 1 << 20
"""Places in a chunk. Apart from the order of the items, this bounds the memory."""

SAME = 1 << 15
"""If a length has this many items on average, each length is a chunk without padding."""

SPARE = 1 << 14
"""This many places of padding cost less than one more chunk."""


def flat(
    metric: Callable[..., Tensor],
    scores: Tensor,
    labels: Tensor,
    indexes: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    """Return a metric of flat values, with a list id for each item, in any order.

    Lists of similar length are taken together, so nothing is padded to the longest list.

    Args:
        metric: a function of `ltr.metrics.functional`, or one like it.
        scores: (items,).
        labels: (items,), or with further axes.
        indexes: (items,) whole numbers, the list that each item belongs to.
        mask: (items,) bool, False for items to leave out.
        weights: (items,), for a metric that takes them.
        reduction: "mean" over the lists that count, "sum", or "none": one a list by rising id.
        options: other arguments of the metric.

    Returns:
        A scalar, or (lists,) with reduction="none". Cost: that of the metric, and a sort of the ids
        if they are not in order; memory for that order and for a chunk of lists.

    Raises:
        ValueError: shapes differ, ids are not whole numbers, or the metric raises it.

    >>> from ltr.metrics.functional import mrr
    >>> ids, labels = torch.tensor([7, 3, 7]), torch.tensor([1, 1, 0])
    >>> flat(mrr, torch.tensor([0.1, 0.2, 0.3]), labels, ids, reduction="none")
    tensor([1.0000, 0.5000])
    """
    columns = [scores, labels] + ([] if weights is None else [weights])
    if mask is not None:
        if mask.dtype != torch.bool:
            raise ValueError(f"mask must be bool (True = a real item), got {mask.dtype}")
        check_flat(indexes, mask, *columns)
        indexes, columns = indexes[mask], [column[mask] for column in columns]
    values = scores.new_zeros(0)
    for lists, total, real, (s, y, *w) in chunks(indexes, *columns):
        given = {"weights": w[0], **options} if w else options
        found = metric(s, y, real, reduction="none", **given)
        if len(values) != total:
            values = found.new_full((total,), torch.nan)
        values[lists] = found
    return reduce_values(values, reduction)


def check_flat(indexes: Tensor, *columns: Tensor) -> None:
    """Raise `ValueError` unless all have one item an id, and the ids are whole numbers."""
    if indexes.dim() != 1 or indexes.is_floating_point() or indexes.dtype == torch.bool:
        raise ValueError(
            "indexes must be one-dimensional whole numbers, "
            f"got {indexes.dtype} of shape {tuple(indexes.shape)}"
        )
    for column in columns:
        if column.dim() < 1 or len(column) != len(indexes):
            raise ValueError(
                f"scores, labels, mask and weights must have an item for each of the "
                f"{len(indexes)} indexes, got shape {tuple(column.shape)}"
            )


def chunks(
    indexes: Tensor, *columns: Tensor
) -> Iterator[tuple[Tensor, int, Tensor | None, list[Tensor]]]:
    """Yield chunks of lists of nearly equal length.

    A chunk is: the numbers of its lists; the number of all lists; a mask, or None if no place is
    padding; and the columns (lists, longest, ...), which are 0 in the padding. Lists are numbered
    by rising id. Their items keep their order.

    >>> for lists, _, mask, [values] in chunks(torch.tensor([7, 3, 7]), torch.tensor([1, 2, 3])):
    ...     print(lists.tolist(), mask.tolist(), values.tolist())
    [0, 1] [[True, False], [True, True]] [[2, 0], [1, 3]]
    """
    check_flat(indexes, *columns)
    order, lengths = group(indexes)
    for lists, mask, padded in ragged_chunks(lengths, columns, order):
        yield lists, len(lengths), mask, padded


def group(indexes: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return the items (items,) by rising id, None if they are so, and how many each id has.

    >>> group(torch.tensor([7, 3, 7]))
    (tensor([1, 0, 2]), tensor([1, 2]))
    """
    order, lengths = None, None
    if _rises(indexes[:1024]):  # all of them may be in order
        ids, lengths = indexes.unique_consecutive(return_counts=True)
        lengths = lengths if _rises(ids) else None
    if lengths is None:
        small = int(indexes.min()) >= -(2**31) and int(indexes.max()) < 2**31
        ids, order = (indexes.int() if small else indexes).sort(stable=True)  # faster in 32 bits
        lengths = ids.unique_consecutive(return_counts=True)[1]
    return order, lengths


def ragged_chunks(
    lengths: Tensor, columns: Sequence[Tensor], order: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor | None, list[Tensor]]]:
    """Yield chunks of ragged lists: their numbers, the mask and the columns, as `chunks` does.

    Lists of length 0 are in no chunk.

    Args:
        lengths: (R,) int64, the items of each list.
        columns: (N, ...) each, one list after the other.
        order: (N,) int64, the places of the items in the columns. Default: as they stand.
    """
    starts = lengths.cumsum(0) - lengths
    by_length, numbers = lengths.sort(stable=True)
    filled = by_length > 0
    by_length, numbers = by_length[filled], numbers[filled]
    for first, last in _cuts(by_length):
        lists = numbers[first:last]
        longest = int(by_length[last - 1])
        mask = None
        if int(by_length[first]) < longest:
            place = torch.arange(longest, device=lengths.device)
            mask = place < lengths[lists].unsqueeze(-1)
        if order is None:
            padded = [_rows(column, starts[lists], longest) for column in columns]
        else:
            items = _rows(order, starts[lists], longest)
            padded = [column[items] for column in columns]
        if mask is not None:
            for column in padded:
                column[~mask] = 0
        yield lists, mask, padded


def _rises(ids: Tensor) -> bool:
    return bool((ids[1:] >= ids[:-1]).all())


def _rows(column: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Return (lists, longest, ...) items from each start on, even past the end of a list."""
    windows = len(column) - longest
    if not len(starts) or int(starts.max()) <= windows:
        shape, step = (max(windows, 0) + 1, longest, *column.shape[1:]), column.stride(0)
        strides = (step, step, *column.stride()[1:])
        return column.as_strided(shape, strides)[starts]  # whole rows at a time
    place = torch.arange(longest, device=column.device)
    return column[(starts.unsqueeze(-1) + place).clamp(max=len(column) - 1)]


def _cuts(by_length: Tensor) -> list[tuple[int, int]]:
    """Return where to cut lists, sorted by rising length, into chunks.

    A chunk has lists of one length where there are many of each length. Otherwise its lengths
    differ by at most a quarter, or need little padding.
    """
    sizes, counts = by_length.unique_consecutive(return_counts=True)
    exact = int(by_length.sum()) >= SAME * len(sizes)
    cuts: list[tuple[int, int]] = []
    place, least, longest, spare = 0, 0, 0, 0
    for size, lists in zip(sizes.tolist(), counts.tolist(), strict=True):
        rows = max(1, PLACES // size)
        end = place + lists
        if cuts and not exact:
            first, last = cuts[-1]
            padding = spare + (last - first) * (size - longest)
            near = size <= max(8, least * 5 / 4) or padding <= SPARE
            if near and first + rows > last:
                place, longest, spare = min(end, first + rows), size, padding
                cuts[-1] = (first, place)
        while place < end:
            least, longest, spare = size, size, 0
            cuts.append((place, min(end, place + rows)))
            place = cuts[-1][1]
    return cuts


def group_lists(indexes: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Return a mask and padded values (lists, longest) of flat values (items,) with list ids.

    Items may come in any order, and keep it within their list. Lists are in order of rising id. All
    of them are padded to the longest; `flat` avoids this where lengths differ much.

    Raises:
        ValueError: shapes differ or are not one-dimensional.

    >>> group_lists(torch.tensor([7, 3, 7]), torch.tensor([0.1, 0.2, 0.3]))
    (tensor([[ True, False],
            [ True,  True]]), tensor([[0.2000, 0.0000],
            [0.1000, 0.3000]]))
    """
    for value in values:
        if indexes.dim() != 1 or value.shape != indexes.shape:
            raise ValueError(
                "indexes and values must be one-dimensional and of one shape, "
                f"got {tuple(indexes.shape)} and {tuple(value.shape)}"
            )
    ordered, order = indexes.sort(stable=True)
    _, lists, lengths = ordered.unique_consecutive(return_inverse=True, return_counts=True)
    places = torch.arange(len(order), device=order.device)
    places = places - (lengths.cumsum(0) - lengths)[lists]
    shape = (len(lengths), int(lengths.max()) if len(lengths) else 0)
    mask = torch.zeros(shape, dtype=torch.bool, device=indexes.device)
    mask[lists, places] = True
    padded = []
    for value in values:
        table = torch.zeros(shape, dtype=value.dtype, device=value.device)
        table[lists, places] = value[order]
        padded.append(table)
    return mask, *padded

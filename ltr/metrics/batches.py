"""Lists in any form (padded, ragged with `lengths`, or flat with `qid`), ranked in chunks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ltr.kernels.lists import Lengths, check_lengths, group_by_qid, length_tiles
from ltr.metrics.ranked import Ranked, rank
from ltr.metrics.values import ListValues
from ltr.shapes import check_lists

PerList = Callable[[Ranked], ListValues]
"""The `per_list` of a metric."""

POSITIONS = 1 << 20
"""Positions in a chunk. Apart from the order of the items, this bounds the memory."""

SAME = 1 << 15
"""If a length has this many items on average, each length is a chunk without padding."""

SPARE = 1 << 14
"""This many padded positions cost less than one more chunk."""


@dataclass(frozen=True)
class Batch:
    """Lists and their labels; the fields are the arguments that all metrics share.

    Attributes:
        scores: (..., n), or (N,) with `lengths` or `qid`; all other columns likewise.
        labels: may have a further axis if `topics`.
        mask: bool, True = a real item.
        weights: item weights.
        judged: bool, True = a judged item.
        lengths: (R,) whole numbers; the lists are ragged, one after the other.
        qid: (N,) integers, the list of each item.
        topics: whether labels may have an axis of topics.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None = None
    weights: Tensor | None = None
    judged: Tensor | None = None
    lengths: Lengths | None = None
    qid: Tensor | None = None
    topics: bool = False

    def values(self, metrics: Sequence[PerList]) -> list[ListValues]:
        """Return the values of each metric, (...) or (R,). Each list is ranked once for all.

        The value of a list without a real item is NaN. Lists by `qid` are in ascending order of id.

        >>> from ltr.metrics import MRR
        >>> batch = Batch(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 1, 0]), lengths=[1, 2])
        >>> batch.values([MRR().per_list])[0].values
        tensor([1.0000, 0.5000])

        Raises:
            ValueError: two of mask, lengths and qid are given; shapes differ; a value is wrong.
        """
        exclusive = {"mask": self.mask, "lengths": self.lengths, "qid": self.qid}
        given = [name for name, x in exclusive.items() if x is not None]
        if len(given) > 1:
            raise ValueError(f"mask, lengths and qid exclude each other, got {' and '.join(given)}")
        if self.lengths is None and self.qid is None:
            given = self.labels, self.mask, self.weights
            ranked = rank(self.scores, *given, judged=self.judged, topics=self.topics)
            return [per_list(ranked) for per_list in metrics]
        return _of_ragged(self, metrics)

    def real_lists(self, values: Tensor) -> Tensor:
        """Return which lists have a real item, bool in the shape of their values."""
        if self.mask is not None:
            return self.mask.any(-1)
        if self.lengths is not None:
            return check_lengths(self.scores, self.lengths) > 0
        return torch.full_like(values, self.scores.shape[-1] > 0, dtype=torch.bool)

    def by_qid(self, qid: Tensor) -> "Batch":
        """Return the real items as flat lists by the id of each item's list, (..., n)."""
        columns, dims = self._columns(), self.scores.dim()
        columns["qid"] = qid
        if self.mask is None:
            columns = {name: x.flatten(0, dims - 1) for name, x in columns.items()}
        else:
            columns = {name: x[self.mask] for name, x in columns.items()}
        return Batch(**columns, topics=self.topics)

    def _columns(self) -> dict[str, Tensor]:
        """Return the columns of the items by name, without the mask; check their shapes."""
        given = {"labels": self.labels, "weights": self.weights, "judged": self.judged}
        given = {name: x for name, x in given.items() if x is not None}
        items = dict(given)
        if self.topics and self.labels.dim() == self.scores.dim() + 1:
            items["labels"] = self.labels[..., 0]
        check_lists(self.scores, mask=self.mask, **items)
        return {"scores": self.scores.detach(), **given}

    def _ragged(self) -> tuple[dict[str, Tensor], Tensor]:
        """Return the columns, one list after the other, and the lengths (R,) int64."""
        if self.lengths is not None:
            lengths = check_lengths(self.scores, self.lengths)
            return self._columns(), lengths
        columns, qid = self._columns(), self.qid
        if self.scores.dim() != 1:
            got = tuple(self.scores.shape)
            raise ValueError(f"scores must be flat (N,) if qid is given, got {got}")
        assert qid is not None
        order, lengths = group_by_qid(qid, len(self.scores))
        if order is not None:
            columns = {name: x[order] for name, x in columns.items()}
        return columns, lengths


def _of_ragged(batch: Batch, metrics: Sequence[PerList]) -> list[ListValues]:
    columns, lengths = batch._ragged()
    numbers, found = [], []
    chunks = tiles if torch.compiler.is_compiling() else ragged_chunks
    for lists, mask, padded in chunks(lengths, list(columns.values())):
        chunk = dict(zip(columns, padded, strict=True))
        ranked = rank(**chunk, mask=mask, topics=batch.topics)
        numbers.append(lists)
        found.append([per_list(ranked) for per_list in metrics])
    if not found:  # no items, no chunk
        none = batch.scores.new_zeros(0, 1)
        numbers = [lengths.new_zeros(0)]
        found = [[per_list(rank(none, none)) for per_list in metrics]]
    lists, size = torch.cat(numbers), len(lengths)

    def gathered(parts: list[Tensor], fill: float) -> Tensor:
        values = torch.cat(parts)
        return values.new_full((size + 1,), fill).scatter(0, lists, values)[:size]

    of_metrics = []
    for of_chunks in zip(*found, strict=True):
        values = gathered([x.values for x in of_chunks], torch.nan)
        empty = gathered([x.empty for x in of_chunks], False)
        wrong = [x.wrong for x in of_chunks if x.wrong is not None]
        of_metrics.append(ListValues(values, empty, gathered(wrong, False) if wrong else None))
    return of_metrics


def tiles(
    lengths: Tensor, columns: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
    """Yield chunks as `ragged_chunks` does, of shapes that do not depend on the lengths' values.

    So one compiled graph serves any lengths. A row without a list is all masked, and has the number
    R, which is no list.

    >>> for lists, mask, [values] in tiles(torch.tensor([1, 2]), [torch.tensor([2, 1, 3])]):
    ...     print(lists.tolist(), mask.tolist(), values.tolist())
    [1, 0] [[True, True, False], [True, False, False]] [[1, 3, 0], [2, 0, 0]]
    """
    for lists, items, mask in length_tiles(lengths, len(columns[0])):
        lists = torch.where(mask.any(-1), lists, len(lengths))
        padded = []
        for column in columns:
            outside = ~mask.view(*mask.shape, *[1] * (column.dim() - 1))
            padded.append(column[items].masked_fill(outside, 0))
        yield lists, mask, padded


def ragged_chunks(
    lengths: Tensor, columns: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor | None, list[Tensor]]]:
    """Yield chunks of lists with nearly equal lengths, so that little padding is needed.

    A chunk is: the numbers of its lists; a mask, or None if no position is padded; and the columns
    (lists, longest, ...), which are 0 in the padding. Lists of length 0 are in no chunk.

    Args:
        lengths: (R,) int64, the items of each list.
        columns: (N, ...) each, one list after the other.

    >>> for lists, mask, [values] in ragged_chunks(torch.tensor([1, 2]), [torch.tensor([2, 1, 3])]):
    ...     print(lists.tolist(), mask.tolist(), values.tolist())
    [0, 1] [[True, False], [True, True]] [[2, 0], [1, 3]]
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
            position = torch.arange(longest, device=lengths.device)
            mask = position < lengths[lists].unsqueeze(-1)
        padded = [_rows(column, starts[lists], longest) for column in columns]
        if mask is not None:
            for column in padded:
                column[~mask] = 0
        yield lists, mask, padded


def _rows(column: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Return the (lists, longest, ...) items from each start, even past the end of a list."""
    windows = len(column) - longest
    if not len(starts) or int(starts.max()) <= windows:
        shape, step = (max(windows, 0) + 1, longest, *column.shape[1:]), column.stride(0)
        strides = (step, step, *column.stride()[1:])
        return column.as_strided(shape, strides)[starts]  # whole rows at a time
    position = torch.arange(longest, device=column.device)
    return column[(starts.unsqueeze(-1) + position).clamp(max=len(column) - 1)]


def _cuts(by_length: Tensor) -> list[tuple[int, int]]:
    """Return where to cut lists, sorted by ascending length, into chunks.

    A chunk has lists of one length if there are many of each length. Otherwise its lengths differ
    by at most a quarter, or need little padding.
    """
    sizes, counts = by_length.unique_consecutive(return_counts=True)
    exact = int(by_length.sum()) >= SAME * len(sizes)
    cuts: list[tuple[int, int]] = []
    position, least, longest, spare = 0, 0, 0, 0
    for size, lists in zip(sizes.tolist(), counts.tolist(), strict=True):
        rows = max(1, POSITIONS // size)
        end = position + lists
        if cuts and not exact:
            first, last = cuts[-1]
            padding = spare + (last - first) * (size - longest)
            near = size <= max(8, least * 5 / 4) or padding <= SPARE
            if near and first + rows > last:
                position, longest, spare = min(end, first + rows), size, padding
                cuts[-1] = (first, position)
        while position < end:
            least, longest, spare = size, size, 0
            cuts.append((position, min(end, position + rows)))
            position = cuts[-1][1]
    return cuts

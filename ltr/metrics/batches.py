"""Lists in any form (padded, ragged with `lengths`, or flat with `qid`), ranked in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ltr.metrics.ranked import ListValues, rank
from ltr.ragged import Lengths, check_exclusive, check_lengths, chunks, from_chunks, group_columns
from ltr.shapes import check_lists

if TYPE_CHECKING:
    from ltr.metrics.core import MetricCore


@dataclass(frozen=True)
class Batch:
    """Lists and their labels, in the form in which they are given to a metric.

    Attributes:
        scores: (..., n), or (N,) with `lengths` or `qid`.
        labels: in the shape of `scores`, or (..., n, topics) if `topics` is True.
        mask: bool, in the shape of `scores`, True = a real item.
        weights: item weights, in the shape of `scores`.
        judged: bool, in the shape of `scores`, True = a judged item.
        lengths: (R,) whole numbers, the length of each list; the lists follow each other.
        qid: (N,) integers, the id of each item's list.
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

    def values(self, metrics: "Sequence[MetricCore]") -> list[ListValues]:
        """Return the values of each metric, (...) or (R,). Each list is ranked only once.

        The value of a list without a real item is NaN. With `qid`, the lists are in ascending order
        of id.

        >>> from ltr.metrics.mrr import MRRCore
        >>> batch = Batch(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 1, 0]), lengths=[1, 2])
        >>> batch.values([MRRCore()])[0].values
        tensor([1.0000, 0.5000])

        Raises:
            ValueError: two of mask, lengths and qid are given; weights are given, but a metric
                takes none; shapes differ; a value is wrong.
        """
        for name, x in (("scores", self.scores), ("labels", self.labels)):
            if not isinstance(x, Tensor):
                raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
        if self.weights is not None:
            for metric in metrics:
                metric.check_weights()
        if self.lengths is not None or self.qid is not None:
            return self._ragged_values(metrics) if metrics else []
        columns = self.scores, self.labels, self.mask, self.weights, self.judged
        ranked = rank(*columns, topics=self.topics)
        return [metric.per_list(ranked) for metric in metrics]

    def real_lists(self, values: Tensor) -> Tensor:
        """Return which lists have a real item, bool in the shape of `values`."""
        if self.mask is not None:
            return self.mask.any(-1)
        if self.lengths is not None:
            return check_lengths(self.scores, self.lengths) > 0
        return torch.full_like(values, self.scores.shape[-1] > 0, dtype=torch.bool)

    def by_qid(self, qid: Tensor) -> "Batch":
        """Return the real items as flat lists; `qid` (..., n) is the id of each item's list."""
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

    def _ragged_values(self, metrics: "Sequence[MetricCore]") -> list[ListValues]:
        check_exclusive(self.mask, self.lengths, self.qid)
        if self.lengths is not None:
            lengths = check_lengths(self.scores, self.lengths)
            columns = self._columns()
        else:
            assert self.qid is not None
            columns, lengths = group_columns(self._columns(), self.qid)
        parts: list[tuple[Tensor, list[Any]]] = []
        for lists, mask, padded in chunks(lengths, *columns.values()):
            ranked = rank(**dict(zip(columns, padded, strict=True)), mask=mask, topics=self.topics)
            parts.append((lists, [metric.per_list(ranked) for metric in metrics]))

        def joined(field: int, fill: float) -> Tensor:
            stacked = [(i, torch.stack([x[field] for x in values])) for i, values in parts]
            return from_chunks(stacked, len(lengths), fill)

        # Only in `torch.compile`, wrong lists are marked.
        wrong = [None] * len(metrics) if parts[0][1][0].wrong is None else joined(2, False)
        return [*map(ListValues, joined(0, torch.nan), joined(1, False), wrong)]

"""The base classes of the metric classes, which keep running sums of the values of the lists."""

import warnings
from itertools import islice
from typing import Any, Unpack
from zlib import crc32

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.metrics.core import (
    BatchValues,
    BinaryCore,
    Columns,
    CutoffCore,
    MetricCore,
    Options,
    RetrievedCore,
    measure_lists,
)

__all__ = ["BinaryMetric", "CutoffMetric", "Options", "RankingMetric", "RetrievedMetric"]

# The number of lists depends on the ids, so a graph cannot hold it. `torch.compiler.disable` loads
# the compiler, which takes longer than torch, and the arithmetic alone needs none.
uncompiled_lists = torch.compiler.disable()(measure_lists)
"""`measure_lists`, which `torch.compile` leaves out of its graph."""

_RECENT = 1 << 12
"""A metric remembers at least this many ids of lists, if it looks for lists of two updates."""


class RankingMetric(MetricCore, Metric):
    """Base class of the metrics, each of which is the mean of one value per list.

    The mean is over all lists that have a value. By default, the state is only a few sums.

    A new metric is a subclass, such as `MRR`, that defines `per_list`, which takes lists in ranked
    order. The constructor of the subclass stores the metric's own arguments as attributes of the
    same names, and then passes the options below to the constructor of this class.

    `update` takes padded batches (..., n) with a mask, ragged lists (N,) with their `lengths`, or
    flat columns (items,) with `indexes`, one list id per item in any order. `indexes` is
    torchmetrics' name for the `qid` of the functions. All items of a list must be in the same
    `update`, because a metric keeps sums and no items. Data loaders that cut lists, such as a
    `DataLoader` over rows, need another batch sampler; or collect the rows, and give them to the
    function with `qid`. Flat columns without `indexes` or `lengths` are one list. A list without a
    real item does not count, so padding a shard with such lists changes nothing. `RankingMetrics`
    sorts each list only once for several metrics. `measure` returns the value of the given lists
    without adding them to the sums.

    Two metrics share a compute group of torchmetrics' `MetricCollection` only if they have the same
    class and equal arguments, because the name of the state depends on the class and the arguments.

    Args:
        keep_values: keep the per-list values, for `per_list_values`. Memory then grows with the
            number of lists.
        deduplicate: what the same list id in another update means. True: the same list, which
            counts only once, across all updates and processes, for samplers that repeat lists; this
            needs `indexes`, and keeps the values and the ids. False: another list. None: another
            list too, with one warning if one of the last 4,096 ids comes back, because it may be
            the rest of a list that two batches share. With True, the warning is about an id with
            different values, of which only the first counts.
        compute_on_cpu: as in `torchmetrics.Metric`. The same holds for `dist_sync_on_step`,
            `sync_on_compute` and `compute_with_cache`.
        others: the other arguments of `torchmetrics.Metric`, and `running` (default: True). With
            `running=False`, the metric takes no updates, and only `measure` works.

    Raises:
        ValueError: an argument is unknown.
        TypeError: a subclass has not set an argument as an attribute.

    >>> from ltr.metrics import NDCG
    >>> metric = NDCG(top_k=10)
    >>> metric.update(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    >>> metric.update(torch.tensor([0.3, 0.1]), torch.tensor([1, 0]), indexes=torch.tensor([5, 5]))
    >>> metric.compute()
    tensor(0.8155)
    """

    is_differentiable = False
    full_state_update = False

    values: Any
    ids: Any

    def __init__(
        self,
        *,
        keep_values: bool = False,
        deduplicate: bool | None = None,
        compute_on_cpu: bool = False,
        dist_sync_on_step: bool = False,
        sync_on_compute: bool = True,
        compute_with_cache: bool = True,
        **others: Any,
    ):
        self.keep_values, self.deduplicate = keep_values, deduplicate
        self.running = others.pop("running", True)
        # These are the ids of recent lists, as the keys of an ordered dict.
        self._recent: dict[int, None] = {}
        self._warned = False
        Metric.__init__(
            self,
            compute_on_cpu=compute_on_cpu,
            dist_sync_on_step=dist_sync_on_step,
            sync_on_compute=sync_on_compute,
            compute_with_cache=compute_with_cache,
            **others,
        )
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        self._state = f"sums_{crc32(f'{kind} {self.arguments}'.encode()):08x}"
        # The state is the sum of the values, and three counts: of the lists that count, of those
        # that are left out, and of those on which the metric is not defined.
        zeros = torch.zeros(4, dtype=torch.float64)
        self.add_state(self._state, default=zeros, dist_reduce_fx="sum")
        if keep_values or deduplicate:
            self.add_state("values", default=[], dist_reduce_fx="cat")
        if deduplicate:
            self.add_state("ids", default=[], dist_reduce_fx="cat")
        self._start_lists()

    def update(
        self,
        preds: Tensor | BatchValues,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        mask: Tensor | None = None,
        **columns: Unpack[Columns],
    ) -> None:
        """Add lists to the running sums.

        Args:
            preds: the scores (..., n), or (items,) with `indexes`. A `RankingMetrics` ranks the
                lists itself, and passes only the `BatchValues` of this metric, as `preds`.
            target: the labels, in the shape of `preds`; with topics, (..., n, topics).
            indexes: one list id per item, in the shape of `preds` and in any order; or one id per
                list: (...) for `preds` (..., n), or (R,) with `lengths`. Default: the items of a
                list are along the last axis.
            mask: bool, in the shape of `preds`, True for a real item. It may be given together with
                `indexes`.
            columns: `weights`: item weights, in the shape of `preds`, for a metric that takes them.
                `judged`: bool, in the shape of `preds`, True = a judged item, for `BPref`, `Judged`
                and `RBPResidual`; other metrics ignore it. `lengths`: (R,) whole numbers, the
                length of each list, instead of a mask. The lists are then ragged and follow each
                other: `preds` and all other columns except `indexes` are (N,).
        """
        if not self.running:
            raise ValueError("running must be True for update, got False")
        if isinstance(preds, BatchValues):
            self._add(preds)
        else:
            self._add(uncompiled_lists([self], preds, target, indexes, mask, **columns)[0])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add lists like `update`, and return the metric's value for only these lists."""
        recent = dict(self._recent)
        value = super().forward(*args, **kwargs)
        # torchmetrics resets the metric within `forward`.
        batch, self._recent = self._recent, recent
        self._watch([*batch])
        return value

    @torch.compiler.disable()
    def _add(self, found: BatchValues) -> None:
        if self.deduplicate is None and not self._warned and found.ids is not None:
            self._watch(found.ids.tolist())
        counted = (~found.values.isnan()).sum()
        total = self.before_mean(found.values).nansum()
        more = [total, counted, found.lists - counted, found.empty]
        setattr(self, self._state, self.sums + torch.stack(more))
        if self.keep_values or self.deduplicate:
            self.values.append(found.values)
        if self.deduplicate:
            assert found.ids is not None
            self.ids.append(found.ids)

    def _watch(self, ids: list[int]) -> None:
        """Warn, once, if a list comes back after a recent update."""
        if self._warned:
            return
        for list_id in ids:
            if list_id in self._recent:
                self._warn(
                    f"indexes: list {list_id} comes in two updates, and counts as two lists. Give "
                    "all items of a list in one update. If it is another list, or the same list "
                    "again, deduplicate=False or True says so"
                )
                self._recent = {}
                return
        self._recent |= dict.fromkeys(ids)
        for old in [*islice(self._recent, max(0, len(self._recent) - max(_RECENT, len(ids))))]:
            del self._recent[old]

    def _warn(self, message: str) -> None:
        self._warned = True
        warnings.warn(message, stacklevel=2)

    @property
    def sums(self) -> Tensor:
        """The state (4,) float64: `total`, `lists`, `left_out` and `empty_lists`."""
        return getattr(self, self._state)

    @property
    def total(self) -> Tensor:
        """The sum of the values (for `GMAP`, of their logarithms), float64."""
        return self.sums[0]

    @property
    def lists(self) -> Tensor:
        """The number of lists that count, float64; `deduplicate` does not change this number."""
        return self.sums[1]

    @property
    def left_out(self) -> Tensor:
        """The number of lists that are left out; `deduplicate` does not change this number."""
        return self.sums[2]

    @property
    def empty_lists(self) -> Tensor:
        """The number of lists on which the metric is not defined (often: no relevant item)."""
        return self.sums[3]

    def compute(self) -> Tensor:
        """Return the mean over the lists with a value, float32; NaN if no list has a value."""
        if self.deduplicate:
            return self.after_mean(self.before_mean(self.per_list_values).nanmean()).float()
        total, lists, *_ = self.sums
        return self.after_mean(total / lists).float()

    @property
    def per_list_values(self) -> Tensor:
        """One value per list, float64, NaN for a list that is left out.

        This needs `keep_values` or `deduplicate`. The values are in the order of the updates. If an
        update gives a list id for each item, its lists are in ascending order of id. With
        `deduplicate`, all values are in ascending order of id, as int64. With several processes,
        these are the values of this process or, within `sync_context`, of all processes.

        Raises:
            ValueError: the metric does not keep the values.
        """
        if not (self.keep_values or self.deduplicate):
            raise ValueError("keep_values must be True for per_list_values, got False")
        values = _joined(self.values)
        if not self.deduplicate:
            return values
        ordered, order = _joined(self.ids).sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        values = values[order]
        # The order of a sum may depend on the batch, so the same list has nearly the same value.
        same = torch.isclose(values[1:], values[:-1], rtol=1e-4, atol=1e-6, equal_nan=True)
        different = ~first[1:] & ~same
        if not self._warned and different.any():
            self._warn(
                f"indexes: list {int(ordered[1:][different][0])} has different values in two "
                "updates, and only the first counts. Give all items of a list in one update"
            )
        return values[first]

    def reset(self) -> None:
        """Forget all lists."""
        super().reset()
        self._recent = {}
        self._start_lists()

    def _start_lists(self) -> None:
        # With these empty tensors, a process without any update can take part in gathering values.
        if self.keep_values or self.deduplicate:
            self.values.append(self.sums.new_zeros(0))
        if self.deduplicate:
            self.ids.append(self.sums.new_zeros(0, dtype=torch.int64))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the value, or several computed values, as torchmetrics' metrics do.

        Returns:
            A pair, as from torchmetrics' metrics: the figure (None if `ax` is given) and the axes.
            The other `plot` methods of the package return only the axes.
        """
        return self._plot(val, ax)


class CutoffMetric(CutoffCore, RankingMetric):
    """Base class of the metric classes in which only the first `top_k` positions count."""


class BinaryMetric(BinaryCore, CutoffMetric):
    """Base class of the cutoff metric classes in which an item is either relevant or not."""


class RetrievedMetric(RetrievedCore, RankingMetric):
    """Base class of the metric classes that depend on which items were retrieved."""


def _joined(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(list(parts))

"""The base class of the metric classes, which keep running sums of the values of the lists."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field, is_dataclass
from inspect import Parameter
from itertools import islice
from typing import Any, NamedTuple, TypedDict, Unpack
from zlib import crc32

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ltr.config import parameters
from ltr.metrics.batches import Batch
from ltr.metrics.core import MetricCore, metric_name
from ltr.ragged import Lengths, check_lengths

_RECENT = 1 << 12
"""A metric remembers at least this many ids of lists, if it looks for lists of two updates."""


class Columns(TypedDict, total=False):
    """The `columns` of `RankingMetric.update`, which describes them."""

    weights: Tensor | None
    judged: Tensor | None
    lengths: Lengths | None


class BatchValues(NamedTuple):
    """The values of one metric for the lists of one batch.

    Attributes:
        values: (lists,) float64, NaN for a list that is left out. If each item was given with
            the id of its list, the lists are in ascending order of id.
        empty: the number of lists on which the metric is not defined.
        lists: the number of lists with a real item.
        ids: int64, the ids of the lists with a real item, which are all lists for a metric with
            `deduplicate`; None if `deduplicate` is False or ids were not given.
    """

    values: Tensor
    empty: Tensor
    lists: Tensor
    ids: Tensor | None


class RankingMetric(MetricCore, Metric):
    """Base class of the metrics, each of which is the mean of one value per list.

    The mean is over all lists that have a value. By default, the state is only a few sums.

    A new metric is a subclass that defines `per_list`, which takes lists in ranked order. Its own
    arguments are its annotated attributes, as in a dataclass. If it has a constructor instead, that
    stores the arguments as attributes of the same names, and then passes the options below to the
    constructor of this class.

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

    All metrics take these arguments by name:

    - `keep_values`: keep the per-list values, for `per_list_values`. Memory then grows with the
      number of lists.
    - `deduplicate`: what the same list id in another update means. True: the same list, which
      counts only once, across all updates and processes, for samplers that repeat lists; this
      needs `indexes`, and keeps the values and the ids. False: another list. None: another list
      too, with one warning if one of the last 4,096 ids comes back, because it may be the rest of a
      list that two batches share. With True, the warning is about an id with different values, of
      which only the first counts.
    - `compute_on_cpu`, `dist_sync_on_step`, `sync_on_compute`, `compute_with_cache`,
      `process_group` and `dist_sync_fn`: as in `torchmetrics.Metric`.

    Raises:
        TypeError: an argument is unknown, or a subclass has not set one as an attribute.

    >>> from ltr.metrics import NDCG
    >>> metric = NDCG(top_k=10)
    >>> metric.update(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    >>> metric.update(torch.tensor([0.3, 0.1]), torch.tensor([1, 0]), indexes=torch.tensor([5, 5]))
    >>> metric.compute()
    tensor(0.8155)
    """

    is_differentiable = False
    full_state_update = False

    values: Any = field(init=False)
    ids: Any = field(init=False)
    _: KW_ONLY
    keep_values: bool = False
    deduplicate: bool | None = None
    compute_on_cpu: bool = False
    dist_sync_on_step: bool = False
    sync_on_compute: bool = True
    compute_with_cache: bool = True
    process_group: Any = None
    dist_sync_fn: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_dataclass(type(self)):  # Lightning would log a copy, which gets no update
            raise TypeError(f"{type(self).__name__} must not have @dataclass")
        if lacking := [name for name in self.own_parameters() if not hasattr(self, name)]:
            raise TypeError(f"{type(self).__name__} must set {lacking} before super().__init__")
        options = parameters(RankingMetric).keys() - {"keep_values", "deduplicate"}
        Metric.__init__(self, **{name: getattr(self, name) for name in options})
        # These are the ids of recent lists, as the keys of an ordered dict.
        self._recent: dict[int, None] = {}
        self._warned = False
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        self._state = f"sums_{crc32(f'{kind} {self.arguments}'.encode()):08x}"
        # The state is the sum of the values, and three counts: of the lists that count, of those
        # that are left out, and of those on which the metric is not defined.
        zeros = torch.zeros(4, dtype=torch.float64)
        self.add_state(self._state, default=zeros, dist_reduce_fx="sum")
        if self.keep_values or self.deduplicate:
            self.add_state("values", default=[], dist_reduce_fx="cat")
        if self.deduplicate:
            self.add_state("ids", default=[], dist_reduce_fx="cat")
        self._start_lists()

    @classmethod
    def own_parameters(cls) -> dict[str, Parameter]:
        """Return the metric's own arguments, without the options of all metrics."""
        options = parameters(RankingMetric)
        return {name: x for name, x in parameters(cls).items() if name not in options}

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
        if isinstance(preds, BatchValues):
            self._add(preds)
        else:
            self._add(measure_lists([self], preds, target, indexes, mask, **columns)[0])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add lists like `update`, and return the metric's value for only these lists."""
        recent = dict(self._recent)
        value = super().forward(*args, **kwargs)
        # torchmetrics resets the metric within `forward`.
        batch, self._recent = self._recent, recent
        self._watch([*batch])
        return value

    @torch.compiler.disable()
    def _add(self, batch: BatchValues) -> None:
        if self.deduplicate is None and not self._warned and batch.ids is not None:
            self._watch(batch.ids.tolist())
        counted = (~batch.values.isnan()).sum()
        total = (batch.values.log() if self.is_geometric else batch.values).nansum()
        sums = torch.stack([total, counted, batch.lists - counted, batch.empty])
        setattr(self, self._state, getattr(self, self._state) + sums)
        if self.keep_values or self.deduplicate:
            self.values.append(batch.values)
        if self.deduplicate:
            assert batch.ids is not None
            self.ids.append(batch.ids)

    def _watch(self, ids: list[int]) -> None:
        """Warn, once, if a list comes back after a recent update."""
        if self._warned:
            return
        for list_id in ids:
            if list_id in self._recent:
                self._warn(
                    f"indexes: list {list_id} comes in two updates, and counts as two lists. Give "
                    "all items of a list in one update, or deduplicate=False if it is another "
                    "list, or deduplicate=True if it is the same list again"
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
            values = self.per_list_values
            mean = (values.log() if self.is_geometric else values).nanmean()
        else:
            total, lists, *_ = getattr(self, self._state)
            mean = total / lists
        return (mean.exp() if self.is_geometric else mean).float()

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
        values = dim_zero_cat(self.values)
        if not self.deduplicate:
            return values
        ordered, order = dim_zero_cat(self.ids).sort(stable=True)
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


# The number of lists depends on the ids, so a graph cannot hold it. `torch.compiler.disable` loads
# the compiler, which takes longer than torch, and the arithmetic alone needs none.
@torch.compiler.disable()
def measure_lists(
    metrics: Sequence[RankingMetric],
    preds: Tensor,
    target: Tensor | None,
    indexes: Tensor | None = None,
    mask: Tensor | None = None,
    **columns: Unpack[Columns],
) -> list[BatchValues]:
    """Return each metric's values for the lists; the arguments are those of `RankingMetric.update`.

    Each list is ranked only once, for all metrics. `torch.compile` leaves this function out of its
    graph.

    >>> from ltr.metrics import MAP, MRR
    >>> ids = torch.tensor([7, 3, 7])
    >>> for of_metric in measure_lists([MRR(), MAP()], torch.rand(3), torch.tensor([1, 1, 1]), ids):
    ...     print(of_metric.values)
    tensor([1., 1.], dtype=torch.float64)
    tensor([1., 1.], dtype=torch.float64)
    """
    for name, x in (("preds", preds), ("target", target), ("indexes", indexes)):
        if not isinstance(x, Tensor) and not (x is None and name == "indexes"):
            raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
    assert target is not None
    if indexes is not None and (indexes.is_floating_point() or indexes.dtype == torch.bool):
        raise ValueError(f"indexes must be whole numbers, got {indexes.dtype}")
    topics, with_ids = True, False
    for metric in metrics:
        topics = topics and metric.takes_topics
        with_ids = with_ids or metric.deduplicate is not False
        if indexes is None and metric.deduplicate:
            name = metric_name(type(metric))
            raise ValueError(f"indexes must be given: {name} has deduplicate=True, got None")
    batch, ids = Batch(preds, target, mask, **columns, topics=topics), None
    if indexes is not None:
        batch = _by_ids(batch, indexes)
        if with_ids:
            ids = (indexes if batch.qid is None else batch.qid.unique()).reshape(-1).long()
    of_metrics = []
    for metric, of_lists in zip(metrics, batch.values(metrics), strict=True):
        real = batch.real_lists(of_lists.values).reshape(-1)
        values, list_ids = of_lists.values.detach().double().reshape(-1), None
        if metric.deduplicate is not False and ids is not None:
            list_ids = ids[real]  # a list without a real item may have any id
        if metric.deduplicate and list_ids is not None:
            values = values[real]
        of_metrics.append(BatchValues(values, of_lists.empty.sum(), real.sum(), list_ids))
    return of_metrics


def _by_ids(batch: Batch, indexes: Tensor) -> Batch:
    """Check the ids, one per list or one per item, and return the batch as lists with these ids."""
    scores, lengths = batch.scores, batch.lengths
    if lengths is not None:
        lengths = check_lengths(scores, lengths)
        if indexes.shape != (len(lengths),):
            raise ValueError(
                f"indexes must have one id for each of the {len(lengths)} lengths, "
                f"got shape {tuple(indexes.shape)}"
            )
        return batch
    if scores.dim() and indexes.shape == scores.shape[:-1]:
        return batch
    if indexes.shape != scores.shape:
        raise ValueError(
            f"indexes must have the shape of preds {tuple(scores.shape)} or of its lists, "
            f"got {tuple(indexes.shape)}"
        )
    return batch.by_qid(indexes)

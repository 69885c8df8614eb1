"""The base classes of the metrics, which compute a value for each list and keep running sums."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, TypeVar, Unpack
from zlib import crc32

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.config import parameters
from ltr.kernels.lists import Lengths, check_lengths
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked, check_relevant_from
from ltr.metrics.ties import Ties, check_ties
from ltr.metrics.values import Empty, ListValues, Reduction, check_empty, reduce_lists
from ltr.shapes import check_top_k

_RECENT = 1 << 12
"""A metric remembers at least this many ids of lists, if it looks for lists of two updates."""


class ListArguments(TypedDict, total=False):
    """The arguments that all functions share: `ltr.metrics.functional` describes them."""

    mask: Tensor | None
    weights: Tensor | None
    lengths: Lengths | None
    qid: Tensor | None
    reduction: Reduction


class Columns(TypedDict, total=False):
    """The `columns` of `RankingMetric.update`, which describes them."""

    weights: Tensor | None
    judged: Tensor | None
    lengths: Lengths | None


class Options(TypedDict, total=False):
    """The options of every metric class: `RankingMetric` describes them."""

    running: bool
    keep_values: bool
    deduplicate: bool | None
    compute_on_cpu: bool
    dist_sync_on_step: bool
    sync_on_compute: bool
    compute_with_cache: bool
    process_group: Any
    dist_sync_fn: Callable[..., Any] | None
    distributed_available_fn: Callable[..., Any]


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


class RankingMetric(Metric):
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
        others: the other arguments of `torchmetrics.Metric`, and `running` (default: True). The
            functions set `running` to False: the metric then has no running sums, and only
            `measure` works.

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
    higher_is_better = True
    full_state_update = False

    takes_weights: ClassVar[bool] = False
    """Whether the metric takes item weights."""

    takes_topics: ClassVar[bool] = False
    """Whether labels may be (..., n, topics)."""

    divides_by_k: ClassVar[bool] = False
    """Whether the metric divides by `top_k` (by the length of the list if `top_k` is None)."""

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
        # The constructor of `torchmetrics.Metric` is slow, and `torch.compile` cannot trace it.
        if not self.running:
            if unknown := [name for name in others if name not in Options.__annotations__]:
                raise ValueError(f"{type(self).__name__} has no argument {unknown[0]!r}")
            return
        super().__init__(
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

    def __repr__(self) -> str:
        """Return the class with the arguments that differ from their defaults."""
        defaults = {name: one.default for name, one in parameters(type(self)).items()}
        given = {name: x for name, x in self.arguments.items() if x != defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={x!r}' for name, x in given.items())})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy or pickle a metric without running sums by its arguments."""
        if self.running:
            return super().__reduce_ex__(protocol)
        return _without_sums, (type(self), self.arguments)

    def __hash__(self) -> int:
        """Return a hash of the object."""
        return super().__hash__() if self.running else id(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """The metric's own arguments, by name."""
        names = [x for x in parameters(type(self)) if x not in Options.__annotations__]
        if lacking := [name for name in names if not hasattr(self, name)]:
            raise TypeError(f"{type(self).__name__} must set {lacking} before super().__init__")
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list, as `list_values` returns it."""

    def measure(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        judged: Tensor | None = None,
        lengths: Lengths | None = None,
        qid: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Return the mean, the sum or the values for these lists, without changing the state.

        `ltr.metrics.functional` describes the arguments, except `judged`: see `bpref`.

        >>> from ltr.metrics import MRR
        >>> MRR().measure(torch.tensor([0.1, 0.3]), torch.tensor([1, 0]))
        tensor(0.5000)
        """
        self._check_weights(weights)
        topics = self.takes_topics
        batch = Batch(scores, labels, mask, weights, judged, lengths, qid, topics=topics)
        found = batch.values([self.per_list])[0]
        if reduction != "mean":
            return reduce_lists(found, reduction)
        averaged = found._replace(values=self.before_mean(found.values))
        return self.after_mean(reduce_lists(averaged, "mean"))

    def before_mean(self, values: Tensor) -> Tensor:
        """Return what to average over the lists: the values, or for `GMAP` their logarithms."""
        return values

    def after_mean(self, mean: Tensor) -> Tensor:
        """Return the value of the metric: the inverse of `before_mean`, applied to the mean."""
        return mean

    def _check_weights(self, weights: Tensor | None) -> None:
        if weights is not None and not self.takes_weights:
            raise ValueError(f"weights must be None: {type(self).__name__} has no item weights")

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for a run's lists, whose order below rank `depth` is unknown.

        Raises:
            ValueError: the metric needs whole lists. It does unless its class overrides `of_run`.
        """
        raise ValueError(f"metric must not need whole lists, got {type(self).__name__}")

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
        if not isinstance(preds, BatchValues):
            [preds] = measure_lists([self], preds, target, indexes, mask, **columns)
        self._add(preds)

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
        return self.after_mean(self.total / self.lists).float()

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


class CutoffMetric(RankingMetric):
    """Base class of the metrics in which only the items at the first `top_k` positions count.

    Args:
        top_k: the number of positions that count. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: how tied items count: "stable", "worst" or "expected".
        options: the options of `RankingMetric`.
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)
        super().__init__(**options)

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for the lists of a run; a `top_k` of None becomes `depth`.

        Raises:
            ValueError: `top_k` is above `depth`, or `top_k` is None and the metric divides by it.
        """
        return cut_at(self, depth)


AnyMetric = TypeVar("AnyMetric", bound=RankingMetric)


def cut_at(metric: AnyMetric, depth: int) -> AnyMetric:
    """Return a copy of the metric for the lists of a run: see `CutoffMetric.of_run`."""
    top_k = metric.arguments["top_k"]
    if top_k is None and metric.divides_by_k:
        name = type(metric).__name__
        raise ValueError(f"top_k must be given for {name}, which divides by it, got None")
    if top_k is not None and top_k > depth:
        raise ValueError(f"top_k must be <= depth {depth} of the join, got {top_k}")
    arguments = {**metric.arguments, "top_k": depth if top_k is None else top_k}
    return type(metric)(**arguments, running=False)


class BinaryMetric(CutoffMetric):
    """Base class of the cutoff metrics in which an item is either relevant or not.

    Args:
        top_k: the number of positions that count. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: how tied items count: "stable", "worst" or "expected".
        relevant_from: the least label of a relevant item, > 0. Default: any label above 0.
        options: the options of `RankingMetric`.
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        relevant_from: float | None = None,
        **options: Unpack[Options],
    ):
        self.relevant_from = check_relevant_from(relevant_from)
        super().__init__(top_k, empty, ties, **options)

    def hits(self, lists: Ranked) -> Tensor:
        """Return 1 (or the weight) for each relevant item and 0 for all others, (..., n)."""
        hits = lists.relevant(self.relevant_from).to(lists.scores.dtype)
        return hits if lists.weights is None else hits * lists.weights


class RetrievedMetric(RankingMetric):
    """Base class of the metrics that depend on which items were retrieved.

    Args:
        threshold: items with a score above it are retrieved. Default: all items.
        empty: the value of a list on which the metric is not defined: a number, "skip" or "error".
        options: the options of `RankingMetric`.
    """

    def __init__(
        self,
        threshold: float | None = None,
        empty: Empty = 0,
        **options: Unpack[Options],
    ):
        good = isinstance(threshold, Real) and not isinstance(threshold, bool)
        if threshold is not None and not (good and threshold == threshold):
            raise ValueError(f"threshold must be None or a number, got {threshold!r}")
        self.threshold = None if threshold is None else float(threshold)
        self.empty: Empty = check_empty(empty)
        super().__init__(**options)

    def retrieved(self, lists: Ranked) -> Tensor:
        """Return 1 for each retrieved item and 0 for all others, (..., n)."""
        real = torch.ones_like(lists.scores)
        if lists.mask is not None:
            real = lists.mask.to(real.dtype)
        return real if self.threshold is None else real * (lists.scores > self.threshold)

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for the lists of `join`, with the threshold -depth.

        In these lists, only the retrieved items have scores above -depth.

        Raises:
            ValueError: the metric has a threshold.
        """
        if self.threshold is not None:
            raise ValueError(f"threshold must be None for a run, got {self.threshold}")
        arguments: dict[str, Any] = {**self.arguments, "threshold": -float(depth)}
        return type(self)(**arguments, running=False)


@torch.compiler.disable()  # the number of lists depends on the ids
def measure_lists(
    metrics: Sequence[RankingMetric],
    preds: Tensor,
    target: Tensor | None,
    indexes: Tensor | None = None,
    mask: Tensor | None = None,
    **columns: Unpack[Columns],
) -> list[BatchValues]:
    """Return each metric's values for the lists; the arguments are those of `RankingMetric.update`.

    Each list is ranked only once, for all metrics.

    >>> from ltr.metrics import MAP, MRR
    >>> ids = torch.tensor([7, 3, 7])
    >>> for found in measure_lists([MRR(), MAP()], torch.rand(3), torch.tensor([1, 1, 1]), ids):
    ...     print(found.values)
    tensor([1., 1.], dtype=torch.float64)
    tensor([1., 1.], dtype=torch.float64)
    """
    weights, judged = columns.get("weights"), columns.get("judged")
    given = {"indexes": indexes, "mask": mask, "weights": weights, "judged": judged}
    given = {name: x for name, x in given.items() if x is not None}
    for name, x in {"preds": preds, "target": target, **given}.items():
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
    assert target is not None
    if indexes is not None and (indexes.is_floating_point() or indexes.dtype == torch.bool):
        raise ValueError(f"indexes must be whole numbers, got {indexes.dtype}")
    if not metrics:
        return []
    for metric in metrics:
        metric._check_weights(weights)
        if indexes is None and metric.deduplicate:
            name = type(metric).__name__
            raise ValueError(f"indexes must be given: {name} has deduplicate=True, got None")
    topics = all(metric.takes_topics for metric in metrics)
    batch = Batch(preds, target, mask, **columns, topics=topics)
    ids = None
    if indexes is not None:
        batch = _by_ids(batch, indexes)
        if any(metric.running and metric.deduplicate is not False for metric in metrics):
            ids = (indexes if batch.qid is None else batch.qid.unique()).reshape(-1).long()
    measured, real = [], None
    for metric, found in zip(metrics, batch.values([m.per_list for m in metrics]), strict=True):
        real = batch.real_lists(found.values).reshape(-1) if real is None else real
        values, own = found.values.detach().double().reshape(-1), None
        if metric.deduplicate is not False and ids is not None:
            own = ids[real]  # a list without a real item may have any id
        if metric.deduplicate and own is not None:
            values = values[real]
        measured.append(BatchValues(values, found.empty.sum(), real.sum(), own))
    return measured


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


def _without_sums(kind: type[RankingMetric], arguments: dict[str, Any]) -> RankingMetric:
    """Return a metric without running sums, to copy or unpickle it."""
    return kind(**arguments, running=False)


def _joined(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(list(parts))

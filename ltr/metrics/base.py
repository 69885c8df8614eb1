"""The base of the metric classes: running sums over lists."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any, ClassVar, NamedTuple, TypedDict

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.kernels.lists import Lengths
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import rank
from ltr.metrics.ties import first_in_order
from ltr.metrics.values import ListValues


class Options(TypedDict, total=False):
    """The options of every metric class: `RankingMetric` describes them."""

    keep_values: bool
    deduplicate: bool
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
        values: (lists,) float64, NaN for a list that is left out. Flat values: by ascending id.
        empty: how many lists have no value of their own.
        lists: how many lists have a real item.
        ids: (lists,) int64, for a metric with `deduplicate`; others may have None.
    """

    values: Tensor
    empty: Tensor
    lists: Tensor
    ids: Tensor | None


class RankingMetric(Metric):
    """Base class of the metrics: the mean of one number per list.

    The mean is over all lists that have a value; the state is a few sums.

    A new metric is a subclass such as `MRR`. Its `core` takes a `Ranked` and the metric's own
    arguments and returns `ListValues`. Its constructor passes these arguments and the options below
    to this constructor. The object keeps each of them under its name.

    `update` takes padded batches (..., n) with a mask, ragged lists (N,) with their `lengths`, or
    flat values (items,) with `indexes`, one list id per item in any order. torchmetrics' name
    `indexes` means the `qid` of the functions. One `update` must contain a list completely. A list
    without a real item does not count, so padding a shard with such lists changes nothing.
    `RankingMetrics` sorts each list only once for several metrics.

    Two metrics share a compute group of torchmetrics' `MetricCollection` only if they have one
    class and equal arguments, because the name of the state contains both.

    Args:
        keep_values: keep the per-list values, for `per_list_values`. Memory then grows with the
            number of lists.
        deduplicate: count each list id once, across all updates and processes, for samplers that
            repeat lists; needs `indexes`, and keeps values and ids. By default, the same id in
            another update or process is another list.
        compute_on_cpu: as in `torchmetrics.Metric`, like the next three.
        arguments: the metric's own arguments, which `core` takes, and the other arguments of
            `torchmetrics.Metric`.

    Raises:
        ValueError: `core` refuses the value of an argument, or the metric does not have an
            argument.

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

    core: ClassVar[Callable[..., ListValues]]
    """The metric of a `Ranked`; it takes the metric's own arguments by name."""

    function: ClassVar[Callable[..., Tensor] | None] = None
    """The function of `ltr.metrics.functional` over the same core; None if there is none."""

    first_only: ClassVar[bool] = False
    """Whether a metric at `top_k`, with stable `ties`, needs only the first k items in order.

    The positions after them then hold the other items in any order. A subclass with its own `core`
    must set it itself.
    """

    takes_weights: ClassVar[bool] = False
    """Whether the metric has item weights."""

    takes_topics: ClassVar[bool] = False
    """Whether labels may be (..., n, topics)."""

    values: Any
    ids: Any

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "core" in vars(cls) and "first_only" not in vars(cls):
            cls.first_only = False

    def __init__(
        self,
        *,
        keep_values: bool = False,
        deduplicate: bool = False,
        compute_on_cpu: bool = False,
        dist_sync_on_step: bool = False,
        sync_on_compute: bool = True,
        compute_with_cache: bool = True,
        **arguments: Any,
    ):
        if not hasattr(self, "core"):
            raise TypeError(f"{type(self).__name__} must define core")
        self._names = tuple(signature(self.core).parameters)[1:]
        lacking = [name for name in self._names if name not in arguments]
        if lacking:
            raise TypeError(f"{type(self).__name__}.__init__ must pass {lacking} to its base class")
        own = {name: arguments.pop(name) for name in self._names}
        super().__init__(
            compute_on_cpu=compute_on_cpu,
            dist_sync_on_step=dist_sync_on_step,
            sync_on_compute=sync_on_compute,
            compute_with_cache=compute_with_cache,
            **arguments,
        )
        self.keep_values, self.deduplicate = keep_values, deduplicate
        for name, value in own.items():
            setattr(self, name, value)
        nothing = torch.zeros(0, 1)
        self.core(rank(nothing, nothing), **own)  # checks the values of the arguments
        # the sums of values and of lists: those that count, are left out and are empty
        own |= {"keep_values": keep_values, "deduplicate": deduplicate}
        self._sums = f"sums of {_described(type(self))}({_described(own)})"
        zeros = torch.zeros(4, dtype=torch.float64)
        self.add_state(self._sums, default=zeros, dist_reduce_fx="sum")
        if keep_values or deduplicate:
            self.add_state("values", default=[], dist_reduce_fx="cat")
        if deduplicate:
            self.add_state("ids", default=[], dist_reduce_fx="cat")
        self._start_lists()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `core`, by name."""
        return {name: getattr(self, name) for name in self._names}

    @property
    def first_positions(self) -> int | None:
        """The number of first positions that must be in order; None for all."""
        given = self.arguments
        return first_in_order(given["top_k"], given["ties"]) if self.first_only else None

    def update(
        self,
        preds: Tensor | BatchValues,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        judged: Tensor | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """Add lists.

        Args:
            preds: scores, (..., n), or (items,) with `indexes`. A collection, which has ranked the
                lists, passes the metric's values instead, and nothing else.
            target: labels of the same shape.
            indexes: one list id per item, in the shape of `preds` and any order; or one id per
                list, (...) for `preds` (..., n), or (R,) with `lengths`. Default: the last axis is
                the list.
            mask: bool, in the shape of `preds`, True for a real item; with `indexes` too.
            weights: item weights of the shape of `preds`, for a metric that has them.
            judged: bool, of the shape of `preds`, True = a judged item, for `BPref`; other metrics
                ignore it.
            lengths: (R,) whole numbers, instead of a mask. The lists are then ragged and follow
                each other: `preds` is (N,), and so are all other columns except `indexes`.
        """
        if not isinstance(preds, BatchValues):
            [preds] = measure_lists([self], preds, target, indexes, mask, weights, judged, lengths)
        self._add(preds)

    @torch.compiler.disable()  # it knows no attribute with a name such as that of the sums
    def _add(self, found: BatchValues) -> None:
        counted = (~found.values.isnan()).sum()
        more = [found.values.nansum(), counted, found.lists - counted, found.empty]
        setattr(self, self._sums, self.sums + torch.stack(more))
        if self.keep_values or self.deduplicate:
            self.values.append(found.values)
        if self.deduplicate:
            assert found.ids is not None
            self.ids.append(found.ids)

    @property
    def sums(self) -> Tensor:
        """The sums (4,) float64 of the values and of lists: counted, left out, empty."""
        return getattr(self, self._sums)

    @property
    def total(self) -> Tensor:
        """The sum of the values, float64."""
        return self.sums[0]

    @property
    def lists(self) -> Tensor:
        """How many lists count, float64; `deduplicate` does not merge repeated lists here."""
        return self.sums[1]

    @property
    def left_out(self) -> Tensor:
        """How many lists are left out, counted as in `lists`."""
        return self.sums[2]

    @property
    def empty_lists(self) -> Tensor:
        """How many lists have no relevant item, or no value of their own."""
        return self.sums[3]

    def compute(self) -> Tensor:
        """Return the mean over the lists with a value, float32; NaN if there is none."""
        if self.deduplicate:
            return self.per_list_values.nanmean().float()
        return (self.total / self.lists).float()

    @property
    def per_list_values(self) -> Tensor:
        """Return one number per list, float64, NaN for a list that is left out.

        Needs `keep_values` or `deduplicate`. The values are in the order of the updates; within an
        update of flat values, by ascending id. With `deduplicate` all values are in ascending order
        of id. With several processes these are the values of this process, or of all within
        `sync_context`.

        Raises:
            ValueError: the metric does not keep them.
        """
        if not (self.keep_values or self.deduplicate):
            raise ValueError("keep_values must be True for per_list_values, got False")
        values = _joined(self.values)
        if not self.deduplicate:
            return values
        ordered, order = _joined(self.ids).sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        return values[order[first]]

    def reset(self) -> None:
        """Forget all lists."""
        super().reset()
        self._start_lists()

    def _start_lists(self) -> None:
        # a process without an update must be able to take part when the values are gathered
        if self.keep_values or self.deduplicate:
            self.values.append(self.sums.new_zeros(0))
        if self.deduplicate:
            self.ids.append(self.sums.new_zeros(0, dtype=torch.int64))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the value, or several computed values, as torchmetrics' metrics do.

        Returns:
            A pair: the figure (None if `ax` is given) and the axes, as torchmetrics' metrics do.
            The other `plot` methods of the package return the axes alone.
        """
        return self._plot(val, ax)


@torch.compiler.disable()  # how many lists the metrics count depends on the values
def measure_lists(
    metrics: Sequence[RankingMetric],
    preds: Tensor,
    target: Tensor | None,
    indexes: Tensor | None = None,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    judged: Tensor | None = None,
    lengths: Lengths | None = None,
) -> list[BatchValues]:
    """Return each metric's values for the lists; the arguments are those of `RankingMetric.update`.

    Each list is ranked once for all metrics.

    >>> from ltr.metrics import MAP, MRR
    >>> ids = torch.tensor([7, 3, 7])
    >>> for found in measure_lists([MRR(), MAP()], torch.rand(3), torch.tensor([1, 1, 1]), ids):
    ...     print(found.values)
    tensor([1., 1.], dtype=torch.float64)
    tensor([1., 1.], dtype=torch.float64)
    """
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
        name = type(metric).__name__
        if weights is not None and not metric.takes_weights:
            raise ValueError(f"weights must be None: {name} has no item weights")
        if indexes is None and metric.deduplicate:
            raise ValueError(f"indexes must be given: {name} has deduplicate=True, got None")
    first = [metric.first_positions for metric in metrics]
    batch = Batch(
        preds,
        target,
        mask,
        weights,
        judged,
        lengths,
        topics=all(metric.takes_topics for metric in metrics),
        first=None if None in first else max(k for k in first if k is not None),
    )
    ids = None
    if indexes is not None:
        batch = _by_ids(batch, indexes)
        if any(metric.deduplicate for metric in metrics):
            ids = (indexes if batch.qid is None else batch.qid.unique()).reshape(-1).long()
    cores = [partial(metric.core, **metric.arguments) for metric in metrics]
    measured, real = [], None
    for metric, found in zip(metrics, batch.values(cores), strict=True):
        real = batch.real_lists(found.values).reshape(-1) if real is None else real
        values, own = found.values.double().reshape(-1), None
        if metric.deduplicate and ids is not None:  # a list without a real item may have any id
            values, own = values[real], ids[real]
        measured.append(BatchValues(values, found.empty.sum(), real.sum(), own))
    return measured


def _by_ids(batch: Batch, indexes: Tensor) -> Batch:
    """Return the lists of these ids: one id per list or one per item."""
    scores, lengths = batch.scores, batch.lengths
    if lengths is not None:
        if indexes.shape != (len(lengths),):
            raise ValueError(
                f"indexes must have one id for each of the {len(lengths)} lengths, "
                f"got shape {tuple(indexes.shape)}"
            )
        return batch
    if scores.dim() > 1 and indexes.shape == scores.shape[:-1]:
        return batch
    if indexes.shape != scores.shape:
        raise ValueError(
            f"indexes must have the shape of preds {tuple(scores.shape)} or of its lists, "
            f"got {tuple(indexes.shape)}"
        )
    return batch.by_qid(indexes)


def _described(value: Any) -> str:
    """Return a text that is equal only for equal arguments."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_described(x)}" for name, x in value.items())
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if getattr(home, name, None) is value:
            return f"{value.__module__}.{name}"
        return f"{name} at {id(value)}"  # two lambdas have one name
    return repr(value)


def _joined(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(list(parts))

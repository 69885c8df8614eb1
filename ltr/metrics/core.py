"""The arithmetic of the metrics, for which torch alone is needed: a value for each list.

`ltr.metrics.base` wraps it in classes of torchmetrics, which keep running sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from ltr.config import parameters
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked, check_relevant_from
from ltr.metrics.ties import Ties, check_ties
from ltr.metrics.values import Empty, ListValues, Reduction, check_empty, reduce_lists
from ltr.ragged import Lengths, check_lengths
from ltr.shapes import check_top_k


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


def metric_name(kind: "type[MetricCore]") -> str:
    """Return the name of a metric's class in `ltr.metrics`.

    >>> from ltr.metrics.mrr import MRRCore
    >>> metric_name(MRRCore)
    'MRR'
    """
    return kind.__name__.removesuffix("Core")


class MetricCore(ABC):
    """Base class of the metrics' arithmetic: arguments, and the value of each list.

    A core has no state besides its arguments. A subclass defines `per_list`. Its constructor stores
    the metric's own arguments as attributes of the same names, and then passes the options to the
    constructor of its base class. A core has no options; a `RankingMetric` that wraps it has.

    Raises:
        ValueError: an argument is unknown.
    """

    higher_is_better: bool | None = True

    takes_weights: ClassVar[bool] = False
    """Whether the metric takes item weights."""

    takes_topics: ClassVar[bool] = False
    """Whether labels may be (..., n, topics)."""

    divides_by_k: ClassVar[bool] = False
    """Whether the metric divides by `top_k` (by the length of the list if `top_k` is None)."""

    deduplicate: bool | None = False
    """Whether ids name lists of several updates, as in `RankingMetric`."""

    def __init__(self, **options: Unpack[Options]):
        if options:
            raise ValueError(f"{metric_name(type(self))} has no argument {next(iter(options))!r}")

    def __repr__(self) -> str:
        """Return the class with the arguments that differ from their defaults."""
        defaults = {name: one.default for name, one in parameters(type(self)).items()}
        # An argument may be a tensor, which has no single truth value if it is compared.
        given = {name: x for name, x in self.arguments.items() if repr(x) != repr(defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={x!r}' for name, x in given.items())})"

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
            raise ValueError(f"weights must be None: {metric_name(type(self))} has no item weights")

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for a run's lists, whose order below rank `depth` is unknown.

        Raises:
            ValueError: the metric needs whole lists. It does unless its class overrides `of_run`.
        """
        raise ValueError(f"metric must not need whole lists, got {metric_name(type(self))}")


AnyMetric = TypeVar("AnyMetric", bound=MetricCore)


def cut_at(metric: AnyMetric, depth: int) -> AnyMetric:
    """Return a copy of the metric for the lists of a run: see `CutoffCore.of_run`."""
    top_k = metric.arguments["top_k"]
    if top_k is None and metric.divides_by_k:
        name = metric_name(type(metric))
        raise ValueError(f"top_k must be given for {name}, which divides by it, got None")
    if top_k is not None and top_k > depth:
        raise ValueError(f"top_k must be <= depth {depth} of the join, got {top_k}")
    arguments = {**metric.arguments, "top_k": depth if top_k is None else top_k}
    return type(metric)(**arguments)


class CutoffCore(MetricCore):
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


class BinaryCore(CutoffCore):
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


class RetrievedCore(MetricCore):
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
        return type(self)(**arguments)


def measure_lists(
    metrics: Sequence[MetricCore],
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
            name = metric_name(type(metric))
            raise ValueError(f"indexes must be given: {name} has deduplicate=True, got None")
    topics = all(metric.takes_topics for metric in metrics)
    batch = Batch(preds, target, mask, **columns, topics=topics)
    ids = None
    if indexes is not None:
        batch = _by_ids(batch, indexes)
        if any(metric.deduplicate is not False for metric in metrics):
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

"""The base of the metric classes: running sums over lists."""

from inspect import signature
from secrets import randbits
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.metrics._sharing import Chunk, RankedBatch, check_batch, shared
from ltr.metrics.functional._ranking import Ranked, check_weights, rank
from ltr.metrics.functional._scope import at_work
from ltr.metrics.functional.flat import check_flat, chunks

_BITS = torch.arange(48)


class RankingMetric(Metric):
    """Mean of a per-list number over all lists that count; the state is a few sums.

    A new metric is one subclass with `per_list`, which gives NaN for a list that is left out.
    `update` takes padded batches (..., n) with a mask, or flat values (items,) with `indexes`,
    one list id an item, in any order; a list comes whole in one `update`. A list without a real
    item is no list, so padding a shard with all-masked lists changes nothing.

    Metrics that are updated with the same tensors, as those of a `MetricCollection` are, share one
    sort. `per_list` gets the items in the order of their scores, padding last.

    Args:
        keep: keep the per-list values, for `per_list_values`. Memory then grows with the lists.
        once: count a list id once, whichever update or process it comes in, as where a sampler
            repeats lists; needs `indexes`, and keeps values and ids. By default an id in another
            update or process is another list.
        kwargs: of `torchmetrics.Metric`.

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

    ranked_first = True
    """Whether `per_list` may get the items in the order of their scores; else as they come."""

    sums: Tensor
    number: Tensor
    values: Any
    ids: Any

    def __init__(self, *, keep: bool = False, once: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep, self.once = keep, once
        # of the values, and of the lists that count, that are left out and that are empty
        sums = torch.zeros(4, dtype=torch.float64)
        self.add_state("sums", default=sums, dist_reduce_fx="sum")
        # a MetricCollection takes metrics with equal states for one: no two have this number
        number = (torch.tensor(randbits(48)) >> _BITS & 1).double()
        self.add_state("number", default=number, dist_reduce_fx="max")
        if keep or once:
            self.add_state("values", default=[], dist_reduce_fx="cat")
        if once:
            self.add_state("ids", default=[], dist_reduce_fx="cat")

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One number a list, NaN for one left out: (..., n) -> (...).

        A metric with item weights takes them as a fourth argument, `weights=None`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add lists.

        Args:
            preds: scores, (..., n), or (items,) with `indexes`.
            target: labels of the same shape.
            indexes: a list id an item, of the shape of `preds`, in any order; or a list id a list,
                (...), for `preds` (..., n). Default: the last axis is the list.
            mask: bool, of the shape of `preds`, True = a real item; with `indexes` too.
            weights: item weights of the shape of `preds`, for a metric that has them.
        """
        if self.once and indexes is None:
            raise ValueError("indexes must be given where once=True, got None")
        if weights is not None and "weights" not in signature(self.per_list).parameters:
            raise ValueError(f"weights must be None: {type(self).__name__} has no item weights")
        batch = (preds, target, indexes, mask, weights)
        check_batch(*batch)
        if self.ranked_first:
            ranked = shared(self, batch, lambda: _ranked_batch(*batch, by_score=True))
        else:
            ranked = _ranked_batch(*batch, by_score=False)
        values = self._values(ranked)
        if self.once:
            assert ranked.ids is not None
            ids = ranked.ids.unique() if ranked.flat else ranked.ids
            if mask is not None and not ranked.flat:
                real = mask.any(-1).reshape(-1)  # the padding of a shard may have any id
                ids, values = ids[real], values[real]
            self.ids.append(ids)
        if self.keep or self.once:
            self.values.append(values)

    def _values(self, batch: RankedBatch) -> Tensor:
        """The values of the batch's lists, flat, float64; their sums go into the state."""
        values = torch.full(batch.shape, torch.nan, dtype=torch.float64, device=self.device)
        values = values.reshape(-1)
        empty, real = self.sums.new_zeros(()), self.sums.new_zeros(())
        for lists, ranked in batch.chunks:
            sorted_lists = ranked if self.ranked_first else None
            with at_work(sorted_lists, empty) as scope:
                extra = () if ranked.weights is None else (ranked.weights,)
                found = self.per_list(ranked.scores, ranked.labels, ranked.mask, *extra)
                assert scope.undefined is not None
                empty = scope.undefined
            found = found.double().reshape(-1)
            if ranked.mask is not None and not batch.flat:
                real = real + ranked.mask.any(-1).sum()
            elif ranked.scores.shape[-1]:
                real = real + len(found)
            if lists is None:
                values = found
            else:
                values[lists] = found
        # all at once, so that an error in a chunk leaves nothing behind
        counted = (~values.isnan()).sum()
        self.sums = self.sums + torch.stack([values.nansum(), counted, real - counted, empty])
        return values

    @property
    def total(self) -> Tensor:
        """The sum of the values, float64."""
        return self.sums[0]

    @property
    def lists(self) -> Tensor:
        """How many lists count, float64; with `once=True` in every update that they come in."""
        return self.sums[1]

    @property
    def left_out(self) -> Tensor:
        """How many lists are left out, counted as `lists`."""
        return self.sums[2]

    @property
    def empty_lists(self) -> Tensor:
        """How many lists have no relevant item, or no value, whatever they count as."""
        return self.sums[3]

    def compute(self) -> Tensor:
        """The mean over the lists that count, float32; NaN if there is none."""
        if self.once:
            return self.per_list_values.nanmean().float()
        return (self.total / self.lists).float()

    @property
    def per_list_values(self) -> Tensor:
        """One number a list, float64, NaN for one left out; with `keep=True` or `once=True`.

        In the order of the updates; flat values by rising id within each, all by id if `once`.
        In several processes this one's, and within `sync_context` those of all.

        Raises:
            ValueError: the metric does not keep them.
        """
        if not (self.keep or self.once):
            raise ValueError("keep must be True for per_list_values, got False")
        values = _joined(self.values, self.sums)
        if not self.once:
            return values
        ids = _joined(self.ids, self.sums).long()
        ordered, order = ids.sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        return values[order[first]]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the value, or several computed ones, as torchmetrics' metrics do."""
        return self._plot(val, ax)

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # a process without an update takes part in the gathering with nothing
        if (self.keep or self.once) and not len(self.values):
            self.values = [self.sums.new_zeros(0)]
            if self.once:
                self.ids = [torch.zeros(0, dtype=torch.int64, device=self.device)]
        super()._sync_dist(*args, **kwargs)


def _joined(parts: Any, like: Tensor) -> Tensor:
    if isinstance(parts, Tensor):
        return parts
    return torch.cat(list(parts)) if len(parts) else like.new_zeros(0)


def _ranked_batch(
    scores: Tensor,
    labels: Tensor,
    indexes: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    by_score: bool,
) -> RankedBatch:
    """The lists of a batch, checked, in the order of their scores or as they come."""
    columns = [scores, labels] + ([] if weights is None else [weights])
    shape = tuple(scores.shape[:-1])
    if indexes is None or (scores.dim() > 1 and indexes.shape == shape):
        ranked = _ready(columns, mask, by_score)
        ids = None if indexes is None else indexes.reshape(-1)
        return RankedBatch([Chunk(None, ranked)], shape, ids, False)
    if indexes.shape != scores.shape:
        raise ValueError(
            f"indexes must have the shape of preds {tuple(scores.shape)} or of its lists, "
            f"got {tuple(indexes.shape)}"
        )
    if scores.dim() > 1:
        columns = [column.flatten(0, scores.dim() - 1) for column in columns]
        indexes = indexes.reshape(-1)
        mask = None if mask is None else mask.reshape(-1)
    if mask is not None:
        check_flat(indexes, mask, *columns)
        indexes, columns = indexes[mask], [column[mask] for column in columns]
    found, total = [], 0
    for lists, total, real, padded in chunks(indexes, *columns):  # noqa: B007
        found.append(Chunk(lists, _ready(padded, real, by_score)))
    return RankedBatch(found, (total,), indexes, True)


def _ready(columns: list[Tensor], mask: Tensor | None, by_score: bool) -> Ranked:
    scores, labels, *weights = columns
    if by_score:
        return rank(scores, labels, mask, *weights)
    if weights:
        check_weights(weights[0], scores, mask)
    return Ranked(scores, labels, mask, weights[0] if weights else None)

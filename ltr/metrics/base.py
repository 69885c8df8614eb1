"""The base of the metric classes: running sums over lists."""

from itertools import count
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.metrics._sharing import Chunk, RankedBatch, shared
from ltr.metrics.functional._ranking import Ranked, check_weights, rank
from ltr.metrics.functional._scope import at_work
from ltr.metrics.functional.flat import check_flat, chunks

_numbers = count(1)
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

    total: Tensor
    lists: Tensor
    left_out: Tensor
    empty_lists: Tensor
    values: Any
    ids: Any

    def __init__(self, *, keep: bool = False, once: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep, self.once = keep, once
        for name in ("total", "lists", "left_out", "empty_lists"):
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")
        # a MetricCollection takes metrics with equal states for one: no two have this number
        number = (torch.tensor(next(_numbers)) >> _BITS & 1).double()
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
        batch = (preds, target, indexes, mask, weights)
        if self.ranked_first:
            ranked = shared(self, batch, lambda: _ranked_batch(*batch, by_score=True))
        else:
            ranked = _ranked_batch(*batch, by_score=False)
        values = self._values(ranked)
        if self.keep or self.once:
            self.values.append(values)
        if self.once:
            assert ranked.ids is not None
            self.ids.append(ranked.ids.unique() if ranked.flat else ranked.ids)

    def _values(self, batch: RankedBatch) -> Tensor:
        """The values of the batch's lists, flat, float64; their sums go into the state."""
        values = torch.full(batch.shape, torch.nan, dtype=torch.float64, device=self.device)
        values = values.reshape(-1)
        for lists, ranked in batch.chunks:
            sorted_lists = ranked if self.ranked_first else None
            with at_work(sorted_lists, torch.zeros_like(self.empty_lists)) as scope:
                extra = () if ranked.weights is None else (ranked.weights,)
                found = self.per_list(ranked.scores, ranked.labels, ranked.mask, *extra)
                assert scope.undefined is not None
                self.empty_lists = self.empty_lists + scope.undefined
            found = found.double().reshape(-1)
            known = ~found.isnan()
            real = found.new_full(found.shape, ranked.scores.shape[-1] > 0, dtype=torch.bool)
            if ranked.mask is not None:
                real = ranked.mask.any(-1).reshape(-1)
            self.total = self.total + found.nansum()
            self.lists = self.lists + known.sum()
            self.left_out = self.left_out + (real & ~known).sum()
            if lists is None:
                values = found
            else:
                values[lists] = found
        return values

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
        values = _joined(self.values, self.total)
        if not self.once:
            return values
        ids = _joined(self.ids, self.total).long()
        ordered, order = ids.sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        return values[order[first]]

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # a process without an update takes part in the gathering with nothing
        if (self.keep or self.once) and not len(self.values):
            self.values = [self.total.new_zeros(0)]
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

"""The values of several metrics for one batch of lists, which are ranked once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ltr.metrics.flat import check_flat, chunks
from ltr.metrics.ranked import Ranked, rank

if TYPE_CHECKING:
    from ltr.metrics.base import RankingMetric


class BatchValues(NamedTuple):
    """The values of one metric for the lists of one batch.

    Attributes:
        values: (lists,) float64, NaN for a list that is left out. Flat values: by rising id.
        empty: how many lists have no value of their own.
        lists: how many lists have a real item.
        ids: (lists,) int64, for a metric with `deduplicate`; others may have None.
    """

    values: Tensor
    empty: Tensor
    lists: Tensor
    ids: Tensor | None


def measure_lists(
    metrics: Sequence["RankingMetric"],
    preds: Tensor,
    target: Tensor | None,
    indexes: Tensor | None = None,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    judged: Tensor | None = None,
) -> list[BatchValues]:
    """Return each metric's values for the lists; the arguments are those of `RankingMetric.update`.

    Flat values are ranked in chunks, each of them once for all metrics.

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
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool (True = a real item), got {mask.dtype}")
    if indexes is not None and (indexes.is_floating_point() or indexes.dtype == torch.bool):
        raise ValueError(f"indexes must be whole numbers, got {indexes.dtype}")
    for metric in metrics:
        name = type(metric).__name__
        if weights is not None and not metric.takes_weights:
            raise ValueError(f"weights must be None: {name} has no item weights")
        if indexes is None and metric.deduplicate:
            raise ValueError(f"indexes must be given: {name} has deduplicate=True, got None")
    topics = all(metric.takes_topics for metric in metrics)
    if indexes is None or (preds.dim() > 1 and indexes.shape == preds.shape[:-1]):
        ranked = rank(preds, target, mask, weights, judged=judged, topics=topics)
        return _of_padded(metrics, ranked, mask, indexes)
    if indexes.shape != preds.shape:
        raise ValueError(
            f"indexes must have the shape of preds {tuple(preds.shape)} or of its lists, "
            f"got {tuple(indexes.shape)}"
        )
    items = {"scores": preds, "labels": target, **given}
    if preds.dim() > 1:
        items = {name: x.flatten(0, preds.dim() - 1) for name, x in items.items()}
    ids, real = items.pop("indexes"), items.pop("mask", None)
    if real is not None:
        check_flat(ids, real, *items.values())
        ids, items = ids[real], {name: x[real] for name, x in items.items()}
    return _of_flat(metrics, ids, items, topics)


def _of_padded(
    metrics: Sequence["RankingMetric"], ranked: Ranked, mask: Tensor | None, ids: Tensor | None
) -> list[BatchValues]:
    ids = None if ids is None else ids.reshape(-1).long()
    # the lists that pad a shard may have any id
    real = None if ids is None or mask is None else mask.any(-1).reshape(-1)
    lists = (ranked.lengths > 0).sum()
    measured = []
    for metric in metrics:
        found = metric.core(ranked, **metric.arguments)
        values, empty = found.values.double().reshape(-1), found.empty.sum()
        if metric.deduplicate and real is not None and ids is not None:
            measured.append(BatchValues(values[real], empty, lists, ids[real]))
        else:
            measured.append(BatchValues(values, empty, lists, ids))
    return measured


def _of_flat(
    metrics: Sequence["RankingMetric"], ids: Tensor, items: dict[str, Tensor], topics: bool
) -> list[BatchValues]:
    numbers = ids.unique().long() if any(metric.deduplicate for metric in metrics) else None
    total, places, found = 0, [], []
    for lists, total, mask, columns in chunks(ids, *items.values()):  # noqa: B007
        ranked = rank(**dict(zip(items, columns, strict=True)), mask=mask, topics=topics)
        places.append(lists)
        found.append([metric.core(ranked, **metric.arguments) for metric in metrics])
    lists = torch.tensor(total, device=ids.device)
    if not found:  # no items, no chunk
        none = torch.zeros(0, dtype=torch.float64, device=ids.device)
        return [BatchValues(none, none.sum(), lists, numbers) for _ in metrics]
    order = torch.cat(places)
    measured = []
    for of_chunks in zip(*found, strict=True):
        values = torch.cat([x.values for x in of_chunks]).double()
        empty = torch.cat([x.empty for x in of_chunks]).sum()
        measured.append(
            BatchValues(torch.empty_like(values).scatter(0, order, values), empty, lists, numbers)
        )
    return measured

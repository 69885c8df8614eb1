"""The values of several metrics for one batch of lists, which are ranked once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ltr.kernels import Lengths, check_lengths
from ltr.metrics.flat import check_flat, group, ragged_chunks
from ltr.metrics.ranked import Ranked, rank
from ltr.metrics.values import ListValues, Reduction, reduce_lists
from ltr.shapes import check_lists

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
    lengths: Lengths | None = None,
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
    if lengths is not None:
        lengths, items = _check_ragged(preds, target, lengths, mask, weights, judged, topics)
        if indexes is not None and indexes.shape != lengths.shape:
            raise ValueError(
                f"indexes must have one id for each of the {len(lengths)} lengths, "
                f"got shape {tuple(indexes.shape)}"
            )
        return _of_ragged(metrics, lengths, items, topics, indexes)
    if indexes is None or (preds.dim() > 1 and indexes.shape == preds.shape[:-1]):
        ranked = rank(
            preds, target, mask, weights, judged=judged, topics=topics, first=_places(metrics)
        )
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


def measure(
    core: Callable[[Ranked], ListValues],
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    judged: Tensor | None = None,
    lengths: Lengths | None = None,
    topics: bool = False,
    first: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return a metric of padded lists, or of ragged ones with `lengths`: the public functions.

    Only the `first` places need be in order, as for `rank`.

    >>> from ltr.metrics.mrr import mrr
    >>> mrr(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 1, 0]), lengths=[1, 2])
    tensor(0.7500)
    """
    if lengths is None:
        ranked = rank(scores, labels, mask, weights, judged=judged, topics=topics, first=first)
        return reduce_lists(core(ranked), reduction)
    lengths, items = _check_ragged(scores, labels, lengths, mask, weights, judged, topics)
    [found] = _ragged_values([core], lengths, items, topics, first=first)
    return reduce_lists(found, reduction)


def _places(metrics: Sequence["RankingMetric"]) -> int | None:
    # how many first places all metrics need in order; None for all
    known = [metric.places for metric in metrics]
    places = [k for k in known if k is not None]
    return max(places) if places and len(places) == len(known) else None


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
    check_flat(ids, *items.values())
    order, lengths = group(ids)
    return _of_ragged(metrics, lengths, items, topics, numbers, order)


def _of_ragged(
    metrics: Sequence["RankingMetric"],
    lengths: Tensor,
    items: dict[str, Tensor],
    topics: bool,
    ids: Tensor | None = None,
    order: Tensor | None = None,
) -> list[BatchValues]:
    cores = [partial(metric.core, **metric.arguments) for metric in metrics]
    real = lengths > 0
    measured = []
    for metric, found in zip(
        metrics,
        _ragged_values(cores, lengths, items, topics, order, _places(metrics)),
        strict=True,
    ):
        values = found.values.double()
        if metric.deduplicate and ids is not None:  # a list without items may have any id
            values, own = values[real], ids[real]
        else:
            own = ids
        measured.append(BatchValues(values, found.empty.sum(), real.sum(), own))
    return measured


def _ragged_values(
    cores: Sequence[Callable[[Ranked], ListValues]],
    lengths: Tensor,
    items: dict[str, Tensor],
    topics: bool,
    order: Tensor | None = None,
    first: int | None = None,
) -> list[ListValues]:
    """Return the values (R,) of ragged lists, NaN for one of length 0; a chunk is ranked once."""
    places, found = [], []
    for lists, mask, columns in ragged_chunks(lengths, list(items.values()), order):
        ranked = rank(
            **dict(zip(items, columns, strict=True)), mask=mask, topics=topics, first=first
        )
        places.append(lists)
        found.append([core(ranked) for core in cores])
    if not found:  # no items, no chunk
        none = items["scores"].new_zeros(0, 1)
        places = [lengths.new_zeros(0)]
        found = [[core(rank(none, none)) for core in cores]]
    numbers, gathered = torch.cat(places), []
    for of_chunks in zip(*found, strict=True):
        values = torch.cat([x.values for x in of_chunks])
        empty = torch.cat([x.empty for x in of_chunks])
        gathered.append(
            ListValues(
                values.new_full(lengths.shape, torch.nan).scatter(0, numbers, values),
                empty.new_zeros(lengths.shape).scatter(0, numbers, empty),
            )
        )
    return gathered


def _check_ragged(
    scores: Tensor,
    labels: Tensor,
    lengths: Lengths,
    mask: Tensor | None,
    weights: Tensor | None,
    judged: Tensor | None,
    topics: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return lengths (R,) int64 and the columns by their names in `rank`."""
    if mask is not None:
        raise ValueError("mask must be None if lengths are given: ragged lists have no mask")
    lengths = check_lengths(scores, lengths)
    given = {"labels": labels, "weights": weights, "judged": judged}
    given = {name: x for name, x in given.items() if x is not None}
    by_topic = topics and isinstance(labels, Tensor) and labels.dim() == 2
    check_lists(scores, **{**given, "labels": labels[:, 0]} if by_topic else given)
    return lengths, {"scores": scores.detach(), **given}

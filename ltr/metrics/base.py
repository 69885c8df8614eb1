"""The base of the metric classes: running sums over lists."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.metrics.functional import group_lists


class RankingMetric(Metric):
    """Mean of a per-list number over all lists that count; the state is three sums.

    A new metric is one subclass with `per_list`, which gives NaN for a list that is left out.
    `update` takes padded batches (..., n) with a mask, or flat values (items,) with `indexes`,
    one list id an item, in any order; a list comes whole in one `update`. A list without a real
    item is no list, so padding a shard with all-masked lists changes nothing.

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

    total: Tensor
    lists: Tensor
    left_out: Tensor

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        for name in ("total", "lists", "left_out"):
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One number a list, NaN for one left out: (..., n) -> (...)."""
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Add lists.

        Args:
            preds: scores, (..., n), or (items,) with `indexes`.
            target: labels of the same shape.
            indexes: (items,) a list id an item. Default: the last axis is the list.
            mask: (..., n) bool, True = a real item; with `indexes` too.
        """
        if indexes is not None:
            if mask is not None:
                indexes, preds, target = indexes[mask], preds[mask], target[mask]
            mask, preds, target = group_lists(indexes, preds, target)
        values = self.per_list(preds, target, mask).double()
        known = ~values.isnan()
        real = target.new_full(target.shape[:-1], target.shape[-1] > 0, dtype=torch.bool)
        if mask is not None:
            real = mask.any(-1)
        self.total = self.total + values[known].sum()
        self.lists = self.lists + known.sum()
        self.left_out = self.left_out + (real & ~known).sum()

    def compute(self) -> Tensor:
        """The mean over the lists that count, float32; NaN if there is none."""
        return (self.total / self.lists).float()

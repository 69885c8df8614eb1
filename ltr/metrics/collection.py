"""A collection of ranking metrics that ranks each list once."""

from collections.abc import Mapping
from typing import Any

from torchmetrics import MetricCollection

from ltr.metrics.base import measure_lists
from ltr.metrics.classes import RankingMetric


class RankingMetrics(MetricCollection):
    """Ranking metrics by name: each batch is checked and sorted once for all of them.

    This is a `torchmetrics.MetricCollection` of `RankingMetric` objects: it resets, moves, syncs,
    clones and logs like any other collection. Each metric keeps its own state; compute groups are
    not needed.

    Args:
        metrics: the metrics by name, in the order in which `compute` returns them.
        prefix: text before each name that `compute` returns.
        postfix: text after each of these names.

    Raises:
        ValueError: a metric is not a `RankingMetric`, or its name contains a dot or is that of an
            attribute that every module has, such as "half".

    >>> import torch
    >>> from ltr.metrics import MAP, NDCG
    >>> metrics = RankingMetrics({"ndcg_10": NDCG(top_k=10), "map": MAP()})
    >>> metrics.update(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    >>> metrics.compute()
    {'ndcg_10': tensor(0.6309), 'map': tensor(0.5000)}
    """

    def __init__(
        self,
        metrics: Mapping[str, RankingMetric],
        prefix: str | None = None,
        postfix: str | None = None,
    ):
        if not isinstance(metrics, Mapping):
            raise ValueError(f"metrics must be a dict of metrics by name, got {metrics!r}")
        super().__init__({}, prefix=prefix, postfix=postfix, compute_groups=False)
        for name, metric in metrics.items():
            if not isinstance(metric, RankingMetric):
                raise ValueError(f"metrics must be ranking metrics, got {metric!r} for {name!r}")
            if not isinstance(name, str) or not name or "." in name:
                raise ValueError(f"metrics must have names without a dot, got {name!r}")
            if hasattr(self, name):
                raise ValueError(
                    f"metrics must not have the name of an attribute of modules, got {name!r}"
                )
            self.add_metrics({name: metric})  # torchmetrics would sort a dict by name

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add lists to every metric, or to none if one of them raises an error.

        The arguments are those of `RankingMetric.update`.

        Raises:
            ValueError: as in `RankingMetric.update`; or weights are given, but a metric takes none.
        """
        metrics = [*self.metrics.values()]
        for metric, values in zip(metrics, measure_lists(metrics, *args, **kwargs), strict=True):
            metric.update(values)

    @property
    def metrics(self) -> dict[str, RankingMetric]:
        """The metrics by name, without prefix and postfix."""
        metrics = {}
        for name, metric in self.items(keep_base=True, copy_state=False):
            assert isinstance(metric, RankingMetric)
            metrics[name] = metric
        return metrics

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Add lists like `update`, and return each metric's value for only these lists."""
        metrics = self.metrics
        of_metrics = measure_lists([*metrics.values()], *args, **kwargs)
        return {
            f"{self.prefix or ''}{name}{self.postfix or ''}": metric(values)
            for (name, metric), values in zip(metrics.items(), of_metrics, strict=True)
        }

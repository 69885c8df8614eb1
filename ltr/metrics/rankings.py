"""The metrics of pairs and of rank correlation as `torchmetrics.Metric` classes."""

from typing import Any

from torch import Tensor

from ltr._shapes import check_top_k
from ltr.metrics import functional as F
from ltr.metrics.base import RankingMetric
from ltr.metrics.functional._lists import Empty, check_empty
from ltr.metrics.functional._ranking import Ties, check_ties
from ltr.metrics.functional.kendall import Variant, check_variant
from ltr.metrics.functional.rbo import RBOTies, check_rbo_ties
from ltr.metrics.functional.rbp import check_persistence


class OPA(RankingMetric):
    """Ordered pair accuracy; arguments as in `ltr.metrics.functional.opa`.

    Args:
        empty: what a list without two different labels counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> OPA()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 0.0]]))
    tensor(0.6667)
    """

    def __init__(
        self,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """One value a list."""
        return F.opa(
            scores,
            labels,
            mask,
            weights,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class KendallTau(RankingMetric):
    """Mean of Kendall's tau per list; arguments as in `ltr.metrics.functional.kendall_tau`.

    Args:
        variant: "b" puts ties right (default), "a" does not, "weighted" looks to the top.
        empty: what a list without a value counts: a number, "skip" or "error".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> KendallTau()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """

    def __init__(
        self,
        variant: Variant = "b",
        empty: Empty = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.variant: Variant = check_variant(variant)
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.kendall_tau(
            scores,
            labels,
            mask,
            variant=self.variant,
            empty=self.empty,
            reduction="none",
        )


class Spearman(RankingMetric):
    """Mean of Spearman's rho per list; arguments as in `ltr.metrics.functional.spearman`.

    Args:
        empty: what a list without a value counts: a number, "skip" or "error".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> Spearman()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """

    def __init__(
        self,
        empty: Empty = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.spearman(
            scores,
            labels,
            mask,
            empty=self.empty,
            reduction="none",
        )


class RBO(RankingMetric):
    """Rank-biased overlap; arguments as in `ltr.metrics.functional.rbo`.

    Args:
        top_k: k. Default: the whole list.
        p: how likely a reader goes on, in (0, 1).
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order) or "expected" (the mean over their orders).
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> RBO()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """

    ranked_first = False

    def __init__(
        self,
        top_k: int | None = None,
        p: float = 0.9,
        empty: Empty = 0,
        ties: RBOTies = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.p = check_persistence(p)
        self.empty: Empty = check_empty(empty)
        self.ties: RBOTies = check_rbo_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.rbo(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            p=self.p,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class PerfectOrder(RankingMetric):
    """The share of lists in perfect order, equal labels either way round.

    Args:
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> PerfectOrder()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    tensor(1.)
    """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """1 for a list in perfect order, else 0."""
        return F.perfect_order(scores, labels, mask, reduction="none")


class ElementsInPlace(RankingMetric):
    """The share of items that stand in their place, equal labels either way round.

    Args:
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> ElementsInPlace()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 1.0]]))
    tensor(0.3333)
    """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """The share of each list."""
        return F.elements_in_place(scores, labels, mask, reduction="none")

"""The metrics of relevant items as `torchmetrics.Metric` classes."""

from typing import Any

from torch import Tensor

from ltr._shapes import check_top_k, check_whole
from ltr.metrics import functional as F
from ltr.metrics.base import RankingMetric
from ltr.metrics.functional._lists import Empty, check_empty
from ltr.metrics.functional._ranking import Ties, check_ties


class MRR(RankingMetric):
    """Mean reciprocal rank; arguments as in `ltr.metrics.functional.mrr`.

    Args:
        top_k: a first relevant item behind rank k counts 0. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.mrr(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class MAP(RankingMetric):
    """Mean average precision; arguments as in `ltr.metrics.functional.average_precision`.

    Args:
        top_k: count the first k alone. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.average_precision(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class Precision(RankingMetric):
    """Precision at k; arguments as in `ltr.metrics.functional.precision`.

    Args:
        top_k: k, the divisor for shorter lists too. Default: the length of each list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> Precision(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """One value a list."""
        return F.precision(
            scores,
            labels,
            mask,
            weights,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class Recall(RankingMetric):
    """Recall at k; arguments as in `ltr.metrics.functional.recall`.

    Args:
        top_k: k. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> Recall(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """One value a list."""
        return F.recall(
            scores,
            labels,
            mask,
            weights,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class HitRate(RankingMetric):
    """Hit rate, or success at k; arguments as in `ltr.metrics.functional.hit_rate`.

    Args:
        top_k: k. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> HitRate(top_k=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.hit_rate(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class RPrecision(RankingMetric):
    """R-precision; arguments as in `ltr.metrics.functional.r_precision`.

    Args:
        top_k: items behind rank k count as not relevant. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> RPrecision()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.r_precision(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class BPref(RankingMetric):
    """Binary preference, all items judged; arguments as in `ltr.metrics.functional.bpref`.

    Args:
        top_k: relevant items behind rank k count 0. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> BPref()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.bpref(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class TopKAccuracy(RankingMetric):
    """Top-k accuracy; arguments as in `ltr.metrics.functional.top_k_accuracy`.

    Args:
        top_k: k.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> TopKAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.)
    """

    def __init__(
        self,
        top_k: int = 1,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_whole("top_k", top_k)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.top_k_accuracy(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )

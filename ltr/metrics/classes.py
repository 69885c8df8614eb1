"""The metrics as `torchmetrics.Metric` classes."""

from typing import Any, Literal

from torch import Tensor

from ltr._shapes import check_top_k
from ltr.losses.dcg import Discount, Gain, discount_function, gain_function
from ltr.metrics import functional as F
from ltr.metrics.base import RankingMetric
from ltr.metrics.functional._lists import Empty, check_empty


class NDCG(RankingMetric):
    """Normalised discounted cumulative gain; arguments as in `ltr.metrics.functional.ndcg`.

    Args:
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2", "letor4", or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        short: what a list with fewer than `top_k` items counts. Default: what it has.

    >>> import torch
    >>> NDCG(top_k=1)(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(1.)
    """

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        short: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.gain = gain_function(gain)
        self.discount = discount_function(discount)
        self.empty: Empty = check_empty(empty)
        self.short = short

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """NDCG of each list."""
        return F.ndcg(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            gain=self.gain,
            discount=self.discount,
            empty=self.empty,
            short=self.short,
            reduction="none",
        )


class MRR(RankingMetric):
    """Mean reciprocal rank; arguments as in `ltr.metrics.functional.mrr`.

    Args:
        top_k: a first relevant item behind rank k counts 0. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """

    def __init__(self, top_k: int | None = None, empty: Empty = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Reciprocal rank of each list."""
        return F.mrr(scores, labels, mask, top_k=self.top_k, empty=self.empty, reduction="none")


class MAP(RankingMetric):
    """Mean average precision; arguments as in `ltr.metrics.functional.average_precision`.

    Args:
        top_k: count the first k alone. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """

    def __init__(self, top_k: int | None = None, empty: Empty = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Average precision of each list."""
        return F.average_precision(
            scores, labels, mask, top_k=self.top_k, empty=self.empty, reduction="none"
        )


class KendallTau(RankingMetric):
    """Mean of Kendall's tau per list; arguments as in `ltr.metrics.functional.kendall_tau`.

    Args:
        variant: "b" puts ties right (default), "a" does not.
        empty: what a list without a value counts: a number, "skip" or "error".

    >>> import torch
    >>> KendallTau()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """

    def __init__(self, variant: Literal["a", "b"] = "b", empty: Empty = 0, **kwargs: Any):
        super().__init__(**kwargs)
        if variant not in ("a", "b"):
            raise ValueError(f"variant must be 'a' or 'b', got {variant!r}")
        self.variant: Literal["a", "b"] = variant
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Kendall's tau of each list."""
        return F.kendall_tau(
            scores, labels, mask, variant=self.variant, empty=self.empty, reduction="none"
        )


class PerfectOrder(RankingMetric):
    """The share of lists in perfect order, equal labels either way round.

    >>> import torch
    >>> PerfectOrder()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    tensor(1.)
    """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """1 for a list in perfect order, else 0."""
        return F.perfect_order(scores, labels, mask, reduction="none")

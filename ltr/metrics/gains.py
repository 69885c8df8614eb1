"""The metrics of gains and discounts as `torchmetrics.Metric` classes."""

from typing import Any

from torch import Tensor

from ltr._shapes import check_top_k
from ltr.gains import Discount, Gain, discount_function, gain_function
from ltr.metrics import functional as F
from ltr.metrics.base import RankingMetric
from ltr.metrics.functional._lists import Empty, check_empty
from ltr.metrics.functional._ranking import Ties, check_ties
from ltr.metrics.functional.alpha_ndcg import check_alpha
from ltr.metrics.functional.err import check_max_label
from ltr.metrics.functional.rbp import check_persistence


class NDCG(RankingMetric):
    """Normalised discounted cumulative gain; arguments as in `ltr.metrics.functional.ndcg`.

    Args:
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2", "letor4", or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        short: what a list with fewer than `top_k` items counts. Default: what it has.
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

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
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.gain = gain_function(gain)
        self.discount = discount_function(discount)
        self.empty: Empty = check_empty(empty)
        self.short = short
        self.ties: Ties = check_ties(ties)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """One value a list."""
        return F.ndcg(
            scores,
            labels,
            mask,
            weights,
            top_k=self.top_k,
            gain=self.gain,
            discount=self.discount,
            empty=self.empty,
            short=self.short,
            ties=self.ties,
            reduction="none",
        )


class DCG(RankingMetric):
    """Discounted cumulative gain; arguments as in `ltr.metrics.functional.dcg`.

    Args:
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2", "letor4", or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> DCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]]))
    tensor(0.6309)
    """

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.gain = gain_function(gain)
        self.discount = discount_function(discount)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
    ) -> Tensor:
        """One value a list."""
        return F.dcg(
            scores,
            labels,
            mask,
            weights,
            top_k=self.top_k,
            gain=self.gain,
            discount=self.discount,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class ERR(RankingMetric):
    """Expected reciprocal rank; arguments as in `ltr.metrics.functional.err`.

    Args:
        top_k: k. Default: the whole list.
        max_label: the highest grade of the scale. Default: the largest label of each list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> ERR(max_label=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.3333)
    """

    def __init__(
        self,
        top_k: int | None = None,
        max_label: float | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.max_label = check_max_label(max_label)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.err(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            max_label=self.max_label,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class RBP(RankingMetric):
    """Rank-biased precision; arguments as in `ltr.metrics.functional.rbp`.

    Args:
        top_k: k. Default: the whole list.
        p: how likely a reader goes on, in (0, 1).
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> RBP(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6250)
    """

    def __init__(
        self,
        top_k: int | None = None,
        p: float = 0.8,
        empty: Empty = 0,
        ties: Ties = "stable",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.p = check_persistence(p)
        self.empty: Empty = check_empty(empty)
        self.ties: Ties = check_ties(ties)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.rbp(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            p=self.p,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class ARP(RankingMetric):
    """Average relevance position, lower is better; arguments as in `ltr.metrics.functional.arp`.

    Args:
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "expected" (the mean over their orders) or "worst".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> ARP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(2.)
    """

    higher_is_better = False

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
        return F.arp(
            scores,
            labels,
            mask,
            weights,
            empty=self.empty,
            ties=self.ties,
            reduction="none",
        )


class AlphaNDCG(RankingMetric):
    """Alpha-NDCG, labels (..., n, topics); arguments as in `ltr.metrics.functional.alpha_ndcg`.

    Args:
        top_k: k. Default: the whole list.
        alpha: how much a topic that was seen loses, in [0, 1].
        discount: "log2", "letor4", or a function of the ranks.
        empty: what a list without any topic counts: a number, "skip" or "error".
        kwargs: `keep`, `once` and those of `torchmetrics.Metric`.

    >>> import torch
    >>> AlphaNDCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[[1, 0], [1, 0], [0, 1]]]))
    tensor(0.9652)
    """

    ranked_first = False

    def __init__(
        self,
        top_k: int | None = None,
        alpha: float = 0.5,
        discount: Discount = "log2",
        empty: Empty = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.top_k = check_top_k(top_k)
        self.alpha = check_alpha(alpha)
        self.discount = discount_function(discount)
        self.empty: Empty = check_empty(empty)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """One value a list."""
        return F.alpha_ndcg(
            scores,
            labels,
            mask,
            top_k=self.top_k,
            alpha=self.alpha,
            discount=self.discount,
            empty=self.empty,
            reduction="none",
        )

"""Top-k classification: a label's soft rank, or its probability to be among the first k."""

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_whole
from ltr.gains import item_gains
from ltr.losses._soft import log_sum, relevance, sort_operator, weighted_mean
from ltr.losses.base import RankingLoss, Reduction
from ltr.operators import RankOperator, SigmoidRank, SoftSort, SortOperator
from ltr.operators.base import check_operator


class TopKLoss(RankingLoss):
    """Differentiable top-k loss: max(0, soft rank of the label - k); k = 1 is the 0/1 loss.

    The items are classes, with label 1 (above 0) for the true one. The paper has J_k(L - R) with
    J_k(u) = max(0, u - k + 1) and ascending ranks R; its L - R is our rank minus 1. This loss
    counts by how many places the label misses the first k. With `step="cut"` it is 1 - the soft
    membership of the label among the first k, which is at most 1, as the error itself: with hard
    ranks exactly 0 or 1. With several true classes it is the mean over them.

    What unusual lists give: no label, or all masked: 0, with a graph. One class: 0 if its soft
    rank is 1. Tied scores: what the operator gives them.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`; the paper's is `SinkhornSort()`.
        top_k: k. Default: 1.
        step: "linear" (the paper's J_k, the default) or "cut".
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make the mean over the true classes a weighted one; for the weight of a whole example
    take `reduction="none"`.

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Cuturi, Teboul and Vert, "Differentiable ranking and sorting using optimal
    transport", NeurIPS 2019, section 5.

    >>> from ltr.operators import HardRank
    >>> scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> TopKLoss(HardRank())(scores, labels), TopKLoss(HardRank(), top_k=2)(scores, labels)
    (tensor(2.), tensor(1.))
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int = 1,
        step: Literal["linear", "cut"] = "linear",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        self.top_k = check_whole("top_k", top_k)
        if step not in ("linear", "cut"):
            raise ValueError(f"step must be 'linear' or 'cut', got {step!r}")
        self.step: Literal["linear", "cut"] = step

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The top-k loss of each list."""
        if self.step == "linear":
            losses = (self.operator(scores, mask) - self.top_k).relu()
        else:
            losses = 1 - self.operator.top_k(self.top_k, scores, mask)
        return weighted_mean(losses, item_gains(labels, mask, weights, relevance))


class TopKCrossEntropy(RankingLoss):
    """-log of the label's probability to be among the first k, with k drawn from a distribution.

    That is -log sum over rows m of P(k >= m) * P[m, label], where P[m, j] is the chance that
    class j stands at place m. Only as many rows are computed as the distribution is long, and all
    in logarithms, so that a label far behind has a gradient. The items are classes, with label 1
    (above 0) for the true one; with several it is the mean over them. A relaxed permutation's
    columns need not sum to 1, so a probability that passes 1 counts as 1.

    What unusual lists give: no label, or all masked: 0, with a graph. One class: 0. Tied scores:
    what the operator gives them. A probability that the operator has as exactly 0 (sorting
    networks, hard permutations) counts 1e-38, without a gradient.

    Args:
        operator: any `SortOperator`. Default: `SoftSort()`; the paper takes sorting networks, as
            `SortingNetwork()`, and also `NeuralSort()` and `SoftSort()`.
        distribution: P(k = 1), P(k = 2), and so on, summing to 1. Default: [0.5, 0, 0, 0, 0.5],
            half top-1 and half top-5. [1] is the cross-entropy with the first row.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make the mean over the true classes a weighted one.

    Raises:
        ValueError: the distribution has a negative number or does not sum to 1; an operator
            that has no permutation.

    Reference: Petersen, Kuehne, Borgelt and Deussen, "Differentiable top-k classification
    learning", ICML 2022.

    >>> loss = TopKCrossEntropy(distribution=[0.0, 1.0])
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])).round(decimals=3)
    tensor(0.)
    """

    log_tails: Tensor

    def __init__(
        self,
        operator: SortOperator | None = None,
        distribution: Sequence[float] = (0.5, 0.0, 0.0, 0.0, 0.5),
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort(), type(self).__name__)
        self.distribution = [float(p) for p in distribution]
        if not all(p >= 0 for p in self.distribution) or abs(sum(self.distribution) - 1) > 1e-6:
            raise ValueError(f"distribution must be >= 0 and sum to 1, got {distribution!r}")
        while self.distribution[-1] == 0:
            self.distribution.pop()
        tails = [*itertools.accumulate(reversed(self.distribution))][::-1]  # P(k >= m)
        log_tails = torch.tensor(tails, dtype=torch.float64).log()
        self.register_buffer("log_tails", log_tails, persistent=False)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The cross-entropy of each list."""
        P = self.operator.permutation(scores, mask).top(len(self.distribution))
        log_rows = P.log_dense()
        log_tails = self.log_tails.to(log_rows.dtype)[: log_rows.shape[-2]].unsqueeze(-1)
        inside = log_sum(log_rows + log_tails, -2).clamp(max=0.0)
        return weighted_mean(-inside, item_gains(labels, mask, weights, relevance))


def top_k_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    operator: RankOperator | None = None,
    top_k: int = 1,
    step: Literal["linear", "cut"] = "linear",
    reduction: Reduction = "mean",
) -> Tensor:
    """Differentiable top-k loss, as a function: (..., n) each -> a scalar. See `TopKLoss`.

    >>> top_k_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor(1.)
    """
    return TopKLoss(operator, top_k, step, reduction)(
        scores, labels, mask, weights, lengths=lengths
    )


def top_k_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    operator: SortOperator | None = None,
    distribution: Sequence[float] = (0.5, 0.0, 0.0, 0.0, 0.5),
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k cross-entropy, as a function: (..., n) each -> a scalar. See `TopKCrossEntropy`.

    >>> scores, labels = torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0])
    >>> top_k_cross_entropy(scores, labels, distribution=[1.0])  # a gap of 8 at temperature 0.1
    tensor(80.)
    """
    return TopKCrossEntropy(operator, distribution, reduction)(
        scores, labels, mask, weights, lengths=lengths
    )

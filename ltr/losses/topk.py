"""Losses for top-k classification, on the soft rank of the true class or its top-k probability."""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor

from ltr.gains import item_gains
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.soft import (
    log_sum,
    rank_operator,
    relevance,
    sort_operator,
    weighted_mean,
)
from ltr.operators import RankOperator, SoftSort, SortOperator
from ltr.operators.stochastic import one_draw
from ltr.shapes import check_choice, check_floats, check_whole, first_value, wrong_values

_TOP_1 = [1.0]
_TOP_1_AND_5 = [0.5, 0.0, 0.0, 0.0, 0.5]


class _ClassLoss(RankingLoss):
    """Base class of `TopKLoss` and `TopKCrossEntropy`.

    It takes class indices as labels, and a distribution of k.
    """

    def __init__(
        self,
        top_k: int | None,
        distribution: Sequence[float] | None,
        default: list[float],
        reduction: Reduction,
    ):
        super().__init__(reduction)
        self.top_k = top_k
        self._probabilities = _probabilities(top_k, distribution, default)
        self.distribution = None if distribution is None else list(distribution)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        """Return the loss of scores (..., n) against labels (..., n) or class indices (...).

        For the other arguments see `RankingLoss.forward`.
        """
        return super().forward(scores, one_hot(scores, labels), mask, weights, **options)


def one_hot(scores: Tensor, labels: Tensor) -> Tensor:
    """Return one-hot labels (..., n) for class indices (...).

    Class indices are integers, as in `torch.nn.CrossEntropyLoss`. Labels of another shape or dtype
    are returned unchanged.

    Raises:
        ValueError: an index is not in [0, n). Indices are checked on the CPU only. On another
            device, the device reports the error, as in `torch.nn.CrossEntropyLoss`.

    >>> one_hot(torch.zeros(2, 3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if not isinstance(scores, Tensor) or not isinstance(labels, Tensor):
        return labels
    nested = scores.is_nested or labels.is_nested
    if nested or not scores.dim() or labels.shape != scores.shape[:-1]:
        return labels
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        return labels
    n = scores.shape[-1]
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        with suppress(RuntimeError):  # `vmap` raises this
            wrong = first_value(labels, wrong_values(labels, most=n - 1))
            if wrong is not None:
                raise ValueError(f"labels must be class indices from 0 to {n - 1}, got {wrong}")
    index = labels.long().unsqueeze(-1)
    return torch.zeros_like(scores).scatter(-1, index, 1.0)


def _probabilities(
    top_k: int | None, distribution: Sequence[float] | None, default: list[float]
) -> list[float]:
    """Return P(k = 1), P(k = 2), ... up to the last value above 0."""
    if top_k is not None:
        k = check_whole("top_k", top_k)
        if distribution is not None:
            raise ValueError(
                f"top_k must be None if a distribution is given, got {top_k!r} and {distribution!r}"
            )
        return [0.0] * (k - 1) + [1.0]
    probabilities = check_floats("distribution", default if distribution is None else distribution)
    if not all(p >= 0 for p in probabilities) or abs(sum(probabilities) - 1) > 1e-6:
        raise ValueError(f"distribution must be >= 0 and sum to 1, got {distribution!r}")
    while probabilities[-1] == 0:
        probabilities.pop()
    return probabilities


class TopKLoss(_ClassLoss):
    """Top-k classification loss: the number of positions by which the true class misses the top k.

    The loss is max(0, soft rank of the true class - k).

    The items are classes. The true class has label 1 (or another value above 0, which counts as 1),
    and the other classes have label 0. The paper writes the loss as J_k(L - R), with L classes,
    J_k(u) = max(0, u - k + 1) and ascending ranks R; the paper's L - R is the rank here minus 1.

    With `step="cutoff"` the loss is 1 minus the soft membership of the true class in the first k.
    This is at most 1, and with hard ranks exactly 0 or 1, like the top-k error itself. With several
    true classes the loss is the mean over them, and above 0 if there are more than k.

    Special cases: the loss is 0, with a zero gradient, for a list without a true class and for a
    fully masked list. With one class, the loss is 0 if the class's soft rank is 1, or about 0 with
    `step="cutoff"`. The operator decides the ranks of tied scores.

    `labels` are (..., n), or class indices (...) of an integer dtype, as in
    `torch.nn.CrossEntropyLoss`.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. The paper uses `SinkhornSort()`.
        top_k: k. Default: 1, unless a distribution is given.
        step: "linear" (the paper's J_k, the default) or "cutoff".
        distribution: P(k = 1), P(k = 2), and so on, which sum to 1, instead of `top_k`. The loss is
            then the mean over k with these probabilities.

    With weights, the mean over the true classes is a weighted mean. To weight whole examples,
    multiply the result of `reduction="none"` by their weights.

    Raises:
        ValueError: an argument is invalid (the message names it and its value); top_k and a
            distribution are both given; a class index is not in [0, n).

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
        top_k: int | None = None,
        step: Literal["linear", "cutoff"] = "linear",
        distribution: Sequence[float] | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(top_k, distribution, _TOP_1, reduction)
        self.operator = rank_operator(operator)
        check_choice("step", step, "linear", "cutoff")
        self.step: Literal["linear", "cutoff"] = step

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the top-k loss of each list."""
        gains = item_gains(labels, mask, weights, relevance)
        operator, scores, mask = one_draw(self.operator, scores, mask)
        each_k = [(k, p) for k, p in enumerate(self._probabilities, 1) if p]
        if self.step == "linear":
            ranks = operator(scores, mask)
            missed = [p * (ranks - k).relu() for k, p in each_k]
        else:
            missed = [p * (1 - operator.top_k(k, scores, mask)) for k, p in each_k]
        return weighted_mean(sum(missed[1:], start=missed[0]), gains)


class TopKCrossEntropy(_ClassLoss):
    """Top-k classification loss: -log of the probability that the true class is among the first k.

    k is drawn from a distribution, so the loss is -log of the sum over the rows m of P(k >= m) *
    P[m, true class]. P[m, j], an element of the operator's soft permutation matrix, is the
    probability that class j is at position m. The number of computed rows is the length of the
    distribution. The rows are computed in logarithms, so a true class far below position k still
    has a gradient. The items are classes. The true class has label 1 (or another value above 0,
    which counts as 1), and the other classes have label 0. With several true classes the loss is
    the mean over them. The columns of a soft permutation need not sum to 1, so a probability above
    1 counts as 1.

    Special cases: the loss is 0, with a zero gradient, for a list without a true class and for a
    fully masked list. With one class the loss is 0. The operator decides how tied scores share the
    positions. A probability of exactly 0, as with sorting networks and hard permutations, counts as
    1e-38 and has no gradient.

    `labels` are (..., n), or class indices (...) of an integer dtype, as in
    `torch.nn.CrossEntropyLoss`.

    Args:
        operator: any `SortOperator`. Default: `SoftSort()`. The paper uses sorting networks, such
            as `SortingNetwork()`, and also `NeuralSort()` and `SoftSort()`.
        top_k: a single k, instead of a distribution. If it is 1, the loss is the cross-entropy of
            the first row.
        distribution: P(k = 1), P(k = 2), and so on, which sum to 1, instead of `top_k`. Default:
            [0.5, 0, 0, 0, 0.5], half top-1 and half top-5.

    With weights, the mean over the true classes is a weighted mean.

    Raises:
        ValueError: the distribution has a negative value or does not sum to 1; top_k and a
            distribution are both given; the operator has no permutation; a class index is not in
            [0, n).

    Reference: Petersen, Kuehne, Borgelt and Deussen, "Differentiable top-k classification
    learning", ICML 2022.

    >>> TopKCrossEntropy(top_k=2)(torch.tensor([3.0, 2.0, 1.0]), torch.tensor(1)).round(decimals=3)
    tensor(0.)
    """

    log_tails: Tensor

    def __init__(
        self,
        operator: SortOperator | None = None,
        top_k: int | None = None,
        distribution: Sequence[float] | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(top_k, distribution, _TOP_1_AND_5, reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.register_buffer("log_tails", _log_tails(self._probabilities), persistent=False)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the cross-entropy of each list."""
        log_rows = self.operator.permutation(scores, mask).top(len(self.log_tails)).log_dense()
        log_tails = self.log_tails.to(log_rows.dtype)[: log_rows.shape[-2]].unsqueeze(-1)
        inside = log_sum(log_rows + log_tails, -2).clamp(max=0.0)
        return weighted_mean(-inside, item_gains(labels, mask, weights, relevance))


def _log_tails(probabilities: list[float]) -> Tensor:
    """Return log P(k >= m) for m = 1, 2, ... in float64."""
    tails = [*itertools.accumulate(reversed(probabilities))][::-1]
    return torch.tensor(tails, dtype=torch.float64).log()

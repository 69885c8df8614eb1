"""What the losses on soft ranks and soft permutations share."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ltr._shapes import masked_fill
from ltr.gains import cut_discount
from ltr.operators import RankOperator, SigmoidRank, SortOperator, Stochastic
from ltr.operators.base import check_operator
from ltr.operators.stochastic import needs_matrix

LEAST_LOG = math.log(1e-38)
"""What the logarithm of an exact 0 counts in a cross-entropy: the least that float32 holds."""


def relevance(labels: Tensor) -> Tensor:
    """1 where the label is above 0, else 0.

    >>> relevance(torch.tensor([0.0, 0.5, 4.0]))
    tensor([0., 1., 1.])
    """
    return (labels > 0).to(labels.dtype)


def reciprocal_rank(ranks: Tensor) -> Tensor:
    """1 / rank, and 1 for the soft ranks below 1 that some operators give.

    >>> reciprocal_rank(torch.tensor([0.5, 1.0, 4.0]))
    tensor([1.0000, 1.0000, 0.2500])
    """
    return 1 / ranks.clamp(min=1)


def cut(
    discount: Callable[[Tensor], Tensor], top_k: int | None, operator: RankOperator
) -> Callable[[Tensor], Tensor]:
    """`discount`, cut off behind rank `top_k` in the way that suits the operator; or whole."""
    return cut_discount(discount, top_k, exact=operator.whole_ranks)


def rank_operator(operator: RankOperator | None) -> RankOperator:
    """Return the operator, `SigmoidRank()` for None, or raise a ValueError if it is none.

    >>> rank_operator(None)
    SigmoidRank(temperature=0.1)
    """
    return SigmoidRank() if operator is None else check_operator(operator)


def sort_operator(
    operator: SortOperator | None, default: Callable[[], SortOperator], loss: str
) -> SortOperator:
    """Return the operator, `default()` for None, or raise a ValueError if it has no permutation.

    >>> from ltr.operators import SigmoidRank, SoftSort
    >>> sort_operator(SigmoidRank(), SoftSort, "KNNLoss")
    Traceback (most recent call last):
    ValueError: KNNLoss needs a permutation: operator must be a SortOperator, got SigmoidRank
    """
    return default() if operator is None else needs_matrix(check_operator(operator), loss)


def one_draw(
    operator: RankOperator, scores: Tensor, mask: Tensor | None
) -> tuple[RankOperator, Tensor, Tensor | None]:
    """The operator without its noise, and scores and mask with one draw of it.

    For a loss that asks an operator twice about the same order: each call of a `Stochastic`
    operator draws anew.
    """
    while isinstance(operator, Stochastic):
        scores, mask, _ = operator.draw(scores, mask)
        operator = operator.operator
    return operator, scores, mask


def shortfall(value: Tensor, ideal: Tensor) -> Tensor:
    """1 - value / ideal; 0, with a graph, where the ideal is 0 and nothing is to be ranked.

    >>> shortfall(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]))
    tensor([0.7500, 0.0000])
    """
    defined = ideal > 0
    return defined.to(value.dtype) - value / torch.where(defined, ideal, torch.inf)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Sum of weights * values over the sum of weights; 0, with a graph, where that is 0.

    >>> weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))
    tensor(2.)
    """
    total = weights.sum(-1)
    return (values * weights).sum(-1) / torch.where(total > 0, total, 1.0)


def list_weight(scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """The mean weight (...) of a list's real items; 1 without weights or items.

    >>> list_weight(torch.zeros(2), None, torch.tensor([1.0, 2.0]))
    tensor(1.5000)
    """
    if weights is None or not scores.shape[-1]:
        return scores.new_ones(scores.shape[:-1])
    real = masked_fill(torch.ones_like(scores), mask)
    total = real.sum(-1)
    mean = masked_fill(weights, mask).sum(-1) / total.clamp(min=1)
    return torch.where(total > 0, mean, 1.0)


def finite_log(log_p: Tensor) -> Tensor:
    """Log-probabilities with LEAST_LOG for -inf, which has no gradient; others as they are.

    >>> finite_log(torch.tensor([-900.0, -torch.inf]))
    tensor([-900.0000,  -87.4982])
    """
    return torch.where(log_p == -torch.inf, LEAST_LOG, log_p)


def log_sum(log_p: Tensor, dim: int) -> Tensor:
    """`logsumexp`, but LEAST_LOG, without a gradient, where all are -inf.

    >>> log_sum(torch.tensor([[-900.0, -torch.inf], [-torch.inf, -torch.inf]]), -1)
    tensor([-900.0000,  -87.4982])
    """
    none = (log_p == -torch.inf).all(dim, keepdim=True)
    return torch.where(none, LEAST_LOG, log_p).logsumexp(dim).where(~none.squeeze(dim), LEAST_LOG)

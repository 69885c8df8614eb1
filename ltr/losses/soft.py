"""Common functions of the losses on soft ranks and soft permutations."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ltr.gains import with_cutoff
from ltr.operators import RankOperator, SigmoidRank, SortOperator
from ltr.operators.base import check_operator
from ltr.operators.stochastic import needs_matrix
from ltr.shapes import masked_fill

LEAST_LOG = math.log(1e-38)
"""Replaces the logarithm of 0 in a cross-entropy; 1e-38 is near the least normal float32."""


def relevance(labels: Tensor) -> Tensor:
    """Return 1 for labels above 0, else 0.

    >>> relevance(torch.tensor([0.0, 0.5, 4.0]))
    tensor([0., 1., 1.])
    """
    return (labels > 0).to(labels.dtype)


def reciprocal_rank(ranks: Tensor) -> Tensor:
    """Return 1 / rank, or 1 for soft ranks below 1, which some operators give.

    >>> reciprocal_rank(torch.tensor([0.5, 1.0, 4.0]))
    tensor([1.0000, 1.0000, 0.2500])
    """
    return 1 / ranks.clamp(min=1)


def cutoff_discount(
    discount: Callable[[Tensor], Tensor], top_k: int | None, operator: RankOperator
) -> Callable[[Tensor], Tensor]:
    """Return `discount` with a cutoff after rank `top_k`, or `discount` itself if `top_k` is None.

    The cutoff is exact if `operator.exact_cutoff` is True, and smooth otherwise.
    """
    return with_cutoff(discount, top_k, exact=operator.exact_cutoff)


def rank_operator(operator: RankOperator | None) -> RankOperator:
    """Return `operator`, or `SigmoidRank()` if `operator` is None.

    Raises:
        ValueError: operator is not a `RankOperator`.

    >>> rank_operator(None)
    SigmoidRank(temperature=0.1)
    """
    return SigmoidRank() if operator is None else check_operator(operator)


def sort_operator(
    operator: SortOperator | None, default: Callable[[], SortOperator], loss: str
) -> SortOperator:
    """Return `operator`, or `default()` if `operator` is None.

    Raises:
        ValueError: the operator has no soft permutation; the message names `loss`.

    >>> from ltr.operators import SigmoidRank, SoftSort
    >>> sort_operator(SigmoidRank(), SoftSort, "KNNLoss")
    Traceback (most recent call last):
    ValueError: KNNLoss needs a permutation: operator must be a SortOperator, got SigmoidRank
    """
    return default() if operator is None else needs_matrix(check_operator(operator), loss)


def shortfall(value: Tensor, ideal: Tensor) -> Tensor:
    """Return 1 - value / ideal, or 0 with a zero gradient if the ideal is 0.

    >>> shortfall(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]))
    tensor([0.7500, 0.0000])
    """
    defined = ideal > 0
    return defined.to(value.dtype) - value / torch.where(defined, ideal, torch.inf)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of each list, or 0 with a zero gradient if all weights are 0.

    >>> weighted_mean(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]))
    tensor(2.)
    """
    total = weights.sum(-1)
    return (values * weights).sum(-1) / torch.where(total > 0, total, 1.0)


def real_weights(like: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return the weights (..., n), by default 1, in the dtype of `like`; 0 where masked.

    >>> real_weights(torch.zeros(2), torch.tensor([True, False]), None)
    tensor([1., 0.])
    """
    return masked_fill(torch.ones_like(like) if weights is None else weights, mask)


def list_weight(scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return the mean weight (...) of each list's real items; 1 without weights or without items.

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
    """Return the log-probabilities, with `LEAST_LOG` (without a gradient) in place of -inf.

    >>> finite_log(torch.tensor([-900.0, -torch.inf]))
    tensor([-900.0000,  -87.4982])
    """
    return torch.where(log_p == -torch.inf, LEAST_LOG, log_p)


def log_sum(log_p: Tensor, dim: int) -> Tensor:
    """Return `logsumexp`, or `LEAST_LOG` without a gradient if there is no value above -inf.

    >>> log_sum(torch.tensor([[-900.0, -torch.inf], [-torch.inf, -torch.inf]]), -1)
    tensor([-900.0000,  -87.4982])
    """
    if not log_p.shape[dim]:
        return log_p.sum(dim) + LEAST_LOG
    none = (log_p == -torch.inf).all(dim, keepdim=True)
    log_p = torch.where(none, LEAST_LOG, log_p)
    # The gradient of `logsumexp` is computed from its rounded result. Relative to the largest
    # value, the result is at most the logarithm of the number of values.
    top = log_p.detach().amax(dim, keepdim=True)
    total = (log_p - top).logsumexp(dim) + top.squeeze(dim)
    return total.where(~none.squeeze(dim), LEAST_LOG)

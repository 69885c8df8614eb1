"""DFTopK (Zhu et al. 2025): soft top-k by a threshold between two scores, in linear time."""

import torch
from torch import Tensor

from ltr.kernels.named import COUNT_KERNELS
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import prefers_dense
from ltr.kernels.two_sets import kernel_sums_at
from ltr.operators.base import TemperatureRank
from ltr.operators.order import descending, nan_unless_finite
from ltr.operators.tiles import by_lists
from ltr.shapes import (
    count,
    masked_fill,
)


class DFTopK(TemperatureRank):
    """Soft top-k in linear time: a sigmoid around a threshold between the k-th score and the next.

    The membership in `top_k` is sigmoid((s_i - b_k) / temperature), where b_k is midway between the
    k-th and the (k + 1)-th highest score. The hard limit of the membership is the indicator of
    `torch.topk(scores, k).indices`. The memberships do **not** sum to k: if all n scores are tied,
    they sum to n / 2. The memberships of `LapSum` sum to k, at the cost of a sort.

    The ranks count the thresholds that an item misses. For m real items, rank_i = 1 + the sum over
    k = 1, ..., m - 1 of sigmoid((b_k - s_i) / temperature). Each term is 1 minus the membership of
    item i in the first k. The ranks lie in [1, m] and keep the order of the scores; their sum may
    differ from m (m + 1) / 2. As the temperature approaches 0, they tend to the hard ranks, except
    that tied items share their mean rank. As the temperature grows, all ranks tend to (m + 1) / 2.

    Choose `DFTopK` for a loss on the first k items of long lists, if a sort is too slow. If a loss
    needs memberships that sum to k, or a threshold that depends on all scores, use `LapSum`.

    Args:
        temperature: the scale of the sigmoid, in units of the scores, >= 0; 0 gives hard ranks
            (ties in list order, no gradient). Default: 0.1, for scores of unit scale.

    Cost: O(n) for `top_k`; one sort and O(n) for the ranks.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Zhu, Zhang, Wang, Wang, Li, Zhou, Wen, Jiang, Lin and Yang, "Differentiable Fast
    Top-K Selection for Large-Scale Recommendation", arXiv:2510.11472, 2025. The paper has no ranks.

    >>> operator = DFTopK(temperature=0.01)
    >>> operator(torch.tensor([0.3, 0.7, 0.5])).round()
    tensor([3., 1., 2.])
    >>> operator.top_k(2, torch.tensor([0.3, 0.7, 0.5])).round()
    tensor([0., 1., 1.])
    >>> DFTopK(temperature=0.1).top_k(1, torch.tensor([0.3, 0.7, 0.5]))
    tensor([0.0474, 0.7311, 0.2689])
    """

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return soft ranks (..., n): 1 + the soft number of thresholds above each item."""
        points = descending(scores, descending_order(scores, mask), mask)
        thresholds = points[..., :-1] / 2 + points[..., 1:] / 2
        real = None
        if mask is not None:  # m items have m - 1 thresholds
            real = torch.arange(1, thresholds.shape[-1] + 1, device=thresholds.device) < count(
                thresholds, mask
            )
        if not thresholds.shape[-1] or prefers_dense("logistic", scores.shape):
            missed = by_lists(self._missed, scores.shape[-1], scores, (thresholds, 1), (real, 1))
        else:
            above = COUNT_KERNELS["logistic"][scores.dtype]
            options = [(0, above)], self.temperature, mask, real
            (missed,) = kernel_sums_at(scores, thresholds, [torch.ones_like(thresholds)], *options)
        return 1 + missed

    def _missed(self, scores: Tensor, thresholds: Tensor, real: Tensor | None) -> Tensor:
        missed = torch.sigmoid((thresholds.unsqueeze(-2) - scores.unsqueeze(-1)) / self.temperature)
        return masked_fill(missed, None if real is None else real.unsqueeze(-2)).sum(-1)

    def soft_top_k(self, k: int, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the soft membership (..., n) of the real items, for `top_k`.

        If k >= m, all m real items have membership 1. Tied items have the same membership, which is
        1/2 if the threshold equals their score. The derivative of the threshold is 1/2 with respect
        to each of the two scores that define it, and 0 with respect to any other score. So raising
        a score far from the cutoff changes only the membership of its own item. A score that is not
        finite makes all memberships of its list NaN.
        """
        if k >= scores.shape[-1]:
            return nan_unless_finite(torch.ones_like(scores), scores) + 0 * scores
        lowest = masked_fill(scores, mask, torch.finfo(scores.dtype).min)
        first, second = lowest.topk(k + 1, -1).values[..., k - 1 :].unbind(-1)
        # Halves are added, since the sum of two large scores could overflow.
        threshold = (first / 2 + second / 2).unsqueeze(-1)
        members = torch.sigmoid((scores - threshold) / self.temperature)
        if mask is not None:
            members = torch.where(count(scores, mask) <= k, 1 + 0 * scores, members)
        return nan_unless_finite(members, scores)

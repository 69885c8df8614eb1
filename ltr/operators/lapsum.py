"""LapSum (Struski et al. 2025): ranks, top-k and sort by sums of Laplace distribution functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists, in_order
from ltr.kernels.named import COUNT_KERNELS, laplace
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.kernels.two_sets import kernel_sums_at
from ltr.operators.base import RankOperator, SortOperator, hard_or_soft, hard_sort
from ltr.operators.distributions import laplace_cdf
from ltr.operators.order import descending, nan_in_list
from ltr.operators.pairwise import KernelRank, counts_of
from ltr.operators.permutation import DensePermutation, SoftPermutation
from ltr.shapes import (
    check_number,
    count,
    masked_fill,
    positions,
    real_scores,
    with_masked,
)

ABOVE = Kernel(laplace().nodes, laplace().above, Profile((0,))).ready()
BELOW = Kernel(laplace().nodes, Profile((0,)), laplace().below).ready()


def laplace_sums(scores: Tensor, lists: SortedLists, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the exact sums of exp(-|s_j - s_i| / temperature) above and below each item i.

    The sums are over the positions before and after the item in the sorted order. So this order
    also decides which of the items tied with i count as above. The item itself counts on neither
    side.

    Args:
        scores: (..., n).
        lists: the sorted lists of these scores.
        temperature: > 0.

    Returns:
        Both sums, (..., n), 0 where masked. Cost: O(n).

    >>> import torch
    >>> from ltr.kernels.lists import sort_lists
    >>> laplace_sums(torch.zeros(3), sort_lists(torch.zeros(3)), 1.0)
    (tensor([0., 1., 2.]), tensor([2., 1., 0.]))
    """
    ones = scores.new_ones(()).expand(scores.shape)
    first, second = kernel_sums(scores, [ones], [(0, ABOVE), (0, BELOW)], lists, temperature)
    return first, second


def _arguments(
    scores: Tensor, k: Tensor, mask: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    # Return (s_j - b_i) / temperature, (..., K, n), with the threshold b_i of the top k_i. The
    # argument k is (..., K). The values are -inf for k_i <= 0 and inf for k_i >= m. Also return
    # (b_(i-1) - b_i) / temperature, (..., K - 1).
    if mask is not None:  # a list without real items is computed as if all were real, then masked
        mask = mask | ~mask.any(-1, keepdim=True)
    m = count(scores, mask)
    inside = (k > 0) & (k < m)
    outside = torch.where(k > 0, torch.inf, -torch.inf).to(scores.dtype)
    middle = torch.where(inside, k, m / 2)  # where no threshold is needed, any k works
    if not scores.shape[-1]:
        x = scores.unsqueeze(-2) + middle.unsqueeze(-1)
        return x, middle[..., 1:]
    anchor, log_p = _threshold(scores.detach(), middle.detach(), mask, temperature)
    # b = anchor + temperature * log_p is kept as two terms: their sum would lose digits.
    from_anchor = _scaled(scores.unsqueeze(-2) - anchor.unsqueeze(-1), temperature)
    # Where no threshold is needed, an infinite score must not make the gradient NaN.
    needed = inside.unsqueeze(-1)
    from_anchor = torch.where(needed, from_anchor, 0.0)
    log_p = torch.where(needed, log_p.unsqueeze(-1), 0.0)
    log_p = _with_derivatives(log_p, from_anchor, middle.unsqueeze(-1), mask)
    x = torch.where(needed, from_anchor - log_p, outside.unsqueeze(-1))
    log_p = log_p.squeeze(-1)
    width = -_scaled(anchor.diff(dim=-1), temperature) - log_p.diff(dim=-1)
    between = inside[..., 1:] & inside[..., :-1]
    tiny = torch.finfo(width.dtype).tiny
    return x, torch.where(between, width, torch.inf).clamp(min=tiny)


def _scaled(gaps: Tensor, temperature: float) -> Tensor:
    # Return gaps / temperature, clipped so that differences of the results do not overflow. Far
    # below this limit, probabilities are already 0 or 1.
    most = torch.finfo(gaps.dtype).max / 16
    return (gaps / temperature).clamp(-most, most)


def _threshold(
    scores: Tensor, k: Tensor, mask: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the thresholds b of the top k, 0 < k < m, as a score and log p, (..., K) each.

    Here b = score + temperature * log p. The caller adds the derivatives of the result.

    Args:
        scores: (..., n), without a gradient.
        k: (..., K).
        mask: (..., n) bool with a real item in each list, or None.
        temperature: > 0.

    Cost: one sort, O(n + K log n) time and O(n + K) memory.
    """
    t = descending(scores, descending_order(scores, mask), mask)
    sums = laplace_sums(t, in_order(t, mask), temperature)
    above, below = (1 + y for y in sums)  # here the item itself counts on both sides
    m, position = count(t, mask), positions(t)
    # These are the soft numbers of scores above b = t_i: i - 1/2 if the scores are far apart.
    counts = position - above / 2 + (below - 1) / 2
    counts = torch.where(position <= m, counts, torch.inf)
    # The counts never decrease along the list, except for rounding, which `cummax` repairs.
    counts = counts.cummax(-1).values.contiguous()
    batch = torch.broadcast_shapes(counts.shape[:-1], k.shape[:-1])
    k = k.expand(*batch, k.shape[-1])
    # This is the number of scores at or above b.
    over = torch.searchsorted(counts.expand(*batch, -1).contiguous(), k.contiguous(), right=True)
    upper = (over - 1).clamp(min=0)
    lower = torch.minimum(over, m.long() - 1).clamp(min=0)
    high, low = (t.expand(*over.shape[:-1], t.shape[-1]).gather(-1, i) for i in (upper, lower))
    A = above.expand(*over.shape[:-1], t.shape[-1]).gather(-1, upper)
    B = below.expand(*over.shape[:-1], t.shape[-1]).gather(-1, lower)
    # Between two scores the equation is over - A p / 2 + B e / (2 p) = k, with p =
    # exp((b - high) / temperature) and e = exp((low - high) / temperature). This quadratic is
    # solved without cancellation. A wide gap makes e underflow, so the logarithm of e is kept, and
    # b is given relative to the nearer of the two scores.
    log_e = _scaled(low - high, temperature)
    c = k - over
    q = (c.square() + A * B * log_e.exp()).sqrt()
    between = torch.where(
        c > 0,
        B.log() - (q + c).log(),  # this is relative to the lower score, so log_e is not added
        torch.where(c < 0, (q - c).log() - A.log(), (B.log() - A.log() + log_e) / 2),
    )
    all_below = (B / (2 * k)).log()  # b is above the highest score, which is then `high`
    all_above = (2 * (m - k) / A).log()  # b is below the lowest score
    log_p = torch.where(over == 0, all_below, torch.where(over == m, all_above, between))
    return torch.where((c > 0) & (over > 0) & (over < m), low, high), log_p


def _with_derivatives(log_p: Tensor, from_anchor: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    # Return log p (..., K, 1) with its derivatives by the implicit function theorem. A Newton step
    # for sum F = k does not change the value here, but it doubles the number of correct orders,
    # counted from order 0, the value. So two steps turn one correct order into four: the value and
    # the first three derivatives are then correct. All tails may underflow, so they are divided
    # by the tail of the nearest score.
    x = (from_anchor - log_p).detach()
    side = torch.where(x > 0, -1.0, 1.0).to(x.dtype)
    real = None if mask is None else mask.unsqueeze(-2)
    nearest = masked_fill(-side * x, real, torch.inf).amin(-1, keepdim=True)

    def tails(x: Tensor) -> Tensor:
        return side * masked_fill(torch.exp(nearest + side * x), real)

    start = tails(x)
    # A tail of exp(-limit) is far smaller than rounding errors, so beyond the limit k does not
    # change the results.
    limit = 300.0 if x.dtype == torch.float64 else 40.0
    moved = 2 * torch.exp(nearest.clamp(max=limit)) * (k - k.detach())
    for _ in range(2):
        now = tails(from_anchor - log_p)
        step = (now - start).sum(-1, keepdim=True) - moved
        log_p = log_p + step / (side * now).sum(-1, keepdim=True)
    return log_p


def _log_difference(x: Tensor, y: Tensor, width: Tensor) -> Tensor:
    # Return log(F(x) - F(y)) for the Laplace distribution function F, x > y and width = x - y > 0.
    # The result is finite even if both tails underflow.
    across = (x > 0) & (y < 0)
    above, below = torch.where(across, x, 1.0), torch.where(across, y, -1.0)
    both = torch.log(-(torch.expm1(-above) + torch.expm1(below)) / 2)
    tail = torch.where(x > 0, -y, x) + torch.log(-torch.expm1(-width)) - math.log(2)
    return torch.where(across, both, tail)


@dataclass(eq=False, repr=False)
class LapSumPermutation(
    DensePermutation, tensors=("log_matrix", "scores", "mask", "order"), static=("temperature",)
):
    """The doubly stochastic matrix of `LapSum`; `ranks` returns the Laplace ranks.

    Args:
        log_matrix: (..., rows, n).
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order.
        temperature: > 0.

    >>> P = LapSum(0.5).permutation(torch.tensor([1.0, 3.0, 2.0]))
    >>> P.ranks()
    tensor([2.9232, 1.0768, 2.0000])
    """

    temperature: float = field(kw_only=True)

    def ranks(self) -> Tensor:
        """Return the Laplace ranks (..., n), in the time of one sort and without the matrix.

        `P.mT.mv` of 1..n gives slightly different ranks: the Laplace ranks of the scores among the
        n - 1 thresholds.
        """
        self._needs_all_rows("ranks")
        counts = counts_of("laplace", self.temperature, self.scores, self.mask)
        return with_masked(0.5 + counts, self.mask)


class LapSum(KernelRank, SortOperator):
    """Soft ranks, sorts and top-k in the time of one sort; memberships sum to exactly k.

    With the distribution function F of the Laplace distribution (exp(x) / 2 below 0 and 1 -
    exp(-x) / 2 above), the methods compute:

    - `forward`: the Laplace ranks, 1 + the sum over j != i of F((s_j - s_i) / temperature).
    - `top_k`: memberships p_i = F((s_i - b_k) / temperature), with b_k such that their sum is k.
    - `permutation`: row i is the soft top-i minus the soft top-(i - 1), so P[i, j] is
      F((s_j - b_i) / temperature) - F((s_j - b_(i-1)) / temperature), the probability that item j,
      with Laplace noise, is between two thresholds. P is doubly stochastic.
    - `sort`: soft sorted scores without a matrix: the thresholds b_k for k = 1/2, 3/2, ...

    Choose `LapSum` for long lists. As the temperature approaches 0, all results tend to the hard
    results, except that tied items have equal ranks, memberships and columns. As the temperature
    grows, ranks tend to (n + 1) / 2, memberships to k / n and matrix elements to 1/n.

    Args:
        temperature: the scale of the Laplace distribution, in units of the scores, >= 0; 0 gives
            hard results (ties in list order; the ranks and memberships have no gradient with
            respect to the scores). Default: 0.1, for scores of unit scale.

    Cost: ranks, `top_k` and `sort` take one sort and O(n) time and memory; the matrix takes O(n^2)
    time and memory.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Struski, Bednarczyk, Podolak and Tabor, "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection", ICML 2025.

    >>> operator = LapSum(temperature=0.1)
    >>> scores = torch.tensor([0.3, 0.7, 0.5])
    >>> operator(scores)
    tensor([2.9232, 1.0768, 2.0000])
    >>> operator.top_k(2, scores).sum()
    tensor(2.)
    >>> operator.permutation(scores).dense().round(decimals=2)
    tensor([[0.0200, 0.8000, 0.1700],
            [0.1700, 0.1700, 0.6500],
            [0.8000, 0.0200, 0.1700]])
    """

    distribution = "laplace"
    weighted = False

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return Laplace ranks (..., n) of scores (..., n); weights are refused."""
        return RankOperator.forward(self, scores, mask, weights)  # this does not build the matrix

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the soft permutation of scores (..., n).

        The rows and columns of real items sum to 1. The hard limit is `torch.argsort(scores,
        descending=True)` as a one-hot matrix.
        """
        order = descending_order(scores, mask)
        sizes = torch.arange(scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        x, width = _arguments(scores, sizes, mask, self.temperature)
        log_p = _log_difference(x[..., 1:, :], x[..., :-1, :], width.unsqueeze(-1))
        log_p = nan_in_list(log_p, scores.unsqueeze(-2))  # there is no threshold
        if mask is not None:
            rows = positions(scores) <= count(scores, mask)
            log_p = masked_fill(log_p, rows.unsqueeze(-1) & mask.unsqueeze(-2), -torch.inf)
        return LapSumPermutation(log_p, scores, mask, order, temperature=self.temperature)

    def top_k(self, k: float | Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return soft membership in the first k, (..., n) in [0, 1], with the sum min(k, m).

        The hard limit is the indicator of `torch.topk(scores, k).indices`; if k is not whole, the
        membership of the item at the next rank is the fractional part of k. The threshold b_k has a
        closed form between two neighboring scores. Its derivative with respect to the scores s is
        the softmax of -|s - b_k| / temperature. All derivatives are exact up to the third order. At
        a temperature > 0, tied items have equal memberships.

        Args:
            k: the number of items to select: a number > 0, or a tensor that broadcasts against the
                batch shape (...), one number per list. k need not be whole, and a tensor k gets a
                gradient. If k >= m, all m real items are selected. Elements k <= 0 of a tensor
                select no item (this is not checked).
            scores: (..., n).
            mask: (..., n) bool.

        Raises:
            ValueError: k is a number <= 0.

        >>> LapSum(0.1).top_k(1.5, torch.tensor([0.3, 0.7, 0.5]))
        tensor([0.0677, 0.9323, 0.5000])
        """
        scores = real_scores(scores, mask)
        if not isinstance(k, Tensor):
            k = scores.new_tensor(check_number("k", k, minimum=0.0, strict=True))
        return self._membership(k.to(scores.dtype).unsqueeze(-1), scores, mask)

    def soft_top_k(self, k: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the soft membership (..., n) of the real items, for `top_k`; k is (..., 1)."""
        x, _ = _arguments(scores, k, mask, self.temperature)
        return nan_in_list(laplace_cdf(x.squeeze(-2)), scores)

    def sort(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return soft sorted scores (..., n): descending, 0 past the m real items.

        The values are the thresholds above which the soft number of items is 1/2, 3/2, ...: the b_i
        for which the sum over j of F((s_j - b_i) / temperature) is i - 1/2. In the hard limit,
        i - 1 items are above b_i, and the item at b_i counts 1/2, so the values are
        `torch.sort(scores, descending=True).values`. `permutation(scores).sort()` is another soft
        sort, by a doubly stochastic matrix; its values stay between the lowest and the highest
        score.

        The sum of the values is not the sum of the scores: as the temperature grows, the first and
        the last value move beyond the scores by about temperature * log(m). For n tied scores the
        values are quantiles of one Laplace distribution. The values descend strictly except for
        rounding. A list with a NaN gives NaN. Cost: one sort of 2 n points and O(n) time and
        memory. Derivatives are exact up to the third order.

        >>> LapSum(0.01).sort(torch.tensor([0.3, 0.7, 0.5]))
        tensor([0.7000, 0.5000, 0.3000])
        >>> LapSum(0.2).sort(torch.tensor([0.3, 0.7, 0.5]))
        tensor([0.7815, 0.5000, 0.2185])
        """
        return hard_or_soft(self, hard_sort, self.soft_sort, scores, mask)

    def soft_sort(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the thresholds (..., n), for `sort`; the arguments are as in `soft_ranks`."""
        if not scores.shape[-1]:
            return scores
        rows = None if mask is None else positions(scores) <= count(scores, mask)
        if mask is not None:  # a list without real items counts as all real, and is masked below
            mask = mask | ~mask.any(-1, keepdim=True)
        position = positions(scores).expand(scores.shape)
        wanted = torch.minimum(position, count(scores, mask)) - 0.5
        anchor, log_p = _threshold(scores.detach(), wanted, mask, self.temperature)
        b = anchor + self.temperature * log_p
        # The two Newton steps do not change the value, but they make the first three derivatives
        # correct, as in `_with_derivatives`. The item nearest to a threshold is at most log n
        # temperatures away from it, so the density does not underflow.
        ones = torch.ones_like(scores)
        above, density = COUNT_KERNELS["laplace"][torch.float64], laplace()
        for _ in range(2):
            outputs = [(0, above), (0, density)]
            counts, twice = kernel_sums_at(b, scores, [ones], outputs, self.temperature, mask=mask)
            b = b + self.temperature * (counts - counts.detach()) / (twice / 2)
        return masked_fill(b, rows)

"""SinkhornSort (Cuturi, Teboul and Vert 2019): ranks and sorts by optimal transport."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order
from ltr.operators.base import RankOperator, SortOperator
from ltr.operators.distributions import abs_power
from ltr.operators.order import item_weights, nan_in_list
from ltr.operators.sinkhorn_permutation import SinkhornPermutation
from ltr.operators.sinkhorn_transport import log_matrix, row_potentials
from ltr.shapes import (
    check_choice,
    check_number,
    check_temperature,
    check_top_k,
    check_whole,
    count,
    masked_fill,
    widened,
)

MOST_MILESTONES = 2000
"""The largest number of milestones. A Newton step takes O(milestones^2 n) time for n items."""


class Transport(NamedTuple):
    """An optimal transport problem in float64: move the mass of the items to the milestones.

    Args:
        row_points: (..., rows), descending: the milestones on the line.
        points: (..., n): the items on the line.
        a: (..., n) item weights, summing to 1; 0 deletes an item.
        b: (..., rows) row weights, summing to 1; 0 deletes a row.
    """

    row_points: Tensor
    points: Tensor
    a: Tensor
    b: Tensor


def numbers(name: str, values: Sequence[float]) -> Tensor:
    """Return the values (R,) as float64, or raise a ValueError that names the argument.

    >>> numbers("milestones", [1, 0.5])
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    try:
        return torch.tensor([float(value) for value in values], dtype=torch.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, got {values!r}") from None


def milestone_shares(
    milestones: int | Sequence[float] | None, weights: Sequence[float] | None
) -> Tensor | None:
    """Return the weights of the milestones (R,), which sum to 1; None for one milestone per item.

    >>> milestone_shares(2, [1.0, 3.0])
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if milestones is None and weights is None:
        return None
    given = None if weights is None else numbers("milestone_weights", weights)
    if isinstance(milestones, (int, Integral)):
        rows = check_whole("milestones", milestones)
    elif milestones is not None:
        rows = len(numbers("milestones", milestones))
        if not rows:
            raise ValueError(f"milestones must not be empty, got {milestones!r}")
    else:
        rows = 0 if given is None else len(given)
    b = torch.ones(rows).double() if given is None else given
    if b.shape != (rows,) or rows == 0 or not (b > 0).all() or not b.isfinite().all():
        raise ValueError(
            f"milestone_weights must be {max(rows, 1)} positive numbers, got {weights!r}"
        )
    return b / b.sum()


def squashed(scores: Tensor, share: Tensor, squash: str | None) -> Tensor:
    """Standardize scores by weighted mean and standard deviation, then squash them to [0, 1].

    This is algorithm 2 of Cuturi et al. 2019. The weights are `share` (..., n), which sum to 1. If
    `squash` is None, the values of the scores are unchanged.

    The result is in float64 if the device supports it.

    >>> squashed(torch.tensor([-3.0, 3.0]), torch.tensor([0.5, 0.5]), "arctan")
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    least = torch.finfo(scores.dtype).tiny
    scores = widened(scores)
    if squash is None:
        return scores
    centered = scores - (share * scores).sum(-1, keepdim=True)
    variance = (share * centered.square()).sum(-1, keepdim=True)
    # Scores that are equal up to rounding have no scale: a scale of 1 keeps the gradient finite.
    # The scale is also 1 if the gradient, 1 / scale, would overflow the dtype of the scores.
    digits = torch.finfo(scores.dtype)
    floor = (8 * digits.eps) ** 2 * (share * scores.square()).sum(-1, keepdim=True)
    flat = variance <= floor + max(least, digits.tiny**0.5)
    z = centered / torch.where(flat, 1.0, variance).sqrt()
    return z.sigmoid() if squash == "logistic" else 0.5 + z.arctan() / torch.pi


def sorted_coupling(a: Tensor, b: Tensor, order: Tensor) -> Tensor:
    """Return the unregularized transport, which matches masses in descending order; rows sum to 1.

    Args:
        a: (..., n) item weights.
        b: (..., R) row weights, with the same sum as a.
        order: (..., n) int64, the items in descending order.

    Returns:
        (..., R, n).

    >>> sorted_coupling(torch.ones(3), torch.tensor([1.5, 1.5]), torch.tensor([2, 0, 1]))
    tensor([[0.3333, 0.0000, 0.6667],
            [0.3333, 0.6667, 0.0000]])
    """
    item_end = a.gather(-1, order).cumsum(-1).unsqueeze(-2)
    row_end = b.cumsum(-1).unsqueeze(-1)
    item_start = torch.nn.functional.pad(item_end, (1, 0))[..., :-1]
    row_start = torch.nn.functional.pad(row_end, (0, 0, 1, 0))[..., :-1, :]
    shared = torch.minimum(item_end, row_end) - torch.maximum(item_start, row_start)
    shared = shared.clamp(min=0) / torch.where(b == 0, 1.0, b).unsqueeze(-1)
    positions = order.unsqueeze(-2).expand(shared.shape)
    return torch.zeros_like(shared).scatter(-1, positions, shared)


Squash = Literal["arctan", "logistic"]


class SinkhornSort(SortOperator):
    """Soft ranks and sorts by optimal transport of the items to sorted target points (milestones).

    The scores x are standardized and squashed to [0, 1]. Each item's mass is moved to milestones y
    on the same interval. The coupling T minimizes the total cost, sum_ij T_ij h(y_i - x_j), minus
    epsilon times the entropy: T = diag(u) exp(-h / epsilon) diag(v), with column sums a, the item
    weights, and row sums b, the milestone weights. For a convex h and epsilon = 0 this transport
    sorts. The results are

    - `forward`: the ranks R = m T^T (cumulative b) / a of the m items; rank 1 = the highest score;
    - `permutation`: P = T / b, with one row per milestone; `P.mv` and `P.spread` are the operators
      S and R of the paper.

    With one milestone per item, the ranks tend to the hard ranks as epsilon approaches 0, except
    that tied items share their mean rank. As epsilon grows, each row of P tends to a / sum(a), and
    with one milestone per item each rank tends to (m + 1) / 2. With equal weights and one milestone
    per item, P is doubly stochastic and ranks sum to m (m + 1) / 2. The ranks do not change if
    scores are shifted or scaled (unless `squash` is None). A list of tied scores is not rescaled.

    Weights (non-negative, one per item, in `forward` and `permutation`) are the relative masses of
    the items: with whole weights, an item of weight w counts as w copies in the standardization and
    the transport. An item of weight 0 gets a rank but does not change the ranks of other items.

    Args:
        epsilon: the strength of the entropy, in units of h on [0, 1], >= 0; 0 gives hard results
            (ties in list order, no gradient of the ranks). Default: 0.01; the paper uses values
            from 1e-3 to 1e-2.
        milestones: the number of milestones, or the milestones themselves: descending numbers,
            usually in [0, 1]. Default: one for each real item. If the milestones themselves are not
            given, milestone i of weight b_i is at 1 - (b_1 + ... + b_i - b_i / 2), the middle of an
            interval of length b_i in [0, 1]. With fewer milestones than items the ranks are coarse:
            an item that moves to milestone i has rank m (b_1 + ... + b_i).
        milestone_weights: b, positive, one per milestone; normalized. Default: equal.
        cost: the exponent p >= 1 of h = |y - x|^p, or a function of the differences y - x, such
            as a module with parameters to learn. Default: 2. `epsilon=0` assumes that h is convex.
        squash: "arctan" (1/2 + arctan(z) / pi), "logistic", or None. None leaves the scores
            unchanged; they should then be in about [0, 1], and their shift and scale matter.
        iterations: the number of Sinkhorn iterations from u = 1, as in the paper. Default: Newton's
            method on the dual, until the error is below `threshold`.
        threshold: the error sum |row sums - b| below which Newton's method stops. One more step
            follows, which squares the error. Not used with `iterations`.
        gradient: "implicit" (default) gives the first and second derivatives of the solution at the
            cost of two products, with or without `iterations`; third derivatives are wrong.
            "unrolled" gives derivatives of any order, through the given number of `iterations`,
            which stay in memory.

    Cost: with R milestones, O(n R) memory and O(R^2 (n + R)) time per Newton step; 10 to 50 steps
    suffice for any epsilon from 100 to 1e-6. There may be at most 2,000 milestones: for a longer
    list, set `milestones`; time and memory are then linear in n. A Sinkhorn iteration takes O(n R)
    time, but the number of iterations needed grows like 1 / epsilon: after 100 iterations at
    epsilon = 0.001, column sums still have errors of about 3 %. Row sums are always exact, because
    the rows are normalized last. The arithmetic is in float64, and the solver waits for the device
    after each Newton step.

    Raises:
        ValueError: an argument is invalid, or there are more than 2,000 milestones; the message
            names the argument and its value.

    Reference: Cuturi, Teboul and Vert, "Differentiable Ranks and Sorting using Optimal
    Transport", NeurIPS 2019, equation 5 and algorithm 2. In the paper rank 1 is the lowest score;
    here it is the highest.

    >>> SinkhornSort(epsilon=1e-3)(torch.tensor([0.3, 0.7, 0.5])).round(decimals=3)
    tensor([3., 1., 2.])
    """

    row_points: Tensor | None
    row_weights: Tensor | None

    def __init__(
        self,
        epsilon: float = 0.01,
        milestones: int | Sequence[float] | None = None,
        milestone_weights: Sequence[float] | None = None,
        cost: float | Callable[[Tensor], Tensor] = 2.0,
        squash: Squash | None = "arctan",
        iterations: int | None = None,
        threshold: float = 1e-9,
        gradient: Literal["implicit", "unrolled"] = "implicit",
    ):
        super().__init__()
        self.epsilon = check_temperature(epsilon, "epsilon")
        self.cost = cost if callable(cost) else check_number("cost", cost, minimum=1.0)
        if squash is not None:
            check_choice("squash", squash, "arctan", "logistic")
        check_choice("gradient", gradient, "implicit", "unrolled")
        if gradient == "unrolled" and iterations is None:
            raise ValueError("iterations must be a number if gradient is 'unrolled', got None")
        self.squash: Squash | None = squash
        self.iterations = check_top_k(iterations, "iterations")
        self.threshold = check_number("threshold", threshold, minimum=0.0, strict=True)
        self.gradient = gradient
        weights = milestone_shares(milestones, milestone_weights)
        row_points = None
        if milestones is not None and not isinstance(milestones, (int, Integral)):
            row_points = numbers("milestones", milestones)
            if not (row_points.diff() < 0).all() or not row_points.isfinite().all():
                raise ValueError(f"milestones must be finite and descending, got {milestones!r}")
        self.milestones = milestones if row_points is None else row_points.tolist()
        self.milestone_weights = (
            None
            if milestone_weights is None
            else numbers("milestone_weights", milestone_weights).tolist()
        )
        self.register_buffer("row_points", row_points, persistent=False)
        self.register_buffer("row_weights", weights, persistent=False)

    weighted = True
    spreads_nan = True

    @property
    def is_hard(self) -> bool:
        """Return whether epsilon is 0."""
        return self.epsilon == 0

    @property
    def exact_cutoff(self) -> bool:
        """Return whether epsilon is 0 and there is one milestone per item."""
        return self.is_hard and self.row_weights is None

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n) and item weights (..., n)."""
        if self.row_weights is None and weights is None:
            return RankOperator.forward(self, scores, mask)  # hard ranks then need no coupling
        return super().forward(scores, mask, weights)

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return the soft ranks (..., n), with one milestone for each item and equal weights."""
        return self.soft_permutation(scores, mask, weights).ranks()

    def hard_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SinkhornPermutation:
        """Return the transport without entropy, which matches masses in descending order."""
        a, b = item_weights(scores, mask, weights), self._row_masses(scores, mask)
        order = descending_order(scores, mask)
        log_p = nan_in_list(sorted_coupling(a, b, order).log(), scores.unsqueeze(-2))
        return SinkhornPermutation(
            log_p, scores, mask, order, item_weights=a, row_weights=b, all_rows=b.shape[-1]
        )

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SinkhornPermutation:
        """Return the soft permutation (..., milestones, n) of scores and weights (..., n)."""
        b = self._row_masses(scores, mask)
        a, t = self._problem(scores, mask, weights, b, self.row_points)
        kernel = self._log_kernel(t, scores.dtype)
        options = {"iterations": self.iterations, "threshold": self.threshold}
        rows = row_potentials(kernel, t.a, t.b, implicit=self.gradient == "implicit", **options)
        log_p = log_matrix(rows, kernel, t.a).to(scores.dtype)
        log_p = torch.where((b == 0).unsqueeze(-1), -torch.inf, log_p)
        order = None if callable(self.cost) else descending_order(scores, mask)
        return SinkhornPermutation(
            log_p, scores, mask, order, item_weights=a, row_weights=b, all_rows=b.shape[-1]
        )

    def _row_masses(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the masses b of the milestones, which sum to m: (..., rows)."""
        if self.row_weights is not None:
            return count(scores, mask) * self.row_weights.to(scores)
        b = masked_fill(torch.ones_like(scores), mask)
        return b if mask is None else b.sort(-1, descending=True).values

    def soft_top_k(self, k: int, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the soft membership (..., n) of the real items, for `top_k`: the sum is min(k, m).

        The membership comes from the transport to two milestones, with the masses of k and of m - k
        items. With squared cost, the membership is sigmoid((x - c) / epsilon) of the squashed
        scores x, with c such that the memberships sum to k. The transport is always solved to
        `threshold`, whatever `iterations` is.
        """
        items = count(scores, mask)
        first = items.clamp(max=k)
        b = torch.cat([first, items - first], -1)
        a, t = self._problem(scores, mask, None, b, None)
        kernel = self._log_kernel(t, scores.dtype)
        rows = row_potentials(kernel, t.a, t.b, threshold=self.threshold)
        inside = (rows.unsqueeze(-1) + kernel).softmax(-2)[..., 0, :].to(scores.dtype)
        return torch.where(a == 0, 0.0, inside)

    def _problem(
        self,
        scores: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        b: Tensor,
        row_points: Tensor | None,
    ) -> tuple[Tensor, Transport]:
        """Return the item weights, and the problem, in which item and row weights sum to 1.

        The problem is in float64, because dividing costs by epsilon magnifies rounding errors.
        """
        if b.shape[-1] > MOST_MILESTONES:
            raise ValueError(
                f"milestones must be at most {MOST_MILESTONES}, got {b.shape[-1]};"
                " by default each item has one"
            )
        a = item_weights(scores, mask, weights)
        gone = count(scores, mask) == 0  # such a list is solved with equal weights, then masked
        a_share, b_share = (torch.where(gone, 1.0, widened(w)) for w in (a, b))
        a_share, b_share = (w / w.sum(-1, keepdim=True) for w in (a_share, b_share))
        if row_points is None:
            row_points = 1 - (b_share.cumsum(-1) - b_share / 2)
        x = squashed(scores, a_share, self.squash)
        return a, Transport(row_points.to(x).expand(b_share.shape), x, a_share, b_share)

    def _log_kernel(self, t: Transport, dtype: torch.dtype) -> Tensor:
        """Return -cost / epsilon, (..., rows, n)."""
        difference = t.row_points.unsqueeze(-1) - t.points.unsqueeze(-2)
        if not callable(self.cost):
            return abs_power(difference, self.cost).mul(-1 / self.epsilon)
        # The cost function gets differences in the dtype of the scores, because a cost that is a
        # module has parameters of this dtype.
        return -widened(self.cost(difference.to(dtype))) / self.epsilon

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        rows = "" if self.row_weights is None else f", milestones={len(self.row_weights)}"
        cost = "" if callable(self.cost) else f", cost={self.cost:g}"
        return f"epsilon={self.epsilon:g}{rows}{cost}, squash={self.squash!r}"

"""NeuralSort (Grover, Wang, Zweig and Ermon 2019)."""

import torch
from torch import Tensor

from ltr._shapes import (
    check_lists,
    check_temperature,
    count,
    hide,
    positions,
    refuse_weights,
    upcast,
)
from ltr.operators._pairwise import TemperatureRank, falling, inverse
from ltr.operators.base import SortOperator
from ltr.operators.hard import descending_order
from ltr.operators.permutation import DensePermutation, HardPermutation


def neuralsort(
    scores: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> DensePermutation | HardPermutation:
    """Soft permutation P, row i = softmax over j of ((n + 1 - 2i) s_j - A_j) / temperature.

    Here A_j = sum over k of |s_j - s_k|. The hard twin is `torch.argsort(scores,
    descending=True)` as a one-hot matrix: row-wise argmax gives it at every temperature.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item (n is then their number m). Default: all are real.
        temperature: tau, in units of the scores; >= 0, and 0 is the hard permutation.

    Returns:
        A `DensePermutation`; a `HardPermutation` at temperature 0. Tied items have equal columns.
        Cost: one sort, O(n^2) time and memory.

    For scores spaced by a the matrix is that of `softsort` with power 2 at a * temperature. So a
    row reaches over sqrt(temperature / a) neighbours: to blur the same share of a longer list of
    the same spread, the temperature must grow with n.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Grover, Wang, Zweig and Ermon, "Stochastic Optimization of Sorting Networks via
    Continuous Relaxations", ICLR 2019, equation 3.

    >>> neuralsort(torch.tensor([1.0, 3.0, 2.0]), temperature=1.0).dense().round(decimals=2)
    tensor([[0.0100, 0.7200, 0.2700],
            [0.2100, 0.2100, 0.5800],
            [0.7200, 0.0100, 0.2700]])
    """
    temperature = check_temperature(temperature)
    check_lists(scores, mask=mask)
    scores = upcast(hide(scores, mask))
    order = descending_order(scores.detach(), mask)
    if temperature == 0:
        return HardPermutation(order, scores, mask)
    t = falling(scores, order, mask)
    slope = count(t, mask) + 1 - 2 * positions(t)  # m + 1 - 2i
    formula = slope.unsqueeze(-1) * t.unsqueeze(-2) - _distance_sums(t, mask).unsqueeze(-2)
    # The formula's terms are n times larger than the differences that count: it keeps the
    # derivatives, and the values come from the gaps, where nothing cancels.
    logits = _logits_from_gaps(t.detach()) + (formula - formula.detach())
    logits = logits.gather(-1, inverse(order).unsqueeze(-2).expand(logits.shape))
    rows = None
    if mask is not None:
        # rows past the real items keep finite logits until the softmax is done
        rows = (positions(scores) <= count(scores, mask)).unsqueeze(-1)
        logits = torch.where(mask.unsqueeze(-2) | ~rows, logits, -torch.inf)
    log_p = hide(torch.log_softmax(logits / temperature, dim=-1), rows, -torch.inf)
    return DensePermutation(log_p, scores, mask, order)


def _distance_sums(t: Tensor, mask: Tensor | None) -> Tensor:
    # A_j for falling t, by prefix sums. Items tied with j count on neither side of it, so that
    # the derivative is that of the formula, with sign(0) = 0.
    if not t.shape[-1]:
        return t
    m = count(t, mask).long()
    place = torch.arange(t.shape[-1], device=t.device).expand(t.shape)
    edge = torch.nn.functional.pad(t[..., :-1] != t[..., 1:], (1, 1), value=True)
    first = torch.where(edge[..., :-1], place, 0).cummax(-1).values
    behind = torch.where(edge[..., 1:], place + 1, t.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    behind = torch.minimum(behind, m)
    sums = torch.nn.functional.pad(t.cumsum(-1), (1, 0))
    above = sums.gather(-1, first) - first * t
    below = (m - behind) * t - (sums.gather(-1, m) - sums.gather(-1, behind))
    return above + below


def _logits_from_gaps(t: Tensor) -> Tensor:
    # For falling t the logit of column j in row i, relative to column i, is minus the sum of
    # (2 |l - i| + 1) (t_l - t_(l+1)) over the gaps l between them, counted from i outwards.
    n = t.shape[-1]
    if not n:
        return t.unsqueeze(-1)
    row = torch.arange(n, device=t.device).unsqueeze(-1)
    offset = torch.arange(n - 1, device=t.device) - row
    steps = (2 * offset + 1).abs() * (t[..., :-1] - t[..., 1:]).unsqueeze(-2)
    right = torch.where(offset >= 0, steps, 0.0).cumsum(-1)
    left = torch.where(offset < 0, steps, 0.0).flip(-1).cumsum(-1).flip(-1)
    return -(torch.nn.functional.pad(right, (1, 0)) + torch.nn.functional.pad(left, (0, 1)))


class NeuralSort(TemperatureRank, SortOperator):
    """NeuralSort: rows that are Gaussian in the index, not in the scores.

    Its ranks are the transpose applied to 1..n; they can leave [1, n] a little, since columns
    need not sum to 1. As the temperature falls to 0 the ranks tend to the hard ranks (tied items
    share theirs); as it grows each row tends to 1/n and each rank to (n + 1) / 2.

    Args:
        temperature: tau, in units of the scores; >= 0, and 0 is hard (ties in list order, no
            gradient). Default 1: see `neuralsort` for how it compares with SoftSort's.

    Cost: one sort, O(n^2) time and memory.

    Reference: Grover et al., ICLR 2019; `neuralsort` is the function.

    >>> NeuralSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 1.0):
        super().__init__(temperature)

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> DensePermutation | HardPermutation:
        """The soft permutation of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return neuralsort(scores, mask, temperature=self.temperature)

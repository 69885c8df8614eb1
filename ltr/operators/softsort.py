"""SoftSort (Prillo and Eisenschlos 2020): the sort operator of one line."""

import torch
from torch import Tensor

from ltr._shapes import (
    check_lists,
    check_number,
    count,
    hide,
    positions,
    refuse_weights,
    upcast,
)
from ltr.operators.base import SortOperator
from ltr.operators.hard import descending_order
from ltr.operators.permutation import DensePermutation


def softsort(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 0.1,
    power: float = 1.0,
) -> DensePermutation:
    """Soft permutation P = softmax over j of -|s_[i] - s_j|^power / temperature.

    Here s_[i] is the i-th highest score. The hard twin is `torch.argsort(scores,
    descending=True)` as a one-hot matrix: row-wise argmax gives it at every temperature.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: tau, in units of score^power; >= 0, and 0 is the hard permutation.
        power: exponent of the distance, > 0; 1 (Laplace rows) or 2 (Gaussian rows) as a rule.

    Returns:
        A `DensePermutation`. Tied items share their rows equally. Cost: O(n^2) time and memory.

    Raises:
        ValueError: temperature < 0, power <= 0, or a mask of the wrong shape.

    Reference: Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the argsort
    Operator", ICML 2020, equation 4.

    >>> softsort(torch.tensor([1.0, 3.0, 2.0]), temperature=1.0).dense().round(decimals=2)
    tensor([[0.0900, 0.6700, 0.2400],
            [0.2100, 0.2100, 0.5800],
            [0.6700, 0.0900, 0.2400]])
    """
    check_number("temperature", temperature, minimum=0.0)
    check_number("power", power, minimum=0.0, strict=True)
    check_lists(scores, mask=mask)
    scores = upcast(hide(scores, mask))
    order = descending_order(scores.detach(), mask)
    if temperature == 0:
        chosen = order.unsqueeze(-1) == torch.arange(scores.shape[-1], device=scores.device)
        log_p = torch.where(chosen, 0.0, -torch.inf).to(scores.dtype)
        broken = scores.isnan().any(-1, keepdim=True).unsqueeze(-1)
        log_p = torch.where(broken, torch.nan, log_p)
    else:
        distance = _power(scores.gather(-1, order).unsqueeze(-1) - scores.unsqueeze(-2), power)
        logits = -distance / temperature
        if mask is not None:
            # rows past the real items keep finite logits until the softmax is done
            rows = (positions(scores) <= count(scores, mask)).unsqueeze(-1)
            logits = torch.where(mask.unsqueeze(-2) | ~rows, logits, -torch.inf)
        log_p = torch.log_softmax(logits, dim=-1)
    if mask is not None:
        rows = (positions(scores) <= count(scores, mask)).unsqueeze(-1)
        log_p = torch.where(rows, log_p, -torch.inf)
    return DensePermutation(log_p, scores, mask, order)


def _power(x: Tensor, power: float) -> Tensor:
    if power == 1:
        return x.abs()
    if power == 2:
        return x.square()
    zero = x == 0  # the derivative of |x|^p at 0 is taken as 0, also where p < 1 has none
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).abs().pow(power))


class SoftSort(SortOperator):
    """SoftSort: softmax of minus the distances between sorted and unsorted scores.

    Its ranks are the transpose applied to 1..n. Rows sum to 1 but columns need not, so ranks can
    leave [1, n]: 0.92 for one item a few temperatures above a hundred equal ones, and a
    `SoftNDCG` on them may pass 1. As the temperature falls to 0 the ranks tend to the hard ranks
    (tied items share theirs); as it grows each row tends to 1/n and each rank to (n + 1) / 2.

    Args:
        temperature: tau, in units of score^power; >= 0, and 0 is hard (ties in list order, no
            gradient). Default 0.1, for scores of unit scale.
        power: exponent of the distance, > 0. Default 1; 2 is NeuralSort's shape.

    Cost: O(n^2) time and memory.

    Reference: Prillo and Eisenschlos, ICML 2020; `softsort` is the function.

    >>> SoftSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 0.1, power: float = 1.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0)
        self.power = check_number("power", power, minimum=0.0, strict=True)

    @property
    def whole_ranks(self) -> bool:
        """Whether temperature is 0."""
        return self.temperature == 0

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> DensePermutation:
        """The soft permutation of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return softsort(scores, mask, temperature=self.temperature, power=self.power)

    def extra_repr(self) -> str:
        """The hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, power={self.power:g}"

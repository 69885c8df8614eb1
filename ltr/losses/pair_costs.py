"""The costs of a pair: logistic, hinge, soft 0-1, exponential and squared."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ltr.shapes import check_number


class PairCost(nn.Module):
    """Base class of costs of a pair of items.

    A cost is a function cost(t, gap): a subclass defines `forward`, elementwise and finite for any
    finite t. Here t is the score of the item with the higher label minus the score of the other
    item, and gap > 0 is the difference of their labels.

    >>> class Absolute(PairCost):
    ...     def forward(self, t, gap):
    ...         return (t - gap).abs()
    >>> Absolute().gradient(torch.tensor([0.5, 3.0]), torch.tensor([1.0, 2.0]))
    tensor([-1.,  1.])
    """

    uses_gap: bool = True
    """Whether the cost depends on `gap`. If False, any values may be passed as `gap`."""

    @property
    def logistic_temperature(self) -> float | None:
        """The tau of a cost log(1 + exp(-t / tau)), which can be summed in sort time; else None."""
        return None

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost of each pair."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the derivative of the cost by t, which is differentiable too.

        By default autograd computes it. A subclass overrides this if a formula is cheaper.
        """
        return torch.func.grad(lambda t: self(t, gap).sum())(t)

    def both(self, t: Tensor, gap: Tensor, gradients: bool) -> tuple[Tensor, Tensor | None]:
        """Return the cost and, if `gradients`, the gradient.

        A subclass overrides this if computing both together is cheaper.
        """
        return self(t, gap), self.gradient(t, gap) if gradients else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, gradient: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return `both` at -t, given the cost and its gradient at t >= 0.

        A subclass overrides this if computing them from those at t is cheaper.
        """
        return self.both(-t, gap, gradient is not None)


class LogisticCost(PairCost):
    """Logistic cost of a pair, as in RankNet.

    The cost is log(1 + exp(-t / temperature)): the negative log-likelihood of the pair's order.
    """

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)

    @property
    def logistic_temperature(self) -> float | None:
        """The temperature, or None in a subclass, which may define another cost."""
        return self.temperature if type(self) is LogisticCost else None

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the softplus of -t / temperature: linear far below 0, never inf."""
        return F.softplus(_divided(t, -self.temperature), threshold=50)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the gradient: from -1 / temperature for pairs far in the wrong order, up to 0."""
        return _divided(torch.sigmoid(_divided(t, -self.temperature)), -self.temperature)

    def both(self, t: Tensor, gap: Tensor, gradients: bool) -> tuple[Tensor, Tensor | None]:
        """Return cost and gradient, which share the division by the temperature."""
        x = _divided(t, -self.temperature)
        cost = F.softplus(x, threshold=50)
        return cost, _divided(torch.sigmoid(x), -self.temperature) if gradients else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, gradient: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return cost and gradient at -t, by log(1 + exp(x)) = log(1 + exp(-x)) + x."""
        if self.logistic_temperature is None:  # a subclass may define another cost
            return super().reversed(t, gap, cost, gradient)
        steeper = None if gradient is None else -1 / self.temperature - gradient
        return cost + _divided(t, self.temperature), steeper


def _divided(x: Tensor, divisor: float) -> Tensor:
    """Return x / divisor, without a division for 1, and by the faster negation for -1."""
    if abs(divisor) == 1:
        return x if divisor == 1 else -x
    return x / divisor


class HingeCost(PairCost):
    """Hinge cost: no cost if the pair is in the right order by a margin.

    It is max(0, margin - t).
    """

    uses_gap = False

    def __init__(self, margin: float = 1.0):
        super().__init__()
        self.margin = check_number("margin", margin, minimum=0.0, strict=True)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost: linear below the margin, 0 above."""
        return (self.margin - t).relu()

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return -1 below the margin, else 0."""
        return -(t < self.margin).to(t.dtype) + 0 * t  # NaN stays NaN


class SoftZeroOneCost(PairCost):
    """Smoothed 0-1 error of a pair.

    The cost is 1 / (1 + exp(t / temperature)): near 0 for a right pair, near 1 for a wrong one.
    """

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost, between 0 and 1."""
        return torch.sigmoid(t / -self.temperature)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the gradient, which vanishes far from 0 on both sides, so for very wrong pairs."""
        x = t / self.temperature
        return torch.sigmoid(x) * torch.sigmoid(-x) / -self.temperature


class ExponentialCost(PairCost):
    """Exponential cost of a pair, as in RankBoost.

    It is exp(-t), continued by its tangent below t = -limit, so it does not overflow.

    The value is at most the dtype's largest number divided by 2^34, so that sums over the pairs of
    130,000 items stay finite. In float32 that is 2e28, which is reached at a gap of 4e19 with the
    default limit. The gradient does not change there.
    """

    uses_gap = False

    def __init__(self, limit: float = 20.0):
        super().__init__()
        self.limit = check_number("limit", limit, minimum=0.0, strict=True)
        if limit > 60:
            raise ValueError(
                f"limit must be <= 60 (sums of larger exponentials overflow in float32, which "
                f"ends at exp(88)), got {limit!r}"
            )

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the exponential, or its tangent if it would overflow."""
        most = torch.finfo(t.dtype).max / 2**34
        cost = self._limited(t) * (1 + (-t - self.limit).relu())
        return cost.clamp(max=most)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return -exp(-t); below -limit, the gradient at -limit."""
        return -self._limited(t)

    def _limited(self, t: Tensor) -> Tensor:
        return torch.exp(-t.clamp(min=-self.limit))


class SquaredCost(PairCost):
    """Squared error of the difference of two scores.

    The cost is (t - gap)^2: the difference of two scores should be that of their labels.
    """

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the squared error of the difference."""
        return (t - gap).square()

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return 2 (t - gap)."""
        return 2 * (t - gap)

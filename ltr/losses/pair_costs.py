"""The costs of a pair: logistic, hinge, soft 0-1, exponential and squared."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ltr.shapes import check_number, check_soft_temperature


class PairCost(nn.Module):
    """Base class of costs of a pair of items.

    A cost is a function cost(t, gap). t is the score of the item with the higher label minus the
    score of the other item, and gap > 0 is the difference of their labels. A subclass defines this
    function as `forward`: elementwise, and finite unless the result itself overflows.

    >>> class Absolute(PairCost):
    ...     def forward(self, t, gap):
    ...         return (t - gap).abs()
    >>> Absolute().gradient(torch.tensor([0.5, 3.0]), torch.tensor([1.0, 2.0]))
    tensor([-1.,  1.])
    """

    uses_gap: bool = True
    """Whether the cost depends on `gap`. If False, any values may be passed as `gap`."""

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost of each pair."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the derivative of the cost with respect to t. The result is differentiable too.

        By default, autograd computes the derivative. A subclass overrides this if a formula is
        cheaper.
        """
        if torch.is_grad_enabled():
            return torch.func.grad(lambda t: self(t, gap).sum())(t)
        # Without grad mode no graph is needed, and a checkpoint, in which `torch.func.grad` fails,
        # may surround the loss.
        with torch.enable_grad():
            fixed = t.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self(fixed, gap).sum(), fixed)
        return slope

    def both(self, t: Tensor, gap: Tensor, gradients: bool) -> tuple[Tensor, Tensor | None]:
        """Return the cost, and the gradient if `gradients` is True, else None.

        A subclass overrides this if it is cheaper to compute both together.
        """
        return self(t, gap), self.gradient(t, gap) if gradients else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, gradient: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return `both` at -t, given the cost and its gradient at t >= 0.

        A subclass overrides this if it is cheaper to use the cost and the gradient at t.
        """
        return self.both(-t, gap, gradient is not None)


class LogisticCost(PairCost):
    """Logistic cost of a pair, as in RankNet.

    The cost is log(1 + exp(-t / temperature)), the negative log-likelihood of the pair's order.
    """

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_soft_temperature(temperature)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the softplus of -t / temperature: about -t / temperature for very negative t."""
        return F.softplus(t / -self.temperature, threshold=50)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the gradient: about -1 / temperature for very negative t, about 0 for large t."""
        return torch.sigmoid(t / -self.temperature) / -self.temperature

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, gradient: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the cost and the gradient at -t, by log(1 + exp(x)) = log(1 + exp(-x)) + x."""
        if type(self) is not LogisticCost:  # a subclass may define another cost
            return super().reversed(t, gap, cost, gradient)
        steeper = None if gradient is None else -1 / self.temperature - gradient
        return cost + t / self.temperature, steeper


class HingeCost(PairCost):
    """Hinge cost: 0 if the pair is in the right order by at least the margin.

    The cost is max(0, margin - t).
    """

    uses_gap = False

    def __init__(self, margin: float = 1.0):
        super().__init__()
        self.margin = check_number("margin", margin, minimum=0.0, strict=True)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost, which is linear below the margin and 0 above."""
        return (self.margin - t).relu()

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return -1 below the margin, else 0."""
        slope = -(t < self.margin).to(t.dtype)
        return torch.where(t.isnan(), t, slope)


class SoftZeroOneCost(PairCost):
    """Smoothed 0-1 error of a pair.

    The cost is 1 / (1 + exp(t / temperature)): near 0 if the pair is in the right order, near 1 if
    it is in the wrong order.
    """

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_soft_temperature(temperature)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost, between 0 and 1."""
        return torch.sigmoid(t / -self.temperature)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the gradient, which is near 0 for large |t|, even far in the wrong order."""
        x = t / self.temperature
        return torch.sigmoid(x) * torch.sigmoid(-x) / -self.temperature


class ExponentialCost(PairCost):
    """Exponential cost of a pair, as in RankBoost.

    The cost is exp(-t). Below t = -limit it is the tangent of exp(-t) at -limit, so it does not
    overflow.

    The cost is at most the dtype's largest number divided by 2^34, so that sums over the pairs of
    130,000 items stay finite. In float32 this maximum is 2e28; with the default limit, the cost
    reaches it at t = -4e19. `gradient` ignores the maximum.
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
        """Return the exponential, or its tangent below -limit, up to the maximum."""
        most = torch.finfo(t.dtype).max / 2**34
        cost = self._limited(t) * (1 + (-t - self.limit).relu())
        return cost.clamp(max=most)

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return -exp(-t), or the gradient at -limit if t is below -limit."""
        return -self._limited(t)

    def _limited(self, t: Tensor) -> Tensor:
        return torch.exp(-t.clamp(min=-self.limit))


class SquaredCost(PairCost):
    """Squared error of the difference of a pair's scores.

    The cost is (t - gap)^2: the difference of the scores should equal the difference of the labels.
    """

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the squared error of the difference of the scores."""
        return (t - gap).square()

    def gradient(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return 2 (t - gap)."""
        return 2 * (t - gap)

"""Kernels as short sums of exponentials on each side of zero, closed under what the engine needs.

The engine computes y_i = sum_j k((s_i - s_j) / temperature) v_j. A `Kernel` says what k is to the
left (items above: higher scores) and to the right (items below), as a `Profile` each.
"""

from dataclasses import dataclass
from functools import cached_property

from ltr.kernels.table import Nodes


@dataclass(frozen=True)
class Profile:
    """f(x) = constant + linear x + tie [x = 0] + Re sum_m w_m exp(-lambda_m x) for x >= 0.

    Args:
        weights: w_m, one for each node lambda_m of the kernel.
        slopes: the weights of f', f'', ... on the same nodes, where they were fitted themselves;
            past them, the derivative of the sum is taken.
        constant, linear: the part that does not decay.
        tie: added at x = 0 alone.
    """

    weights: tuple[complex, ...]
    slopes: tuple[tuple[complex, ...], ...] = ()
    constant: float = 0.0
    linear: float = 0.0
    tie: float = 0.0

    def __neg__(self) -> "Profile":
        return self.scaled(-1.0)

    def scaled(self, factor: float) -> "Profile":
        """`factor` times the profile."""
        return Profile(
            tuple(factor * w for w in self.weights),
            tuple(tuple(factor * w for w in row) for row in self.slopes),
            factor * self.constant,
            factor * self.linear,
            factor * self.tie,
        )

    def plus(self, constant: float = 0.0, linear: float = 0.0) -> "Profile":
        """The profile + constant + linear x."""
        constant, linear = self.constant + constant, self.linear + linear
        return Profile(self.weights, self.slopes, constant, linear, self.tie)

    def derivative(self, nodes: Nodes) -> "Profile":
        """f', where f has one: what is at x = 0 alone is dropped."""
        if self.slopes:
            weights, *slopes = self.slopes
        else:
            weights, slopes = (), ()
            weights = tuple(-a * w for a, w in zip(nodes.values(), self.weights, strict=True))
        return Profile(weights, tuple(slopes), constant=self.linear)

    @property
    def at_zero(self) -> float:
        """The limit f(0+): without what is at 0 alone."""
        return self.constant + sum(w.real for w in map(complex, self.weights))

    def without_ties(self) -> "Profile":
        """The same, but 0 at x = 0."""
        return Profile(self.weights, self.slopes, self.constant, self.linear, -self.at_zero)

    def row(self) -> tuple[float, ...]:
        """constant, linear, tie, the real and the imaginary parts of the weights."""
        weights = [complex(w) for w in self.weights]
        reals, imaginaries = (w.real for w in weights), (w.imag for w in weights)
        return (self.constant, self.linear, self.tie, *reals, *imaginaries)


@dataclass(frozen=True, eq=False)  # compared and hashed as an object: that costs nothing
class Kernel:
    """k(x): `above(-x)` for x < 0, `below(x)` for x > 0, `own` for an item with itself.

    Of two tied items the one that the order has first is above the other; with above(0) =
    below(0), as in all kernels here that have a derivative at 0, that makes no difference. A
    derivative is by the score: `kernel_sums` divides it by temperature^order.

    >>> from ltr.kernels import laplace
    >>> k = laplace()
    >>> k.above.at_zero, k.below.at_zero, k.own
    (1.0, 1.0, 1.0)
    >>> slope = k.derivative  # -sign(x) exp(-|x|), 0 for tied items
    >>> slope.above.at_zero, slope.below.at_zero, slope.above.tie
    (1.0, -1.0, -1.0)
    """

    nodes: Nodes
    above: Profile
    below: Profile
    own: float = 0.0
    order: int = 0

    @cached_property
    def derivative(self) -> "Kernel":
        """K'. Where it jumps at 0 it is taken as 0 for tied items, as autograd's |x|."""
        above, below = -self.above.derivative(self.nodes), self.below.derivative(self.nodes)
        strict = self.above.tie != 0 or self.below.tie != 0
        if strict or abs(above.at_zero - below.at_zero) > 1e-9:
            above, below = above.without_ties(), below.without_ties()
        return Kernel(self.nodes, above, below, order=self.order + 1)

    @cached_property
    def transpose(self) -> "Kernel":
        """k(-x): its matrix is the transpose."""
        return Kernel(self.nodes, self.below, self.above, self.own, self.order)

    def ready(self) -> "Kernel":
        """The kernel, with all computed that a first derivative needs: for `torch.compile`."""
        for kernel in (self, self.transpose):
            for each in (kernel, kernel.derivative):
                _ = each.row, each.transpose.row
        return self

    @cached_property
    def row(self) -> tuple[float, ...]:
        """All numbers but the nodes, as the implementations take them."""
        return (self.own, *self.above.row(), *self.below.row())

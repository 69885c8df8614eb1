"""Kernels as short sums of exponentials on each side of zero; their derivatives have the same form.

The engine computes y_i = sum_j k((s_i - s_j) / temperature) v_j. A `Kernel` holds k(x) for x < 0
(items above, with higher scores) and for x > 0 (items below), each as a `Profile`.
"""

from dataclasses import dataclass
from functools import cached_property

from ltr.kernels.table import Nodes


@dataclass(frozen=True)
class Profile:
    """f(x) = constant + linear x + tie [x = 0] + Re sum_m w_m exp(-lambda_m x) for x >= 0.

    Args:
        weights: w_m, one for each node lambda_m of the kernel.
        slopes: for each of f', f'', ..., its weights, fitted on the same nodes. A derivative of
            higher order is the exact derivative of the last fitted sum.
        constant, linear: the coefficients of the part that does not decay.
        tie: added only at x = 0.
    """

    weights: tuple[complex, ...]
    slopes: tuple[tuple[complex, ...], ...] = ()
    constant: float = 0.0
    linear: float = 0.0
    tie: float = 0.0

    def __neg__(self) -> "Profile":
        return self.scaled(-1.0)

    def scaled(self, factor: float) -> "Profile":
        """Return `factor` times the profile."""
        return Profile(
            tuple(factor * w for w in self.weights),
            tuple(tuple(factor * w for w in row) for row in self.slopes),
            factor * self.constant,
            factor * self.linear,
            factor * self.tie,
        )

    def plus(self, constant: float = 0.0, linear: float = 0.0) -> "Profile":
        """Return the profile plus `constant` + `linear` * x."""
        constant, linear = self.constant + constant, self.linear + linear
        return Profile(self.weights, self.slopes, constant, linear, self.tie)

    def derivative(self, nodes: Nodes) -> "Profile":
        """Return f' for x > 0, without `tie`."""
        if self.slopes:
            weights, *slopes = self.slopes
        else:
            weights, slopes = (), ()
            weights = tuple(-a * w for a, w in zip(nodes.values(), self.weights, strict=True))
        return Profile(weights, tuple(slopes), constant=self.linear)

    @property
    def at_zero(self) -> float:
        """The limit f(0+), without `tie`."""
        return self.constant + sum(w.real for w in map(complex, self.weights))

    def without_ties(self) -> "Profile":
        """Return the same profile with f(0) = 0."""
        return Profile(self.weights, self.slopes, self.constant, self.linear, -self.at_zero)

    def row(self) -> tuple[float, ...]:
        """Return `constant`, `linear`, `tie`, the weights' real parts and their imaginary parts."""
        weights = [complex(w) for w in self.weights]
        reals, imaginaries = (w.real for w in weights), (w.imag for w in weights)
        return (self.constant, self.linear, self.tie, *reals, *imaginaries)


@dataclass(frozen=True, eq=False)  # comparison and hash by identity are fast
class Kernel:
    """A kernel k(x): `above(-x)` for x < 0, `below(x)` for x > 0, `own` for an item with itself.

    Of two tied items, the first in the sorted order counts as above. This makes no difference for
    the kernels of `named.py` and their derivatives, since `above` and `below` agree at 0.
    Derivatives are by x; `kernel_sums` divides them by temperature^derivative_order.

    >>> from ltr.kernels.named import laplace
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
    derivative_order: int = 0

    @cached_property
    def derivative(self) -> "Kernel":
        """The kernel k'. If k' jumps at 0, it is 0 for tied items, as in autograd for |x|."""
        above, below = -self.above.derivative(self.nodes), self.below.derivative(self.nodes)
        strict = self.above.tie != 0 or self.below.tie != 0
        if strict or abs(above.at_zero - below.at_zero) > 1e-9:
            above, below = above.without_ties(), below.without_ties()
        return Kernel(self.nodes, above, below, derivative_order=self.derivative_order + 1)

    @cached_property
    def transpose(self) -> "Kernel":
        """The kernel k(-x). Its matrix is the transpose of k's matrix."""
        return Kernel(self.nodes, self.below, self.above, self.own, self.derivative_order)

    def ready(self) -> "Kernel":
        """Cache the rows that a first derivative needs under `torch.compile`; return the kernel."""
        for kernel in (self, self.transpose):
            for each in (kernel, kernel.derivative):
                _ = each.row, each.transpose.row
        return self

    @cached_property
    def row(self) -> tuple[float, ...]:
        """All constants except the nodes, in the order that the implementations expect."""
        return (self.own, *self.above.row(), *self.below.row())

"""Differentiable sorting networks (Petersen et al. 2021): layers of soft swaps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.operators.base import SortOperator, TemperatureRank
from ltr.operators.order import inverse, nan_in_list
from ltr.operators.permutation import (
    SoftPermutation,
    pad_rows,
    rows_of_top,
    take_along,
)
from ltr.shapes import (
    count,
)

Network = Literal["odd_even", "bitonic"]
SwapDistribution = Literal["logistic", "cauchy", "optimal"]


class Layer(NamedTuple):
    """A layer of a network: it compares the first half of each block of wires with the second.

    Attributes:
        front: the number of padding wires before the first wire, so that blocks line up.
        block: the number of wires in a block, even.
        mirrored: whether wire i of a block is compared with wire block - 1 - i, not i + block / 2.
        longer: the layer is needed only by lists with more than this many items.
    """

    front: int
    block: int
    mirrored: bool
    longer: int


def network_layers(network: Network, n: int) -> list[Layer]:
    """Return the layers that sort n items: n for "odd_even", about log2(n)^2 / 2 for "bitonic".

    Each layer moves the higher of two items to the wire in front. So wires after the last item
    never matter: the first m wires of a network are a network for m items, and a list of m items
    ignores all later wires. To have this property, the bitonic network has mirrored halves; it is
    the usual network with some wires renamed. There is always at least one layer, so that autograd
    has a graph.

    Raises:
        ValueError: network is unknown.

    >>> len(network_layers("odd_even", 8)), len(network_layers("bitonic", 8))
    (8, 6)
    """
    if network == "odd_even":
        return [Layer(i % 2, 2, False, i) for i in range(max(n, 1))]
    if network != "bitonic":
        raise ValueError(f"network must be one of {get_args(Network)}, got {network!r}")
    layers, size = [], 2
    while size < 2 * max(n, 2):
        layers.append(Layer(0, size, True, size // 2))
        block = size // 2
        while block > 1:
            layers.append(Layer(0, block, False, size // 2))
            block //= 2
        size *= 2
    return layers


def swap_weight(x: Tensor, distribution: SwapDistribution) -> Tensor:
    """Return the weight of a swap, from 0 to 1, for x = (second - first value) / temperature.

    A weight of 0 leaves two values in place, and a weight of 1 swaps them. The weight is a
    distribution function of x, and it is 1/2 at x = 0. The hard limit is `x > 0`.

    - "logistic": 1 / (1 + exp(-x)), Petersen et al. 2021;
    - "cauchy": atan(x) / pi + 1/2;
    - "optimal": x + 1/2 for |x| <= 1/4; for larger |x|, the distance to 0 or 1 is 1/(16 |x|).

    With "cauchy" and "optimal", no soft value decreases if a score increases (Petersen et al.
    2022).

    Raises:
        ValueError: distribution is unknown.

    >>> swap_weight(torch.tensor([-1.0, 0.0, 1.0]), "cauchy")
    tensor([0.2500, 0.5000, 0.7500])
    """
    if distribution == "logistic":
        return torch.sigmoid(x)
    if distribution == "cauchy":
        return torch.atan(x) / math.pi + 0.5
    if distribution != "optimal":
        names = get_args(SwapDistribution)
        raise ValueError(f"distribution must be one of {names}, got {distribution!r}")
    near = x.abs() <= 0.25
    tail = 1 / (16 * torch.where(near, 1.0, x))  # it has the sign of x
    return torch.where(near, x + 0.5, torch.where(x > 0, 1 - tail, -tail))


def _split(x: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
    # Return the values of the first and of the second wire of each pair, (..., blocks, block / 2)
    # each. Padding wires have the value 0.
    back = -(x.shape[-1] + layer.front) % layer.block
    x = pad(x, (layer.front, back)) if layer.front or back else x
    a, b = x.unflatten(-1, (x.shape[-1] // layer.block, layer.block)).chunk(2, -1)
    return a, b.flip(-1) if layer.mirrored else b


def _swap(x: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    # The matrix of a soft swap, [[1 - weight, weight], [weight, 1 - weight]], is its own transpose.
    a, b = _split(x, layer)
    # A swap of weight 1 gives exactly b and a. With `a + weight * (b - a)`, the smaller of the two
    # values would be rounded to the spacing of the larger one.
    a, b = torch.lerp(a, b, weight), torch.lerp(b, a, weight)
    y = torch.cat([a, b.flip(-1) if layer.mirrored else b], -1).flatten(-2)
    return y[..., layer.front : layer.front + x.shape[-1]]


def _in_play(layer: Layer, scores: Tensor, mask: Tensor | None) -> Tensor:
    # Return, for each pair of wires, whether both wires belong to the list and the layer is needed
    # for a list of this length.
    wires = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    a, b = _split(wires, layer)
    there = (a > 0) & (b > 0)
    if mask is None:
        return there
    m = count(scores, mask).unsqueeze(-1)
    return there & (b <= m) & (m > layer.longer)


@dataclass(eq=False, repr=False)
class NetworkPermutation(
    SoftPermutation, tensors=("swaps", "scores", "mask", "first"), static=("network", "num_rows")
):
    """The doubly stochastic matrix of a sorting network, stored as the swap weights.

    Products pass through the layers, and transposed products through the layers in reverse. The
    matrix is built only for `dense`, `log_dense`, `log_prob` and `hard`. An element that no path of
    swaps reaches is exactly 0, and its logarithm is -inf.

    Args:
        swaps: the weights of the pairs of each layer, (..., blocks, block / 2).
        scores: (..., n).
        mask: (..., n) bool, or None.
        first: (..., n) int64, the items on the wires at the start, real items first; None if the
            wires hold the items in the order of the list.
        network: "odd_even" or "bitonic".
        num_rows: the number of rows, or None for all n.

    >>> P = SortingNetwork(temperature=1.0).permutation(torch.tensor([1.0, 3.0]))
    >>> P.swaps[0]
    tensor([[0.8808]])
    >>> P.sort()
    tensor([2.7616, 1.2384])
    """

    swaps: tuple[Tensor, ...]
    scores: Tensor
    mask: Tensor | None = None
    first: Tensor | None = None
    network: Network = "odd_even"
    num_rows: int | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.scores.shape[-1] if self.num_rows is None else self.num_rows

    def top(self, k: int) -> NetworkPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        return self._replaced(num_rows=rows_of_top(self, k))

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n)."""
        n = self.scores.shape[-1]
        identity = torch.eye(n, dtype=self.scores.dtype, device=self.scores.device)
        return self.matmul(identity.expand(*self.scores.shape[:-1], n, n))

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n), with -inf for its zeros."""
        P = self.dense()
        zero = P == 0  # log has no finite derivative at 0, so its derivative counts as 0 there
        return torch.where(zero, -torch.inf, torch.where(zero, 1.0, P).log())

    def _product(self, V: Tensor) -> Tensor:
        # The layers lead from items to positions.
        if self.first is not None:
            V = take_along(V, self.first.unsqueeze(-1), -2)
        return nan_in_list(self._through(V, 1)[..., : self.rows, :], self.scores.unsqueeze(-2))

    def _transposed_product(self, W: Tensor) -> Tensor:
        # The layers in reverse lead from positions to items.
        V = self._through(pad_rows(W, self), -1)
        if self.first is not None:
            V = take_along(V, inverse(self.first).unsqueeze(-1), -2)
        return nan_in_list(V, self.scores.unsqueeze(-2))

    def _through(self, V: Tensor, step: int) -> Tensor:
        # Send the columns of V (..., n, d) through all layers. The wires are the last axis of x.
        x, layers = V.mT, network_layers(self.network, self.scores.shape[-1])
        for layer, weight in list(zip(layers, self.swaps, strict=True))[::step]:
            x = _swap(x, weight.unsqueeze(-3), layer)
        return x.mT


class SortingNetwork(TemperatureRank, SortOperator):
    """Soft sort by a sorting network with soft swaps, which gives a doubly stochastic matrix.

    A swap of two wires with values a and b gives a + w (b - a) and b - w (b - a), with w =
    `swap_weight((b - a) / temperature)`; the next layer works on the soft values. The hard limit is
    `torch.sort(scores, descending=True)`.

    The rows and columns of the matrix sum to 1, and products do not build it. The ranks of m items
    sum to m (m + 1) / 2 and stay in [1, m]. The result depends on the order of the list: permuting
    the items does not exactly permute the ranks, and tied items may get different ranks. As the
    temperature approaches 0, the ranks of a list without ties tend to the hard ranks. With the
    heavy-tailed "cauchy" and "optimal", the error of the ranks decreases like temperature / gap. As
    the temperature grows, all swap weights tend to 1/2, and the rank of an item tends to a value
    that depends on its index in the list, but not on its score.

    Args:
        temperature: 1 / beta in the papers, in units of the scores, >= 0; 0 gives hard ranks (ties
            in list order, no gradient). Default: 0.1, for scores of unit scale.
        network: "odd_even" (default; n layers, the smoother of the two) or "bitonic"
            (about log2(n)^2 / 2 layers, for long lists). Both take any n.
        distribution: "logistic" (2021 paper, the default), "cauchy" or "optimal" (2022 paper:
            no soft value decreases if a score increases, and gradients of distant items do not
            vanish).

    Cost: "odd_even" O(n^2) time and n (n - 1) / 2 swap weights; "bitonic" O(n log(n)^2) time and
    memory.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Petersen, Borgelt, Kuehne and Deussen, "Differentiable Sorting Networks for
    Scalable Sorting and Ranking Supervision", ICML 2021; "Monotonic Differentiable Sorting
    Networks", ICLR 2022.

    >>> SortingNetwork(temperature=0.01, network="bitonic")(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> P = SortingNetwork(temperature=0.5).permutation(torch.tensor([1.0, 3.0, 2.0]))
    >>> P.dense().round(decimals=2)
    tensor([[0.0300, 0.8800, 0.0900],
            [0.1100, 0.1000, 0.7800],
            [0.8600, 0.0200, 0.1300]])
    """

    def __init__(
        self,
        temperature: float = 0.1,
        network: Network = "odd_even",
        distribution: SwapDistribution = "logistic",
    ):
        super().__init__(temperature)
        network_layers(network, 0)
        swap_weight(torch.zeros(()), distribution)
        self.network: Network = network
        self.distribution: SwapDistribution = distribution

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the soft permutation of scores (..., n), the product of the layers."""
        # Real items come first, so that a list of m items uses the wires of a list of length m.
        first = None if mask is None else torch.argsort(~mask, dim=-1, stable=True)
        values = scores if first is None else take_along(scores, first, -1)
        swaps = []
        for layer in network_layers(self.network, scores.shape[-1]):
            a, b = _split(values, layer)
            weight = swap_weight((b - a) / self.temperature, self.distribution)
            weight = torch.where(_in_play(layer, scores, mask), weight, 0.0)
            values = _swap(values, weight, layer)
            swaps.append(weight)
        return NetworkPermutation(tuple(swaps), scores, mask, first, self.network)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return (
            f"temperature={self.temperature:g}, network={self.network!r}, "
            f"distribution={self.distribution!r}"
        )

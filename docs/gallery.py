"""Draw the gallery of the operators: `python docs/gallery.py [folder]`.

The default folder is docs/operators/img. Each function draws one figure, and is an example of what
the figure shows.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from ltr.operators import (
    IsotonicRank,
    IsotonicSort,
    LapSum,
    NeuralSort,
    RankOperator,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    soft_sort,
    sort_with,
)

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

GRAY = "0.6"


def ranks_and_values() -> Figure:
    """Draw the entries of x against their soft ranks, and sorted values against soft ones."""
    x = torch.randn(20, generator=torch.Generator().manual_seed(3))
    hard = x.sort(descending=True).values
    kinds: dict[str, tuple[str, list[float], Callable[[float], RankOperator], Callable]] = {
        "SinkhornSort": ("epsilon", [1e-3, 1e-2, 1e-1, 1.0], SinkhornSort, SinkhornSort),
        "SoftSort": ("temperature", [0.01, 0.1, 0.5, 2.0], SoftSort, SoftSort),
        "NeuralSort": ("temperature", [0.1, 1.0, 5.0, 25.0], NeuralSort, NeuralSort),
        "IsotonicRank, IsotonicSort": (
            "temperature",
            [0.05, 0.5, 2.0, 8.0],
            IsotonicRank,
            IsotonicSort,
        ),
    }
    figure, axes = plt.subplots(2, len(kinds), figsize=(13, 6), layout="constrained")
    for (name, (what, levels, ranker, sorter)), (top, bottom) in zip(
        kinds.items(), axes.T, strict=True
    ):
        for i, level in enumerate(levels):
            color, label = plt.get_cmap("viridis")(0.3 * i), f"{what} {level:g}"
            order = x.argsort()
            style = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1}
            top.plot(x[order], ranker(level)(x)[order], label=label, **style)
            bottom.plot(hard, soft_sort(x, sorter(level)), **style)
        top.set(title=name, xlabel="entries of x", ylabel="soft rank")
        top.invert_yaxis()
        top.legend(fontsize=7, frameon=False)
        bottom.plot(hard, hard, color=GRAY, linewidth=0.8, zorder=0)
        bottom.set(xlabel="S, sorted values", ylabel="soft S")
    return figure


def sorted_vectors() -> Figure:
    """Draw vectors that are soft-sorted by scores, as in Figure 1 of the SoftSort paper."""
    scores = torch.tensor([2.0, 5.0, 4.0, 1.0, 3.0])
    wave = torch.linspace(0, 2 * math.pi, 60)
    V = torch.stack([torch.sin(s * wave / 2) for s in scores])
    temperatures = [2.0, 0.5, 0.05]
    figure, axes = plt.subplots(
        1, 1 + 2 * len(temperatures), figsize=(13, 2.6), layout="constrained"
    )
    axes[0].imshow(V.numpy(), aspect="auto", cmap="coolwarm")
    axes[0].set_yticks(range(5), [f"{s:g}" for s in scores])
    axes[0].set(title="vectors, by score", xticks=[])
    for i, temperature in enumerate(temperatures):
        operator = SoftSort(temperature)
        matrix, result = axes[1 + 2 * i], axes[2 + 2 * i]
        matrix.imshow(operator.permutation(scores).dense().numpy(), cmap="Greys", vmin=0, vmax=1)
        matrix.set(title=f"P, temperature {temperature:g}", xticks=[], yticks=[])
        result.imshow(sort_with(scores, V, operator).numpy(), aspect="auto", cmap="coolwarm")
        result.set(title="P V", xticks=[], yticks=[])
    return figure


def rows_and_densities() -> Figure:
    """Draw rows for evenly spaced scores, which are Laplace (SoftSort) or Gaussian densities."""
    n, gap, temperature = 41, 0.5, 2.0
    scores = -gap * torch.arange(n, dtype=torch.float64)
    near = torch.linspace(0, n - 1, 801, dtype=torch.float64)
    width, deviation = temperature / gap, (temperature / (2 * gap)) ** 0.5

    def laplace(x: Tensor) -> Tensor:
        return torch.exp(-x.abs() / width) / (2 * width)

    def gauss(x: Tensor) -> Tensor:
        return torch.exp(-0.5 * (x / deviation) ** 2) / (deviation * (2 * math.pi) ** 0.5)

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained", sharex=True)
    for axis, (name, operator, density) in zip(
        axes,
        [
            ("SoftSort, power 1: Laplace", SoftSort(temperature), laplace),
            ("NeuralSort: Gaussian", NeuralSort(temperature), gauss),
            # for scores that are `gap` apart the two matrices are equal
            ("SoftSort, power 2: the same", SoftSort(temperature * gap, power=2), gauss),
        ],
        strict=True,
    ):
        P = operator.permutation(scores).dense()
        for row, color in zip([0, 10, 20, 33], ["C0", "C1", "C2", "C3"], strict=True):
            axis.plot(P[row], "o", color=color, markersize=3, label=f"row {row + 1}")
            # a row near an end of the list is the density, cut off there
            curve = density(near - row) / density(torch.arange(n) - row).sum()
            axis.plot(near, curve, color=color, linewidth=1)
        axis.set(title=name, xlabel="item, in descending order")
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("weight")
    return figure


def matrices() -> Figure:
    """Draw the soft permutation of the same scores by each operator, hot above, cold below."""
    scores = torch.randn(12, generator=torch.Generator().manual_seed(0))
    kinds = {
        "SoftSort": (SoftSort, [1.0, 0.1]),
        "NeuralSort": (NeuralSort, [5.0, 0.5]),
        "SinkhornSort": (SinkhornSort, [0.1, 0.005]),
        "LapSum": (LapSum, [1.0, 0.1]),
        "odd-even network": (SortingNetwork, [1.0, 0.1]),
        "bitonic network": (lambda t: SortingNetwork(t, "bitonic"), [1.0, 0.1]),
    }
    figure, axes = plt.subplots(2, len(kinds), figsize=(13, 4.8), layout="constrained")
    for (name, (make, levels)), column in zip(kinds.items(), axes.T, strict=True):
        for level, axis in zip(levels, column, strict=True):
            P = make(level).permutation(scores).dense().numpy()
            # all entries of a hot matrix are small, so it gets its own color scale
            axis.imshow(P, cmap="viridis", vmin=0, vmax=P.max() if axis is column[0] else 1)
            axis.set(title=f"{name}, {level:g}", xticks=[], yticks=[])
    return figure


FIGURES = {
    "ranks_and_values": ranks_and_values,
    "sorted_vectors": sorted_vectors,
    "rows_and_densities": rows_and_densities,
    "matrices": matrices,
}


def main(folder: Path) -> None:
    """Draw every figure to folder/NAME.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    here = Path(__file__).parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here / "operators" / "img")

"""Draw one plot for each operator's page: `python docs/operator_plots.py [folder]`.

Most plots show the same experiment: one item moves past six others, and its rank falls from 7 to 1.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from ltr.operators import (
    GaussianRank,
    GumbelSinkhorn,
    HardRank,
    IsotonicRank,
    IsotonicSort,
    LaplaceRank,
    LapSum,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SinkhornSort,
    SoftRank,
    SoftSort,
    SoftSortRank,
    SortingNetwork,
    Stochastic,
    StraightThrough,
    gumbel_noise,
    hard_ranks,
    soft_quantile,
    soft_sort,
    soft_topk,
    temperature_for,
)

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HARD = {"color": "0.6", "linewidth": 0.9, "zorder": 0}
OTHERS = torch.tensor([-1.6, -0.9, -0.5, 0.2, 0.5, 1.5])

Make = Callable[[float], RankOperator]


def panels(number: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row of panels."""
    figure, axes = plt.subplots(
        1, number, figsize=(3.6 * number, 3.1), layout="constrained", squeeze=False
    )
    return figure, list(axes[0])


def color_of(i: int) -> tuple[float, ...]:
    """Return a color between dark (cold) and light (hot)."""
    return plt.get_cmap("viridis")(0.36 * i)


def moving(position: int = 3) -> Tensor:
    """Return lists (601, 7) in which the score of one item goes from -2.5 to 2.5."""
    x = torch.linspace(-2.5, 2.5, 601).unsqueeze(-1)
    others = OTHERS.expand(601, -1)
    lists = torch.cat([others[:, :position], x, others[:, position:]], -1)
    return lists.requires_grad_()


def rank_and_slope(axis: Axes, slope: Axes | None, make: Make, levels: Sequence[float]) -> None:
    """Draw the moving item's soft rank, and how fast it rises in the list."""
    lists = moving()
    x = lists.detach()[:, 3]
    axis.plot(x, hard_ranks(lists.detach())[:, 3], **HARD)
    for i, level in enumerate(levels):
        ranks = make(level)(lists)[:, 3]
        axis.plot(x, ranks.detach(), color=color_of(i), linewidth=1.3, label=f"{level:g}")
        if slope is not None:
            gradient = torch.autograd.grad(ranks.sum(), lists)[0][:, 3]
            slope.plot(x, -gradient, color=color_of(i), linewidth=1.3)
    axis.set(xlabel="its score", ylabel="soft rank of one item", yticks=range(1, 8))
    axis.invert_yaxis()
    if slope is not None:
        slope.set(xlabel="its score", ylabel="positions gained per unit of score")
    for panel in (axis, slope):
        if panel is not None:
            panel.plot(OTHERS, [0] * 6, "k|", transform=panel.get_xaxis_transform(), clip_on=False)


def legend(axis: Axes, title: str) -> None:
    """Add a legend in small print."""
    axis.legend(title=title, fontsize=7, title_fontsize=7, frameon=False)


def matrix(axis: Axes, P: Tensor, title: str) -> None:
    """Draw a matrix with entries in [0, 1]."""
    axis.imshow(P.detach().numpy(), cmap="viridis", vmin=0, vmax=1)
    axis.set(title=title, xlabel="item, in descending order", ylabel="position")
    axis.set(xticks=range(P.shape[-1]), yticks=range(P.shape[-2]))
    axis.set_xticklabels([str(i + 1) for i in range(P.shape[-1])])
    axis.set_yticklabels([str(i + 1) for i in range(P.shape[-2])])


def one_list() -> Tensor:
    """Return the other scores and a 0, in descending order, so that the hard matrix is diagonal."""
    return torch.cat([OTHERS, torch.zeros(1)]).sort(descending=True).values


def with_matrix(make: Make, levels: Sequence[float], what: str = "temperature") -> Figure:
    """Draw rank, slope and one matrix."""
    figure, (left, middle, right) = panels(3)
    rank_and_slope(left, middle, make, levels)
    legend(left, what)
    P = make(levels[1]).permutation(one_list()).dense()  # type: ignore[attr-defined]
    matrix(right, P, f"P at {what} {levels[1]:g}")
    return figure


def softsort() -> Figure:
    """Draw the ranks of SoftSort and SoftSortRank, the matrix, and the trap below tied items."""
    figure, (left, middle, right, trap) = panels(4)
    rank_and_slope(left, None, SoftSort, [0.05, 0.3, 1.0])
    left.set(title="SoftSort")
    legend(left, "temperature")
    rank_and_slope(middle, None, SoftSortRank, [0.05, 0.3, 1.0])
    middle.set(title="SoftSortRank")
    matrix(right, SoftSort(0.3).permutation(one_list()).dense(), "P at temperature 0.3")
    draw_trap(trap)
    return figure


def draw_trap(axes: Axes) -> None:
    """Draw the rank of one item by its score, with nine others tied at 0."""
    lead = torch.linspace(-4, 3, 281)
    lists = torch.cat([lead.unsqueeze(-1), torch.zeros(len(lead), 9)], -1)
    for operator in (SoftSort(1.0), NeuralSort(1.0), SoftSortRank(1.0), SigmoidRank(1.0)):
        ranks = operator(lists)[:, 0]
        axes.plot(lead, ranks, label=type(operator).__name__, linewidth=1.3)
        if isinstance(operator, SoftSort):
            below = lead < 0
            worse = below & (ranks > ranks[below].min())
            worse &= lead > lead[below][ranks[below].argmin()]
            axes.axvspan(lead[worse][0], lead[worse][-1], color="C0", alpha=0.15, linewidth=0)
    axes.set(title="one item and nine tied at 0", xlabel="its score", yticks=range(1, 11))
    axes.invert_yaxis()
    axes.legend(fontsize=7, frameon=False)


def pairwise() -> Figure:
    """Draw the three distributions of the noise at equal blur."""
    figure, (left, middle, right) = panels(3)
    x = torch.linspace(-1.5, 1.5, 301)
    pair = torch.stack([torch.zeros_like(x), x], -1)
    lists = moving()
    at = lists.detach()[:, 3]
    right.plot(at, hard_ranks(lists.detach())[:, 3], **HARD)
    kinds = {"SigmoidRank": SigmoidRank, "GaussianRank": GaussianRank, "LaplaceRank": LaplaceRank}
    for i, (name, kind) in enumerate(kinds.items()):
        t = temperature_for(torch.randn(200, generator=_generator()), sharpness=5, operator=kind)
        style = {"color": f"C{i}", "linewidth": 1.3, "label": f"{name}({t:.2f})"}
        chance = kind(t)(pair)[:, 0] - 1
        left.plot(x, chance, **style)
        middle.semilogy(x, torch.minimum(chance, 1 - chance).clamp(min=1e-9), **style)
        right.plot(at, kind(t)(lists)[:, 3].detach(), **style)
    left.set(xlabel="lead of the other item", ylabel="chance that it is above")
    middle.set(xlabel="lead of the other item", ylabel="chance of the less likely order")
    middle.set(ylim=(1e-6, 1))
    right.set(xlabel="its score", ylabel="soft rank of one item", yticks=range(1, 8))
    right.invert_yaxis()
    left.legend(fontsize=7, frameon=False)
    return figure


def softrank() -> Figure:
    """Draw the two distributions of a rank beside sampled ranks, and expected discounts."""
    figure, (left, right) = panels(2)
    scores, sigma = one_list(), 0.7
    noise = torch.randn(200_000, 7, generator=_generator())
    drawn = hard_ranks(scores + sigma * noise)[:, 3]
    ranks = torch.arange(1, 8)
    share = torch.stack([(drawn == r).float().mean() for r in ranks])
    left.bar(ranks.tolist(), share.tolist(), color="0.85", label="drawn")
    for distribution, style in (("paper", "o-"), ("exact", "s-")):
        found = SoftRank(sigma, distribution).rank_distribution(scores)[3]
        left.plot(ranks, found, style, markersize=4, linewidth=1, label=f'"{distribution}"')
    left.set(xlabel="rank", ylabel="chance, middle item", xticks=ranks)
    left.legend(fontsize=7, frameon=False)

    def gain(ranks: Tensor) -> Tensor:
        return 1 / torch.log2(1 + ranks)

    lists = moving().detach()
    x = lists[:, 3]
    right.plot(x, gain(hard_ranks(lists))[:, 3], **HARD)
    for name, operator in {
        "GaussianRank: D(mean rank)": GaussianRank(sigma),
        'SoftRank, "paper": mean D(rank)': SoftRank(sigma),
        'SoftRank, "exact": mean D(rank)': SoftRank(sigma, distribution="exact"),
    }.items():
        right.plot(x, operator.discounts(gain, lists)[:, 3], linewidth=1.3, label=name)
    right.set(xlabel="its score", ylabel="its discount 1 / log2(1 + r)")
    right.legend(fontsize=7, frameon=False)
    return figure


def lapsum() -> Figure:
    """Draw rank, slope, top-k membership and the matrix."""
    figure, (left, middle, members, right) = panels(4)
    rank_and_slope(left, middle, LapSum, [0.05, 0.3, 1.0])
    legend(left, "temperature")
    scores = torch.linspace(-2, 2, 25)
    for i, k in enumerate([3, 7.5, 15]):
        found = LapSum(0.3).top_k(k, scores)
        members.plot(scores, found, "o-", markersize=3, linewidth=1, color=f"C{i}", label=f"{k:g}")
        members.axvline(2 - 4 * (k - 0.5) / 24, color=f"C{i}", linewidth=0.6, linestyle=":")
    members.set(xlabel="score", ylabel="membership of 25 items, 0.3")
    legend(members, "k (the sum)")
    matrix(right, LapSum(0.3).permutation(one_list()).dense(), "P at temperature 0.3")
    return figure


def isotonic() -> Figure:
    """Draw the ranks with both regularizations, and the sorted values."""
    figure, (left, middle, right) = panels(3)
    rank_and_slope(left, None, IsotonicRank, [0.1, 0.5, 2.0])
    left.set(title="IsotonicRank, l2")
    legend(left, "temperature")
    rank_and_slope(middle, None, lambda t: IsotonicRank(t, "kl"), [0.1, 0.5, 2.0])
    middle.set(title="IsotonicRank, kl")
    legend(middle, "temperature")
    x = torch.randn(20, generator=_generator())
    hard = x.sort(descending=True).values
    right.plot(hard, hard, **HARD)
    for i, t in enumerate([1.0, 5.0, 20.0]):
        style = {"color": color_of(i), "markersize": 3, "linewidth": 1.2, "label": f"{t:g}"}
        right.plot(hard, soft_sort(x, IsotonicSort(t)), "o-", **style)
    right.set(title="IsotonicSort, l2", xlabel="sorted values", ylabel="soft sorted values")
    legend(right, "temperature")
    return figure


def network() -> Figure:
    """Draw rank and slope in both networks, and the effect of heavy tails."""
    figure, (left, middle, slope, right) = panels(4)
    rank_and_slope(left, None, SortingNetwork, [0.05, 0.2, 0.5])
    left.set(title="odd-even")
    legend(left, "temperature")
    rank_and_slope(middle, None, lambda t: SortingNetwork(t, "bitonic"), [0.05, 0.2, 0.5])
    middle.set(title="bitonic")
    x = torch.linspace(-1.2, 1.2, 601)
    for i, distribution in enumerate(("logistic", "cauchy", "optimal")):
        pair = torch.stack([torch.zeros_like(x), x], -1).requires_grad_()
        # equal slopes for a tie: 1/4, 1/pi and 1 over the temperature
        t = {"logistic": 0.25, "cauchy": 0.318, "optimal": 1.0}[distribution]
        values = soft_sort(pair, SortingNetwork(t, distribution=distribution))[:, 0]
        slope.plot(x, values.detach(), color=f"C{i}", linewidth=1.3, label=distribution)
    slope.plot(x, x.clamp(min=0), **HARD)
    slope.set(title="a swap", xlabel="x", ylabel="soft max(0, x)")
    slope.legend(fontsize=7, frameon=False)
    shuffled = one_list()[torch.tensor([3, 0, 6, 2, 5, 1, 4])]
    P = SortingNetwork(0.2).permutation(shuffled).dense()
    matrix(right, P[:, shuffled.argsort(descending=True)], "P, odd-even at 0.2")
    return figure


def gumbel_sinkhorn() -> Figure:
    """Draw a score matrix, its soft matchings, one sample and the hard matching."""
    figure, axes = panels(5)
    X = torch.randn(7, 7, generator=_generator())
    axes[0].imshow(X.numpy(), cmap="magma")
    axes[0].set(title="scores X")
    hot, cold = (GumbelSinkhorn(t)(X).dense() for t in (1.0, 0.2))
    noisy = GumbelSinkhorn(0.2, samples=1, generator=_generator())
    order = GumbelSinkhorn(1.0)(X).hard()
    results = {
        "temperature 1": hot,
        "temperature 0.2": cold,
        "0.2, with noise": noisy(X).dense()[0],
        "hard matching": torch.nn.functional.one_hot(order, 7).float(),
    }
    for axis, (title, P) in zip(axes[1:], results.items(), strict=True):
        axis.imshow(P.numpy(), cmap="viridis", vmin=0, vmax=1)
        axis.set(title=title)
    for axis in axes:
        axis.set(xticks=[], yticks=[], xlabel="column")
    axes[0].set(ylabel="row")
    return figure


def stochastic() -> Figure:
    """Draw which item comes first under Plackett-Luce, and the mean rank of the moving item."""
    figure, (left, right) = panels(2)
    scores = torch.tensor([1.5, 1.0, 0.5, 0.0, -0.5])
    order = (scores + gumbel_noise(scores, 50_000, generator=_generator())).argmax(-1)
    items = torch.arange(1, 6)
    share = torch.stack([(order == i - 1).float().mean() for i in items])
    left.bar(items.tolist(), share.tolist(), color="0.8", label="drawn, scale 1")
    left.plot(items, scores.softmax(-1), "o", color="C0", label="softmax(scores)")
    left.set(xlabel="item, by descending score", ylabel="chance to be first", xticks=items)
    left.legend(fontsize=7, frameon=False)
    lists = moving().detach()
    x = lists[:, 3]
    draws = Stochastic(SoftSort(0.1), samples=8, scale=0.3, generator=_generator())(lists)
    right.plot(x, draws[:, :, 3].T, ".", color="C0", markersize=1, alpha=0.4)
    right.plot(x, SoftSort(0.1)(lists)[:, 3], color="C1", linewidth=1.3, label="plain SoftSort")
    many = Stochastic(SoftSort(0.1), samples=2000, scale=0.3, generator=_generator())(lists[::6])
    right.plot(x[::6], many[:, :, 3].mean(0), color="C0", label="mean of 2,000 samples")
    right.set(xlabel="its score", ylabel="soft rank of one item", yticks=range(1, 8))
    right.invert_yaxis()
    right.legend(fontsize=7, frameon=False)
    return figure


def straight_through() -> Figure:
    """Draw hard values and soft slopes."""
    figure, (left, right) = panels(2)
    rank_and_slope(left, right, lambda t: StraightThrough(SigmoidRank(t)), [0.05, 0.2, 0.5])
    legend(left, "temperature inside")
    left.set(ylabel="rank of one item")
    return figure


def hard() -> Figure:
    """Draw the staircase that all other operators relax."""
    figure, (left, right) = panels(2)
    lists = moving().detach()
    left.plot(lists[:, 3], HardRank()(lists)[:, 3], color="C0", linewidth=1.3)
    left.plot(OTHERS, [0] * 6, "k|", transform=left.get_xaxis_transform(), clip_on=False)
    left.set(xlabel="its score", ylabel="hard rank of one item", yticks=range(1, 8))
    left.invert_yaxis()
    scores = torch.tensor([0.1, 0.9, 0.9, 0.5])
    right.bar(range(4), scores.tolist(), color="0.85")
    for i, (score, rank) in enumerate(zip(scores.tolist(), hard_ranks(scores), strict=True)):
        right.text(i, score + 0.02, f"rank {rank:g}", ha="center", fontsize=8)
    right.set(xlabel="position in the list", ylabel="score", xticks=range(4), ylim=(0, 1.1))
    return figure


def functions() -> Figure:
    """Draw the membership in the top 5, and soft quantiles."""
    figure, (left, right) = panels(2)
    x = torch.randn(20, generator=_generator())
    q = torch.linspace(0, 1, 101)
    for i, t in enumerate([0.02, 0.2, 1.0]):
        order = x.argsort()
        style = {"color": color_of(i), "label": f"{t:g}", "linewidth": 1.2, "markersize": 3}
        left.plot(x[order], soft_topk(x, 5, SoftSort(t)).membership[order], "o-", **style)
        right.plot(q, soft_quantile(x, q, SoftSort(t)), **style)
    right.plot(q, torch.quantile(x, q), **HARD)
    cut = x.sort(descending=True).values[4:6].mean()
    left.axvline(cut.item(), **HARD)
    left.set(xlabel="value of x", ylabel="soft_topk(x, 5).membership")
    right.set(xlabel="level q", ylabel="soft_quantile(x, q)")
    legend(left, "SoftSort, temperature")
    return figure


def temperature() -> Figure:
    """Draw what a sharpness does to ranks: the same for every length and scale."""
    figure, (left, right) = panels(2)
    scores = torch.randn(300, generator=_generator())
    order = scores.argsort()
    for i, sharpness in enumerate([100, 10, 2]):
        t = temperature_for(scores, sharpness=sharpness)
        left.plot(
            scores[order], SigmoidRank(t)(scores)[order], color=color_of(i), label=f"{sharpness}"
        )
    left.set(xlabel="score", ylabel="soft rank of 300")
    left.invert_yaxis()
    legend(left, "sharpness")
    for i, (n, scale) in enumerate([(30, 1.0), (300, 1000.0), (3000, 0.001)]):
        positions = (torch.arange(n) + 0.5) / n
        lists = scale * torch.special.ndtri(positions).unsqueeze(0)  # normal scores
        t = temperature_for(lists, sharpness=5)
        style = {
            "color": f"C{i}",
            "marker": "os^"[i],
            "markersize": 3,
            "markevery": max(1, n // 30),
        }
        share = SigmoidRank(t)(lists)[0] / n
        right.plot(lists[0] / scale, share, linewidth=1, label=f"n = {n}, {scale:g} x", **style)
    right.set(xlabel="score / scale", ylabel="soft rank / n, sharpness 5")
    right.invert_yaxis()
    right.legend(fontsize=7, frameon=False)
    return figure


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


# the page's name -> its plot
PLOTS: dict[str, Callable[[], Figure]] = {
    "softsort": softsort,
    "neuralsort": lambda: with_matrix(NeuralSort, [0.2, 1.0, 5.0]),
    "pairwise": pairwise,
    "softrank": softrank,
    "lapsum": lapsum,
    "sinkhorn": lambda: with_matrix(SinkhornSort, [3e-4, 3e-3, 3e-2], "epsilon"),
    "gumbel-sinkhorn": gumbel_sinkhorn,
    "isotonic": isotonic,
    "sorting-network": network,
    "stochastic": stochastic,
    "straight-through": straight_through,
    "hard": hard,
    "functions": functions,
    "temperature": temperature,
}


def main(folder: Path) -> None:
    """Draw every plot to folder/NAME.png."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        figure = draw()
        figure.savefig(folder / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    here = Path(__file__).parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here / "operators" / "img")

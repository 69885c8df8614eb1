"""Draw the plot of docs/losses/training.md: `python docs/soft_ndcg.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from ltr.losses import SoftNDCG
from ltr.operators import SigmoidRank

PLOT = Path(__file__).parent / "losses" / "img" / "training.png"

ITEMS, LISTS = 400, 50


def lists(deviation: float) -> tuple[Tensor, Tensor]:
    """Scores (LISTS, ITEMS) that say a little about the labels: a tenth of the items have one."""
    draws = torch.Generator().manual_seed(0)
    labels = (torch.rand(LISTS, ITEMS, generator=draws) < 0.1).double()
    noise = torch.randn(LISTS, ITEMS, generator=draws, dtype=torch.float64)
    return deviation * (noise + labels), labels


def gradient(loss: SoftNDCG, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient (LISTS, ITEMS) of each list's loss."""
    x = scores.clone().requires_grad_()
    loss(x, labels).mul(LISTS).backward()
    assert x.grad is not None
    return x.grad


def size(gradients: Tensor) -> float:
    """Return the median over the lists of the gradient's length."""
    return gradients.norm(dim=-1).median().item()


def share(gradients: Tensor) -> float:
    """Return the median over the lists of the share of documents that the gradient moves.

    It is (sum of |g|)^2 / (n * sum of g^2): 1 if it moves all alike, 1/n if it moves one.
    """
    each = gradients.abs().sum(-1).square() / gradients.square().sum(-1) / gradients.shape[-1]
    return each.median().item()


def main() -> None:
    """Draw both panels."""
    torch.set_num_threads(1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    cuts = [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 250, 300, 350, 400]
    for deviation, name in ((0.05, "new network: 0.05"), (1.0, "later: 1")):
        scores, labels = lists(deviation)
        whole = size(gradient(SoftNDCG(), scores, labels))
        sizes = [size(gradient(SoftNDCG(top_k=k), scores, labels)) / whole for k in cuts]
        left.loglog(cuts, sizes, "o-", markersize=3, label=name)
    left.axhline(1, color="0.6", linewidth=0.9)
    left.set(xlabel="cut at k", ylabel="gradient / gradient without a cut")
    left.legend(title="deviation of the scores", fontsize=7, title_fontsize=7, frameon=False)

    scores, labels = lists(1.0)
    ratios = torch.logspace(-3.5, 1.5, 41).tolist()
    flat = gradient(SoftNDCG(SigmoidRank(1e3)), scores, labels)
    shares, likeness = [], []
    for ratio in ratios:
        found = gradient(SoftNDCG(SigmoidRank(ratio)), scores, labels)
        shares.append(share(found))
        likeness.append(torch.cosine_similarity(found, flat, dim=-1).median().item())
    right.axvspan(1 / 100, 1 / 3, color="C2", alpha=0.15, linewidth=0)
    right.semilogx(ratios, shares, label="documents with a gradient")
    right.semilogx(ratios, likeness, label="cosine to a linear loss")
    right.set(xlabel="temperature / deviation of the scores", ylim=(0, 1.05))
    right.legend(fontsize=7, frameon=False)
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=110)


if __name__ == "__main__":
    main()

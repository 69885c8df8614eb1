"""What the gradients of losses for NDCG do, by epoch, where there is much to learn.

    python benchmarks/soft_ndcg_training.py

One network of 128-64 on piecewise-linear bins, as in `NeuralRanker`, is trained on the table of
`soft_ndcg_trials.py` with 100,000 rows and seed 100, in a plain loop: AdamW at 1e-3, batches of 64
lists. After each epoch, on the same 500 training lists:

- ndcg: NDCG@10 there, and on the validation lists;
- spread: the mean standard deviation of the scores of a list;
- pairs: of the pairs of documents with different labels, the share whose gap is within three times
  the temperature of the ranks, where a sigmoid has at least a fifth of its gradient; for losses
  that have a temperature;
- norm: the mean length of the gradient of a list's loss by its scores;
- moved: how many of the documents the gradient moves, (sum |g|)^2 / (n sum g^2), as a mean;
- behind: the share of sum |g| on relevant documents in the lower half of the list, as a mean;
- turned: the share of the pairs of documents whose order the last step of the epoch changed.
"""

import json
from functools import partial
from typing import Any

import torch
from measure import RESULTS, environment, write
from soft_ndcg_trials import DOCUMENTS, generated
from torch import Tensor

from ltr.datasets import PiecewiseLinearBins
from ltr.losses import XENDCG, ApproxNDCG, RankingLoss, SoftmaxLoss, SoftNDCG
from ltr.metrics.functional import ndcg
from ltr.models import MLPScorer
from ltr.operators import SigmoidRank, Standardized, hard_ranks

EPOCHS = 12
STANDARD = Standardized(SigmoidRank(0.3))
HARMONIC = partial(SoftNDCG, mean="harmonic", reduction="none")
LOSSES: dict[str, tuple[RankingLoss, float | None]] = {
    "softmax": (SoftmaxLoss(reduction="none"), None),
    "XENDCG, random gamma": (XENDCG("random", reduction="none"), None),
    "arithmetic, temperature 0.1": (ApproxNDCG(0.1, reduction="none"), 0.1),
    "arithmetic, temperature 1": (ApproxNDCG(1.0, reduction="none"), 1.0),
    "arithmetic, standardized": (SoftNDCG(STANDARD, mean="arithmetic", reduction="none"), 0.3),
    "harmonic, temperature 1": (HARMONIC(SigmoidRank(1.0)), 1.0),
    "harmonic, standardized": (HARMONIC(STANDARD), 0.3),
    "harmonic, softmax=1.0": (HARMONIC(STANDARD, softmax=1.0), 0.3),
}
"""Each loss, and the temperature of its ranks, of standardized scores where it has those."""


def look(loss: RankingLoss, temperature: float | None, scores: Tensor, labels: Tensor) -> dict:
    """Return what the loss does at these scores (lists, n) with labels (lists, n)."""
    x = scores.detach().double().requires_grad_()
    loss(x, labels).sum().backward()
    assert x.grad is not None
    size, spread = x.grad.abs(), x.detach().std(-1, correction=0, keepdim=True)
    below = (hard_ranks(x.detach()) > x.shape[-1] / 2) & (labels > 0)
    found = {
        "ndcg": ndcg(x.detach(), labels, top_k=10),
        "spread": spread.mean(),
        "norm": x.grad.norm(dim=-1).mean(),
        "moved": (size.sum(-1).square() / size.square().sum(-1) / x.shape[-1]).nanmean(),
        "behind": ((size * below).sum(-1) / size.sum(-1)).nanmean(),
    }
    if temperature is not None:
        standard = any(isinstance(part, Standardized) for part in loss.modules())
        unit = temperature * (spread.unsqueeze(-1) if standard else 1.0)
        gaps = (x.unsqueeze(-1) - x.unsqueeze(-2)).detach().abs()
        ordered = labels.unsqueeze(-1) != labels.unsqueeze(-2)
        found["pairs"] = (ordered & (gaps < 3 * unit)).sum() / ordered.sum()
    return {name: round(float(value), 5) for name, value in found.items()}


def turned(before: Tensor, after: Tensor) -> float:
    """Return the share of pairs whose order differs between two scores (lists, n)."""
    gaps, others = (x.unsqueeze(-1) - x.unsqueeze(-2) for x in (before, after))
    pairs = before.numel() * (before.shape[-1] - 1)
    return float((gaps * others < 0).sum() / pairs)


def train(loss: RankingLoss, temperature: float | None) -> list[dict[str, Any]]:
    """Train a network, and return what is seen after each epoch, the start included."""
    fold = generated(100_000, 100)
    bins = PiecewiseLinearBins(8)
    bins.fit(torch.from_numpy(fold.train.X))
    sides = {}
    for name, part in (("train", fold.train), ("val", fold.val)):
        X = torch.from_numpy(part.X).view(-1, DOCUMENTS, part.X.shape[1])
        sides[name] = X, torch.from_numpy(part.y).view(-1, DOCUMENTS)
    torch.manual_seed(0)
    X, y = sides["train"]
    scorer = MLPScorer(bins.out_features, hidden=(128, 64))
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=1e-3)
    rows, before = [], None
    for epoch in range(EPOCHS + 1):
        with torch.no_grad():
            scores, held_out = scorer(bins(X[:500])), scorer(bins(sides["val"][0]))
        row = {"epoch": epoch, **look(loss, temperature, scores, y[:500])}
        row["val"] = round(float(ndcg(held_out, sides["val"][1], top_k=10)), 5)
        if before is not None:
            row["turned"] = round(turned(before, scores), 5)
        rows.append(row)
        print(json.dumps(row), flush=True)
        batches = torch.randperm(len(X)).split(64)
        for position, lists in enumerate(batches, 1):
            if position == len(batches):
                with torch.no_grad():
                    before = scorer(bins(X[:500]))
            optimizer.zero_grad()
            loss(scorer(bins(X[lists])), y[lists]).mean().backward()
            optimizer.step()
    return rows


def main() -> None:
    """Train with all losses and write the result."""
    torch.set_num_threads(1)
    found = {name: train(*pair) for name, pair in LOSSES.items()}
    write(RESULTS / "soft_ndcg_training.json", {**environment(), "losses": found})


if __name__ == "__main__":
    main()

"""LightGBM with our loss: compare softmax loss with lambdarank in a paired test on new lists.

python examples/trees_with_our_loss.py --output runs/trees
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from lightgbm import LGBMRanker

from ltr.boosting import objective
from ltr.losses import SoftmaxLoss
from ltr.metrics import Comparison, compare
from ltr.metrics.functional import ndcg

SIZE = 20


def draw(lists: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of twenty rows of which one is relevant, as one purchase in a search."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists, SIZE, 10))
    liking = X[..., :5].sum(-1) + X[..., 0] * X[..., 1] + rng.gumbel(size=(lists, SIZE))
    y = (liking == liking.max(1, keepdims=True)).astype(int)
    return X.reshape(-1, 10), y.ravel()


def main(argv: list[str] | None = None) -> Comparison:
    """Train both, and print NDCG@10 of new lists with intervals and a paired test."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/trees"))
    parser.add_argument("--lists", type=int, default=1500)
    given = parser.parse_args(argv)
    X, y = draw(given.lists, 0)
    X_test, y_test = draw(1000, 1)
    values = {}
    for name, own in {"lambdarank": "lambdarank", "softmax": objective(SoftmaxLoss())}.items():
        trees = LGBMRanker(objective=own, n_estimators=150, num_leaves=7, n_jobs=1, verbose=-1)
        trees.fit(X, y, group=[SIZE] * given.lists)
        scores = torch.from_numpy(trees.predict(X_test)).reshape(-1, SIZE)
        labels = torch.from_numpy(y_test).reshape(-1, SIZE)
        values[name] = ndcg(scores, labels, top_k=10, reduction="none")
    result = compare(values)
    print(result)
    given.output.mkdir(parents=True, exist_ok=True)
    result.plot(plt.figure(figsize=(6, 2)).subplots())
    plt.savefig(given.output / "trees.png", dpi=90, bbox_inches="tight")
    return result


if __name__ == "__main__":
    main()

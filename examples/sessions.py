"""A recommender for sessions: learn user and item embeddings with a listwise loss in a plain loop.

python examples/sessions.py --output runs/sessions
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from ltr.losses import SoftNDCG
from ltr.metrics.functional import ndcg

USERS, ITEMS, SHOWN = 300, 400, 20


def draw(sessions: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Return user, item, session and click of each shown item; tastes are the same in all draws."""
    tastes = np.random.default_rng(0)
    user, item = tastes.normal(size=(USERS, 4)), tastes.normal(size=(ITEMS, 4))
    rng, shown = np.random.default_rng(seed), sessions * SHOWN
    users = np.repeat(rng.integers(0, USERS, sessions), SHOWN)
    items = rng.integers(0, ITEMS, shown)
    liking = (user[users] * item[items]).sum(1) - 3
    clicks = (rng.random(shown) < 1 / (1 + np.exp(-liking))).astype(np.float32)
    found = users, items, np.repeat(np.arange(sessions), SHOWN), clicks
    return tuple(map(torch.from_numpy, found))


def main(argv: list[str] | None = None) -> list[float]:
    """Train, print and draw the metrics of new sessions; return NDCG@10 by epoch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/sessions"))
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    users, items = (nn.Embedding(size, 16) for size in (USERS, ITEMS))
    optimizer = torch.optim.Adam([users.weight, items.weight], lr=0.03)
    loss, course, train, test = SoftNDCG(), [], draw(3000, 1), draw(500, 2)
    for _ in range(given.epochs + 1):
        with torch.no_grad():
            scores = (users(test[0]) * items(test[1])).sum(-1)
            course.append(float(ndcg(scores, test[3], top_k=10, qid=test[2], empty="skip")))
        for part in zip(*(x.split(64 * SHOWN) for x in train), strict=True):
            optimizer.zero_grad()
            loss((users(part[0]) * items(part[1])).sum(-1), part[3], qid=part[2]).backward()
            optimizer.step()
    print(f"NDCG@10 of new sessions: {course[0]:.3f} before training, {course[-1]:.3f} after")
    given.output.mkdir(parents=True, exist_ok=True)
    plt.plot(course, marker="o", label="NDCG@10 of new sessions")
    plt.legend()
    plt.savefig(given.output / "sessions.png", dpi=90)
    return course


if __name__ == "__main__":
    main()

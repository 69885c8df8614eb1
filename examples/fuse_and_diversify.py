"""Hybrid search: fuse two rankers, then diversify the top.

python examples/fuse_and_diversify.py --output runs/fuse
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from ltr.metrics.functional import alpha_ndcg, ndcg
from ltr.rerank import fuse, fusion_weights, mmr, normalize_scores

QUERIES, SIZE = 200, 30
QID = np.repeat(np.arange(QUERIES), SIZE)


def draw(seed: int) -> tuple[np.ndarray, ...]:
    """Return relevant senses (rows, 4), vectors, and two rankers' scores of ambiguous queries."""
    rng, rows = np.random.default_rng(seed), len(QID)
    sense, relevant = rng.choice(4, rows, p=[0.55, 0.25, 0.12, 0.08]), rng.random(rows) < 0.5
    words = 2 * relevant + (sense == 0) + rng.normal(size=rows)  # prefers the common sense
    meaning = 2 * relevant + (sense < 2) + rng.normal(size=rows)
    words[rng.random(rows) < 0.3] = np.nan  # what it did not retrieve
    senses = np.eye(4, dtype=int)[sense]
    return senses * relevant[:, None], senses + rng.normal(0, 0.2, (rows, 4)), words, meaning


def main(argv: list[str] | None = None) -> dict[str, tuple[float, float]]:
    """Print and draw NDCG@10 and alpha-NDCG@10 of each ranker, of both, and of both diversified."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/fuse"))
    given = parser.parse_args(argv)
    topics, _, *rankers = draw(0)
    weights = fusion_weights(rankers, topics.sum(1), QID)  # on labelled lists, then on new ones
    topics, vectors, *rankers = draw(1)
    words, meaning = (np.nan_to_num(x, nan=-9) for x in rankers)
    both = fuse(rankers, QID, method="combsum", weights=weights)
    scores = {"words": words, "meaning": meaning, "fused": both}
    on_scale = normalize_scores(both, QID)
    scores["diversified"] = -mmr(on_scale, vectors=vectors, qid=QID, trade_off=0.7).astype(float)
    of_topics, found = torch.from_numpy(topics).reshape(QUERIES, SIZE, 4), {}
    for name, of_rows in scores.items():
        x = torch.from_numpy(of_rows).reshape(QUERIES, SIZE)
        relevance = float(ndcg(x, of_topics.sum(-1), top_k=10))
        found[name] = relevance, float(alpha_ndcg(x, of_topics, top_k=10))
        print(f"{name:>12}: NDCG@10 {relevance:.3f}, alpha-NDCG@10 {found[name][1]:.3f}")
        plt.scatter(*found[name], label=name)
    plt.gca().set(xlabel="NDCG@10", ylabel="alpha-NDCG@10")
    plt.legend()
    given.output.mkdir(parents=True, exist_ok=True)
    plt.savefig(given.output / "fuse.png", dpi=90, bbox_inches="tight")
    return found


if __name__ == "__main__":
    main()

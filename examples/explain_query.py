"""Why one document stands above another: print and draw what each column adds to a score.

python examples/explain_query.py --output runs/explain
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltr.estimators import NeuralRanker, contributions, importance


def main(argv: list[str] | None = None) -> pd.DataFrame:
    """Train on flats and houses, and explain the first two offers of one search."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/explain"))
    parser.add_argument("--searches", type=int, default=150)
    given = parser.parse_args(argv)
    rng, rows = np.random.default_rng(0), 10 * given.searches
    qid = np.repeat(np.arange(given.searches), 10)
    X = pd.DataFrame(
        {
            "price": rng.uniform(30, 200, rows).round(),
            "stars": rng.integers(1, 6, rows),
            "kind": rng.choice(["flat", "house"], rows),
        }
    )
    liking = X["stars"] - X["price"] / 60 + 2 * (X["kind"] == "house") + rng.normal(size=rows)
    y, train = liking.round().clip(0, 4), qid < given.searches - 20
    ranker = NeuralRanker(members=2, max_epochs=20, random_state=0, verbose=0)
    ranker.fit(X[train], y[train], qid=qid[train])
    print(importance(ranker, X[~train], y[~train], qid[~train], repeats=5))

    shown = X[qid == given.searches - 1].reset_index(drop=True)
    found = contributions(ranker, shown, background=X[train])
    first, second = np.argsort(-found.scores)[:2]
    why = found.between(int(first), int(second))
    print(f"\nwhy offer {first} stands above offer {second}:")
    print(why.round(2).to_string())
    given.output.mkdir(parents=True, exist_ok=True)
    found.plot(int(first), axes=plt.figure(figsize=(6, 2.5)).subplots())
    plt.savefig(given.output / "explain.png", dpi=90, bbox_inches="tight")
    return why


if __name__ == "__main__":
    main()

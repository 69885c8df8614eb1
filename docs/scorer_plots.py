"""Draw the plot of docs/scorers.md, some seconds: `python docs/scorer_plots.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import torch

from ltr.estimators import NeuralRanker, plot_effects
from ltr.models import AdditiveScorer

PLOT = Path(__file__).parent / "img" / "effects.png"


def main() -> None:
    """Fit an additive model to a table whose rule is known, and draw it."""
    torch.set_num_threads(1)
    rng, rows = np.random.default_rng(0), 3000
    table = pd.DataFrame(
        {
            "distance": rng.exponential(10, rows),
            "rating": np.where(rng.random(rows) < 0.2, np.nan, rng.uniform(1, 5, rows)),
            "price": rng.normal(100, 20, rows),
            "shop": rng.choice(np.array(["a", "b", "c", None]), rows),
        }
    )
    value = table["rating"].fillna(2) - table["distance"] / 10 + 2 * (table["shop"] == "b")
    value -= ((table["price"] - 100) / 20).abs()  # neither cheap nor dear
    grade = np.digitize(value + rng.normal(size=rows), [1, 2, 3])
    ranker = NeuralRanker(
        scorer=AdditiveScorer(), members=3, learning_rate=3e-3, random_state=0, verbose=0
    )
    ranker.fit(table, grade, qid=np.arange(rows) // 10)
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    plot_effects(ranker, table).savefig(PLOT, dpi=110)


if __name__ == "__main__":
    main()

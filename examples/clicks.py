"""A click log to a debiased model: estimate propensities, and train a ranker with and without them.

python examples/clicks.py --output runs/clicks
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltr.clicks import PositionBased, PositionBias, simulate_clicks
from ltr.estimators import NeuralRanker
from ltr.losses import SoftmaxLoss, Unbiased
from ltr.reports import evaluate

COLUMNS, SIZE = ["price", "rating", "age"], 10


def draw(queries: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return documents, and whether people want each of them."""
    rng, query = np.random.default_rng(seed), np.repeat(np.arange(queries), SIZE)
    found = pd.DataFrame(rng.normal(size=(len(query), 3)), columns=COLUMNS).assign(query=query)
    worth = found["rating"] - found["price"] + rng.normal(size=len(query))
    return found, (worth > 1).to_numpy(dtype=int)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print the metrics of each ranker, and draw the propensities; return NDCG@10 by ranker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/clicks"))
    parser.add_argument("--sessions", type=int, default=4000)
    given = parser.parse_args(argv)
    (documents, wanted), (new, new_wanted) = draw(300, seed=0), draw(300, seed=2)
    # two versions of a ranker that puts new documents first; users look at position k 1 / k times
    shown = documents["age"].to_numpy() + np.random.default_rng(1).normal(0, 0.7, (2, 300 * SIZE))
    user = PositionBased([0.05, 0.8], PositionBias())
    log = simulate_clicks(user, wanted, shown, documents["query"], sessions=given.sessions)
    bias = PositionBias.estimate(log["click"], log["position"], log["qid"], log["row"])
    scores, found = {"production": new["age"].to_numpy()}, {}
    for name, loss in {"clicks": SoftmaxLoss(), "debiased": Unbiased(SoftmaxLoss(), bias)}.items():
        ranker = NeuralRanker(loss=loss, members=1, max_epochs=10, random_state=0, verbose=0)
        rows = documents[COLUMNS].iloc[log["row"]]
        ranker.fit(rows, log["click"], qid=log["session"], position=log["position"])
        scores[name] = ranker.predict(new[COLUMNS])
        ranker.save(given.output / name)
    for name, each in scores.items():
        value = evaluate(new_wanted, each, new["query"])["ndcg@10"]
        print(f"{name:>10}: NDCG@10 on what people want {value}")
        found[name] = value.mean
    plt.vlines(range(1, SIZE + 1), *np.array(bias.interval).T, label="from the log, 95 %")
    plt.plot(range(1, SIZE + 1), 1 / np.arange(1, SIZE + 1), "k.", label="true chance of a look")
    plt.legend()
    plt.savefig(given.output / "clicks.png", dpi=90)
    return found


if __name__ == "__main__":
    main()

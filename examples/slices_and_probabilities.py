"""Slices and calibration: find where a ranker beats sorting by price, and check its probabilities.

python examples/slices_and_probabilities.py --output runs/slices
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltr.estimators import Calibrated, NeuralRanker, Reliability, reliability
from ltr.reports import evaluate
from ltr.reports.slices import Slices


def main(argv: list[str] | None = None) -> tuple[Slices, Reliability]:
    """Train a ranker of offers, and compare it with the order of prices, device by device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/slices"))
    parser.add_argument("--searches", type=int, default=900)
    given = parser.parse_args(argv)
    rng, qid = np.random.default_rng(0), np.repeat(np.arange(given.searches), 8)
    device = rng.choice(["phone", "tablet", "desktop"], given.searches, p=[0.6, 0.1, 0.3])[qid]
    rows = len(qid)
    X = pd.DataFrame({"price": rng.uniform(10, 90, rows), "photos": rng.integers(0, 9, rows)})
    # on a phone the photos count, on a desktop the price
    wish = np.where(device == "desktop", 5 - X["price"] / 15, X["photos"] / 1.5 - X["price"] / 60)
    bought = (wish + rng.gumbel(size=rows) > np.quantile(wish, 0.8)).astype(int)
    X["device"] = device
    train, held, new = (qid % 3 == part for part in range(3))
    ranker = NeuralRanker(members=2, max_epochs=10, random_state=0, verbose=0)
    ranker.fit(X[train], bought[train], qid=qid[train])
    calibrated = Calibrated(ranker).fit(X[held], bought[held], qid=qid[held])

    labels, scores, lists = bought[new], ranker.predict(X[new]), qid[new]
    by, metrics = {"device": device[new]}, ["ndcg@5"]
    cheapest = evaluate(labels, -X["price"][new], lists, metrics, by=by, name="cheapest")
    ours = evaluate(labels, scores, lists, metrics, name="ranker")
    slices = cheapest.compare_slices(ours)
    print(slices)
    found = reliability(calibrated.probability(X[new]), labels)
    print(f"\nBrier score {found.brier:.3f}, calibration error {found.ece:.3f}")

    given.output.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    results = [one["metrics"]["ndcg@5"]["models"][1] for one in slices.to_dict()]
    mean, low, high = np.array([[*one["difference"].values()] for one in results], float).T
    left.errorbar(mean, range(len(slices)), xerr=[mean - low, high - mean], fmt="o", capsize=3)
    left.axvline(0, color="gray", linewidth=1)
    left.set_yticks(range(len(slices)), [one.value for one in slices])
    left.set_xlabel("NDCG@5: ranker minus cheapest first")
    found.plot(right)
    figure.savefig(given.output / "slices.png", dpi=90)
    return slices, found


if __name__ == "__main__":
    main()

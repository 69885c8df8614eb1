"""Rank images of handwritten digits by their digit: a first ranker, without a download.

python examples/digits.py --output runs/digits

Each list multiplies its digits by a factor of its own, so only the order inside a list says
anything. A loss on lists learns from that order; a loss on single images has to guess the factor.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltr.datasets import DigitsDataModule
from ltr.estimators import NeuralRanker
from ltr.losses import PointwiseMSE, SoftNDCG
from ltr.models import MLPScorer
from ltr.reports import evaluate

LOSSES = {"SoftNDCG": SoftNDCG(gain="linear"), "pointwise MSE": PointwiseMSE()}
METRICS = ["ndcg@10", "kendall_tau", "exact_match"]


def main(argv: list[str] | None = None) -> pd.DataFrame:
    """Train a network with each loss; print the metrics of the test lists, and draw four lists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lists", type=int, default=2000, help="lists to train on")
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True, exist_ok=True)
    splits = DigitsDataModule(scale=100.0, train_lists=given.lists).load_splits()
    test, qid = splits["test"], np.repeat(splits["test"].qids, splits["test"].lengths)
    scores = {"at random": np.random.default_rng(0).random(len(qid))}
    settings = {"metric": "kendall_tau", "members": 1, "max_epochs": given.epochs}
    for name, loss in LOSSES.items():
        scorer = MLPScorer(hidden=[256, 128], dropout=0.3, norm=True)
        ranker = NeuralRanker(scorer=scorer, loss=loss, random_state=0, **settings)
        scores[name] = ranker.fit(splits["train"], eval_set=[splits["val"]]).predict(test)
    rows = {}
    for name, x in scores.items():
        result = evaluate(test.labels, x, qid, METRICS, gain="linear")
        rows[name] = {metric: result[metric].mean for metric in METRICS}
    table = pd.DataFrame.from_dict(rows, orient="index")
    print(table.round(4).to_string())
    table.to_csv(given.output / "table.csv")
    order = np.argsort(-scores["SoftNDCG"][:48].reshape(4, 12))  # of the first four lists
    images = np.pad(test.features[:48].reshape(4, 12, 8, 8), ((0, 0), (0, 0), (1, 1), (0, 0)))
    ranked = np.take_along_axis(images, order[:, :, None, None], 1)
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    axes.imshow(ranked.swapaxes(1, 2).reshape(40, 96), cmap="gray_r")
    axes.set(title="test lists, ranked by the network of SoftNDCG", xticks=[], yticks=[])
    figure.savefig(given.output / "digits.png", dpi=110)
    return table


if __name__ == "__main__":
    main()

"""Five folds of LETOR's files: networks beside LightGBM's trees, with intervals and paired tests.

    python examples/letor_folds.py data/MQ2008

Each fold is trained on, stopped early on its validation lists, and tested once. A query is in the
test lists of one fold alone, so the test lists of all folds together are the whole data set.
LightGBM takes part if it is installed: `pip install lightgbm`.
"""

import argparse
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch

from ltr.datasets import ListDataset, NoTransform, TableDataModule
from ltr.estimators import NeuralRanker
from ltr.metrics import compare, mean_interval
from ltr.metrics.functional import average_precision, ndcg

# a list without a relevant document counts 0, as in most papers; `empty="skip"` leaves it out
METRICS: dict[str, Callable[..., torch.Tensor]] = {
    "NDCG@1": partial(ndcg, top_k=1),
    "NDCG@5": partial(ndcg, top_k=5),
    "NDCG@10": partial(ndcg, top_k=10),
    "MAP": average_precision,
}


def fit_networks(train: ListDataset, val: ListDataset, seed: int, epochs: int) -> Any:
    """Return five networks, averaged; each stops early by NDCG@10."""
    ranker = NeuralRanker(max_epochs=epochs, random_state=seed, verbose=0)
    validation = {"eval_set": [(val.features, val.labels)], "eval_group": [val.lengths]}
    return ranker.fit(train.features, train.labels, group=train.lengths, **validation)


def fit_trees(train: ListDataset, val: ListDataset, seed: int, epochs: int) -> Any:
    """Return LightGBM's trees, stopped early by NDCG@10."""
    from lightgbm import LGBMRanker, early_stopping

    trees = 10 * epochs
    ranker = LGBMRanker(n_estimators=trees, random_state=seed, n_jobs=1, verbose=-1)
    validation = {"eval_set": [(val.features, val.labels)], "eval_group": [val.lengths]}
    stop = early_stopping(50, verbose=False)
    return ranker.fit(
        train.features, train.labels, group=train.lengths, eval_at=[10], callbacks=[stop],
        **validation,
    )  # fmt: skip


def main(argv: list[str] | None = None) -> pd.DataFrame:
    """Train and test on each fold, and print the metrics of all test lists."""
    parser = argparse.ArgumentParser(description="Five folds of LETOR, beside LightGBM.")
    parser.add_argument("root", help="folder with Fold1, Fold2, ...")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=100, help="the most epochs; ten trees each")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    fits = {"NeuralRanker": fit_networks}
    if find_spec("lightgbm") is not None:
        fits = {"LightGBM": fit_trees, **fits}
    values: dict[str, dict[str, list[np.ndarray]]] = {
        m: {name: [] for name in fits} for m in METRICS
    }
    for fold in given.folds:
        data = TableDataModule(given.root, fold=fold, transform=NoTransform())
        data.setup("fit")
        train, val, test = (data.dataset(split) for split in ("train", "val", "test"))
        for name, fit in fits.items():
            ranker = fit(train, val, given.seed, given.epochs)
            scores, labels = torch.tensor(ranker.predict(test.features)), torch.tensor(test.labels)
            lists = {"lengths": torch.tensor(test.lengths), "reduction": "none"}
            for metric, function in METRICS.items():
                found = function(scores, labels, **lists)
                values[metric][name].append(found.numpy())
        print(f"fold {fold}: {len(train)} lists to train on, {len(test)} to test on")
    joined = {m: {name: np.concatenate(v) for name, v in of.items()} for m, of in values.items()}
    table = pd.DataFrame(
        {m: {name: str(mean_interval(v)) for name, v in of.items()} for m, of in joined.items()}
    )
    print(f"\nmeans over {len(next(iter(joined['MAP'].values())))} lists, with 95 % intervals")
    print(table.to_string())
    if len(fits) > 1:
        print(f"\nNDCG@10, paired by list\n{compare(joined['NDCG@10'])}")
    return table


if __name__ == "__main__":
    main()

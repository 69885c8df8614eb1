"""Five folds of LETOR's files: networks beside LightGBM's trees, with intervals and a paired test.

python examples/letor_folds.py data/MQ2008

Each query is in the test lists of one fold alone, so the test lists of all folds are the whole set.
"""

import argparse

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker

from ltr.datasets import NoTransform, TableDataModule
from ltr.estimators import NeuralRanker
from ltr.reports import evaluate

METRICS = ["NDCG@1", "NDCG@5", "NDCG@10", "MAP"]


def main(argv: list[str] | None = None) -> pd.DataFrame:
    """Train and test on each fold, and print the metrics of all test lists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", help="folder with Fold1, Fold2, ...")
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=100, help="the most epochs; ten trees each")
    given = parser.parse_args(argv)
    labels, qid = [], []
    scores: dict[str, list[np.ndarray]] = {"LightGBM": [], "NeuralRanker": []}
    for fold in given.folds:
        data = TableDataModule(given.root, fold=fold, transform=NoTransform())
        data.setup("fit")
        train, val, test = (data.dataset(split) for split in ("train", "val", "test"))
        print(f"fold {fold}: {len(train)} lists to train on, {len(test)} to test on")
        trees = LGBMRanker(n_estimators=10 * given.epochs, early_stopping_round=50, verbose=-1)
        trees.fit(
            train.features,
            train.labels,
            group=train.lengths,
            eval_set=[(val.features, val.labels)],
            eval_group=[val.lengths],
            eval_at=[10],
        )
        scores["LightGBM"].append(np.asarray(trees.predict(test.features)))
        networks = NeuralRanker(max_epochs=given.epochs, random_state=1, verbose=0)
        scores["NeuralRanker"].append(networks.fit(train, eval_set=[val]).predict(test))
        labels.append(test.labels)
        qid += [f"{fold} {query}" for query in np.repeat(test.qids, test.lengths)]
    results = [
        evaluate(np.concatenate(labels), np.concatenate(x), qid, METRICS, name=name)
        for name, x in scores.items()
    ]
    table = pd.DataFrame({x.name: {m: str(x[m]) for m in METRICS} for x in results}).T
    print(f"\nmeans over {len(results[0].qids)} lists, with 95 % intervals\n{table.to_string()}")
    print(f"\nNDCG@10, paired by list\n{results[0].compare(results[1], 'NDCG@10')}")
    return table


if __name__ == "__main__":
    main()

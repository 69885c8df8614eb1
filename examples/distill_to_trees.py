"""A blend's scores taught to plain boosted trees, the form that Elasticsearch and Solr take.

python examples/distill_to_trees.py data/MQ2008 --output trees.txt

A blend of networks and trees learns from labelled lists, here every other one of fold 1. A
`LGBMRegressor` learns the blend's scores of all lists, which need no labels.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker, LGBMRegressor

from ltr.datasets import NoTransform, TableDataModule
from ltr.estimators import Blend, NeuralRanker
from ltr.reports import evaluate


def main(argv: list[str] | None = None) -> pd.Series:
    """Fit the blend, the regressor and a ranker of the labels, and print NDCG@10 of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", type=Path, help="folder with Fold1")
    parser.add_argument("--epochs", type=int, default=100, help="the most epochs of the networks")
    parser.add_argument("--trees", type=int, default=500, help="of the regressor")
    parser.add_argument("--output", type=Path, default=Path("trees.txt"), help="LightGBM's text")
    given = parser.parse_args(argv)
    data = TableDataModule(given.root, fold=1, transform=NoTransform())
    data.setup("fit")
    train, val, test = (data.dataset(split) for split in ("train", "val", "test"))
    qid, val_qid, test_qid = (np.repeat(part.qids, part.lengths) for part in (train, val, test))
    labelled = np.isin(qid, train.qids[::2])
    X, y = train.features[labelled], train.labels[labelled]
    options: dict[str, Any] = {"n_jobs": 1, "verbose": -1, "random_state": 0}
    networks = NeuralRanker(max_epochs=given.epochs, random_state=0, relative=False, verbose=0)
    blend = Blend([networks, LGBMRanker(n_estimators=100, **options)], verbose=0)
    blend.fit(X, y, qid=qid[labelled])

    known, lists = np.concatenate([train.features, val.features]), np.concatenate([qid, val_qid])
    scores = pd.Series(blend.predict(known))
    # only differences within a list matter, so the regressor need not learn a list's mean
    target = scores - scores.groupby(lists).transform("mean")
    student = LGBMRegressor(n_estimators=given.trees, learning_rate=0.05, **options)
    student.fit(known, target).booster_.save_model(given.output)
    alone = LGBMRanker(n_estimators=100, **options).fit(X, y, group=train.lengths[::2])

    models = {"blend": blend, "LGBMRegressor of its scores": student, "LGBMRanker of labels": alone}
    print(f"NDCG@10 on {len(test)} test lists; {len(train.qids[::2])} lists had labels")
    table = pd.Series(dtype=float)
    for name, model in models.items():
        scores = model.predict(test.features)
        table[name] = evaluate(test.labels, scores, test_qid, ["ndcg@10"])["ndcg@10"].mean
    print(table.to_string(float_format="%.4f"))
    return table


if __name__ == "__main__":
    main()

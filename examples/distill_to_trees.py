"""A blend's scores taught to plain boosted trees, the form that Elasticsearch and Solr take.

    python examples/distill_to_trees.py data/MQ2008

A blend of networks and trees is fitted to the labelled lists, here every other list of the training
file. It scores all lists of the training and validation files, labelled or not, and a
`LGBMRegressor` is fitted to these scores. Its text or dump goes where only trees go. The table has
NDCG@10 on the test lists: of the blend, of the regressor, and of a `LGBMRanker` that was fitted to
the labels alone.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightgbm import LGBMRanker, LGBMRegressor

from ltr.datasets import ListDataset, read_letor
from ltr.estimators import Blend, NeuralRanker
from ltr.metrics.functional import ndcg


def read(path: Path, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the features, the labels and the number of each row's list."""
    data: ListDataset = read_letor(path).widen(width)
    return data.features, data.labels, np.repeat(np.arange(len(data)), data.lengths)


def main(argv: list[str] | None = None) -> pd.Series:
    """Fit the three, write the regressor, and print NDCG@10 of each."""
    parser = argparse.ArgumentParser(description="Teach a blend's scores to LightGBM's trees.")
    parser.add_argument("root", type=Path, help="folder with Fold1, Fold2, ...")
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--width", type=int, help="how many features; default: as in the file")
    parser.add_argument("--epochs", type=int, default=100, help="the most epochs of the networks")
    parser.add_argument("--trees", type=int, default=500, help="of the regressor")
    parser.add_argument("--output", type=Path, help="a file for the regressor, LightGBM's text")
    given = parser.parse_args(argv)
    folder = given.root / f"Fold{given.fold}"
    paths = {name: next(folder.glob(f"{name}*.txt*")) for name in ("train", "vali", "test")}
    width = given.width or read_letor(paths["train"]).num_features
    files = {name: read(path, width) for name, path in paths.items()}
    X, y, qid = files["train"]
    labelled = qid % 2 == 0
    options: dict[str, Any] = {"n_jobs": 1, "verbose": -1, "random_state": 0}
    networks = NeuralRanker(max_epochs=given.epochs, random_state=0, verbose=0)
    blend = Blend([networks, LGBMRanker(n_estimators=100, **options)], verbose=0)
    blend.fit(X[labelled], y[labelled], qid=qid[labelled])

    known = np.concatenate([X, files["vali"][0]])
    lists = np.concatenate([qid, files["vali"][2] + qid[-1] + 1])
    scores = pd.Series(blend.predict(known, qid=lists))
    # only differences within a list matter: the regressor need not learn what a list's mean is
    target = scores - scores.groupby(lists).transform("mean")
    student = LGBMRegressor(n_estimators=given.trees, learning_rate=0.05, **options)
    student.fit(known, target)
    if given.output is not None:
        student.booster_.save_model(given.output)

    alone = LGBMRanker(n_estimators=100, **options)
    alone.fit(X[labelled], y[labelled], group=np.unique(qid[labelled], return_counts=True)[1])
    rows, labels, codes = files["test"]
    models = {"blend": blend, "LGBMRegressor of its scores": student, "LGBMRanker of labels": alone}
    lengths, found = torch.from_numpy(np.bincount(codes)), {}
    for name, one in models.items():
        predicted = torch.from_numpy(np.asarray(one.predict(rows), dtype=np.float64))
        target = torch.from_numpy(labels)
        found[name] = ndcg(predicted, target, lengths=lengths, top_k=10, empty=0.0).item()
    print(f"NDCG@10 on {codes[-1] + 1} test lists; {len({*qid[labelled]})} lists had labels")
    table = pd.Series(found, name="NDCG@10")
    print(table.to_string(float_format="%.4f"))
    return table


if __name__ == "__main__":
    main()

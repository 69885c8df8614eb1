"""The data sets of `quality.py`, as folds of training, validation and test lists."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ltr.datasets import ListDataset, query_folds, read_letor
from ltr.datasets.splits import find_splits

FOLDS = 5


@dataclass
class Lists:
    """Lists as estimators take them: X (rows, columns), y (rows,), qid (rows,), sorted."""

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each list has."""
        return np.bincount(self.qid)


@dataclass
class Fold:
    """The lists to train on, to choose by, and to test on."""

    train: Lists
    val: Lists
    test: Lists


def _lists(data: ListDataset) -> Lists:
    qid = np.repeat(np.arange(len(data)), data.lengths)
    return Lists(data.features, data.labels, qid)


def _published(folder: str, folds: int, root: Path) -> list[Fold]:
    """Return the folds that a data set is published in."""
    found = []
    for number in range(1, folds + 1):
        files = find_splits(root / folder, number)
        splits = {name: read_letor(path) for name, path in files.items()}
        width = max(data.num_features for data in splits.values())
        found.append(Fold(**{name: _lists(data.widen(width)) for name, data in splits.items()}))
    return found


def _example(root: Path) -> list[Fold]:
    """Return folds of LightGBM's example, by `query_folds`; the next one is the validation's.

    The three lists without a relevant document, on which every model has the same value, are left
    out.
    """
    files = find_splits(root / "lightgbm-lambdarank", 1)
    parts = [read_letor(files[name]) for name in ("train", "test")]
    width = max(data.num_features for data in parts)
    lists = [part.widen(width) for part in parts]
    features = np.concatenate([part.features for part in lists])
    labels = np.concatenate([part.labels for part in lists])
    sizes = np.concatenate([part.lengths for part in lists])
    offsets = np.r_[0, np.cumsum(sizes)]
    data = ListDataset(features, labels, offsets, [str(i) for i in range(len(sizes))])
    data = data.select(np.flatnonzero(np.maximum.reduceat(labels, offsets[:-1]) > 0))
    fold = query_folds(data.qids, FOLDS).folds
    found = []
    for number in range(FOLDS):
        sides = {"val": fold == (number + 1) % FOLDS, "test": fold == number}
        sides["train"] = ~(sides["val"] | sides["test"])
        found.append(
            Fold(**{name: _lists(data.select(np.flatnonzero(x))) for name, x in sides.items()})
        )
    return found


SETS = {
    "MQ2008": partial(_published, "MQ2008", FOLDS),
    "OHSUMED": partial(_published, "OHSUMED", FOLDS),
    "LightGBM's example": _example,
    "MSLR-WEB10K, part": partial(_published, "MSLR-WEB10K-part", 1),
}


def load(name: str) -> list[Fold]:
    """Return the folds of a data set, from the folder that the variable LTR_DATA names."""
    return SETS[name](Path(os.environ["LTR_DATA"]))

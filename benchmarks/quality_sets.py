"""The data sets of `quality.py`, as folds of training, validation and test lists.

`SETS` are those of its table, and `TABLES` further real tables that were made into lists:

- "diabetes": scikit-learn's regression table, sorted by age and cut into lists of 11 rows. The
  grades 0 to 4 are the fifths of the target.
- "senses": the senses of a word in a sentence, of WordNet, one of them relevant. The columns are
  the sense's position and length, the words that it shares with the sentence, the part of speech,
  and three categories with long tails: the first two words of its gloss that are no stop words,
  and the last one. "senses, 2,000" has every seventh training list.
"""

import gzip
import json
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from ltr.datasets import ListDataset, query_folds, read_letor
from ltr.datasets.splits import find_splits

FOLDS = 5


@dataclass
class Lists:
    """Lists as estimators take them: X (rows, columns), y (rows,), qid (rows,), sorted."""

    X: Any
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


def _folds(data: ListDataset) -> list[Fold]:
    """Return folds by `query_folds`; the next one is the validation's."""
    fold = query_folds(data.qids, FOLDS).folds
    found = []
    for number in range(FOLDS):
        sides = {"val": fold == (number + 1) % FOLDS, "test": fold == number}
        sides["train"] = ~(sides["val"] | sides["test"])
        found.append(
            Fold(**{name: _lists(data.select(np.flatnonzero(x))) for name, x in sides.items()})
        )
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
    return _folds(data)


def _diabetes(root: Path) -> list[Fold]:
    """Return folds of scikit-learn's table; the last rows fill no list."""
    X, target = load_diabetes(return_X_y=True, scaled=False)
    order = X[:, 0].argsort(kind="stable")[: len(X) // 11 * 11]
    labels = np.searchsorted(np.quantile(target, [0.2, 0.4, 0.6, 0.8]), target).astype(np.float32)
    offsets = np.arange(0, len(order) + 1, 11)
    qids = [str(i) for i in range(len(offsets) - 1)]
    return _folds(ListDataset(X[order].astype(np.float32), labels[order], offsets, qids))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _senses(root: Path, every: int = 1) -> list[Fold]:
    """Return the published split of the senses."""
    sides = {}
    for side in ("train", "val", "test"):
        with gzip.open(root / "wordnet-senses" / f"{side}.jsonl.gz", "rt") as file:
            lists = [json.loads(line) for line in file][:: every if side == "train" else 1]
        rows, labels, qid = [], [], []
        for number, one in enumerate(lists):
            sentence = {*_words(one["query"])} - STOP
            for position, gloss in enumerate(one["documents"]):
                words = _words(gloss)
                telling = [x for x in words if x not in STOP] or ["", ""]
                shared = len(sentence & {*words})
                numbers = (position, len(one["documents"]), len(words), len(sentence), shared)
                levels = (one["lemma"][-1], telling[0], telling[1:2], words[-1:])
                rows.append((*numbers, *("".join(x) for x in levels)))
            labels += one["labels"]
            qid += [number] * len(one["labels"])
        X = pd.DataFrame(rows, columns=["at", "of", "words", "given", "shared", *CATEGORIES])
        X = X.astype(dict.fromkeys(X.columns[:5], np.float32))
        X = X.astype(dict.fromkeys(CATEGORIES, "category"))
        sides[side] = Lists(X, np.array(labels, np.float32), np.array(qid))
    known = {name: sides["train"].X[name].cat.categories for name in CATEGORIES}
    for one in sides.values():  # LightGBM wants the levels of the training
        one.X = one.X.assign(**{x: one.X[x].cat.set_categories(kept) for x, kept in known.items()})
    return [Fold(**sides)]


CATEGORIES = ("part", "first", "second", "last")
STOP = {*_words("a an and as at be by for from in into is of on or that the to which with")}
SETS = {
    "MQ2008": partial(_published, "MQ2008", FOLDS),
    "OHSUMED": partial(_published, "OHSUMED", FOLDS),
    "LightGBM's example": _example,
    "MSLR-WEB10K, part": partial(_published, "MSLR-WEB10K-part", 1),
}
TABLES = {
    "diabetes": _diabetes,
    "senses": _senses,
    "senses, 2,000": partial(_senses, every=7),
}


def load(name: str) -> list[Fold]:
    """Return the folds of a data set, from the folder that the variable LTR_DATA names."""
    return {**SETS, **TABLES}[name](Path(os.environ["LTR_DATA"]))

"""Splits of lists: by a hash of the qid, or by the names that publishers give to the files."""

import hashlib
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.arrays import as_names, as_qids, numbered
from ltr.compressed import SUFFIXES
from ltr.files import check_path
from ltr.names import shown_names
from ltr.shapes import check_at_least

_SPLITS = {
    "train": ("train", "training", "trainingset"),
    "val": ("vali", "val", "valid", "validation", "validationset"),
    "test": ("test", "testset"),
}
# A split's name may have an ending or a prefix: rank.train, set1.train.txt.
_NAME = r"(?:{})(?:\.(?:txt|dat|svm|svmlight|libsvm|letor))?"
_PREFIX = r".*[._-]"
# Yahoo's files have names such as set1.train.txt and set2.train.txt.
_SET = re.compile(r"set([0-9]+)[._-].*", re.IGNORECASE)
_FOLD = re.compile(r"fold[ _-]?([0-9]+)", re.IGNORECASE)


def find_splits(path: str | PathLike[str], fold: int = 1) -> dict[str, Path]:
    """Return the files in a folder for the splits "train", "val" and "test".

    Args:
        path: a folder with the files, or with the folders Fold1, Fold2, ..., or with files of
            several sets, such as set1.train.txt and set2.train.txt.
        fold: the number of the fold or set; 1, the default, if there are neither.

    Returns:
        A path for each split that exists. A plain file is preferred to its compressed copy.

    Raises:
        ValueError: the folder or the fold is missing, or two files have names of the same split.

    >>> find_splits("no/such/folder")
    Traceback (most recent call last):
    ...
    ValueError: path must be a folder, got no/such/folder (no such folder)
    """
    root = check_path("path", path)
    if not root.is_dir():
        reason = "a file" if root.exists() else "no such folder"
        raise ValueError(f"path must be a folder, got {root} ({reason})")
    folds = {
        int(match.group(1)): folder
        for folder in root.iterdir()
        if folder.is_dir() and (match := _FOLD.fullmatch(folder.name))
    }
    sets = {int(match.group(1)) for path in root.iterdir() if (match := _SET.fullmatch(path.name))}
    if fold not in (folds or sets or (1,)):
        known = f"one of {sorted(folds or sets)}" if folds or sets else "1 if path has no folds"
        names = shown_names(sorted(path.name for path in root.iterdir()))
        raise ValueError(f"fold must be {known}, got {fold!r} (path {root} holds {names})")
    return _splits_in(folds[fold]) if folds else _splits_in(root, fold if sets else None)


def check_one_split(path: Path) -> None:
    """Raise a `ValueError` if a path is a folder with files of several splits."""
    if path.is_dir() and len(splits := find_splits(path, 1)) > 1:
        names = ", ".join(file.name for file in splits.values())
        raise ValueError(f"a folder of a table must hold one split, got {names} in {path}")


def _splits_in(folder: Path, one_set: int | None = None) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    prefix = _PREFIX if one_set is None else f"set{one_set}[._-]"
    for split, words in _SPLITS.items():
        name = _NAME.format("|".join(words))
        files = _matching(folder, name) or _matching(folder, prefix + name)
        if len(files) > 1:
            raise ValueError(f"path must hold one {split} file, got {', '.join(files)} in {folder}")
        if files:
            paths[split] = next(iter(files.values()))
    return paths


def _matching(folder: Path, pattern: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):  # a.txt comes before a.txt.gz
        plain = path.stem if path.suffix in SUFFIXES else path.name
        hidden = plain.startswith(".")
        if not hidden and re.fullmatch(pattern, plain, re.IGNORECASE) and path.is_file():
            files.setdefault(plain, path)
    return files


def query_shares(qids: Any, seed: int = 0) -> np.ndarray:
    """Return a hash of each qid and the seed, as a fraction in [0, 1), float64 (len(qids),).

    The hash depends only on the text of the qid and the seed, so it is the same in every process
    and every data set.

    >>> query_shares(["a", "b"])
    array([0.74171942, 0.38296227])
    """
    texts = (f"{seed}:{qid}".encode(errors="surrogatepass") for qid in qids)
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    numbers = (int.from_bytes(digest, "big") >> 11 for digest in digests)
    return np.fromiter(numbers, np.float64, len(qids)) / 2**53


def hold_out(qids: Any, validation: float, seed: int = 0) -> np.ndarray | None:
    """Return which queries are held out for validation, bool (queries,).

    A hash of the qid and the seed decides, so a query is either always held out or never. If all
    queries would be held out or none, the result is None.

    Args:
        qids: the qids of the queries.
        validation: the fraction of the queries to hold out.
        seed: the seed of the hash.
    """
    held = query_shares(qids, seed) < validation
    return None if held.all() or not held.any() else held


class QueryFolds:
    """Folds of whole queries, for scikit-learn's `cv=`; `query_folds` makes them.

    Attributes:
        folds: (rows,), the number of the fold in which each row is tested, from 0.
        n_splits: the number of folds.
    """

    def __init__(self, folds: np.ndarray, n_splits: int) -> None:
        self.folds = folds
        self.n_splits = n_splits

    def split(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[Any]:
        """Yield the rows to train on and the rows to test on, (train, test), fold by fold.

        Args:
            X: the data, with as many rows as `folds`. Default: the number of rows is not checked.
            y: not used; scikit-learn passes it.
            groups: not used; scikit-learn passes it.

        Raises:
            ValueError: X does not have as many rows as `folds`.
        """
        rows = X.shape[0] if hasattr(X, "shape") else len(self.folds) if X is None else len(X)
        if rows != len(self.folds):
            raise ValueError(
                f"X must have one row for each of the {len(self.folds)} qids, got {rows}"
            )
        for fold in range(self.n_splits):
            tested = self.folds == fold
            yield np.flatnonzero(~tested), np.flatnonzero(tested)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits


def query_folds(qid: Any, n_splits: int = 5, *, seed: int = 0) -> QueryFolds:
    """Return folds for cross-validation that never divide a query.

    A hash of the qid and the seed decides the fold of a query. So a query stays in its fold if
    other queries are added or removed. The folds differ slightly in size.

    Args:
        qid: (rows,), the query of each row; any type.
        n_splits: the number of folds, >= 2.
        seed: seed of the hash, >= 0; another seed gives other folds.

    Raises:
        ValueError: an argument is out of range, a qid is missing, or a fold has no query.

    >>> folds = query_folds([7, 7, 8, 9, 9, 10], 2)
    >>> [test.tolist() for _, test in folds.split()]
    [[0, 1, 2, 3, 4], [5]]
    """
    n_splits = check_at_least("n_splits", n_splits, 2)
    seed = check_at_least("seed", seed, 0)
    given = as_names("qid", qid)
    if given.ndim != 1:
        raise ValueError(f"qid must have shape (rows,), got {given.shape}")
    lists, names = numbered(as_qids("qid", given, len(given)))
    unique = names.to_pylist()
    fold_of = np.floor(query_shares(unique, seed) * n_splits).astype(np.int64)
    for fold in range(n_splits):
        if not (fold_of == fold).any():
            raise ValueError(
                f"n_splits must leave a query in each fold, got {n_splits} for {len(unique)} "
                f"queries, with none in fold {fold}: take fewer folds or another seed"
            )
    return QueryFolds(fold_of[lists], n_splits)

"""Find the files of a data set's splits and folds, under the names that publishers use."""

import re
from pathlib import Path

from ltr.compressed import SUFFIXES

_SPLITS = {
    "train": ("train", "training", "trainingset"),
    "val": ("vali", "val", "valid", "validation", "validationset"),
    "test": ("test", "testset"),
}
# a split's name, with or without an ending, or one with a prefix: rank.train, set1.train.txt
_NAME = r"(?:{})(?:\.(?:txt|dat|svm|svmlight|libsvm|letor))?"
_PREFIX = r".*[._-]"
_SET = re.compile(r"set([0-9]+)[._-].*", re.IGNORECASE)  # Yahoo's set1.train.txt, set2.train.txt
_FOLD = re.compile(r"fold[ _-]?([0-9]+)", re.IGNORECASE)


def find_splits(root: Path, fold: int) -> dict[str, Path]:
    """Return the files of the splits "train", "val" and "test" that a folder has.

    Args:
        root: a folder with the files, or with the folders Fold1, Fold2, ..., or with files of
            several sets, such as set1.train.txt and set2.train.txt.
        fold: the number of the fold or set; 1 if there are none.

    Returns:
        A path for each split that exists. A plain file is preferred to its compressed copy.

    Raises:
        ValueError: the folder or the fold is missing, or two files could be the same split.

    >>> find_splits(Path("no/such/folder"), 1)
    Traceback (most recent call last):
    ...
    ValueError: root must be a folder, got no/such/folder (no such folder)
    """
    if not root.is_dir():
        reason = "a file" if root.exists() else "no such folder"
        raise ValueError(f"root must be a folder, got {root} ({reason})")
    folds = {
        int(match.group(1)): folder
        for folder in root.iterdir()
        if folder.is_dir() and (match := _FOLD.fullmatch(folder.name))
    }
    sets = {int(match.group(1)) for path in root.iterdir() if (match := _SET.fullmatch(path.name))}
    if fold not in (folds or sets or (1,)):
        known = f"one of {sorted(folds or sets)}" if folds or sets else "1 where root has no folds"
        raise ValueError(
            f"fold must be {known}, got {fold} (root {root} holds {list_folder(root)})"
        )
    return _splits_in(folds[fold]) if folds else _splits_in(root, fold if sets else None)


def check_one_split(path: Path) -> None:
    """Raise a `ValueError` if a path is a folder with files of several splits."""
    if path.is_dir() and len(splits := find_splits(path, 1)) > 1:
        names = ", ".join(one.name for one in splits.values())
        raise ValueError(f"a folder of a table must hold one split, got {names} in {path}")


def list_folder(folder: Path) -> str:
    """Return the first 12 names in a folder, for error messages.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     list_folder(Path(folder))
    'nothing'
    """
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:12] + ["..."] * (len(names) > 12)) or "nothing"


def _splits_in(folder: Path, one_set: int | None = None) -> dict[str, Path]:
    found: dict[str, Path] = {}
    prefix = _PREFIX if one_set is None else f"set{one_set}[._-]"
    for split, words in _SPLITS.items():
        name = _NAME.format("|".join(words))
        files = _matching(folder, name) or _matching(folder, prefix + name)
        if len(files) > 1:
            raise ValueError(f"root must hold one {split} file, got {', '.join(files)} in {folder}")
        if files:
            found[split] = next(iter(files.values()))
    return found


def _matching(folder: Path, pattern: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):  # a.txt comes before a.txt.gz
        plain = path.stem if path.suffix in SUFFIXES else path.name
        if re.fullmatch(pattern, plain, re.IGNORECASE) and path.is_file():
            files.setdefault(plain, path)
    return files

"""The cache of a text file: a store of its lists, written once."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import platformdirs

from ltr.datasets.checksums import DamagedError
from ltr.datasets.conversion import letor_source, write_rows
from ltr.datasets.letor import LetorReader, read_letor_files
from ltr.datasets.lists import ListDataset
from ltr.datasets.store import MANIFEST, StaleError
from ltr.datasets.store_writer import StoreWriter, is_written, locked
from ltr.datasets.stored_lists import StoredLists, open_store
from ltr.files import check_path

_SUFFIX = ".ltr-store"
_log = logging.getLogger(__name__)


def load_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    missing: Literal["keep", "error"] = "keep",
    cache_dir: str | PathLike[str] | None = None,
) -> ListDataset:
    """Read a file like `read_letor`, but only once: later calls open a store of its lists.

    The lists have no `rows`.

    The store is a folder in the user's cache folder, or in `cache_dir`, named after the source and
    its path; nothing is written into the source's folder. Writing it takes little memory, as in
    `ltr convert`. Its lists are read from the disk on demand (`StoredLists`), after its checksums
    are verified. It is written again if the source, its file of group sizes or an argument has
    changed. If it is damaged, it is written again with a warning. The source counts as changed if
    its size, modification time, change time or inode differs. If the cache cannot be written, the
    lists are read into memory, with a warning. Any folder of the cache may be deleted at any time.

    Args:
        path: see `read_letor`.
        num_features: see `read_letor`.
        sort_by_qid: see `read_letor`.
        group_file: see `read_letor`.
        missing: see `read_letor`.
        cache_dir: the folder for the cache, made if it is missing. Default: the user's cache folder
            (`~/.cache/ltr` on Linux).

    Raises:
        ValueError: as `read_letor`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5")
    ...     _ = load_letor(file, cache_dir=f"{folder}/cache")
    ...     [p.suffix for p in Path(folder, "cache").iterdir()]
    ['.ltr-store']
    """
    path = check_path("path", path)
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    return load_letor_files(
        [path],
        cache_dir,
        num_features=num_features,
        sort_by_qid=sort_by_qid,
        group_file=group_file,
        missing=missing,
    )


def load_letor_files(
    files: Sequence[Path], cache_dir: str | PathLike[str] | None = None, **options: Any
) -> ListDataset:
    """Load several files as one, as `load_letor` does; see `read_letor_files`.

    Raises:
        ValueError: as `read_letor_files`.
    """
    # stamp before reading: if the source changes meanwhile, the next call makes the cache again
    reader = LetorReader(files, **options)
    found = _load(reader, letor_source(reader), cache_dir)
    if found is not None:
        return found
    data = read_letor_files(files, **options)
    data.rows = None
    return data


def _load(
    reader: LetorReader, source: dict[str, Any], cache_dir: str | PathLike[str] | None
) -> StoredLists | None:
    """Open the store of files, written first if it is missing; None if it cannot be written."""
    name = _name(reader.files)
    try:
        cache = _cache_folder(reader.files, cache_dir)
    except RuntimeError as error:
        _log.warning("%s is read each time, not from the cache: %s", name, error)
        return None
    try:
        return _open(cache, source)
    except DamagedError as error:
        _log.warning("%s is read again, since its cache is damaged: %s", name, error)
        with suppress(OSError):
            (cache / MANIFEST).unlink(missing_ok=True)
    except ValueError as error:
        _log.debug("reading %s: %s", name, error)
    try:
        with locked(cache):
            if not is_written(cache, source):
                write_rows(StoreWriter(cache, source, None), reader)
        return _open(cache, source)
    except (OSError, DamagedError) as error:
        _log.warning("%s is read each time, since its cache cannot be written: %s", name, error)
    return None


def cache_path(path: str | PathLike[str], cache_dir: str | PathLike[str] | None = None) -> Path:
    """Return the folder of the store that `load_letor` keeps for a file.

    Args:
        path: the source.
        cache_dir: the folder for the cache. Default: the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.

    >>> cache_path("/data/train.txt", "/caches").name
    'train.txt-0b1fc96600.ltr-store'
    """
    return _cache_folder([Path(path)], cache_dir)


def _cache_folder(files: Sequence[Path], cache_dir: str | PathLike[str] | None) -> Path:
    if cache_dir is not None:
        folder = check_path("cache_dir", cache_dir).absolute()
    else:
        folder = platformdirs.user_cache_path("ltr")
        if not folder.is_absolute():  # with an older platformdirs it begins with a literal "~"
            raise RuntimeError("no home folder for the cache: give cache_dir")
    paths = "\n".join(str(file.absolute()) for file in files)
    digest = hashlib.sha256(paths.encode(errors="surrogateescape")).hexdigest()[:10]
    return folder / f"{Path(_name(files)).name}-{digest}{_SUFFIX}"


def _name(files: Sequence[Path]) -> str:
    """Return the path of one file, or the first of several paths and the number of the others."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _open(cache: Path, source: dict[str, Any]) -> StoredLists:
    data = open_store(cache)
    if data.store.source != source:
        raise StaleError(f"path must be a list store, got {cache} (made from another source)")
    data.store.check()
    return data

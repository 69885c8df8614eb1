"""The cache of numba's compiled code; it may be read-only, missing, or shared by processes."""

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock
from numba import config

SETTINGS: Any = config
"""`numba.config`, which creates its attributes at run time."""

WAIT = 300.0
"""Seconds that a process waits while another one compiles, before it compiles by itself."""


def cached(compile: Callable[[bool], Any]) -> Any:
    """Return `compile(True)`, or `compile(False)` if no cache folder can be written.

    Args:
        compile: Returns a function compiled by numba; the argument is whether to cache it. numba
            raises RuntimeError if no folder for the cache can be written.

    Without a cache each process compiles again, and one warning says so.
    """
    given = SETTINGS.CACHE_DIR
    try:
        SETTINGS.CACHE_DIR = _usable(given)
        return compile(True)
    except RuntimeError:
        function = compile(False)  # this raises again if the error is not about the cache
        _warn_once()
        return function
    finally:
        SETTINGS.CACHE_DIR = given


@contextmanager
def locked(folder: str | None) -> Iterator[None]:
    """Hold the lock of a cache within the block; wait for other processes at most `WAIT` seconds.

    The lock is released if the process that holds it dies. After `WAIT` seconds, or if the folder
    cannot be locked, the block runs without the lock.

    Args:
        folder: The cache folder. None means that there is no shared cache, and so no lock.
    """
    lock = None if folder is None else FileLock(Path(folder) / "ltr-compile.lock")
    try:
        if lock is not None:
            lock.acquire(timeout=WAIT)
    except (OSError, NotImplementedError):  # filelock's Timeout is an OSError
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@cache
def _warn_once() -> None:
    warnings.warn(
        "numba cannot write its cache of compiled code, so each process compiles again, "
        "which takes about a minute. Set NUMBA_CACHE_DIR to a writable folder, or compile "
        "ahead of time with `python -m ltr.precompile`.",
        stacklevel=2,
    )


@cache
def _usable(folder: str) -> str:
    # Numba reads a cache only from a folder that it can write. So a temporary folder gets links to
    # the files of a read-only cache. The links are deleted when this process ends.
    if not folder or not os.path.isdir(folder) or _writable(folder):
        return folder
    try:
        links = Path(tempfile.mkdtemp(prefix="ltr-numba-"))
    except OSError:
        return folder
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    for kept in Path(folder).resolve().glob("*/*.nb[ci]"):
        (links / kept.parent.name).mkdir(exist_ok=True)
        (links / kept.parent.name / kept.name).symlink_to(kept)
    return str(links)


def _writable(folder: str) -> bool:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True

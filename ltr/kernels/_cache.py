"""Where numba keeps compiled code: a read-only cache, none at all, and one of several processes."""

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
from numba.core import config

SETTINGS: Any = config
"""`numba.config`, whose attributes are made at run time."""

WAIT = 300.0
"""Seconds that a process waits for another to compile, before it compiles for itself."""


def cached(compile: Callable[[bool], Any]) -> Any:
    """Return `compile(True)`, a function with a cache, or one without where none can be written.

    Args:
        compile: Takes whether to cache and returns numba's function. numba raises RuntimeError
            where no folder for the cache can be written.

    Without a cache each process compiles again: a warning says so, once.
    """
    given = SETTINGS.CACHE_DIR
    try:
        SETTINGS.CACHE_DIR = _usable(given)
        return compile(True)
    except RuntimeError:
        function = compile(False)  # raises what has nothing to do with the cache
        _warn_once()
        return function
    finally:
        SETTINGS.CACHE_DIR = given


@contextmanager
def turn(folder: str | None) -> Iterator[None]:
    """Wait until no other process compiles into this cache, for at most `WAIT` seconds.

    A process that dies gives up its turn. After `WAIT` seconds, or where the folder cannot be
    locked, the block runs all the same.

    Args:
        folder: The cache. None: there is none to share, so that nothing is waited for.
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
        "numba can write no folder to keep compiled code in: each process compiles again, which "
        "takes a minute or so. Set NUMBA_CACHE_DIR to a folder that can be written, or compile "
        "ahead with `python -m ltr.precompile`.",
        stacklevel=2,
    )


@cache
def _usable(folder: str) -> str:
    # numba reads a cache only where it could write one: a read-only one is linked to from a
    # temporary folder, which this process keeps to its end
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

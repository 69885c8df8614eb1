"""The cache of numba's compiled code; it may be missing, or shared by processes."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

WAIT_SECONDS = 300.0
"""Seconds that a process waits while another one compiles, before it compiles by itself."""


def cached(compile: Callable[[bool], Any]) -> Any:
    """Return `compile(True)`, or `compile(False)` if no cache folder can be written.

    Args:
        compile: Returns a function compiled by numba; the argument is whether to cache it. numba
            raises RuntimeError if no folder for the cache can be written.

    Without a cache each process compiles again, and one warning says so.
    """
    try:
        return compile(True)
    except RuntimeError:
        function = compile(False)  # this raises again if the error is not about the cache
        _warn_once()
        return function


@contextmanager
def locked(folder: str | None) -> Iterator[None]:
    """Hold the lock of a cache within the block; other processes delay it at most `WAIT_SECONDS`.

    The lock is released if the process that holds it dies. After `WAIT_SECONDS`, or if the folder
    cannot be locked, the block runs without the lock.

    Args:
        folder: The cache folder. None means that there is no shared cache, and so no lock.
    """
    lock = None if folder is None else FileLock(Path(folder) / "ltr-compile.lock")
    try:
        if lock is not None:
            lock.acquire(timeout=WAIT_SECONDS)
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

"""Compile functions with numba once, cache them on disk, and run them on a pool of threads.

This module is imported only if a compiled function is needed: `import ltr` does not load numba. The
cache is in the first of these folders that can be written: `NUMBA_CACHE_DIR`, the folder of the
installed files, or the user's cache folder. `ltr.kernels.cpu.cache` handles the case that none of
them can be written.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any

import torch
from numba import njit
from numba.core import event

from ltr.kernels.cpu.cache import cached, locked


def compiler(*fastmath: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function and, if possible, caches the compiled code.

    The function must use no Python objects.

    Args:
        fastmath: The names of the optimizations that LLVM may make. None of them may change the
            meaning of NaN or inf.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": set(fastmath),
    }
    return lambda function: cached(lambda cache: njit(cache=cache, **options)(function))


jit = compiler("contract", "nsz")
"""Compile a function that uses no Python objects. NaN and inf keep their meaning.

The cached code of a function is valid until the file that defines the function changes. If
functions in other files call an edited function, touch those files too.
"""


class _Notice(event.Listener):
    """Prints one line on stderr before the first function is compiled; never if all are cached."""

    def on_start(self, event: event.Event) -> None:
        """Print the line, unless this process has printed it."""
        _print_once()

    def on_end(self, event: event.Event) -> None:
        """Do nothing."""


@cache
def _print_once() -> None:
    if sys.stderr is not None:  # a program without a console has none
        sys.stderr.write("ltr: compiling, once, which takes up to a minute\n")
        sys.stderr.flush()


def entry(function: Any) -> Callable[..., Any]:
    """Wrap a compiled function for calls from Python; only one of several processes compiles it.

    The first argument must be an array, or a tuple that begins with an array. The first call for
    each dtype of this array holds a lock that all processes with this cache share: the first
    process compiles, and the others load its cached code. If later arguments have another memory
    layout, numba compiles for them without the lock. If this process compiles, it says so once.
    """
    ready = set()

    @wraps(function)
    def call(*arguments: Any) -> Any:
        first = arguments[0]
        dtype = (first[0] if isinstance(first, tuple) else first).dtype
        if dtype in ready:
            return function(*arguments)
        with (
            locked(function.stats.cache_path),
            event.install_listener("numba:compile", _Notice()),
        ):
            result = function(*arguments)
        ready.add(dtype)
        return result

    return call


LEAST_WORK = 50_000
"""The least work, in item-steps of `run_parallel`, for which one more thread saves time."""


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # Numba's own threads fail if two threads start them, or if they are started after a fork. This
    # pool has neither limit: it is cached by process id, so a forked process makes its own pool.
    return ThreadPoolExecutor(threads, thread_name_prefix="ltr")


def run_parallel(
    call: Callable[..., object], arguments: tuple[Any, ...], length: int, work: int, unit: int = 1
) -> None:
    """Run `call(*arguments, begin, stop)` on chunks of range(length), with torch's threads.

    Args:
        call: Computes items begin to stop - 1. Only a call that releases the GIL gets faster.
        arguments: The other arguments of each call.
        length: The number of items.
        work: The cost of all items, in item-steps of a few nanoseconds.
        unit: Chunks begin at multiples of this number.
    """
    threads = min(torch.get_num_threads(), work // LEAST_WORK, -(-length // unit))
    if threads <= 1:
        call(*arguments, 0, length)
        return
    step = -(-length // (threads * unit)) * unit
    begins = range(0, length, step)
    pool = _pool(os.getpid(), torch.get_num_threads())
    tasks = [pool.submit(call, *arguments, b, min(b + step, length)) for b in begins[1:]]
    call(*arguments, 0, step)
    for task in tasks:
        task.result()

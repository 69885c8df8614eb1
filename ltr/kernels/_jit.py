"""numba: functions that are compiled once, kept on disk, and run by a pool of plain threads.

Only imported where a compiled function is called for: `import ltr` does not load numba. Its cache
lies in the folder that NUMBA_CACHE_DIR names, else beside the installed files, else in the user's
cache folder. `ltr.kernels._cache` says what happens where none of these can be written.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any

import torch
from numba import njit

from ltr.kernels._cache import cached, turn


def compiler(*fastmath: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles functions without Python objects, cached where it can be.

    Args:
        fastmath: the liberties that LLVM may take. NaN and inf must keep their meaning.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": set(fastmath),
    }
    return lambda function: cached(lambda cache: njit(cache=cache, **options)(function))


jit = compiler("contract", "nsz")
"""Compile a function that holds no Python objects. NaN and inf keep their meaning.

The kept code of a function is used until its own file changes: after an edit of a function that
others take in, touch their files too.
"""


def entry(function: Any) -> Callable[..., Any]:
    """Wrap a compiled function that Python calls: of several processes one compiles it.

    The first call for each dtype of the first argument, which must be an array, takes turns with
    other processes that share the cache: the first compiles, the others load what it kept. A
    second layout of the arguments compiles without waiting.
    """
    ready = set()

    @wraps(function)
    def call(*arguments: Any) -> Any:
        dtype = arguments[0].dtype
        if dtype in ready:
            return function(*arguments)
        with turn(function.stats.cache_path):
            result = function(*arguments)
        ready.add(dtype)
        return result

    return call


LEAST = 50_000
"""Below so many item-steps of work a second thread costs more than it does."""


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # numba's own threads are not safe to start from two threads, nor after a fork; these are: a
    # forked process, having another number, makes its own
    return ThreadPoolExecutor(threads, thread_name_prefix="ltr")


def run_parallel(call: Callable[[int, int], object], length: int, work: int, unit: int = 1) -> None:
    """`call(begin, stop)` on pieces of range(length), on torch's number of threads.

    Args:
        call: does items begin to stop - 1; it must release the GIL to be of use.
        length: how many items there are.
        work: what all of it costs, in item-steps of a few nanoseconds.
        unit: pieces begin at multiples of it.
    """
    threads = min(torch.get_num_threads(), work // LEAST, -(-length // unit))
    if threads <= 1:
        call(0, length)
        return
    step = -(-length // (threads * unit)) * unit
    begins = range(0, length, step)
    pool = _pool(os.getpid(), torch.get_num_threads())
    tasks = [pool.submit(call, b, min(b + step, length)) for b in begins[1:]]
    call(0, step)
    for task in tasks:
        task.result()

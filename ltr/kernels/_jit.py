"""numba: functions that are compiled once, kept on disk, and run by a pool of plain threads.

Only imported where a compiled function is called for: `import ltr` does not load numba. Its cache
lies beside the installed files, or in the user's cache folder where those cannot be written.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from numba import njit

jit: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz"})
"""Compile a function that holds no Python objects. NaN and inf keep their meaning.

The kept code of a function is used until its own file changes: after an edit of a function that
others take in, touch their files too.
"""

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

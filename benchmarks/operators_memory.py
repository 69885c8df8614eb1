"""Peak memory of one forward and backward, each in a fresh process.

    python benchmarks/operators_memory.py "SigmoidRank" 1 1000000

It is the largest resident size during the call minus the size before. By then the scores and the
gradient exist, and the code has run on shorter lists. Freed memory goes back to the system at once
(`MALLOC_MMAP_THRESHOLD_`), so that the size is the memory in use. Else the C library would keep
some freed memory, a different amount in each run.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import KEPT, rounded
from operators_contestants import contestants, scores_of

SHORTER = [128, 4096]
"""Lengths of the warm-up lists: other lengths may use other code."""


TIMEOUT = 120.0
"""The most seconds of a process."""

RETURNED = 1 << 17
"""Blocks of at least this many bytes go back to the system when they are freed."""

MOST = 16 << 30
"""The most bytes of address space. A process that needs more fails without harm to the machine."""


def measured(key: str, lists: int, n: int) -> dict[str, Any] | None:
    """Return the peak in bytes and in tensors of the scores' size, and the call's seconds.

    Return None if the call failed or took too long.
    """
    command = [sys.executable, __file__, key, str(lists), str(n)]
    variables = {name: value for name, value in os.environ.items() if name not in KEPT}
    variables["MALLOC_MMAP_THRESHOLD_"] = str(RETURNED)
    try:
        found = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
            env=variables,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    result = json.loads(found.stdout)
    tensors = rounded(result["bytes"] / (4 * lists * n))
    return {"name": key, "lists": lists, "n": n, "tensors": tensors, **result}


def in_this_process(key: str, lists: int, n: int) -> dict[str, Any]:
    """Return bytes and seconds of one call, and whether its gradient is finite."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
    torch.set_num_threads(1)
    (contestant,) = (c for c in contestants() if c.key == key)
    for shorter in SHORTER:
        contestant.call(scores_of(1, min(n, shorter)))()
    call = contestant.call(scores_of(lists, n))
    results, start = [], time.perf_counter()
    peak = peak_of(lambda: results.append(call()))
    seconds = time.perf_counter() - start
    finite = bool(results[0].isfinite().all())
    return {"bytes": peak, "seconds": rounded(seconds), "finite": finite}


def peak_of(call: Callable[[], Any]) -> int:
    """Return the most bytes by which the resident size grows during a call."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the present size
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    name, number, length = sys.argv[1:]
    print(json.dumps(in_this_process(name, int(number), int(length))))

"""Peak memory of one forward and backward, each in a fresh process.

    python benchmarks/operators_memory.py "SigmoidRank" 1 1000000

It is the largest resident size during the call, less the size before, when the scores and the
gradient are there already and the code has run on shorter lists. Memory that is freed goes back to
the system at once (`MALLOC_MMAP_THRESHOLD_`), so that the size is what is held: else the C library
keeps some of what was freed, more or less from one run to the next.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import rounded
from operators_contestants import contestants, scores_of

SHORTER = [128, 4096]
"""Lengths of the lists that it runs on before: other lengths may take other code."""


TIMEOUT = 120.0
"""Seconds that a process may take."""

RETURNED = 1 << 17
"""Bytes: what is at least as large goes back to the system when it is freed."""

MOST = 16 << 30
"""Bytes of address space that it may have: beyond, it fails, and the machine goes on."""


def measured(key: str, lists: int, n: int) -> dict[str, Any] | None:
    """The peak in bytes and in tensors of the scores' size, and the call's seconds.

    None where the call failed or took too long.
    """
    command = [sys.executable, __file__, key, str(lists), str(n)]
    variables = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(RETURNED)}
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
    """Bytes and seconds of one call, and whether its gradient is finite."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
    torch.set_num_threads(1)
    (contestant,) = (c for c in contestants() if c.key == key)
    for shorter in SHORTER:
        contestant.call(scores_of(1, min(n, shorter)))()
    call = contestant.call(scores_of(lists, n))
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to the present
    before = _status("VmRSS")
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    peak = _status("VmHWM") - before
    finite = bool(result.isfinite().all())
    return {"bytes": peak, "seconds": rounded(seconds), "finite": finite}


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    name, number, length = sys.argv[1:]
    print(json.dumps(in_this_process(name, int(number), int(length))))

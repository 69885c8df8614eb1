"""Helpers of all benchmarks: time, memory, the description of the machine, and the JSON files."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # silences torch's profiler

import torch

import ltr

RESULTS = Path(__file__).parent / "results"
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 34), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
"""Environment variables that make glibc keep freed memory."""

TURN = 0.05
"""Seconds, see `times`."""


def times(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the seconds of one call of each: the median over the calls of all rounds.

    In a round all take turns, of one call or, if that is quick, of as many as `TURN` seconds hold
    (20 at most): the first call after another one gets new memory from the system. It is the CPU
    time of this process. In one thread this is wall-clock time without the share of other
    programs. Each function is called once before.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            end = time.process_time() + TURN
            for _ in range(20):
                start = time.process_time()
                call()
                found[name].append(time.process_time() - start)
                if time.process_time() > end:
                    break
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def peak_memory(call: Callable[[], Any]) -> int:
    """Return the most bytes of tensors that `call` holds at once, beyond those held before.

    It is the sum of the allocations and releases that torch's profiler records. So it is the same
    in every run, if `call` has run before. It excludes the memory of Python and numpy.
    """
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        call()
    assert profile.profiler is not None
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def environment() -> dict[str, Any]:
    """Return versions, processor and threads; no date."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return {
        "ltr": ltr.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": "cpu",
        "processor": processor,
        "threads": torch.get_num_threads(),
    }


def rounded(x: float) -> float:
    """Return four digits, since more would only be noise in the file."""
    return float(f"{x:.4g}")


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result as JSON, and print the path of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path}")

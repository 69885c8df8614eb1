"""What the benchmarks share: time, memory, the machine they ran on, and the JSON they write."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # torch's profiler is else chatty

import torch

import ltr

RESULTS = Path(__file__).parent / "results"
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 34), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
"""Variables of the environment with which glibc keeps the memory that is freed."""

TURN = 0.05
"""Seconds, see `times`."""


def times(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of one call of each: the median over the calls of all rounds.

    In a round all take turns, of one call or, if that is quick, of as many as `TURN` seconds hold
    (20 at most): a first call after another's gets its memory from the system anew. It is the
    time of this process on the processor, which in one thread is wall-clock time without what
    other programs on the machine take. Each is called once before.
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
    """The most bytes of tensors that `call` holds at once, beyond what was there before.

    From the allocations and releases that torch's profiler records, so that it is the same at
    every run, if `call` has run before. What Python and numpy hold is not in it.
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
    """Versions, processor and threads; no date."""
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
    """Four digits: more would only be noise in the file."""
    return float(f"{x:.4g}")


def write(path: Path, result: Mapping[str, Any]) -> None:
    """The result as JSON, and on the screen where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path}")

"""The cost of a training step: wall time, processor time and peak memory."""

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch


@dataclass
class StepCost:
    """Costs of the steps so far.

    A process's first step is not timed: it measures the memory, and it compiles and allocates what
    later steps reuse.

    Attributes:
        steps: the number of steps, including those that were not timed.
        wall: wall time of each timed step, in seconds.
        cpu: processor time of each timed step, in seconds, summed over all threads of this
            process; with one thread, wall time without the time that other programs took.
        memory: the most bytes of tensors that a step held at once, beyond those held before it.

    >>> cost = StepCost()
    >>> for _ in range(3):
    ...     cost.add(lambda: torch.ones(1000), torch.device("cpu"))
    >>> cost.steps, len(cost.wall), cost.memory
    (3, 2, 4000)
    """

    steps: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int | None = None
    _warm: bool = field(default=False, repr=False)

    def add(self, step: Callable[[], Any], device: torch.device) -> None:
        """Run a step on a device and measure it."""
        if self._warm:
            _wait(device)
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            _wait(device)
            self.wall.append(time.perf_counter() - wall)
            self.cpu.append(time.process_time() - cpu)
        else:
            self.memory = max(self.memory or 0, peak_memory(step, device))
            self._warm = True
        self.steps += 1

    def seconds(self, by_processor: bool = False) -> float | None:
        """Return the median time of a step in seconds, or None if no step was timed."""
        times = self.cpu if by_processor else self.wall
        return statistics.median(times) if times else None

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; `StepCost(**state)` restores it, not warm."""
        return {name: value for name, value in asdict(self).items() if name != "_warm"}


def peak_memory(call: Callable[[], Any], device: torch.device) -> int:
    """Return the most bytes of tensors that `call` holds at once, beyond those held before it.

    On a CUDA device the allocator counts them; elsewhere torch's profiler records allocations and
    releases. Memory of Python and numpy does not count.

    >>> peak_memory(lambda: torch.ones(1000) + torch.ones(1000), torch.device("cpu"))
    12000
    """
    gc.collect()  # so that no older garbage is released during the call
    if device.type == "cuda":
        _wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        _wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler writes to the screen otherwise
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        call()
    assert profile.profiler is not None
    results: Any = profile.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

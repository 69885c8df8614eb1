"""SinkhornSort in strips against the array of rows x items: time and peak memory.

    python benchmarks/sinkhorn.py

Ranks of float32 scores, a milestone for each item, forward and backward, in one thread. Each size
and form runs in two fresh processes: for the least CPU seconds of a few calls, and for the largest
resident size during a call minus the size before. Takes five minutes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, environment, rounded, write
from operators_contestants import scores_of, signs_of
from operators_memory import MOST, RETURNED, peak_of

from ltr.kernels import use
from ltr.kernels.choice import Form
from ltr.operators import SinkhornSort

SIZES: dict[Form, list[int]] = {"dense": [300, 1000, 2000], "sums": [300, 1000, 2000, 5000, 10_000]}
EPSILON = 0.01
SHARP = {1e-4: 3000, 1e-6: 3000}
"""Smaller epsilons, in strips, and the length for each."""

WARM = 64


def measured(form: Form, n: int, epsilon: float, calls: int) -> dict[str, Any]:
    """Return the seconds and bytes of forward and backward, from two fresh processes."""
    found = {"form": {"dense": "array", "sums": "strips"}[form], "n": n, "epsilon": epsilon}
    for what, variables in (("time", {}), ("memory", {"MALLOC_MMAP_THRESHOLD_": str(RETURNED)})):
        given = [what, form, str(n), str(epsilon), str(calls)]
        command = [sys.executable, __file__, "--one", *given]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
        )
        found.update(json.loads(done.stdout))
    return found


def in_this_process(what: str, form: Form, n: int, epsilon: float, calls: int) -> dict[str, float]:
    """Return the times or the memory of one form at one size."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
    torch.set_num_threads(1)
    operator = SinkhornSort(epsilon)

    def run(n: int) -> tuple[float, float]:
        x = scores_of(1, n).requires_grad_()
        start = time.process_time()
        ranks = operator(x)
        middle = time.process_time()
        torch.autograd.grad(ranks, x, signs_of(x))
        return middle - start, time.process_time() - middle

    with use(form):
        run(WARM)
        if what == "memory":
            return {"bytes": peak_of(lambda: run(n))}
        forward, backward = zip(*(run(n) for _ in range(calls)), strict=True)
    return {"forward": rounded(min(forward)), "backward": rounded(min(backward))}


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--one",
        nargs=5,
        metavar=("WHAT", "FORM", "N", "EPSILON", "CALLS"),
        help="in this process",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--output", type=Path, default=RESULTS / "sinkhorn.json")
    options = parser.parse_args()
    if options.one:
        what, form, n, epsilon, calls = options.one
        print(json.dumps(in_this_process(what, form, int(n), float(epsilon), int(calls))))
        return
    sizes: dict[Form, list[int]] = {"dense": [40], "sums": [40]} if options.quick else SIZES
    cases: list[tuple[Form, int, float]] = []
    for form, lengths in sizes.items():
        cases.extend((form, n, EPSILON) for n in lengths)
    cases.extend(("sums", 40 if options.quick else n, epsilon) for epsilon, n in SHARP.items())
    rows = []
    for form, n, epsilon in cases:
        rows.append(measured(form, n, epsilon, 3 if n <= 1000 else 1))
        print(rows[-1], flush=True)
    write(options.output, {"environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()

"""The first k items by selection against a full sort, and what NDCG@k and SoftNDCG gain by it.

    python benchmarks/selection.py

The order of the best k scores; the best k gains, which make the ideal DCG; and NDCG@k with the
ideal as it is now (`ndcg`) and by a full sort (`ndcg_sorted`). Least CPU seconds of a call, in
turns, in one thread. `sort` is ours, which sorts all; `partition` is numpy's selection of the same
whole numbers, with the same ties; `topk` is torch.topk, whose ties are in any order, so that it may
only select values. Takes one minute.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from measure import KEPT, RESULTS, environment, rounded, write
from torch import Tensor

from ltr.kernels import descending_order
from ltr.kernels.sorting import falling_values
from ltr.metrics.functional import ndcg

SIZES = [(1000, 100), (20_000, 100), (64, 1000), (1, 100_000), (1, 1_000_000)]
K = 10
LARGEST = 2**31 - 1


def partitioned_order(scores: Tensor, k: int) -> Tensor:
    """Return `descending_order(scores)[..., :k]` of float32 scores, by selection."""
    bits = np.subtract(0.0, scores.numpy(), dtype=np.float32, order="C").view(np.int32)
    pairs = np.empty((*bits.shape, 2), np.int32)
    pairs[..., 0] = np.arange(bits.shape[-1], dtype=np.int32)
    np.bitwise_xor(bits, (bits >> 31) & LARGEST, out=pairs[..., 1])
    keys = pairs.view(np.int64)[..., 0]
    keys.partition(k - 1, axis=-1)
    best = keys[..., :k].copy()
    best.sort(axis=-1)
    return torch.from_numpy(best & 0xFFFFFFFF)


def least(calls: dict[str, Callable[[], Any]], budget: float) -> dict[str, float]:
    """Return the least CPU seconds of a call of each, in turns for `budget` seconds in all."""
    best = {name: float("inf") for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        for name, call in calls.items():
            for _ in range(3):
                start = time.process_time()
                call()
                best[name] = min(best[name], time.process_time() - start)
    return {name: rounded(seconds) for name, seconds in best.items()}


def measured(lists: int, n: int, budget: float) -> dict[str, Any]:
    """Return the times of one size."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(lists, n, generator=generator)
    labels = torch.randint(0, 5, (lists, n), generator=generator).float()
    gains = torch.exp2(labels) - 1
    k = min(K, n)
    assert torch.equal(partitioned_order(labels, k), descending_order(labels)[..., :k])
    order = {
        "sort": lambda: descending_order(scores),
        "partition": lambda: partitioned_order(scores, k),
        "topk": lambda: torch.topk(scores, k),
    }
    ideal = {
        "sort": lambda: falling_values(gains)[..., :k],
        "torch.sort": lambda: gains.sort(-1, descending=True).values[..., :k],
        "topk": lambda: torch.topk(gains, k).values,
    }

    def ndcg_sorted() -> Tensor:
        with mock.patch("ltr.gains.SELECTED", n + 1):
            return ndcg(scores, labels, top_k=K)

    assert torch.equal(ndcg_sorted(), ndcg(scores, labels, top_k=K))
    whole = {"ndcg": lambda: ndcg(scores, labels, top_k=K), "ndcg_sorted": ndcg_sorted}
    found = {"order": order, "gains": ideal, "metric": whole}
    return {"lists": lists, "n": n} | {name: least(calls, budget) for name, calls in found.items()}


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--output", type=Path, default=RESULTS / "selection.json")
    options = parser.parse_args()
    if any(name not in os.environ for name in KEPT):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    torch.set_num_threads(1)
    rows = []
    for lists, n in [(3, 20)] if options.quick else SIZES:
        rows.append(measured(lists, n, 0.02 if options.quick else 3.0))
        print(rows[-1], flush=True)
    write(options.output, {"environment": environment(), "k": K, "rows": rows})


if __name__ == "__main__":
    main()

"""The first k items by selection against a full sort, and what metrics at k gain by it.

    python benchmarks/selection.py

The order of the best k scores; the best k gains, which make the ideal DCG; and NDCG, MRR and
precision at k as they are (`ndcg`) and by full sorts (`ndcg_sorted`). Least CPU seconds of a call,
in turns, in one thread. `sort` sorts all; `partition` is numpy's selection of the same whole
numbers, with the same ties, which ours takes for lists of 64 k and more; `topk` is torch.topk,
whose ties are in any order, so that it may only select values. Takes one minute.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from measure import KEPT, RESULTS, environment, rounded, write
from torch import Tensor

from ltr import gains
from ltr.kernels import sorting
from ltr.kernels.sorting import descending_order, falling_values
from ltr.metrics.functional import mrr, ndcg, precision

SIZES = [(1000, 100), (20_000, 100), (64, 1000), (10, 10_000), (1, 100_000), (1, 1_000_000)]
K = 10


@contextmanager
def selecting_from(items: int) -> Iterator[None]:
    """Take selections for lists with this many items for each of the first k."""
    before = sorting.SELECTED
    gains.SELECTED = sorting.SELECTED = items  # a mock would take a tenth of a millisecond
    try:
        yield
    finally:
        gains.SELECTED = sorting.SELECTED = before


def partitioned_order(scores: Tensor, k: int) -> Tensor:
    """Return `descending_order(scores)[..., :k]` by selection."""
    with selecting_from(0):
        return descending_order(scores, first=k)[..., :k]


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
    values = torch.exp2(labels) - 1
    k = min(K, n)
    assert torch.equal(partitioned_order(labels, k), descending_order(labels)[..., :k])
    order = {
        "sort": lambda: descending_order(scores),
        "partition": lambda: partitioned_order(scores, k),
        "topk": lambda: torch.topk(scores, k),
    }
    ideal = {
        "sort": lambda: falling_values(values)[..., :k],
        "torch.sort": lambda: values.sort(-1, descending=True).values[..., :k],
        "topk": lambda: torch.topk(values, k).values,
    }

    metrics: dict[str, Callable[[], Any]] = {}
    for metric in (ndcg, mrr, precision):

        def selected(metric: Callable[..., Tensor] = metric) -> Tensor:
            return metric(scores, labels, top_k=K)

        def by_sort(selected: Callable[[], Tensor] = selected) -> Tensor:
            with selecting_from(n + 1):
                return selected()

        assert torch.equal(selected(), by_sort())
        metrics |= {metric.__name__: selected, f"{metric.__name__}_sorted": by_sort}
    found = {"order": order, "gains": ideal, "metric": metrics}
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

"""A training step of the recipes on a CPU, by precision and by the handling of freed memory.

    python benchmarks/training_step.py

Networks on images allocate and free tensors of tens of megabytes in each step. The C library
returns such memory to the system at once, and gets it again page by page. Three environment
variables, which only glibc and PyTorch on Linux know, make it keep the memory or use larger pages.
Each setting runs in a separate process with one thread, and in a round all take turns.

A step is the recipe's network and loss on one batch, with Adam:

- `sort`: 20 lists of 5 numbers of 112 x 28 pixels, SoftSort. Its network has the channels last.
- `sort, compiled`: the same with layers compiled by `torch.compile`.
- `sort, channels first`: the same layers in PyTorch's usual layout.
- `topk`: 100 images of 3 x 32 x 32, the soft 0/1 loss by SigmoidRank.
- `knn`: 100 queries and 100 candidates of 28 x 28, SoftSort.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import KEPT, RESULTS, environment, rounded, times, write
from torch import Tensor, nn

from ltr.losses import KNNLoss, PermutationCrossEntropy, TopKLoss
from ltr.operators import SigmoidRank, SoftSort
from recipes.networks import MNISTCNN, ImageCNN, VanillaCNN

HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "memory kept": KEPT,
    "huge pages": HUGE_PAGES,
    "both": {**KEPT, **HUGE_PAGES},
}
PRECISIONS = ["bfloat16", "float32"]


def sort() -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a network and its loss on a batch."""
    scorer, loss = ImageCNN((1, 112, 28)), PermutationCrossEntropy(SoftSort(1024.0))
    features, labels = torch.rand(20, 5, 1, 112, 28), torch.rand(20, 5)
    return scorer, lambda: loss(scorer(features), labels)


def sort_compiled() -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return the network of `sort`, its layers compiled, and its loss on a batch."""
    scorer, loss = sort()
    for layers in scorer.children():
        layers.compile()
    return scorer, loss


def sort_channels_first() -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return the layers of `sort` in another layout, and the loss on a batch."""
    scorer, loss = ImageCNN((1, 112, 28)), PermutationCrossEntropy(SoftSort(1024.0))
    network = nn.Sequential(*scorer.children()).to(memory_format=torch.contiguous_format)
    network.insert(1, nn.Flatten())
    features, labels = torch.rand(100, 1, 112, 28), torch.rand(20, 5)
    return network, lambda: loss(network(features).float().view(20, 5), labels)


def topk() -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a network and its loss on a batch."""
    network, loss = VanillaCNN((16, 32), 256, 10, (3, 32, 32)), TopKLoss(SigmoidRank())
    images, targets = torch.rand(100, 3, 32, 32), torch.arange(100) % 10
    labels = nn.functional.one_hot(targets, 10).float()
    return network, lambda: loss(network(images), labels)


def knn() -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a network and its loss on a batch."""
    network, loss = MNISTCNN(shape=(1, 28, 28)), KNNLoss(SoftSort(1.0), top_k=9, average=False)
    images, classes = torch.rand(200, 1, 28, 28), torch.arange(100) % 10
    same = (classes.unsqueeze(-1) == classes).float()

    def call() -> Tensor:
        candidates, queries = network(images[100:]), network(images[:100])
        return loss(-torch.cdist(queries, candidates).square(), same)

    return network, call


RECIPES = {
    "sort": sort,
    "sort, compiled": sort_compiled,
    "sort, channels first": sort_channels_first,
    "topk": topk,
    "knn": knn,
}


def steps(rounds: int) -> dict[str, float]:
    """Return the seconds of a step of each recipe at each precision, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    calls = {}
    for precision in PRECISIONS:
        for name, make in RECIPES.items():
            network, loss = make()
            optimizer = torch.optim.Adam(network.parameters(), fused=True)
            calls[f"{name} {precision}"] = _step(loss, optimizer, precision == "bfloat16")
    return times(calls, rounds)


def _step(
    loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer, half: bool
) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            value = loss()
        value.backward()
        optimizer.step()

    return step


def measured(turns: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each recipe and precision: seconds by setting, the median over the turns."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(turns):
        for setting, variables in SETTINGS.items():
            command = [sys.executable, __file__, "--in-this-process", "--rounds", str(rounds)]
            text = subprocess.check_output(command, env={**os.environ, **variables}, text=True)
            for key, seconds in json.loads(text).items():
                found.setdefault(key, {}).setdefault(setting, []).append(seconds)
    rows = []
    for key, by_setting in found.items():
        recipe, precision = key.rsplit(maxsplit=1)
        seconds = {name: rounded(statistics.median(all_)) for name, all_ in by_setting.items()}
        rows.append({"recipe": recipe, "precision": precision, "seconds": seconds})
    return rows


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3, help="processes of each setting")
    parser.add_argument("--rounds", type=int, default=5, help="repeats in a process")
    parser.add_argument("--output", type=Path, default=RESULTS / "training_step.json")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_this_process:
        print(json.dumps(steps(arguments.rounds)))
        return
    torch.set_num_threads(1)  # for `environment`
    rows = measured(arguments.turns, arguments.rounds)
    for row in rows:
        shown = ", ".join(f"{name} {1e3 * s:.1f}" for name, s in row["seconds"].items())
        print(f"{row['recipe']}, {row['precision']}, ms: {shown}")
    write(arguments.output, {"environment": environment(), "rows": rows})


if __name__ == "__main__":
    main()

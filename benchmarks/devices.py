"""Measure soft ranks and soft NDCG on a GPU, beside torch.sort and the n x n forms of a user.

    python benchmarks/devices.py

Forward and backward, float32, wall-clock time. Without a GPU it measures the CPU in one thread.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from losses import dense_soft_ndcg
from measure import RESULTS, environment, rounded, write
from operators_contestants import TEMPERATURE, naive_sigmoid
from torch import Tensor
from torch.utils.benchmark import Timer

from ltr.losses import ApproxNDCG
from ltr.operators import SigmoidRank, SoftSort

SHAPES = ((64, 120), (256, 1000), (1, 1_000_000))
LARGEST_MATRIX = 2**28
"""Entries of the n x n matrices of a batch, 1 GB in float32; the forms of more are left out."""


def softsort_matrix(scores: Tensor) -> Tensor:
    """Return SoftSort's ranks by the n x n softmax."""
    tops = scores.sort(-1, descending=True).values
    gaps = (tops.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
    return ranks @ torch.softmax(-gaps / TEMPERATURE, -1)


def calls(
    lists: int, n: int, device: torch.device
) -> Iterator[tuple[str, bool, Callable[[], Tensor], Tensor]]:
    """Yield the name of each contestant, whether it builds n x n matrices, its call and scores."""
    torch.manual_seed(0)
    scores = torch.randn(lists, n, device=device, requires_grad=True)
    labels = torch.randint(0, 5, (lists, n), device=device).float()
    loss = ApproxNDCG(TEMPERATURE)
    yield "torch.sort", False, lambda: scores.sort(-1, descending=True).values.sum(), scores
    yield "SoftSort", False, lambda: SoftSort(TEMPERATURE)(scores).square().sum(), scores
    yield "SoftSort, n x n", True, lambda: softsort_matrix(scores).square().sum(), scores
    yield "SigmoidRank", False, lambda: SigmoidRank(TEMPERATURE)(scores).square().sum(), scores
    yield "SigmoidRank, n x n", True, lambda: naive_sigmoid(scores).square().sum(), scores
    yield "SoftNDCG", False, lambda: loss(scores, labels), scores
    dense = lambda: dense_soft_ndcg(scores, labels, TEMPERATURE)  # noqa: E731
    yield "SoftNDCG, n x n", True, dense, scores


def main() -> None:
    """Measure each shape, print a line for each contestant, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", type=torch.device, default=torch.device(default))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each number")
    parser.add_argument("--quick", action="store_true", help="lists of 12 and 50 items alone")
    parser.add_argument("--output", type=Path, default=RESULTS / "devices.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = environment() | {"device": str(options.device)}
    if options.device.type == "cuda":
        about["processor"] = torch.cuda.get_device_name(options.device)
    rows = []
    for lists, n in ((3, 12), (2, 50)) if options.quick else SHAPES:
        for name, matrix, call, scores in calls(lists, n, options.device):
            if matrix and lists * n * n > LARGEST_MATRIX:
                continue
            timer = Timer(
                "torch.autograd.grad(call(), scores)",
                globals={"torch": torch, "call": call, "scores": scores},
            )  # it waits for the device
            seconds = timer.blocked_autorange(min_run_time=options.seconds).median
            rows.append({"lists": lists, "n": n, "name": name, "seconds": rounded(seconds)})
            print(f"{lists} x {n}: {name} {seconds * 1000:.3f} ms", flush=True)
    write(options.output, {"environment": about, "rows": rows})


if __name__ == "__main__":
    main()

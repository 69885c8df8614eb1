"""Compile all numba functions ahead of time, for container images: `python -m ltr.precompile`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from ltr.datasets.letor import LetorReader
from ltr.kernels import use
from ltr.losses import LambdaLoss, LambdaRank, NeuralNDCG, RankingLoss, RankNet, SoftNDCG
from ltr.operators import (
    LaplaceRank,
    LapSum,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SoftplusRank,
    SoftRank,
    SoftSort,
    SoftSortRank,
    SortOperator,
)

LENGTHS = (3, 700)
"""The length of a short list and of a long list, for which the kernels have different code."""


def precompile() -> None:
    """Call the losses and operators that use compiled code, so that numba compiles and caches it.

    This takes minutes with an empty cache, and seconds with a full cache. Each loss and operator
    runs in float32 and float64, on short, long and ragged lists, forward and backward. The parser
    of LETOR text reads two lines.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        path.write_text("1 qid:1 1:1 # a\n0 qid:1 1:2 # b\n")
        list(LetorReader([path]).chunks())
    for dtype in (torch.float32, torch.float64):
        for length in LENGTHS:
            scores = torch.linspace(-1, 1, 2 * length, dtype=dtype).view(2, length).sin()
            labels = (torch.arange(2 * length).view(2, length) % 3).to(dtype)
            mask = torch.ones(2, length, dtype=torch.bool)
            mask[1, -1] = False
            with use("sums"):  # otherwise, short lists use matrices and compile nothing
                for value in _values(scores.requires_grad_(), labels, mask):
                    value.sum().backward(retain_graph=True)  # some values share a graph


def _values(scores: Tensor, labels: Tensor, mask: Tensor) -> Iterator[Tensor]:
    lengths = mask.sum(-1)
    for loss in _losses():
        yield loss(scores, labels)
        yield loss(scores, labels, mask)
        yield loss(scores[mask], labels[mask], lengths=lengths)
    for operator in _operators():
        yield operator(scores)
        yield operator(scores, mask)
        if not isinstance(operator, SortOperator):
            continue
        permutation = operator.permutation(scores, mask)
        yield permutation.mv(labels)
        yield permutation.mT.mv(labels)
        yield permutation.log_prob(torch.argsort(scores, dim=-1, descending=True))


def _losses() -> list[RankingLoss]:
    return [
        *(SoftNDCG(operator) for operator in _operators()),
        SoftNDCG(mean="tight"),
        NeuralNDCG(),
        RankNet(),
        LambdaRank(),
        LambdaLoss(),
    ]


def _operators() -> list[RankOperator]:
    return [
        SigmoidRank(),
        SoftplusRank(),
        LaplaceRank(),
        LapSum(),
        SoftRank(),
        NeuralSort(),
        SoftSort(),
        SoftSort(power=2.0),
        SoftSortRank(),
        SoftSortRank(power=2.0),
    ]


def main() -> int:
    """Compile ahead of time and print the cache folder; return 1 if there is no cache, else 0."""
    from ltr.kernels.cpu.vectors import exp

    begin = time.perf_counter()
    precompile()
    folder = exp.stats.cache_path
    seconds = time.perf_counter() - begin
    if folder is None:
        return 1  # the kernels have already warned
    print(f"compiled into {folder} in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

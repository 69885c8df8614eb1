"""The contestants of `operators.py`: operators, naive operators, torch's sort, other packages."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.kernels.sorting import descending_order
from ltr.operators import (
    GaussianRank,
    LaplaceRank,
    NeuralSort,
    SigmoidRank,
    SoftSort,
    SoftSortRank,
)

TEMPERATURE = 0.1
NEURALSORT = 1.0
SEED = 0
NAIVE_BYTES = 2 << 30
"""The largest n x n matrix that a naive operator may allocate."""

INSTALL = (
    "not installed: with nvcc hidden (not on PATH, no CUDA_HOME),"
    " `pip install --no-build-isolation torchsort`"
)

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Contestant:
    """A function from scores (lists, n) to values (lists, n), with a name and a group.

    Args:
        name: as in the tables.
        group: "sort" (forward only), "compiled", "plain" (PyTorch), "naive" or "peer".
        function: what is measured.
        growth: Its time grows by at least this power of n.
    """

    name: str
    group: str
    function: Function
    growth: float = 1.0

    @property
    def key(self) -> str:
        """Return the name, unique over all groups."""
        return self.name if self.group in ("sort", "compiled") else f"{self.name}, {self.group}"

    def values(self, scores: Tensor) -> Tensor:
        """Run the forward pass."""
        with self._implementation():
            return self.function(scores)

    def call(self, scores: Tensor) -> Callable[..., Tensor]:
        """Return a function that runs forward and backward `repeats` times, 1 by default.

        The gradient is one of fixed signs. Of a sort it runs the forward pass alone.
        """
        leaf = scores.clone().requires_grad_()
        signs = signs_of(leaf)

        def both() -> Tensor:
            return torch.autograd.grad(self.function(leaf), leaf, signs)[0]

        once = (lambda: self.function(scores)) if self.group == "sort" else both

        def run(repeats: int = 1) -> Tensor:
            with self._implementation():
                for _ in range(repeats - 1):
                    once()
                return once()

        return run

    def _implementation(self) -> AbstractContextManager[None]:
        return computed_by(REFERENCE) if self.group == "plain" else nullcontext()

    def fits(self, lists: int, n: int) -> bool:
        """Return whether its matrices are within `NAIVE_BYTES`, if it has any."""
        return self.group != "naive" or 4 * lists * n * n <= NAIVE_BYTES


def naive_sigmoid(scores: Tensor) -> Tensor:
    """Return ApproxNDCG's ranks by the n x n sigmoids."""
    gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
    return 0.5 + torch.sigmoid(gaps / TEMPERATURE).sum(-1)


def naive_expected(cumulative: Callable[[Tensor], Tensor]) -> Function:
    """Return the expected ranks by the n x n probabilities that one score is above another."""

    def ranks(scores: Tensor) -> Tensor:
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        return 0.5 + cumulative(gaps / TEMPERATURE).sum(-1)

    return ranks


def laplace_tails(x: Tensor) -> Tensor:
    """Return Laplace's distribution function, as a user writes it."""
    tails = torch.exp(-x.abs()) / 2
    return torch.where(x > 0, 1 - tails, tails)


def gaussian(x: Tensor) -> Tensor:
    """Return the distribution function of the difference of two normal variables."""
    return torch.special.ndtr(x / 2**0.5)


def naive_softsort_rank(scores: Tensor) -> Tensor:
    """Return SoftSort's ranks by a softmax over the positions of each item."""
    tops = scores.sort(-1, descending=True).values
    distances = (tops.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
    positions = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype).unsqueeze(-1)
    return (torch.softmax(-distances / TEMPERATURE, -2) * positions).sum(-2)


def naive_softsort(power: float) -> Function:
    """Return SoftSort's ranks by the n x n softmax."""

    def ranks(scores: Tensor) -> Tensor:
        tops = scores.sort(-1, descending=True).values
        distances = (tops.unsqueeze(-1) - scores.unsqueeze(-2)).abs()
        if power != 1:
            distances = distances.pow(power)
        return _ranks(torch.softmax(-distances / TEMPERATURE, -1))

    return ranks


def naive_neuralsort(scores: Tensor) -> Tensor:
    """Return NeuralSort's ranks by its equation 3, with row sums for the product with ones."""
    n = scores.shape[-1]
    sums = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs().sum(-1)
    factors = n + 1 - 2 * torch.arange(1, n + 1, dtype=scores.dtype)
    logits = factors.unsqueeze(-1) * scores.unsqueeze(-2) - sums.unsqueeze(-2)
    return _ranks(torch.softmax(logits / NEURALSORT, -1))


def contestants() -> list[Contestant]:
    """Return all contestants."""
    ours: list[tuple[str, Function, float]] = [
        ("SoftSort, power 1", SoftSort(TEMPERATURE), 1),
        ("SoftSort, power 2", SoftSort(TEMPERATURE, power=2), 1),
        ("SoftSortRank", SoftSortRank(TEMPERATURE), 1),
        ("LaplaceRank", LaplaceRank(TEMPERATURE), 1),
        ("SigmoidRank", SigmoidRank(TEMPERATURE), 1),
        ("GaussianRank", GaussianRank(TEMPERATURE), 1),
        ("NeuralSort", NeuralSort(NEURALSORT), 2),
        ("SoftSort, power 1.5", SoftSort(TEMPERATURE, power=1.5), 2),
    ]
    found = [
        Contestant("torch.sort", "sort", lambda s: torch.sort(s).values),
        Contestant(
            "torch.sort, descending, stable",
            "sort",
            lambda s: torch.sort(s, descending=True, stable=True).values,
        ),
        Contestant("ltr.kernels.descending_order", "sort", descending_order),
        *(
            Contestant(name, group, function, growth)
            for group in ("compiled", "plain")
            for name, function, growth in ours
        ),
        Contestant("SoftSort, power 1", "naive", naive_softsort(1), 2),
        Contestant("SoftSort, power 2", "naive", naive_softsort(2), 2),
        Contestant("SoftSort, power 1.5", "naive", naive_softsort(1.5), 2),
        Contestant("SoftSortRank", "naive", naive_softsort_rank, 2),
        Contestant("LaplaceRank", "naive", naive_expected(laplace_tails), 2),
        Contestant("SigmoidRank", "naive", naive_sigmoid, 2),
        Contestant("GaussianRank", "naive", naive_expected(gaussian), 2),
        Contestant("NeuralSort", "naive", naive_neuralsort, 2),
    ]
    if torchsort := _torchsort():
        found.append(
            Contestant(
                "torchsort.soft_rank, l2",
                "peer",
                lambda s: torchsort.soft_rank(s, regularization="l2"),
            )
        )
    return found


def peers() -> dict[str, str]:
    """Return the versions of the other packages, or how to install them."""
    try:
        return {"torchsort": version("torchsort") if _torchsort() else INSTALL}
    except PackageNotFoundError:
        return {"torchsort": "unknown version"}


def scores_of(lists: int, n: int, kind: str = "random") -> Tensor:
    """Return float32 scores (lists, n), the same in every run.

    Args:
        lists: The number of lists.
        n: The length of each list.
        kind: "random" (normal scores), "sorted" (the same in descending order), "reversed" (in
            ascending order) or "tied" (only five values).
    """
    generator = _generator(n)
    if kind == "tied":
        return torch.randint(0, 5, (lists, n), generator=generator) / 2 - 1
    scores = torch.randn(lists, n, generator=generator)
    if kind == "random":
        return scores
    return scores.sort(-1, descending=kind == "sorted").values


def signs_of(scores: Tensor) -> Tensor:
    """Return random signs in the scores' shape, the gradient of the backward pass."""
    return torch.randint(0, 2, scores.shape, generator=_generator()).to(scores.dtype) * 2 - 1


def _ranks(P: Tensor) -> Tensor:
    positions = torch.arange(1, P.shape[-1] + 1, dtype=P.dtype)
    return P.mT @ positions


def _generator(extra: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + extra)


def _torchsort() -> Any:
    try:
        import torchsort  # pyright: ignore[reportMissingImports]
    except ImportError:  # missing, or built against another torch
        return None
    return torchsort

"""What computes, in one place: matrices or sums, and numba's code or plain PyTorch.

Short lists take n x n matrices, long ones sums in sort time. The two forms agree to rounding.
`prefers_dense` decides from the length, the number of lists, the dtype, the device and whether
numba is there. Its numbers are in `ltr.kernels.thresholds`, which `benchmarks/thresholds.py`
writes. `use` pins the choice. Sums are computed by numba's code on the CPU and by plain PyTorch on
any other device.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from ltr.kernels.interface import Implementation
from ltr.kernels.reference import REFERENCE
from ltr.kernels.thresholds import ROWS, THRESHOLDS, Operator

Form = Literal["dense", "sums"]

MOST = 1 << 22
"""The most entries of the matrix of a list: 16 MiB in float32. For `torch.compile`, of a batch."""

# for all threads: a GPU's backward pass runs on one of torch's own
_pinned: list[Form] = []
_forced: list[Implementation] = []


@contextmanager
def use(form: Form) -> Iterator[None]:
    """Pin the form of all operators within the block, on all threads, to reproduce a run.

    By default each operator takes its n x n matrix for short lists and kernel sums for long ones:
    see `prefers_dense`. The results differ by rounding. The pin is process-wide.

    Args:
        form: "dense" for matrices, O(n^2) time and memory; "sums" for kernel sums.

    Raises:
        ValueError: another form.

    >>> from ltr.operators import SigmoidRank
    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> with use("sums"):
    ...     SigmoidRank()(scores)
    tensor([2.9522, 1.0070, 2.0407])
    """
    if form not in ("dense", "sums"):
        raise ValueError(f"form must be 'dense' or 'sums', got {form!r}")
    _pinned.append(form)
    try:
        yield
    finally:
        _pinned.remove(form)


def prefers_dense(operator: Operator, scores: Tensor) -> bool:
    """Return whether the matrices of scores (..., n) take less time than the kernel sums.

    Args:
        operator: which sums.
        scores: (..., n), float32 or float64.

    On other devices than the CPU the thresholds are those of plain PyTorch on the CPU.

    >>> prefers_dense("logistic", torch.zeros(2, 10)), prefers_dense("logistic", torch.zeros(9999))
    (True, False)
    """
    if _pinned:
        return _pinned[-1] == "dense"
    n, numbers = scores.size(-1), scores.numel()
    # operators take some lists at a time, but not for torch.compile
    if (numbers if torch.compiler.is_compiling() else n) * n > MOST:
        return False
    kind = operator, has_compiled_sums(scores), scores.dtype == torch.float64
    length, entries = THRESHOLDS[kind]
    return numbers * (n - length) <= entries


def prefers_strips(rows: int, scores: Tensor, width: float = 1.0) -> bool:
    """Return whether a Sinkhorn problem of rows x n is solved in strips, not as one array.

    It is if the problem has so many rows that strips take less time, or more than `MOST` entries.
    Strips are for the CPU, and not for `torch.compile`. A pin of "sums" is one of strips.

    Args:
        rows: the number of rows.
        scores: (..., n). Strips take the lists one by one.
        width: of the kernel, epsilon^(1 / power), where the rows lie in [0, 1]. Strips need many
            iterations for a kernel as narrow as the gaps between rows.

    >>> prefers_strips(10, torch.zeros(10)), prefers_strips(3000, torch.zeros(3000))
    (False, True)
    """
    if torch.compiler.is_compiling() or not scores.is_cpu:
        return False
    if _pinned:
        return _pinned[-1] == "sums"
    faster = rows > ROWS and rows * width > 2
    return faster or rows * scores.shape[-1] > MOST


def has_compiled_sums(scores: Tensor) -> bool:
    """Return whether numba's code computes the kernel sums of these scores.

    >>> has_compiled_sums(torch.ones(2, device="meta"))
    False
    """
    if not scores.is_cpu:
        return False
    if torch.compiler.is_compiling():  # the choice of code is no part of a graph
        return True
    return is_compiled()


def implementation(device: str) -> Implementation:
    """Return numba's code for the CPU, plain PyTorch for any other device.

    If numba is missing, plain PyTorch replaces it, and one warning says so.

    >>> implementation("meta").name
    'reference'
    """
    if _forced:
        return _forced[-1]
    return _compiled() if device == "cpu" else REFERENCE


@contextmanager
def computed_by(chosen: Implementation) -> Iterator[None]:
    """Compute the sums by `chosen` within the block, on all threads: for tests and benchmarks.

    >>> with computed_by(REFERENCE):
    ...     implementation("cpu").name
    'reference'
    """
    _forced.append(chosen)
    try:
        yield
    finally:
        _forced.pop()


def is_compiled() -> bool:
    """Return whether numba's code does the sums on the CPU.

    >>> with computed_by(REFERENCE):
    ...     is_compiled()
    False
    """
    return implementation("cpu").name == "cpu"


@cache
def _compiled() -> Implementation:
    try:
        from ltr.kernels.cpu import CPU
    except ImportError as error:
        warnings.warn(f"plain PyTorch does the kernel sums, slower: {error}", stacklevel=2)
        return REFERENCE
    return CPU

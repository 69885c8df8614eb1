"""The right form for the size: n x n matrices for short lists, sums in sort time for long ones.

The two forms agree to rounding. `prefers_dense` decides from the length, the number of lists, the
dtype, the device and whether compiled code is there. Its numbers are in `ltr.kernels.thresholds`,
which `benchmarks/thresholds.py` writes. `use` pins the choice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ltr.kernels.implementations import is_compiled
from ltr.kernels.thresholds import ROWS, THRESHOLDS, Operator

Form = Literal["dense", "sums"]

MOST = 1 << 22
"""The most entries of the matrices of a batch: 16 MiB in float32. For Sinkhorn, of a list."""

_pinned: list[Form] = []  # for all threads: a GPU's backward pass runs on one of torch's own


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
    if numbers * n > MOST:
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
    if torch.compiler.is_compiling():  # the choice of an implementation is no part of a graph
        return True
    return is_compiled()

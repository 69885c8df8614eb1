"""Choose, in one place, between matrices and sums, and between numba's code and plain PyTorch.

Most kinds of sum use n x n matrices for short lists, and for small batches of longer lists.
Otherwise they use sums, which take the time of a sort. The two forms agree up to rounding.
`prefers_dense` decides by the number and the length of the lists, with the thresholds in `ENTRIES`
and `LENGTHS`. `use` overrides this decision. Sums are computed by numba's code on the CPU, and by
plain PyTorch on any other device or without numba.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ltr.kernels import chosen
from ltr.kernels.chosen import FORM, IMPLEMENTATION, Form
from ltr.kernels.interface import Implementation
from ltr.kernels.reference import REFERENCE

LENGTHS = {
    "laplace": 50,
    "logistic": 50,
    "normal": 50,
    "softplus": 50,
    "softsort 1": 50,
    "softsort 1, ranks": 0,
    "softsort 2": 50,
    "neuralsort": 0,
}
"""For each kind of sum: lists shorter than this use matrices, whatever the number of lists.

"laplace", "logistic" and "normal" are soft ranks, named by the distribution of the noise;
"softplus" is `SoftplusRank`. "softsort 1" and "softsort 2" are the rows of SoftSort, named by its
power. "softsort 1, ranks" are SoftSort's ranks for power 1: one compiled call, which is faster than
a matrix at every length. "neuralsort" is NeuralSort's sum A_j = sum_k |s_j - s_k|.
"""

ENTRIES = {
    "laplace": 2**15,
    "logistic": 2**18,
    "normal": 2**15,
    "softplus": 2**16,
    "softsort 1": 2**17,
    "softsort 2": 2**17,
    "neuralsort": 2**18,
}
"""For each kind of sum: the most entries that all matrices of a call may have together.

Lists that are not shorter than `LENGTHS` use sums if their matrices would have more entries. A call
of the sums has a fixed cost of about 0.4 ms, so the sums pay off only for many or long lists.
`benchmarks/short_lists.py` measures both forms.
"""


@contextmanager
def _within(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set a context variable within the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use(form: Form) -> AbstractContextManager[None]:
    """Fix the form of all operators within the block, to reproduce a run.

    By default each operator uses its n x n matrix for short lists and small batches, and kernel
    sums for all others: see `prefers_dense`. The results of the two forms differ by rounding.

    The choice is a context variable. It holds in this thread and in this asyncio task. A task takes
    the choice of the code that creates it, and a new thread begins without a choice. Compiled code
    sees the choice of each call: `torch.compile` guards a graph by the form, and traces the
    function again for another form. An exported program keeps the form of its export. A backward
    pass has the form of its forward pass, wherever it runs. Only a checkpoint computes again in the
    thread of the backward pass, which on a GPU is torch's own: there, pass
    `torch.utils.checkpoint.checkpoint` the argument
    `context_fn=lambda: (nullcontext(), use(form))`.

    Args:
        form: "dense" for matrices, O(n^2) time and memory; "sums" for kernel sums.

    Raises:
        ValueError: `form` is neither "dense" nor "sums".

    >>> import torch
    >>> from ltr.operators import SigmoidRank
    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> with use("sums"):
    ...     SigmoidRank()(scores)
    tensor([2.9522, 1.0070, 2.0407])
    """
    if form not in ("dense", "sums"):
        raise ValueError(f"form must be 'dense' or 'sums', got {form!r}")
    return _within(FORM, form)


def prefers_dense(kind: str, shape: Sequence[int]) -> bool:
    """Return whether scores of shape (..., n) use matrices instead of sums of the given kind.

    >>> prefers_dense("logistic", (128,)), prefers_dense("logistic", (64, 128))
    (True, False)
    >>> prefers_dense("logistic", (4096, 10)), prefers_dense("logistic", (9999,))
    (True, False)
    """
    form = chosen.form if torch.compiler.is_compiling() else FORM.get()
    if form is not None:
        return form == "dense"
    n = shape[-1]
    return n < LENGTHS[kind] or math.prod(shape) * n <= ENTRIES.get(kind, 0)


def implementation(device: str) -> Implementation:
    """Return the implementation for a device: numba's code for the CPU, else plain PyTorch.

    If numba is missing, plain PyTorch replaces numba's code, and one warning says so.

    >>> implementation("meta").name
    'reference'
    """
    preferred = IMPLEMENTATION.get()
    if preferred is not None:
        return preferred
    return _compiled() if device == "cpu" else REFERENCE


def computed_by(preferred: Implementation) -> AbstractContextManager[None]:
    """Use one implementation within the block, for tests and benchmarks.

    The choice is a context variable, as that of `use` is. Compiled code sees it when it runs.

    >>> with computed_by(REFERENCE):
    ...     implementation("cpu").name
    'reference'
    """
    return _within(IMPLEMENTATION, preferred)


def is_compiled(x: Tensor) -> bool:
    """Return whether numba's code computes the sums of x; it does so only for a tensor on the CPU.

    >>> import torch
    >>> is_compiled(torch.zeros(2, device="meta"))
    False
    >>> with computed_by(REFERENCE):
    ...     is_compiled(torch.zeros(2))
    False
    """
    return x.is_cpu and implementation("cpu").name == "cpu"


@cache
def _compiled() -> Implementation:
    try:
        from ltr.kernels.cpu import CPU
    except ImportError as error:
        warnings.warn(f"kernel sums run in plain PyTorch, which is slower: {error}", stacklevel=2)
        return REFERENCE
    return CPU

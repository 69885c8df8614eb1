"""What the current context chooses: matrices or sums, and numba's code or plain PyTorch.

`FORM` and `IMPLEMENTATION` are context variables, so a choice holds in its thread or asyncio task
alone. `torch.compile` cannot trace `ContextVar.get`. Therefore code that it traces reads `form`, an
attribute of this module: a compiled graph is guarded by its value, and is traced again for another.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal

from ltr.kernels.interface import Implementation
from ltr.kernels.reference import REFERENCE

Form = Literal["dense", "sums"]

FORM: ContextVar[Form | None] = ContextVar("FORM", default=None)
IMPLEMENTATION: ContextVar[Implementation | None] = ContextVar("IMPLEMENTATION", default=None)


def __getattr__(name: str) -> Form | None:
    if name == "form":
        return FORM.get()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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


def computed_by(preferred: Implementation) -> AbstractContextManager[None]:
    """Use one implementation within the block, for tests and benchmarks.

    The choice is a context variable, as that of `use` is. Compiled code sees it when it runs.

    >>> with computed_by(REFERENCE):
    ...     IMPLEMENTATION.get().name
    'reference'
    """
    return _within(IMPLEMENTATION, preferred)


@cache
def compiled() -> Implementation:
    """Return numba's code, for the CPU; plain PyTorch, with one warning, if numba is missing."""
    try:
        from ltr.kernels.cpu import CPU
    except ImportError as error:
        warnings.warn(f"kernel sums run in plain PyTorch, which is slower: {error}", stacklevel=2)
        return REFERENCE
    return CPU

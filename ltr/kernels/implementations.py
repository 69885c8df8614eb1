"""Which implementation computes the kernel sums: compiled where it can be, plain PyTorch else."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from torch import Tensor

from ltr.kernels import _torch

Implementation = Callable[..., list[Tensor]]

# for all threads: a GPU's backward pass runs on one of torch's own
_forced: list[Implementation] = []


def implementation(device: str) -> Implementation:
    """The fastest one for a type of device: numba on the CPU, Triton on CUDA, else plain PyTorch.

    Where numba or Triton is missing plain PyTorch takes over, and a warning says so, once.

    >>> from ltr.kernels import _torch
    >>> implementation("meta") is _torch.kernel_sums
    True
    """
    return _forced[-1] if _forced else _fastest(device)


@contextmanager
def use(chosen: Implementation) -> Iterator[None]:
    """Within this block `chosen` does all kernel sums, on all threads: for tests and benchmarks.

    >>> from ltr.kernels import _torch
    >>> with use(_torch.kernel_sums):
    ...     implementation("cpu") is _torch.kernel_sums
    True
    """
    _forced.append(chosen)
    try:
        yield
    finally:
        _forced.pop()


@cache
def _fastest(device: str) -> Implementation:
    try:
        if device == "cpu":
            from ltr.kernels import _numba

            return _numba.kernel_sums
        if device == "cuda":
            from ltr.kernels import _triton

            return _triton.kernel_sums
    except ImportError as error:
        warnings.warn(f"plain PyTorch does the kernel sums, slower: {error}", stacklevel=2)
    return _torch.kernel_sums

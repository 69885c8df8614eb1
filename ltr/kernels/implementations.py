"""The choice of the implementation of the kernel sums: compiled if possible, else plain PyTorch."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from torch import Tensor

from ltr.kernels import _torch
from ltr.kernels.self_check import checked

Implementation = Callable[..., list[Tensor]]

# for all threads: a GPU's backward pass runs on one of torch's own
_forced: list[Implementation] = []


def implementation(device: str) -> Implementation:
    """Return the fastest implementation: numba on the CPU, Triton on CUDA, else plain PyTorch.

    If numba or Triton is missing, plain PyTorch replaces it, and one warning says so. The first
    call for a device compares Triton's kernels with plain PyTorch there: see `checked`.

    >>> from ltr.kernels import _torch
    >>> implementation("meta") is _torch.kernel_sums
    True
    """
    return _forced[-1] if _forced else _fastest(device)


@contextmanager
def use(chosen: Implementation) -> Iterator[None]:
    """Use `chosen` for all kernel sums within the block, on all threads: for tests and benchmarks.

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

            return checked(_triton.kernel_sums, _torch.kernel_sums, device)
    except ImportError as error:
        warnings.warn(f"plain PyTorch does the kernel sums, slower: {error}", stacklevel=2)
    return _torch.kernel_sums

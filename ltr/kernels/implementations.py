"""The choice of the implementation of the kernel sums: compiled if possible, else plain PyTorch."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ltr.kernels.interface import Implementation
from ltr.kernels.reference import REFERENCE
from ltr.kernels.self_check import checked

# for all threads: a GPU's backward pass runs on one of torch's own
_forced: list[Implementation] = []


def implementation(device: str) -> Implementation:
    """Return the fastest implementation: numba on the CPU, Triton on CUDA, else plain PyTorch.

    If numba or Triton is missing, plain PyTorch replaces it, and one warning says so. The first
    call for a device compares Triton's kernels with plain PyTorch there: see `checked`.

    >>> implementation("meta").name
    'reference'
    """
    return _forced[-1] if _forced else _fastest(device)


@contextmanager
def use(chosen: Implementation) -> Iterator[None]:
    """Use `chosen` within the block, on all threads: for tests and benchmarks.

    >>> with use(REFERENCE):
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

    >>> with use(REFERENCE):
    ...     is_compiled()
    False
    """
    return implementation("cpu").name == "cpu"


@cache
def _fastest(device: str) -> Implementation:
    try:
        if device == "cpu":
            from ltr.kernels.cpu import CPU

            return CPU
        if device == "cuda":
            from ltr.kernels.triton import TRITON

            return checked(TRITON, REFERENCE, device)
    except ImportError as error:
        warnings.warn(f"plain PyTorch does the kernel sums, slower: {error}", stacklevel=2)
    return REFERENCE

"""The two ways to compute the kernel sums: numba's code on the CPU, and plain PyTorch."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ltr.kernels.interface import Implementation
from ltr.kernels.reference import REFERENCE

_forced: list[Implementation] = []  # for all threads, as the pins of `ltr.kernels.use`


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

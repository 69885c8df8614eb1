"""Compare a device's kernels with plain PyTorch once, before anything relies on them."""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from ltr.kernels.interface import Implementation, SumNumbers
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import SortedLists, sort_lists
from ltr.kernels.named import gaussian, laplace, survival

SHAPES = ((3, 40), (1, 9000))
"""Several short lists and a long one: a kernel may have code of its own for each."""

Case = tuple[Tensor, SortedLists, list[Tensor], SumNumbers]
"""The arguments of `kernel_sums`."""

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""The largest difference of two sums, in units of the largest one."""


def checked(fast: Implementation, plain: Implementation, device: str) -> Implementation:
    """Return `fast` if it gives what `plain` gives on this device, else `plain` and a warning.

    Both compute fixed sums and those of their gradients, in float32 and float64, with ties and a
    mask. If `fast` raises an error, does not compile or differs, one warning says so.

    Args:
        fast: the kernels to check.
        plain: the reference.
        device: the type of the device, such as "cuda".

    >>> from ltr.kernels.reference import REFERENCE
    >>> checked(REFERENCE, REFERENCE, "cpu") is REFERENCE
    True
    """
    try:
        problem = _difference(fast, plain, device)
    except Exception as error:  # compilers and drivers share no class of errors
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        return fast
    warnings.warn(
        f"the kernels of {device} are not used, plain PyTorch is, slower: {problem}", stacklevel=2
    )
    return plain


def _difference(fast: Implementation, plain: Implementation, device: str) -> str | None:
    # return what differs, or None
    for name, dtype, arguments in _cases(device):
        expected = plain.kernel_sums(*arguments)
        for ours, right in zip(fast.kernel_sums(*arguments), expected, strict=True):
            largest = right.abs().max().item()
            off = (ours - right).abs().max().item()
            if not off <= TOLERANCE[dtype] * largest:  # NaN is a difference too
                return f"{name} of {tuple(ours.shape)} in {dtype} differ by {off:.1e}"
    return None


def _cases(device: str) -> Iterator[tuple[str, torch.dtype, Case]]:
    from ltr.kernels.sums import op_numbers

    for shape in SHAPES:
        for dtype in TOLERANCE:
            level = "float64" if dtype == torch.float64 else "float32"
            kernels = {
                "logistic sums": survival("logistic", level),  # real nodes
                "Gaussian sums": gaussian(level),  # complex nodes
                "Laplace sums": laplace(),  # one node
            }
            scores, mask = _numbers(shape, 0.37, dtype, device), None
            if len(scores) > 1:
                mask = torch.arange(shape[1], device=device) < shape[1] - 2
                mask = mask.expand(shape)
            lists = sort_lists(scores, mask)
            columns = [_numbers(shape, 0.61, dtype, device), _numbers(shape, 0.83, dtype, device)]
            for name, kernel in kernels.items():
                outputs = _with_gradient(kernel)
                yield name, dtype, (scores, lists, columns, op_numbers(outputs, 0.7))


def _with_gradient(kernel: Kernel) -> tuple[tuple[int, Kernel], ...]:
    # the sums of the values, and those that the backward pass takes
    slope = kernel.derivative
    return (0, kernel), (1, kernel.transpose), (0, slope), (1, slope.transpose)


def _numbers(shape: tuple[int, int], step: float, dtype: torch.dtype, device: str) -> Tensor:
    # multiples of 1/8 between -2 and 2, many of them tied
    count = torch.arange(shape[0] * shape[1], dtype=dtype, device=device)
    return ((4 * (count * step).frac() - 2) * 8).round().div(8).view(shape)

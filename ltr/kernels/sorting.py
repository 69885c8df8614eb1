"""The descending stable sort that forward and backward passes share."""

from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import batch_first
from ltr.shapes import HALF

FEW_SCORES = 1024
"""For up to this many scores, `torch.argsort` takes less time than the setup of numpy's sort."""

LARGEST_INT32 = 2**31 - 1


def descending_order(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the items in order of descending score: `order[..., 0]` is the index of the best.

    Ties stay in the order of the list. -0.0 ties with 0.0. NaN comes first. Masked items come last,
    in the order of the list.

    Args:
        scores: (..., n).
        mask: (..., n) bool, True = a real item. Default: all are real.

    Returns:
        (..., n) int64, a permutation of 0..n-1 in each list. Cost: one sort. On the CPU, float32
        scores use numpy's vectorized sort, which takes a fraction of the time of `torch.sort`
        (benchmarks/operators.py). Up to `FEW_SCORES` scores without a mask use `torch.argsort`.

    Raises:
        ValueError: the mask is not bool or has another shape.

    >>> descending_order(torch.tensor([0.1, 0.9, 0.9, 0.5]))
    tensor([1, 2, 3, 0])
    """
    if mask is not None and (mask.shape != scores.shape or mask.dtype != torch.bool):
        raise ValueError(
            f"mask must be bool, of the shape of scores {tuple(scores.shape)}, "
            f"got {mask.dtype} {tuple(mask.shape)}"
        )
    return torch.ops.ltr.descending_order.default(scores.detach(), mask)


def in_list_order(values: Tensor, order: Tensor) -> Tensor:
    """Return the values (..., n) of sorted items in the order of the list.

    `values[..., p]` belongs to item `order[..., p]`, as `descending_order` returns it.

    >>> in_list_order(torch.tensor([9.0, 5.0, 1.0]), torch.tensor([1, 2, 0]))
    tensor([1., 9., 5.])
    """
    return torch.empty_like(values).scatter(-1, order, values)


def runs(values: Tensor, *others: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return where each position's run of equal values starts and ends (exclusive): (..., n) int64.

    With several columns (..., n), the items of a run have equal values in every column. Columns
    that are None do not count. With a mask among them, the padding is a separate run.

    >>> runs(torch.tensor([5.0, 5.0, 2.0]))
    (tensor([0, 0, 2]), tensor([2, 2, 3]))
    """
    n = values.shape[-1]
    position = torch.arange(n, device=values.device).expand(values.shape)
    if n == 0:
        return position, position
    same = values[..., 1:] == values[..., :-1]
    for column in others:
        same = same if column is None else same & (column[..., 1:] == column[..., :-1])
    starts = torch.nn.functional.pad(torch.where(same, 0, position[..., 1:]), (1, 0))
    ends = torch.nn.functional.pad(torch.where(same, n, position[..., 1:]), (0, 1), value=n)
    return starts.cummax(-1).values, ends.flip(-1).cummin(-1).values.flip(-1)


def falling_values(values: Tensor) -> Tensor:
    """Return each list's values in descending order: (..., n) -> (..., n). NaN comes first.

    Cost: one sort.

    >>> falling_values(torch.tensor([0.5, 2.0, 1.0]))
    tensor([2.0000, 1.0000, 0.5000])
    """
    return values.gather(-1, descending_order(values))


def by_torch(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return `descending_order` by `torch.argsort`: the plain definition, for any device."""
    if mask is None:
        return torch.argsort(scores, dim=-1, descending=True, stable=True)
    # Masked items get -inf. So a real -inf becomes the lowest finite value, to stay before them.
    lowest = torch.finfo(scores.dtype).min
    keys = torch.where(mask, scores.clamp(min=lowest), -torch.inf)
    return torch.argsort(keys, dim=-1, descending=True, stable=True)


def on_cpu(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return `descending_order`: numpy sorts integers made of an item's float32 bits and index.

    Torch sorts other dtypes, and few scores without a mask.
    """
    import numpy as np

    if scores.dtype in HALF:
        scores = scores.float()
    few = scores.numel() <= (FEW_SCORES if mask is None else 0)
    if few or scores.dtype != torch.float32 or scores.shape[-1] >= 2**31:
        return by_torch(scores, mask)
    # The keys ascend as the scores descend. -0.0 counts as 0.0.
    points = np.subtract(0.0, scores.numpy(), dtype=np.float32, order="C")
    bits = points.view(np.int32)
    top = points.max()
    if top != top:
        bits[np.isnan(points)] = -1  # this becomes the smallest key, so that NaN comes first
    negative = bits >> 31  # all bits are 1 if the point is negative, else 0
    negative &= LARGEST_INT32
    # Each pair, read as an integer of 64 bits, holds an item's key and its index. No two pairs are
    # equal, so any sort is stable.
    pairs = np.empty((*bits.shape, 2), np.int32)
    low = 0 if np.little_endian else 1
    pairs[..., low] = np.arange(bits.shape[-1], dtype=np.int32)
    keys = np.bitwise_xor(bits, negative, out=pairs[..., 1 - low])
    if mask is not None:
        keys[~mask.numpy()] = LARGEST_INT32
    order = pairs.view(np.int64)[..., 0]
    order.sort(axis=-1)
    order &= 0xFFFFFFFF
    return torch.from_numpy(order)


torch.library.define("ltr::descending_order", "(Tensor scores, Tensor? mask) -> Tensor")
torch.library.impl("ltr::descending_order", "CompositeExplicitAutograd", by_torch)
torch.library.impl("ltr::descending_order", "CPU", on_cpu)


@torch.library.register_fake("ltr::descending_order")
def _fake(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.empty_like(scores, dtype=torch.int64, memory_format=torch.contiguous_format)


def _vmap(info: Any, in_dims: Any, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, int]:
    pairs = zip((scores, mask), in_dims[:2], strict=True)
    batched = (batch_first(x, dim, info.batch_size) for x, dim in pairs)
    return torch.ops.ltr.descending_order(*batched), 0


torch.library.register_vmap("ltr::descending_order", _vmap)

"""The pool-adjacent-violators algorithm: which neighbors share a value in an isotonic regression.

This file finds only the blocks, as whole numbers without a gradient. `isotonic` computes values and
derivatives from the blocks by formulas in plain PyTorch. So second derivatives are correct, and no
two rounded block values are ever compared.
"""

from itertools import count as counting
from math import exp, log1p

import torch
from torch import Tensor


@torch.library.custom_op("ltr::isotonic_blocks", mutates_args=())
def isotonic_blocks(p: Tensor, q: Tensor, length: Tensor, kl: bool) -> Tensor:
    """Return the blocks of the rising isotonic fit whose value on a block is A(p) - A(q).

    A is the mean (`kl=False`) or the log-sum-exp (`kl=True`) over the block. These are the
    projections onto the permutahedron of Blondel et al. 2020, sections 4 and 5.

    Args:
        p: (..., n), float64.
        q: (..., n), float64.
        length: (..., 1) int64, the number of items to fit; each later item is its own block.
        kl: whether A is the log-sum-exp (True) or the mean (False).

    Returns:
        (..., n) int64: the index of the first item of each item's block. Cost: O(n), on the CPU,
        in plain Python.
    """
    if p.numel() == 0:
        return p.new_empty(p.shape, dtype=torch.int64)
    n = p.shape[-1]
    ids = torch.arange(n).repeat(p.numel() // n, 1)
    rows = zip(p.reshape(-1, n).tolist(), q.reshape(-1, n).tolist(), strict=True)
    pool = _pool_log_sums if kl else _pool_means
    for i, (top, bottom), m in zip(counting(), rows, length.reshape(-1).tolist(), strict=False):
        sizes = torch.tensor(pool(top[:m], bottom[:m]), dtype=torch.int64)
        ids[i, :m] = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return ids.view(p.shape).to(p.device)


@isotonic_blocks.register_fake
def _(p: Tensor, q: Tensor, length: Tensor, kl: bool) -> Tensor:
    return p.new_empty(p.shape, dtype=torch.int64)


def _over_batches(info, in_dims, p: Tensor, q: Tensor, length: Tensor, kl: bool):
    tensors = [
        x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip((p, q, length), in_dims, strict=False)
    ]
    return isotonic_blocks(*tensors, kl), 0


isotonic_blocks.register_vmap(_over_batches)


def _pool_means(p: list[float], q: list[float]) -> list[int]:
    sums: list[float] = []
    sizes: list[int] = []
    for above, below in zip(p, q, strict=True):
        total, size = above - below, 1
        # A mean above the next one is a violation. A comparison with NaN is False, so this ends.
        while sizes and sums[-1] * size > total * sizes[-1]:
            total += sums.pop()
            size += sizes.pop()
        sums.append(total)
        sizes.append(size)
    return sizes


def _pool_log_sums(p: list[float], q: list[float]) -> list[int]:
    tops: list[float] = []
    bottoms: list[float] = []
    sizes: list[int] = []
    for top, bottom in zip(p, q, strict=True):
        size = 1
        while sizes and tops[-1] - bottoms[-1] > top - bottom:
            top = _log_add_exp(top, tops.pop())
            bottom = _log_add_exp(bottom, bottoms.pop())
            size += sizes.pop()
        tops.append(top)
        bottoms.append(bottom)
        sizes.append(size)
    return sizes


def _log_add_exp(a: float, b: float) -> float:
    return a + log1p(exp(b - a)) if a > b else b + log1p(exp(a - b))

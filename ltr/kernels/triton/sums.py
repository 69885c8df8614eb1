"""The kernel sums for CUDA, as Triton kernels: tree scans over the sorted lists.

The state at a place is the sum over the items passed: x_p = d_p (x_{p-1} + v_{p-1}), with d_p the
decay between neighbors. `tl.associative_scan` finds all states of a block at once, on triples
(e, d, b): d and b say x = b + d x_before, and e = 1 - d keeps the digits that a d near 1 loses.
Each gap needs one exponential and at most one sine and cosine, since the nodes' decays are powers.

Many lists, or short ones: a program for each list and column walks through the list's blocks. Few
long rows: a program for each block finds what it adds (`sweep` with ENDS), `chain` runs through
the blocks, and a second `sweep` begins with the states found. Everything is in the scores' dtype.

This has only run under Triton's interpreter (TRITON_INTERPRET=1, set before triton is imported).
The tests compile it for CUDA, but it has not run on a CUDA device, and nothing has been timed.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ltr.kernels.interface import SumNumbers
from ltr.kernels.lists import SortedLists
from ltr.kernels.triton.sweeps import chain, sweep

BLOCK = 1024  # the longest block (half of it in float64): its states fit in registers
LONG = 4096  # past this length a row's blocks are done side by side,
MANY = 256  # unless there are this many rows and columns; neither has been measured
FIXED = 3  # states before the nodes' own: sum of the tied, count, linear sum


def available() -> bool:
    """Return whether these kernels can run: on a CUDA device, or in Triton's interpreter.

    With TRITON_INTERPRET=1 in the environment before triton is imported, they take CPU tensors:
    `with ltr.kernels.implementations.use(TRITON): ...`.
    """
    return not isinstance(sweep, triton.JITFunction) or torch.cuda.is_available()


def kernel_sums(
    scores: Tensor,
    lists: SortedLists,
    columns: Sequence[Tensor],
    numbers: SumNumbers,
) -> list[Tensor]:
    """Compute `ltr.kernels.interface.Implementation.kernel_sums` of CUDA tensors."""
    scale, nodes, rows, sources = numbers
    order, starts, lengths = lists.order, lists.starts, lists.lengths
    n, count, segments = scores.shape[-1], int(nodes[4]), starts.shape[-1]
    if not scores.numel() or not segments:
        return [torch.zeros_like(scores) for _ in sources]
    x = scores.reshape(-1, n).contiguous()
    batch = len(x)
    out = x.new_zeros(len(sources), batch, n)
    used = sorted(set(sources))
    values = torch.stack([columns[c].reshape(-1, n) for c in used]).to(x.dtype)
    item = None if order is None else order.reshape(-1, n).contiguous()
    starts, lengths = (
        starts.reshape(-1, segments).contiguous(),
        lengths.reshape(-1, segments).contiguous(),
    )
    plan = _plan(tuple(nodes), tuple(rows), tuple(sources), x.dtype, x.device)
    slots = triton.next_power_of_2(FIXED + count)
    size = BLOCK // 2 if x.dtype == torch.float64 else BLOCK
    shared = {"SLOTS": slots, "COMPLEX": plan.complex, "TIES": plan.ties, "SUMS": plan.sums}
    shared["enable_fp_fusion"] = True
    given: dict[str, Any] = {
        "x": x,
        "order": starts if item is None else item,
        "values": values,
        "out": out,
        "table": plan.table,
        "targets": plan.targets,
        "scale": float(scale),
        "n": n,
        "batch": batch,
        "count": count,
        "OUTPUTS": plan.targets.shape[1],
        "IN_ORDER": item is None,
        "LINEAR": plan.linear,
        **shared,
    }
    with torch.cuda.device_of(x):
        if n > LONG and batch * len(used) < MANY:
            pieces = triton.cdiv(n, size)
            ends = x.new_empty(6, 2, batch * len(used), slots, pieces)
            seeds = x.new_empty(2, 2, batch * len(used), slots, pieces)
            labels = _labels(x, item, values, starts, lengths)
            given |= {"begins": starts, "sizes": lengths, "labels": labels, "pieces": pieces}
            given |= {
                "ends": ends,
                "seeds": seeds,
                "BLOCK": size,
                "num_warps": _warps(size, x.dtype),
            }
            given |= {"BLOCKS": True, "SINGLE": True}
            given["ENDS"] = True
            sweep[(batch * pieces, len(used))](**given)
            width = triton.next_power_of_2(min(max(pieces, 32), size))
            over: dict[str, Any] = {"BLOCK": width, "num_warps": _warps(width, x.dtype), **shared}
            over |= {"ends": ends, "seeds": seeds, "rows": batch * len(used), "pieces": pieces}
            chain[(FIXED + count, batch * len(used))](**over)
            given["ENDS"] = False
            sweep[(batch * pieces, len(used))](**given)
        else:
            typical = n if segments == 1 else min(n, 2 * n // segments)
            block = min(size, triton.next_power_of_2(max(typical, 32)))
            given |= {"begins": starts, "sizes": lengths, "labels": starts, "pieces": segments}
            given |= {"ends": x, "seeds": x, "BLOCK": block, "num_warps": _warps(block, x.dtype)}
            given |= {"BLOCKS": False, "SINGLE": n <= block, "ENDS": False}
            sweep[(batch * segments, len(used))](**given)
    return _apart(out, scores.shape)


def _warps(block: int, dtype: torch.dtype) -> int:
    # each thread has four places of a block, two in float64; registers are enough for all threads
    return min(8, max(1, block // (64 if dtype == torch.float64 else 128)))


def _apart(out: Tensor, shape: torch.Size) -> list[Tensor]:
    # return each output as a separate tensor, not as a view of the whole
    whole, size = out.untyped_storage(), shape.numel()
    parts = [out.new_empty(0).set_(whole, o * size, (size,), (1,)) for o in range(len(out))]
    return [part.view(shape) for part in parts]


def _labels(
    x: Tensor, order: Tensor | None, values: Tensor, starts: Tensor, lengths: Tensor
) -> Tensor:
    # return (columns, batch, n): the list of each place, 0 for none, negative if the list is NaN
    batch, n = x.shape
    starts, lengths = starts.reshape(batch, -1), lengths.reshape(batch, -1)
    some = (lengths > 0).long()
    begins = some.new_zeros(batch, n + 1).scatter_add(-1, starts, some)
    inside = begins.scatter_add(-1, starts + lengths, -some).cumsum(-1) > 0
    ids = (begins.cumsum(-1) * inside)[:, :n].expand(values.shape)
    unusable = ~(x.isfinite() & values.isfinite())
    if order is not None:
        unusable = unusable.gather(-1, order.expand(values.shape))
    found = ids.new_zeros(*ids.shape[:-1], n + 1).scatter_add(-1, ids, unusable.long())
    return torch.where(found.gather(-1, ids) > 0, -ids, ids).int()


class _Plan(NamedTuple):
    table: Tensor  # the nodes' first and step, then the profiles' numbers (columns, ., outputs)
    targets: Tensor  # (columns, outputs) int32: the outputs of each column, -1 for none
    complex: bool  # what is in use
    ties: bool
    sums: bool
    linear: bool


@lru_cache(maxsize=256)
def _plan(
    nodes: tuple[float, ...],
    rows: tuple[float, ...],
    sources: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> _Plan:
    numbers = torch.tensor(rows, dtype=torch.float64).view(len(sources), -1)
    outputs = [[o for o, c in enumerate(sources) if c == used] for used in sorted(set(sources))]
    most = triton.next_power_of_2(max(map(len, outputs)))
    table = numbers.new_zeros(len(outputs), numbers.shape[1], most)
    targets = torch.full((len(outputs), most), -1, dtype=torch.int32)
    for u, mine in enumerate(outputs):
        table[u, :, : len(mine)] = numbers[mine].mT
        targets[u, : len(mine)] = torch.tensor(mine, dtype=torch.int32)
    table = torch.cat([torch.tensor(nodes[:4], dtype=torch.float64), table.flatten()])
    constant, linear, tie = numbers[:, 1:].view(len(sources), 2, -1)[..., :FIXED].unbind(-1)
    return _Plan(
        table.to(device, dtype),
        targets.to(device),
        complex=nodes[1] != 0 or nodes[3] != 0,
        ties=bool(tie.any()),
        sums=bool(constant.any() or linear.any()),
        linear=bool(linear.any()),
    )

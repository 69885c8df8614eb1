"""The plain definition of a kernel sum: every pair, in float64, one dense matrix a list."""

import torch
from torch import Tensor

from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists


def profile_at(profile: Profile, kernel: Kernel, x: Tensor) -> Tensor:
    """The profile at distances x >= 0, any shape."""
    x = x.double()
    smooth = torch.zeros_like(x)
    for node, weight in zip(kernel.nodes.values(), map(complex, profile.weights), strict=True):
        turn = complex(node).imag * x
        wave = weight.real * torch.cos(turn) + weight.imag * torch.sin(turn)
        smooth = smooth + torch.exp(-complex(node).real * x) * wave
    return profile.constant + profile.linear * x + profile.tie * (x == 0).double() + smooth


def dense_sum(
    scores: Tensor, v: Tensor, kernel: Kernel, lists: SortedLists, temperature: float = 1.0
) -> Tensor:
    """y_i = sum over the list's real j of k((s_i - s_j) / temperature) v_j: one list (n,)."""
    order = torch.arange(len(scores)) if lists.order is None else lists.order
    length = int(lists.lengths)
    items = order[:length]
    s = scores.double()[items]
    gaps = (s.unsqueeze(-1) - s) / temperature  # [i, j]
    above = torch.ones(length, length).tril(-1).bool()  # j stands before i
    own = torch.eye(length, dtype=torch.bool)
    k = torch.where(
        above,
        profile_at(kernel.above, kernel, (-gaps).clamp(min=0)),
        profile_at(kernel.below, kernel, gaps.clamp(min=0)),
    )
    k = torch.where(own, kernel.own, k) / temperature**kernel.derivative_order
    y = torch.zeros(scores.shape, dtype=torch.float64)
    return y.index_put((items,), (k * v.double()[items]).sum(-1))

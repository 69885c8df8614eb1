"""Dropout that draws its random numbers quickly on a CPU."""

import math

import torch
from torch import Tensor, nn

_VALUES = 1 << 16  # 16 random bits have this many values


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that uses 16 random bits per value on the CPU.

    PyTorch draws at least 32 random bits per value, which takes a third of the time of a training
    step of a small network. This dropout is 2.5 times as fast, forward and backward, and makes a
    training step of an `MLPScorer` 1.3 times as fast. The probability is rounded to a multiple of
    1/65,536, and the kept values are divided by exactly 1 minus the rounded probability. On other
    devices, and under `torch.compile`, PyTorch's own dropout is used.

    Args:
        p: probability of dropping a value.

    >>> _ = torch.manual_seed(0)
    >>> kept = Dropout(0.5)(torch.ones(1000))
    >>> kept.unique(), bool(440 < (kept == 0).sum() < 560)
    (tensor([0., 2.]), True)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input; in training, some values are set to 0 and the others are scaled."""
        dropped = round(self.p * _VALUES)
        plain = input.device.type != "cpu" or torch.compiler.is_compiling()
        if not self.training or not 0 < dropped < _VALUES or plain:
            return super().forward(input)
        words = torch.empty(math.ceil(input.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: input.numel()].view(input.shape)
        kept = torch.empty_like(input, requires_grad=False)
        torch.ge(bits, dropped - _VALUES // 2, out=kept)
        kept *= _VALUES / (_VALUES - dropped)
        return input * kept

"""A layer that autocast leaves in float32."""

import torch
from torch import Tensor, nn


class Float32(nn.Sequential):
    """Layers that autocast leaves alone: they get inputs in half precision as float32.

    >>> layer = Float32(nn.Linear(3, 2))
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     layer(torch.zeros(4, 3, dtype=torch.bfloat16)).dtype
    torch.float32
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the layers' output."""
        # a network that was moved to half precision as a whole stays in it
        parameter = next(self.parameters(), None)
        if input.dtype in (torch.float16, torch.bfloat16):
            input = input.to(torch.float32 if parameter is None else parameter.dtype)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input)

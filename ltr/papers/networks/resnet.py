"""Residual networks with pre-activation, for small images."""

from collections.abc import Sequence

from torch import Tensor, nn

from ltr.papers.networks.image_network import ImageNetwork
from ltr.shapes import check_whole


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each after batch norm and ReLU, added to their input.

    If the width or the size changes, a 1x1 convolution after the first batch norm and ReLU adapts
    the input.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        stride: stride of the first convolution.

    >>> import torch
    >>> PreActivationBlock(8, 16, stride=2)(torch.zeros(2, 8, 6, 6)).shape
    torch.Size([2, 16, 3, 3])
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return (B, outputs, H / stride, W / stride), rounded up, of images (B, inputs, H, W)."""
        active = self.norm1(images).relu()
        around = images if self.shortcut is None else self.shortcut(active)
        return self.conv2(self.norm2(self.conv1(active)).relu()) + around


class ResNet18(ImageNetwork):
    """Pre-activation ResNet18 for images of about 32 x 32: an embedding of 512 numbers.

    The layers are a 3x3 convolution to the first width, with neither stride nor pool; a group of
    blocks for each width; and the mean over the image. The first block of each group has stride 2,
    except in the first group. There is nothing between the last sum and the mean, as in the code
    that the papers used: the features are not normalized, and may be negative. The network has
    11.16 million parameters.

    Args:
        widths: channels of the groups.
        blocks: how many blocks each group has.
        out: the length of the output of a last linear layer, such as scores of classes. Default:
            None, which leaves it to `build`; without any, the embedding is the output.
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    Cost: 1.1 GFLOP an image of 32 x 32, forward.

    Raises:
        ValueError: a width or a number of blocks is < 1, or there are not as many of both.

    Reference: He, Zhang, Ren and Sun, "Identity Mappings in Deep Residual Networks", ECCV 2016.

    >>> import torch
    >>> network = ResNet18(widths=(4, 8), blocks=(1, 1), shape=(3, 32, 32))
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (2, 2, 2, 2),
        out: int | None = None,
        shape: tuple[int, int, int] | None = None,
    ):
        # plain values, set before the base class makes the layers
        self.widths = tuple(check_whole("widths", width) for width in widths)
        self.blocks = tuple(check_whole("blocks", count) for count in blocks)
        if len(self.widths) != len(self.blocks) or not self.widths:
            raise ValueError(f"blocks must be {len(self.widths)} numbers, got {self.blocks}")
        super().__init__(out, shape)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the first convolution, the groups and the mean."""
        width = self.widths[0]
        layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, padding=1, bias=False)]
        for group, (out, count) in enumerate(zip(self.widths, self.blocks, strict=True)):
            for number in range(count):
                stride = 2 if group > 0 and number == 0 else 1
                layers.append(PreActivationBlock(width, out, stride))
                width = out
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

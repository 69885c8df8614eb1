"""The plain convolutional network of the papers' experiments on top-k classification."""

from torch import nn

from ltr.papers.networks.image_network import ImageNetwork, two_widths
from ltr.shapes import check_whole


class VanillaCNN(ImageNetwork):
    """Four 3x3 convolutions, a 2x2 max pool after every second one, and a dense layer.

    With the last linear layer, to `out` numbers, there are two dense layers. Convolutions keep the
    size. Each is followed by a ReLU, and the dense layer by batch norm and a ReLU.

    Args:
        channels: channels of the first and of the second pair of convolutions.
        hidden: width of the dense layer.
        out: the length of the output, such as scores of classes. Default: None, which leaves it to
            `build`.
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    Raises:
        ValueError: a width is < 1, or images have less than 4 x 4 pixels.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019, section 5, which names the layers but not
    their widths.

    >>> import torch
    >>> network = VanillaCNN(out=10, shape=(3, 32, 32))
    >>> network(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        channels: tuple[int, int] = (32, 64),
        hidden: int = 512,
        out: int | None = None,
        shape: tuple[int, int, int] | None = None,
    ):
        self.channels = two_widths(channels)  # set before the base class makes the layers
        self.hidden = check_whole("hidden", hidden)
        super().__init__(out, shape)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the convolutions and the dense layer."""
        channels, height, width = shape
        first, second = self.channels
        inputs = second * (height // 4) * (width // 4)
        if inputs == 0:
            raise ValueError(f"shape must be of images of 4 x 4 or more, got {shape}")
        # a pool comes before its ReLU: the same values and gradients, a quarter of the work
        return nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(first, first, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(second, second, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(inputs, self.hidden, bias=False),  # the batch norm has one
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
        )

"""The convolutional network of the papers' nearest-neighbor experiment on MNIST."""

from torch import nn

from ltr.papers.networks.image_network import ImageNetwork, two_widths
from ltr.papers.networks.precision import Float32
from ltr.shapes import check_whole

_WHOLE = "a whole number >= 0"


class MNISTCNN(ImageNetwork):
    """Two 5x5 convolutions with pools and a dense layer: an embedding of 500 numbers.

    The layers are a convolution with 20 channels, ReLU and a 2x2 max pool; the same with 50
    channels; and a dense layer of width 500 with ReLU. Without padding, images of 28 x 28 become
    24, 12, 8 and 4 wide. Under autocast the dense layer is in float32, since distances between
    embeddings are differences of large numbers.

    Args:
        channels: channels of the two convolutions.
        hidden: width of the dense layer, the length of the embedding.
        padding: padding of the convolutions on each side; 2 keeps the size, for smaller images.
        out: the length of the output of a last linear layer, such as scores of classes. Default:
            None, which leaves it to `build`; without any, the embedding is the output.
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    Cost: 4.5 MFLOP an image of 28 x 28, forward.

    Raises:
        ValueError: a width is < 1, the padding is not a whole number >= 0, or the images are too
            small for the convolutions.

    Reference: Grover et al., ICLR 2019, appendix D.3; Prillo and Eisenschlos, ICML 2020, whose
    appendix prints a dense layer of 50 where the published code has 500.

    >>> import torch
    >>> network = MNISTCNN(shape=(1, 28, 28))
    >>> network(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 500])
    """

    def __init__(
        self,
        channels: tuple[int, int] = (20, 50),
        hidden: int = 500,
        padding: int = 0,
        out: int | None = None,
        shape: tuple[int, int, int] | None = None,
    ):
        self.channels = two_widths(channels)  # set before the base class makes the layers
        self.hidden = check_whole("hidden", hidden)
        self.padding = 0 if padding == 0 else check_whole("padding", padding, _WHOLE)
        super().__init__(out, shape)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the convolutions and the dense layer."""
        channels, height, width = shape
        first, second = self.channels

        def pooled(size: int) -> int:
            shrink = 4 - 2 * self.padding
            return ((size - shrink) // 2 - shrink) // 2

        inputs = second * pooled(height) * pooled(width)
        if min(pooled(height), pooled(width)) < 1:
            raise ValueError(
                f"shape must be of larger images, or padding larger than {self.padding}, "
                f"got {shape}"
            )
        # the pool comes before the ReLU: the same values and gradients, a quarter of the work
        return nn.Sequential(
            nn.Conv2d(channels, first, 5, padding=self.padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 5, padding=self.padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            Float32(nn.Linear(inputs, self.hidden)),
            nn.ReLU(),
        )

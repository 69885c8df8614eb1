"""Autoencoders, whose codes are a baseline for nearest neighbors."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ltr.shapes import check_whole
from recipes.networks import ImageNetwork


class ImageAutoencoder(ImageNetwork):
    """Base of the autoencoders: a subclass defines `make_body`, the encoder, and `make_decoder`.

    `forward` returns codes (..., features), as other networks return embeddings. `decode` turns
    codes into images with pixels from 0 to 1.

    Args:
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    >>> network = DenseAutoencoder(hidden=(6,), code=2, shape=(1, 8, 8))
    >>> codes = network(torch.zeros(5, 1, 8, 8))
    >>> codes.shape, network.decode(codes).shape
    (torch.Size([5, 2]), torch.Size([5, 1, 8, 8]))
    """

    def __init__(self, shape: tuple[int, int, int] | None = None):
        self.decoder: nn.Module | None = None
        super().__init__(None, shape)

    def make_decoder(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the decoder: (B, features) -> (B, C, H, W), before the sigmoid."""
        raise NotImplementedError(f"{type(self).__name__} must define make_decoder")

    def logits(self, codes: Tensor) -> Tensor:
        """Return the images (B, C, H, W) of codes (B, features) before the sigmoid.

        They have at least float32.

        Raises:
            ValueError: the layers do not exist yet.
        """
        if self.decoder is None:
            raise ValueError(
                f"shape must be given to {type(self).__name__}, or to its `build`, "
                "before it decodes, got None"
            )
        logits = self.decoder(codes)
        half = logits.dtype in (torch.float16, torch.bfloat16)
        return logits.float() if half else logits

    def decode(self, codes: Tensor) -> Tensor:
        """Return the images (B, C, H, W) in (0, 1) of codes (B, features)."""
        return self.logits(codes).sigmoid()

    def _make(self, shape: tuple[int, ...], out: int | None) -> None:
        if out is not None:
            raise ValueError(f"out must be None for an autoencoder, got {out}")
        super()._make(shape, out)
        self.decoder = self.make_decoder((shape[0], shape[1], shape[2]))
        self.decoder.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


class DenseAutoencoder(ImageAutoencoder):
    """Dense layers with ReLU, to the code and back: 784, 500, 500, 50, 500, 500, 784 for MNIST.

    Args:
        hidden: widths of the layers between image and code; the decoder has the reverse.
        code: length of the code, which also passes a ReLU.
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    Raises:
        ValueError: a width is < 1.

    Reference: Grover et al., ICLR 2019, appendix D.3, for MNIST and Fashion-MNIST.

    >>> DenseAutoencoder(shape=(1, 28, 28))(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 50])
    """

    def __init__(
        self,
        hidden: Sequence[int] = (500, 500),
        code: int = 50,
        shape: tuple[int, int, int] | None = None,
    ):
        self.hidden = tuple(check_whole("hidden", width) for width in hidden)
        self.code = check_whole("code", code)
        super().__init__(shape)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the encoder."""
        return nn.Sequential(nn.Flatten(), *_dense(_pixels(shape), *self.hidden, self.code))

    def make_decoder(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the decoder."""
        widths = (self.code, *reversed(self.hidden))
        last = nn.Linear(widths[-1], _pixels(shape))
        return nn.Sequential(*_dense(*widths), last, nn.Unflatten(1, shape))


class ConvAutoencoder(ImageAutoencoder):
    """3x3 convolutions with 64, 32 and 16 channels and pools, to a code of 256 and back.

    After each convolution the encoder has batch norm (not after the first), ReLU and a 2x2 max
    pool: images of 32 x 32 become 16 channels of 4 x 4. The decoder has convolutions with 16, 32
    and 64 channels, each with batch norm and ReLU, and doubles the size after each. A last
    convolution with batch norm makes the image. For CIFAR-10.

    Args:
        channels: channels of the three convolutions.
        shape: (C, H, W) of an image, H and W multiples of 8. Default: None, which leaves the layers
            to `build`.

    Raises:
        ValueError: a number of channels is < 1, or H or W is not a multiple of 8.

    Reference: Grover et al., ICLR 2019, appendix D.3.

    >>> ConvAutoencoder(shape=(3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 256])
    """

    def __init__(
        self,
        channels: Sequence[int] = (64, 32, 16),
        shape: tuple[int, int, int] | None = None,
    ):
        self.channels = tuple(check_whole("channels", width) for width in channels)
        if len(self.channels) != 3:
            raise ValueError(f"channels must be three widths, got {self.channels}")
        super().__init__(shape)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the encoder."""
        if shape[1] % 8 or shape[2] % 8:
            raise ValueError(f"shape must be multiples of 8 high and wide, got {shape}")
        layers: list[nn.Module] = []
        for before, after in zip((shape[0], *self.channels), self.channels, strict=False):
            norm = [nn.BatchNorm2d(after)] if layers else []
            # the pool comes before the ReLU: the same values and gradients, a quarter of the work
            convolution = nn.Conv2d(before, after, 3, padding=1)
            layers += [convolution, *norm, nn.MaxPool2d(2), nn.ReLU()]
        return nn.Sequential(*layers, nn.Flatten())

    def make_decoder(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the decoder."""
        back = self.channels[::-1]
        layers: list[nn.Module] = [nn.Unflatten(1, (back[0], shape[1] // 8, shape[2] // 8))]
        for before, after in zip((back[0], *back), back, strict=False):
            convolution = nn.Conv2d(before, after, 3, padding=1)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.Upsample(scale_factor=2)]
        layers += [nn.Conv2d(back[-1], shape[0], 3, padding=1), nn.BatchNorm2d(shape[0])]
        return nn.Sequential(*layers)


def _pixels(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def _dense(*widths: int) -> list[nn.Module]:
    """Return linear layers from each width to the next, with ReLU."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers

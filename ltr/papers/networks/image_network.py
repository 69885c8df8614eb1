"""The base class of networks on images, for classes and for embeddings."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.shapes import check_whole


def two_widths(channels: Sequence[int]) -> tuple[int, int]:
    """Return the two widths in `channels`, the argument of networks with two stages.

    Raises:
        ValueError: `channels` is not two whole numbers >= 1.

    >>> two_widths([32, 64])
    (32, 64)
    """
    if isinstance(channels, int) or len(channels) != 2:
        raise ValueError(f"channels must be two widths, got {channels!r}")
    first, second = channels
    return check_whole("channels", first), check_whole("channels", second)


class ImageNetwork(nn.Module):
    """Base of networks: images (..., C, H, W) -> (..., out); a subclass defines `make_body`.

    There may be any number of batch axes. The body turns images into feature vectors. A linear
    layer turns each into `out` numbers, such as scores of classes. Without `out` the output is the
    feature vector, an embedding. Under autocast only the body is in half precision: the last layer
    and the output are float32. Convolutions use channels-last memory, which is faster in half
    precision.

    Args:
        out: the length of the output. Default: None, which leaves it to `build`.
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.

    Attributes:
        features: the length of a feature vector; None before `build`.

    Raises:
        ValueError: out or a size is < 1, or images of this shape are too small for the body.

    >>> class Means(ImageNetwork):
    ...     def make_body(self, shape):
    ...         return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    >>> network = Means()
    >>> network.build((3, 8, 8), out=10)
    >>> network.features, network(torch.zeros(5, 3, 8, 8)).shape
    (12, torch.Size([5, 10]))
    """

    def __init__(self, out: int | None = None, shape: tuple[int, int, int] | None = None):
        super().__init__()
        if out is not None and out < 1:
            raise ValueError(f"out must be >= 1, got {out}")
        self.fixed_out = out is not None
        self.fixed_shape = shape is not None
        self.out = out
        self.shape: tuple[int, int, int] | None = None
        self.features: int | None = None
        self.body: nn.Module | None = None
        self.head: nn.Module | None = None
        if shape is not None:
            self._make(tuple(shape), out)

    def make_body(self, shape: tuple[int, int, int]) -> nn.Module:
        """Return the layers up to the features: (B, C, H, W) -> (B, features)."""
        raise NotImplementedError(f"{type(self).__name__} must define make_body")

    def build(self, shape: tuple[int, int, int], out: int | None = None) -> None:
        """Make the layers with new weights, unless they have this shape and `out` already.

        Args:
            shape: (C, H, W) of the images.
            out: the length of the output. Default: the constructor's `out`; without one, the
                features are the output.

        Raises:
            ValueError: shape or out differs from the constructor's, or as for the class.
        """
        new = tuple(shape)  # a configuration has a list
        out = self.out if out is None else out
        for name, fixed, mine, other in (
            ("out", self.fixed_out, self.out, out),
            ("shape", self.fixed_shape, self.shape, new),
        ):
            if fixed and other != mine:
                raise ValueError(
                    f"{name} must be {mine}, which the network was made with, got {other}"
                )
        if self.body is None or (new, out) != (self.shape, self.out):
            self._make(new, out)

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs (..., out) of images (..., C, H, W).

        Raises:
            ValueError: the images have another shape, or the layers do not exist yet.
        """
        if self.body is None:
            raise ValueError(
                f"shape must be given to {type(self).__name__}, or to its `build`, "
                "before it sees images, got None"
            )
        if images.shape[-3:] != self.shape or images.dim() < 3:
            raise ValueError(f"images must be (..., *{self.shape}), got {tuple(images.shape)}")
        flat = images.reshape(-1, *images.shape[-3:])
        features = self.body(flat.contiguous(memory_format=torch.channels_last))
        if features.dtype in (torch.float16, torch.bfloat16):
            features = features.float()
        with torch.autocast(images.device.type, enabled=False):
            outputs = features if self.head is None else self.head(features)
        return outputs.reshape(*images.shape[:-3], outputs.shape[-1])

    def _make(self, shape: tuple[int, ...], out: int | None) -> None:
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"shape must be (C, H, W), sizes >= 1, got {shape}")
        if out is not None and out < 1:
            raise ValueError(f"out must be >= 1, got {out}")
        body = self.make_body((shape[0], shape[1], shape[2]))
        try:
            with torch.no_grad():
                features = body.eval()(torch.zeros(1, *shape)).shape[-1]
        except RuntimeError as error:
            raise ValueError(f"shape must be of larger images, got {shape} ({error})") from error
        self.body = body.train(self.training)
        self.body.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.features = features
        self.head = None if out is None else nn.Linear(features, out)
        self.shape = (shape[0], shape[1], shape[2])
        self.out = out

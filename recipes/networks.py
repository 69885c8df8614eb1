"""Networks for images, as the papers describe them."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ltr.models import Scorer
from ltr.shapes import check_whole


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


class ImageCNN(Scorer):
    """Scores images (..., n, C, H, W) one by one: two convolutions with pools, two dense layers.

    The layers are a 5x5 convolution with 32 channels ("same" padding), ReLU and a 2x2 max pool; the
    same with 64 channels; a dense layer of width 64 with ReLU; and a dense layer of width 1.
    Weights are drawn from a normal distribution of standard deviation 0.1, truncated at two
    deviations; biases are 0.1. For four digits in a column, 112 x 28, the first dense layer has
    28 * 7 * 64 = 12,544 inputs.

    Convolutions use the channels-last layout. Under `torch.autocast` the last layer and the scores
    stay in float32.

    Args:
        shape: (C, H, W) of an image. Default: None, which leaves the layers to `build`.
        channels: channels of the two convolutions.
        hidden: width of the first dense layer.
        outputs: numbers an image. Default: 1, its score. `outputs_of` returns all of them; the
            score is the first.

    Cost: 0.26 GFLOP an image of 112 x 28, forward and backward.

    Raises:
        ValueError: the shape is not three whole numbers >= 1, or a width is < 1.

    Reference: Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the argsort
    Operator", ICML 2020, appendix A.1; Grover et al., ICLR 2019.

    >>> scorer = ImageCNN()
    >>> scorer.build((1, 112, 28))
    >>> scorer(torch.zeros(2, 5, 1, 112, 28)).shape
    torch.Size([2, 5])
    """

    item_dims = 3
    per_document = True

    def __init__(
        self,
        shape: tuple[int, int, int] | None = None,
        channels: tuple[int, int] = (32, 64),
        hidden: int = 64,
        outputs: int = 1,
    ):
        super().__init__()
        self.channels = two_widths(channels)
        self.hidden = check_whole("hidden", hidden)
        self.outputs = check_whole("outputs", outputs)
        self.fixed = shape is not None
        self.num_features: tuple[int, ...] | None = None
        self.convolutions: nn.Sequential | None = None
        self.dense: nn.Sequential | None = None
        self.last: nn.Linear | None = None
        if shape is not None:
            self._make(tuple(shape))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """(C, H, W) of the images that the layers take; None before `build`."""
        return self.num_features

    def build(self, num_features: int | tuple[int, ...]) -> None:
        """Make the layers with new weights, unless they take images of this shape already.

        Args:
            num_features: (C, H, W).

        Raises:
            ValueError: the shape is wrong, or differs from the constructor's.
        """
        shape = num_features if isinstance(num_features, int) else tuple(num_features)
        if self.num_features == shape:
            return
        if self.fixed:
            raise ValueError(
                f"num_features must be {self.num_features}, which the scorer was made with, "
                f"got {shape}"
            )
        self._make(shape)

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the first number of each image, (..., n)."""
        return self.outputs_of(features)[..., 0]

    def outputs_of(self, features: Tensor) -> Tensor:
        """Return all numbers of each image: (..., n, C, H, W) -> (..., n, outputs), >= float32.

        Raises:
            ValueError: the images have another shape, or the layers do not exist yet.
        """
        if self.convolutions is None or self.dense is None or self.last is None:
            raise ValueError(
                "shape must be given to ImageCNN, or to its `build`, before it scores, got None"
            )
        *batch, channels, height, width = features.shape
        if (channels, height, width) != self.num_features:
            raise ValueError(
                f"features must be images {self.num_features}, got {(channels, height, width)}"
            )
        images = features.reshape(-1, channels, height, width)
        images = images.contiguous(memory_format=torch.channels_last)
        # the dense layer's inputs are channels-last too, so that nothing is copied
        hidden = self.dense(self.convolutions(images).permute(0, 2, 3, 1).flatten(1))
        with torch.autocast(hidden.device.type, enabled=False):
            out = self.last(hidden.to(self.last.weight.dtype))
        return out.view(*batch, self.outputs)

    def _make(self, shape: int | tuple[int, ...]) -> None:
        if isinstance(shape, int) or len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"num_features must be an image's (C, H, W), got {shape}")
        channels, height, width = shape
        first, second = self.channels
        pooled = -(-height // 4) * -(-width // 4)
        # the pool comes before the ReLU: the same values and gradients, a quarter of the work
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, first, 5, padding=2),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),
            nn.Conv2d(first, second, 5, padding=2),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(),
        )
        self.dense = nn.Sequential(nn.Linear(second * pooled, self.hidden), nn.ReLU())
        self.last = nn.Linear(self.hidden, self.outputs)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
                nn.init.constant_(cast(Tensor, layer.bias), 0.1)
        # pyright does not know this overload
        self.convolutions.to(memory_format=torch.channels_last)  # pyright: ignore
        self.num_features = shape


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

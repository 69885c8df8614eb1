"""The convolutional network of the papers' sorting experiments."""

from typing import cast

import torch
from torch import Tensor, nn

from ltr.models.scorer import Scorer
from ltr.papers.networks.image_network import two_widths
from ltr.shapes import check_whole


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

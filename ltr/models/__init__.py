"""Scorers: `scorer(features, mask=None)`, features (..., n, *item) -> scores (..., n).

A scorer made without `num_features` takes the width of the data from `build`, which
`ltr.modules.Ranker` calls; so one configuration serves any data set.
"""

from typing import TYPE_CHECKING, Any

from ltr._names import no_attribute
from ltr.models.autoencoder import ConvAutoencoder, DenseAutoencoder, ImageAutoencoder
from ltr.models.image_cnn import ImageCNN
from ltr.models.image_network import ImageNetwork
from ltr.models.linear import LinearScorer
from ltr.models.mlp import MLPScorer
from ltr.models.mnist_cnn import MNISTCNN
from ltr.models.resnet import ResNet18
from ltr.models.scorer import FeatureScorer, Scorer
from ltr.models.vanilla_cnn import VanillaCNN

__all__ = [
    "MNISTCNN",
    "ConvAutoencoder",
    "DenseAutoencoder",
    "FeatureScorer",
    "ImageAutoencoder",
    "ImageCNN",
    "ImageNetwork",
    "LinearScorer",
    "MLPScorer",
    "ResNet18",
    "Scorer",
    "VanillaCNN",
]


if not TYPE_CHECKING:  # a type checker would take any name for right

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)

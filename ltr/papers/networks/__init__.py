"""Networks for images, as the papers' experiments use them."""

from ltr.papers.networks.autoencoder import ConvAutoencoder, DenseAutoencoder, ImageAutoencoder
from ltr.papers.networks.image_cnn import ImageCNN
from ltr.papers.networks.image_network import ImageNetwork
from ltr.papers.networks.mnist_cnn import MNISTCNN
from ltr.papers.networks.resnet import ResNet18
from ltr.papers.networks.vanilla_cnn import VanillaCNN

__all__ = [
    "MNISTCNN",
    "ConvAutoencoder",
    "DenseAutoencoder",
    "ImageAutoencoder",
    "ImageCNN",
    "ImageNetwork",
    "ResNet18",
    "VanillaCNN",
]

"""Images with classes: MNIST, Fashion-MNIST, CIFAR and scikit-learn's digits, in batches."""

from ltr.papers.images.image_data import ImageDataModule
from ltr.papers.images.images import (
    CIFAR10,
    CIFAR100,
    MNIST,
    DigitImages,
    FashionMNIST,
    Images,
    ImageSource,
    split_validation,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "DigitImages",
    "FashionMNIST",
    "ImageDataModule",
    "ImageSource",
    "Images",
    "split_validation",
]

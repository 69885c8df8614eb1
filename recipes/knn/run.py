"""Test accuracy by nearest neighbors: the differentiable ones against pixels, PCA, an autoencoder.

python -m recipes.knn.run --data.root data --only SoftSort --images MNIST --seeds 1 2 3
python -m recipes.knn.run --data.root data --overlay paper  # published scale, on a GPU
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recipes.figures import curves
from recipes.sweep import Run, Sweep, of

IMAGES = ("MNIST", "FashionMNIST", "CIFAR10")
METRICS = {"test_accuracy": "test accuracy", "seconds": "seconds of training"}
GROVER, PRILLO = "Grover et al. (2019)", "Prillo and Eisenschlos (2020)"
NOTED = f"{PRILLO}, whose code sorts with NeuralSort at temperature 1 there"
ACCURACIES = {
    "kNN on pixels": (GROVER, [0.972, 0.858, 0.354]),
    "kNN on PCA": (GROVER, [0.976, 0.859, 0.409]),
    "kNN on autoencoder": (GROVER, [0.976, 0.875, 0.442]),
    "CNN": (GROVER, [0.994, 0.934, 0.951]),
    "SoftSort": (PRILLO, [0.9937, 0.9360, 0.9203]),
    "NeuralSort": (GROVER, [0.995, 0.935, 0.907]),
    "SoftSort, stochastic": (NOTED, [0.9942, 0.9367, 0.9064]),
    "NeuralSort, stochastic": (GROVER, [0.994, 0.934, 0.895]),
}
PUBLISHED: dict[str, Any] = {GROVER: {}, PRILLO: {}, NOTED: {}}
for variant, (source, numbers) in ACCURACIES.items():
    PUBLISHED[source][variant, "test_accuracy"] = dict(zip(IMAGES, numbers, strict=True))


def options_of(variant: str, images: str, overlays: Sequence[str]) -> dict[str, Any]:
    """Return the options of a variant on a data set; config.yaml has the others."""
    cifar, paper, smoke = images == "CIFAR10", "paper" in overlays, "smoke" in overlays
    if variant.startswith("kNN on"):
        found = {"model": "recipes.knn.baselines.PixelNeighbors", "trainer.precision": "32-true"}
        if variant == "kNN on PCA":
            found["model.components"] = [5, 10, 20] if smoke else [25, 50, 100]
        if variant == "kNN on autoencoder":
            kind = "ConvAutoencoder" if cifar else "DenseAutoencoder"
            found["model"] = "recipes.knn.baselines.AutoencoderNeighbors"
            found["model.network"] = of(f"recipes.knn.autoencoder.{kind}")
            found["model.optimizer"] = of("Adam", lr=0.001, weight_decay=0.0)
            found["trainer.precision"] = "bf16-mixed" if cifar and not paper else "32-true"
        return {**found, "model.top_k": [1, 3, 5, 9], "model.weightings": ["uniform", "distance"]}
    # the published normalization and networks; the large one for Fashion-MNIST too on a GPU
    found: dict[str, Any] = (
        {"data.normalize": True} if images in ("FashionMNIST", "CIFAR10") else {}
    )
    found |= {"data.augment": True} if cifar else {}
    network = of("recipes.networks.MNISTCNN", **SMALL) if smoke else of("recipes.networks.MNISTCNN")
    if cifar or (paper and images == "FashionMNIST"):
        network = of("recipes.networks.ResNet18")
    if variant == "CNN":
        length = 200 if paper else 2 if smoke else 10
        found["model"] = "recipes.classifier.ImageClassifier"
        found["model.loss"] = "SoftmaxLoss"
        found["model.optimizer"] = of("SGD", lr=0.01, momentum=0.9, weight_decay=0.0005)
        found["model.scheduler"] = of("CosineAnnealingLR", T_max=length)
    else:
        found["model.operator"] = operator(variant)
    return {**found, "model.network": network}


SMALL = {"channels": [8, 16], "hidden": 32, "padding": 2}
"""A network for the digits of 8 x 8 pixels."""


def operator(variant: str, temperature: float | None = None) -> dict[str, Any]:
    """Return the operator that a variant is named after."""
    name, _, stochastic = variant.partition(", ")
    default = {"SoftSort": 1.0, "NeuralSort": 16.0}[name]
    found = of(name, temperature=default if temperature is None else temperature)
    shared = "recipes.knn.soft_neighbors.SharedStochastic"
    return of(shared, samples=5, operator=found) if stochastic else found


def runs(
    overlays: Sequence[str], images: Sequence[str] = IMAGES, seeds: Sequence[int] = (1,)
) -> Iterator[Run]:
    """Yield a run for each variant, data set and seed."""
    for variant in ACCURACIES:
        for name in images:
            for seed in seeds:
                options = {"data.images": f"recipes.images.{name}", "seed_everything": seed}
                options |= options_of(variant, name, overlays)
                fit = variant not in ("kNN on pixels", "kNN on PCA")
                yield Run(variant, {"images": name, "seed": seed}, options, fit)


SWEEP = Sweep(
    folder=Path(__file__).parent,
    runs=runs,
    metrics=METRICS,
    columns="images",
    published=PUBLISHED,
    epochs=200,
    figure=partial(curves, by="images"),
)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.knn.run"))

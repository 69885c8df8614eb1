"""The soft 0/1 loss, with four operators, against the cross-entropy: top-1 and top-5 accuracy.

python -m recipes.topk.run --data.root data --only cross-entropy --images CIFAR10
python -m recipes.topk.run --data.root data --overlay resnet --overlay paper  # on a GPU
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from recipes.figures import curves
from recipes.sweep import Run, Sweep, of

METRICS = {
    "test_accuracy": "top-1 accuracy",
    "test_top_5": "top-5 accuracy",
    "seconds": "seconds",
}
LOSSES = {
    "soft 0/1, SinkhornSort": {},  # config.yaml's
    "soft 0/1, SigmoidRank": {"model.loss.operator": of("SigmoidRank", temperature=1.0)},
    "soft 0/1, SoftSortRank": {"model.loss.operator": of("SoftSortRank", temperature=1.0)},
    "soft 0/1, SoftSort": {"model.loss.operator": of("SoftSort", temperature=1.0)},
    "cross-entropy": {"model.loss": "SoftmaxLoss"},
}


def runs(
    overlays: Sequence[str],
    images: Sequence[str] = ("FashionMNIST", "CIFAR10", "CIFAR100"),
    seeds: Sequence[int] = (1, 2, 3),
) -> Iterator[Run]:
    """Yield a run for each loss, data set and seed."""
    for variant, options in LOSSES.items():
        for name in images:
            for seed in seeds:
                data = {"data.images": f"recipes.images.{name}", "seed_everything": seed}
                yield Run(variant, {"images": name, "seed": seed}, {**data, **options})


FIGURE = partial(curves, by="images")
SWEEP = Sweep(Path(__file__).parent, runs, METRICS, columns="images", epochs=100, figure=FIGURE)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.topk.run"))

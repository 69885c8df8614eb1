"""Sorting handwritten numbers: the operators, and lists of 3 to 15 numbers.

python -m recipes.sort.run --data.root data/mnist --only SoftSort --n 5 9 --seeds 1 2 3
python -m recipes.sort.run --data.root data/mnist --overlay paper  # published scale, on a GPU
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recipes.figures import curves
from recipes.sweep import Run, Sweep, of

OPERATOR = "model.loss.operator"
POSITIONS, ORDERS = "test_elements_in_place", "test_perfect_order"
METRICS = {POSITIONS: "elements in place", ORDERS: "whole lists in order", "seconds": "seconds"}
PUBLISHED = {
    "Prillo and Eisenschlos (2020)": {
        ("SoftSort", POSITIONS): {3: 0.944, 5: 0.910, 7: 0.883, 9: 0.861, 15: 0.805},
        ("SoftSort, 30 epochs", POSITIONS): {3: 0.944, 5: 0.910},
        ("NeuralSort", POSITIONS): {3: 0.946, 5: 0.911, 7: 0.882, 9: 0.862, 15: 0.802},
    },
    "Cuturi et al. (2019)": {
        ("SinkhornSort", POSITIONS): {3: 0.950, 5: 0.917, 7: 0.882, 9: 0.847, 15: 0.742},
        ("SinkhornSort", ORDERS): {3: 0.928, 5: 0.811, 7: 0.656, 9: 0.497, 15: 0.126},
    },
    "the slides of Cuturi et al. (2019), with older settings": {
        ("NeuralSort", ORDERS): {3: 0.919, 5: 0.777, 7: 0.610, 9: 0.434, 15: 0.097},
        ("NeuralSort, stochastic", ORDERS): {3: 0.920, 5: 0.790, 7: 0.636, 9: 0.452, 15: 0.122},
    },
}


def variants(n: int) -> dict[str, dict[str, Any]]:
    """Return the options of each variant for lists of n numbers; config.yaml has the others."""
    temperature = 1024.0 if n < 9 else 128.0  # as published
    epsilon = 0.1 if n < 9 else 0.02  # no paper gives it; more numbers are closer on [0, 1]
    softsort, neuralsort = (of(one, temperature=temperature) for one in ("SoftSort", "NeuralSort"))
    descending = of("torch.optim.lr_scheduler.ExponentialLR", gamma=0.9)
    return {
        "SoftSort": {OPERATOR: softsort},
        "NeuralSort": {OPERATOR: neuralsort},
        "SoftSort, stochastic": {OPERATOR: of("Stochastic", samples=5, operator=softsort)},
        "NeuralSort, stochastic": {OPERATOR: of("Stochastic", samples=5, operator=neuralsort)},
        "SinkhornSort": {OPERATOR: of("SinkhornSort", epsilon=epsilon)},
        "Gumbel-Sinkhorn": {
            "model": "recipes.sort.matrix_sorter.MatrixSorter",
            "model.scorer": of("recipes.networks.ImageCNN", outputs=15),  # the first n are used
            "model.operator": of("GumbelSinkhorn", temperature=1.0, samples=5),
        },
        # shows how much more training would help the other rows
        "SoftSort, 30 epochs": {
            OPERATOR: softsort,
            "model.scheduler": descending,
            "trainer.max_epochs": 30,
        },
    }


def runs(
    overlays: Sequence[str], n: Sequence[int] = (3, 5, 7, 9, 15), seeds: Sequence[int] = (1,)
) -> Iterator[Run]:
    """Yield a run for each variant, length and seed."""
    for variant in variants(3):
        for length in n:
            for seed in seeds:
                if variant != "SoftSort, 30 epochs" or length in (3, 5):
                    options = {"data.n": length, "seed_everything": seed}
                    options |= variants(length)[variant]
                    yield Run(variant, {"n": length, "seed": seed}, options)


FOLDER, FIGURE = Path(__file__).parent, partial(curves, by="n")
SWEEP = Sweep(
    FOLDER,
    runs,
    METRICS,
    "n",
    published=PUBLISHED,
    epochs=100,
    figure=FIGURE,
    cost=lambda run: run.point["n"],
)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.sort.run"))

"""Median regression on numbers of handwritten digits: Table 2 of the SoftSort paper.

python -m recipes.quantile.run --data.root data/mnist --only SoftSort --n 5 --seeds 1 2 3
python -m recipes.quantile.run --data.root data/mnist --overlay paper  # on a GPU
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recipes.figures import curves
from recipes.sweep import Run, Sweep, of

METRICS = {
    "test_mse": "MSE",
    "test_r2": "R^2",
    "test_spearman": "Spearman",
    "test_identified": "medians identified",
    "seconds": "seconds",
}
# Table 1 of the appendix, by the number of items
TEMPERATURES = {
    "SoftSort": {5: 2048.0, 9: 2048.0, 15: 256.0},
    "NeuralSort": {5: 1024.0, 9: 512.0, 15: 1024.0},
    "SoftSort, stochastic": {5: 4096.0, 9: 2048.0, 15: 2048.0},
    "NeuralSort, stochastic": {5: 2048.0, 9: 512.0, 15: 4096.0},
}


def runs(
    overlays: Sequence[str], n: Sequence[int] = (5, 9, 15), seeds: Sequence[int] = (1,)
) -> Iterator[Run]:
    """Yield a run for each variant, length and seed."""
    for variant, temperatures in TEMPERATURES.items():
        for length in n:
            for seed in seeds:
                if length not in temperatures:
                    raise ValueError(f"n must be of {[*temperatures]}, got {length}")
                name, _, stochastic = variant.partition(", ")
                operator = of(name, temperature=temperatures[length])
                options: dict[str, Any] = {"data.n": length, "seed_everything": seed}
                if stochastic:
                    options["model.expected"] = True
                    operator = of("Stochastic", samples=5, operator=operator)
                options["model.operator"] = operator
                yield Run(variant, {"n": length, "seed": seed}, options)


FIGURE = partial(curves, by="n")
SWEEP = Sweep(
    Path(__file__).parent,
    runs,
    METRICS,
    columns="n",
    epochs=100,
    figure=FIGURE,
    cost=lambda run: run.point["n"],
)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.quantile.run"))

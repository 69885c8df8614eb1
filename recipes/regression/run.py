"""Trimmed and least-quantile regression against Huber's and least squares, by share of outliers.

    python -m recipes.regression.run
    python -m recipes.regression.run --outliers 0.3 --seeds 1 2 --overlay paper

The errors are those of test labels, which have no outliers.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from recipes.regression.figure import errors_by_share
from recipes.sweep import Run, Sweep, of

METRICS = {
    "test_mae": "mean absolute error",
    "test_median_absolute_error": "median absolute error",
    "test_rmse": "root mean squared error",
    "test_r2": "R^2",
    "seconds": "seconds",
}
LOSSES = {
    "trimmed squares": {},  # config.yaml's
    "least median": {
        "model.loss": of(
            "recipes.regression.losses.LeastQuantileRegression",
            operator=of("SoftSort", temperature=3.0),
        )
    },
    "Huber": {"model.loss": "PointwiseHuber"},
    "least squares": {"model.loss": "PointwiseMSE"},
}


def runs(
    overlays: Sequence[str],
    outliers: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
) -> Iterator[Run]:
    """Yield a run for each loss, share of outliers and division of the data."""
    for variant, options in LOSSES.items():
        for share in outliers:
            for seed in seeds:
                data = {"data.outliers": share, "data.seed": seed}
                yield Run(variant, {"outliers": share, "seed": seed}, {**data, **options})


SWEEP = Sweep(Path(__file__).parent, runs, METRICS, columns="outliers", figure=errors_by_share)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.regression.run"))

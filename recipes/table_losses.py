"""Three losses and three transforms of the recipe `table` on LightGBM's example.

python -m recipes.table_losses --data.path data/rank.train --data.test_path data/rank.test
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ltr.cli import find_configs
from recipes.sweep import Run, Sweep, of

METRICS = {
    "val_ndcg_10": "NDCG@10, validation lists",
    "test_ndcg_10": "NDCG@10",
    "test_mrr": "MRR",
    "seconds": "seconds",
}
LOSSES: dict[str, dict[str, Any]] = {
    "SoftNDCG": {"model.loss": of("SoftNDCG")},
    "softmax": {"model.loss": of("ListNet")},
    "XENDCG": {"model.loss": of("XENDCG", gamma="random")},
}
FEATURES: dict[str, dict[str, Any]] = {
    "bins, thresholds, standardized": {},
    "8 bins": {"data.transform.features": of("PiecewiseLinearBins")},
    "standardized": {"data.transform.features": of("Standardize")},
}


def runs(overlays: Sequence[str], seeds: Sequence[int] = (1, 2)) -> Iterator[Run]:
    """Yield a run for each loss, transform and seed; all split the queries by the same seed."""
    for variant, loss in LOSSES.items():
        for features, transform in FEATURES.items():
            for seed in seeds:
                options = {"data.seed": 0, "seed_everything": seed, **loss, **transform}
                yield Run(variant, {"features": features, "seed": seed}, options)


FILES, _ = find_configs(["table"])  # the recipe that comes with ltr
SWEEP = Sweep(FILES[0].parent, runs, METRICS, columns="features")

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.table_losses"))

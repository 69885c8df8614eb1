"""NDCG@10 on validation lists by the temperature and the cut of SoftNDCG.

    LTR_DATA=... python benchmarks/soft_ndcg.py

One network, as in the recipe letor: piecewise-linear bins, an MLP of 128-64, AdamW; batches of 16
lists. The value is that of the best epoch, as early stopping chooses it: a mean over folds and
seeds. The data sets are folders of `LTR_DATA`, with folders Fold1, Fold2, ...
"""

import argparse
import logging
import os
import statistics
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping
from measure import RESULTS, environment, write

from ltr.datasets import LetorDataModule, PiecewiseLinearBins, TableTransform
from ltr.losses import RankingLoss, SoftmaxLoss, SoftNDCG
from ltr.metrics import NDCG
from ltr.models import MLPScorer
from ltr.modules import CheckTemperature, MoveCutoff, Ranker
from ltr.operators import SigmoidRank

ROWS: dict[str, tuple[RankingLoss, float, int]] = {
    "SoftmaxLoss(), learning rate 0.001": (SoftmaxLoss(), 1e-3, 0),
    "SoftNDCG()": (SoftNDCG(), 3e-3, 0),
    "temperature 1": (SoftNDCG(SigmoidRank(1.0)), 3e-3, 0),
    "temperature 1, learning rate 0.001": (SoftNDCG(SigmoidRank(1.0)), 1e-3, 0),
    "top_k=10, the cut moves in": (SoftNDCG(top_k=10), 3e-3, 40),
    "top_k=10, the cut from the start": (SoftNDCG(top_k=10), 3e-3, 0),
}
"""Loss, learning rate, and the steps before the cut has arrived."""


class Best(Callback):
    """Keeps the largest NDCG@10 of the validations."""

    value = 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the value of this epoch."""
        self.value = max(self.value, float(trainer.callback_metrics["val_ndcg_10"]))


def fit(folder: Path, fold: int, seed: int, loss: RankingLoss, rate: float, steps: int) -> float:
    """Train, and return the best NDCG@10 on the validation lists."""
    seed_everything(seed, verbose=False)
    transform = TableTransform(PiecewiseLinearBins())
    data = LetorDataModule(folder, fold, batch_size=16, transform=transform, seed=seed)
    ranker = Ranker(
        MLPScorer(hidden=(128, 64)),
        loss,
        {"ndcg_10": NDCG(top_k=10)},
        partial(torch.optim.AdamW, lr=rate),
    )
    best = Best()
    stop: Any = EarlyStopping("val_ndcg_10", mode="max", patience=12)
    trainer = Trainer(
        max_epochs=60,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[best, stop, MoveCutoff(steps), CheckTemperature()],
    )
    trainer.fit(ranker, data)
    return best.value


def main() -> None:
    """Train all rows and write the results."""
    parser = argparse.ArgumentParser(description="Compare temperatures and cuts of SoftNDCG.")
    parser.add_argument("--data", type=Path, default=os.environ.get("LTR_DATA", "data"))
    parser.add_argument("--sets", nargs="+", default=["OHSUMED", "MQ2008"])
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path, default=RESULTS / "soft_ndcg.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, list[float]]] = {name: {} for name in ROWS}
    for data in options.sets:
        for name, (loss, rate, steps) in ROWS.items():
            runs = [(fold, seed) for fold in options.folds for seed in options.seeds]
            values = [fit(options.data / data, *run, loss, rate, steps) for run in runs]
            found[name][data] = [round(value, 4) for value in values]
            print(f"{data}: {name}: {statistics.mean(values):.4f}", flush=True)
    shape = {"folds": options.folds, "seeds": options.seeds}
    write(options.output, {"environment": environment(), **shape, "rows": found})


if __name__ == "__main__":
    main()

"""Rank images of handwritten digits by their digit: a first ranker, without a download.

    python examples/digits.py --output runs/digits

Each list has images and, for each image, a grade: the digit times a factor that is drawn for the
list, as where lists are judged by different people. A grade of 3 may be a three or an eight, so
only the order inside a list says anything. A loss on whole lists learns from that order; a loss on
single images has to guess the factor. The same network is trained on both.
"""

import argparse
import logging
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from matplotlib.figure import Figure

from ltr.datasets import DigitsDataModule
from ltr.losses import PointwiseMSE, RankingLoss, SoftNDCG
from ltr.metrics import NDCG, ExactMatch, KendallTau
from ltr.models import MLPScorer
from ltr.modules import Ranker
from ltr.operators import SoftSort

# a gain that is linear: with the usual 2^label, little but the nines would count
LOSSES: dict[str, RankingLoss] = {
    "SoftNDCG": SoftNDCG(SoftSort(temperature=2.0), gain="linear", mean="arithmetic"),
    "pointwise MSE": PointwiseMSE(),
}
METRICS = {
    "ndcg_1": NDCG(top_k=1, gain="linear"),
    "ndcg_5": NDCG(top_k=5, gain="linear"),
    "ndcg_10": NDCG(top_k=10, gain="linear"),
    "kendall_tau": KendallTau(),
    "perfect_order": ExactMatch(),
}


def make_ranker(loss: RankingLoss) -> Ranker:
    """Return a network that scores an image by itself, with the loss that trains it."""
    seed_everything(1, verbose=False)
    scorer = MLPScorer(hidden=[256, 128], dropout=0.3, norm=True)
    return Ranker(scorer, loss, METRICS, optimizer=partial(torch.optim.AdamW, lr=0.002))


def train(data: DigitsDataModule, loss: RankingLoss, folder: Path, epochs: int) -> Ranker:
    """Train a network, and return it with the weights that were best on the validation lists."""
    best = ModelCheckpoint(folder, "best", "val_ndcg_10", mode="max", enable_version_counter=False)
    stop = EarlyStopping("val_ndcg_10", mode="max", patience=10)
    ranker = make_ranker(loss)
    trainer(epochs, [best, stop]).fit(ranker, datamodule=data)
    ranker.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
    return ranker


def trainer(epochs: int = 1, callbacks: Any = None) -> Trainer:
    """Return Lightning's Trainer, without its messages."""
    return Trainer(
        max_epochs=epochs, callbacks=callbacks, accelerator="cpu", logger=False,
        enable_checkpointing=callbacks is not None, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip


def draw(data: DigitsDataModule, ranker: Ranker, path: Path, lists: int = 4) -> None:
    """Draw test lists as they come, and below each as it is ranked; red marks a wrong order."""
    shown = [data.splits["test"][i] for i in range(lists)]
    figure = Figure(figsize=(9, 1.25 * lists + 0.5), layout="constrained")
    grid = figure.subplots(2 * lists, len(shown[0]["labels"]), squeeze=False)
    for number, one in enumerate(shown):
        with torch.no_grad():
            order = ranker.eval()(one["features"]).argsort(descending=True)
        for row, items in ((2 * number, torch.arange(len(order))), (2 * number + 1, order)):
            labels = one["labels"][items]
            for i, axes in enumerate(grid[row]):
                axes.imshow(one["features"][items[i]].view(8, 8).numpy(), cmap="gray_r")
                axes.set(xticks=[], yticks=[])
                wrong = bool((labels[i + 1 :] > labels[i]).any())
                axes.set_xlabel(f"{labels[i]:.3g}", color="red" if wrong else "black", labelpad=1)
    figure.suptitle(
        "test lists: unranked, and below ranked (red: a higher grade stands to the right)"
    )
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> pd.DataFrame:
    """Train both, print and write the table of their test metrics, and draw the picture."""
    parser = argparse.ArgumentParser(description="Rank images of handwritten digits.")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/digits"), help="folder to write to"
    )
    parser.add_argument("--epochs", type=int, default=40, help="the most epochs of a training")
    parser.add_argument("--lists", type=int, default=2000, help="lists to train on")
    given = parser.parse_args(argv)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for known in (".*does not have many workers.*", ".*LeafSpec.*"):  # of Lightning
        warnings.filterwarnings("ignore", known)
    data = DigitsDataModule(list_size=12, scale=100.0, train_lists=given.lists, batch_size=32)
    rankers = {"before training": make_ranker(LOSSES["SoftNDCG"])}
    for name, loss in LOSSES.items():
        print(f"training on {name}")
        rankers[name] = train(data, loss, given.output / name.replace(" ", "-"), given.epochs)
    rows = {name: trainer().test(one, data, verbose=False)[0] for name, one in rankers.items()}
    columns = [f"test_{name}" for name in METRICS]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    print(table.round(4).to_string())
    table.to_csv(given.output / "table.csv")
    draw(data, rankers["SoftNDCG"], given.output / "digits.png")
    print(f"wrote {given.output / 'table.csv'}, drew {given.output / 'digits.png'}")
    return table


if __name__ == "__main__":
    main()

"""An epoch of `ltr fit` beside a bare loop over the same layers, in documents per second.

    python benchmarks/training.py

The table of the recipe `table` is drawn: lists of 20 to 220 documents with 136 features, in batches
of 64. `ltr fit` trains with `SoftNDCG(SigmoidRank())`: loader, transform, scorer, loss, optimizer
and Lightning. The bare loop has the same layers and optimizer, a squared error for the loss, and
the documents packed one after the other in memory, in batches of as many documents. An epoch of one
and an epoch of the other take turns. Time is CPU time, and does not include validation and
checkpoints. The ratio is the median over the epochs after the first.

"default" layers have layer norm and dropout; "plain" ones have neither.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from measure import RESULTS, environment, rounded, write
from torch.nn.functional import mse_loss

from ltr.cli import main as ltr

GOAL = 0.85
FEATURES = 136
WIDTHS = ([512, 256, 128], [128, 64])
LAYERS = {"default": (True, 0.1), "plain": (False, 0.0)}  # layer norm, dropout


class BesideBare(Callback):
    """Runs an epoch of the bare loop before each of the Trainer's, and times both.

    Args:
        output: the file for the seconds, JSON.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.seconds: dict[str, list[float]] = {"fit": [], "bare": []}
        self.started: float | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the layers, and pack the documents."""
        self.layers: Any = copy.deepcopy(pl_module.scorer.layers)
        self.optimizer = torch.optim.AdamW(self.layers.parameters())
        data = trainer.datamodule.splits["train"]  # type: ignore[attr-defined]
        self.data = torch.from_numpy(data.features), torch.from_numpy(data.labels)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Run the bare loop, and start the clock."""
        batches = int(trainer.num_training_batches)
        start = time.process_time()
        for features, labels in zip(*(x.chunk(batches) for x in self.data), strict=True):
            self.optimizer.zero_grad()
            mse_loss(self.layers(features).squeeze(-1), labels).backward()
            self.optimizer.step()
        self.started = time.process_time()
        self.seconds["bare"].append(self.started - start)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock: validation follows the last batch of an epoch."""
        if self.started is not None:
            self.seconds["fit"].append(time.process_time() - self.started)
            self.started = None

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the seconds."""
        Path(self.output).write_text(json.dumps(self.seconds))


def table(lists: int, seed: int) -> pa.Table:
    """Return lists of 20 to 220 documents."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(20, 221, lists)
    features = draw.normal(size=(lengths.sum(), FEATURES)).astype(np.float32)
    columns = {f"f{i}": features[:, i] for i in range(FEATURES)}
    labels = draw.integers(0, 5, lengths.sum())
    return pa.table({"query": np.repeat(np.arange(lists), lengths), "label": labels, **columns})


def fit(folder: Path, hidden: list[int], norm: bool, dropout: float, epochs: int) -> dict[str, Any]:
    """Run `ltr fit`, and return the seconds of the epochs."""
    options = {
        "config": "table",
        "data.path": folder / "train.parquet",
        "data.val_path": folder / "val.parquet",
        "data.qid": "query",
        "data.label": "label",
        "data.transform": "TableTransform",
        "data.transform.features": "Standardize",  # as many numbers as features, for both loops
        "model.scorer.hidden": hidden,
        "model.scorer.norm": str(norm).lower(),
        "model.scorer.dropout": dropout,
        "model.loss": "SoftNDCG",
        "model.loss.operator": "SigmoidRank",
        "trainer.max_epochs": epochs,
        "trainer.default_root_dir": folder / "runs",
        "trainer.callbacks+": "training.BesideBare",
        "trainer.callbacks.output": folder / "seconds.json",
    }
    if code := ltr(
        ["fit", *(str(x) for name, value in options.items() for x in (f"--{name}", value))]
    ):
        raise SystemExit(code)
    return json.loads((folder / "seconds.json").read_text())


def main() -> None:
    """Measure all layers and write the results."""
    parser = argparse.ArgumentParser(description="Time an epoch of ltr fit beside a bare loop.")
    parser.add_argument("--lists", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=8, help=">= 2; the first does not count")
    parser.add_argument("--hidden", type=int, nargs="+", help="widths; default: both of the goal")
    parser.add_argument("--output", type=Path, default=RESULTS / "training.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder, train = Path(name), table(options.lists, 0)
        pq.write_table(train, folder / "train.parquet")
        pq.write_table(table(2, 1), folder / "val.parquet")
        for hidden in [options.hidden] if options.hidden else WIDTHS:
            for layers, (norm, dropout) in LAYERS.items():
                seconds = fit(folder, hidden, norm, dropout, options.epochs)
                turns = zip(seconds["bare"][1:], seconds["fit"][1:], strict=True)
                ratio = statistics.median(bare / own for bare, own in turns)
                speed = {
                    name: rounded(train.num_rows / statistics.median(values[1:]))
                    for name, values in seconds.items()
                }
                row = {"hidden": hidden, "layers": layers, "documents_per_second": speed}
                rows.append({**row, "ratio": rounded(ratio)})
                print(f"{hidden}, {layers} layers: {ratio:.2f} of the bare loop's speed")
    shape = {"lists": options.lists, "documents": train.num_rows, "features": FEATURES}
    result = {"environment": environment(), **shape, "goal": GOAL, "rows": rows}
    write(options.output, result)


if __name__ == "__main__":
    main()

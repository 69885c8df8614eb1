"""Models other than `Ranker`: short names, their own monitor, what they cannot do."""

from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

OWN = """\
import torch
from lightning.pytorch import LightningModule

class OneWeight(LightningModule):
    def __init__(self, lr: float = 0.01):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)
        self.lr = lr

    def error(self, batch):
        values = self.layer(batch["features"]).squeeze(-1)
        return ((values - batch["labels"]) ** 2).mean()

    def training_step(self, batch, batch_idx):
        return self.error(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_mse", self.error(batch), batch_size=2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)
"""

MONITOR = ["--best_checkpoint.monitor", "val_mse", "--best_checkpoint.mode", "min"]
MONITOR += ["--early_stopping.monitor", "val_mse", "--early_stopping.mode", "min"]


@pytest.fixture
def own(ltr):
    """A configuration of a module that is no `Ranker`."""
    Path("own_loss.py").write_text(OWN)
    config = yaml.safe_load(Path("tiny.yaml").read_text())
    config["model"] = {"class_path": "own_loss.OneWeight"}
    Path("own.yaml").write_text(yaml.safe_dump(config))
    return ["--config", "own.yaml"]


def test_its_own_monitor_chooses_the_best(ltr, own):
    answer = ltr("fit", *own, *MONITOR)
    assert answer.code == 0, answer.err
    assert "best val_mse: " in answer.out
    assert "epoch 2  val_mse " in answer.out
    states = torch.load("runs/own/1/checkpoints/best.ckpt")["callbacks"]
    (best,) = (state for key, state in states.items() if "BestCheckpoint" in key)
    assert best["best"] > 0


def test_it_resumes_with_a_transform_of_the_data(ltr, own):
    """Of the data module's arguments a checkpoint keeps the seed, which needs no pickle."""
    assert ltr("fit", *own, *MONITOR, "--data.transform", "Standardize").code == 0
    again = ["--data.transform", "Standardize", "--trainer.max_epochs", 3, "--ckpt_path", "last"]
    answer = ltr("fit", *own, *MONITOR, *again)
    assert answer.code == 0, answer.err


def test_a_monitor_that_it_does_not_log(ltr, own):
    answer = ltr("fit", *own, "--early_stopping.patience", "null")
    assert answer.code == 2
    assert "could not find the monitored key" in answer.err.splitlines()[-1]
    assert "val_mse" in answer.err.splitlines()[-1]


@pytest.mark.parametrize("kind", ["modules", "datasets", "models", "losses", "operators"])
def test_every_public_class_has_a_short_name(kind):
    import_module("ltr.cli.lightning_cli")
    exported = import_module(f"ltr.{kind}").__all__
    loaded = vars(import_module(f"ltr.{kind}"))
    assert set(exported) <= set(loaded)

"""`BestCheckpoint` keeps the weights with the best value, and its state is that value alone."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from ltr.datasets import DigitsDataModule
from ltr.models import MLPScorer, RankingModel
from ltr.modules import BestCheckpoint, Ranker

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*exists and is not empty.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
)
NAN = math.nan


class Counter(LightningModule):
    """Its weight is the number of training steps; validation number i logs `values[i]`."""

    def __init__(self, values: list[float]):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.values = values
        self.validations = 0

    def training_step(self, batch, batch_idx):
        return self.weight

    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking:
            self.log("value", self.values[self.validations])

    def on_validation_epoch_end(self):
        self.validations += not self.trainer.sanity_checking

    def test_step(self, batch, batch_idx):
        self.log("steps", -self.weight)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def loader() -> DataLoader[Any]:
    return DataLoader(torch.zeros(2, 1), batch_size=1)  # pyright: ignore[reportArgumentType]


def train(
    folder: Path, best: BestCheckpoint, values: list[float], epochs: int, **options: Any
) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        max_epochs=epochs,
        callbacks=[best],
        log_every_n_steps=1,
        **quiet,
        **options,
    )
    trainer.fit(Counter(values), loader(), loader())
    return trainer


@pytest.mark.parametrize(
    ("mode", "values", "score", "epoch"),
    [
        ("max", [0.5, 0.25, 0.75, 0.75], 0.75, 3),
        ("min", [0.5, 0.25, 0.75, 0.25], 0.25, 2),
        ("max", [NAN, 0.5, NAN, 0.25], 0.5, 2),
        ("min", [NAN, NAN, NAN, 7.0], 7.0, 4),
        ("max", [NAN, NAN, NAN, NAN], -math.inf, 1),
    ],
)
def test_the_best_value(tmp_path: Path, mode: Any, values: list[float], score: float, epoch: int):
    best = BestCheckpoint("value", mode)
    trainer = train(tmp_path, best, values, 4)
    assert best.best_model_score == score
    assert best.best_model_path == str(tmp_path.resolve() / "checkpoints" / "best.ckpt")
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["best.ckpt"]
    content = torch.load(best.best_model_path)
    assert content["state_dict"]["weight"] == -2 * epoch
    assert content["callbacks"] == {best.state_key: {"best": score}}
    if mode == "max":
        found = trainer.test(dataloaders=loader(), ckpt_path="best", verbose=False)
        assert found == [{"steps": 2.0 * epoch}]


def test_each_validation_counts(tmp_path: Path):
    best = BestCheckpoint("value", "max")
    train(tmp_path, best, [0.25, 0.5, 0.75, 0.5], 2, val_check_interval=0.5)
    assert torch.load(best.best_model_path)["global_step"] == 3


def test_without_validation_it_says_that_nothing_is_kept(tmp_path: Path):
    best = BestCheckpoint("value", "max")
    with pytest.warns(UserWarning, match="monitor='value'"):
        train(tmp_path, best, [], 1, limit_val_batches=0)
    assert best.best_model_path == ""
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()


def test_a_value_that_is_not_logged(tmp_path: Path):
    with pytest.raises(MisconfigurationException, match=r"'valeu'.*'value'"):
        train(tmp_path, BestCheckpoint("valeu", "max"), [1.0], 1)


@pytest.mark.parametrize("there", [True, False])
def test_a_restored_value_counts_with_its_file_alone(tmp_path: Path, there: bool):
    """A path in the state would be followed nowhere: there is none."""
    file = tmp_path / "checkpoints" / "best.ckpt"
    file.parent.mkdir()
    if there:
        file.write_text("")
    best, trainer = BestCheckpoint("value"), Trainer(default_root_dir=tmp_path, logger=False)
    best.setup(trainer, Counter([]), "fit")
    best.load_state_dict({"best": 0.1, "best_model_path": "/etc/passwd"})
    assert best.best_model_score == (0.1 if there else None)
    assert best.best_model_path == (str(file.resolve()) if there else "")
    assert best.state_dict() == {"best": 0.1 if there else None}


def test_the_last_epoch_may_count_as_the_best(tmp_path: Path):
    best = BestCheckpoint("epoch")
    train(tmp_path, best, [0.5, 0.25, 0.125], epochs=3)
    assert best.best_model_score == 2
    assert torch.load(best.best_model_path)["epoch"] == 2


def test_the_model_of_a_ranker_is_that_of_its_best_epoch(tmp_path: Path):
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    best = BestCheckpoint("epoch", "min")
    fit = Trainer(
        accelerator="cpu", default_root_dir=tmp_path, max_epochs=3, callbacks=[best], **quiet
    )
    ranker = Ranker(MLPScorer(hidden=(4,)))
    data = DigitsDataModule(list_size=5, train_lists=8, val_lists=2, test_lists=2, batch_size=4)
    fit.fit(ranker, data)
    loaded = RankingModel.load(tmp_path / "model")
    features = data.splits["test"][0]["features"]
    assert not torch.equal(loaded(features), ranker.eval()(features))
    state = torch.load(best.best_model_path, weights_only=True)
    assert state["epoch"] == 0
    ranker.load_state_dict(state["state_dict"])
    assert torch.equal(loaded(features), ranker.eval()(features))

"""A run resumed at the end of an epoch has exactly the lists of an uninterrupted run."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from ltr.datasets import DigitsDataModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:Checkpoint directory .* exists and is not empty",
)

LISTS, BATCH, EPOCHS = 22, 4, 4  # 6 batches an epoch, the last of 2 lists
STEPS = 6


class Recorder(LightningModule):
    """One weight, and a note of every batch: (epoch, batch index, qids, a random number)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[tuple[int, int, tuple[str, ...]]] = []

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch_idx, tuple(batch["qid"])))
        return self.weight * batch["features"].sum()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class KilledError(Exception):
    pass


class Kill(Callback):
    """Stops the run in a hook of a certain step, after saving or not."""

    def __init__(self, step: int, hook: str = "on_train_batch_end", save: Path | None = None):
        self.step, self.save = step, save
        setattr(self, hook, self.strike)

    def strike(self, trainer, *args):
        if trainer.global_step == self.step and not trainer.sanity_checking:
            if self.save is not None:
                trainer.save_checkpoint(self.save)
            raise KilledError


def digits(num_workers: int = 0, batch_size: int = BATCH) -> DigitsDataModule:
    return DigitsDataModule(
        list_size=3,
        train_lists=LISTS,
        val_lists=5,
        test_lists=5,
        batch_size=batch_size,
        num_workers=num_workers,
        seed=3,
    )


def fit(tmp_path: Path, *callbacks: Callback, resume: Path | None = None, data=None, **options):
    model = Recorder()
    trainer = Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": EPOCHS,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
            "callbacks": list(callbacks),
            "default_root_dir": tmp_path,
            **options,
        }
    )
    try:
        trainer.fit(model, datamodule=data or digits(), ckpt_path=resume)
    except KilledError:
        assert resume is None
    return model.seen


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    seen = fit(tmp_path_factory.mktemp("unbroken"))
    assert [(e, b) for e, b, _ in seen] == [(e, b) for e in range(EPOCHS) for b in range(STEPS)]
    orders = []
    for epoch in range(EPOCHS):
        qids = [qid for e, _, batch in seen if e == epoch for qid in batch]
        assert sorted(qids) == sorted(f"digits-train-{i}" for i in range(LISTS))
        orders.append(tuple(qids))
    assert len(set(orders)) == EPOCHS
    return seen


def test_shuffling_depends_on_the_seed_alone(tmp_path: Path, unbroken):
    torch.manual_seed(99)
    assert fit(tmp_path) == unbroken
    other = digits()
    other.seed = 4
    assert fit(tmp_path, data=other) != unbroken


@pytest.mark.parametrize("hook", ["on_validation_end", "on_train_epoch_end"])
@pytest.mark.parametrize("step", [6, 12])
def test_saved_at_the_end_of_an_epoch(tmp_path: Path, unbroken, step: int, hook: str):
    file = tmp_path / "killed.ckpt"
    before = fit(tmp_path, Kill(step, hook=hook, save=file))
    after = fit(tmp_path, resume=file)
    assert before + after == unbroken


def test_limited_epochs(tmp_path: Path):
    options = {"limit_train_batches": 2}
    whole = fit(tmp_path, **options)
    assert len({qids for _, _, qids in whole}) == 2 * EPOCHS  # each epoch has an order of its own
    file = tmp_path / "killed.ckpt"
    before = fit(tmp_path, Kill(4, hook="on_train_epoch_end", save=file), **options)
    assert before + fit(tmp_path, resume=file, **options) == whole


def test_with_workers(tmp_path: Path, unbroken):
    file = tmp_path / "killed.ckpt"
    kill = Kill(12, hook="on_train_epoch_end", save=file)
    before = fit(tmp_path, kill, data=digits(num_workers=1))
    assert before + fit(tmp_path, resume=file, data=digits(num_workers=1)) == unbroken


def test_loading_draws_nothing_from_the_global_generator(unbroken):
    data = digits()
    data.setup("fit")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.val_dataloader()):
        list(loader)
    assert torch.equal(torch.get_rng_state(), before)

"""A run killed and resumed at the end of an epoch ends at the weights of an unbroken one."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from ltr.datasets import DigitsDataModule, Standardize
from ltr.losses import SoftNDCG
from ltr.models import MLPScorer
from ltr.modules import Ranker, SeedSteps
from ltr.operators import SoftSort

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)

STEPS, EPOCHS = 11, 3  # 11 batches an epoch, the last one smaller
KILLED_AT = 17  # the sixth batch of the second epoch; the last checkpoint is of step 11


class NoisySoftSort(SoftSort):
    """Gumbel noise on the scores in training: a random loss too, not only dropout."""

    def permutation(self, scores, mask=None, weights=None):
        if self.training:
            scores = scores - 0.1 * torch.empty_like(scores).exponential_().log()
        return super().permutation(scores, mask, weights)


class Kill(Callback):
    """The process ends without a word, as for want of memory."""

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def run(
    folder: Path,
    *callbacks: Callback,
    ckpt_path: str | Path | None = None,
    seed: int = 11,
    **options: Any,
) -> dict[str, Any]:
    """Train on shuffled lists, with dropout; what is in the last checkpoint."""
    torch.set_num_threads(1)
    seed_everything(seed)
    ranker = Ranker(
        MLPScorer(hidden=(16, 8), dropout=0.3),
        SoftNDCG(NoisySoftSort(0.5)),
        optimizer=partial(torch.optim.AdamW, lr=1e-2),
        scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.7),
    )
    data = DigitsDataModule(
        list_size=4,
        train_lists=STEPS * 4 - 1,
        val_lists=6,
        test_lists=1,
        batch_size=4,
        transform=Standardize(),
    )
    saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1, save_last=True)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=[saver, *callbacks],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(ranker, data, ckpt_path=ckpt_path)
    trainer.save_checkpoint(folder / "end.ckpt")
    return torch.load(folder / "end.ckpt")


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        assert one == other


def assert_same_training(one: dict[str, Any], other: dict[str, Any]) -> None:
    for key in ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers"):
        assert_equal(one[key], other[key])


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("unbroken")
    end = run(folder)
    assert end["global_step"] == STEPS * EPOCHS
    return folder, end


@pytest.mark.slow  # a fresh process imports Lightning, to be killed; the tests below resume
def test_killed_and_resumed(tmp_path: Path, unbroken: tuple[Path, dict[str, Any]]):
    killed = subprocess.run([sys.executable, __file__, tmp_path], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert torch.load(tmp_path / "last.ckpt")["global_step"] == STEPS
    resumed = run(tmp_path, ckpt_path="last", seed=99)  # a seed of no effect
    assert_same_training(resumed, unbroken[1])


@pytest.mark.parametrize("step", [11, 33])  # in the middle, and at the end
def test_resumed_from_any_checkpoint(
    tmp_path: Path, unbroken: tuple[Path, dict[str, Any]], step: int
):
    folder, end = unbroken
    [file] = folder.glob(f"*step={step}.ckpt")
    assert_same_training(run(tmp_path, ckpt_path=file), end)


@pytest.mark.parametrize("options", [{"limit_val_batches": 0}, {"val_check_interval": 4}])
def test_validation_does_not_touch_the_training(
    tmp_path: Path, unbroken: tuple[Path, dict[str, Any]], options: dict[str, Any]
):
    assert_equal(run(tmp_path, **options)["state_dict"], unbroken[1]["state_dict"])


def test_the_seed_matters(tmp_path: Path, unbroken: tuple[Path, dict[str, Any]]):
    assert_equal(run(tmp_path, SeedSteps(11))["state_dict"], unbroken[1]["state_dict"])
    other = run(tmp_path, SeedSteps(12))["state_dict"]
    assert not torch.equal(
        other["scorer.layers.0.weight"], unbroken[1]["state_dict"]["scorer.layers.0.weight"]
    )


def test_each_batch_has_its_own_random_numbers(tmp_path: Path):
    drawn: dict[tuple[str, int, int], float] = {}

    class Draw(Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            drawn["train", trainer.current_epoch, trainer.global_step] = torch.rand(()).item()

        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, *args):
            drawn["val", trainer.current_epoch, batch_idx] = torch.rand(()).item()

    run(tmp_path, Draw(), num_sanity_val_steps=0)
    assert len(drawn) == STEPS * EPOCHS + 2 * EPOCHS
    assert len(set(drawn.values())) == len(drawn)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Kill())

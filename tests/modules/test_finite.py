"""Training that goes wrong stops at that step, says where, and leaves the last good checkpoint."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from ltr.datasets import DigitsDataModule, ListDataset, collate_lists, collate_ragged
from ltr.losses import PointwiseMSE, RankingLoss, SoftNDCG
from ltr.models import MLPScorer, Scorer
from ltr.modules import CheckFinite, Ranker
from ltr.training.finite import not_finite
from recipes.speed.random_scores import RandomScoresDataModule
from recipes.speed.task import SpeedTask

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
    "ignore:.*have no `val_dataloader`.*",
)


def fit(folder: Path, ranker: LightningModule, *callbacks: Callback, **options: Any) -> Trainer:
    seed_everything(3)
    data = DigitsDataModule(list_size=4, train_lists=16, val_lists=4, test_lists=1, batch_size=4)
    data = options.pop("data", data)
    trainer = Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": 3,
            "callbacks": list(callbacks),
            "logger": False,
            "enable_checkpointing": bool(callbacks),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
            **options,
        }
    )
    trainer.fit(ranker, data)
    return trainer


def lists(qids: bool = True, collate_fn: Any = collate_lists):
    """Three batches of two lists; list e, in the last batch, has a feature of 1e30."""
    features = torch.ones(12, 3)
    features[8, 1] = 1e30
    labels = [0.0, 1.0] * 6
    data = ListDataset.from_arrays(features, labels, [q for q in "abcdef" for _ in range(2)])

    def collate(items):
        batch = collate_fn(items)
        return batch if qids else {k: v for k, v in batch.items() if k != "qid"}

    return torch.utils.data.DataLoader(data, batch_size=2, collate_fn=collate)


class Squares(Scorer):
    """Overflows for features from 1e20."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        nn.init.ones_(self.layer.weight)

    def score(self, features, mask):
        return self.layer(features).squeeze(-1) ** 2


class BadGradient(RankingLoss):
    """A finite loss whose gradient is NaN once a score is above 1e6."""

    def per_list(self, scores, labels, mask, weights):
        if (scores > 1e6).any():
            scores = (scores - scores).sqrt()  # its slope at 0 is infinite
        return ((scores - labels).clamp(-1, 1) ** 2).sum(-1)


def first_batch_last(folder: Path, ranker: Ranker, **options: Any) -> str:
    loader = lists(options.pop("qids", True), options.pop("collate_fn", collate_lists))
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        log_every_n_steps=1,
        **options,
    )
    with pytest.raises(ValueError, match="must be finite") as caught:
        trainer.fit(ranker, loader)
    assert trainer.global_step == 2  # the optimizer did not step
    return str(caught.value)


@pytest.mark.parametrize("collate_fn", [collate_lists, collate_ragged])
def test_the_message_names_epoch_batch_and_lists(tmp_path: Path, collate_fn: Any):
    said = first_batch_last(tmp_path, Ranker(Squares(), PointwiseMSE()), collate_fn=collate_fn)
    assert said == (
        "loss must be finite, got inf in epoch 1, batch 3 (qid e, f): "
        "if training diverged, a smaller learning rate helps"
    )
    assert not list(tmp_path.iterdir())


def test_lists_without_names(tmp_path: Path):
    said = first_batch_last(tmp_path, Ranker(Squares(), PointwiseMSE()), qids=False)
    assert "in epoch 1, batch 3: if" in said


def test_the_message_leaves_out_lists_that_fill_the_batch_and_many_names():
    batch = {"qid": [*"abcdefg"], "lengths": torch.tensor([1, 0, 1, 1, 1, 1, 1])}
    said = str(not_finite(torch.tensor(torch.nan), batch, epoch=1, batch_idx=0))
    assert said.startswith(
        "loss must be finite, got nan in epoch 2, batch 1 (qid a, c, d, e, f, ...)"
    )


def test_a_gradient_alone(tmp_path: Path):
    scorer = MLPScorer(num_features=3, hidden=(), dropout=0.0)
    said = first_batch_last(tmp_path, Ranker(Positive(scorer), BadGradient()))
    assert said.startswith(
        "gradients must be finite, got NaN or inf in epoch 1, batch 3 (qid e, f): "
    )


class Positive(Scorer):
    def __init__(self, inner: Scorer):
        super().__init__()
        self.inner = inner

    def score(self, features, mask):
        return self.inner(features, mask).abs()


def test_the_batch_that_is_accumulated(tmp_path: Path):
    ranker = Ranker(Squares(), PointwiseMSE())
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        accumulate_grad_batches=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    with pytest.raises(ValueError, match=r"epoch 1, batch 3 \(qid e, f\)"):
        trainer.fit(ranker, lists())


def test_a_learning_rate_of_1e9_leaves_the_last_good_checkpoint(tmp_path: Path):
    """With SGD it takes a few steps until the weights overflow."""
    saver = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    ranker = Ranker(
        MLPScorer(hidden=(8, 8), dropout=0.0),
        SoftNDCG(),
        optimizer=partial(torch.optim.AdamW, lr=1e9),
    )
    with pytest.raises(ValueError, match="must be finite") as caught:
        fit(tmp_path, ranker, saver)
    match = re.search(r"in epoch (\d), batch (\d)", str(caught.value))
    assert match is not None
    good = sorted(tmp_path.glob("*.ckpt"))
    assert len(good) == 4 * (int(match[1]) - 1) + int(match[2]) - 1 > 0
    for path in good:
        state = torch.load(path, weights_only=True)["state_dict"]
        assert all(value.isfinite().all() for value in state.values() if value.is_floating_point())


def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path: Path):
    """A finite gradient, but a step that overflows: at the last step no loss would show it."""
    saver = ModelCheckpoint(
        tmp_path, every_n_train_steps=1, filename="last", enable_version_counter=False
    )
    ranker = Ranker(MLPScorer(hidden=(), dropout=0.0), optimizer=partial(torch.optim.SGD, lr=1e38))

    class Overflow(Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            for parameter in pl_module.parameters():
                parameter.grad = torch.full_like(parameter, -10.0 if trainer.global_step else 0.0)

    with pytest.raises(
        ValueError, match=r"after step \d in epoch \d: scorer\..* must be finite, got"
    ):
        fit(tmp_path, ranker, Overflow(), saver)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 1


def test_large_finite_gradients_go_on(tmp_path: Path):
    """A Euclidean norm of these would overflow."""

    class Large(Callback):
        def on_after_backward(self, trainer, pl_module):
            for parameter in pl_module.parameters():
                parameter.grad = torch.full_like(parameter, 1e25)

    ranker = Ranker(
        MLPScorer(hidden=(4,), dropout=0.0), optimizer=partial(torch.optim.SGD, lr=1e-28)
    )
    assert fit(tmp_path, ranker, Large(), CheckFinite()).global_step == 12


class Scaler:
    """Says that a gradient scaler looks at the gradients."""


def test_a_gradient_scaler_skips_the_step_itself(tmp_path: Path):
    class Scaled(Callback):
        def on_fit_start(self, trainer, pl_module):
            trainer.precision_plugin.scaler = Scaler()

        def on_after_backward(self, trainer, pl_module):
            next(pl_module.parameters()).grad.fill_(torch.inf)

        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            optimizer.zero_grad()

    ranker = Ranker(MLPScorer(hidden=(4,), dropout=0.0))
    assert fit(tmp_path, ranker, Scaled(), CheckFinite()).global_step == 12


def test_manual_optimization(tmp_path: Path):
    task = SpeedTask(lr=1e38)
    data = RandomScoresDataModule(n=5, lists=2)
    with pytest.raises(ValueError, match=r"must be finite.* in epoch \d+, batch \d"):
        fit(tmp_path, task, data=data, max_epochs=20)

"""A monitored name that nothing is logged under is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.cli import ReduceLROnPlateau

from ltr.datasets import DigitsDataModule
from ltr.models import MLPScorer
from ltr.modules import CheckMonitors, Ranker

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)


def fit(
    folder: Path, module: LightningModule, *callbacks: Any, steps: int = 0, **options: Any
) -> Trainer:
    data = DigitsDataModule(list_size=4, train_lists=4, val_lists=4, test_lists=1, batch_size=4)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    try:
        trainer.fit(module, data)
    except ValueError:
        assert trainer.global_step == steps
        raise
    return trainer


def ranker(**options: Any) -> Ranker:
    return Ranker(MLPScorer(hidden=(4,)), **options)


def test_every_name_is_checked(tmp_path: Path):
    wrong = "val_ncdg_10"
    for callback in (EarlyStopping(wrong), ModelCheckpoint(tmp_path, monitor=wrong)):
        with pytest.raises(
            ValueError,
            match=rf"{type(callback).__name__}.monitor must be a value that is logged, got "
            "'val_ncdg_10': did you mean val_ndcg_1",
        ):
            fit(tmp_path, ranker(), callback)
    scheduler = partial(ReduceLROnPlateau, monitor="val_los")
    with pytest.raises(ValueError, match=r"scheduler.monitor .* did you mean val_loss\?"):
        fit(tmp_path, ranker(scheduler=scheduler))


def test_right_names(tmp_path: Path):
    for name in ("train_loss", "val_loss", "val_mrr", "val_ndcg_10"):
        assert fit(tmp_path, ranker(), EarlyStopping(name), max_steps=1).global_step == 1


class More(Ranker):
    """Logs more than a Ranker."""

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.log("val_more", 1.0, batch_size=1)


def test_what_a_subclass_logs_is_known_from_the_sanity_check(tmp_path: Path):
    fit(tmp_path, More(MLPScorer(hidden=(4,))), EarlyStopping("val_more"))
    with pytest.raises(ValueError, match="did you mean val_more"):
        fit(tmp_path, More(MLPScorer(hidden=(4,))), EarlyStopping("val_mor"))


class Foreign(LightningModule):
    """Any module of Lightning's."""

    def __init__(self):
        super().__init__()
        self.inner = Ranker(MLPScorer(num_features=64, hidden=(4,)))

    def training_step(self, batch, batch_idx):
        loss = self.inner(batch["features"], lengths=batch["lengths"]).square().mean()
        self.log("mine", loss, batch_size=1)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_mine", 1.0, batch_size=1)

    def configure_optimizers(self):
        return Ranker.configure_optimizers(self.inner)


def test_other_modules(tmp_path: Path):
    for name in ("val_mine", "mine"):
        fit(tmp_path, Foreign(), EarlyStopping(name), CheckMonitors())
    with pytest.raises(ValueError, match="got 'val_mind': did you mean val_mine"):
        fit(tmp_path, Foreign(), EarlyStopping("val_mind"), CheckMonitors())
    # what is not of validation is known after an epoch
    wrong = EarlyStopping("mind", strict=False)
    with pytest.raises(ValueError, match="got 'mind': did you mean mine"):
        fit(tmp_path, Foreign(), wrong, CheckMonitors(), steps=1)

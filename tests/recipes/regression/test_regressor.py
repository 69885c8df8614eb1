"""The regressor: against scikit-learn's fits, its metrics, checkpoints and resuming."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.linear_model import HuberRegressor, LinearRegression
from sklearn.metrics import (
    mean_absolute_error,
    mean_squared_error,
    median_absolute_error,
    r2_score,
)
from torch.utils.data import DataLoader

from ltr.losses import PointwiseHuber, PointwiseMSE
from ltr.models import LinearScorer, MLPScorer
from ltr.operators import SoftSort
from recipes.regression.data import RegressionDataModule
from recipes.regression.losses import LeastQuantileRegression, LeastTrimmedSquares
from recipes.regression.regressor import Regressor, regression_metrics

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)


def trainer(tmp_path: Path, **options: Any) -> Trainer:
    return Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": 10,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
            **options,
        }
    )


def regressor(loss: Any, epochs: int = 10) -> Regressor:
    return Regressor(
        loss=loss,
        optimizer=partial(torch.optim.Adam, lr=0.1),
        scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=epochs),
    )


def fitted(tmp_path: Path, loss: Any, **options: Any) -> tuple[Regressor, RegressionDataModule]:
    seed_everything(1)
    data, model = RegressionDataModule(**{"steps": 40, **options}), regressor(loss)
    trainer(tmp_path).fit(model, data)
    return model, data


@pytest.mark.parametrize(
    ("loss", "oracle"),
    [
        (PointwiseMSE(), LinearRegression()),
        pytest.param(  # 400 steps more, through another loss alone
            PointwiseHuber(1.35),
            HuberRegressor(epsilon=1.35, alpha=0, max_iter=10000),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_ends_where_scikit_learn_does(tmp_path: Path, loss: Any, oracle: Any):
    model, data = fitted(tmp_path, loss, outliers=0.2)
    x, y = (part.double().numpy() for part in data.splits["train"])
    expected = oracle.fit(x, y).predict(data.splits["test"][0].double().numpy())
    with torch.no_grad():
        found = model(data.splits["test"][0]).double().numpy()
    assert np.abs(found - expected).max() < 0.02 * y.std()


@pytest.mark.parametrize(
    "loss",
    [
        LeastTrimmedSquares(SoftSort(1.0), keep=0.6),
        # 400 steps more; test_programs.py trains it for a few, to values of its own
        pytest.param(LeastQuantileRegression(SoftSort(1.0)), marks=pytest.mark.slow),
    ],
)
def test_outliers_do_no_harm(tmp_path: Path, loss: Any):
    model, data = fitted(tmp_path, loss, outliers=0.4)
    [found] = trainer(tmp_path).test(model, data, verbose=False)
    x, y = (part.double().numpy() for part in data.splits["train"])
    right = ~data.planted.numpy()
    clean = LinearRegression().fit(x[right], y[right])
    spoilt = LinearRegression().fit(x, y)
    test_x, test_y = (part.double().numpy() for part in data.splits["test"])
    best, worst = (mean_absolute_error(test_y, one.predict(test_x)) for one in (clean, spoilt))
    assert best < found["test_mae"] * 1.05  # as good as if the outliers were known, or nearly
    assert found["test_mae"] < 1.25 * best
    assert found["test_mae"] < 0.5 * worst


def test_metrics_are_scikit_learns():
    rng = np.random.default_rng(0)
    labels, predictions = rng.normal(size=21), rng.normal(size=21)
    found = regression_metrics(torch.tensor(predictions), torch.tensor(labels))
    assert {name: value.item() for name, value in found.items()} == pytest.approx(
        {
            "mae": mean_absolute_error(labels, predictions),
            "median_absolute_error": median_absolute_error(labels, predictions),
            "rmse": mean_squared_error(labels, predictions) ** 0.5,
            "r2": r2_score(labels, predictions),
        }
    )


class Samples(LightningDataModule):
    """Two samples of different sizes in one batch, padded with NaN, and an empty one."""

    num_features = 2

    def batches(self) -> DataLoader[Any]:
        rng = np.random.default_rng(3)
        mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [False] * 5])
        features = torch.tensor(rng.normal(size=(3, 5, 2))).float()
        labels = features @ torch.tensor([1.0, 2.0])
        batch = {
            "features": torch.where(mask.unsqueeze(-1), features, torch.nan),
            "labels": torch.where(mask, labels, torch.nan),
            "mask": mask,
        }
        return DataLoader([batch], batch_size=None)  # pyright: ignore[reportArgumentType]

    train_dataloader = test_dataloader = predict_dataloader = batches


def test_padded_samples(tmp_path: Path):
    data, model = Samples(), regressor(PointwiseMSE(), epochs=1)
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    assert fit.callback_metrics["train_loss"].isfinite()
    [found] = fit.test(model, data, verbose=False)
    [batch] = data.batches()
    with torch.no_grad():
        rows = zip(
            model(batch["features"], batch["mask"]), batch["labels"], batch["mask"], strict=True
        )
        each = [regression_metrics(one[m], y[m]) for one, y, m in rows if m.any()]
    for name in each[0]:
        expected = np.mean([one[name].item() for one in each])
        assert found[f"test_{name}"] == pytest.approx(expected, rel=1e-5)
    [predicted] = fit.predict(model, data) or []
    assert predicted["scores"].shape == (3, 5)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_checkpoint_has_weights_and_scale(tmp_path: Path):
    data = RegressionDataModule(steps=3)
    model = Regressor(MLPScorer(hidden=(4,)), LeastTrimmedSquares(SoftSort(1.0), keep=0.7))
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "end.ckpt")
    loaded = Regressor.load_from_checkpoint(
        tmp_path / "end.ckpt", weights_only=True, scorer=MLPScorer(hidden=(4,))
    ).eval()
    x = data.splits["test"][0]
    assert torch.equal(loaded(x), model.eval()(x))
    assert loaded.label_center == data.label_center


@pytest.mark.parametrize("step", [5, 10])
def test_resumed_from_any_checkpoint(tmp_path: Path, step: int):
    def run(folder: Path, ckpt_path: Path | None = None) -> dict[str, Any]:
        seed_everything(5)
        model = regressor(LeastTrimmedSquares(SoftSort(1.0)), epochs=3)
        saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1)
        fit = trainer(folder, max_epochs=3, callbacks=[saver], enable_checkpointing=True)
        fit.fit(model, RegressionDataModule(steps=5), ckpt_path=ckpt_path)
        assert fit.global_step == 15
        return model.state_dict()

    end = run(tmp_path / "whole")
    [file] = (tmp_path / "whole").glob(f"*step={step}.ckpt")
    again = run(tmp_path / "again", file)
    assert all(torch.equal(end[name], again[name]) for name in end)


def test_another_optimizer_is_refused(tmp_path: Path):
    data, model = RegressionDataModule(steps=2), regressor(PointwiseMSE())
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "end.ckpt")
    other = Regressor(loss=PointwiseMSE(), optimizer=partial(torch.optim.SGD, lr=0.1))
    with pytest.raises(ValueError, match="optimizer must"):
        trainer(tmp_path, max_epochs=2).fit(other, data, ckpt_path=tmp_path / "end.ckpt")


def test_mistakes(tmp_path: Path):
    with pytest.raises(ValueError, match="loss must"):
        Regressor(loss=PointwiseMSE)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="scorer must"):
        Regressor(LinearScorer)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="loss must"):
        trainer(tmp_path).fit(regressor(PointwiseMSE("none")), RegressionDataModule(steps=1))
    with pytest.raises(ValueError, match="Regressor must"):
        trainer(tmp_path).fit(regressor(None), Samples().batches())

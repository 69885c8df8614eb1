"""The quantile regressor: its loss and metrics by the formulas, and it learns."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from scipy.stats import spearmanr
from sklearn.metrics import mean_squared_error, r2_score
from torch import nn
from torch.utils.data import DataLoader

from ltr.models import LinearScorer, Scorer
from ltr.modules import SeedSteps
from ltr.operators import NeuralSort, SinkhornSort, SoftSort, Stochastic
from recipes.networks import ImageCNN
from recipes.numbers import NumbersDataModule
from recipes.quantile.regressor import QuantileRegressor, at_quantile

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)


class Column(Scorer):
    """One of an item's features is its score."""

    def __init__(self, column: int):
        super().__init__()
        self.column = column
        self.gain = torch.nn.Parameter(torch.ones((), dtype=torch.float64))

    def score(self, features, mask):
        return self.gain * features[..., self.column]


def regressor(operator=None, **options: Any) -> QuantileRegressor:
    """The first feature is the score, the second the value."""
    return QuantileRegressor(Column(0), Column(1), operator, **options)


def draw(lists: int, n: int, seed: int = 0, padding: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 100, (lists, n)).astype(np.float64)
    scores = labels + rng.normal(0, 20, (lists, n))
    values = labels + rng.normal(0, 5, (lists, n))
    mask = rng.random((lists, n)) < 0.7 if padding else np.ones((lists, n), bool)
    mask[:, 0] = True
    features = np.stack([scores, values], -1)
    features[~mask] = np.nan
    return {
        "features": torch.tensor(features),
        "labels": torch.tensor(labels),
        "mask": torch.tensor(mask),
    }


def trainer(tmp_path: Path, **options) -> Trainer:
    return Trainer(
        **{
            "accelerator": "cpu",
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
            **options,
        }
    )


def batches(batch: dict[str, Any], size: int) -> DataLoader:
    """The lists in batches, the last one smaller."""
    items = [{k: v[i] for k, v in batch.items()} for i in range(len(batch["labels"]))]
    return DataLoader(items, batch_size=size)  # pyright: ignore


def step(model: QuantileRegressor, batch: dict[str, Any]) -> torch.Tensor:
    model.log = lambda *args, **kwargs: None  # it has no Trainer
    return model.training_step(batch, 0)


@pytest.mark.parametrize(
    "operator", [SoftSort(10.0), NeuralSort(50.0), SinkhornSort(0.1)], ids=repr
)
@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("n", [5, 9])
def test_the_loss_is_the_published_one(operator, expected: bool, n: int):
    batch = draw(7, n)
    scores, values = batch["features"].unbind(-1)
    errors = []
    for s, g, y in zip(scores, values, batch["labels"], strict=True):
        row = operator.permutation(s).dense()[n // 2]
        row = row / row.sum()
        median = sorted(y.tolist())[n // 2]
        if expected:
            errors.append(sum(p * (one - median) ** 2 for p, one in zip(row, g, strict=True)))
        else:
            errors.append((sum(p * one for p, one in zip(row, g, strict=True)) - median) ** 2)
    loss = step(regressor(operator, expected=expected), batch)
    torch.testing.assert_close(loss, torch.stack(errors).mean(), rtol=1e-6, atol=1e-6)


def test_the_stochastic_loss_is_the_mean_over_the_samples():
    batch = draw(4, 5)
    scores, values = batch["features"].unbind(-1)
    generator = torch.Generator().manual_seed(3)
    operator = Stochastic(NeuralSort(2.0), samples=5, generator=generator)
    loss = step(regressor(operator, expected=True), batch)
    generator.manual_seed(3)
    noisy, _, _ = operator.transform(scores)
    assert noisy.shape == (5, 4, 5)
    rows = NeuralSort(2.0).permutation(noisy).dense()[..., 2, :]
    median = batch["labels"].median(-1).values
    errors = (rows * (values - median[:, None]).square()).sum(-1)
    torch.testing.assert_close(loss, errors.mean())


def test_only_the_quantile_of_the_labels_is_seen():
    batch = draw(6, 5)
    median = batch["labels"].median(-1, keepdim=True).values.expand(6, 5)
    for expected in (False, True):
        model = regressor(SoftSort(10.0), expected=expected)
        assert step(model, batch) == step(model, {**batch, "labels": median})


def test_the_scale_of_the_values():
    batch = draw(6, 5)
    small = {**batch, "features": batch["features"] / torch.tensor([1.0, 1000.0])}
    one = step(regressor(SoftSort(10.0)), batch)
    other = step(regressor(SoftSort(10.0), value_scale=1000), small)
    torch.testing.assert_close(one, other)
    features = small["features"]
    torch.testing.assert_close(
        regressor(value_scale=1000)(features), regressor()(batch["features"])
    )


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_at_quantile_is_numpys_quantile_of_the_values_in_the_scores_order(q: float, n: int):
    batch = draw(9, n, padding=True)
    scores, values = batch["features"].unbind(-1)
    found = at_quantile(values, scores, q, batch["mask"])
    for s, v, m, one in zip(scores, values, batch["mask"], found, strict=True):
        ordered = v[m][s[m].argsort()].numpy()
        wanted = np.interp(q * (len(ordered) - 1), range(len(ordered)), ordered)
        assert one.item() == pytest.approx(wanted, abs=1e-9)
    own = at_quantile(values, values, q, batch["mask"])
    for v, m, one in zip(values, batch["mask"], own, strict=True):
        assert one.item() == pytest.approx(np.quantile(v[m], q), abs=1e-9)


def test_at_quantile_of_no_items_and_of_nan():
    values = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    nothing = torch.tensor([[False] * 3, [True] * 3])
    assert at_quantile(values, values, 0.5, nothing).tolist() == [0.0, 2.0]
    assert at_quantile(values[:, :0], values[:, :0], 0.5).tolist() == [0.0, 0.0]
    broken = torch.tensor([[0.0, float("nan"), 1.0], [0.0, 2.0, 1.0]])
    found = at_quantile(values, broken, 0.5)
    assert found[0].isnan()
    assert found[1] == 3


@pytest.mark.parametrize(("q", "padding"), [(0.5, False), (0.5, True), (0.2, True)])
def test_metrics_are_those_of_numpy_scipy_and_sklearn(tmp_path: Path, q: float, padding: bool):
    batch = draw(43, 5, padding=padding)
    model = regressor(SoftSort(10.0), q=q)
    [result] = trainer(tmp_path).test(model, batches(batch, 8), verbose=False)
    true, estimates, identified = [], [], []
    for x, y, m in zip(batch["features"], batch["labels"], batch["mask"], strict=True):
        order = x[m, 0].argsort()
        position = q * (len(order) - 1)
        hard, right = (np.interp(position, range(len(order)), t[m][order]) for t in (x[:, 1], y))
        true.append(np.quantile(y[m], q))
        estimates.append(hard)
        identified.append(abs(right - true[-1]) < 1e-9)
    assert set(result) == {"test_mse", "test_r2", "test_spearman", "test_identified"}
    assert result["test_mse"] == pytest.approx(mean_squared_error(true, estimates), rel=1e-6)
    assert result["test_r2"] == pytest.approx(r2_score(true, estimates), rel=1e-6)
    assert result["test_spearman"] == pytest.approx(spearmanr(true, estimates)[0], rel=1e-6)
    assert result["test_identified"] == pytest.approx(np.mean(identified), rel=1e-6)
    assert 0.1 < result["test_identified"] < 0.9


def test_metrics_of_large_numbers_are_exact(tmp_path: Path):
    # near 1e4, float32 sums of squares would lose R^2
    batch = draw(200, 5)
    batch["labels"] = 9000 + batch["labels"] / 100
    batch["features"] = torch.stack([batch["labels"], batch["labels"] + 0.1], -1)
    [result] = trainer(tmp_path).test(regressor(), batches(batch, 16), verbose=False)
    assert result["test_mse"] == pytest.approx(0.01, rel=1e-5)
    median = np.median(batch["labels"].numpy(), -1)
    assert result["test_r2"] == pytest.approx(1 - 0.01 / median.var(), rel=1e-5)
    assert result["test_spearman"] == pytest.approx(1.0)
    assert result["test_identified"] == 1.0


def test_equal_numbers_may_stand_for_each_other(tmp_path: Path):
    labels = torch.tensor([[4.0, 7.0, 7.0]], dtype=torch.float64).expand(3, 3)
    scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [2.0, 1.0, 3.0]]).double()
    batch = {
        "features": torch.stack([scores, labels], -1),
        "labels": labels,
        "mask": torch.ones(3, 3, dtype=torch.bool),
    }
    [result] = trainer(tmp_path).test(regressor(), batches(batch, 3), verbose=False)
    assert result["test_identified"] == pytest.approx(2 / 3)


def test_the_published_stochastic_evaluation_keeps_the_noise(tmp_path: Path):
    batch = draw(30, 5)
    operator = Stochastic(SoftSort(5.0), samples=4, scale=15.0)
    model = regressor(operator, expected=True, noisy_evaluation=True)
    [result] = trainer(tmp_path).test(model, batches(batch, 30), verbose=False)
    uniform = torch.rand(
        (4, 30, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    scores, values = batch["features"].unbind(-1)
    order = (scores - 15 * (-uniform.log()).log()).argsort(-1)[..., 2:3]
    median = batch["labels"].median(-1).values
    numbers, labels = (
        t.expand(4, 30, 5).gather(-1, order).squeeze(-1) for t in (values, batch["labels"])
    )
    assert result["test_mse"] == pytest.approx((numbers - median).square().mean().item())
    assert result["test_identified"] == pytest.approx((labels == median).double().mean().item())
    mean = numbers.mean(0)
    assert result["test_r2"] == pytest.approx(r2_score(median.numpy(), mean.numpy()))
    assert result["test_spearman"] == pytest.approx(spearmanr(median, mean)[0])
    # the same again, and not the same without noise
    assert trainer(tmp_path).test(model, batches(batch, 30), verbose=False) == [result]
    quiet = regressor(operator, expected=True)
    [other] = trainer(tmp_path).test(quiet, batches(batch, 30), verbose=False)
    assert other["test_mse"] < result["test_mse"]


def digits(**options: Any) -> LightningDataModule:
    return NumbersDataModule(
        **{
            "n": 3,
            "digits": 1,
            "batch_size": 10,
            "train_batches": 100,
            "val_batches": 10,
            "test_batches": 20,
            **options,
        }
    )


class Pixels(Scorer):
    """A small network on the pixels of one digit: faster than a convolution."""

    item_dims = 3

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def score(self, features, mask):
        return self.layers(features.flatten(-3)).squeeze(-1)


def small(operator=None, **options: Any) -> QuantileRegressor:
    """Small convolutional networks, which take the images' shape from the data."""
    networks = [ImageCNN(channels=(2, 4), hidden=8) for _ in range(2)]
    return QuantileRegressor(*networks, operator, **options)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        # 200 steps more; both losses are compared with their formulas above
        pytest.param(SoftSort(1.0), False, id="deterministic", marks=pytest.mark.slow),
        pytest.param(Stochastic(NeuralSort(1.0), samples=3), True, id="stochastic"),
    ],
)
def test_it_learns_digits_from_medians_alone(tmp_path: Path, operator, expected: bool):
    seed_everything(1)
    adam = partial(torch.optim.Adam, lr=1e-2)
    model = QuantileRegressor(Pixels(), Pixels(), operator, expected=expected, optimizer=adam)
    data = digits(batch_size=30)
    fit = trainer(tmp_path, max_epochs=2, limit_val_batches=1)
    fit.fit(model, data)
    [result] = fit.test(model, data, verbose=False)
    assert result["test_r2"] > 0.15  # 0 is the mean
    assert result["test_spearman"] > 0.4
    assert result["test_identified"] > 0.5
    names = {"mse", "r2", "spearman", "identified"}
    assert set(result) == {f"test_{name}" for name in names}
    [result] = fit.validate(model, data, verbose=False)
    assert set(result) == {"val_loss", *(f"val_{name}" for name in names)}


def test_predictions(tmp_path: Path):
    model, data = small(), digits(test_batches=1)
    [batch] = trainer(tmp_path).predict(model, data) or []
    assert batch["qid"][1] == "numbers-test-1"
    assert batch["scores"].shape == batch["values"].shape == (10, 3)
    [raw] = data.predict_dataloader()
    torch.testing.assert_close(batch["estimate"], model.eval()(raw["features"], raw["mask"]))
    at = batch["scores"].argsort(-1)[:, 1:2]
    torch.testing.assert_close(batch["estimate"], batch["values"].gather(-1, at).squeeze(-1))


def test_a_module_with_the_same_arguments_has_the_weights(tmp_path: Path):
    options: dict[str, Any] = {"expected": True, "value_scale": 2.0, "q": 0.25}
    model, tested = (small(Stochastic(SoftSort(3.0), samples=2), **options) for _ in range(2))
    data = digits(train_batches=3)
    fit = trainer(tmp_path)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "model.ckpt")
    [one] = trainer(tmp_path).test(model, data, verbose=False)
    [other] = trainer(tmp_path).test(
        tested, digits(), tmp_path / "model.ckpt", verbose=False, weights_only=True
    )
    assert one == other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1.5}, r"q.*1.5"),
        ({"value_scale": 0.0}, "value_scale.*0.0"),
        ({"noisy_evaluation": True}, "noisy_evaluation needs a Stochastic operator, got NoneType"),
        ({"scorer": LinearScorer}, "scorer must"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        QuantileRegressor(**options)


def test_networks_without_a_shape(tmp_path: Path):
    loader = batches(draw(2, 3), 2)
    with pytest.raises(ValueError, match="QuantileRegressor must have parameters to train"):
        trainer(tmp_path).fit(QuantileRegressor(), loader, loader)


STEPS, EPOCHS = 5, 3
KILLED_AT = 8  # the third batch of the second epoch; the last checkpoint is of step 5


class Kill(Callback):
    """The process ends without a word."""

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, *callbacks: Callback, ckpt_path: str | None = None, seed: int = 11):
    torch.set_num_threads(1)
    seed_everything(seed)
    model = small(
        Stochastic(SoftSort(5.0), samples=2),
        expected=True,
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.7),
    )
    saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1, save_last=True)
    fit = trainer(
        folder, max_epochs=EPOCHS, enable_checkpointing=True, callbacks=[saver, *callbacks]
    )
    fit.fit(model, digits(train_batches=STEPS), ckpt_path=ckpt_path)
    return fit.global_step, model.state_dict()


@pytest.mark.slow  # a fresh process imports Lightning, to be killed
def test_killed_inside_an_epoch_and_resumed(tmp_path: Path):
    killed = subprocess.run(
        [sys.executable, __file__, tmp_path / "killed"], capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert torch.load(tmp_path / "killed" / "last.ckpt")["global_step"] == STEPS
    steps, unbroken = run(tmp_path / "unbroken")
    resumed_steps, resumed = run(tmp_path / "killed", ckpt_path="last", seed=99)
    assert steps == resumed_steps == STEPS * EPOCHS
    for name, value in unbroken.items():
        assert torch.equal(value, resumed[name]), name
    _, other = run(tmp_path / "other", SeedSteps(12))
    assert not torch.equal(other["scorer.last.weight"], unbroken["scorer.last.weight"])


if __name__ == "__main__":
    run(Path(sys.argv[1]), Kill())

"""The classifier: its loss and metrics by the formulas, it learns, checkpoints and resuming."""

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
from torch import nn

from ltr.losses import SoftmaxLoss, TopKLoss
from ltr.metrics import NDCG, TopKAccuracy
from ltr.modules import SeedSteps
from ltr.operators import HardRank, SigmoidRank, SinkhornSort, SoftSort
from recipes.classifier import ImageClassifier
from recipes.images import DigitImages, ImageDataModule
from recipes.networks import ImageNetwork, VanillaCNN

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)

STEPS, EPOCHS = 7, 3  # batches of 200 of 1258 training images, the last one of 58
KILLED_AT = 11


class Flat(ImageNetwork):
    """A linear classifier, with dropout, so that a step draws random numbers."""

    def make_body(self, shape):
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.2))


def trainer(tmp_path: Path, **options: Any) -> Trainer:
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


def classifier(loss: Any = None, network: ImageNetwork | None = None) -> ImageClassifier:
    return ImageClassifier(
        Flat() if network is None else network,
        loss,
        optimizer=partial(torch.optim.Adam, lr=0.01),
    )


def scored(model: ImageClassifier, data: ImageDataModule, split: str) -> tuple[Any, Any]:
    images = data.splits[split]
    with torch.no_grad():
        return model.eval()(data.to_float(images.pixels)), images.labels


@pytest.mark.parametrize(
    "loss",
    [
        # a second each to train
        pytest.param(SoftmaxLoss(), id="cross-entropy"),
        pytest.param(TopKLoss(SinkhornSort(0.01)), id="sinkhorn", marks=pytest.mark.slow),
        pytest.param(TopKLoss(SigmoidRank(1.0)), id="sigmoid", marks=pytest.mark.slow),
        pytest.param(TopKLoss(SoftSort(1.0)), id="softsort"),
    ],
)
def test_it_learns(tmp_path: Path, loss: Any):
    seed_everything(0)
    model, data = classifier(loss), ImageDataModule(DigitImages(), batch_size=50)
    fit = trainer(tmp_path, max_epochs=3)
    fit.fit(model, data)
    [found] = fit.test(model, data, verbose=False)
    assert found["test_accuracy"] > 0.85
    assert found["test_top_5"] > 0.85  # a loss of the first position alone; by chance 0.5


def test_metrics_and_losses_are_those_of_all_images(tmp_path: Path):
    seed_everything(0)
    model, data = classifier(SoftmaxLoss()), ImageDataModule(DigitImages(), batch_size=100)
    fit = trainer(tmp_path)
    fit.fit(model, data)
    scores, labels = scored(model, data, "val")
    logged = fit.callback_metrics
    assert logged["val_loss"] == pytest.approx(
        nn.functional.cross_entropy(scores, labels).item(), rel=1e-5
    )
    order = scores.argsort(-1, descending=True)
    for name, k in (("accuracy", 1), ("top_5", 5)):
        share = (order[:, :k] == labels.unsqueeze(-1)).any(-1).double().mean().item()
        assert logged[f"val_{name}"] == pytest.approx(share, rel=1e-5)
    [tested] = fit.test(model, data, verbose=False)
    scores, labels = scored(model, data, "test")
    accuracy = (scores.argmax(-1) == labels).double().mean().item()
    assert tested["test_accuracy"] == pytest.approx(accuracy, rel=1e-5)


def test_the_0_1_loss_counts_mistakes(tmp_path: Path):
    data = ImageDataModule(DigitImages(), batch_size=100)
    model = classifier(TopKLoss(HardRank(), step="cutoff"))
    data.setup("fit")
    model.network.build(data.shape, data.classes)
    fit = trainer(tmp_path)
    [found] = fit.validate(model, data, verbose=False)
    assert found["val_loss"] == pytest.approx(1 - found["val_accuracy"], abs=1e-6)
    with pytest.raises(ValueError, match="loss must"):
        fit.fit(model, data)


def test_equal_scores_count_as_the_mean_over_their_orders(tmp_path: Path):
    data, model = ImageDataModule(DigitImages(), batch_size=100), classifier()
    data.setup("fit")
    model.network.build(data.shape, data.classes)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    [found] = trainer(tmp_path).test(model, data, verbose=False)
    assert found["test_accuracy"] == pytest.approx(0.1, rel=1e-5)
    assert found["test_top_5"] == pytest.approx(0.5)


def test_filling_images_count_nowhere():
    model = classifier(SoftmaxLoss(), Flat(out=3, shape=(1, 2, 2)))

    class Two:
        world_size = 2

    model.trainer = Two()  # pyright: ignore[reportAttributeAccessIssue]
    images = torch.randn(3, 1, 2, 2)
    batch = {"images": images, "targets": torch.tensor([2, -1, 0])}
    lists = model.eval().score_batch(batch)
    found = model.mean_loss(lists, model.val_loss)
    expected = nn.functional.cross_entropy(lists.scores[[0, 2]], torch.tensor([2, 0]))
    torch.testing.assert_close(found, expected)
    assert model.val_loss.lists == 2
    metric = TopKAccuracy(top_k=1)
    metric.update(lists.scores, lists.labels, mask=lists.mask)
    assert metric.lists == 2


def test_metrics_of_ones_own(tmp_path: Path):
    model = ImageClassifier(Flat(), metrics={"ndcg": NDCG(top_k=3)})
    found = trainer(tmp_path).validate(model, ImageDataModule(), verbose=False)
    assert set(found[0]) == {"val_loss", "val_ndcg"}


def test_a_checkpoint_has_weights_and_sizes(tmp_path: Path):
    data = ImageDataModule(DigitImages(), batch_size=200)
    model = classifier(TopKLoss(SoftSort(2.0), top_k=2), VanillaCNN((2, 3), 4))
    fit = trainer(tmp_path)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "end.ckpt")
    loaded = ImageClassifier.load_from_checkpoint(
        tmp_path / "end.ckpt", weights_only=True, network=VanillaCNN((2, 3), 4)
    )
    assert torch.equal(scored(loaded, data, "test")[0], scored(model, data, "test")[0])
    predicted = fit.predict(model, data) or []
    shapes = [tuple(one["scores"].shape) for one in predicted]  # pyright: ignore
    assert shapes == [(200, 10), (159, 10)]


def test_the_scheduler_may_go_by_steps(tmp_path: Path):
    model = ImageClassifier(
        Flat(),
        SoftmaxLoss(),
        optimizer=partial(torch.optim.SGD, lr=1.0),
        scheduler=partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5),
        scheduler_interval="step",
    )
    fit = trainer(tmp_path, max_steps=3)
    fit.fit(model, ImageDataModule(batch_size=100))
    assert fit.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.5**3)
    with pytest.raises(ValueError, match="scheduler_interval must"):
        ImageClassifier(scheduler_interval="batch")  # pyright: ignore[reportArgumentType]


def test_mistakes(tmp_path: Path):
    with pytest.raises(ValueError, match="network must"):
        ImageClassifier(VanillaCNN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="metrics must"):
        ImageClassifier(metrics={"loss": NDCG()})
    with pytest.raises(ValueError, match=r"metrics.*3 for 'x'"):
        ImageClassifier(metrics={"x": 3})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"loss\.reduction must be"):
        trainer(tmp_path).fit(classifier(SoftmaxLoss(reduction="none")), ImageDataModule())


# resuming


class Kill(Callback):
    """The process ends without a word, as for want of memory."""

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, *callbacks: Callback, ckpt_path: Any = None, seed: int = 11) -> Any:
    """Train on crops and flips, with dropout."""
    torch.set_num_threads(1)
    seed_everything(seed)
    saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1, save_last=True)
    fit = trainer(
        folder, max_epochs=EPOCHS, callbacks=[saver, *callbacks], enable_checkpointing=True
    )
    data = ImageDataModule(DigitImages(), batch_size=200, augment=True)
    model = classifier(TopKLoss(SigmoidRank(1.0)))
    fit.fit(model, data, ckpt_path=ckpt_path)
    assert any(isinstance(one, SeedSteps) for one in fit.callbacks)  # pyright: ignore
    return fit.global_step, model.state_dict()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("unbroken")
    steps, end = run(folder)
    assert steps == STEPS * EPOCHS
    return folder, end


def assert_same(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.slow  # a fresh process imports Lightning, to be killed; the tests below resume
def test_killed_and_resumed(tmp_path: Path, unbroken: tuple[Path, Any]):
    killed = subprocess.run([sys.executable, __file__, tmp_path], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    steps, end = run(tmp_path, ckpt_path=tmp_path / "last.ckpt", seed=99)  # a seed of no effect
    assert steps == STEPS * EPOCHS
    assert_same(end, unbroken[1])


@pytest.mark.parametrize("step", [STEPS, 2 * STEPS])
def test_resumed_from_any_checkpoint(tmp_path: Path, unbroken: tuple[Path, Any], step: int):
    [file] = unbroken[0].glob(f"*step={step}.ckpt")
    assert_same(run(tmp_path, ckpt_path=file)[1], unbroken[1])


if __name__ == "__main__":
    run(Path(sys.argv[1]), Kill())

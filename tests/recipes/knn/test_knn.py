"""The differentiable nearest neighbors: the loss, the baselines, resuming."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from ltr.losses import KNNLoss
from ltr.operators import NeuralSort, SigmoidRank, SoftSort
from recipes.images import ImageDataModule
from recipes.knn.autoencoder import DenseAutoencoder
from recipes.knn.baselines import AutoencoderNeighbors, PixelNeighbors
from recipes.knn.episodes import EpisodeDataModule
from recipes.knn.soft_neighbors import (
    SharedStochastic,
    SoftNearestNeighbors,
    squared_distances,
)
from recipes.networks import MNISTCNN

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*`isinstance.treespec, LeafSpec.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
    "ignore:.*`loggers` is set.*",
)

STEPS = 13  # of 100 images, of the 1,258 to train on


def small() -> MNISTCNN:
    return MNISTCNN(channels=(4, 8), hidden=16, padding=2)


def trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        default_root_dir=folder,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **options,
    )


def scores_of(folder: Path, module: LightningModule, **options: Any) -> dict[str, float]:
    data = EpisodeDataModule(normalize=False, **options)
    return dict(trainer(folder).test(module, datamodule=data, verbose=False)[0])


def test_squared_distances():
    generator = torch.Generator().manual_seed(0)
    q, c = (torch.randn(n, 7, generator=generator, dtype=torch.float64) for n in (5, 6))
    expected = (q.unsqueeze(1) - c).square().sum(-1)
    torch.testing.assert_close(squared_distances(q, c), expected)
    assert torch.autograd.gradcheck(squared_distances, (q.requires_grad_(), c.requires_grad_()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = squared_distances(q.detach().float(), c.detach().float())
    torch.testing.assert_close(found, expected.detach().float(), rtol=1e-4, atol=1e-4)


def brute_force(scores, targets, others, k, temperature):
    """Minus the sum over the first k rows, query by query, with loops: as the papers write it."""
    losses = []
    for row, target in zip(scores, targets, strict=True):
        tops = row.sort(descending=True).values
        if not (others == target).any():  # nothing to learn from: counts 0, with no gradient
            losses.append(row.sum() * 0)
            continue
        P = (-(tops[:, None] - row).abs() / temperature).softmax(-1)
        losses.append(k - sum(P[i][others == target].sum() for i in range(k)))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("k", [1, 3])
def test_the_training_loss_is_the_papers(tmp_path: Path, k: int):
    torch.manual_seed(0)
    module = SoftNearestNeighbors(small(), SoftSort(0.5), top_k=k).double()
    module.network.build((1, 8, 8))
    module.double()
    data = EpisodeDataModule(batch_size=20)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    batch = {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}
    module._trainer = trainer(tmp_path)
    module.log = lambda *args, **kwargs: None  # there is no loop
    loss = module.training_step(batch, 0)
    queries, candidates = (module(batch[key]) for key in ("images", "candidates"))
    scores = -(queries.unsqueeze(1) - candidates).square().sum(-1)
    others = batch["candidate_targets"]
    torch.testing.assert_close(loss, brute_force(scores, batch["targets"], others, k, 0.5))
    assert module.train_loss.compute().item() == pytest.approx(loss.item())


def test_matching_networks():
    """Proposition 2: k = 1, temperature 2, power 1 and points of norm 1."""
    generator = torch.Generator().manual_seed(0)
    q, c = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (4, 9))
    q, c = (points / points.norm(dim=-1, keepdim=True) for points in (q, c))
    scores = -squared_distances(q, c)
    # minus the squared distance is 2 cos - 2, so the nearest is 2 (cos_max - cos) / 2 ahead
    first = SoftSort(temperature=2.0, power=1.0).permutation(scores).dense()[:, 0]
    attention = (q @ c.mT).softmax(-1)
    torch.testing.assert_close(first, attention, rtol=0, atol=1e-12)
    classes = torch.arange(9) % 3
    labels = (classes == torch.tensor([0, 1, 2, 0]).unsqueeze(-1)).double()
    loss = KNNLoss(SoftSort(2.0), top_k=1, form="log", average=False, reduction="none")
    torch.testing.assert_close(loss(scores, labels), -(attention * labels).sum(-1).log())


def test_noise_is_shared_by_the_queries():
    scores = torch.zeros(4, 3, 5, dtype=torch.float64)
    operator = SharedStochastic(SoftSort(0.1), samples=6)
    noisy, _, _ = operator.transform(scores)
    assert noisy.shape == (6, 4, 3, 5)
    assert (noisy == noisy[:, :1, :1]).all()
    assert (noisy[0, 0, 0] != noisy[1, 0, 0]).all()
    mask = torch.arange(5) < 3
    _, wide, _ = operator.transform(scores, mask.expand(4, 3, 5))
    assert wide.shape == noisy.shape
    assert operator.eval().transform(scores)[0] is scores
    many = SharedStochastic(samples=20000, generator=torch.Generator().manual_seed(0))
    drawn = many.transform(torch.tensor([0.0, 1.0]))[0].argmax(-1).float().mean()
    assert drawn.item() == pytest.approx(1 / (1 + torch.e**-1), abs=0.01)  # Plackett-Luce


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(SoftSort(1.0), id="SoftSort"),
        # as long again each; the tests of KNNLoss and of the operators have their gradients
        pytest.param(NeuralSort(8.0), id="NeuralSort", marks=pytest.mark.slow),
        pytest.param(
            SharedStochastic(SoftSort(1.0), samples=2), id="stochastic", marks=pytest.mark.slow
        ),
    ],
)
def test_it_learns(tmp_path: Path, operator):
    seed_everything(0)
    module = SoftNearestNeighbors(
        small(), operator, top_k=3, optimizer=partial(torch.optim.SGD, lr=0.03, momentum=0.9)
    )
    data = EpisodeDataModule(normalize=False)
    fit = trainer(tmp_path, max_epochs=8)
    before = fit.validate(module, data, verbose=False)[0]["val_accuracy"]
    fit.fit(module, data)
    after = fit.callback_metrics["val_accuracy"].item()
    assert after > before + 0.03


@pytest.mark.parametrize("k", [1, 5])
def test_the_vote_is_scikit_learns(tmp_path: Path, k: int):
    module = SoftNearestNeighbors(small(), top_k=k)
    found = scores_of(tmp_path, module)["test_accuracy"]
    data = EpisodeDataModule(normalize=False)
    data.setup("test")
    points = {}
    for name, part in data.splits.items():
        with torch.no_grad():
            points[name] = module(data.to_float(part.pixels)).double().numpy()
    labels = np.concatenate([data.splits[name].labels.numpy() for name in ("train", "val")])
    oracle = KNeighborsClassifier(k).fit(np.concatenate([points["train"], points["val"]]), labels)
    expected = oracle.score(points["test"], data.splits["test"].labels.numpy())
    assert found == pytest.approx(expected, abs=1e-6)


def pixels(data: EpisodeDataModule) -> dict[str, Any]:
    data.setup("test")
    return {
        name: (part.pixels.flatten(1).double().numpy() / 255, part.labels.numpy())
        for name, part in data.splits.items()
    }


def choose(train, val, transforms):
    """The choice by hand, with scikit-learn: transforms are functions of points by their name.

    The classifier that comes back knows the validation images too.
    """
    best = None
    for name, transform in transforms.items():
        for weights in ("uniform", "distance"):
            for k in (1, 3, 5, 9):
                oracle = KNeighborsClassifier(k, weights=weights)
                oracle.fit(transform(train[0]), train[1])
                accuracy = oracle.score(transform(val[0]), val[1])
                if best is None or accuracy > best[0]:
                    best = accuracy, name, weights, k, oracle
    assert best is not None
    both = np.concatenate([train[0], val[0]]), np.concatenate([train[1], val[1]])
    best[-1].fit(transforms[best[1]](both[0]), both[1])
    return best


def test_pixels(tmp_path: Path):
    parts = pixels(EpisodeDataModule(normalize=False))
    accuracy, _, weights, k, oracle = choose(parts["train"], parts["val"], {0: lambda x: x})
    found = scores_of(tmp_path, PixelNeighbors())
    assert found["test_accuracy"] == pytest.approx(oracle.score(*parts["test"]), abs=1e-6)
    assert found["test_top_k"] == k
    assert found["test_weighting"] == (weights == "distance")
    assert found["test_val_accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_principal_components(tmp_path: Path):
    parts = pixels(EpisodeDataModule(normalize=False))
    fitted = {n: PCA(n, svd_solver="full").fit(parts["train"][0]) for n in (2, 12)}
    transforms = {n: pca.transform for n, pca in fitted.items()}
    accuracy, number, _, k, oracle = choose(parts["train"], parts["val"], transforms)
    found = scores_of(tmp_path, PixelNeighbors(components=[2, 12]), batch_size=77)
    expected = oracle.score(transforms[number](parts["test"][0]), parts["test"][1])
    assert found["test_accuracy"] == pytest.approx(expected, abs=1e-6)
    assert (found["test_components"], found["test_top_k"]) == (number, k)
    assert found["test_val_accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_pixels_have_nothing_to_train(tmp_path: Path):
    with pytest.raises(ValueError, match="PixelNeighbors has nothing to train: use `ltr test`"):
        trainer(tmp_path, max_epochs=1).fit(PixelNeighbors(), EpisodeDataModule())


def test_the_autoencoder(tmp_path: Path):
    seed_everything(0)
    module = AutoencoderNeighbors(
        DenseAutoencoder(hidden=(64,), code=16), optimizer=partial(torch.optim.Adam, lr=3e-3)
    )
    data = EpisodeDataModule(normalize=False)
    fit = trainer(tmp_path, max_epochs=12)
    fit.fit(module, data)
    train = data.to_float(data.splits["train"].pixels)
    with torch.no_grad():
        error = (module.autoencoder.decode(module(train)) - train).square().mean()
    # better than the mean image; the log is of the epoch before it was this good
    assert error < (train - train.mean(0)).square().mean()
    assert error < fit.callback_metrics["train_loss"]
    assert fit.callback_metrics["val_accuracy"] > 0.7
    with pytest.raises(ValueError, match="normalize must"):
        trainer(tmp_path, max_epochs=1).fit(AutoencoderNeighbors(), EpisodeDataModule())


def weights_after(folder: Path, ckpt_path: Path | None = None) -> dict[str, Any]:
    seed_everything(7)
    module = SoftNearestNeighbors(
        small(),
        SharedStochastic(SoftSort(1.0), samples=2),
        optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    )
    saver = ModelCheckpoint(folder, save_on_train_epoch_end=True, save_top_k=-1)
    fit = trainer(folder, saver, max_epochs=2)
    fit.fit(module, EpisodeDataModule(augment=True), ckpt_path=ckpt_path)
    return module.state_dict()


def test_a_run_resumed_after_an_epoch_ends_at_the_same_weights(tmp_path: Path):
    unbroken = weights_after(tmp_path / "one")
    [file] = (tmp_path / "one").glob("epoch=0-*.ckpt")
    resumed = weights_after(tmp_path / "other", ckpt_path=file)
    torch.testing.assert_close(resumed, unbroken, rtol=0, atol=0)


def test_a_checkpoint_has_the_weights(tmp_path: Path):
    module = SoftNearestNeighbors(small(), NeuralSort(3.0), top_k=4)
    fit = trainer(tmp_path, max_epochs=1, limit_train_batches=1, limit_val_batches=1)
    fit.fit(module, EpisodeDataModule())
    fit.save_checkpoint(tmp_path / "one.ckpt")
    loaded = SoftNearestNeighbors.load_from_checkpoint(
        tmp_path / "one.ckpt", weights_only=True, network=small(), top_k=4
    )
    images = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(loaded(images), module(images), rtol=0, atol=0)


def test_half_precision_trains_with_scores_in_float32(tmp_path: Path):
    seen = []

    class Look(SoftSort):
        def permutation(self, scores, mask=None, weights=None):
            seen.append(scores.dtype)
            return super().permutation(scores, mask, weights)

    module = SoftNearestNeighbors(small(), Look(1.0), top_k=1)
    fit = trainer(tmp_path, max_epochs=1, limit_train_batches=2, precision="bf16-mixed")
    fit.fit(module, EpisodeDataModule())
    assert seen == [torch.float32] * 2


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"top_k.*0"):
        SoftNearestNeighbors(top_k=0)
    with pytest.raises(ValueError, match="KNNLoss needs a permutation"):
        SoftNearestNeighbors(operator=SigmoidRank())
    with pytest.raises(ValueError, match="network must"):
        SoftNearestNeighbors(network=MNISTCNN)
    with pytest.raises(ValueError, match="network must"):
        AutoencoderNeighbors(network=small())
    with pytest.raises(ValueError, match="weightings must"):
        PixelNeighbors(weightings=["near"])
    with pytest.raises(ValueError, match=r"top_k.*\[\]"):
        PixelNeighbors(top_k=[])


def test_the_data_must_have_candidates_and_the_training_images(tmp_path: Path):
    module = SoftNearestNeighbors(small())
    with pytest.raises(ValueError, match="batches must"):
        trainer(tmp_path, max_epochs=1).fit(module, ImageDataModule())
    data = EpisodeDataModule()
    data.setup()
    with pytest.raises(ValueError, match="datamodule must"):
        trainer(tmp_path).test(module, dataloaders=data.test_dataloader(), verbose=False)


def test_too_many_components(tmp_path: Path):
    with pytest.raises(ValueError, match=r"components.*65"):
        scores_of(tmp_path, PixelNeighbors(components=[65]))

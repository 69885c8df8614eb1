"""The cut that moves in at the start of training, and the warning at a temperature."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from ltr.datasets import DigitsDataModule
from ltr.estimators import NeuralRanker
from ltr.losses import ApproxNDCG, Penalized, RankingLoss, SoftmaxLoss, SoftNDCG, moving_cutoff
from ltr.models import LinearScorer
from ltr.modules import CheckTemperature, MoveCutoff, Ranker
from ltr.modules.checks import temperature_warning
from ltr.operators import (
    GaussianRank,
    LaplaceRank,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SoftRank,
    SoftSort,
    SoftSortRank,
    Standardized,
    Stochastic,
    StraightThrough,
    temperature_for,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)


class Seen(SoftNDCG):
    """Notes the cut of each call, in training and outside of it."""

    def __init__(self, **options: Any):
        super().__init__(mean="arithmetic", **options)
        self.seen: list[tuple[bool, int | None]] = []

    def per_ragged_list(self, scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # pyright: ignore
        self.seen.append((scores.requires_grad, self.top_k))
        return super().per_ragged_list(scores, *args, **kwargs)

    def cuts(self, training: bool) -> list[int | None]:
        return [cut for there, cut in self.seen if there == training]


def fit(
    folder: Path, loss: RankingLoss, *callbacks: Callback, scale: float = 5.0, **options: Any
) -> Trainer:
    """Five epochs of five steps, with scores of a fixed scale."""
    scorer = LinearScorer(64)
    with torch.no_grad():
        for weight in scorer.parameters():
            weight *= scale
    chosen = {"max_epochs": 5, **options}
    ranker = Ranker(scorer, loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    trainer = Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **chosen,
    )
    data = DigitsDataModule(list_size=9, train_lists=20, val_lists=4, test_lists=1, batch_size=4)
    trainer.fit(ranker, data)
    return trainer


def test_moving_cut():
    cuts = [moving_cutoff(step, 3, steps=8) for step in range(10)]
    assert cuts == [None, None, 24, 24, 12, 12, 6, 6, 3, 3]
    assert moving_cutoff(0, 5, steps=0) == 5
    assert [moving_cutoff(step, 2, steps=2) for step in range(3)] == [None, 8, 2]
    for wrong, message in (
        ((-1, 3), "step must be >= 0, got -1"),
        ((0, 0), "top_k must be a whole number >= 1, got 0"),
        ((0, 3, -4), "steps must be >= 0, got -4"),
    ):
        with pytest.raises(ValueError, match=message):
            moving_cutoff(*wrong)


def test_an_open_cut_has_a_gradient_at_the_start():
    """At equal scores of a long list, what a step does to the first documents."""
    labels = torch.zeros(400)
    labels[:20] = 1

    def gradient(top_k: int | None) -> float:
        scores = torch.zeros(400, dtype=torch.float64, requires_grad=True)
        SoftNDCG(top_k=top_k, mean="arithmetic")(scores, labels).backward()
        assert scores.grad is not None
        return scores.grad.norm().item()

    first = gradient(moving_cutoff(0, 10))
    assert first == gradient(None) > 100 * gradient(10)


def test_the_cut_moves_in_while_training_alone(tmp_path: Path):
    loss = Seen(top_k=2)
    fit(tmp_path, Penalized(loss, SoftmaxLoss()), MoveCutoff(steps=12), CheckTemperature())
    wanted = [moving_cutoff(step, 2, steps=12) for step in range(25)]
    assert loss.cuts(training=True) == wanted
    assert {*loss.cuts(training=False)} == {2}
    assert loss.top_k == 2


def test_every_ranker_moves_it(tmp_path: Path):
    loss = Seen(top_k=2)
    trainer = fit(tmp_path, loss)
    assert loss.cuts(training=True) == [moving_cutoff(step, 2) for step in range(25)]
    kinds = [type(one) for one in trainer.callbacks]  # pyright: ignore
    assert kinds.count(MoveCutoff) == kinds.count(CheckTemperature) == 1
    still, uncut = Seen(top_k=2), Seen()
    fit(tmp_path, still, MoveCutoff(steps=0))
    fit(tmp_path, uncut)
    assert {*still.cuts(training=True)} == {2}
    assert {*uncut.cuts(training=True)} == {None}
    with pytest.raises(ValueError, match=r"steps.*-1"):
        MoveCutoff(steps=-1)


def test_the_cut_is_back_after_an_error(tmp_path: Path):
    class Stop(Callback):
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
            raise RuntimeError("enough")

    given = SoftNDCG(top_k=2, mean="arithmetic")
    with pytest.raises(RuntimeError, match="enough"):
        fit(tmp_path, given, Stop())
    assert given.top_k == 2


def lists(generator: int = 0) -> tuple[Tensor, Tensor]:
    """Scores with a standard deviation of 2 within lists, and a mask over padding."""
    draws = torch.Generator().manual_seed(generator)
    mask = torch.arange(30) < torch.tensor([30, 20, 1])[:, None]
    scores = torch.randn(3, 30, generator=draws) + torch.tensor([[5.0], [0], [99]])
    return torch.where(mask, 2 * scores / temperature_for(scores, mask, sharpness=1), 1e6), mask


@pytest.mark.parametrize("kind", [SigmoidRank, GaussianRank, LaplaceRank, SoftRank, SoftSortRank])
def test_limits_of_the_temperature(kind: type[RankOperator]):
    scores, mask = lists()

    def text(temperature: float) -> str | None:
        return temperature_warning(SoftNDCG(kind(temperature)), scores, mask)  # pyright: ignore

    assert text(2 / 3.01) is text(2 / 99) is text(0) is None
    name = kind.__name__
    for temperature, limit in ((2 / 2.99, "more than a third"), (2 / 101, "less than a hundredth")):
        found = text(temperature)
        assert found is not None
        assert found.startswith(f"{name} has the temperature {temperature:g}, {limit} of the stand")
        assert found.endswith(f"Try {name}(temperature=0.2)")


def test_what_is_not_checked():
    scores, mask = lists()
    for loss in (
        SoftmaxLoss(),
        SoftNDCG(SoftSortRank(9.0, power=2)),
        SoftNDCG(NeuralSort(50.0)),
        SoftNDCG(Standardized(SigmoidRank(9.0))),
        SoftNDCG(SoftSort(9.0)),
    ):
        assert temperature_warning(loss, scores, mask) is None
    assert temperature_warning(ApproxNDCG(9.0), torch.zeros(3, 4)) is None
    assert temperature_warning(ApproxNDCG(9.0), scores * torch.inf, mask) is None
    for inside in (Stochastic(SigmoidRank(9.0)), StraightThrough(SigmoidRank(9.0))):
        assert "SigmoidRank(temperature=0.2)" in str(
            temperature_warning(Penalized(SoftNDCG(inside)), scores, mask)
        )


def test_one_warning_in_a_run(tmp_path: Path):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(tmp_path, ApproxNDCG(5.0))
        told = [str(one.message) for one in found if "temperature" in str(one.message)]
    assert len(told) == 1
    assert told[0].startswith("SigmoidRank has the temperature 5, more than a third")
    # none before 20 steps, none for scores that fit, none without a temperature
    fit(tmp_path, ApproxNDCG(5.0), max_epochs=3)
    fit(tmp_path, ApproxNDCG(0.1))
    fit(tmp_path, SoftmaxLoss())
    with pytest.warns(UserWarning, match="less than a hundredth of the standard deviation"):
        fit(tmp_path, ApproxNDCG(0.1), scale=1e4)


@pytest.mark.filterwarnings("ignore:Found 1 module")
def test_a_frozen_part_stays_in_evaluation(tmp_path: Path):
    loss = ApproxNDCG(0.1)
    loss.operator.eval()
    modes: list[tuple[bool, bool]] = []

    class Look(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
            modes.append((pl_module.scorer.training, pl_module.loss.operator.training))

    fit(tmp_path, loss, Look())
    assert modes == [(True, False)] * 5


def test_neural_ranker_warns_of_its_members():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)), np.arange(200) // 10
    options: dict[str, Any] = {"members": 2, "max_epochs": 25, "verbose": 0, "random_state": 0}
    with pytest.warns(UserWarning, match="SigmoidRank has the temperature 900, more than a third"):
        NeuralRanker(loss=ApproxNDCG(900.0), **options).fit(X, X[:, 0] > 0, qid=qid)


def test_training_that_goes_on_has_its_cut():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)), np.arange(200) // 10
    loss = Seen(top_k=2)
    ranker = NeuralRanker(loss=loss, members=1, max_epochs=1, batch_size=5, verbose=0)
    ranker.partial_fit(X, X[:, 0] > 0, qid=qid)
    seen: list[int | None] = []

    class Kept(Seen):
        def per_ragged_list(self, *args: Any, **kwargs: Any) -> Tensor:
            seen.append(self.top_k)
            return super().per_ragged_list(*args, **kwargs)

    ranker.loss = Kept(top_k=2)
    ranker.partial_fit(X, X[:, 0] > 0, qid=qid)
    assert {*seen} == {2}

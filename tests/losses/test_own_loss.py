"""A loss of one's own, as docs/losses/own.md shows it, in a Trainer, in trees and in `ltr fit`."""

import importlib
import subprocess
import sys
from doctest import DocTestParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMRanker
from lightning.pytorch import Trainer

from ltr.boosting import objective
from ltr.datasets import TableDataModule
from ltr.estimators import NeuralRanker
from ltr.losses import Penalized, RankingLoss
from ltr.models import MLPScorer, RankingModel
from ltr.modules import Ranker

PAGE = Path(__file__).parents[2] / "docs" / "losses" / "own.md"


def source() -> str:
    """Return the code of the page's class, a module of its own."""
    examples = DocTestParser().get_examples(PAGE.read_text(encoding="utf-8"))
    [code] = [example.source for example in examples if example.source.startswith("class ")]
    return f"import torch\nfrom ltr.losses import RankingLoss\n\n{code}"


@pytest.fixture
def focal() -> RankingLoss:
    names: dict[str, type[RankingLoss]] = {}
    exec(source(), names)
    return names["Focal"]()


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels that the first feature decides, and qids of 40 lists."""
    features = np.random.default_rng(0).normal(size=(400, 3))
    return features, (features[:, 0] > 0.5).astype(int), np.repeat(np.arange(40), 10)


def test_it_is_an_objective_of_trees(focal: RankingLoss):
    features, labels, _ = table()
    trees = LGBMRanker(objective=objective(focal), n_estimators=5, n_jobs=1, verbose=-1)
    scores = trees.fit(features, labels, group=[10] * 40).predict(features)
    assert np.corrcoef(np.asarray(scores), labels)[0, 1] > 0.8


def test_a_trainer_takes_it(focal: RankingLoss):
    features, labels, qid = table()
    frame = pd.DataFrame(features, columns=["a", "b", "c"]).assign(query=qid, grade=labels)
    data = TableDataModule(frame, qid="query", label="grade", validation=0.2)
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Ranker(MLPScorer(hidden=(8,)), focal), datamodule=data)
    assert trainer.callback_metrics["train_loss"] > 0


def test_a_ranker_is_loaded_with_it_or_with_trust(
    focal: RankingLoss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    features, labels, qid = table()
    (tmp_path / "its_module.py").write_text(source())
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("its_module")
    ranker = NeuralRanker(loss=module.Focal(gamma=1.5), members=1, max_epochs=1, verbose=0)
    ranker.fit(features, labels, qid=qid)
    ranker.save(tmp_path / "model")
    wrong = r"trust=\['its_module'\].*; or give loss itself: load\(path, loss=\.\.\.\)$"
    with pytest.raises(ValueError, match=f"^loss: its_module.Focal is in the package .*{wrong}"):
        NeuralRanker.load(tmp_path / "model")
    trusted = NeuralRanker.load(tmp_path / "model", trust=["its_module"])
    assert type(trusted.loss) is module.Focal
    assert vars(trusted.loss)["gamma"] == 1.5
    again = NeuralRanker.load(tmp_path / "model", loss=focal)
    assert again.loss is focal
    np.testing.assert_array_equal(again.predict(features), ranker.predict(features))
    model = RankingModel.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict(features), ranker.predict(features))

    ranker.loss = Penalized(focal)  # a class without a module, inside another loss
    with pytest.warns(UserWarning, match="loss was not saved"):
        ranker.save(tmp_path / "unsaved")
    with pytest.raises(
        ValueError, match=r"^loss must be given, as in load\(path, loss=\.\.\.\), as"
    ):
        NeuralRanker.load(tmp_path / "unsaved")
    assert NeuralRanker.load(tmp_path / "unsaved", loss=focal).loss is focal


@pytest.mark.slow  # a process that trains
def test_ltr_fit_takes_it_from_a_module(tmp_path: Path):
    (tmp_path / "losses.py").write_text(source())
    own = "model: {loss: {class_path: losses.Focal, init_args: {gamma: 1.5}}}"
    (tmp_path / "own.yaml").write_text(own)
    command = "import sys; sys.path.insert(0, ''); from ltr.cli import main; main(sys.argv[1:])"
    options = ["--config", "digits/smoke", "--config", "own.yaml", "--trainer.max_epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", command, "fit", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "train_loss" in done.stdout

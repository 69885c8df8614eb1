"""Checkpoints hold configurations: reading one never runs code of the file's."""

import copy
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from ltr.config import to_config
from ltr.datasets import DigitsDataModule, FeatureTransform, Standardize
from ltr.losses import PointwiseMSE, SoftNDCG
from ltr.metrics import NDCG
from ltr.models import LinearScorer, MLPScorer
from ltr.modules import Ranker
from ltr.operators import SoftSort, Stochastic

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)


class Bomb:
    """Runs a command where it is unpickled."""

    def __init__(self, hit: Path):
        self.hit = hit

    def __reduce__(self):
        return os.system, (f"touch {self.hit}",)


class Halve(FeatureTransform):
    """A user's own transform."""

    def __init__(self, by: float = 2.0, num_features: int | None = None):
        super().__init__(num_features)
        self.by = by

    def transform(self, features, mask):
        return features / self.by


class Late(FeatureTransform):
    """One whose state only fitting makes, so that no state can be loaded."""

    def fit(self, features):
        super().fit(features)
        self.register_buffer("most", torch.ones(features.shape[1]))
        return self

    def transform(self, features, mask):
        return features / self.most


def digits(transform: FeatureTransform | None = None) -> DigitsDataModule:
    sizes = {"list_size": 5, "train_lists": 8, "val_lists": 2, "test_lists": 2, "batch_size": 4}
    return DigitsDataModule(**sizes, transform=transform or Standardize())


def trainer(folder: Path) -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return Trainer(accelerator="cpu", max_epochs=1, default_root_dir=folder, **quiet)


def saved(folder: Path, ranker: Ranker, transform: FeatureTransform | None = None) -> Path:
    fit = trainer(folder)
    fit.fit(ranker, digits(transform))
    fit.save_checkpoint(folder / "model.ckpt", weights_only=False)
    return folder / "model.ckpt"


def changed(file: Path, **values: Any) -> Path:
    """The checkpoint with other values at its top, and with what they pickle to."""
    content = torch.load(file, weights_only=False)
    torch.save({**content, **values}, file)
    return file


def test_a_checkpoint_is_plain_data(tmp_path: Path):
    ranker = Ranker(
        MLPScorer(hidden=(4,), activation=nn.GELU),
        SoftNDCG(SoftSort(0.5), top_k=3, mean="arithmetic"),
        {"ndcg": NDCG(top_k=2)},
        partial(torch.optim.SGD, lr=0.5),
    )
    content = torch.load(saved(tmp_path, ranker), weights_only=True)
    config = content["config"]
    assert config == to_config(ranker)
    assert config["class_path"] == "ltr.modules.Ranker"
    assert config["init_args"]["optimizer"]["init_args"] == {"lr": 0.5}
    assert config["init_args"]["scorer"]["init_args"]["num_features"] == 64
    assert content["transform"]["class_path"] == "ltr.datasets.Standardize"
    assert content["unsaved"] == {}
    assert b"ltr.losses.ndcg\n" not in (tmp_path / "model.ckpt").read_bytes()  # a pickled class


@pytest.mark.parametrize("position", ["objects", "config", "unsaved", "transform", "epoch"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_malicious_pickle_is_refused(tmp_path: Path, position: str, packed: bool):
    hit = tmp_path / "hit"
    file = saved(tmp_path, Ranker(LinearScorer()))
    bomb: Any = pickle.dumps(Bomb(hit)) if packed else Bomb(hit)
    content = torch.load(file, weights_only=True)
    if position == "objects":
        del content["config"]
        bomb = {"scorer": bomb}
    if position == "config":
        bomb = {"class_path": "ltr.modules.Ranker", "init_args": {"scorer": bomb}}
    torch.save({**content, position: bomb}, file)
    hit.unlink(missing_ok=True)
    harmless = packed and position == "epoch"  # bytes that nobody reads
    if harmless:
        Ranker.load_from_checkpoint(file)
    else:
        with pytest.raises(ValueError, match=r"pickled|damaged|plain data|not a checkpoint"):
            Ranker.load_from_checkpoint(file)
        with pytest.raises((ValueError, pickle.UnpicklingError)):
            Ranker.load_from_checkpoint(file, trust=["os", "posix"])
    assert not hit.exists()


def test_the_environment_does_not_change_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    hit = tmp_path / "hit"
    file = saved(tmp_path, Ranker(LinearScorer()))
    changed(file, anything=Bomb(hit))
    with pytest.raises(ValueError, match="more than tensors and plain values"):
        Ranker.load_from_checkpoint(file)
    assert not hit.exists()


@pytest.mark.parametrize(
    "scorer",
    [
        {"class_path": "os.system", "init_args": {"command": "touch hit"}},
        {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "hit"]}},
        {"class_path": "ltr.modules.ranker.copy.os.system"},
        {"class_path": "ltr.losses.SoftNDCG"},
        {"class_path": "torch.nn.Linear", "init_args": {"in_features": 2, "out_features": 1}},
    ],
)
def test_a_malicious_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scorer: dict[str, Any]
):
    monkeypatch.chdir(tmp_path)
    file = saved(tmp_path, Ranker(LinearScorer()))
    config = torch.load(file)["config"]
    changed(file, config={**config, "init_args": {**config["init_args"], "scorer": scorer}})
    with pytest.raises(ValueError, match="scorer: "):
        Ranker.load_from_checkpoint(file)
    config["init_args"]["_instantiator"] = "os.system"
    changed(file, config=config, hyper_parameters={"_instantiator": "os.system"})
    with pytest.raises(ValueError, match="Ranker has no argument _instantiator"):
        Ranker.load_from_checkpoint(file)
    assert not Path("hit").exists()


def test_a_malicious_transform_is_refused_by_the_trainer_too(tmp_path: Path):
    hit = tmp_path / "hit"
    file = saved(tmp_path, Ranker(LinearScorer()))
    for transform, message in [
        (pickle.dumps(Bomb(hit)), "plain data"),
        ({"class_path": "os.system", "init_args": {"command": f"touch {hit}"}}, "package os,"),
        ({"class_path": "ltr.models.LinearScorer"}, "is not a FeatureTransform"),
        ("text", "transform must be a FeatureTransform"),
    ]:
        changed(file, transform=transform)
        with pytest.raises(ValueError, match=message):
            Ranker.load_from_checkpoint(file)
        with pytest.raises(ValueError, match=message):
            trainer(tmp_path).test(Ranker(LinearScorer()), digits(), ckpt_path=file, verbose=False)
    assert not hit.exists()


def test_a_users_own_transform(tmp_path: Path):
    ranker = Ranker(LinearScorer())
    file = saved(tmp_path, ranker, Halve(by=4.0))
    with pytest.raises(ValueError, match=r"transform: .*Halve is in the package"):
        Ranker.load_from_checkpoint(file)
    loaded = Ranker.load_from_checkpoint(file, trust=[__name__])
    assert isinstance(loaded.transform, Halve)
    assert loaded.transform.by == 4.0
    given = Ranker.load_from_checkpoint(file, transform=Halve(by=8.0))
    assert given.transform.by == 8.0
    # the data module's own transform is of that class: its user trusts it
    again = Ranker(LinearScorer())
    trainer(tmp_path).test(again, digits(Halve()), ckpt_path=file, verbose=False)
    assert again.transform.by == 4.0
    with pytest.raises(ValueError, match="Halve is in the package"):
        trainer(tmp_path).test(Ranker(LinearScorer()), digits(), ckpt_path=file, verbose=False)


def test_a_transform_that_could_not_be_loaded_is_refused_before_training(tmp_path: Path):
    with pytest.raises(ValueError, match="transform must"):
        saved(tmp_path, Ranker(LinearScorer()), Late())


def test_a_transform_of_main_is_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Halve, "__module__", "__main__")
    with pytest.warns(UserWarning, match="transform is not in the checkpoint.* is in __main__"):
        file = saved(tmp_path, Ranker(LinearScorer()), Halve(by=4.0))
    with pytest.raises(ValueError, match="transform must"):
        Ranker.load_from_checkpoint(file)
    assert Ranker.load_from_checkpoint(file, transform=Halve(by=4.0)).transform.by == 4.0
    resumed = Ranker(LinearScorer())
    trainer(tmp_path).test(resumed, digits(Halve(by=4.0)), ckpt_path=file, verbose=False)
    assert resumed.transform.by == 4.0


def test_an_object_without_a_configuration_is_named(tmp_path: Path):
    noisy = SoftNDCG(Stochastic(SoftSort(), generator=torch.Generator()), gain=lambda y: y)
    with pytest.warns(UserWarning, match="loss is not in the checkpoint") as warned:
        file = saved(tmp_path, Ranker(LinearScorer(), noisy))
    assert any("SoftNDCG.operator.generator" in str(one.message) for one in warned)
    with pytest.raises(ValueError, match=r"loss.*SoftNDCG\.operator\.generator"):
        Ranker.load_from_checkpoint(file)
    assert Ranker.load_from_checkpoint(file, loss=PointwiseMSE()).scorer.num_features == 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights_only": False}, "weights_only.*False"),
        ({"hparams_file": "x.yaml"}, "hparams_file must"),
        ({"trust": "mypackage"}, "trust must"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Ranker.load_from_checkpoint("any.ckpt", **options)


def test_files_that_are_no_checkpoints(tmp_path: Path):
    for content in ({}, [1], {"state_dict": {}}, {"config": 1, "state_dict": {}}):
        torch.save(content, tmp_path / "x.ckpt")
        with pytest.raises(ValueError, match="not a checkpoint of ltr"):
            Ranker.load_from_checkpoint(tmp_path / "x.ckpt")


def test_a_copy_keeps_the_arguments():
    ranker = Ranker(LinearScorer(3), loss := PointwiseMSE())
    assert ranker.get_params()["loss"] is loss
    assert to_config(copy.deepcopy(ranker)) == to_config(ranker)
    assert to_config(pickle.loads(pickle.dumps(ranker))) == to_config(ranker)

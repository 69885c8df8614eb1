"""Checkpoints made to do harm: no path in one is used, and an error is one line."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ltr.datasets import Standardize
from ltr.models import LinearScorer
from ltr.modules import Ranker

FIT = ["fit", "--config", "tiny.yaml", "--trainer.max_epochs", 2]
SCHEDULER = ["--model.scheduler", "StepLR", "--model.scheduler.step_size", "1"]
SCHEDULER += ["--model.optimizer", "Adam"]
OWN = ["--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.dirpath", "own"]
OWN += ["--trainer.callbacks.monitor", "val_ndcg_10"]


@pytest.fixture
def content(fit_once) -> dict[str, Any]:
    """The content of `last.ckpt` of a run of one epoch; the run's folder is gone."""
    fit_once(*FIT[1:-1], 1, *SCHEDULER)
    found = torch.load("runs/tiny/1/checkpoints/last.ckpt")
    shutil.rmtree("runs")
    return found


def resume(ltr, content: Any) -> Any:
    torch.save(content, "bad.ckpt")
    return ltr(*FIT, *SCHEDULER, "--ckpt_path", "bad.ckpt")


def state_of(dirpath: str, path: str) -> dict[str, Any]:
    """The state of Lightning's `ModelCheckpoint`, all of whose paths are `path`."""
    value = torch.tensor(9.0 if path.endswith("secret") else -9.0)  # kept, or replaced
    state: dict[str, Any] = dict.fromkeys(("best_model_score", "current_score", "kth_value"), value)
    state |= dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), path)
    return {**state, "monitor": "val_ndcg_10", "dirpath": dirpath, "best_k_models": {path: value}}


@pytest.mark.filterwarnings("ignore:ModelCheckpoint starts without its saved state.*")
@pytest.mark.parametrize(
    ("whose", "path"),
    [
        ("ours", "local://{}/victim"),
        ("the user's", "{}/victim/secret"),
        # each of the others trains again, of a callback and a kind of path that the two above have
        pytest.param("ours", "{}/victim/secret", marks=pytest.mark.slow),
        pytest.param("the user's", "{}/victim", marks=pytest.mark.slow),
        pytest.param("the user's", "x/..", marks=pytest.mark.slow),
    ],
)
def test_no_path_in_a_checkpoint_is_used(ltr, content, tmp_path: Path, whose: str, path: str):
    Path("victim").mkdir()
    Path("victim/secret").write_text("secret")
    path = path.format(tmp_path)
    options, folder = ([], "runs/tiny/1/checkpoints") if whose == "ours" else (OWN, "own")
    state = state_of(str(tmp_path / folder), path)
    lightnings = ModelCheckpoint(monitor="val_ndcg_10", mode="min")
    states = {"BestCheckpoint" + lightnings.state_key.removeprefix("ModelCheckpoint"): state}
    for mode in ("min", "max"):
        key = lightnings.state_key.replace("'min'", repr(mode))
        states |= {key: state, key.replace("ModelCheckpoint", "BestCheckpoint"): state}
    torch.save({**content, "callbacks": {**content["callbacks"], **states}}, "bad.ckpt")
    answer = ltr(*FIT, *SCHEDULER, *options, "--ckpt_path", "bad.ckpt")
    assert answer.code == 0, answer.err
    assert Path("victim/secret").read_text() == "secret"
    assert all(file.read_bytes() != b"secret" for file in Path("runs").rglob("*.ckpt"))
    assert torch.load("runs/tiny/1/checkpoints/best.ckpt")["epoch"] == 1
    assert Path("runs/tiny/1/checkpoints/last.ckpt").is_file()
    assert len(list(Path("own").glob("*.ckpt"))) == (whose != "ours")


def test_the_state_of_ours_must_be_numbers(ltr, content, tmp_path: Path):
    for key in content["callbacks"]:
        if "BestCheckpoint" in key:
            content["callbacks"][key] = state_of(str(tmp_path), str(tmp_path))
    assert_one_line(resume(ltr, content))
    assert Path("tiny.yaml").is_file()


def test_only_best_ckpt_beside_it_is_copied(ltr, content):
    Path("given").mkdir()
    torch.save(content, "given/any.ckpt")
    done = [*FIT[:-1], 1, *SCHEDULER, "--ckpt_path", "given/any.ckpt"]
    Path("secret").write_text("secret")
    Path("given/best.ckpt").symlink_to(Path("secret").absolute())
    answer = ltr(*done)
    assert answer.code == 0, answer.err
    assert "best val_ndcg_10" not in answer.out  # its weights are not there
    Path("given/best.ckpt").unlink()
    Path("given/best.ckpt").write_text("the best weights")
    answer = ltr(*done)
    assert answer.code == 0, answer.err
    assert "best val_ndcg_10" in answer.out
    assert [str(file) for file in Path("runs").rglob("*.ckpt")] == [
        "runs/tiny/2/checkpoints/best.ckpt"
    ]
    assert Path("runs/tiny/2/checkpoints/best.ckpt").read_text() == "the best weights"


def test_a_weight_that_is_not_finite_is_named(ltr, content):
    name = "scorer.layers.0.weight"
    content["state_dict"][name][0, 0] = float("nan")
    assert_one_line(resume(ltr, content), name)
    assert_one_line(ltr("test", "--config", "tiny.yaml", "--ckpt_path", "bad.ckpt"), name)
    with pytest.raises(ValueError, match=rf"bad\.ckpt: {name} must be finite"):
        Ranker.load_from_checkpoint("bad.ckpt")


def test_a_buffer_with_nan_is_named():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    ranker = Ranker(LinearScorer(3))
    ranker.transform = Standardize().fit(rows)
    state = ranker.state_dict()
    name = next(key for key in state if key.endswith("mean"))
    state[name][1] = float("nan")
    with pytest.raises(ValueError, match=rf"{name}.*nan"):
        ranker.load_state_dict(state)


def test_a_damaged_file_is_one_line_of_every_command(ltr, content):
    torch.save(content, "bad.ckpt")
    raw = bytearray(Path("bad.ckpt").read_bytes())
    raw[len(raw) // 2] ^= 1
    Path("bad.ckpt").write_bytes(raw)
    for command in (
        [*FIT, "--ckpt_path", "bad.ckpt"],
        ["test", "--config", "tiny.yaml", "--ckpt_path", "bad.ckpt"],
        ["predict", "--ckpt_path", "bad.ckpt", "--output", "x.csv"],
        ["export", "bad.ckpt", "--out", "x"],
    ):
        assert_one_line(ltr(*command), "checksum")
    assert not Path("runs").exists()


def assert_one_line(answer: Any, *words: str) -> None:
    assert answer.code == 2, answer.out
    assert answer.err.count("\n") == 1, answer.err
    assert all(word in answer.err for word in ("bad.ckpt", *words)), answer.err


DELETED = object()
VALUES: dict[str, Any] = {
    "deleted": DELETED,
    "tensor": torch.ones(3),
    "text": "x/..",
    "none": None,
    "list": [1],
    "dict": {"a": 1},
    "nested": {"a": {"b": [torch.zeros(2, 2)]}},
    "nan": float("nan"),
    "negative": -1,
}


def positions(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The position of each value in a checkpoint."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*above, key)
        if isinstance(one, dict | list | tuple):
            yield from positions(one, (*above, key))


def changed(value: Any, position: tuple[Any, ...], new: Any) -> Any:
    """A copy of a checkpoint with another value at a position."""
    if not position:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(position) == 1 and new is DELETED:
        del copy[position[0]]
    else:
        copy[position[0]] = changed(copy[position[0]], position[1:], new)
    return copy


def cases(content: dict[str, Any]) -> list[tuple[tuple[Any, ...], str]]:
    return [(position, name) for position in positions(content) for name in VALUES]


def check_load(content: dict[str, Any], position: tuple[Any, ...], name: str) -> bool:
    torch.save(changed(content, position, VALUES[name]), "bad.ckpt")
    try:
        Ranker.load_from_checkpoint("bad.ckpt")
    except ValueError as error:
        return "bad.ckpt" in str(error)
    return True


def check_resume(ltr, content: dict[str, Any], position: tuple[Any, ...], name: str) -> None:
    answer = resume(ltr, changed(content, position, VALUES[name]))
    if answer.code:
        assert_one_line(answer)


def test_any_value_at_a_place_of_a_checkpoint_to_load(ltr, content):
    for position, name in random.Random(0).sample(cases(content), 60):
        assert check_load(content, position, name), (position, name)


@pytest.mark.slow  # some thousand checkpoints; the test above loads sixty of them
def test_any_value_at_any_place_of_a_checkpoint_to_load(ltr, content):
    for position, name in cases(content):
        assert check_load(content, position, name), (position, name)


FOUND = [
    (("optimizer_states", 0, "state", 1, "exp_avg"), "tensor"),
    (("optimizer_states", 0, "param_groups", 0, "betas", 0), "none"),
    (("optimizer_states",), "deleted"),
    (("lr_schedulers", 0, "last_epoch"), "text"),
    (("lr_schedulers", 0), "dict"),
    (("loops", "fit_loop", "epoch_progress", "current", "completed"), "tensor"),
    (("loops", "fit_loop", "epoch_progress", "current", "completed"), "negative"),
    (("loops", "fit_loop"), "deleted"),
    (("callbacks",), "tensor"),
    (("loops", "fit_loop", "epoch_loop.val_loop.batch_progress", "total"), "none"),
    (("callbacks", "LastCheckpoint", "seconds"), "nested"),
    (("callbacks", "SeedSteps"), "dict"),
    (("transform",), "negative"),
    (("state_dict", "scorer.layers.0.weight"), "text"),
]


# Each takes a command; the fast tests have one of each part of a checkpoint.
PARTS_SEEN: set[Any] = set()
CASES = []
for position, name in FOUND:
    CASES.append(
        pytest.param(position, name, marks=[pytest.mark.slow] if position[0] in PARTS_SEEN else [])
    )
    PARTS_SEEN.add(position[0])


@pytest.mark.parametrize(("position", "name"), CASES, ids=lambda one: str(one))
def test_a_wrong_value_in_a_checkpoint_to_resume_from(ltr, content, position, name):
    assert_one_line(resume(ltr, changed(content, position, VALUES[name])))


@pytest.mark.filterwarnings("ignore:.* starts without its saved state.*")
@pytest.mark.slow  # 200 trainings; the test above has one for each error that they found
def test_any_value_at_a_place_of_a_checkpoint_to_resume_from(ltr, content):
    for position, name in random.Random(0).sample(cases(content), 200):
        shutil.rmtree("runs", ignore_errors=True)
        check_resume(ltr, content, position, name)

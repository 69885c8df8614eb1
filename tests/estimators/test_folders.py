"""Folders of models: damaged files are refused, and a save takes place whole or not at all."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from lightgbm import LGBMRanker

from ltr.config.folder import with_digest, write_folder
from ltr.estimators import Blend, NeuralRanker
from ltr.export.card import Difference
from ltr.models import MLPScorer, RankingModel

FILES = ["config.json", "model.safetensors"]
EXPORTED = ["README.md", "config.json", "model.onnx", "model.safetensors"]


def train(levels: str, seed: int) -> NeuralRanker:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=80), "c": rng.choice([*levels], 80)})
    small = NeuralRanker(
        scorer=MLPScorer(hidden=(4,)), members=2, max_epochs=2, verbose=0, random_state=seed
    )
    return small.fit(X, rng.integers(0, 3, 80), qid=np.arange(80) // 8)


@pytest.fixture(scope="module")
def first() -> NeuralRanker:
    return train("xy", 0)


@pytest.fixture(scope="module")
def second() -> NeuralRanker:
    """A model of the first one's shape, with other weights and other levels."""
    return train("yz", 1)


def blended(levels: str, seed: int) -> Blend:
    """The network of `train` and a linear ranker, fitted in no time."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=80), "c": rng.choice([*levels], 80)})
    small = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    trees = LGBMRanker(n_estimators=2, min_child_samples=2, verbose=-1)
    blend = Blend([small, trees], validation=0, verbose=0)
    return blend.fit(X, rng.integers(0, 3, 80), qid=np.arange(80) // 8)


@pytest.fixture(scope="module", params=["network", "blend"])
def pair(request, first, second) -> tuple[Any, Any, list[str]]:
    """Two models of a kind, and the files of their folder."""
    if request.param == "network":
        return first, second, FILES
    return blended("xy", 0), blended("yz", 1), [*FILES, "ranker-1.txt"]


X = pd.DataFrame({"a": [0.5, -1.0, 0.1], "c": ["x", "y", "z"]})


def which(found: Any, first: Any, second: Any) -> str:
    """Return the model that gives these scores; an error if it is a mix."""
    scores = found.predict(X)
    for name, one in (("first", first), ("second", second)):
        if np.allclose(scores, one.predict(X), atol=1e-6):
            return name
    raise AssertionError(f"neither model gives {scores}")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- damage


def test_every_flipped_bit_of_the_weights_is_found(first, tmp_path):
    first.save(tmp_path)
    path = tmp_path / "model.safetensors"
    whole, draw = path.read_bytes(), random.Random(0)
    for position in draw.sample(range(8 * len(whole)), 150):
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        for load in (NeuralRanker.load, RankingModel.load):
            with pytest.raises(ValueError, match=r"model\.safetensors.*digest"):
                load(tmp_path)


def test_weights_of_another_model_are_refused(first, second, tmp_path):
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    os.replace(tmp_path / "b" / "model.safetensors", tmp_path / "a" / "model.safetensors")
    for load in (NeuralRanker.load, RankingModel.load):
        with pytest.raises(ValueError, match=r"model\.safetensors.*digest"):
            load(tmp_path / "a")


@pytest.mark.parametrize("digests", [None, {}, [], {"model.onnx": "0"}])
def test_a_folder_without_a_digest_is_refused(first, tmp_path, digests):
    first.save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["sha256"] = digests
    (tmp_path / "config.json").write_text(json.dumps(content))
    for load in (NeuralRanker.load, RankingModel.load):
        with pytest.raises(ValueError, match=r"no digest of config\.json: save the model"):
            load(tmp_path)
    if isinstance(digests, dict):
        (tmp_path / "config.json").write_text(json.dumps(with_digest(content)))
        with pytest.raises(ValueError, match=r"no digest of model\.safetensors: save the model"):
            NeuralRanker.load(tmp_path)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite_is_not_saved(tmp_path, bad):
    ranker = train("xy", 0)
    name = "copies.1.layers.0.weight"
    with torch.no_grad():
        dict(ranker.scorer_.named_parameters())[name][0, 0] = bad
    message = rf"model\.safetensors: scorer\.{name} must be finite, got {bad}"
    with pytest.raises(ValueError, match=message):
        ranker.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("scorer.copies.1.layers.0.weight", torch.nan),
        ("scorer.copies.0.layers.0.bias", -torch.inf),
        ("scorer.scales", torch.nan),
        ("transform.median", torch.nan),
    ],
)
def test_a_weight_that_is_not_finite_is_not_loaded(first, tmp_path, name, bad):
    first.save(tmp_path)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    state[name].view(-1)[0] = bad
    weights = safetensors.torch.save(state)
    (tmp_path / "model.safetensors").write_bytes(weights)
    content = json.loads((tmp_path / "config.json").read_text())
    content["sha256"]["model.safetensors"] = sha256(weights).hexdigest()
    (tmp_path / "config.json").write_text(json.dumps(with_digest(content)))
    for load in (NeuralRanker.load, RankingModel.load):
        with pytest.raises(ValueError, match=rf"{name}.*{bad}"):
            load(tmp_path)


# --- one model at any time


class Killed(BaseException):
    """The process ends here: no later operation on a file takes place."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    steps = count()

    def wrap(operation: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(steps) >= step:
                raise Killed
            return operation(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "fsync", "unlink", "rmdir"):
            patch.setattr(os, name, wrap(getattr(os, name)))
        with suppress(Killed):
            yield


def test_a_kill_at_any_step_leaves_one_model(pair, tmp_path):
    first, second, files = pair
    load = type(first).load
    folder, found = tmp_path / "model", []
    for step in count():
        first.save(folder)
        assert sorted(os.listdir(folder)) == files  # what the last kill left is gone
        with killed_at(step):
            second.save(folder)
            break
        found.append(which(load(folder), first, second))
    assert set(found) == {"first", "second"}
    assert found == sorted(found)  # from one step on it is the second
    assert which(load(folder), first, second) == "second"


def test_a_kill_while_several_files_are_written(tmp_path):
    layers = {seed: torch.nn.Linear(2, 1) for seed in (0, 1)}
    files = {seed: {"model.onnx": b"%d" % seed, "README.md": b"%d" % seed} for seed in (0, 1)}
    seen = set()
    for step in count():
        write_folder(tmp_path, {"scorer": layers[0]}, {"n": 0}, files[0])
        assert sorted(os.listdir(tmp_path)) == EXPORTED
        with killed_at(step):
            write_folder(tmp_path, {"scorer": layers[1]}, {"n": 1}, files[1])
            break
        left = sorted(os.listdir(tmp_path))
        number = json.loads((tmp_path / "config.json").read_text())["n"]
        seen.add(number)
        # a save of the same model gives every file the content that belongs to the configuration
        write_folder(tmp_path, {"scorer": layers[number]}, {"n": number}, files[number])
        assert {*EXPORTED} <= {*left}
        assert contents(tmp_path)["model.onnx"] == b"%d" % number
    assert seen == {0, 1}


def test_the_files_of_a_killed_export_get_their_names_with_the_next_save(tmp_path):
    layer = torch.nn.Linear(2, 1)
    write_folder(tmp_path, {"scorer": layer}, {"n": 0}, {"model.onnx": b"old"})
    for step in count():  # up to the step that makes the new model count
        with killed_at(step):
            write_folder(tmp_path, {"scorer": layer}, {"n": 1}, {"model.onnx": b"new"})
        if json.loads((tmp_path / "config.json").read_text())["n"] == 1:
            break
    assert (tmp_path / "model.onnx").read_bytes() == b"old"
    assert (tmp_path / ".model.onnx.ltr-new").read_bytes() == b"new"
    write_folder(tmp_path, {"scorer": layer}, {"n": 2})
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.onnx", "model.safetensors"]
    assert (tmp_path / "model.onnx").read_bytes() == b"new"


def test_half_files_of_a_kill_are_removed(first, tmp_path):
    first.save(tmp_path)
    for name in FILES:
        (tmp_path / f".{name}.ltr-new").write_bytes((tmp_path / name).read_bytes()[:100])
    assert NeuralRanker.load(tmp_path).members == 2
    first.save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == FILES


def test_files_of_others_stay(first, second, tmp_path):
    others = {"notes.txt": b"1", ".hidden": b"2", "model.onnx": b"3", ".x.ltr-partial": b"4"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    for ranker in (first, second):
        ranker.save(tmp_path)
    (tmp_path / "folder").rmdir()
    left = contents(tmp_path)
    assert {name: left[name] for name in others} == others
    assert sorted(left) == sorted([*others, *FILES])


def test_loads_beside_a_writer_get_one_model(pair, tmp_path):
    first, second, files = pair
    first.save(tmp_path)
    done = threading.Event()

    def write() -> None:
        try:
            for ranker in [second, first] * 12:
                ranker.save(tmp_path)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    while not done.is_set():
        found.append(which(type(first).load(tmp_path), first, second))
    writer.join()
    assert {*found} == {"first", "second"}
    assert sorted(os.listdir(tmp_path)) == files


def test_writers_at_once_leave_one_model(pair, tmp_path):
    first, second, files = pair

    def write(ranker: Any) -> None:
        for _ in range(8):
            ranker.save(tmp_path)

    writers = [threading.Thread(target=write, args=(one,)) for one in (first, second) * 2]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert which(type(first).load(tmp_path), first, second) in ("first", "second")
    assert sorted(os.listdir(tmp_path)) == files


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_umask_gives_the_permissions(first, tmp_path, mask):
    before = os.umask(mask)
    try:
        first.save(tmp_path / "model")
        if mask == 0o027:  # an export takes half a second
            first.export(tmp_path / "one.pt2", per_document=True)
    finally:
        os.umask(before)
    exported = [*tmp_path.glob("one.*")]
    assert len(exported) == 2 * (mask == 0o027)
    files = [*(tmp_path / "model").iterdir(), *exported]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~mask}


# --- a full disk


def test_a_full_disk_while_a_model_is_saved(pair, largest_file, tmp_path):
    first, second, files = pair
    folder = tmp_path / "a" / "model"
    first.save(folder)
    before = contents(folder)
    second.save(tmp_path / "a" / "second")
    sizes = {len(content) - 1 for content in contents(tmp_path / "a" / "second").values()}
    for size in {0, 100, *sizes}:
        message = r"File too large: '.*a/model/[a-z]"
        with largest_file(size), pytest.raises(OSError, match=message) as caught:
            second.save(folder)
        assert Path(str(caught.value.filename)).name in files
        assert contents(folder) == before
        with largest_file(size), pytest.raises(OSError, match="File too large"):
            second.save(tmp_path / "b" / "model")
        assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_while_a_model_is_exported(first, second, largest_file, tmp_path, monkeypatch):
    # any content is too large, and that of an export takes a second to make
    content = (bytes(20_000), Difference(0, 1, 0))
    monkeypatch.setattr("ltr.export.write._checked", lambda *_: content)
    folder, file = tmp_path / "model", tmp_path / "one" / "model.pt2"
    first.save(folder)
    (folder / "model.pt2").write_bytes(b"old")
    before = contents(folder)
    for path, name in ((folder, "model.pt2"), (file, "model.pt2")):
        message = rf"File too large: '{tmp_path}/(model|one)/{name}"
        with largest_file(10_000), pytest.raises(ValueError, match=message):
            second.export(path, to="torch")
        assert os.listdir(tmp_path) == ["model"]
        assert contents(folder) == before


# --- kills

WRITE = """
import sys
from ltr.estimators import Blend, NeuralRanker
folder, *models = sys.argv[1:]
rankers = [NeuralRanker.load(one) for one in models]
print("ready", flush=True)
while True:
    for one in rankers:
        one.save(folder)
"""


@pytest.mark.slow  # starts six processes
def test_kills_at_random_moments(first, second, tmp_path):
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    folder, draw = tmp_path / "model", random.Random(0)
    first.save(folder)
    loads = 0
    for _ in range(6):
        models = [tmp_path / "second", tmp_path / "first"]
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE, folder, *models], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        until = time.monotonic() + draw.uniform(0, 2)
        while time.monotonic() < until:  # beside the writer
            which(NeuralRanker.load(folder), first, second)
            loads += 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        which(NeuralRanker.load(folder), first, second)
    assert loads > 10
    first.save(folder)
    assert sorted(os.listdir(folder)) == FILES

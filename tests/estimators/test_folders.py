"""Folders of models: damaged files are refused, and a save takes place whole or not at all."""

import json
import os
import random
import re
import signal
import subprocess
import sys
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
from model_folders import file_in, names_in, with_files

from ltr.config.folder import Saved, read_folder, write_folder
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
    path = file_in(tmp_path, "model.safetensors")
    whole, draw = path.read_bytes(), random.Random(0)
    for position in draw.sample(range(8 * len(whole)), 150):
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        for load in (NeuralRanker.load, RankingModel.load):
            with pytest.raises(ValueError, match=rf"{path.name} is damaged: its digest"):
                load(tmp_path)


def test_weights_of_another_model_are_refused(first, second, tmp_path):
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    own, other = (file_in(tmp_path / one, "model.safetensors") for one in "ab")
    os.replace(other, own)
    for load in (NeuralRanker.load, RankingModel.load):
        with pytest.raises(ValueError, match=rf"{own.name} is damaged: its digest"):
            load(tmp_path / "a")
    os.replace(own, own.with_name(other.name))
    with pytest.raises(ValueError, match=rf"{own.name} is missing"):
        NeuralRanker.load(tmp_path / "a")


@pytest.mark.parametrize("digest", [None, "", "0" * 64, 3, {}, []])
def test_a_configuration_without_its_digest_is_refused(first, tmp_path, digest):
    first.save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["sha256"] = digest
    (tmp_path / "config.json").write_text(json.dumps(content))
    for load in (NeuralRanker.load, RankingModel.load):
        with pytest.raises(ValueError, match=r"config\.json is damaged: its digest"):
            load(tmp_path)


def as_0_2(folder: Path) -> None:
    """Give a folder the form in which ltr 0.2 saved networks."""
    content = json.loads((folder / "config.json").read_text())
    parameters = content.pop("parameters", None)
    if parameters is not None:
        path = f"ltr.estimators.{content['kind']}"
        content["config"] = {"class_path": path, "init_args": parameters}
    del content["kind"], content["files"]
    path = file_in(folder, "model.safetensors")
    digest = sha256(path.read_bytes()).hexdigest()
    path.rename(folder / "model.safetensors")
    content |= {"ltr": "0.2.0", "sha256": {"model.safetensors": digest, "config.json": "0"}}
    (folder / "config.json").write_text(json.dumps(content))


def test_networks_that_0_2_saved(first, tmp_path):
    first.save(tmp_path / "network")
    first.model_.save(tmp_path / "model")
    for name in ("network", "model"):
        as_0_2(tmp_path / name)
        again = RankingModel.load(tmp_path / name)
        np.testing.assert_array_equal(again.predict(X), first.predict(X))
    again = NeuralRanker.load(tmp_path / "network")
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert again.get_params()["max_epochs"] == 2
    with pytest.raises(ValueError, match="of a NeuralRanker, but of a RankingModel"):
        NeuralRanker.load(tmp_path / "model")
    again.save(tmp_path / "network")
    assert names_in(tmp_path / "network") == [*FILES, "model.safetensors"]  # 0.2's own stays
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        RankingModel.load(tmp_path / "model")


def test_blends_that_0_2_saved_are_refused(tmp_path):
    blended("xy", 0).save(tmp_path)
    as_0_2(tmp_path)
    with pytest.raises(ValueError, match="not of this version of ltr: fit the model and save it"):
        Blend.load(tmp_path)


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
    state = safetensors.torch.load_file(file_in(tmp_path, "model.safetensors"))
    state[name].view(-1)[0] = bad
    with_files(tmp_path, {"model.safetensors": safetensors.torch.save(state)})
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


def visible(folder: Path) -> list[str]:
    """The names of a folder's files, without digests and without hidden files of a kill."""
    return [name for name in names_in(folder) if not name.startswith(".")]


def test_a_kill_at_any_step_leaves_one_model(pair, tmp_path):
    first, second, files = pair
    load = type(first).load
    folder, found = tmp_path / "model", []
    for step in count():
        first.save(folder)
        assert visible(folder) == files  # what the last kill left is gone
        with killed_at(step):
            second.save(folder)
            break
        found.append(which(load(folder), first, second))
    assert set(found) == {"first", "second"}
    assert found == sorted(found)  # from one step on it is the second
    assert which(load(folder), first, second) == "second"


def test_a_kill_while_an_export_is_written(tmp_path):
    """Each file is whole: `config.json` and its weights, and the file for other programs."""
    models = [Saved({"scorer": torch.nn.Linear(2, 1)}, {"kind": str(n)}) for n in (0, 1)]
    beside = [{"model.onnx": b"%d" % n, "README.md": b"%d" % n} for n in (0, 1)]
    seen = set()
    for step in count():
        write_folder(tmp_path, models[0], beside[0])
        assert visible(tmp_path) == EXPORTED
        with killed_at(step):
            write_folder(tmp_path, models[1], beside[1])
            break
        content, files = read_folder(tmp_path)
        own = safetensors.torch.load(files["model.safetensors"])["scorer.weight"]
        assert torch.equal(own, models[int(content["kind"])].parts["scorer"].weight)
        seen.add((content["kind"], (tmp_path / "model.onnx").read_text()))
    assert seen == {("0", "0"), ("0", "1"), ("1", "1")}


def test_files_of_others_stay(first, second, tmp_path):
    others = {"notes.txt": b"1", ".hidden": b"2", "model.onnx": b"3", ".x.ltr-partial": b"4"}
    others |= {"model.safetensors": b"5", "model-1.safetensors": b"6", "ranker-0123.txt": b"7"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    for ranker in (first, second):
        ranker.save(tmp_path)
    (tmp_path / "folder").rmdir()
    left = contents(tmp_path)
    assert {name: left.pop(name) for name in others} == others
    assert {*left} == {"config.json", file_in(tmp_path, "model.safetensors").name}


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
        named = re.sub(r"-[0-9a-f]{16}\.", ".", Path(str(caught.value.filename)).name)
        assert named in files
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


@pytest.mark.slow  # starts thirty processes
def test_kills_at_random_moments(first, second, tmp_path):
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    folder, draw = tmp_path / "model", random.Random(0)
    first.save(folder)
    for _ in range(30):
        models = [tmp_path / "second", tmp_path / "first"]
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE, folder, *models], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(draw.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        which(NeuralRanker.load(folder), first, second)
    first.save(folder)
    assert visible(folder) == FILES

"""A `config.json` of a stranger gives a model or one error, never a traceback of our own."""

import json
import random
import shutil
from collections import Counter

import pytest

from ltr.config.folder import with_digest
from ltr.estimators import NeuralRanker
from ltr.models import RankingModel

LOADERS = {"NeuralRanker.load": NeuralRanker.load, "RankingModel.load": RankingModel.load}


def signed(text: str) -> str:
    """Return a configuration with its digest, as whoever wrote it would."""
    try:
        content = json.loads(text)
        return json.dumps(with_digest(content)).replace("Infinity", "1e999")
    except (ValueError, RecursionError, LookupError, AttributeError, TypeError):
        return text


def load_all(load, texts, folder, tmp_path) -> Counter:
    """Load a folder with each of these configurations, and count what came."""
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    came = Counter()
    for text in texts:
        path.write_text(signed(text))
        try:
            load(path.parent)
            came["model"] += 1
        except ValueError:
            came["error"] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} of {text[:5000]}") from error
    return came


@pytest.mark.parametrize("name", LOADERS)
def test_some_hostile_configurations(name, folder, mutations, tmp_path):
    texts = [*mutations(json.loads((folder / "config.json").read_text()))]
    assert len(texts) > 2000
    came = load_all(LOADERS[name], random.Random(0).sample(texts, 150), folder, tmp_path)
    assert came["model"] > 10
    assert came["error"] > 50


@pytest.mark.slow  # some thousand files; the test above loads 150 of them
@pytest.mark.parametrize("name", LOADERS)
def test_all_hostile_configurations(name, folder, mutations, tmp_path):
    texts = mutations(json.loads((folder / "config.json").read_text()))
    load_all(LOADERS[name], texts, folder, tmp_path)


@pytest.mark.parametrize("name", LOADERS)
def test_a_configuration_that_is_no_file(name, folder, tmp_path):
    load = LOADERS[name]
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    for content in (b"\xff\xfe", b"", b"null", b"3", b"{", b"\0"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model/config\.json"):
            load(path.parent)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"path.*model/config\.json"):
        load(path.parent)
    with pytest.raises(ValueError, match=r"path.*model\.onnx/config\.json"):
        load(tmp_path / "model" / "model.onnx")

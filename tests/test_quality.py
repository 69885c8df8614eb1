"""The benchmark of quality: what it chooses, averages and tests, and the page of its results."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.metrics.functional import ndcg

ROOT = Path(__file__).parents[1]


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return tuple(importlib.import_module(name) for name in ("quality_sets", "quality_summary"))


def folds(sets, count=2, lists=6, size=5):
    """Folds of lists whose only column is noise."""
    rng = np.random.default_rng(0)

    def some():
        y = rng.integers(0, 3, lists * size).astype(np.float32)
        y[::size] = 2  # each list has a relevant row
        X = rng.normal(size=(len(y), 1)).astype(np.float32)
        return sets.Lists(X, y, np.repeat(np.arange(lists), size))

    return [sets.Fold(some(), some(), some()) for _ in range(count)]


def write(path, val, test):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, val=np.stack(val), test=np.stack(test), seconds=np.ones(len(val)))


def test_the_value_is_chosen_on_the_validation_lists_of_each_fold(modules, tmp_path):
    sets, summary = modules
    data = folds(sets)
    side = {name: [getattr(fold, name).y for fold in data] for name in ("val", "test")}
    noise = np.random.default_rng(1).normal(size=60)
    for seed in range(2):
        # the first value is right in the first fold, the second in the second
        val = [np.r_[side["val"][0], -side["val"][1]], np.r_[-side["val"][0], side["val"][1]]]
        test = [np.r_[side["test"][0], noise[30:]], np.r_[noise[:30], side["test"][1]]]
        write(summary.cell_path(tmp_path, "d", "LightGBM, a", seed), val, test)
        reverse = [-np.r_[tuple(side["val"])]], [-np.r_[tuple(side["test"])]]
        write(summary.cell_path(tmp_path, "d", "x", seed), *reverse)
    methods = {"LightGBM, a": (7, 15), "x": (), "unfinished": ()}
    found = summary.summarize(data, tmp_path, "d", methods, 2, ("x",))
    assert found["baseline"] == "LightGBM, a"
    assert found["methods"].keys() == {"LightGBM, a", "x"}
    best, worst = found["methods"].values()
    assert best["chosen"] == [7, 15]
    assert worst["chosen"] == [None, None]
    for kind in ("single", "ensemble"):
        assert best[kind] == {"ndcg_10": 1.0}
        assert worst[kind]["ndcg_10"] < 1
        expected = worst[kind]["ndcg_10"] - 1
        assert worst[kind]["difference"][0] == pytest.approx(expected, abs=1e-4)
        assert worst[kind]["p_holm"] < 0.05
        beside = found["beside_trees"]["x"][kind]["LightGBM, a"]
        assert beside["difference"] == worst[kind]["difference"]
    assert found["lists"] == 12


def test_the_ensemble_averages_scores_of_one_spread(modules, tmp_path):
    sets, summary = modules
    [fold] = data = folds(sets, 1)
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(2, 30)) * np.array([[1.0], [100.0]])
    cells = []
    for seed, one in enumerate(scores):
        path = summary.cell_path(tmp_path, "d", "m", seed)
        write(path, [one], [one])
        cells.append(dict(np.load(path)))
    row = summary.Row(data, cells)
    parts = scores.reshape(2, 6, 5)
    scaled = parts / parts.std(2).mean(1)[:, None, None]
    expected = ndcg(*(tensor(x) for x in (scaled.mean(0), fold.test.y)), top_k=10)
    assert row.ensemble.mean() == pytest.approx(float(expected), abs=1e-6)
    each = [float(ndcg(*(tensor(x) for x in (one, fold.test.y)), top_k=10)) for one in parts]
    assert row.singles.mean(1).tolist() == pytest.approx(each, abs=1e-6)


def tensor(values):
    return torch.from_numpy(np.asarray(values, dtype=np.float32)).reshape(6, 5)


def test_the_page_shows_the_results():
    path = ROOT / "docs" / "quality_tables.py"
    spec = importlib.util.spec_from_file_location("quality_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tables = module.tables()
    pages = [page.read_text() for page in module.PAGES]
    for page in pages:
        assert module.filled(page, tables) == page
    assert all(f"<!-- table {name} -->" in "".join(pages) for name in tables)
    assert len(module.whole(module.result())) >= 3


@pytest.mark.slow  # fits of two methods on real data, in fresh processes
def test_the_benchmark_goes_on_where_it_was(data_root, tmp_path):
    command = [
        sys.executable, ROOT / "benchmarks" / "quality.py", "--cells", tmp_path / "out",
        "--sets", "MSLR-WEB10K, part", "--seeds", "1", "--output", tmp_path / "result.json",
        "--methods", "LightGBM, regression", "linear, XENDCG",
    ]  # fmt: skip
    environment = {**os.environ, "LTR_DATA": str(data_root)}
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        for _ in range(2)
    ]
    assert runs[0].stdout.count("seed 0") == 2
    assert runs[1].stdout.count("seed 0") == 0  # both cells are there
    [one] = json.loads((tmp_path / "result.json").read_text())["sets"]
    for row in one["methods"].values():
        assert 0.2 < row["single"]["ndcg_10"] < 0.6
        assert row["single"]["ndcg_10"] == pytest.approx(row["ensemble"]["ndcg_10"], abs=1e-4)


@pytest.mark.slow  # trees on real data, in a fresh process
def test_the_benchmark_of_boosting_has_what_the_page_shows(data_root, tmp_path):
    names = ["LightGBM, lambdarank", "softmax"]
    command = [
        sys.executable, ROOT / "benchmarks" / "boosting.py", "--cells", tmp_path / "out",
        "--sets", "MSLR-WEB10K, part", "--rows", "1200", "--output", tmp_path / "result.json",
        "--methods", *names,
    ]  # fmt: skip
    environment = {**os.environ, "LTR_DATA": str(data_root)}
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found = json.loads((tmp_path / "result.json").read_text())
    saved = json.loads((ROOT / "benchmarks" / "results" / "boosting.json").read_text())
    assert found.keys() == saved.keys()
    assert found["times"].keys() == saved["times"].keys()
    assert [*found["times"]["seconds_a_tree"]] == names
    [one] = found["sets"]
    assert [*one["methods"]] == names
    assert one["beside_trees"]["softmax"]["single"][names[0]]["p"] > 0

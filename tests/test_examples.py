"""The examples, run at a small size."""

import logging
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from .cli.conftest import write_letor

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*LeafSpec.*",
    "ignore:The argument 'eval_set' is deprecated.*",  # LightGBM 4.7
    "ignore:X does not have valid feature names.*:UserWarning",  # scikit-learn of LightGBM
)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the level of Lightning's log, which the programs change."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    yield
    log.setLevel(level)


def load(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / f"{name}.py")))


def test_digits(tmp_path, capsys):
    options = ["--out", str(tmp_path), "--epochs", "3", "--lists", "200"]
    table = load("digits").main(options)
    assert list(table.index) == ["before training", "SoftNDCG", "pointwise MSE"]
    ndcg = table["test_ndcg_10"]
    # grades have no scale: a loss on the order learns more from them
    assert ndcg["SoftNDCG"] > ndcg["pointwise MSE"] > ndcg["before training"]
    assert table.to_numpy().max() <= 1
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    assert (tmp_path / "table.csv").read_text().count("\n") == 4
    assert "SoftNDCG" in capsys.readouterr().out


def test_letor_folds(tmp_path, capsys):
    for fold in (1, 2):
        for number, (name, lists) in enumerate({"train": 60, "vali": 10, "test": 12}.items()):
            file = tmp_path / f"Fold{fold}" / f"{name}.txt"
            write_letor(file, lists, features=5, seed=10 * fold + number)
    options = ["--folds", "1", "2", "--epochs", "3"]
    table = load("letor_folds").main([str(tmp_path), *options])
    assert set(table.index) >= {"NeuralRanker"}
    assert list(table) == ["NDCG@1", "NDCG@5", "NDCG@10", "MAP"]
    for text in table.loc["NeuralRanker"]:
        mean = float(text.split()[0])
        assert 0 < mean <= 1
        assert "[" in text
    said = capsys.readouterr().out
    assert "fold 2: 60 lists to train on, 12 to test on" in said
    assert "means over 24 lists, with 95 % intervals" in said
    if "LightGBM" in table.index:
        assert "paired by list" in said


def test_the_pages_are_short():
    assert len((ROOT / "examples" / "digits.py").read_text().splitlines()) <= 120


def test_distill_to_trees(tmp_path, capsys):
    for number, (name, lists) in enumerate({"train": 60, "vali": 10, "test": 12}.items()):
        write_letor(tmp_path / "Fold1" / f"{name}.txt", lists, features=5, seed=number)
    model = tmp_path / "student.txt"
    options = ["--epochs", "2", "--trees", "20", "--out", str(model)]
    table = load("distill_to_trees").main([str(tmp_path), *options])
    assert [*table.index] == ["blend", "LGBMRegressor of its scores", "LGBMRanker of labels"]
    assert ((table > 0.3) & (table <= 1)).all()
    assert "objective=regression\n" in model.read_text()
    assert "12 test lists; 30 lists had labels" in capsys.readouterr().out

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
    options = ["--output", str(tmp_path), "--epochs", "3", "--lists", "200"]
    table = load("digits").main(options)
    assert list(table.index) == ["at random", "SoftNDCG", "pointwise MSE"]
    ndcg = table["ndcg@10"]
    # grades have no scale: a loss on the order learns more from them
    assert ndcg["SoftNDCG"] > ndcg["pointwise MSE"] > ndcg["at random"]
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
    assert list(table.index) == ["LightGBM", "NeuralRanker"]
    assert list(table) == ["NDCG@1", "NDCG@5", "NDCG@10", "MAP"]
    for text in table.to_numpy().ravel():
        mean = float(text.split()[0])
        assert 0 < mean <= 1
        assert "[" in text
    said = capsys.readouterr().out
    assert "fold 2: 60 lists to train on, 12 to test on" in said
    assert "means over 24 lists, with 95 % intervals" in said
    assert "paired by list" in said


def test_distill_to_trees(tmp_path, capsys):
    for number, (name, lists) in enumerate({"train": 60, "vali": 10, "test": 12}.items()):
        write_letor(tmp_path / "Fold1" / f"{name}.txt", lists, features=5, seed=number)
    model = tmp_path / "student.txt"
    options = ["--epochs", "2", "--trees", "20", "--output", str(model)]
    table = load("distill_to_trees").main([str(tmp_path), *options])
    assert [*table.index] == ["blend", "LGBMRegressor of its scores", "LGBMRanker of labels"]
    assert ((table > 0.3) & (table <= 1)).all()
    assert "objective=regression\n" in model.read_text()
    assert "12 test lists; 30 lists had labels" in capsys.readouterr().out


def test_sessions(tmp_path):
    course = load("sessions").main(["--epochs", "3", "--output", str(tmp_path)])
    assert course[0] < course[1] < course[2] < course[3]
    assert (tmp_path / "sessions.png").stat().st_size > 5_000


def test_trees_with_our_loss(tmp_path, capsys):
    pytest.importorskip("lightgbm")
    options = ["--lists", "300", "--output", str(tmp_path)]
    softmax = load("trees_with_our_loss").main(options).models[1]
    assert softmax.mean.mean > 0.6  # chance: 0.3
    assert "paired randomization test" in capsys.readouterr().out


def test_clicks(tmp_path):
    found = load("clicks").main(["--sessions", "600", "--output", str(tmp_path)])
    assert found["production"] < found["clicks"] < found["debiased"] - 0.02
    assert (tmp_path / "clicks.png").stat().st_size > 5_000
    assert (tmp_path / "debiased" / "config.json").is_file()


def test_compare_runs(tmp_path, capsys):
    result = load("compare_runs").main(["--queries", "40", "--output", str(tmp_path)])
    assert result.models[1].difference.mean > 0
    assert "b loses most on q" in capsys.readouterr().out


def test_explain_query(tmp_path, capsys):
    why = load("explain_query").main(["--searches", "60", "--output", str(tmp_path)])
    assert {*why.index} == {"price", "stars", "kind"}
    assert why["difference"].sum() > 0  # the first stands above the second
    assert "ndcg@10 is" in capsys.readouterr().out


def test_fuse_and_diversify(tmp_path):
    found = load("fuse_and_diversify").main(["--output", str(tmp_path)])
    assert found["fused"][0] > max(found["words"][0], found["meaning"][0])
    assert found["diversified"][1] > found["fused"][1] + 0.05
    assert found["diversified"][0] > found["fused"][0] - 0.02


def test_slices_and_probabilities(tmp_path, capsys):
    options = ["--searches", "450", "--output", str(tmp_path)]
    slices, found = load("slices_and_probabilities").main(options)
    phone, desktop = (
        slices["device", name]["ndcg@5"].models[1].difference.mean for name in ("phone", "desktop")
    )
    assert phone > 0.15  # the photos, which the order of prices does not see, decide there
    assert abs(desktop) < 0.1
    assert found.ece < 0.1
    assert "Brier score" in capsys.readouterr().out


@pytest.mark.slow  # exports; tests/export and tests/serve have its parts
def test_shop(tmp_path, capsys):
    answer = load("shop").main(["--rows", "2000", "--output", str(tmp_path)])
    assert len(answer["results"][0]["scores"]) == 4
    assert "NDCG@10 on 100 new searches: 0.9" in capsys.readouterr().out


@pytest.mark.slow  # trains five rankers; tests/estimators/test_several_labels.py has its parts
def test_trade_off(tmp_path, capsys):
    found = load("trade_off").main(["--rows", "2000", "--output", str(tmp_path)])
    assert found[0].means[0] > found[-1].means[0]
    assert found[0].means[1] < found[-1].means[1]
    assert (tmp_path / "trade_offs.png").stat().st_size > 10_000
    assert "served scores: " in capsys.readouterr().out


def test_the_page_includes_the_programs():
    script = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "examples.py")))
    lines = script.PAGE.read_text().splitlines()
    for path in (ROOT / "examples").glob("*.py"):
        shown = path.stem in [*script.PROGRAMS, *script.TEXT]
        assert (f'    --8<-- "examples/{path.name}"' in lines) == shown, path.name
    assert script.PAGE.read_text().startswith(script.HEAD)
    foot = "\n\n".join([script.FOOT.rstrip(), *map(script.included, script.TEXT)])
    assert script.PAGE.read_text().endswith(f"\n\n{foot}\n")


@pytest.mark.slow  # runs all programs at their full size
def test_the_page_shows_what_they_print(tmp_path):
    script = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "examples.py")))
    page = script.PAGE.read_text()
    for name in script.PROGRAMS:
        said = script.run(name, tmp_path)
        section = page.split(f"## {script.PROGRAMS[name]}")[1]
        shown = section.split("```output\n")[1].split("```")[0]
        digits = str.maketrans("123456789", "0" * 9)  # the last ones depend on the machine
        assert shown.strip().translate(digits) == said.strip().translate(digits)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda x: x.stem)
def test_the_programs_are_short(path):
    assert len(path.read_text().splitlines()) <= 60

"""The committed pictures of the pages are those that the scripts in docs draw."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.testing.compare import compare_images  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_same(committed, drawn, tolerance=2):
    """Compare a PNG up to `tolerance`, and an SVG exactly, if this matplotlib has drawn it."""
    if committed.suffix == ".png":
        assert compare_images(str(committed), str(drawn), tolerance) is None
        return
    text = committed.read_text()
    if f"Matplotlib v{matplotlib.__version__}" in text:
        assert drawn.read_text() == text


@pytest.mark.parametrize("name", ["speed", "loss_speed", "metric_tables", "rerankers"])
def test_plots_of_measurements(name, tmp_path):
    script = load(name)
    result = script.result() if name == "metric_tables" else json.loads(script.RESULT.read_text())
    script.draw(result, tmp_path / "plot.svg")
    assert_same(script.PLOT, tmp_path / "plot.svg")


def test_the_pictures_of_quality(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    script = load("quality_tables")
    script.draw(json.loads(script.RESULT.read_text()), tmp_path / "plot.svg")
    assert_same(script.PLOT, tmp_path / "plot.svg")
    script.draw_first(json.loads(script.FULL.read_text()), tmp_path / "first.svg")
    assert_same(script.FIRST_PLOT, tmp_path / "first.svg")


def test_the_picture_of_the_readme(tmp_path):
    script = load("speed")
    script.overview(json.loads(script.RESULT.read_text()), tmp_path / "plot.svg")
    assert_same(script.PICTURE, tmp_path / "plot.svg")
    assert "(docs/img/sort_time.svg)" in (DOCS.parent / "README.md").read_text()


def test_plots_of_training(tmp_path, monkeypatch):
    script = load("soft_ndcg")
    committed = script.PLOT
    monkeypatch.setattr(script, "PLOT", tmp_path / "img" / committed.name)
    script.main()
    assert_same(committed, script.PLOT)


@pytest.mark.slow  # eighteen pictures, some of fits
@pytest.mark.parametrize(("script", "number"), [("gallery", 4), ("operator_plots", 14)])
def test_plots_of_operators(script, number, tmp_path):
    load(script).main(tmp_path)
    drawn = sorted(tmp_path.glob("*.png"))
    assert len(drawn) == number
    for file in drawn:
        assert_same(DOCS / "operators" / "img" / file.name, file)


def test_every_committed_picture_is_on_a_page():
    pages = {page: page.read_text() for page in DOCS.rglob("*.md")}
    shown = {
        (page.parent / target).resolve()
        for page, text in pages.items()
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    }
    committed = {*DOCS.rglob("*.png"), *DOCS.rglob("*.svg")}
    assert {path.resolve() for path in committed} == shown

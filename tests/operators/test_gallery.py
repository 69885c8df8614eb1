"""The pages of the operators show every figure that the scripts in docs draw, and every name."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "operators"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    pytest.importorskip("matplotlib")
    return load("gallery").FIGURES, load("operator_plots").PLOTS


def test_pages_show_the_figures_that_are_drawn(figures):
    gallery, plots = figures
    shown = {
        page.stem: set(re.findall(r"\(img/([\w-]+)\.png\)", page.read_text()))
        for page in PAGES.glob("*.md")
    }
    assert shown["gallery"] == set(gallery)
    for name in plots:
        assert shown[name] == {name}
    assert set().union(*shown.values()) == {*gallery, *plots}


def test_every_public_name_of_the_operators_is_on_a_page():
    import ltr.operators

    blocks = {
        name
        for page in PAGES.glob("*.md")
        for name in re.findall(
            r"^::: ltr\.operators\.(?:\w+\.)?(\w+)$", page.read_text(), re.MULTILINE
        )
    }
    assert blocks == set(ltr.operators.__all__)

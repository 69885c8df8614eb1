"""The gallery's script draws its figures, and its page shows them."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_every_figure_is_drawn_and_shown(tmp_path):
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    gallery.main(tmp_path)
    page = (DOCS / "operators" / "gallery.md").read_text()
    assert len(gallery.FIGURES) == 4
    for name in gallery.FIGURES:
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert f"img/{name}.png" in page

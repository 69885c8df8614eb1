"""The recipes' READMEs and pages are what docs/recipe_pages.py makes of the results."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from ltr.cli.recipes import Recipe, find_recipes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recipe_pages", ROOT / "docs/recipe_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", find_recipes())
def test_a_readme_has_its_table(pages, name):
    recipe = find_recipes()[name]
    readme = (recipe.folder / "README.md").read_text(encoding="utf-8")
    assert readme == pages.readme_of(recipe)
    assert (recipe.folder / "table.md").is_file()
    for table in recipe.folder.glob("table*.md"):
        assert table.read_text(encoding="utf-8").rstrip() in readme
    page = ROOT / "docs" / "recipes" / f"{name}.md"
    assert f"ltr/recipes/{name}/README.md" in page.read_text(encoding="utf-8")
    assert f"(recipes/{name}.md)" in (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def test_results_come_in_their_place(pages, tmp_path):
    folder = tmp_path / "digits"
    shutil.copytree(find_recipes()["digits"].folder, folder)
    recipe, readme = Recipe("digits", folder), folder / "README.md"
    table = pages.table_of(recipe).rstrip()
    readme.write_text("# digits\n\nWhat it is.\n")
    at_the_end = f"## Results\n\n<!-- results -->\n\n{table}\n\n<!-- end -->\n"
    assert pages.readme_of(recipe) == f"# digits\n\nWhat it is.\n\n{at_the_end}"
    readme.write_text("Before.\n<!-- results -->\nan old table\n<!-- end -->\nAfter.\n")
    (folder / "digits.png").write_bytes(b"a picture")
    picture = "![What `ltr bench digits` drew](digits.png)"
    assert pages.readme_of(recipe) == (
        f"Before.\n<!-- results -->\n\n{table}\n\n{picture}\n\n<!-- end -->\nAfter.\n"
    )
    (folder / "results.json").unlink()
    assert "an old table" in pages.readme_of(recipe)


def test_results_of_an_overlay(pages, tmp_path):
    folder = tmp_path / "digits"
    shutil.copytree(find_recipes()["digits"].folder, folder)
    recipe, readme = Recipe("digits", folder), folder / "README.md"
    content = json.loads((folder / "results.json").read_text())
    content["grid"] = {"seed_everything": [1, 2]}
    (folder / "results-smoke.json").write_text(json.dumps(content))
    table = pages.table_of(recipe, "smoke").rstrip()
    assert "(1 of 2)" in table
    readme.write_text(
        "Small:\n<!-- results smoke -->\n<!-- end -->\n<!-- results -->\n<!-- end -->\n"
    )
    found = pages.readme_of(recipe)
    assert found.startswith(f"Small:\n<!-- results smoke -->\n\n{table}\n\n<!-- end -->\n")
    assert pages.table_of(recipe).rstrip() in found

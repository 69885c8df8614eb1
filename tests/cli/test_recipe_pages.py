"""The recipes' READMEs and pages are what docs/recipe_pages.py makes of the results."""

import shutil
from pathlib import Path

import pytest
import recipe_pages as pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", pages.folders(), ids=lambda folder: folder.name)
def test_a_readme_has_its_table(folder):
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert readme == pages.readme_of(folder)
    tables = pages.tables_of(folder)
    assert "" in tables
    for name, text in tables.items():
        file = folder / (f"table-{name}.md" if name else "table.md")
        assert file.read_text(encoding="utf-8") == text
        assert text.rstrip() in readme
    page = (ROOT / "docs" / "recipes" / f"{folder.name}.md").read_text(encoding="utf-8")
    assert f'"{folder.relative_to(ROOT).as_posix()}/README.md"' in page
    recipes = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert f"(recipes/{folder.name}.md)" in recipes


def test_all_recipes_have_a_page():
    papers = {"clicks", "knn", "quantile", "regression", "sort", "speed", "topk"}
    assert papers | {"digits", "letor", "table"} == {folder.name for folder in pages.folders()}


def test_results_come_in_their_place(tmp_path):
    folder = tmp_path / "sort"
    shutil.copytree(ROOT / "recipes" / "sort", folder)
    readme, tables = folder / "README.md", pages.tables_of(folder)
    table, paper = tables[""].rstrip(), tables["paper"].rstrip()
    old = "<!-- results{} -->\nan old table\n<!-- end -->\n"
    readme.write_text("Before.\n" + old.format("") + old.format(" paper") + old.format(" x"))
    assert pages.readme_of(folder) == (
        f"Before.\n<!-- results -->\n\n{table}\n\n"
        "![The picture of sort](sort.png)\n\n<!-- end -->\n"
        f"<!-- results paper -->\n\n{paper}\n\n<!-- end -->\n" + old.format(" x")
    )

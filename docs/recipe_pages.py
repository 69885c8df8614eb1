"""Write the recipes' tables from their results, and their pages: `python docs/recipe_pages.py`.

This script goes through the folders of ltr/recipes that have a results.json. It makes `table.md`
from that file, and puts the table into README.md, between `<!-- results -->` and `<!-- end -->`,
with the picture if `ltr bench` drew one. In the same way it makes `table-search.md` from
`results-search.json`, the results of an overlay, and puts it between `<!-- results search -->` and
`<!-- end -->`. A page of docs/recipes is a recipe's README, with the pictures beside it. A test
checks that the files agree.
"""

import json
import re
import shutil
from pathlib import Path

from ltr.cli.caption import render
from ltr.cli.plan import make_plan
from ltr.cli.recipes import Recipe, find_recipes

PAGES = Path(__file__).parent / "recipes"
_RESULTS = re.compile(r"<!-- results( \w+)? -->.*?<!-- end -->", re.DOTALL)


def table_of(recipe: Recipe, overlay: str = "") -> str:
    """Return the content of a recipe's `table.md`, or that of one of its overlays."""
    content = json.loads((recipe.folder / _file("results.json", overlay)).read_text("utf-8"))
    finished = {run["name"]: run for run in content["runs"] if "metrics" in run}
    if not overlay:
        return render(make_plan(recipe.name, content["overrides"]), finished)
    values = {**content["grid"], **content.get("search", {})}
    given = [part for key, some in values.items() for part in (f"--{key}", json.dumps(some))]
    plan = make_plan(f"{recipe.name}/{overlay}", [*given, *content["overrides"]])
    return render(plan, finished)


def tables_of(recipe: Recipe) -> dict[str, str]:
    """Return the content of `table.md` ("") and of each overlay that has results, by overlay."""
    names = [path.stem.partition("-")[2] for path in recipe.folder.glob("results*.json")]
    return {name: table_of(recipe, name) for name in sorted(names)}


def readme_of(recipe: Recipe) -> str:
    """Return the content of a recipe's README, with its tables and its picture.

    A README without a place for the table gets one at its end.
    """
    text = (recipe.folder / "README.md").read_text(encoding="utf-8")
    tables = tables_of(recipe)
    if "" in tables and "<!-- results -->" not in text:
        text = text.rstrip() + "\n\n## Results\n\n<!-- results -->\n<!-- end -->\n"

    def block(found: re.Match[str]) -> str:
        overlay = (found[1] or "").strip()
        if overlay not in tables:
            return found[0]
        parts = [f"<!-- results{found[1] or ''} -->", tables[overlay].rstrip()]
        if not overlay and (recipe.folder / f"{recipe.name}.png").is_file():
            parts.append(f"![What `ltr bench {recipe.name}` drew]({recipe.name}.png)")
        return "\n\n".join([*parts, "<!-- end -->"])

    return _RESULTS.sub(block, text)


def _file(name: str, overlay: str) -> str:
    stem, _, ending = name.partition(".")
    return f"{stem}-{overlay}.{ending}" if overlay else name


def main() -> None:
    """Write all tables and pages that have changed."""
    PAGES.mkdir(exist_ok=True)
    for recipe in find_recipes().values():
        page = f'--8<-- "ltr/recipes/{recipe.name}/README.md"\n'
        _write(PAGES / f"{recipe.name}.md", page)
        for overlay, table in tables_of(recipe).items():
            _write(recipe.folder / _file("table.md", overlay), table)
        _write(recipe.folder / "README.md", readme_of(recipe))
        if (picture := recipe.folder / f"{recipe.name}.png").is_file():
            shutil.copyfile(picture, PAGES / picture.name)


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

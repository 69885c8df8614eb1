"""Write the recipes' tables from their results, and their pages: `python docs/recipe_pages.py`.

For each folder of ltr/recipes that has a results.json: `table.md` is made of it anew, and what
stands between `<!-- results -->` and `<!-- end -->` in README.md is that table and the picture, if
`ltr bench` drew one. A page of docs/recipes is a recipe's README; the pictures are beside it. A
test holds the files to this.
"""

import json
import re
import shutil
from pathlib import Path

from ltr.cli.caption import render
from ltr.cli.plan import make_plan
from ltr.cli.recipes import Recipe, find_recipes

PAGES = Path(__file__).parent / "recipes"
_RESULTS = re.compile(r"<!-- results -->.*?<!-- end -->", re.DOTALL)


def table_of(recipe: Recipe) -> str:
    """The content of a recipe's `table.md`, of its results."""
    content = json.loads((recipe.folder / "results.json").read_text(encoding="utf-8"))
    finished = {run["name"]: run for run in content["runs"] if "metrics" in run}
    return render(make_plan(recipe.name, []), finished)


def readme_of(recipe: Recipe) -> str:
    """The content of a recipe's README, with its table and its picture.

    Where the place for them is missing it is at the end.
    """
    text = (recipe.folder / "README.md").read_text(encoding="utf-8")
    if not (recipe.folder / "results.json").is_file():
        return text
    parts = [table_of(recipe).rstrip()]
    if (recipe.folder / f"{recipe.name}.png").is_file():
        parts.append(f"![What `ltr bench {recipe.name}` drew]({recipe.name}.png)")
    results = "\n\n".join(["<!-- results -->", *parts, "<!-- end -->"])
    if not _RESULTS.search(text):
        text = text.rstrip() + "\n\n## Results\n\n<!-- results -->\n<!-- end -->\n"
    return _RESULTS.sub(lambda _: results, text)


def main() -> None:
    """Write them all, those that have changed."""
    PAGES.mkdir(exist_ok=True)
    for recipe in find_recipes().values():
        page = f'--8<-- "ltr/recipes/{recipe.name}/README.md"\n'
        _write(PAGES / f"{recipe.name}.md", page)
        if not (recipe.folder / "results.json").is_file():
            continue
        _write(recipe.folder / "table.md", table_of(recipe))
        _write(recipe.folder / "README.md", readme_of(recipe))
        if (picture := recipe.folder / f"{recipe.name}.png").is_file():
            shutil.copyfile(picture, PAGES / picture.name)


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write the recipes' tables from their results, and their pages: `python docs/recipe_pages.py`.

For the folders of `recipes`, it makes `table.md` from `results.json`, and `table-NAME.md` from
`results-NAME.json`. It puts each table of a recipe into the README, between `<!-- results -->`, or
`<!-- results NAME -->`, and `<!-- end -->`, with the picture if it has one. A page in docs/recipes
is a recipe's README; `docs/hooks.py` puts the picture beside it. A test checks that the files
agree.
"""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "recipes"
_RESULTS = re.compile(r"<!-- results( \w+)? -->.*?<!-- end -->", re.DOTALL)


def folders() -> list[Path]:
    """Return the folders of all recipes: those that come with ltr, then the papers'."""
    configs = [*ROOT.glob("ltr/recipes/*/config.yaml"), *ROOT.glob("recipes/*/config.yaml")]
    return [path.parent for path in configs]


def tables_of(folder: Path) -> dict[str, str]:
    """Return the tables of a recipe, "" for `table.md` and "paper" for `table-paper.md`.

    Those of the experiments are drawn from their results.
    """
    found = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("table*.md")}
    if (folder / "run.py").is_file():
        for path in folder.glob("results*.json"):
            found[path.stem.replace("results", "table")] = _drawn(folder.name, path)
    return {stem.partition("-")[2]: text for stem, text in sorted(found.items())}


def _drawn(name: str, path: Path) -> str:
    from recipes.tables import render

    content = json.loads(path.read_text(encoding="utf-8"))
    if path.stem == "results-search":
        sweep = import_module(f"recipes.{name}.search").SWEEP
        runs = sweep.runs([], images=["MNIST"], lr=[0.001])  # what was searched
    else:
        sweep = import_module(f"recipes.{name}.run").SWEEP
        runs = sweep.runs([])
    return render(sweep, list(runs), content)


def readme_of(folder: Path) -> str:
    """Return the content of a recipe's README, with its tables and its picture."""
    tables = tables_of(folder)

    def block(found: re.Match[str]) -> str:
        name = (found[1] or "").strip()
        if name not in tables:
            return found[0]
        parts = [f"<!-- results{found[1] or ''} -->", tables[name].rstrip()]
        if not name and (folder / f"{folder.name}.png").is_file():
            parts.append(f"![The picture of {folder.name}]({folder.name}.png)")
        return "\n\n".join([*parts, "<!-- end -->"])

    return _RESULTS.sub(block, (folder / "README.md").read_text(encoding="utf-8"))


def main() -> None:
    """Write all tables and pages that have changed."""
    sys.path.append(str(ROOT))
    PAGES.mkdir(exist_ok=True)
    for folder in folders():
        where = folder.relative_to(ROOT).as_posix()
        _write(PAGES / f"{folder.name}.md", f'--8<-- "{where}/README.md"\n')
        for name, table in tables_of(folder).items():
            _write(folder / (f"table-{name}.md" if name else "table.md"), table)
        _write(folder / "README.md", readme_of(folder))


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

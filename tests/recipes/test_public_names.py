"""Recipes are programs of users: what they import of `ltr` is public."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import recipes

ROOT = Path(recipes.__path__[0]).parent


@cache
def documented_modules() -> set[str]:
    """The modules that a page of the site documents, as a whole or by one of their names."""
    pages = (page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    names = {name for page in pages for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}
    return names | {name.rpartition(".")[0] for name in names}


def used_names(path: Path) -> set[tuple[str, str]]:
    """The modules of `ltr` that a file imports, each with a name of it; "" for the module."""
    names = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {(node.module or "", each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            names |= {(each.name, "") for each in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names |= {(node.value.id, node.attr)}
    return {pair for pair in names if pair[0].partition(".")[0] == "ltr"}


def is_public(module: str, name: str) -> bool:
    if module == "ltr":
        return name in ("", "__version__")
    listed = getattr(import_module(module), "__all__", ())
    return module in documented_modules() and name in ("", *listed)


def test_recipes_use_public_names():
    files = sorted((ROOT / "recipes").rglob("*.py"))
    used = {pair: path for path in files for pair in used_names(path)}
    assert ("ltr.modules", "Ranker") in used
    assert {pair: path for pair, path in used.items() if not is_public(*pair)} == {}


def test_what_is_public():
    assert is_public("ltr.modules", "TrainableModule")
    assert is_public("ltr.operators", "SoftSort")
    assert not is_public("ltr.modules.base", "TrainableModule")
    assert not is_public("ltr.shapes", "upcast")
    assert not is_public("ltr", "names")

"""The rooms of the package are those of CONTRIBUTING.md, and imports point one way."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ltr

ROOT = Path(ltr.__file__).parent
PAGE = ROOT.with_name("CONTRIBUTING.md")


def rooms(page: str) -> list[str]:
    """Return the folders and files of the table, without `.py`, in its order."""
    rows = re.findall(r"^\| (`ltr/.*?) \|", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    return [name.removeprefix("ltr/").removesuffix(".py") for name in names]


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the rooms that a module imports from, also inside functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                alias.name[4:].partition(".")[0] for alias in node.names if alias.name[:4] == "ltr."
            )
        elif isinstance(node, ast.ImportFrom) and node.module == "ltr":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ltr."):
            yield str(node.module)[4:].partition(".")[0]


def test_imports_point_one_way():
    order = rooms(PAGE.read_text())
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).with_suffix("").parts[0]
        for other in {*imported(ast.parse(path.read_text()))} - {own, "__version__"}:
            if own != "__init__" and order.index(other) > order.index(own):
                wrong.append(f"{path.relative_to(ROOT)}: {other}")
    assert not wrong


def test_every_room_is_in_the_table():
    there = {
        path.stem
        for path in ROOT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert sorted(rooms(PAGE.read_text())) == sorted(there - {"__init__"})
    assert len({*rooms(PAGE.read_text())}) == len(rooms(PAGE.read_text()))


def test_an_import_is_found_wherever_it_stands():
    code = (
        "import ltr.a.b\nfrom ltr import c\ndef f():\n    from ltr.d import x\n    import torch\n"
    )
    assert [*imported(ast.parse(code))] == ["a", "c", "d"]

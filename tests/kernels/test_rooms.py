"""The engine's rooms: their interface, and what holds for all files."""

import ast
import re
from pathlib import Path

import pytest

import ltr
from ltr.kernels.cpu import CPU
from ltr.kernels.reference import REFERENCE

ROOT = Path(ltr.__file__).parent
FILES = sorted((ROOT / "kernels").rglob("*.py"))
MOST = 8


def functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(), str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def arguments(function: ast.FunctionDef) -> list[str]:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[names[:1] in (["self"], ["ctx"]) :]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_take_few_arguments(path):
    found = {f.name: len(arguments(f)) for f in functions(path)}
    assert {name: n for name, n in found.items() if n > MOST} == {}


@pytest.mark.parametrize("room", ["cpu", "reference"])
def test_files_in_rooms_have_no_underscore(room):
    names = {path.name for path in (ROOT / "kernels" / room).glob("*.py")}
    assert {"__init__.py", "sums.py"} <= names
    assert not [name for name in names if name.startswith("_") and name != "__init__.py"]


def test_rooms_offer_the_same():
    for room in (CPU, REFERENCE):
        assert all(map(callable, room[1:]))
        assert [f.__name__ for f in room[1:]] == list(room._fields[1:])
    assert (CPU.name, REFERENCE.name) == ("cpu", "reference")


def test_no_private_name_of_torch():
    private = re.compile(r"\btorch(\.\w+)*\._\w|super\(torch\.autograd")
    for path in ROOT.rglob("*.py"):
        # torch has no public name for the classes that `torch.func` looks into
        found = [m[0] for m in private.finditer(path.read_text()) if m[0] != "torch.utils._p"]
        assert not found, path


@pytest.mark.parametrize("path", [*FILES, ROOT / "gains.py"], ids=lambda path: path.stem)
def test_kernels_and_gains_know_nothing_of_the_operators(path):
    above = ("ltr.operators", "ltr.losses", "ltr.metrics")
    above += ("ltr.gains",) if path in FILES else ()
    nodes = list(ast.walk(ast.parse(path.read_text(), str(path))))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    assert not [name for name in names if name.startswith(above)]

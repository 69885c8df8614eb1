"""The arguments that several commands share: columns of a table, files, and the model."""

import argparse
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ltr.cli.errors import CommandError

_ROLES = {
    "qid": (None, "column of the queries; not for LETOR text"),
    "label": (None, "column of the relevance, >= 0"),
    "weight": (None, "column of the rows' weights"),
    "position": (None, "column of the positions at which documents were shown, from 1"),
    "protected": (None, "column of numbers above 0 in the protected group"),
    "doc_id": (None, "column of the documents' names"),
    "features": ("+", "columns to rank by; default: all other numbers and dates"),
    "categories": ("+", "columns of categories; default: other text and booleans"),
}
_MODEL = "the folder of a model or of a run, or an ONNX file"


class LineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as a `CommandError`."""

    def __init__(self, prog: str, **given: Any) -> None:
        given.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog, allow_abbrev=False, **given)
        self._outputs: list[str] = []

    def add_output(self, option: str, **given: Any) -> None:
        """Add an option, or an argument, for a file or a folder that the command writes."""
        self._outputs.append(option)
        self.add_argument(option, **given)

    def parse_known_args(self, args: Any, *given: Any, **named: Any) -> tuple[Any, list[str]]:
        """Parse the arguments; the error for `--out`, the option of ltr 0.2, names `--output`."""
        if "--output" in self._outputs and any(x.partition("=")[0] == "--out" for x in args):
            self.error("--out is now --output")
        return super().parse_known_args(args, *given, **named)

    def error(self, message: str) -> NoReturn:
        """Raise a `CommandError` with the message."""
        message = re.sub(r"^argument (\S+): must ", r"\1 must ", message)
        raise CommandError(f"{message} (see `{self.prog} --help`)")


def at_least_one(text: str) -> int:
    """Return the value of an argument, which must be a whole number >= 1."""
    return _whole_number(text, 1, None)


def up_to(most: int) -> Callable[[str], int]:
    """Return a function that gives the value of an argument, a whole number from 0 to `most`."""
    return partial(_whole_number, least=0, most=most)


def _whole_number(text: str, least: int, most: int | None) -> int:
    good = text.isascii() and text.isdigit() and int(text) >= least
    if not good or (most is not None and int(text) > most):
        span = f">= {least}" if most is None else f"from {least} to {most}"
        raise ArgumentTypeError(f"must be a whole number {span}, got {text!r}")
    return int(text)


def existing_file(path: str) -> str:
    """Return the path in an argument; it must be the path of an existing file."""
    if not Path(path).is_file():
        raise CommandError(f"{path}: no such file")
    return path


def new_file(*endings: str) -> Callable[[str], Path]:
    """Return a function that checks the path of a file to write, including its ending."""

    def check(text: str) -> Path:
        path = Path(text).expanduser()
        if path.exists() and not path.is_file():
            kind = "folder" if path.is_dir() else "device"
            raise ArgumentTypeError(f"must be a file, got the {kind} {text}")
        if endings and path.suffix.lower() not in endings:
            raise ArgumentTypeError(f"must end in {', '.join(endings)}, got {text}")
        return path

    return check


def refuse_to_replace(option: str, output: Path, inputs: Iterable[str]) -> None:
    """Raise a `CommandError` if the file to write is one of the files to read."""
    for path in inputs:
        if output.exists() and Path(path).exists() and output.samefile(path):
            raise CommandError(f"{option} must not be the file that is read, got {output}")


def import_from_here() -> None:
    """Let modules be imported from the working folder, if no other folder has them."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)


def add_roles(parser: LineParser) -> None:
    """Add an option for each use of a column."""
    for name, (nargs, about) in _ROLES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, nargs=nargs, metavar="COLUMN", help=about)


def roles_of(given: Namespace) -> dict[str, Any]:
    """Return the names of the columns by their use, as `prepare` takes them."""
    return {name: getattr(given, name) for name in _ROLES}


def add_model(parser: LineParser, about: str = _MODEL) -> None:
    """Add the arguments for the model and for the packages of its classes."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=about)
    trusted = "a package whose classes the model may name; repeat it for several"
    add("--trust", action="append", default=[], metavar="PACKAGE", help=trusted)

"""The arguments that several commands share: columns of a table, files, and the model."""

import argparse
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ltr.cli.errors import CommandError
from ltr.files import check_path

_ROLES = {
    "qid": (None, "column of the queries; not for LETOR text"),
    "label": ("+", "column of the relevance, >= 0; or several, such as clicks and purchases"),
    "weight": (None, "column of the rows' weights"),
    "position": (None, "column of the positions at which documents were shown, from 1"),
    "protected": (None, "column of numbers above 0 in the protected group"),
    "doc_id": (None, "column of the documents' names"),
    "features": ("+", "columns to rank by; default: all other numbers and dates"),
    "categories": ("+", "columns of categories; default: other text and booleans"),
}


Expand = Callable[[Any], Iterable[Path]]
"""A function that returns the files and folders for which the value of an argument stands."""


def itself(value: str | Path) -> list[Path]:
    """Return the path of an argument that names one file."""
    return [check_path("path", value)]


class LineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as a `CommandError`."""

    def __init__(self, prog: str, **given: Any) -> None:
        given.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog, allow_abbrev=False, **given)
        self._inputs: dict[str, Expand] = {}
        self._outputs: dict[str, tuple[str, Expand]] = {}

    def reads(self, argument: argparse.Action, expand: Expand = itself) -> None:
        """Declare that the command reads the files and folders that an argument stands for.

        Args:
            argument: the result of `add_argument`.
            expand: returns the files and folders that a value stands for. Default: one file.
        """
        self._inputs[argument.dest] = expand

    def writes(self, argument: argparse.Action, expand: Expand = itself) -> None:
        """Declare that the command writes the files that an argument stands for; see `reads`."""
        name = argument.option_strings[0] if argument.option_strings else str(argument.metavar)
        self._outputs[argument.dest] = name, expand

    def parse_known_args(self, args: Any, *given: Any, **named: Any) -> tuple[Any, list[str]]:
        """Parse the arguments.

        Raises:
            CommandError: an argument is wrong; an output would replace an input or another output;
                or the option is `--out`, as in ltr 0.2.
        """
        if "output" in self._outputs and any(word.partition("=")[0] == "--out" for word in args):
            self.error("--out is now --output")
        try:
            values, others = super().parse_known_args(args, *given, **named)
        except CommandError:
            # `--label grade TABLE` could also be two labels without a table.
            if (moved := table_first([*args])) is None:
                raise
            values, others = super().parse_known_args(moved, *given, **named)
        self._check_outputs(values)
        return values, others

    def _check_outputs(self, values: Namespace) -> None:
        names: dict[str, str] = {}
        for dest, (name, expand) in self._outputs.items():
            for path in map(os.path.realpath, _expanded(getattr(values, dest), expand)):
                if names.setdefault(path, name) != name:
                    raise CommandError(f"{name} must not be the file of {names[path]}, got {path}")
        replaced = {path: name for path, name in names.items() if os.path.exists(path)}
        for dest, expand in self._inputs.items() if replaced else ():
            for path in _expanded(getattr(values, dest), expand):
                for output, name in replaced.items():
                    if path.exists() and os.path.samefile(path, output):
                        kind = "folder" if path.is_dir() else "file"
                        raise CommandError(
                            f"{name} must not be the {kind} that is read, got {path}"
                        )

    def error(self, message: str) -> NoReturn:
        """Raise a `CommandError` with the message."""
        message = re.sub(r"^argument (\S+): must ", r"\1 must ", message)
        raise CommandError(f"{message} (see `{self.prog} --help`)")


def table_first(args: list[str]) -> list[str] | None:
    """Return the words with the last value of `--label` first; None if it has fewer than two.

    >>> table_first(["--qid", "q", "--label", "y", "a.csv", "--quiet"])
    ['a.csv', '--qid', 'q', '--label', 'y', '--quiet']
    """
    if "--label" not in args:
        return None
    start = args.index("--label") + 1
    end = start
    while end < len(args) and not args[end].startswith("-"):
        end += 1
    return [args[end - 1], *args[: end - 1], *args[end:]] if end - start > 1 else None


def _expanded(value: Any, expand: Expand) -> list[Path]:
    """Return the paths that the value, or the list of values, of an argument stands for."""
    several = value if isinstance(value, list) else [value]
    return [path for given in several if given is not None for path in expand(given)]


def table_files(source: str) -> list[Path]:
    """Return the files of a table, or of lists on disk, and their folder if `source` is one."""
    from ltr.datasets.list_files import is_list_folder
    from ltr.datasets.table_files import find_files

    path = check_path("source", source)
    return [path, *(path.iterdir() if is_list_folder(path) else find_files(path))]


def saved_files(value: str) -> list[Path]:
    """Return the folder, and the files in it, that `NeuralRanker.save` or `Blend.save` writes."""
    from ltr.config.folder import model_files

    folder = check_path("folder", value)
    return [folder, *model_files(folder)]


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
    """Return the path in an argument, "~" replaced; it must be the path of an existing file."""
    path = os.path.expanduser(path)
    if not Path(path).is_file():
        raise CommandError(f"{path}: no such file")
    return path


def new_file(*endings: str) -> Callable[[str], Path]:
    """Return a function that checks the path of a file to write, including its ending."""

    def check(text: str) -> Path:
        path = check_path("path", text)
        if path.exists() and not path.is_file():
            kind = "folder" if path.is_dir() else "device"
            raise ArgumentTypeError(f"must be a file, got the {kind} {text}")
        if endings and path.suffix.lower() not in endings:
            raise ArgumentTypeError(f"must end in {', '.join(endings)}, got {text}")
        return path

    return check


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
    roles = {name: getattr(given, name) for name in _ROLES}
    if len(roles["label"] or ()) == 1:
        [roles["label"]] = roles["label"]
    return roles


def require_roles(given: Namespace, source: str, names: Sequence[str]) -> None:
    """Raise a `CommandError` if an option for a use of a column is missing.

    LETOR text and lists on disk need no names.
    """
    from ltr.datasets.infer import no_column
    from ltr.datasets.list_tables import holds_lists
    from ltr.datasets.table_files import column_names

    for name in names:
        if getattr(given, name) is None and not holds_lists(source):
            columns = str(no_column(name, None, column_names(source))).partition(": ")[2]
            raise CommandError(f"{source}: --{name} COLUMN is required: {columns}")

"""Explain in one line what is wrong with a command line.

jsonargparse reports every type that failed, over many lines. Its report has the option, the cause,
the types and the value. `explain` picks these out and adds the nearest right name.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser
from lightning.pytorch import Callback, LightningDataModule
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ltr.cli.errors import innermost
from ltr.cli.options import Node, read_options, without_nesting
from ltr.names import close_matches, nearest

_KINDS = (nn.Module, LightningDataModule, Callback, Optimizer, LRScheduler)
"""Base classes of the classes that a configuration may name without their module."""

_NO_CLASS = (
    r"Expected a dot import path string: (.*)|given class_path '(.*)'|Not a valid subclass|"
    "argument of type"
)


def explain(parser: ArgumentParser, args: list[str], message: str) -> str:
    """Return one line that names the mistake in `args` and the nearest right names.

    Args:
        parser: the parser that refused the arguments.
        args: the arguments, `--config` with files only.
        message: the parser's report.
    """
    cause = innermost(message)
    if match := re.match(r"argument (\S+): expected .*argument", cause):
        return f"{_without_value(match[1], args)} needs a value"
    if match := re.match(r"unrecognized arguments: (\S+)", cause):
        if not match[1].startswith("--"):
            return f"not an option: {match[1]}"
        return _unknown(parser, args, match[1][2:].partition("=")[0])
    if match := re.match(r"Group '(\S+)' does not accept option '(\S+)'", cause):
        return _unknown(parser, args, f"{match[1]}.{match[2]}")
    option = _option_of(message)
    if match := re.match(r"Option '(\S+)' is not accepted", cause):
        name = without_nesting(match[1])
        return _unknown(
            parser,
            args,
            option if option.endswith(name) else ".".join(filter(None, (option, name))),
        )
    if match := re.search(r"arguments are required: ([\w.]+)|Key '([\w.]+)' is required", cause):
        return _missing(option, match[1] or match[2], message)
    where = _where(option, args)
    value = re.search(
        r"(?:Given|Got) value: (?:NestedArg\(key='.*?', val='?(.*?)'?\)|(.*))", message
    )
    if not option or value is None:
        return cause
    got, innermost_key = value[1] or value[2], message.rpartition("Parser key")[2]
    types = (re.findall(r"Subtypes: \[(.*)\]", innermost_key) or [""])[0]
    if choices := [name for one in re.findall(r"Literal\[(.*?)\]", types) for name in _words(one)]:
        return f"{where} must be {', '.join(choices)}, got {got!r}: {nearest(got, choices)}"
    if match := re.search(r"not correspond to a subclass of (\w+)", message):
        return f"{where} must be a class of {match[1]}, got {got!r}"
    if (match := re.search(_NO_CLASS, innermost_key)) and (names := _class_names(types)):
        name = match[1] or match[2] or got
        if name in got:
            return f"{where}: no class {name!r}: {nearest(name.rpartition('.')[2], names)}"
    if cause.startswith("Expected a"):
        wanted = re.findall(r"<class '(?:\w+\.)*(\w+)'>|\b(dict|list)\[", types or cause)
        if wanted:
            wanted = ["null" if "NoneType" in names else "".join(names) for names in wanted]
            wanted.sort(key=lambda name: name == "null")  # versions of jsonargparse differ
            return f"{where} must be {' or '.join(wanted)}, got {got!r}"
    return f"{where}: {cause}"


def _option_of(message: str) -> str:
    """Return the name of the option that the report is about."""
    keys = re.findall(r'Parser key "([^"]+)"', message)
    nested = re.findall(r"NestedArg\(key='([^']+)'", message)
    return without_nesting(f"{keys[0]}.{nested[-1]}" if nested else ".".join(keys))


def _where(option: str, args: list[str]) -> str:
    """Return the option as the user wrote it: with dashes, or with the name of its file."""
    node = read_options(args).find(option)
    if node is None:
        return f"--{option}"
    return node.written or f"{node.file}: {option}"


def _words(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


# nearest names


def _unknown(parser: ArgumentParser, args: list[str], option: str) -> str:
    """Return the message for an option that does not exist."""
    tree = read_options(args)
    known = {*map(without_nesting, parser.get_defaults().keys()), *_options_below(tree, ())}
    known = {name for name in known if not name.startswith(f"{option}.")}
    where = _where(option, args)
    if option in known:
        return (
            f"{where} is set before its class: name the class (class_path) in the same --config "
            "or in one before it"
        )
    file, _, name = where.rpartition(": ")
    text = f"{file}: unknown option {name}" if file else f"unknown option {name}"
    near = _nearest_options(option, known)
    if not near:
        return f"{text} (--help lists all options)"
    return f"{text}: did you mean {' or '.join(near if file else ['--' + one for one in near])}?"


def _options_below(node: Node, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of the options at and below `node`, which the classes there take."""
    cls = _find_class(node.value)
    if cls is not None:
        yield from (".".join((*path, name)) for name in _arguments(cls))
    for name, child in node.children.items():
        yield from _options_below(child, (*path, name))


def _arguments(cls: type) -> list[str]:
    found: list[str] = []
    for parent in cls.__mro__:  # a class that takes **kwargs passes them to its parent
        parameters = inspect.signature(parent).parameters.values()
        found += [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
        if all(one.kind is not one.VAR_KEYWORD for one in parameters):
            break
    return found


def _nearest_options(option: str, known: set[str]) -> list[str]:
    """Return the known options most like `option`: beside it, else below it, else anywhere."""
    parent, _, last = option.rpartition(".")
    groups = {name.rpartition(".")[0] for name in known}
    beside = [name for name in known | groups if name.rpartition(".")[0] == parent]
    below = [name for name in known if name.startswith(f"{parent}.")] if parent else []
    for names, at_least in ((beside, 0.75), (below, 0.6), (known if not below else beside, 0.6)):
        lasts = {name.rpartition(".")[2] for name in names}
        if near := close_matches(last, lasts, at_least):
            return sorted(name for name in names if name.rpartition(".")[2] in near)[:3]
    return []


def _class_names(types: str) -> list[str]:
    """Return the names of the classes that the types in the report accept."""
    bases = [_load(path) for path in re.findall(r"\w+(?:\.\w+)+", types)]
    kinds = (base for base in bases if isinstance(base, type) and issubclass(base, _KINDS))
    return [cls.__name__ for base in kinds for cls in _subclasses(base)]


def _find_class(name: Any) -> type | None:
    if not isinstance(name, str):
        return None
    if "." in name:
        found = _load(name)
        return found if isinstance(found, type) else None
    known = (cls for base in _KINDS for cls in _subclasses(base))
    return next((cls for cls in known if cls.__name__ == name), None)


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def _subclasses(base: type) -> Iterator[type]:
    if not base.__name__.startswith("_"):
        yield base
    for child in base.__subclasses__():
        yield from _subclasses(child)


# what is missing


def _missing(option: str, name: str, message: str) -> str:
    cls = re.search(r"class_path='(?:\w+\.)*(\w+)'", message)
    if cls is not None:
        return f"--{option}.{name} is required by {cls[1]}"
    if name == "data":
        return (
            "--data is required: a recipe (`ltr recipes` lists them) or a file after --config, "
            "or a class, such as --data DigitsDataModule"
        )
    return f"--{name} is required"


def _without_value(name: str, args: list[str]) -> str:
    """Return an option as it is on the command line; argparse calls it `name`, such as --data."""
    followed = zip(args, [*args[1:], "--"], strict=True)
    bare = (one for one, after in followed if after.startswith("--") and "=" not in one)
    return next((one for one in bare if one == name or one.startswith(f"{name}.")), name)

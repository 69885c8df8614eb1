"""Explain a mistake in the arguments of a command, in a message of one line.

For a wrong value, jsonargparse reports every type that the value could have, over many lines.
`explain` keeps the innermost cause, names the option, and suggests the most similar known name.
"""

import inspect
import re
import sys
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser

from ltr.cli.errors import innermost
from ltr.cli.options import Given, pairs, without_nesting
from ltr.names import close_matches

_PACKAGES = (
    *("ltr.datasets", "ltr.losses", "ltr.metrics", "ltr.models", "ltr.modules", "ltr.operators"),
    *("torch.optim", "torch.optim.lr_scheduler", "lightning.pytorch.callbacks", "torch.nn.modules"),
)
"""The packages in which similar names are searched for."""

_UNKNOWN = r"(?:Group '(\S+)' does not accept option '|Option '|unrecognized arguments: --)([\w.]+)"
_NO_CLASS = re.compile(r"import path string: (\w+)")


def explain(parser: ArgumentParser, args: list[str], given: dict[str, Given], report: str) -> str:
    """Return one line that names the mistake in `args` and the most similar correct name.

    Args:
        parser: the parser that refused the arguments.
        args: the arguments; a `--config` among them names a file, not a recipe.
        given: the options that the arguments set.
        report: the message of the parser.
    """
    cause, option = innermost(report), _option_of(report)
    if "required" in cause and "data" not in given:
        return (
            "--data is required: a recipe (`ltr recipes` lists them) or a file after --config, "
            "or a class, such as --data DigitsDataModule"
        )
    if "expected one argument" in cause:  # jsonargparse names --data if --data.seed has no value
        bare = (name for name, value in pairs(args) if not value)
        return f"{next(bare, '')}: expected one argument"
    if unknown := re.match(_UNKNOWN, cause):
        above, name = unknown[1] or option, without_nesting(unknown[2])
        option = above if above.endswith(name) else f"{above}.{name}".removeprefix(".")
    below = [known for name, known in given.items() if name.startswith(f"{option}.")]
    value, file = given.get(option, below[-1] if below else Given(None, ""))
    dashes = "" if file else "--"
    if unknown:
        known = _known(parser, given)
        if option in known:
            cause += " before its class: name the class (class_path) before it, or beside it"
        elif near := _nearest_options(option, known):
            cause += f": did you mean {' or '.join(dashes + name for name in near)}?"
    elif missing := _NO_CLASS.search(cause):
        names = (
            (package, name) for package in _PACKAGES for name in import_module(package).__all__
        )
        classes = {name: f"{package}.{name}" for package, name in names if name[0].isupper()}
        if near := close_matches(missing[1], classes):
            cause += f": did you mean {' or '.join(classes[name] for name in near)}?"
    elif value is not None and "Expected a" in cause and "Got value" not in cause:
        cause += f", got {value!r}"
    if not option or cause.startswith("unrecognized"):
        return cause
    return f"{file}: {option}: {cause}" if file else f"--{option}: {cause}"


def _option_of(report: str) -> str:
    """Return the name of the option in the report, or "" if the report names none."""
    keys = re.findall(r'Parser key "([^"]+)"', report)
    nested = re.findall(r"NestedArg\(key='([^']+)'", report)
    return without_nesting(f"{keys[0]}.{nested[-1]}" if nested else ".".join(keys))


def _known(parser: ArgumentParser, given: dict[str, Given]) -> set[str]:
    """Return the names of all options, including those of the given classes."""
    known = {without_nesting(name) for name in parser.get_defaults().keys()}  # noqa: SIM118
    for option, (value, _) in given.items():
        if isinstance(cls := _find_class(value), type):
            known |= {f"{option}.{name}" for name in inspect.signature(cls).parameters}
    return known


def _nearest_options(option: str, known: set[str]) -> list[str]:
    """Return the options whose last part is most similar to that of `option`, the best first."""
    groups = {name.rpartition(".")[0] for name in known}
    lasts = {name: name.rpartition(".")[2] for name in {*known, *groups} - {option}}
    like = close_matches(option.rpartition(".")[2], lasts.values())
    return close_matches(option, [name for name, last in lasts.items() if last in like])


def _find_class(name: Any) -> Any:
    """Return the class of this name, or None; only the modules in `_PACKAGES` are imported."""
    module, _, last = str(name).rpartition(".")
    of_all = (package for package in _PACKAGES if last in import_module(package).__all__)
    return getattr(sys.modules.get(module or next(of_all, "")), last, None)

"""What is wrong with a command line, in one line: jsonargparse's own messages are many.

jsonargparse says what it could not parse, not where, nor what would have been right. So when it has
refused something, the options are looked through again: each is compared with the arguments of the
class that it belongs to.
"""

import collections.abc
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser

from ltr.cli.errors import CommandError, close_matches, innermost, nearest
from ltr.cli.options import NESTING, Node, option_name, read_options

_FEW = 12  # arguments that can be listed in a line
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

Names = tuple[str, ...]  # an option's name in its parts


@dataclass
class Argument:
    """What may be given for an argument of a class, or for an option of the parser.

    Attributes:
        hint: its annotation; a dict of arguments for a group of options.
        default: a class has a value even where none is given.
        required: whether a class has to be given it.
    """

    hint: Any = None
    default: Any = None
    required: bool = False


@dataclass
class Level:
    """An option that has others below it: what was given there, and what could have been.

    Attributes:
        path: its name.
        node: what was given.
        arguments: what could have been given.
        whole: whether these are all: not where a class takes any keyword.
        cls: the class, if it is one.
    """

    path: Names
    node: Node
    arguments: dict[str, Argument] = field(default_factory=dict)
    whole: bool = True
    cls: type | None = None


def explain(parser: ArgumentParser, args: list[str], message: str) -> str:
    """The mistake in `args`, in one line that names it and the nearest right names.

    Args:
        parser: which refused the arguments.
        args: the arguments, `--config` with files only.
        message: what the parser had to say.
    """
    try:
        levels = list(_levels(_options_of(parser), read_options(args), ()))
    except CommandError as found:  # a file that is no configuration, a class that there is not
        return str(found)
    for find in (_unknown_option, _wrong_value, _missing):
        for level in levels:
            if (found := find(level, levels, message)) is not None:
                return found
    return _from_message(message, args)


# what could have been given


def _options_of(parser: ArgumentParser) -> Argument:
    root: dict[str, Argument] = {}
    for action in parser._actions:
        names = [option[2:] for option in action.option_strings if option.startswith("--")]
        for name in names:
            *groups, last = name.split(".")
            if (groups and last == "help") or last == "print_shtab":
                continue
            level = root
            for group in groups:
                inner = level.setdefault(group, Argument({}))
                if not isinstance(inner.hint, dict):  # the group itself is an option, too
                    inner.hint = {}
                level = inner.hint
            hint = getattr(action, "_typehint", None)
            level.setdefault(last, Argument(hint, action.default))
    return Argument(root)


def _levels(argument: Argument, node: Node, path: Names) -> Iterator[Level]:
    values = _values_of_container(argument.hint)
    if values is not None and node.value is None:
        for name, child in node.children.items():
            yield from _levels(Argument(values), child, (*path, name))
        return
    if isinstance(argument.hint, dict):
        level = Level(path, node, argument.hint)
    else:
        cls = _class_of(argument, node, path)
        if cls is None:
            return
        level = Level(path, node, *_arguments(cls), cls)
    yield level
    for name, child in node.children.items():
        if name in level.arguments:
            yield from _levels(level.arguments[name], child, (*path, name))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    union = isinstance(hint, types.UnionType) or get_origin(hint) is Union
    return get_args(hint) if union else (hint,)


def _is_container(hint: Any) -> bool:
    origin = get_origin(hint)
    containers = (collections.abc.Mapping, collections.abc.Iterable)
    return isinstance(origin, type) and bool(get_args(hint)) and issubclass(origin, containers)


def _values_of_container(hint: Any) -> Any:
    """What the values of a dict, or the items of a list, have to be."""
    return next((get_args(one)[-1] for one in _alternatives(hint) if _is_container(one)), None)


def _base_classes(hint: Any) -> list[type]:
    """What an annotation wants a subclass of; nothing if it takes other things, too."""
    bases: list[type] = []
    for one in _alternatives(hint):
        if get_origin(one) is collections.abc.Callable:
            bases += _base_classes(get_args(one)[-1])  # a class is a function that makes one
        elif isinstance(one, type) and one.__module__ not in ("builtins", "pathlib"):
            bases.append(one)
        elif one not in (None, type(None), bool) and not _is_container(one):
            return []
    return bases


def _class_of(argument: Argument, node: Node, path: Names) -> type | None:
    bases = _base_classes(argument.hint)
    name, default = node.value, argument.default
    if not bases:
        return None
    if name is None:
        if isinstance(default, type):
            return default
        name = default.get("class_path") if hasattr(default, "get") else None
    if not isinstance(name, str):
        if _fits(argument.hint, name) is not False:
            return None
        choice = nearest("", {cls.__name__ for base in bases for cls in _subclasses(base)})
        raise CommandError(f"{node.name(path)} must be the name of a class, got {name!r}: {choice}")
    found = _find_class(name, bases)
    if found is None:
        names = {cls.__name__ for base in bases for cls in _subclasses(base)}
        choice = nearest(name.rpartition(".")[2], names)
        raise CommandError(f"{node.name(path)}: no class {name!r}: {choice}")
    if not any(issubclass(found, base) or getattr(base, "_is_protocol", False) for base in bases):
        wanted = " or ".join(base.__name__ for base in bases)
        raise CommandError(f"{node.name(path)} must be a class of {wanted}, got {name!r}")
    return found


def _find_class(name: str, bases: list[type]) -> type | None:
    if "." in name:
        module, _, attribute = name.rpartition(".")
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError):
            return None
        return found if isinstance(found, type) else None
    known = (cls for base in bases for cls in _subclasses(base))
    return next((cls for cls in known if cls.__name__ == name), None)


def _subclasses(base: type) -> Iterator[type]:
    seen, stack = set(), [base]
    while stack:
        cls = stack.pop()
        if cls not in seen:
            seen.add(cls)
            stack += cls.__subclasses__()
            if not cls.__name__.startswith("_"):
                yield cls


def _arguments(cls: type) -> tuple[dict[str, Argument], bool]:
    """The arguments of a class, and whether these are all."""
    found: dict[str, Argument] = {}
    for parent in cls.__mro__:
        init = parent.__dict__.get("__init__")
        if init is None or parent is object:
            continue
        try:
            hints = get_type_hints(init)
        except (NameError, TypeError, AttributeError):
            hints = {}
        any_keyword = False
        for one in list(inspect.signature(init).parameters.values())[1:]:
            any_keyword |= one.kind is one.VAR_KEYWORD
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                argument = Argument(hints.get(one.name), one.default, one.default is one.empty)
                found.setdefault(one.name, argument)
        if not any_keyword:
            return found, True
    return found, False


# what may be wrong


def _unknown_option(level: Level, levels: list[Level], message: str) -> str | None:
    for name, node in level.node.children.items():
        said = re.search(rf"\b{re.escape(name)}\b", message) is not None
        if name in level.arguments or not (level.whole or said):
            continue
        # the option may go on: of --trainr.max_epochs, `trainr` is unknown, `max_epochs` the rest
        rest: Names = ()
        while len(node.children) == 1 and node.value is None:
            ((inner, node),) = node.children.items()
            rest = (*rest, inner)
        text = node.name((*level.path, name, *rest))
        where, _, text = text.rpartition(": ")
        text = f"{where}{': ' if where else ''}unknown option {text}"
        if near := _similar(name, rest, level, levels):
            return f"{text}: did you mean {' or '.join(option_name(node, n) for n in near)}?"
        if len(level.arguments) <= _FEW:
            prefix = option_name(node, (*level.path, ""))
            return f"{text}: {nearest(name, level.arguments, prefix)}"
        return f"{text} (--help lists those that there are)"
    return None


def _similar(name: str, rest: Names, level: Level, levels: list[Level]) -> list[Names]:
    """The options most like `name` at this level, or below it, if parts of it were left out."""
    here = [(*level.path, known) for known in level.arguments]
    below = [
        (*lower.path, known)
        for lower in levels
        if len(lower.path) > len(level.path) and lower.path[: len(level.path)] == level.path
        for known in lower.arguments
    ]
    below += [
        (*level.path, known, inner)
        for known, group in level.arguments.items()
        if isinstance(group.hint, dict)
        for inner in group.hint
    ]
    sure = close_matches(name, {path[-1] for path in here}, at_least=0.75)
    paths = here if rest or sure else [*here, *below]
    best = sure or close_matches(name, {path[-1] for path in paths})
    found = [path for leaf in best for path in dict.fromkeys(paths) if path[-1] == leaf]
    return [(*path, *rest) for path in found[:3]]


def _wrong_value(level: Level, levels: list[Level], message: str) -> str | None:
    for name, node in level.node.children.items():
        argument = level.arguments.get(name)
        if argument is None or node.children or str(node.value) not in message:
            continue
        if _fits(argument.hint, node.value) is False:
            wanted = " or ".join(_in_words(one) for one in _alternatives(argument.hint))
            text = f"{node.name((*level.path, name))} must be {wanted}, got {node.value!r}"
            words = [str(v) for one in _alternatives(argument.hint) for v in _literals(one)]
            near = close_matches(str(node.value), words)
            return f"{text}: did you mean {' or '.join(near)}?" if near else text
    return None


def _literals(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _fits(hint: Any, value: Any) -> bool | None:
    """Whether a value is of a simple type; None where that is not for us to say."""
    answers = [_fits_one(one, value) for one in _alternatives(hint)]
    if True in answers:
        return True
    return None if None in answers else False


def _fits_one(hint: Any, value: Any) -> bool | None:
    if hint in (None, type(None)):
        return value is None
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is collections.abc.Callable or hint is collections.abc.Callable:
        # a function is named by its import path, a class that makes what is wanted by its name
        known = "." in str(value) or _find_class(str(value), _base_classes(hint))
        return None if known else False
    if get_origin(hint) is type:
        return None if "." in str(value) else False
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        try:  # YAML takes 1e-3 for text
            return not isinstance(value, bool) and isinstance(float(value), float)
        except (TypeError, ValueError):
            return False
    if _is_container(hint):
        right = dict if issubclass(cast(type, get_origin(hint)), collections.abc.Mapping) else list
        return None if isinstance(value, right) else False
    if isinstance(hint, type) and hint.__module__ not in ("builtins", "pathlib", "os", "enum"):
        # a class is given by its name; and there is no way to write a tensor
        return None if isinstance(value, dict) or "." in str(value) else _named(hint, value)
    return None


def _named(base: type, value: Any) -> bool | None:
    """None where `value` may name a class or a member of `base`, else False."""
    members = getattr(base, "__members__", ())
    known = str(value) in members or _find_class(str(value), [base]) is not None
    return None if known else False


def _in_words(hint: Any) -> str:
    if hint in (None, type(None)):
        return "null"
    if literals := _literals(hint):
        return " or ".join(map(str, literals))
    if get_origin(hint) is collections.abc.Callable or hint is collections.abc.Callable:
        return "a function's import path"
    if get_origin(hint) is type:
        return "a class's import path"
    if _is_container(hint):
        mapping = issubclass(cast(type, get_origin(hint)), collections.abc.Mapping)
        return "values by name" if mapping else "a list"
    return _WORDS.get(hint) or getattr(hint, "__name__", str(hint))


def _missing(level: Level, levels: list[Level], message: str) -> str | None:
    names = re.search(r"required: ([\w., ]+)", message)
    missing = {name.rpartition(".")[2] for name in names.group(1).split(", ")} if names else set()
    for name, argument in level.arguments.items():
        if name not in missing or name in level.node.children:
            continue
        if level.cls is not None and not argument.required:
            continue
        option = "--" + ".".join((*level.path, name))
        if level.cls is not None:
            return f"{option} is required by {level.cls.__name__}"
        if option == "--data":
            return (
                "--data is required: a recipe (`ltr recipes` lists them) or a file after --config, "
                "or a class, such as --data DigitsDataModule"
            )
        return f"{option} is required"
    return None


def _without_value(name: str, args: list[str]) -> str:
    """The option that argparse knows as `name`, such as --data, as it is on the command line."""
    followed = zip(args, [*args[1:], "--"], strict=True)
    bare = (one for one, after in followed if after.startswith("--") and "=" not in one)
    return next((one for one in bare if one == name or one.startswith(f"{name}.")), name)


def _from_message(message: str, args: list[str]) -> str:
    text = innermost(message)
    if match := re.match(r"argument (\S+): expected .*argument", text):
        return f"{_without_value(match.group(1), args)} needs a value"
    if match := re.match(r"unrecognized arguments: (.*)", text):
        return f"not an option: {match.group(1)}"
    where = re.findall(r'Parser key "([^"]+)"', message)
    if match := re.match(r"Option '(\S+)' is not accepted", text):
        rest = [part for part in match.group(1).split(".") if part not in NESTING]
        return (
            f"{'.'.join(where + rest)} is set before the class that it is an option of: name the "
            "class (class_path), in the same --config or in one before it"
        )
    if where and where[-1] not in text:
        return f"--{'.'.join(where)}: {text}"
    return text

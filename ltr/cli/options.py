"""The options of a command line and its configuration files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ltr.cli.errors import CommandError
from ltr.names import one_line

_NESTING = ("class_path", "init_args", "dict_kwargs")


class _Loader(yaml.SafeLoader):
    """Loader that refuses a key given twice; PyYAML would silently drop the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str" and key.value in seen:
                problem = f"{key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(
                    problem=problem, problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class Given(NamedTuple):
    """The value of an option, and the file that sets it; "" for the command line."""

    value: Any
    file: str


def without_nesting(option: str) -> str:
    """Return the name of an option without `class_path`, `init_args` and `dict_kwargs`.

    >>> without_nesting("model.init_args.loss.class_path")
    'model.loss'
    """
    return ".".join(part for part in option.split(".") if part not in _NESTING)


def pairs(args: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command line and their values, "" for an option without a value.

    >>> list(pairs(["--data.seed=1", "--print_config", "--model.loss", "SoftNDCG"]))
    [('--data.seed', '1'), ('--print_config', ''), ('--model.loss', 'SoftNDCG')]
    """
    for arg, after in zip(args, [*args, ""][1:], strict=True):
        if arg.startswith("--"):
            option, equals, value = arg.partition("=")
            yield option, value if equals else "" if after.startswith("--") else after


def given_options(args: list[str]) -> dict[str, Given]:
    """Return the options of the configuration files and the command line; the last value wins.

    The value of an option that takes a class is the class's name.

    Raises:
        CommandError: a file is not YAML, or holds no options.

    >>> given_options(["--model.loss", "SoftNDCG", "--model.loss.init_args.top_k=10"])
    {'model.loss': Given(value='SoftNDCG', file=''), 'model.loss.top_k': Given(value=10, file='')}
    """
    options: dict[str, Given] = {}
    for option, text in pairs(args):
        if option == "--config":
            options |= _flat(load_options(text), "", text)
        else:
            value = parse_value(text)
            if text.endswith((".yaml", ".yml")) and Path(text).is_file():
                value = load_options(text)
            options |= _flat(value, without_nesting(option[2:].removesuffix("+")), "")
    return options


def _flat(value: Any, option: str, file: str) -> dict[str, Given]:
    """Return the options that a YAML value sets, by their names."""
    options: dict[str, Given] = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            name = option if key in _NESTING else f"{option}.{key}".removeprefix(".")
            options |= _flat(inner, name, file)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for number, inner in enumerate(value):
            options |= _flat(inner, f"{option}.{number}", file)
    else:
        options[option] = Given(value, file)
    return options


def parse_value(text: str) -> Any:
    """Return a value of the command line, parsed as YAML; a string if it is not YAML.

    >>> parse_value("[1, 2]"), parse_value("1e-3"), parse_value("a: [")
    ([1, 2], '1e-3', 'a: [')
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # a 13th month or 5,000 digits raise ValueError
        return text


def load_options(path: str | Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        CommandError: the file is not YAML, has a key twice (the message names the line), or holds
            no options.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise CommandError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise CommandError(one_line(f"{path}: not YAML: {error}")) from error
    if not isinstance(content, dict):
        raise CommandError(one_line(f"{path}: must have options and values, got {content!r}"))
    return content

"""The options of a command line and its configuration files, as a tree."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ltr.cli.errors import CommandError
from ltr.names import one_line

NESTING = ("init_args", "dict_kwargs")


class _Loader(yaml.SafeLoader):
    """Loader that refuses a key given twice; YAML would silently drop the first."""

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


@dataclass
class Node:
    """An option and the options below it. Names leave out `init_args` and `class_path`.

    Attributes:
        value: the option's value; the name, if it is a class.
        file: the file that sets it, "" for the command line.
        written: the option as it was written on the command line.
        children: the options below it, by name.
    """

    value: Any = None
    file: str = ""
    written: str = ""
    children: dict[str, "Node"] = field(default_factory=dict)

    def set(self, value: Any, file: str) -> None:
        """Set the value, and drop the options of the old one if it differs."""
        if value != self.value:
            self.children = {}
        self.value, self.file = value, file

    def lay(self, value: Any, file: str) -> None:
        """Lay a value, such as the content of a file, over this node."""
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = {str(number): item for number, item in enumerate(value)}
        if not isinstance(value, dict):
            self.set(value, file)
            return
        self.file = file
        if "class_path" in value:
            self.set(value["class_path"], file)
        for key, inner in value.items():
            if key in NESTING and isinstance(inner, dict):
                self.lay(inner, file)
            elif key != "class_path":
                self.children.setdefault(str(key), Node()).lay(inner, file)

    def find(self, option: str) -> "Node | None":
        """Return the node of an option such as "model.loss", or None if it is not given."""
        node: Node | None = self
        for name in option.split("."):
            node = None if node is None else node.children.get(name)
        return node


def without_nesting(option: str) -> str:
    """Return an option's name without `init_args` and `class_path`.

    >>> without_nesting("model.init_args.loss.class_path")
    'model.loss'
    """
    return ".".join(one for one in option.split(".") if one not in (*NESTING, "class_path"))


def pairs(args: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command line and their values, "" where there is none.

    >>> list(pairs(["--data.seed=1", "positional", "--model.loss", "SoftNDCG"]))
    [('--data.seed', '1'), ('--model.loss', 'SoftNDCG')]
    """
    rest = iter(args)
    for arg in rest:
        if arg.startswith("--"):
            option, equals, value = arg.partition("=")
            yield option, value if equals else next(rest, "")


def read_options(args: list[str]) -> Node:
    """Return the options of a command line and of its configuration files, applied in order.

    Raises:
        CommandError: a file is not YAML, or holds no options.

    >>> tree = read_options(["--model.loss", "SoftNDCG", "--model.loss.init_args.top_k=10"])
    >>> tree.children["model"].children["loss"].children["top_k"].value
    10
    """
    tree = Node()
    for option, value in pairs(args):
        if option == "--config":
            tree.lay(load_options(value), value)
            continue
        node = tree
        for name in option.removeprefix("--").removesuffix("+").split("."):
            if name not in (*NESTING, "class_path"):
                node = node.children.setdefault(name, Node())
        node.lay(parse_value(value), "")
        node.written = option
    return tree


def parse_value(text: str) -> Any:
    """Return a value of the command line, parsed as YAML; a string if it is not YAML.

    >>> parse_value("[1, 2]"), parse_value("1e-3"), parse_value("a: [")
    ([1, 2], '1e-3', 'a: [')
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def load_options(path: str | Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        CommandError: the file is not YAML, has a key twice (the message has the line), or holds no
            options.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise CommandError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandError(one_line(f"{path}: not YAML: {error}")) from error
    if not isinstance(content, dict):
        raise CommandError(one_line(f"{path}: must have options and values, got {content!r}"))
    return content

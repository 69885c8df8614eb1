"""The options of a command line and its configuration files, as a tree."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ltr._names import one_line
from ltr.cli.errors import CommandError

NESTING = ("init_args", "dict_kwargs")


class _Loader(yaml.SafeLoader):
    """Refuses a key that comes twice, of which YAML would drop the first without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str" and key.value in seen:
                problem = f"{key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(
                    problem=problem, problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


@dataclass
class Node:
    """An option, and the options below it; `init_args` and `class_path` are no part of names.

    Attributes:
        value: what it is set to; of a class, its name.
        file: the file that says so, "" for the command line.
        written: the option, as it was written on the command line.
        children: by name.
    """

    value: Any = None
    file: str = ""
    written: str = ""
    children: dict[str, "Node"] = field(default_factory=dict)

    def set(self, value: Any, file: str) -> None:
        """Take a value; another class has other options."""
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
        """Return the node of an option such as "model.loss", or None where it is not given."""
        node: Node | None = self
        for name in option.split("."):
            node = None if node is None else node.children.get(name)
        return node


def without_nesting(option: str) -> str:
    """Return an option's name without the `init_args` and `class_path` in it.

    >>> without_nesting("model.init_args.loss.class_path")
    'model.loss'
    """
    return ".".join(one for one in option.split(".") if one not in (*NESTING, "class_path"))


def read_options(args: list[str]) -> Node:
    """The options of a command line, those of its files before and after them laid in order.

    Raises:
        CommandError: a file is not YAML, or has no options in it.

    >>> tree = read_options(["--model.loss", "SoftNDCG", "--model.loss.init_args.top_k=10"])
    >>> tree.children["model"].children["loss"].children["top_k"].value
    10
    """
    tree = Node()
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("--"):
            continue
        option, equals, value = arg.partition("=")
        if not equals:
            value = next(rest, "")
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
    """A value as the command line means it: YAML, or else a string.

    >>> parse_value("[1, 2]"), parse_value("1e-3"), parse_value("a: [")
    ([1, 2], '1e-3', 'a: [')
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def load_options(path: str | Path) -> dict[str, Any]:
    """The content of a configuration file.

    Raises:
        CommandError: the file is not YAML or has a key twice, with the line; or no options.
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

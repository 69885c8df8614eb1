"""The options of a command line and its configuration files, as a tree."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ltr.cli.errors import CommandError
from ltr.names import one_line

NESTING = ("init_args", "dict_kwargs")

_MAX_TEXT, _MAX_DEPTH, _MAX_NODES = 1 << 20, 64, 100_000


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


def check_yaml(text: str) -> None:
    r"""Refuse YAML that is made to take for ever: every YAML that `ltr` reads passes through here.

    Nothing is built, and the text is read only as far as a limit: 1,048,576 characters, 64 levels,
    and 100,000 nodes, where each alias counts as many as it stands for.

    Raises:
        CommandError: the text is beyond a limit, or an alias stands inside what it repeats.
        yaml.YAMLError: it is not YAML.

    >>> check_yaml("a: &x [1, 2]\nb: [*x, *x]")
    >>> check_yaml("[" * 65)
    Traceback (most recent call last):
    ltr.cli.errors.CommandError: YAML must have at most 64 levels, got more at line 1
    """
    if len(text) > _MAX_TEXT:
        raise CommandError(f"YAML must have at most {_MAX_TEXT:,} characters, got {len(text):,}")
    nodes = 0
    sizes: dict[str, int] = {}  # of what has an anchor
    levels: list[tuple[str | None, int]] = []  # the anchor of each, and the nodes before it
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise CommandError(
                    f"a YAML alias must come after its anchor's value, got *{event.anchor} "
                    f"at line {line}"
                )
            nodes += sizes[event.anchor]
        elif isinstance(event, (yaml.CollectionStartEvent, yaml.ScalarEvent)):
            levels.append((event.anchor, nodes))
            nodes += 1
        if isinstance(event, (yaml.CollectionEndEvent, yaml.ScalarEvent)):
            anchor, before = levels.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if len(levels) > _MAX_DEPTH:
            raise CommandError(
                f"YAML must have at most {_MAX_DEPTH} levels, got more at line {line}"
            )
        if nodes > _MAX_NODES:
            raise CommandError(
                f"YAML must have at most {_MAX_NODES:,} nodes, aliases written out, got more at "
                f"line {line}"
            )


def parse_value(text: str) -> Any:
    """Return a value of the command line, parsed as YAML; a string if it is not YAML.

    Raises:
        CommandError: see `check_yaml`.

    >>> parse_value("[1, 2]"), parse_value("1e-3"), parse_value("a: [")
    ([1, 2], '1e-3', 'a: [')
    """
    try:
        check_yaml(text)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # such as a number of 5,000 digits, or a 13th month
        return text


def load_options(path: str | Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        CommandError: the file is not YAML, has a key twice (the message has the line), or holds no
            options; or see `check_yaml`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        check_yaml(text)
        content = yaml.load(text, _Loader)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise CommandError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise CommandError(one_line(f"{path}: not YAML: {error}")) from error
    if not isinstance(content, dict):
        raise CommandError(one_line(f"{path}: must have options and values, got {content!r}"))
    return content

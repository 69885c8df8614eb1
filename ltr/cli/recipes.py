"""Find, list and copy recipes: those that come with ltr, and those in the folder `recipes`.

A recipe is a folder with a `config.yaml`, whose first line is a comment that describes the recipe.
Every other YAML file of the folder is an overlay, which overrides parts of `config.yaml`. This
module, with all that it imports, needs only the standard library.
"""

import os
import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError
from ltr.files import check_path, write_files
from ltr.names import nearest, printable

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_CONFIG = "config.yaml"

EXPERIMENTS = ("clicks", "knn", "quantile", "regression", "sort", "speed", "topk")
"""The recipes of the repository's folder `recipes`, which are not in the wheel."""

OWN = Path("recipes")
"""The folder of a project's own recipes, in the working folder."""


def find_recipes(root: Path | None = None) -> dict[str, list[Path]]:
    """Return the files of each recipe, and of each overlay of a recipe, by name.

    Args:
        root: the folder of the recipes. Default: the folder that comes with ltr.

    >>> {name: [file.name for file in files] for name, files in find_recipes().items()}["digits"]
    ['config.yaml']
    >>> [file.name for file in find_recipes()["digits/smoke"]]
    ['config.yaml', 'smoke.yaml']
    """
    recipes = {}
    for config in sorted((root or Path(str(files("ltr") / "recipes"))).glob(f"*/{_CONFIG}")):
        name = config.parent.name
        recipes[name] = [config]
        overlays = sorted({*config.parent.glob("*.yaml")} - {config})
        recipes |= {f"{name}/{path.stem}": [config, path] for path in overlays}
    return recipes


def own_recipes() -> dict[str, list[Path]]:
    """Return the recipes of the working folder whose names are not those of ltr's recipes."""
    ours, own = find_recipes(), find_recipes(OWN)
    return {name: files for name, files in own.items() if name.partition("/")[0] not in ours}


def resolve(value: str) -> tuple[str, list[Path]]:
    """Return the run's name for a value of `--config`, and the files that the value stands for.

    The name of one of ltr's own recipes always stands for that recipe: `NAME` means its
    `config.yaml`, and `NAME/OVERLAY` means its `config.yaml` and the overlay. Any other value is a
    file, a folder with a `config.yaml`, or the name of a recipe in the folder `recipes`.

    Raises:
        CommandError: there is no such file or recipe; the message suggests the most similar name.

    >>> name, files = resolve("digits/smoke")
    >>> name, [file.name for file in files]
    ('digits-smoke', ['config.yaml', 'smoke.yaml'])
    """
    recipes, path = find_recipes(), check_path("config", value)
    if value not in recipes:
        path = path / _CONFIG if (path / _CONFIG).is_file() else path
        if path.is_file():
            return path.resolve().parent.name if path.name == _CONFIG else path.stem, [path]
        recipes |= own_recipes()
    if value not in recipes and value.partition("/")[0] in EXPERIMENTS:
        raise CommandError(
            f"no configuration {value!r} here: this recipe is an experiment. Run it in a clone of "
            "ltr's repository, or give the path of its file"
        )
    if value not in recipes:
        beside = map(str, path.parent.glob("*.y*ml")) if path.suffix else ()
        near = nearest(value, [*recipes, *beside])
        raise CommandError(f"no configuration {value!r}: {near}")
    return value.replace("/", "-"), recipes[value]


def names_own_code(configs: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether a command refers to code in the working folder, which may then be imported.

    A command does so if it names a configuration that does not come with ltr, or a class of a
    module in the working folder, such as `own.Loss`. Otherwise nothing is imported from this
    folder, so a stranger's folder is safe.

    >>> names_own_code(["digits"], ["--trainer.max_epochs", "3"])
    False
    """
    ours = [file for files in find_recipes().values() for file in files]
    if any(resolve(value)[1][-1] not in ours for value in configs):
        return True
    for option in options:
        text = option.partition("=")[2] if option.startswith("-") else option
        if text.endswith((".yaml", ".yml")):  # the file has a part of the configuration
            return True
        named = {path.partition(".")[0] for path in _DOTTED.findall(text)}
        here = any(os.path.isfile(f"{module}.py") or os.path.isdir(module) for module in named)
        if here and not os.path.exists(text):  # an existing path is data, not code
            return True
    return False


def find_configs(values: Sequence[str]) -> tuple[list[Path], str | None]:
    """Return the files of the values of `--config`; later files override earlier ones.

    An overlay adds its recipe's `config.yaml` before it, unless an earlier value has added it.

    Returns:
        The files, and the run's name: that of the last recipe, or else of the first file; None if
        there are no values.

    Raises:
        CommandError: a configuration does not exist.

    >>> files, name = find_configs(["digits", "digits/smoke"])
    >>> [file.name for file in files], name
    (['config.yaml', 'smoke.yaml'], 'digits-smoke')
    """
    recipes, files = find_recipes() | own_recipes(), list[Path]()
    name: str | None = None
    for value in values:
        run_name, paths = resolve(value)
        if name is None or value in recipes:
            name = run_name
        files += [path for path in paths if path is paths[-1] or path not in files]
    return files, name


def list_recipes(parser: LineParser, args: list[str]) -> None:
    """List the recipes that come with ltr, and those in the folder `recipes`."""
    parser.parse_args(args)
    ours, own = find_recipes(), own_recipes()
    hidden = [name for name in ours if (OWN / name / _CONFIG).is_file()]
    width = max(len(name.partition("/")[0]) for name in ours | own) + 2
    _print(ours, width)
    if own or hidden:
        print(f"\nIn {OWN}:")
        _print(own, width)
    for name in hidden:
        print(f"{name:<{width}}is hidden by ltr's own {name}: give --config ./{OWN / name}")
    print("\nTrain one: ltr fit --config NAME. Make it your own: ltr copy NAME FILE.")


def _print(recipes: dict[str, list[Path]], width: int) -> None:
    for name, paths in recipes.items():
        with paths[-1].open(encoding="utf-8", errors="replace") as lines:
            about = printable(lines.readline().lstrip("# ").strip())
        print(f"{'':<{width}}{name}: {about}" if "/" in name else f"{name:<{width}}{about}")


def copy(parser: LineParser, args: list[str]) -> None:
    """Copy a recipe's configuration, to change it."""
    parser.add_argument("name", metavar="NAME", help="a recipe or overlay: digits, digits/smoke")
    parser.add_argument("dest", metavar="DEST", help="a folder, or a name for the file")
    given = parser.parse_args(args)
    name, paths = resolve(given.name)
    dest = check_path("dest", given.dest)
    if dest.is_dir() or given.dest.endswith(("/", os.sep)):
        dest = dest / f"{name}.yaml"
    if dest.exists():
        raise CommandError(f"{dest} exists already: choose another name, or delete it")
    write_files({dest: paths[-1].read_bytes()})
    print(f"wrote {dest}")
    layers = [] if len(paths) == 1 else ["--config", given.name.partition("/")[0]]
    print("run it:", shlex.join(["ltr", "fit", *layers, "--config", str(dest)]))

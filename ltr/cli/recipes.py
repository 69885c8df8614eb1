"""Find, list and copy the recipes that come with ltr.

A recipe is a folder of `ltr/recipes/` with a `README.md`, a `config.yaml` and a `bench.yaml` for
`ltr bench`. The first line of `config.yaml` is a comment that tells what the recipe does. Every
other YAML file is an overlay, laid over `config.yaml`. This module imports only the standard
library.
"""

import argparse
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from ltr.cli.errors import CommandError
from ltr.names import close_matches, nearest

_NOT_OVERLAYS = {"config.yaml", "bench.yaml"}


@dataclass(frozen=True)
class Recipe:
    """A recipe's folder."""

    name: str
    folder: Path

    @property
    def config(self) -> Path:
        """The recipe's configuration."""
        return self.folder / "config.yaml"

    @property
    def bench(self) -> Path:
        """The `bench.yaml` that `ltr bench` runs; the file may be missing."""
        return self.folder / "bench.yaml"

    @property
    def overlays(self) -> dict[str, Path]:
        """The recipe's overlays by name, such as "smoke"."""
        found = sorted(self.folder.glob("*.yaml"))
        return {path.stem: path for path in found if path.name not in _NOT_OVERLAYS}

    @property
    def description(self) -> str:
        """The first line of the configuration, a comment."""
        return _first_comment(self.config)


def find_recipes() -> dict[str, Recipe]:
    """Return all recipes by name.

    >>> find_recipes()["digits"].overlays.keys()
    dict_keys(['smoke'])
    """
    root = Path(str(files("ltr") / "recipes"))
    folders = sorted(path for path in root.iterdir() if (path / "config.yaml").is_file())
    return {folder.name: Recipe(folder.name, folder) for folder in folders}


def resolve(value: str) -> tuple[str, list[Path]]:
    """Return the files that a value of `--config` stands for, and a name for the run.

    A file stands for itself, and a folder with a `config.yaml` for that file. A recipe's name
    stands for its configuration, and `recipe/overlay` for its configuration and the overlay.

    Raises:
        CommandError: there is no such file or recipe; the message names the nearest.

    >>> name, files = resolve("digits/smoke")
    >>> name, [file.name for file in files]
    ('digits-smoke', ['config.yaml', 'smoke.yaml'])
    """
    path = Path(value).expanduser()
    if path.is_file():
        own = {file.resolve(): r for r in find_recipes().values() for file in [r.config]}
        recipe = own.get(path.resolve())
        return (recipe.name if recipe else path.stem), [path]
    if (path / "config.yaml").is_file():
        return path.resolve().name, [path / "config.yaml"]
    name, _, overlay = value.partition("/")
    recipes = find_recipes()
    if name not in recipes:
        raise CommandError(f"no configuration {value!r}: {_nearest_config(value, recipes)}")
    recipe = recipes[name]
    if not overlay:
        return name, [recipe.config]
    if overlay not in recipe.overlays:
        raise CommandError(
            f"recipe {name} has no overlay {overlay!r}: "
            f"{nearest(overlay, recipe.overlays, prefix=name + '/')}"
        )
    return f"{name}-{overlay}", [recipe.config, recipe.overlays[overlay]]


def _nearest_config(value: str, recipes: dict[str, Recipe]) -> str:
    names = set(recipes)
    names |= {f"{r.name}/{overlay}" for r in recipes.values() for overlay in r.overlays}
    path = Path(value).expanduser()
    if path.suffix in (".yaml", ".yml"):  # meant as a file: look at the files beside it
        beside = {file.stem: str(file) for file in sorted(path.parent.glob("*.y*ml"))}
        found = [beside[stem] for stem in close_matches(path.stem, beside)]
        found += close_matches(path.stem, names)
        if not found:
            return "no such file, and no recipe (`ltr recipes` lists them)"
        return f"did you mean {' or '.join(found)}?"
    return nearest(value, names if close_matches(value, names) else recipes)


def expand_configs(args: list[str]) -> tuple[list[str], str | None]:
    """Replace recipes' names after `--config` and `-c` by their files.

    An overlay adds its recipe's `config.yaml` before it, unless that is given already.

    Returns:
        The arguments, and the run's name: that of the last recipe or of the first file, or None
        without a configuration.

    Raises:
        CommandError: a configuration does not exist.

    >>> args, name = expand_configs(["--config", "digits/smoke", "--data.seed=1"])
    >>> [os.path.basename(arg) for arg in args], name
    (['--config', 'config.yaml', '--config', 'smoke.yaml', '--data.seed=1'], 'digits-smoke')
    """
    expanded: list[str] = []
    seen: set[Path] = set()
    name: str | None = None
    for option, value in _split_configs(args):
        if option is None:
            expanded.append(value)
            continue
        found, paths = resolve(value)
        is_recipe = len(paths) > 1 or found in find_recipes()
        if name is None or is_recipe:
            name = found
        for path in paths:
            if path is paths[-1] or path not in seen:
                expanded += ["--config", str(path)]
                seen.add(path)
    return expanded, name


def _split_configs(args: list[str]) -> Iterator[tuple[str | None, str]]:
    rest = iter(args)
    for arg in rest:
        if arg in ("--config", "-c"):
            value = next(rest, None)
            if value is None:
                raise CommandError(f"{arg} needs a value: a recipe's name or a file")
            yield "--config", value
        elif arg.startswith("--config="):
            yield "--config", arg.removeprefix("--config=")
        else:
            yield None, arg


class LineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, raised as a `CommandError`."""

    def error(self, message: str) -> NoReturn:
        """Raise the message."""
        raise CommandError(f"{message} (see `{self.prog} --help`)")


def run(command: str, args: list[str]) -> int:
    """Run the command `recipes` or `copy`."""
    return _list(args) if command == "recipes" else _copy(args)


def _list(args: list[str]) -> int:
    LineParser("ltr recipes", description="List the recipes that come with ltr.").parse_args(args)
    recipes = find_recipes()
    width = max(len(name) for name in recipes) + 2
    for name, recipe in recipes.items():
        print(f"{name:<{width}}{recipe.description}")
        for overlay, path in recipe.overlays.items():
            print(f"{'':<{width}}{name}/{overlay}: {_first_comment(path)}")
        if recipe.bench.is_file():
            print(f"{'':<{width}}ltr bench {name}: {_first_comment(recipe.bench)}")
    print("\nTrain one: ltr fit --config NAME. Make it your own: ltr copy NAME FILE.")
    return 0


def _first_comment(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").strip()


def _copy(args: list[str]) -> int:
    parser = LineParser("ltr copy", description="Copy a recipe's configuration, to change it.")
    parser.add_argument("name", metavar="NAME", help="a recipe or overlay: digits, digits/smoke")
    parser.add_argument("dest", metavar="DEST", help="a folder, or a name for the file")
    options = parser.parse_args(args)
    name, paths = resolve(options.name)
    dest = Path(options.dest).expanduser()
    if dest.is_dir() or options.dest.endswith(("/", os.sep)):
        dest = dest / f"{name}.yaml"
    if dest.exists():
        raise CommandError(f"{dest} exists already: choose another name, or delete it")
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(paths[-1], dest)
    print(f"wrote {dest}")
    layers = [] if len(paths) == 1 else ["--config", name.partition("-")[0]]
    print("run it:", shlex.join(["ltr", "fit", *layers, "--config", str(dest)]))
    return 0

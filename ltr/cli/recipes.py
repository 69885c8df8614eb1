"""Find, list and copy recipes: those of ltr, and those of the folder `recipes`.

A recipe is a folder with a `config.yaml`. Its first line is a comment that describes the recipe.
Every other YAML file of the folder is an overlay, which overrides parts of `config.yaml`. This
module imports only the standard library.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError
from ltr.names import close_matches, nearest, printable

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")

OWN = Path("recipes")
"""The folder of a project's own recipes, in the working folder."""


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
    def overlays(self) -> dict[str, Path]:
        """The recipe's overlays by name, such as "smoke"."""
        found = sorted(self.folder.glob("*.yaml"))
        return {path.stem: path for path in found if path != self.config}

    @property
    def description(self) -> str:
        """The first line of the configuration, a comment."""
        return _first_comment(self.config)

    def run_name(self, overlay: str) -> str:
        """Return the name for the runs of an overlay; "" is no overlay."""
        return f"{self.name}-{overlay}" if overlay else self.name

    def files(self, overlay: str) -> list[Path]:
        """Return the configuration, and the overlay if its name is not empty.

        Raises:
            CommandError: there is no such overlay.
        """
        if overlay and overlay not in self.overlays:
            raise CommandError(
                f"recipe {self.name} has no overlay {overlay!r}: "
                f"{nearest(overlay, self.overlays, prefix=self.name + '/')}"
            )
        return [self.config, self.overlays[overlay]] if overlay else [self.config]


def find_recipes() -> dict[str, Recipe]:
    """Return the recipes that come with ltr, by name.

    >>> find_recipes()["digits"].overlays.keys()
    dict_keys(['smoke'])
    """
    return _recipes_in(Path(str(files("ltr") / "recipes")))


def own_recipes() -> dict[str, Recipe]:
    """Return the recipes of the folder `recipes` in the working folder, by name."""
    return _recipes_in(OWN)


def _recipes_in(root: Path) -> dict[str, Recipe]:
    found = sorted(path.parent for path in root.glob("*/config.yaml"))
    return {folder.name: Recipe(folder.name, folder) for folder in found}


def resolve(value: str) -> tuple[str, list[Path]]:
    """Return the files of a value of `--config`, and a name for the run.

    A name of ltr's own recipes always stands for that recipe: `recipe` means its configuration;
    `recipe/overlay` means its configuration and the overlay. Any other value is a file, a folder
    with a `config.yaml`, or the name of a recipe in the folder `recipes`.

    Raises:
        CommandError: there is no such file or recipe; the message suggests the most similar name.

    >>> name, files = resolve("digits/smoke")
    >>> name, [file.name for file in files]
    ('digits-smoke', ['config.yaml', 'smoke.yaml'])
    """
    ours, path = find_recipes(), Path(value).expanduser()
    name, _, overlay = value.partition("/")
    if name in ours and (not overlay or overlay in ours[name].overlays):
        return ours[name].run_name(overlay), ours[name].files(overlay)
    if path.is_file():
        configs = {recipe.config.resolve(): recipe.name for recipe in ours.values()}
        return configs.get(path.resolve(), path.stem), [path]
    if (path / "config.yaml").is_file():
        return path.resolve().name, [path / "config.yaml"]
    recipes = {**own_recipes(), **ours}
    if name not in recipes:
        raise CommandError(f"no configuration {value!r}: {_nearest_config(value, recipes)}")
    return recipes[name].run_name(overlay), recipes[name].files(overlay)


def names_own_code(configs: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether a command refers to code in the working folder, so that it may be imported.

    It does if it names a configuration that does not come with ltr, or a class of a module in the
    working folder, such as `own.Loss`. Otherwise nothing is imported from this folder, so a
    stranger's folder is safe.

    >>> names_own_code(["digits"], ["--trainer.max_epochs", "3"])
    False
    """
    ours = find_recipes().values()
    files = {file for one in ours for file in (one.config, *one.overlays.values())}
    if not {file for value in configs for file in resolve(value)[1]} <= files:
        return True
    for option in options:
        text = option.partition("=")[2] if option.startswith("-") else option
        if text.endswith((".yaml", ".yml")):  # a part of the configuration
            return True
        named = {one.partition(".")[0] for one in _DOTTED.findall(text)}
        here = any(os.path.isfile(f"{one}.py") or os.path.isdir(one) for one in named)
        if here and not os.path.exists(text):  # a file is data
            return True
    return False


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


def find_configs(values: Sequence[str]) -> tuple[list[Path], str | None]:
    """Return the files of some values of `--config`, later ones to be laid over earlier ones.

    An overlay adds its recipe's `config.yaml` before it, unless that is already there.

    Returns:
        The files, and the run's name: that of the last recipe or of the first file, or None
        without a configuration.

    Raises:
        CommandError: a configuration does not exist.

    >>> files, name = find_configs(["digits", "digits/smoke"])
    >>> [file.name for file in files], name
    (['config.yaml', 'smoke.yaml'], 'digits-smoke')
    """
    recipes = {**own_recipes(), **find_recipes()}
    files: list[Path] = []
    name: str | None = None
    for value in values:
        found, paths = resolve(value)
        if name is None or len(paths) > 1 or found in recipes:
            name = found
        files += [path for path in paths if path is paths[-1] or path not in files]
    return files, name


def list_recipes(parser: LineParser, args: list[str]) -> None:
    """List the recipes that come with ltr, and those of the folder recipes."""
    parser.parse_args(args)
    ours, own = find_recipes(), own_recipes()
    width = max(len(name) for name in {**ours, **own}) + 2
    _list_all(ours, width)
    if own:
        print(f"\nIn {OWN}:")
        _list_all({name: recipe for name, recipe in own.items() if name not in ours}, width)
        for name in own.keys() & ours.keys():
            print(f"{name:<{width}}is hidden by ltr's own {name}: give --config ./{OWN / name}")
    print("\nTrain one: ltr fit --config NAME. Make it your own: ltr copy NAME FILE.")


def _list_all(recipes: dict[str, Recipe], width: int) -> None:
    for name, recipe in recipes.items():
        print(f"{name:<{width}}{recipe.description}")
        for overlay, path in recipe.overlays.items():
            print(f"{'':<{width}}{name}/{overlay}: {_first_comment(path)}")


def _first_comment(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as lines:
        text = lines.readline().lstrip("# ").strip()
    return printable(text)


def copy(parser: LineParser, args: list[str]) -> None:
    """Copy a recipe's configuration, to change it."""
    parser.add_argument("name", metavar="NAME", help="a recipe or overlay: digits, digits/smoke")
    parser.add_argument("dest", metavar="DEST", help="a folder, or a name for the file")
    given = parser.parse_args(args)
    name, paths = resolve(given.name)
    dest = Path(given.dest).expanduser()
    if dest.is_dir() or given.dest.endswith(("/", os.sep)):
        dest = dest / f"{name}.yaml"
    if dest.exists():
        raise CommandError(f"{dest} exists already: choose another name, or delete it")
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(paths[-1], dest)
    print(f"wrote {dest}")
    layers = [] if len(paths) == 1 else ["--config", given.name.partition("/")[0]]
    print("run it:", shlex.join(["ltr", "fit", *layers, "--config", str(dest)]))

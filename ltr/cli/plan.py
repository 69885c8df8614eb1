"""The plan of `ltr bench`: a recipe's `bench.yaml` and the options of the command line."""

import hashlib
import itertools
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ltr import __version__
from ltr.cli.bench_file import BenchFile, Layout, Place, Published, Search, holds, read_bench
from ltr.cli.errors import CommandError
from ltr.cli.layers import merged, nested, plain
from ltr.cli.options import load_options, pairs, parse_value
from ltr.cli.recipes import expand_configs, resolve

# options that change only what a run prints; and `config`, whose content is compared instead
_NO_MATTER = {"config", "trainer.enable_progress_bar", "trainer.enable_model_summary"}


@dataclass(frozen=True)
class Run:
    """A planned run: a variant at a point of the grid.

    Attributes:
        name: the name of its folder, such as "softndcg-fold-1".
        variant: name of the variant.
        point: the grid's options and their values here.
        config: what is laid over the recipe's configuration.
        fit: whether the run is trained.
        search: the search that the run belongs to, if any; the table shows only its best run.
        tried: the searched options and their values here.
    """

    name: str
    variant: str
    point: dict[str, Any]
    config: dict[str, Any]
    fit: bool = True
    search: Search | None = None
    tried: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The run's description in words."""
        return ", ".join([self.cell, *(in_words(*one) for one in self.tried.items())])

    @property
    def cell(self) -> str:
        """The run's cell of the table in words, the same for all runs of a search there."""
        return ", ".join([self.variant, *(in_words(*one) for one in self.point.items())])

    @property
    def place(self) -> Place:
        """The run's place in the table: `variant`, and the grid's options."""
        return {"variant": self.variant, **self.point}


@dataclass(frozen=True)
class Plan:
    """All runs of a bench, and the layout of its table.

    Attributes:
        recipe: the recipe's name.
        args: options for each run: the configurations, then the overrides.
        config: the configurations, laid over each other.
        overrides: the options of the command line, as given.
        variants: the variants' names, in the table's order.
        grid: the grid's options and their values.
        metrics: the metrics in the table: logged name -> heading.
        table: what makes the rows and the columns.
        runs: all runs.
        figure: import path of a function that draws a picture, folder -> file.
        published: the papers' numbers; results do not depend on them.
        epochs: the published length of a run, if there is one.
    """

    recipe: str
    args: list[str]
    config: dict[str, Any]
    overrides: list[str]
    variants: list[str]
    grid: dict[str, list[Any]]
    metrics: dict[str, str]
    table: Layout
    runs: list[Run] = field(repr=False)
    figure: str | None = None
    published: list[Published] = field(default_factory=list, repr=False)
    epochs: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the results depend on."""
        return {
            "ltr": __version__,
            "recipe": self.recipe,
            "config": self.config,
            "overrides": _identity_of(self.overrides),
            "runs": {run.name: {"fit": run.fit, "config": run.config} for run in self.runs},
        }

    @property
    def searched(self) -> dict[str, list[Any]]:
        """The options that any run searches, and their values."""
        searches = [run.search for run in self.runs if run.search is not None]
        return {key: values for search in searches for key, values in search.options.items()}

    @property
    def digest(self) -> str:
        """A hash of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]


def make_plan(recipe: str, overrides: list[str]) -> Plan:
    """Read a recipe's `bench.yaml`.

    Args:
        recipe: a recipe's name, `recipe/overlay`, or a folder with a `config.yaml`.
        overrides: options for every run. An option of the grid replaces its values there.

    Raises:
        CommandError: the recipe does not exist, or its `bench.yaml` is wrong.

    >>> plan = make_plan("digits", ["--seed_everything", "7"])
    >>> [run.name for run in plan.runs]
    ['before-training-seed-7', 'softndcg-seed-7', 'pointwise-mse-seed-7']
    """
    name, files = resolve(recipe)
    bench = files[0].with_name("bench.yaml")
    if not bench.is_file():
        raise CommandError(f"{recipe} has no bench.yaml: `ltr fit --config {recipe}` trains it")
    configs = [option for file in files for option in ("--config", str(file))]
    layers = _layers(expand_configs([*configs, *overrides])[0])
    overlays = frozenset(Path(layer).stem for layer in layers if _beside(layer, bench))
    file = read_bench(bench, overlays, name)
    grid, overrides = _replace_values(file.grid, overrides)
    file.search, overrides = _search_among(file.search, overrides)
    config: dict[str, Any] = {}
    for layer in layers:
        config = merged(config, load_options(layer))
    return Plan(
        recipe=name,
        args=expand_configs([*configs, *overrides])[0],
        config=config,
        overrides=overrides,
        variants=list(file.variants),
        grid=grid,
        metrics=file.metrics,
        table=file.table,
        runs=_runs(bench, file, grid),
        figure=file.figure,
        published=file.published,
        epochs=file.epochs,
    )


def _layers(args: list[str]) -> list[str]:
    return [file for before, file in itertools.pairwise(args) if before == "--config"]


def _beside(layer: str, bench: Path) -> bool:
    return Path(layer).resolve().parent == bench.resolve().parent


def _runs(path: Path, file: BenchFile, grid: dict[str, list[Any]]) -> list[Run]:
    runs = dict[str, Run]()
    for (variant, options), point in itertools.product(file.variants.items(), _combinations(grid)):
        place = {"variant": variant, **point}
        if not holds(options.where, place):
            continue
        config = _laid_over(options.config, point)
        for cell in file.cells:
            if holds(cell.where, place):
                config = merged(config, cell.config)
        search = _search_at(path, file.search, place)
        if search is not None and not options.fit:
            raise CommandError(f"{path}: search has {variant}, which is not trained")
        for tried in _combinations({} if search is None else search.options):
            parts = [f"{short_name(key)}-{value}" for key, value in {**point, **tried}.items()]
            name, whole = slug(" ".join([variant, *parts])), _laid_over(config, tried)
            run = Run(name, variant, point, whole, options.fit, search, tried)
            if (other := runs.setdefault(name, run)) is not run:
                raise CommandError(
                    f"{path}: two runs would have the name {name}: {other.title}; {run.title}"
                )
    return list(runs.values())


def _combinations(options: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the options' values.

    >>> _combinations({"a": [1, 2], "b": [3]}), _combinations({})
    ([{'a': 1, 'b': 3}, {'a': 2, 'b': 3}], [{}])
    """
    return [dict(zip(options, one, strict=True)) for one in itertools.product(*options.values())]


def _laid_over(config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    for key, value in options.items():
        config = merged(config, nested(key, value))
    return config


def _search_at(bench: Path, searches: list[Search], place: Place) -> Search | None:
    here = [search for search in searches if holds(search.where, place)]
    if len(here) > 1:
        words = ", ".join(str(value) for value in place.values())
        raise CommandError(f"{bench}: search has {len(here)} entries for the same runs: {words}")
    return here[0] if here else None


def short_name(key: str) -> str:
    """Return the last part of an option's name: "seed" for the seed, the argument for a class.

    >>> short_name("data.fold"), short_name("seed_everything"), short_name("data.images.class_path")
    ('fold', 'seed', 'images')
    """
    last = plain(key).removesuffix(".class_path").rpartition(".")[2]
    return "seed" if last == "seed_everything" else last


def in_words(key: str, value: Any) -> str:
    """Return an option's short name and value in words; for a class, its name alone.

    >>> in_words("data.fold", 2), in_words("data.images.class_path", "MNIST")
    ('fold 2', 'MNIST')
    """
    return str(value) if key.endswith(".class_path") else f"{short_name(key)} {value}"


def slug(text: str) -> str:
    """Return a text as the name of a folder.

    >>> slug("Pointwise MSE, fold 1")
    'pointwise-mse-fold-1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _replace_values(
    grid: dict[str, list[Any]], overrides: list[str]
) -> tuple[dict[str, list[Any]], list[str]]:
    by_name = {plain(key): key for key in grid}
    grid, others = dict(grid), []
    rest = iter(overrides)
    for arg in rest:
        option, equals, value = arg.partition("=")
        key = by_name.get(plain(option.removeprefix("--"))) if option.startswith("--") else None
        if key is None:
            others.append(arg)
            continue
        parsed = parse_value(value if equals else next(rest, ""))
        if parsed == []:
            raise CommandError(f"{option} must have a value to run, got []")
        grid[key] = parsed if isinstance(parsed, list) else [parsed]
    return grid, others


def _search_among(searches: list[Search], overrides: list[str]) -> tuple[list[Search], list[str]]:
    """Return the searches with the command line's values, and the options that are left."""
    given, others = _replace_values({key: [] for one in searches for key in one.options}, overrides)
    return [
        replace(one, options={key: given[key] or values for key, values in one.options.items()})
        for one in searches
    ], others


def _identity_of(overrides: list[str]) -> dict[str, str]:
    """Return the options by name, without files, whose content is in the configuration."""
    found = {plain(option.removeprefix("--")): value for option, value in pairs(overrides)}
    return {name: value for name, value in found.items() if name not in _NO_MATTER}

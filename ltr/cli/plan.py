"""What `ltr bench` is to run: a recipe's `bench.yaml`, with what the command line says."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ltr import __version__
from ltr.cli.errors import CommandError, nearest
from ltr.cli.options import load_options, parse_value
from ltr.cli.recipes import expand_configs, resolve

_KEYS = {"variants", "grid", "metrics", "table", "figure"}
_VARIANT_KEYS = {"fit", "config"}

# options whose value changes what is seen of a run, not what comes of it; and files
_NO_MATTER = {"config", "trainer.enable_progress_bar", "trainer.enable_model_summary"}


@dataclass(frozen=True)
class Run:
    """One row of results to be: a variant at a point of the grid.

    Attributes:
        name: of its folder, such as "softndcg-fold-1".
        variant: name of the variant.
        point: the grid's options and their values here.
        config: what is laid over the recipe's configuration.
        fit: whether it is trained.
    """

    name: str
    variant: str
    point: dict[str, Any]
    config: dict[str, Any]
    fit: bool = True

    @property
    def title(self) -> str:
        """The run in words."""
        point = [f"{short_name(key)} {value}" for key, value in self.point.items()]
        return ", ".join([self.variant, *point])


@dataclass(frozen=True)
class Plan:
    """All the runs of a bench, and the table that is made of them.

    Attributes:
        recipe: its name.
        args: options for each run: the configurations, then the overrides.
        config: the configurations, laid over each other.
        overrides: the options of the command line, as given.
        variants: names, in the table's order.
        grid: the grid's options and their values.
        metrics: what is in the table: logged name -> heading.
        rows: what makes a row: "variant", "metric" or an option of the grid.
        columns: what makes a column: another of these.
        runs: all of them.
        figure: import path of a function that draws a picture, folder -> file.
    """

    recipe: str
    args: list[str]
    config: dict[str, Any]
    overrides: list[str]
    variants: list[str]
    grid: dict[str, list[Any]]
    metrics: dict[str, str]
    rows: str
    columns: str
    runs: list[Run] = field(repr=False)
    figure: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """All that the results depend on."""
        return {
            "ltr": __version__,
            "recipe": self.recipe,
            "config": self.config,
            "overrides": _identity_of(self.overrides),
            "runs": {run.name: {"fit": run.fit, "config": run.config} for run in self.runs},
        }

    @property
    def digest(self) -> str:
        """A hash of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]


def make_plan(recipe: str, overrides: list[str]) -> Plan:
    """Read a recipe's `bench.yaml`.

    Args:
        recipe: a recipe's name, `recipe/overlay`, or a folder with a `config.yaml`.
        overrides: options for every run. One of the grid's options takes the place of its values.

    Raises:
        CommandError: there is no such recipe, or its `bench.yaml` is not as it should be.

    >>> plan = make_plan("digits", ["--seed_everything", "7"])
    >>> [run.name for run in plan.runs]
    ['before-training-seed-7', 'softndcg-seed-7', 'pointwise-mse-seed-7']
    """
    name, files = resolve(recipe)
    bench = files[0].with_name("bench.yaml")
    if not bench.is_file():
        raise CommandError(f"{recipe} has no bench.yaml: `ltr fit --config {recipe}` trains it")
    content = load_options(bench)
    _check_keys(bench, content, _KEYS)
    variants = _mapping(bench, "variants", content.get("variants", {name: {}}))
    grid = _mapping(bench, "grid", content.get("grid", {}))
    grid = {key: _values(bench, key, values) for key, values in grid.items()}
    grid, overrides = _replace_values(grid, overrides)
    metrics = _mapping(bench, "metrics", content.get("metrics", {}))
    if not metrics:
        raise CommandError(f"{bench}: metrics must name what is in the table, got none")
    configs = [option for file in files for option in ("--config", str(file))]
    args, _ = expand_configs([*configs, *overrides])
    layers = [file for before, file in itertools.pairwise(args) if before == "--config"]
    config: dict[str, Any] = {}
    for layer in layers:
        config = merged(config, load_options(layer))
    rows, columns = _table(bench, content.get("table", {}), grid)
    return Plan(
        recipe=name,
        args=args,
        config=config,
        overrides=overrides,
        variants=list(variants),
        grid=grid,
        metrics={str(key): str(heading) for key, heading in metrics.items()},
        rows=rows,
        columns=columns,
        runs=list(_runs(bench, variants, grid)),
        figure=content.get("figure"),
    )


def _runs(bench: Path, variants: dict[str, Any], grid: dict[str, list[Any]]) -> Iterable[Run]:
    for variant, given in variants.items():
        options = _mapping(bench, f"variants.{variant}", given or {})
        _check_keys(bench, options, _VARIANT_KEYS, f"variants.{variant}.")
        layer = _mapping(bench, f"variants.{variant}.config", options.get("config", {}))
        for values in itertools.product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            config = layer
            for key, value in point.items():
                config = merged(config, nested(key, value))
            parts = [variant, *(f"{short_name(key)}-{value}" for key, value in point.items())]
            yield Run(slug(" ".join(parts)), variant, point, config, options.get("fit", True))


def short_name(key: str) -> str:
    """The last part of an option's name; a seed is a seed.

    >>> short_name("data.fold"), short_name("seed_everything")
    ('fold', 'seed')
    """
    last = key.rpartition(".")[2]
    return "seed" if last == "seed_everything" else last


def slug(text: str) -> str:
    """A folder's name.

    >>> slug("Pointwise MSE, fold 1")
    'pointwise-mse-fold-1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def nested(key: str, value: Any) -> dict[str, Any]:
    """An option as a configuration file has it.

    >>> nested("data.fold", 2), nested("seed_everything", 1)
    ({'data': {'init_args': {'fold': 2}}}, {'seed_everything': 1})
    """
    parts = key.split(".")
    if parts[0] in ("model", "data"):  # classes, whose arguments are one level down
        parts = [p for part in parts[:-1] for p in (part, "init_args") if part != "init_args"]
        parts.append(key.rpartition(".")[2])
    for part in reversed(parts):
        value = {part: value}
    return value


def merged(below: Any, above: Any) -> Any:
    """A configuration laid over another; an object of another class takes nothing over.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if above.get("class_path", below.get("class_path")) != below.get("class_path"):
        return above
    keys = dict.fromkeys([*below, *above])
    return {key: merged(below.get(key), above[key]) if key in above else below[key] for key in keys}


def differences(one: Any, other: Any, prefix: str = "") -> list[str]:
    """The options in which two configurations differ.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "d": 3})
    ['a.c', 'd']
    """
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return [] if one == other else [prefix.removesuffix(".")]
    return [
        name
        for key in dict.fromkeys([*one, *other])
        for name in (
            differences(one[key], other[key], f"{prefix}{key}.")
            if key in one and key in other
            else [f"{prefix}{key}"]
        )
    ]


def _replace_values(
    grid: dict[str, list[Any]], overrides: list[str]
) -> tuple[dict[str, list[Any]], list[str]]:
    by_name = {_plain(key): key for key in grid}
    grid, others = dict(grid), []
    rest = iter(overrides)
    for arg in rest:
        option, equals, value = arg.partition("=")
        key = by_name.get(_plain(option.removeprefix("--"))) if option.startswith("--") else None
        if key is None:
            others.append(arg)
            continue
        parsed = parse_value(value if equals else next(rest, ""))
        grid[key] = parsed if isinstance(parsed, list) else [parsed]
    return grid, others


def _plain(option: str) -> str:
    return option.replace(".init_args.", ".")


def _identity_of(overrides: list[str]) -> dict[str, str]:
    """The options by name; what the files among them say is in the configuration already."""
    found: dict[str, str] = {}
    rest = iter(overrides)
    for arg in rest:
        option, equals, value = arg.partition("=")
        name = _plain(option.removeprefix("--"))
        found[name] = value if equals else next(rest, "")
    return {name: value for name, value in found.items() if name not in _NO_MATTER}


def _table(bench: Path, table: Any, grid: dict[str, list[Any]]) -> tuple[str, str]:
    table = _mapping(bench, "table", table)
    _check_keys(bench, table, {"rows", "columns"}, "table.")
    chosen = (table.get("rows", "variant"), table.get("columns", "metric"))
    for choice in chosen:
        if choice not in ("variant", "metric", *grid):
            near = nearest(str(choice), ["variant", "metric", *grid])
            raise CommandError(f"{bench}: table has no {choice!r}: {near}")
    if chosen[0] == chosen[1]:
        raise CommandError(f"{bench}: table.rows and table.columns must differ, got {chosen[0]!r}")
    return chosen


def _mapping(bench: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CommandError(f"{bench}: {name} must be names with values, got {value!r}")
    return value


def _values(bench: Path, key: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise CommandError(f"{bench}: grid.{key} must be a list of values, got {values!r}")
    return values


def _check_keys(bench: Path, given: Iterable[str], known: set[str], prefix: str = "") -> None:
    for key in given:
        if key not in known:
            raise CommandError(f"{bench}: unknown option {prefix}{key}: {nearest(key, known)}")

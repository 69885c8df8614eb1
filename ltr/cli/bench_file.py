"""Read a `bench.yaml` into dataclasses; jsonargparse checks the types."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from ltr.cli.errors import CommandError
from ltr.cli.layers import plain
from ltr.cli.options import load_options
from ltr.names import nearest

# `dict` without types: jsonargparse would build the objects that a configuration names

_AROUND = ("Parser key", "Problem with", "Does not validate", "Subtypes:", "Errors:")
"""First words of the lines around the cause in jsonargparse's report."""

Place = dict[str, Any]
"""A place in the table: `variant`, `metric` and the grid's options, with their values."""


@dataclass
class Variant:
    """A row of the table: a configuration laid over the recipe's.

    Attributes:
        config: the configuration.
        fit: whether the variant is trained.
        where: the part of the grid that it runs for; all of it if empty.
    """

    config: dict = field(default_factory=dict)
    fit: bool = True
    where: dict = field(default_factory=dict)


@dataclass
class Cell:
    """A configuration for some cells of the table.

    Attributes:
        where: the cells: `variant`, options of the grid, and `overlay` for one overlay alone.
        config: what is laid over them.
    """

    where: dict
    config: dict


@dataclass
class Search:
    """Options that validation chooses, for each cell and seed of the table.

    Attributes:
        options: option -> the values to choose from; each combination is a run.
        where: the cells, as in a `Cell`.
    """

    options: dict[str, list[Any]]
    where: dict = field(default_factory=dict)


@dataclass
class Published:
    """Numbers of a paper, shown beside ours.

    Attributes:
        source: the paper, and the place in it.
        metric: the logged name.
        value: the number, if `along` is not given.
        along: the option of the grid whose values are the keys of `values`.
        values: the numbers by the values of that option.
        where: the cells that the numbers belong to.
    """

    source: str
    metric: str
    value: int | float | None = None
    along: str | None = None
    values: dict[Any, int | float] = field(default_factory=dict)
    where: dict = field(default_factory=dict)

    def at(self, place: Place) -> str | None:
        """Return the number for a place of the table, as published, or None if there is none.

        >>> one = Published("A", "test_a", along="data.n", values={3: 0.25, 5: 0.5})
        >>> one.at({"metric": "test_a", "data.n": 5})
        '0.50'
        >>> one.at({"metric": "test_a"}) is None  # such as a mean over data.n
        True
        """
        if place.get("metric") != self.metric or not holds(self.where, place):
            return None
        number = self.value if self.along is None else self.values.get(place.get(self.along))
        if number is None:
            return None
        given = self.values.values() if self.along else [self.value]
        decimals = max(len(repr(one).partition(".")[2]) for one in given)
        return f"{number:.{decimals}f}"


@dataclass
class Layout:
    """What makes the rows and the columns: `variant`, `metric` or an option of the grid.

    Attributes:
        rows: what makes the rows.
        columns: what makes the columns.
        mean: whether a last row or column has the mean over an option of the grid.
    """

    rows: str = "variant"
    columns: str = "metric"
    mean: bool = True


@dataclass
class BenchFile:
    """The content of a `bench.yaml`.

    Attributes:
        metrics: logged name -> heading.
        variants: by name.
        grid: option -> its values.
        cells: settings for some cells.
        search: options chosen by validation.
        published: the papers' numbers.
        table: its layout.
        figure: import path of a function that draws a picture, folder -> file.
        epochs: the published length of a run; the tables' titles say whether the runs have it.
    """

    metrics: dict[str, str]
    variants: dict[str, Variant] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    search: list[Search] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    table: Layout = field(default_factory=Layout)
    figure: str | None = None
    epochs: int | None = None


def holds(where: dict, place: Place) -> bool:
    """Return whether all conditions hold at a place.

    >>> holds({"data.n": [3, 5]}, {"data.n": 5}), holds({"data.n": [3, 5]}, {"variant": "A"})
    (True, False)
    """
    return all(key in place and place[key] in values for key, values in where.items())


def read_bench(path: Path, overlays: frozenset[str], name: str) -> BenchFile:
    """Read a `bench.yaml`.

    Args:
        path: the file.
        overlays: the recipe's overlays in use; entries for other overlays are left out.
        name: the name of the only variant, in a file without variants.

    Raises:
        CommandError: the file is wrong; the message is one line with the file's path.
    """
    content = load_options(path)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(BenchFile)
    try:
        _check_names(content, BenchFile)
        bench = BenchFile(**parser.instantiate(parser.parse_object(content)))
        bench.variants = bench.variants or {name: Variant()}
        bench.grid = {plain(key): values for key, values in bench.grid.items()}
        _check(bench)
        for part in ("cells", "search", "published"):
            entries = getattr(bench, part)
            used = [_in_use(path, f"{part} {n}", one, overlays) for n, one in enumerate(entries, 1)]
            for number, entry in enumerate(entries, start=1):
                entry.where = _conditions(bench, f"{part} {number}", entry.where)
            setattr(bench, part, [one for one, here in zip(entries, used, strict=True) if here])
        for name, variant in bench.variants.items():
            variant.where = _conditions(bench, f"variants.{name}", variant.where)
    except (ArgumentError, CommandError) as error:
        raise CommandError(f"{path}: {_explained(str(error))}") from error
    return bench


def _explained(message: str) -> str:
    """Return a report of jsonargparse, or our own message, as one line."""
    where = ".".join(re.findall(r'Parser key "([^"]+)"', message))
    if match := re.search(r"class_path '(?:\w+\.)*(\w+)':\s+Option '(\w+)\b", message):
        fields = vars(sys.modules[__name__])[match[1]].__dataclass_fields__
        return f"unknown option {where}: {match[2]}: {nearest(match[2], fields)}"
    lines = [line.strip(" -") for line in message.splitlines()]
    cause = next(one for one in lines if not one.startswith(_AROUND))
    cause = re.sub(r"<class '(\w+)'>", r"\1", cause)
    return f"{where}: {cause}" if where else cause


def _check_names(content: dict[str, Any], kind: type) -> None:
    for key in content:
        if key not in kind.__dataclass_fields__:
            raise CommandError(f"unknown option {key}: {nearest(key, kind.__dataclass_fields__)}")


def _check(bench: BenchFile) -> None:
    """Check what the types do not say."""
    if not bench.metrics:
        raise CommandError("metrics must name the metrics of the table, got none")
    for key, values in bench.grid.items():
        if not values:
            raise CommandError(f"grid.{key} must be a list of values, got []")
    layout, kinds = bench.table, ["variant", "metric", *bench.grid]
    layout.rows, layout.columns = plain(layout.rows), plain(layout.columns)
    for kind in (layout.rows, layout.columns):
        _one_of("table", kind, kinds)
    if layout.rows == layout.columns:
        raise CommandError(f"table.rows and table.columns must differ, got {layout.rows!r}")
    for one in bench.search:
        one.options = {plain(key): values for key, values in one.options.items()}
        if not one.options or not bench.grid.keys().isdisjoint(one.options):
            raise CommandError(
                f"search.options must not be empty or in the grid, got {[*one.options]}"
            )
    for one in bench.published:
        _one_of("published.metric", one.metric, list(bench.metrics))
        if (one.along is None) == bool(one.values) or (one.along is None) == (one.value is None):
            raise CommandError("published must have a value, or values along an option of the grid")
        if one.along is not None:
            _one_of("published.along", one.along, list(bench.grid))
            for value in one.values:
                _one_of("published.values", value, bench.grid[one.along])


def _conditions(bench: BenchFile, name: str, where: dict) -> dict:
    """Return `where` with plain names and lists of values, after a check that these exist."""
    found = {}
    for key, given in where.items():
        option = plain(key)
        _one_of(f"{name}.where", option, ["variant", *bench.grid])
        found[option] = given if isinstance(given, list) else [given]
        known = list(bench.variants) if option == "variant" else bench.grid[option]
        for value in found[option]:
            _one_of(f"{name}.where.{option}", value, known)
    return found


def _in_use(path: Path, name: str, entry: Any, overlays: frozenset[str]) -> bool:
    """Return whether an entry applies: it names no overlay, or one in use."""
    overlay = entry.where.pop("overlay", None)
    if overlay is not None:
        known = {one.stem for one in path.parent.glob("*.yaml")} - {"config", path.stem}
        _one_of(f"{name}.where.overlay", overlay, sorted(known))
    return overlay is None or overlay in overlays


def _one_of(name: str, value: Any, known: list[Any]) -> None:
    if value not in known:
        choice = nearest(str(value), map(str, known))
        raise CommandError(f"{name} has no {value!r}: {choice}")

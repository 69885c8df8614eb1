"""What may stand in a `bench.yaml`: the parts of it, and one line for what is wrong with them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltr.cli.errors import CommandError, nearest
from ltr.cli.layers import plain

_CELL_KEYS = {"where", "config"}
_SEARCH_KEYS = {"where", "options"}
_PUBLISHED_KEYS = {"source", "where", "metric", "along", "values", "value"}


@dataclass(frozen=True)
class Where:
    """Which runs are meant.

    Attributes:
        conditions: `variant` or an option of the grid -> the values that it may have.
    """

    conditions: dict[str, list[Any]]

    def holds(self, place: Mapping[str, Any]) -> bool:
        """Whether all conditions hold where `variant` and the grid's options are these.

        >>> where = Where({"data.n": [3, 5]})
        >>> where.holds({"variant": "A", "data.n": 5}), where.holds({"variant": "A"})
        (True, False)
        """
        return all(key in place and place[key] in given for key, given in self.conditions.items())


@dataclass(frozen=True)
class Cell:
    """Settings for the runs of some cells of the table.

    Attributes:
        where: which; in the file also of which overlay (`overlay: paper`), if of one alone.
        config: what is laid over them.
    """

    where: Where
    config: dict[str, Any]


@dataclass(frozen=True)
class Search:
    """Options that are chosen by validation, for each cell and seed of the table.

    Attributes:
        where: for which runs; in the file also of which overlay, as in a `Cell`.
        options: option -> the values to choose from; a run is made of each combination.
    """

    where: Where
    options: dict[str, list[Any]]


@dataclass(frozen=True)
class Published:
    """Numbers of a paper, shown beside ours.

    Attributes:
        source: the paper, and where in it.
        where: which cells they belong to.
        metric: its logged name.
        along: an option of the grid that `values` are by; None for one value.
        values: (a value of that option, or None for all, and the number), each.
    """

    source: str
    where: Where
    metric: str
    along: str | None
    values: list[tuple[Any, float]]

    @property
    def decimals(self) -> int:
        """How many decimals the numbers are given with: as many as any of them has."""
        return max(len(repr(number).partition(".")[2]) for _, number in self.values)

    def at(self, place: Mapping[str, Any]) -> float | None:
        """The number at a place of the table: `variant`, `metric`, options of the grid.

        >>> one = Published("A", Where({"variant": ["X"]}), "test_a", "data.n", [(3, 0.25)])
        >>> one.at({"variant": "X", "metric": "test_a", "data.n": 3})
        0.25
        >>> one.at({"variant": "X", "metric": "test_a"}) is None  # such as a mean over data.n
        True
        """
        if place.get("metric") != self.metric or not self.where.holds(place):
            return None
        if self.along is None:
            return self.values[0][1]
        here = [number for value, number in self.values if place.get(self.along) == value]
        return here[0] if here else None


@dataclass(frozen=True)
class BenchFile:
    """A `bench.yaml` that is being read, and the names that may stand in it.

    Attributes:
        path: of the file.
        variants: their names.
        grid: its options and their values, as the file has them.
        metrics: logged names.
        overlays: those of the recipe that are laid over its configuration, such as "paper".
    """

    path: Path
    variants: list[str]
    grid: dict[str, list[Any]]
    metrics: list[str]
    overlays: frozenset[str] = frozenset()

    def cells(self, content: Any) -> list[Cell]:
        """The part `cells`, without those of overlays that are not there."""
        found = []
        for name, entry in self._entries("cells", content, _CELL_KEYS):
            where, here = self._where_and_overlay(name, entry)
            config = mapping(self.path, f"{name}.config", entry.get("config"))
            if here:
                found.append(Cell(where, config))
        return found

    def searches(self, content: Any) -> list[Search]:
        """The part `search`, without those of overlays that are not there."""
        found = []
        for name, entry in self._entries("search", content, _SEARCH_KEYS):
            where, here = self._where_and_overlay(name, entry)
            given = mapping(self.path, f"{name}.options", entry.get("options"))
            options = {
                plain(key): values_of(self.path, f"{name}.options.{key}", values)
                for key, values in given.items()
            }
            if not options or not self.grid.keys().isdisjoint(options):
                raise self._error(f"{name}.options must be some that the grid has not, got {given}")
            if here:
                found.append(Search(where, options))
        return found

    def _where_and_overlay(self, name: str, entry: dict[str, Any]) -> tuple[Where, bool]:
        """Which runs are meant, and whether the overlay that is asked for, if any, is there."""
        conditions = dict(mapping(self.path, f"{name}.where", entry.get("where", {})))
        overlay = conditions.pop("overlay", None)
        others = (path.stem for path in self.path.parent.glob("*.yaml"))
        known = sorted({*others} - {"config", self.path.stem})
        if overlay is not None and overlay not in known:
            choice = nearest(str(overlay), known)
            raise self._error(
                f"{name}.where: {overlay!r} is not an overlay of the recipe: {choice}"
            )
        where = self.where(f"{name}.where", conditions)
        return where, overlay is None or overlay in self.overlays

    def published(self, content: Any) -> list[Published]:
        """The part `published`."""
        found = []
        for name, entry in self._entries("published", content, _PUBLISHED_KEYS):
            source, metric, along = (entry.get(key) for key in ("source", "metric", "along"))
            if not isinstance(source, str) or not source:
                raise self._error(f"{name}.source must say where it is from, got {source!r}")
            if metric not in self.metrics:
                raise self._error(
                    f"{name}.metric must be one of metrics, got {metric!r}: "
                    f"{nearest(str(metric), self.metrics)}"
                )
            if along is not None and along not in self.grid:
                raise self._error(
                    f"{name}.along must be an option of the grid, got {along!r}: "
                    f"{nearest(str(along), self.grid)}"
                )
            where = self.where(f"{name}.where", entry.get("where", {}))
            found.append(Published(source, where, metric, along, self._numbers(name, along, entry)))
        return found

    def _numbers(
        self, name: str, along: str | None, entry: dict[str, Any]
    ) -> list[tuple[Any, float]]:
        key, other = ("value", "values") if along is None else ("values", "value")
        if other in entry or key not in entry:
            with_or_without = "without" if along is None else "with"
            raise self._error(f"{name} must have {key}, {with_or_without} along")
        if along is None:
            return [(None, self._number(f"{name}.value", entry["value"]))]
        values = mapping(self.path, f"{name}.values", entry["values"])
        if not values:
            raise self._error(f"{name}.values must have numbers, got none")
        for value in values:
            self._check_value(f"{name}.values", along, value)
        return [(value, self._number(f"{name}.values", one)) for value, one in values.items()]

    def _number(self, name: str, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self._error(f"{name} must be a number, got {value!r}")
        return value

    def where(self, name: str, content: Any) -> Where:
        """The conditions of an entry."""
        conditions = {}
        for key, given in mapping(self.path, name, content).items():
            option = plain(key)
            if option != "variant" and option not in self.grid:
                choice = nearest(key, ["variant", *self.grid])
                raise self._error(f"{name} has no {key!r}, of variant and the grid: {choice}")
            values = given if isinstance(given, list) else [given]
            for value in values:
                self._check_value(name, option, value)
            conditions[option] = values
        return Where(conditions)

    def _check_value(self, name: str, option: str, value: Any) -> None:
        known = self.variants if option == "variant" else self.grid[option]
        if value not in known:
            place = "variants" if option == "variant" else f"grid.{option}"
            choice = nearest(str(value), [str(one) for one in known])
            raise self._error(f"{name}: {value!r} is not in {place}: {choice}")

    def _entries(
        self, part: str, content: Any, keys: set[str]
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        if not isinstance(content, list):
            raise self._error(f"{part} must be a list, got {content!r}")
        for number, entry in enumerate(content, start=1):
            name = f"{part} {number}"
            check_keys(self.path, mapping(self.path, name, entry), keys, f"{name}: ")
            yield name, entry

    def _error(self, text: str) -> CommandError:
        return CommandError(f"{self.path}: {text}")


def mapping(path: Path, name: str, value: Any) -> dict[Any, Any]:
    """The value, which must be names with values."""
    if not isinstance(value, dict):
        raise CommandError(f"{path}: {name} must be names with values, got {value!r}")
    return value


def values_of(path: Path, name: str, values: Any) -> list[Any]:
    """The values, which must be a list of some."""
    if not isinstance(values, list) or not values:
        raise CommandError(f"{path}: {name} must be a list of values, got {values!r}")
    return values


def check_keys(path: Path, given: Iterable[str], known: set[str], prefix: str = "") -> None:
    """Only these names may be there."""
    for key in given:
        if key not in known:
            raise CommandError(f"{path}: unknown option {prefix}{key}: {nearest(str(key), known)}")

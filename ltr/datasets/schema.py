"""The schema of a table: how a ranker uses each of its columns."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.dates import Zone, is_date, zone_of
from ltr.names import close_matches

CategoryKind = Literal["string", "number", "boolean"]

_KEYS = ("qid", "label", "weight", "position", "protected", "doc_id")
_TEXT_TYPES = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}
_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+|")  # in Parquet, and twice in CSV
_ARE = {
    "number": "numbers",
    "string": "text",
    "boolean": "booleans",
    "embedding": "lists of one size",
    "date": "dates",
    "missing": "missing throughout",
}


@dataclass(frozen=True)
class Category:
    """A column of categories: the kind of its values, and which of them have a code.

    Attributes:
        kind: "string", "number" or "boolean".
        levels: the values, as text; the code of `levels[i]` is i + 1. Missing values and values
            that are not levels have code 0.
    """

    kind: CategoryKind
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Says how a ranker uses each column of a table: as query, label, feature or category.

    `Schema.infer` makes one for a table, `fit_levels` adds the levels of its categories, and
    `read_table` turns any table that has these columns into lists.

    Args:
        qid: the column of the query that a row belongs to.
        label: the column of graded relevance, or None.
        weight: the column of the rows' weights, or None.
        position: the column of the positions at which documents were shown, or None.
        protected: the column of numbers above 0 for documents in the protected group, or None; see
            `ltr.losses.ExposureParity`.
        doc_id: the column of the documents' names, or None.
        features: the columns of numbers, each with the number of features that it holds: 1, or the
            size of an embedding. A column of dates has 1, the days since 1970-01-01, or 2, with the
            hour of the day.
        categories: the columns of categories.
        dates: those of `features` that hold dates: "utc" if they have a time zone, otherwise
            "naive".

    >>> table = pa.table({"q": [1, 1], "y": [0, 2], "price": [9.5, None], "shop": ["a", "b"]})
    >>> schema = Schema.infer(table, qid="q", label="y")
    >>> schema.features, list(schema.categories)
    ({'price': 1}, ['shop'])
    >>> schema.fit_levels(table).categories["shop"].levels
    ('a', 'b')
    """

    qid: str
    label: str | None = None
    weight: str | None = None
    position: str | None = None
    protected: str | None = None
    doc_id: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    categories: Mapping[str, Category] = field(default_factory=dict)
    dates: Mapping[str, Zone] = field(default_factory=dict)

    @classmethod
    def infer(
        cls,
        table: pa.Table,
        *,
        qid: str,
        label: str | None = None,
        weight: str | None = None,
        position: str | None = None,
        protected: str | None = None,
        doc_id: str | None = None,
        features: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> "Schema":
        """Return the schema of a table, without the levels of its categories.

        Dates become the days since 1970-01-01, and the hour of the day if any value of the column
        has a time of day. Times with a time zone are instants: their days and hours are in UTC.
        Text is dates if each value of the column is an ISO 8601 date, YYYY-MM-DD, with or without a
        time, which may have an offset.

        Args:
            table: the table.
            qid: see `Schema`.
            label: see `Schema`.
            weight: see `Schema`.
            position: see `Schema`.
            protected: see `Schema`.
            doc_id: see `Schema`.
            features: the columns of numbers, embeddings or dates. Default: all other columns of
                numbers, of dates, of missing values only, and of fixed-size lists of numbers.
            categories: the columns of categories. Default: all other columns that are categorical
                (Arrow's dictionaries), text or boolean, without text that has nearly one value per
                row. By default the index of a pandas frame is neither; in files it is known from
                pandas' metadata.

        Raises:
            ValueError: a column is missing, is named twice, or has the wrong type for its use; some
                dates of a column have a time zone and others have none; a date is not from
                0001-01-01 to 9999-12-31; a feature has whole numbers that are lost in float32 (see
                `RoundedNumbers`); or there is neither a feature nor a category.
        """
        from ltr.datasets.infer import infer_columns  # which needs this class

        roles: dict[str, Any] = {"qid": qid, "label": label, "weight": weight}
        roles |= {"position": position, "protected": protected, "doc_id": doc_id}
        roles |= {"features": features, "categories": categories}

        def read(names: Sequence[str], rows: int) -> Iterator[pa.Table]:
            some = table.select(names)
            return (some.slice(start, rows) for start in range(0, table.num_rows, rows))

        return infer_columns(table.schema, read, roles).schema

    def fit_levels(self, table: pa.Table, max_levels: int = 256) -> "Schema":
        """Return the schema with the levels of a table's categories.

        Args:
            table: the rows of the training lists.
            max_levels: how many levels of a category get a code of their own, the most frequent
                first. The others share the code of missing values.

        >>> table = pa.table({"q": [1, 1, 1], "shop": ["b", "a", "b"]})
        >>> schema = Schema.infer(table, qid="q").fit_levels(table, max_levels=1)
        >>> schema.categories["shop"].levels
        ('b',)
        """
        counts = {name: count_levels(table.column(name)) for name in self.categories}
        return self.with_levels(counts, max_levels)

    def with_levels(
        self, counts: Mapping[str, Mapping[str, int]], max_levels: int = 256
    ) -> "Schema":
        """Return the schema with levels, from the count of each value; see `fit_levels`."""
        if max_levels < 1:
            raise ValueError(f"max_levels must be >= 1, got {max_levels}")
        fitted = {}
        for name, category in self.categories.items():
            pairs = sorted((-count, level) for level, count in counts[name].items())
            levels = tuple(sorted(level for _, level in pairs[:max_levels]))
            fitted[name] = replace(category, levels=levels)
        return replace(self, categories=fitted)

    @property
    def num_features(self) -> int:
        """The number of features of a document; an embedding counts as its size."""
        return sum(self.features.values())

    @property
    def feature_names(self) -> list[str]:
        """The name of each feature: its column's, "name[0]" in an embedding, or "name (hour)".

        >>> Schema("q", features={"x": 1, "at": 2, "v": 2}, dates={"at": "utc"}).feature_names
        ['x', 'at', 'at (hour)', 'v[0]', 'v[1]']
        """
        found = []
        for name, width in self.features.items():
            if name in self.dates:
                found += [name, f"{name} (hour)"][:width]
            else:
                found += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
        return found

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        keys = (getattr(self, key) for key in _KEYS)
        found = [*(name for name in keys if name is not None), *self.features, *self.categories]
        return list(dict.fromkeys(found))

    def optional(self, *, needs_label: bool = True, needs_weight: bool = True) -> set[str]:
        """Return the columns that a table may lack; see `read_table`."""
        training = {self.weight, self.position, self.protected}
        found = set() if needs_label else {self.label}
        found |= set() if needs_label and needs_weight else training
        return {name for name in found if name is not None}

    def text_types(self) -> dict[str, pa.DataType]:
        """Return the type of each column for reading it from a text file."""
        types: dict[str, pa.DataType] = dict.fromkeys(self.columns, pa.float64())
        types |= {name: _TEXT_TYPES[one.kind] for name, one in self.categories.items()}
        types |= dict.fromkeys(self.dates, pa.string())
        names = [self.qid] if self.doc_id is None else [self.qid, self.doc_id]
        return types | dict.fromkeys(names, pa.string())

    def check(self, table: Any, optional: Collection[str] = ()) -> list[str]:
        """Compare a table with this schema, column by column.

        Args:
            table: a table of Arrow, or a `Frame`.
            optional: columns that may be missing.

        Returns:
            The columns of the table that are not in the schema.

        Raises:
            ValueError: a column is missing, or has another type.
        """
        self.check_names(table.column_names, optional)
        wanted = {name: self._kind(name) for name in (*self.features, *self.categories)}
        for name, kind in wanted.items():
            dtype = table.schema.field(name).type
            found = kind_of(dtype)
            width = self.features.get(name, 1)
            numeric = {"number", "boolean"}
            fits = (
                found == kind
                or found == "missing"
                or (name in self.features and {found, kind} <= numeric)
            )
            if name in self.dates:
                self._check_dates(name, dtype)
            elif not fits or (found == "embedding" and width_of(dtype) != width):
                size = f" of size {width}" if kind == "embedding" else ""
                raise ValueError(
                    f"column {name!r} must be {_ARE[kind]}{size}, as in training, got type {dtype}"
                )
        known = {*self.columns}
        return [name for name in table.column_names if name not in known]

    def check_names(self, names: Collection[str], optional: Collection[str] = ()) -> None:
        """Raise a `ValueError` if a table lacks a column.

        Args:
            names: the table's columns.
            optional: columns that may be missing.
        """
        there = {*names, *optional}
        for name in self.columns:
            if name not in there:
                # the qid of an estimator's training had no name
                of_qid = "the query of each row (qid, or --data.qid, names it)"
                what = of_qid if name == self.qid else "as in training"
                known = shown_names(names)
                raise ValueError(f"the table must have the column {name!r}, {what}, got {known}")

    def difference(self, other: "Schema") -> str | None:
        """Return the first column in which two schemas differ, with both descriptions, or None.

        >>> Schema("q", features={"x": 1}).difference(Schema("q", features={"x": 3}))
        "column 'x': 1 feature, and 3 features"
        """
        if self.qid != other.qid:
            return f"qid: column {self.qid!r}, and column {other.qid!r}"
        sides = (("features", _features), ("dates", _zone), ("categories", _levels))
        for kind, describe in sides:
            one, two = getattr(self, kind), getattr(other, kind)
            for name in dict.fromkeys([*one, *two]):
                mine, theirs = one.get(name), two.get(name)
                if mine != theirs:
                    return f"column {name!r}: {describe(mine)}, and {describe(theirs)}"
            if [*one] != [*two]:
                return f"{kind}: the order {shown_names(one)}, and {shown_names(two)}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain data, which can be written as JSON."""
        return {
            **{key: getattr(self, key) for key in _KEYS},
            "features": dict(self.features),
            "dates": dict(self.dates),
            "categories": {
                name: {"kind": one.kind, "levels": list(one.levels)}
                for name, one in self.categories.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        """Return the schema from plain data.

        Raises:
            ValueError: the data do not describe a schema.

        >>> schema = Schema("q", features={"x": 1}, categories={"c": Category("string", ("a",))})
        >>> Schema.from_dict(schema.to_dict()) == schema
        True
        """
        with suppress(KeyError, TypeError, AttributeError):
            categories = {
                name: Category(one["kind"], tuple(one["levels"]))
                for name, one in data["categories"].items()
            }
            plain = {key: {**data[key]} for key in ("features", "dates")}
            found = cls(**{**data, **plain, "categories": categories})
            levels = [level for one in categories.values() for level in one.levels]
            if (
                found.to_dict() == data
                and all(isinstance(name, str) for name in (found.qid, *found.columns, *levels))
                and all(type(width) is int and width > 0 for width in found.features.values())
                and all(one.kind in _TEXT_TYPES for one in categories.values())
                and all(found.features[name] in (1, 2) for name in found.dates)
                and all(zone in ("naive", "utc") for zone in found.dates.values())
            ):
                return found
        raise ValueError(f"a schema must be a dict as Schema.to_dict makes it, got {data!r}")

    def _check_dates(self, name: str, dtype: pa.DataType) -> None:
        zone, found = self.dates[name], kind_of(dtype)
        if found == "date" and zone_of(dtype) != zone:
            wanted = "with" if zone == "utc" else "without"
            raise ValueError(
                f"column {name!r} must be dates {wanted} a time zone, as in training, got type "
                f"{dtype}"
            )
        if found not in ("date", "string", "missing"):
            raise ValueError(f"column {name!r} must be dates, as in training, got type {dtype}")

    def _kind(self, name: str) -> str:
        if name in self.categories:
            return self.categories[name].kind
        if name in self.dates:
            return "date"
        return "number" if self.features[name] == 1 else "embedding"


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of a column's values for a ranker, or "other".

    >>> kind_of(pa.int8()), kind_of(pa.list_(pa.float32(), 3)), kind_of(pa.date32())
    ('number', 'embedding', 'date')
    """
    types = pa.types
    if types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype):
        return "number"
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return "string"
    if types.is_boolean(dtype):
        return "boolean"
    if is_date(dtype):
        return "date"
    if types.is_null(dtype):
        return "missing"
    if types.is_fixed_size_list(dtype) and kind_of(dtype.value_type) == "number":
        return "embedding"
    return "other"


def index_columns(schema: pa.Schema) -> set[str]:
    """Return the columns that are the index of a pandas frame.

    Metadata that pandas wrote names them; a column has no name where pandas wrote CSV.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [1, 2]}, index=[1, 0])
    >>> index_columns(pa.Table.from_pandas(frame).schema)
    {'__index_level_0__'}
    """
    found = {name for name in schema.names if _INDEX.fullmatch(name)}
    try:
        written: Any = (schema.pandas_metadata or {}).get("index_columns", ())
        return found | {name for name in written if isinstance(name, str)}
    except (ValueError, AttributeError, TypeError):  # the metadata is not pandas's
        return found


def without_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a categorical column's values (Arrow's dictionaries); other columns unchanged."""
    coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if coded else column


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of categories as text; a NaN is missing."""
    column = without_codes(column)
    if kind_of(column.type) != "number":
        return column.cast(pa.string())
    floats = column.cast(pa.float64(), safe=False)  # 3 and 3.0 are one level
    text = pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.float64()), floats).cast(pa.string())
    if pa.types.is_integer(column.type):  # float64 has one value for some larger ones
        text = pc.if_else(pc.less(pc.abs(floats), 2.0**53), text, column.cast(pa.string()))
    return text


def no_column(argument: str, name: str | None, names: Collection[str]) -> ValueError:
    """Return the error for an argument that names no column of a table.

    >>> str(no_column("qid", "quer", ["query", "price"]))
    "qid must name a column of the table, got 'quer': the columns are 'query', 'price' (did you \
mean 'query'?)"
    """
    close = close_matches(argument if name is None else name, names)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return ValueError(
        f"{argument} must name a column of the table, got {name!r}: the columns are "
        f"{shown_names(names)}{hint}"
    )


def count_levels(column: pa.ChunkedArray) -> dict[str, int]:
    """Return how often each value of a column of categories, as text, occurs."""
    counted = pc.value_counts(as_text(column).drop_null())
    return {one["values"].as_py(): one["counts"].as_py() for one in counted}


def encode(column: pa.ChunkedArray, category: Category) -> np.ndarray:
    """Return the codes of a column of categories, int64 (rows,).

    >>> encode(pa.chunked_array([["a", None, "c"]]), Category("string", ("a", "b"))).tolist()
    [1, 0, 0]
    """
    levels = pa.array(category.levels, pa.string())
    found = pc.index_in(as_text(column), value_set=levels, skip_nulls=True)
    return pc.fill_null(found, -1).to_numpy().astype(np.int64) + 1


def width_of(dtype: pa.DataType) -> int:
    """Return how many numbers a value of a type holds."""
    return dtype.list_size if pa.types.is_fixed_size_list(dtype) else 1


def shown_names(names: Collection[str]) -> str:
    """Return the first 12 names, for messages."""
    shown = [repr(name) for name in list(names)[:12]]
    return ", ".join(shown + ["..."] * (len(names) > len(shown))) or "none"


def _features(width: int | None) -> str:
    return "no feature" if width is None else f"{width} feature{'s' if width > 1 else ''}"


def _zone(zone: Zone | None) -> str:
    return "no date" if zone is None else f"{zone} dates"


def _levels(category: Category | None) -> str:
    if category is None:
        return "no category"
    return (
        f"{category.kind} category of {len(category.levels)} levels {shown_names(category.levels)}"
    )

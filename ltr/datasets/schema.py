"""The schema of a table: how a ranker uses each of its columns."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ltr.columns import CATEGORY_KINDS, ISO_DATES, Zone, steps_of
from ltr.datasets.column_steps import STEPS, Category, Date, Step, count_levels, or_nulls
from ltr.datasets.frames import Frame
from ltr.datasets.infer import infer_columns, no_column
from ltr.names import shown_names
from ltr.shapes import check_at_least

_KEYS = ("qid", "label", "weight", "position", "protected", "doc_id")


@dataclass(frozen=True)
class Schema:
    """Says how a ranker uses each column of a table: as query, label, feature or category.

    `Schema.infer` makes the schema of a table, `fit_levels` adds the levels of its categories, and
    `read_table` turns any table with these columns into lists.

    Args:
        qid: the column of the query that a row belongs to; "" if no column names the queries.
        label: the column of graded relevance, or None; or the columns of several labels, such as
            clicks and purchases, which then may have missing values; see `SeveralLabels`.
        weight: the column of the rows' weights, or None.
        position: the column of the positions at which documents were shown, or None.
        protected: the column of the protected group (above 0 for its documents), or None; see
            `ltr.losses.ExposureParity`.
        doc_id: the column of the documents' names, or None.
        steps: how each column of features or categories is read, by the column's name: a `Number`,
            `Vector`, `Date` or `Category` of `ltr.datasets.column_steps`.

    >>> table = pa.table({"q": [1, 1], "y": [0, 2], "price": [9.5, None], "shop": ["a", "b"]})
    >>> schema = Schema.infer(table, qid="q", label="y")
    >>> schema.features, list(schema.categories)
    ({'price': 1}, ['shop'])
    >>> schema.fit_levels(table).categories["shop"].levels
    ('a', 'b')
    """

    qid: str
    label: str | Sequence[str] | None = None
    weight: str | None = None
    position: str | None = None
    protected: str | None = None
    doc_id: str | None = None
    steps: Mapping[str, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", one_or_several(self.label))

    @classmethod
    def infer(
        cls,
        table: pa.Table,
        *,
        qid: str,
        label: str | Sequence[str] | None = None,
        weight: str | None = None,
        position: str | None = None,
        protected: str | None = None,
        doc_id: str | None = None,
        features: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> "Schema":
        """Return the schema of a table, without the levels of its categories.

        Dates become the days since 1970-01-01, and the hour of the day if any value of the column
        has a time of day. Times with a time zone are instants: their days and hours are in UTC. A
        column of text holds dates if each of its values is an ISO 8601 date, YYYY-MM-DD, with or
        without a time, which may have an offset.

        Args:
            table: the table.
            qid: see `Schema`.
            label: see `Schema`.
            weight: see `Schema`.
            position: see `Schema`.
            protected: see `Schema`.
            doc_id: see `Schema`.
            features: the columns of numbers, embeddings or dates. Default: all columns that have no
                other use, and hold numbers, dates, fixed-size lists of numbers, or only missing
                values.
            categories: the columns of categories. Default: all columns that have no other use, and
                are categorical (Arrow: dictionary-encoded, not of dates), text or boolean, except
                text with nearly as many distinct values as rows. By default the index of a pandas
                frame is neither a feature nor a category; in files, the index is found by pandas'
                metadata or by its name, such as "Unnamed: 0".

        Raises:
            ValueError: a column is missing, is named twice, or has the wrong type for its use; some
                dates of a column have a time zone and others have none; a date is not from
                0001-01-01 to 9999-12-31; float32 cannot distinguish most of a feature's whole
                numbers (see `WholeNumbers`); or there is neither a feature nor a category.
        """
        keys: dict[str, Any] = {"qid": qid, "label": label, "weight": weight}
        keys |= {"position": position, "protected": protected, "doc_id": doc_id}
        roles = {**keys, "features": features, "categories": categories}
        frame = Frame.of(table)
        if qid is None:
            raise no_column("qid", None, frame.column_names)
        return cls(**keys, steps=infer_columns(frame, roles).steps)

    def fit_levels(self, table: pa.Table, max_levels: int = 256) -> "Schema":
        """Return the schema with the levels of a table's categories.

        Args:
            table: the rows of the training lists.
            max_levels: at most this many levels of a category, the most frequent ones, get a code
                of their own. The others share the code of missing values.

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
        """Return the schema with levels, given how often each value occurs; see `fit_levels`."""
        check_at_least("max_levels", max_levels, 1)
        fitted = {x: category.fit(counts[x], max_levels) for x, category in self.categories.items()}
        return replace(self, steps={**self.steps, **fitted})

    def narrowed(self, names: Collection[str]) -> "Schema":
        """Return the schema with only the named columns of features and categories."""
        kept = {*names}
        return replace(self, steps={x: step for x, step in self.steps.items() if x in kept})

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the labels: none, one or several."""
        if self.label is None:
            return ()
        return (self.label,) if isinstance(self.label, str) else tuple(self.label)

    @cached_property
    def features(self) -> dict[str, int]:
        """The columns of features, each with the number of features that it becomes."""
        steps = self.steps.items()
        return {name: step.width for name, step in steps if not isinstance(step, Category)}

    @cached_property
    def dates(self) -> dict[str, Zone]:
        """The columns of dates, each with "utc" if its dates have a time zone, else "naive"."""
        return {name: step.zone for name, step in self.steps.items() if isinstance(step, Date)}

    @cached_property
    def categories(self) -> dict[str, Category]:
        """The columns of categories."""
        return {name: step for name, step in self.steps.items() if isinstance(step, Category)}

    @property
    def num_features(self) -> int:
        """The number of features of a document; an embedding of size n counts as n features."""
        return sum(self.features.values())

    @property
    def feature_names(self) -> list[str]:
        """The name of each feature: "name", "name[0]" in an embedding, "name (hour)" for an hour.

        >>> from ltr.datasets.column_steps import Date, Number, Vector
        >>> steps = {"x": Number(), "at": Date("utc", hour=True), "v": Vector(2)}
        >>> Schema("q", steps=steps).feature_names
        ['x', 'at', 'at (hour)', 'v[0]', 'v[1]']
        """
        numbers = [(x, step) for x, step in self.steps.items() if not isinstance(step, Category)]
        return [name for x, step in numbers for name in step.feature_names(x)]

    @property
    def columns(self) -> list[str]:
        """The names of all columns that the schema uses."""
        keys = [self.qid, *self.labels, *(getattr(self, key) for key in _KEYS[2:])]
        names = [*(name for name in keys if name), *self.features, *self.categories]
        return list(dict.fromkeys(names))

    def optional(self, *, needs_label: bool = True, needs_weight: bool = True) -> set[str]:
        """Return the columns that a table may lack; see `read_table`."""
        training = {self.weight, self.position, self.protected}
        missing: set[str | None] = set() if needs_label else {*self.labels}
        missing |= set() if needs_label and needs_weight else training
        return {name for name in missing if name is not None}

    def text_types(self) -> dict[str, pa.DataType]:
        """Return the type in which each column is read from a text file."""
        types: dict[str, pa.DataType] = dict.fromkeys(self.columns, pa.float64())
        types |= {name: step.text_type for name, step in self.steps.items()}
        names = [self.qid] if self.doc_id is None else [self.qid, self.doc_id]
        return types | dict.fromkeys(names, pa.string())

    def check(self, table: Any, optional: Collection[str] = ()) -> None:
        """Compare a table with this schema, column by column; `read_table` makes the same checks.

        Args:
            table: a table; see `load_table`.
            optional: columns that may be missing.

        Raises:
            ValueError: a column is missing, or has values of another type than in this schema.
        """
        frame = Frame.of(table)
        self.check_names(frame.column_names, optional)
        for name, step in self.steps.items():
            if name in frame.column_names:
                step.check(name, or_nulls(frame.column(name)).type)

    def check_names(self, names: Collection[str], optional: Collection[str] = ()) -> None:
        """Raise a `ValueError` if a table lacks a column of the schema.

        Args:
            names: the table's columns.
            optional: columns that may be missing.
        """
        present = {*names, *optional}
        for name in self.columns:
            if name not in present:
                # The user of an estimator may have given qids without a name.
                of_qid = "the query of each row (qid, or --data.qid, names it)"
                what = of_qid if name == self.qid else "as in training"
                known = shown_names(names)
                raise ValueError(f"the table must have the column {name!r}, {what}, got {known}")

    def difference(self, other: "Schema") -> str | None:
        """Return a description of the first difference from another schema, or None.

        >>> from ltr.datasets.column_steps import Number, Vector
        >>> Schema("q", steps={"x": Number()}).difference(Schema("q", steps={"x": Vector(3)}))
        "column 'x': 1 feature, and 3 features"
        """
        if self.qid != other.qid:
            return f"qid: column {self.qid!r}, and column {other.qid!r}"
        for name in dict.fromkeys([*self.steps, *other.steps]):
            step, other_step = self.steps.get(name), other.steps.get(name)
            if step != other_step:
                return f"column {name!r}: {step or 'not used'}, and {other_step or 'not used'}"
        own, others = ([*schema.features, *schema.categories] for schema in (self, other))
        return None if own == others else f"the order {shown_names(own)}, and {shown_names(others)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain data, which can be written as JSON."""
        several = isinstance(self.label, tuple)
        return {
            **{key: getattr(self, key) for key in _KEYS},
            **({"label": [*self.labels]} if several else {}),
            "features": self.features,
            "dates": self.dates,
            "categories": {
                name: {"kind": category.kind, "levels": list(category.levels)}
                for name, category in self.categories.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        """Return the schema from which `to_dict` made these plain data.

        Raises:
            ValueError: the data do not describe a schema.

        >>> from ltr.datasets.column_steps import Number
        >>> schema = Schema("q", steps={"x": Number(), "c": Category("string", ("a",))})
        >>> Schema.from_dict(schema.to_dict()) == schema
        True
        """
        with suppress(KeyError, TypeError, AttributeError):
            keys = {key: data[key] for key in _KEYS}
            schema = cls(**keys, steps=steps_of(data, STEPS))
            levels = [level for category in schema.categories.values() for level in category.levels]
            if (
                schema.to_dict() == data
                and all(isinstance(name, str) for name in (schema.qid, *schema.columns, *levels))
                and all(type(width) is int and width > 0 for width in data["features"].values())
                and all(category.kind in CATEGORY_KINDS for category in schema.categories.values())
                and all(zone in ISO_DATES for zone in schema.dates.values())
            ):
                return schema
        raise ValueError(f"a schema must be a dict as Schema.to_dict makes it, got {data!r}")


def one_or_several(label: Any) -> Any:
    """Return the columns of several labels as a tuple, one name as itself, and none as None.

    >>> one_or_several(["click", "buy"]), one_or_several(["click"]), one_or_several([])
    (('click', 'buy'), 'click', None)
    """
    if not isinstance(label, list | tuple):
        return label
    return tuple(label) if len(label) > 1 else next(iter(label), None)

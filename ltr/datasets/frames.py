"""Tables in memory: pandas, polars, Arrow and numpy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import in_own_order, is_absent
from ltr.datasets.column_steps import RowError, kind_of, shown


class Frame:
    """A table in memory whose columns of numbers are converted to Arrow one at a time.

    pandas and numpy hold numbers in their own arrays, so an Arrow table of all columns would be a
    copy of these arrays.

    Args:
        columns: the columns by name, as Arrow chunked arrays or as numpy arrays of numbers (rows,),
            in which NaN is a missing value. The arrays are kept without a copy.
        metadata: the metadata of the Arrow schema.

    Attributes:
        schema: the columns and their types.
        num_rows: how many rows there are.

    >>> frame = Frame({"q": np.array([1, 2]), "x": np.array([0.5, np.nan])})
    >>> frame.num_rows, frame.schema.names, frame.column("x").null_count
    (2, ['q', 'x'], 1)
    """

    def __init__(self, columns: Mapping[str, Any], metadata: Any = None) -> None:
        self._columns = dict(columns)
        types = [(name, _type_of(values)) for name, values in self._columns.items()]
        self.schema = pa.schema(types, metadata=metadata)
        self.num_rows = len(next(iter(self._columns.values()), ()))

    @classmethod
    def of(cls, source: Any) -> "Frame":
        """Return the frame of a table in memory; see `load_table`.

        Raises:
            ValueError: `source` is not a table, a column name is repeated, or a column has values
                of mixed types.
        """
        if isinstance(source, Frame):
            return source
        if type(source).__name__ == "LazyFrame":
            raise ValueError("a table must be a polars DataFrame, got a LazyFrame: call collect()")
        is_pandas = type(source).__module__.partition(".")[0] == "pandas"
        names = getattr(source, "columns", getattr(source, "column_names", ()))
        if isinstance(source, pa.Table | pa.RecordBatch):
            names = source.schema.names
        refuse_doubles([str(name) for name in names])
        try:
            if is_pandas and hasattr(source, "columns"):
                return cls({str(name): _of_pandas(name, source[name]) for name in source.columns})
            if isinstance(source, pa.RecordBatch) or (
                hasattr(source, "__arrow_c_stream__") and not is_pandas
            ):
                table = plain_types(pa.table(source))
                return cls(
                    dict(zip(table.column_names, table.columns, strict=True)), table.schema.metadata
                )
        except RowError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ValueError(f"the table cannot be read: {error}") from None
        raise ValueError(
            "a table must be a path, or a pandas, polars or Arrow table, got "
            f"{type(source).__module__}.{type(source).__qualname__}"
        )

    @classmethod
    def of_array(cls, values: np.ndarray) -> "Frame":
        """Return the frame of an array (rows, columns), with columns named x0, x1 and so on.

        >>> Frame.of_array(np.ones((3, 2))).column_names
        ['x0', 'x1']
        """
        return cls({f"x{i}": column for i, column in enumerate(in_own_order(values).T)})

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return [*self._columns]

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column; NaN in a numpy array becomes null."""
        return _as_arrow(self._columns[name])

    def chunks(self, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Yield the given columns of all rows, in chunks of at most `rows` rows."""
        for start in range(0, self.num_rows, rows):
            stop = start + rows
            yield pa.table({name: _as_arrow(self._columns[name][start:stop]) for name in columns})

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return the given columns of all rows."""
        return pa.table({name: self.column(name) for name in columns})

    def to_arrow(self) -> pa.Table:
        """Return all columns as an Arrow table."""
        table = self.read([*self._columns])
        return table.replace_schema_metadata(self.schema.metadata)

    def renamed(self, names: Iterable[str]) -> "Frame":
        """Return the frame with other column names."""
        return Frame(dict(zip(names, self._columns.values(), strict=True)), self.schema.metadata)

    def joined(self, columns: Mapping[str, Any]) -> "Frame":
        """Return the frame with more columns, given as Arrow or numpy arrays."""
        more = {
            name: pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values)])
            for name, values in columns.items()
        }
        return Frame({**self._columns, **more}, self.schema.metadata)


def _type_of(values: Any) -> pa.DataType:
    return pa.from_numpy_dtype(values.dtype) if isinstance(values, np.ndarray) else values.type


def _as_arrow(values: Any) -> pa.ChunkedArray:
    if isinstance(values, np.ndarray):
        return pa.chunked_array([pa.array(values, from_pandas=True)])
    return values


def _of_pandas(name: Any, values: Any) -> Any:
    """Return a pandas column in a form that `Frame` accepts; an error names the row."""
    name = str(name)
    if (
        isinstance(values.dtype, np.dtype)
        and values.dtype.kind in "iuf"
        and values.dtype.itemsize <= 8
    ):
        return in_own_order(values.to_numpy())
    try:
        array = pa.array(values, from_pandas=True)
        if values.dtype == object and kind_of(array.type) == "date":
            _refuse_mixed_dates(name, values.tolist())
    except RowError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        present = [(row, x) for row, x in enumerate(values.tolist()) if not is_absent(x)]
        first = present[0][1]
        for row, value in present:
            try:
                pa.array([first, value])
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as wrong:
                kind, other = type(value).__name__, type(first).__name__
                problem = f"values of type {kind} cannot be read, got {shown(value)}"
                if kind != other:
                    mixed = (
                        f"got {shown(value)} of type {kind} after {shown(first)} of type {other}"
                    )
                    problem = f"values of mixed types, {mixed}"
                raise RowError(row, name, f"{problem} ({str(wrong).splitlines()[0]})") from None
        raise ValueError(f"column {name!r} of type {values.dtype}: {error}") from None
    return plain_type(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))


def _refuse_mixed_dates(name: str, values: Sequence[Any]) -> None:
    """Refuse a column that mixes dates and times, or times with and without a time zone.

    Arrow gives all values the type of the first value, and so drops the time or the time zone of
    the others.
    """
    first: dict[str, int] = {}
    for row, value in enumerate(values):
        if is_absent(value):
            continue
        aware = getattr(value, "tzinfo", None) is not None
        kind = "times with a time zone" if aware else "times without a time zone"
        first.setdefault(kind if isinstance(value, datetime) else "dates without a time", row)
    if len(first) > 1:
        (kind, other), (first_kind, row), *_ = first.items()
        problem = f"values of one kind are needed, got {first_kind}, {values[row]!r}, and {kind},"
        raise RowError(row, name, f"{problem} {values[other]!r},", other)


def plain_types(table: pa.Table) -> pa.Table:
    """Return the table with the columns of `plain_type`."""
    for position, name in enumerate(table.column_names):
        column = plain_type(table.column(position))
        if column.type != table.schema.field(position).type:
            table = table.set_column(position, name, column)
    return table


def plain_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings instead of string views, and decimals of 128 bits instead of short ones.

    Arrow can do little with these types. Any other column is returned unchanged.

    >>> plain_type(pa.chunked_array([pa.array(["a"], pa.string_view())])).type
    DataType(string)
    """
    dtype: Any = column.type
    if pa.types.is_string_view(dtype):
        return column.cast(pa.string())
    if pa.types.is_decimal32(dtype) or pa.types.is_decimal64(dtype):
        return column.cast(pa.decimal128(dtype.precision, dtype.scale))
    if pa.types.is_dictionary(dtype):
        values = plain_type(pa.chunked_array([], dtype.value_type)).type
        if values != dtype.value_type:
            parts: Any = column.chunks
            chunks = [part.dictionary.cast(values).take(part.indices) for part in parts]
            return pa.chunked_array(chunks, values)
    return column


def refuse_doubles(names: Sequence[str]) -> None:
    """Raise a `ValueError` if two columns have the same name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"duplicate column {name!r}")

"""Errors of the rows of a table."""

from collections.abc import Iterator
from contextlib import contextmanager


class RowError(ValueError):
    """An error in a row of a table.

    Args:
        row: its number, from 0.
        column: the name of the column.
        problem: what must hold, and what was found.
        other: another row, which the message names at its end, or None.

    >>> str(RowError(7, "x", "must not be missing"))
    "row 7, column 'x': must not be missing"
    """

    def __init__(self, row: int, column: str, problem: str, other: int | None = None) -> None:
        super().__init__(row, column, problem, other)
        self.row, self.column, self.problem, self.other = row, column, problem, other

    def __str__(self) -> str:
        also = "" if self.other is None else f" in row {self.other}"
        return f"row {self.row}, column {self.column!r}: {self.problem}{also}"


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Convert the row number in errors of a part of a table to that of the whole table.

    Args:
        first: the row of the table that the part begins with.

    >>> with counted_from(100):
    ...     raise RowError(7, "x", "must not be missing")
    Traceback (most recent call last):
    ltr.datasets.table_errors.RowError: row 107, column 'x': must not be missing
    """
    try:
        yield
    except RowError as error:
        other = None if error.other is None else first + error.other
        raise RowError(first + error.row, error.column, error.problem, other) from None

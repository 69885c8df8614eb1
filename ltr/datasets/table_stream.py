"""Read the files of a table piece by piece, in memory that does not grow with them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch.utils.data import IterableDataset

from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import (
    compare,
    find_files,
    kind_of_table,
    naming,
    naming_damage,
    of_file,
    open_csv,
    typed,
)
from ltr.datasets.tables import read_table

ROWS = 1 << 14
"""The most rows of a piece."""

VALUES = 1 << 22
"""The most features of all rows of a piece, if it has several rows."""

BLOCK = 1 << 21
"""The bytes of a CSV file that are read at a time; Arrow reads 32 blocks ahead."""


class RowStream(IterableDataset[dict[str, Any]]):
    """The rows of a table's files as ragged batches, for a model that scores a row by itself.

    A batch holds rows that stand together, at most 16,384, and fewer of many features. Rows of one
    query may be in several batches, and are one list in each. Beside what a batch of `ListDataset`
    has, `rows` counts from the first row of the batch, `keys` is an Arrow table of the qid and the
    document ids, and `piece` counts the batches of all processes. Every process reads the files;
    those pieces that are not its own are neither checked nor scored there.

    Args:
        source: files of CSV or Parquet; see `load_table`.
        schema: how the columns are used. Only training needs the columns of labels, weights,
            positions and groups: they may be missing.
        missing: see `read_table`.
        num_replicas: how many processes share the pieces, each taking the next one in turn.
        rank: the number of this process, from 0.

    Attributes:
        unused: the columns that the schema does not have.
        rows: how many rows the last pass has read so far.
        place: how far it is, in bytes of the files as they are.
        size: of the files together, in bytes.
        columns: the columns that it has.
        types: their types in the files.

    Raises:
        ValueError: there is no such file, or a column is missing; in a pass, what `read_table`
            raises.

    >>> from tempfile import mkdtemp
    >>> table = pa.table({"q": ["a", "b", "a"], "x": [0.5, None, 1.5]})
    >>> pq.write_table(table, file := Path(mkdtemp(), "rows.parquet"))
    >>> batch = next(iter(RowStream(file, Schema("q", features={"x": 1}))))
    >>> batch["qid"], batch["rows"].tolist(), batch["keys"].column_names
    (['a', 'b'], [0, 2, 1], ['q'])
    """

    def __init__(
        self,
        source: str | PathLike[str],
        schema: Schema,
        missing: Literal["keep", "error"] = "keep",
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        self.num_replicas = num_replicas
        self.rank = rank
        self.source = source
        self.schema = schema
        self.missing: Literal["keep", "error"] = missing
        self.rows = 0
        self.place = 0
        self.files = find_files(Path(source).expanduser())
        self.size = sum(file.stat().st_size for file in self.files)
        first, *others = (empty_table(file) for file in self.files)
        for file, other in zip(self.files[1:], others, strict=True):
            with naming(file):
                compare(first, other, self.files[0])
        optional = (schema.label, schema.weight, schema.position, schema.group)
        with naming(source):
            schema.check_names(first.column_names, [one for one in optional if one is not None])
        self.columns = [name for name in first.column_names if name in schema.columns]
        self.unused = [name for name in first.column_names if name not in schema.columns]
        both = pa.concat_tables([first, *others], promote_options="permissive")
        self.types = both.select(self.columns).schema

    def __iter__(self) -> Iterator[dict[str, Any]]:
        keys = [name for name in (self.schema.qid, self.schema.doc_id) if name is not None]
        for piece, data, table in self.pieces():
            batch = data.__getitems__(range(len(data)))
            yield {**batch, "piece": piece, "keys": table.select([*dict.fromkeys(keys)])}

    def pieces(self, skip: int = 0) -> Iterator[tuple[int, ListDataset, pa.Table]]:
        """Yield this process's pieces: their number, their rows as lists and as they are.

        Args:
            skip: how many rows to leave out first.
        """
        self.rows = self.place = 0
        with naming(self.source):
            for piece, table in enumerate(self.tables(skip)):
                left_out = min(max(0, skip - self.rows), table.num_rows)
                before, self.rows = self.rows + left_out, self.rows + table.num_rows
                if left_out == table.num_rows or piece % self.num_replicas != self.rank:
                    continue
                with renumbered(np.arange(before, self.rows)):
                    data, table = self._read(table.slice(left_out))
                yield piece, data, table
        if not self.rows:
            raise ValueError(f"a table must have a row at least, got none{of_file(self.source)}")

    def tables(self, skip: int = 0) -> Iterator[pa.Table]:
        """Yield the rows as in the files; groups of rows before `skip` may be left out."""
        before = 0
        width = max(1, sum(self.schema.features.values()))
        rows_at_once = max(1, min(ROWS, VALUES // width))
        for file in self.files:
            kind = kind_of_table(file)
            with naming(file), naming_damage():
                if kind == "parquet":
                    # by a buffer, since a group of rows may be as large as the file; what is read
                    # ahead (`pre_buffer`) is never given back
                    whole = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
                    for number in range(whole.num_row_groups):
                        rows = whole.metadata.row_group(number).num_rows
                        if self.rows + rows <= skip:
                            self.rows += rows
                            continue
                        start = self.rows
                        options: Any = {"row_groups": [number], "columns": self.columns}
                        for batch in whole.iter_batches(rows_at_once, **options):
                            part = (self.rows - start + batch.num_rows) / rows
                            done = (number + part) / whole.num_row_groups
                            self.place = before + int(file.stat().st_size * done)
                            yield pa.table(batch)
                else:
                    with open_csv(file, kind, block=BLOCK) as (reader, content):
                        for batch in reader:
                            self.place = before + content.place()
                            table = pa.table(batch).select(self.columns)
                            for start in range(0, table.num_rows, rows_at_once):
                                yield table.slice(start, rows_at_once)
            before += file.stat().st_size

    def _read(self, table: pa.Table) -> tuple[ListDataset, pa.Table]:
        """Return the rows as lists, and in the types that `load_table` gives them."""
        if kind_of_table(self.files[0]) == "parquet":
            table = table.cast(self.types)
        else:
            schema = self.schema
            text = {name for name, one in schema.categories.items() if one.kind == "string"}
            names = {name for name in (schema.qid, schema.doc_id) if name is not None}
            table = typed(table, frozenset(text | names))
        return read_table(table, self.schema, missing=self.missing, needs_label=False), table


def scores_rows(model: Any) -> bool:
    """Return whether a model's score of a row depends on that row alone.

    >>> from ltr.models import AttentionScorer, LinearScorer
    >>> from ltr.modules import Ranker
    >>> scores_rows(Ranker(LinearScorer())), scores_rows(Ranker(AttentionScorer()))
    (True, False)
    """
    scorer, transform = getattr(model, "scorer", None), getattr(model, "transform", None)
    alone = getattr(scorer, "per_document", False)
    return alone and not getattr(transform, "within_list", False)


def empty_table(file: Path) -> pa.Table:
    """Return a table without rows, with the columns of a file."""
    kind = kind_of_table(file)
    with naming(file), naming_damage():
        if kind == "parquet":
            return pq.read_schema(file).empty_table()
        with open_csv(file, kind, block=BLOCK) as (reader, _):
            return reader.schema.empty_table()


@contextmanager
def renumbered(rows: np.ndarray) -> Iterator[None]:
    """Name the row of the whole table in the errors of a part of it.

    Args:
        rows: (n,), of each row of the part its row in the whole.

    >>> with renumbered(np.array([3, 7])):
    ...     raise ValueError("row 1, column 'x': must not be missing")
    Traceback (most recent call last):
    ValueError: row 7, column 'x': must not be missing
    """
    try:
        yield
    except ValueError as error:
        text = re.sub(r"^row (\d+),", lambda found: f"row {rows[int(found[1])]},", str(error))
        raise ValueError(text) from None

"""Read the files of a table chunk by chunk, in memory that does not grow with the files."""

from collections.abc import Iterator
from os import PathLike
from typing import Any, Literal

import pyarrow as pa
from torch.utils.data import IterableDataset

from ltr.datasets.column_steps import counted_from
from ltr.datasets.letor import Watch
from ltr.datasets.lists import ListDataset
from ltr.datasets.prepare import read_table
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import TableFiles, naming, of_file, rows_at_once


class RowStream(IterableDataset[dict[str, Any]]):
    """The rows of a table's files as ragged batches, for a model that scores each row by itself.

    A batch holds neighboring rows, at most 16,384, and fewer if there are many features. The rows
    of a query may be in several batches; each batch treats its rows as one list. A batch has
    the values of a `ListDataset` batch, with three differences. `rows` counts from the first row of
    the batch. `keys` is an Arrow table of the qid and the document ids. `chunk` counts the batches
    of all processes. Every process reads all files, but checks and scores only its own chunks.

    Args:
        source: files of CSV or Parquet; see `load_table`.
        schema: how the columns are used. Only training needs the columns of labels, weight,
            position and protected: they may be missing.
        missing: see `read_table`.
        num_replicas: the number of processes that share the chunks; they take chunks in turn.
        rank: the number of this process, from 0.
        types: the types of the columns if the source is one of several files: another file may have
            fractions where this one has whole numbers. Default: the types in the source.

    Attributes:
        files: those of the source.
        unused: the columns that the schema does not have.
        rows: how many rows the last pass has read so far.
        position: how many bytes of the (compressed) files the last pass has read so far.
        size: of the files together, in bytes.
        columns: the columns of the schema that the source has.
        types: their types.
        gathers: True, since a query may return in a later batch.

    Raises:
        ValueError: a file or a column is missing; during a pass, the errors of `read_table`.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from ltr.datasets.column_steps import Number
    >>> import pyarrow.parquet as pq
    >>> table = pa.table({"q": ["a", "b", "a"], "x": [0.5, None, 1.5]})
    >>> pq.write_table(table, file := Path(mkdtemp(), "rows.parquet"))
    >>> batch = next(iter(RowStream(file, Schema("q", steps={"x": Number()}))))
    >>> batch["qid"], batch["rows"].tolist(), batch["keys"].column_names
    (['a', 'b'], [0, 2, 1], ['q'])
    """

    gathers = True

    def __init__(
        self,
        source: str | PathLike[str],
        schema: Schema,
        missing: Literal["keep", "error"] = "keep",
        num_replicas: int = 1,
        rank: int = 0,
        types: pa.Schema | None = None,
    ) -> None:
        self.num_replicas = num_replicas
        self.rank = rank
        self.source = source
        self.schema = schema
        self.missing: Literal["keep", "error"] = missing
        self.rows = 0
        self.position = 0
        self._table = TableFiles(source, schema.text_types())
        self.files, self.size = self._table.files, self._table.size
        names = self._table.schema.names
        with naming(source):
            schema.check_names(names, schema.optional(needs_label=False))
        used = {*schema.columns}
        self.columns = [name for name in names if name in used]
        self.unused = [name for name in names if name not in used]
        known = types or self._table.schema
        self.types = pa.schema([known.field(name) for name in self.columns])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        qid = self.schema.qid
        keys = [qid] if self.schema.doc_id is None else [qid, self.schema.doc_id]
        for chunk, data, table in self._chunks():
            batch = data.__getitems__(range(len(data)))
            yield {**batch, "chunk": chunk, "keys": table.select([*dict.fromkeys(keys)])}

    def chunks(self, watch: Watch | None = None) -> Iterator[ListDataset]:
        """Yield this process's chunks as lists.

        Args:
            watch: called with the progress.
        """
        for _, data, _ in self._chunks():
            if watch is not None:
                watch(self.position, self.size, self.rows)
            yield data

    def keys(self) -> Iterator[ListDataset]:
        """Yield the rows with only their qids."""
        return RowStream(self.source, Schema(self.schema.qid), types=self.types).chunks()

    def _chunks(self) -> Iterator[tuple[int, ListDataset, pa.Table]]:
        """Yield this process's chunks: their number, their rows as lists, and their raw rows."""
        self.rows = self.position = 0
        with naming(self.source):
            for chunk, table in enumerate(self.tables()):
                before, self.rows = self.rows, self.rows + table.num_rows
                if chunk % self.num_replicas == self.rank:
                    with counted_from(before):
                        data, table = self._read(table)
                    yield chunk, data, table
        if not self.rows:
            raise ValueError(
                f"the table must have at least one row, got none{of_file(self.source)}"
            )

    def tables(self) -> Iterator[pa.Table]:
        """Yield the raw rows of the files."""
        rows = rows_at_once(self.schema)
        yield from self._table.chunks(self.columns, rows, self._read_up_to)

    def _read_up_to(self, position: int) -> None:
        self.position = position

    def _read(self, table: pa.Table) -> tuple[ListDataset, pa.Table]:
        """Return the rows as lists, and with the types of `load_table`."""
        if self._table.delimiter is None:
            table = table.cast(self.types)
        return read_table(table, self.schema, missing=self.missing, needs_label=False), table

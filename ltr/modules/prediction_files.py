"""The files of predictions: CSV, Parquet, TREC runs, and the parts of several processes."""

import csv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

Format = Literal["csv", "parquet", "trec"]

POSITION = "ltr:position"
"""The column of a table of predictions with the positions of its rows in the input."""

LISTS = pa.schema(
    [
        (POSITION, pa.int64()),
        ("qid", pa.string()),
        ("doc_id", pa.string()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
    ]
)
"""The columns of scored lists; `POSITION` counts lists."""

GROUP = 1 << 14
"""The rows that are written together; a group of rows of Parquet has at least as many."""

_TAG = "ltr"


class PredictionFile:
    """A file of predictions, which is complete when its `with` block ends.

    Args:
        path: where to write.
        format: of the file; "part" is an Arrow file that keeps `POSITION`, for `join_parts`.

    Attributes:
        rows: how many rows were written.

    >>> from tempfile import TemporaryDirectory
    >>> columns = [[0, 0], ["a", "a"], ["x", "y"], [0.5, 2.0], [2, 1]]
    >>> with TemporaryDirectory() as folder:
    ...     with PredictionFile(Path(folder, "p.run"), "trec") as file:
    ...         file.write(pa.table(columns, schema=LISTS))
    ...     Path(folder, "p.run").read_text().splitlines()
    ['a Q0 y 1 2 ltr', 'a Q0 x 2 0.5 ltr']
    """

    def __init__(self, path: Path, format: Format | Literal["part"]) -> None:
        self.path = path
        self.format = format
        self.rows = 0
        self._written = 0
        self._waiting: list[pa.Table] = []
        self._open = ExitStack()
        self._text: IO[str] | None = None
        self._writer: pq.ParquetWriter | pa_csv.CSVWriter | pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> "PredictionFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            # a file without rows has the columns all the same
            if kind is None and (self._waiting or not self.rows):
                self._write(pa.concat_tables(self._waiting or [LISTS.empty_table()]))

    def write(self, table: pa.Table) -> None:
        """Add rows.

        Args:
            table: scored lists in the columns of `LISTS`, the rows of a list together; or, except
                in a TREC run, scored rows with any columns. `POSITION` is not written.
        """
        self.rows += table.num_rows
        self._waiting.append(table)
        if self.format == "part" or self.rows - self._written >= GROUP:
            self._write(pa.concat_tables(self._waiting))
            self._waiting, self._written = [], self.rows

    def _write(self, table: pa.Table) -> None:
        if self.format == "trec":
            self._file().writelines(_trec_lines(table))
        elif self.format == "csv" and table.schema.equals(LISTS):
            new = self._text is None
            writer = csv.writer(self._file(), lineterminator="\n")
            if new:
                writer.writerow(LISTS.names[1:])
            columns = [column.to_pylist() for column in table.columns[1:]]
            columns[2] = map(_digits, table["score"].to_numpy())
            writer.writerows(zip(*columns, strict=True))
        else:
            if self.format != "part" and POSITION in table.column_names:
                table = table.drop_columns([POSITION])
            if self._writer is None:
                self._writer = self._open.enter_context(self._open_writer(table.schema))
            self._writer.write_table(table.combine_chunks())

    def _file(self) -> IO[str]:
        if self._text is None:
            file = self.path.open("w", encoding="utf-8", newline="")
            self._text = self._open.enter_context(file)
        return self._text

    def _open_writer(
        self, schema: pa.Schema
    ) -> pq.ParquetWriter | pa_csv.CSVWriter | pa.RecordBatchFileWriter:
        if self.format == "part":
            return pa.ipc.new_file(self.path, schema)
        if self.format == "parquet":
            return pq.ParquetWriter(self.path, schema)
        options = pa_csv.WriteOptions(quoting_style="needed")
        return pa_csv.CSVWriter(self.path, schema, write_options=options)


def hard_ranks(scores: np.ndarray) -> np.ndarray:
    """Return ranks 1..n of one list's scores (n,), 1 = highest; equal scores rank in list order.

    >>> hard_ranks(np.array([0.5, 2.0, 0.5])).tolist()
    [2, 1, 3]
    """
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores), dtype=np.int32)
    ranks[order] = np.arange(1, len(scores) + 1, dtype=np.int32)
    return ranks


def descending(scores: np.ndarray) -> np.ndarray:
    """Return scores (n,), given in descending order, with ties broken in the last digit.

    Evaluation tools read the scores of a TREC run as float32, sort by them and break ties in their
    own way. So each score that is not below the one before becomes the next smaller float32.

    >>> descending(np.array([2.0, 2.0, 1.0], dtype=np.float32)).tolist()
    [2.0, 1.9999998807907104, 1.0]
    """
    apart = scores.astype(np.float32)
    for i in range(1, len(apart)):
        if apart[i] >= apart[i - 1]:
            apart[i] = np.nextafter(apart[i - 1], np.float32(-np.inf), dtype=np.float32)
    return apart


def _digits(score: float) -> str:
    return f"{np.float32(score):.9g}"  # enough digits to read back any float32 exactly


def _trec_lines(table: pa.Table) -> Iterator[str]:
    positions, ranks = table[POSITION].to_numpy(), table["rank"].to_numpy()
    scores = table["score"].to_numpy()
    qids, ids = table["qid"].to_pylist(), table["doc_id"].to_pylist()
    starts = (
        np.flatnonzero(np.r_[True, positions[1:] != positions[:-1]])
        if len(positions)
        else positions
    )
    for start, end in zip(starts, np.r_[starts[1:], len(positions)], strict=True):
        order = start + np.argsort(ranks[start:end])
        for rank, (i, score) in enumerate(
            zip(order.tolist(), descending(scores[order]), strict=True), start=1
        ):
            yield f"{qids[i]} Q0 {ids[i]} {rank} {_digits(score)} {_TAG}\n"

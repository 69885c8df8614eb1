"""Convert files into lists on disk, in little memory.

The rows are first written as they come, in runs of one qid. If a qid returns, DuckDB finds the
order in which its runs belong together, and the runs are copied in that order from their files.
"""

import errno
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.column_steps import counted_from
from ltr.datasets.infer import no_column
from ltr.datasets.letor import LetorReader, Watch
from ltr.datasets.list_files import is_list_folder, new_folder, open_lists, write_files
from ltr.datasets.lists import ListDataset, SeenQids, gather_runs
from ltr.datasets.prepare import read_table, scan_table
from ltr.datasets.schema import Schema
from ltr.datasets.splits import check_one_split
from ltr.datasets.table_files import (
    TableFiles,
    column_names,
    find_files,
    kind_of_file,
    naming,
    rows_at_once,
)
from ltr.files import check_path, name_full_disk
from ltr.shapes import check_at_least, check_choice


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    qid: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    position: str | None = None,
    protected: str | None = None,
    doc_id: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    max_levels: int = 256,
    missing: Literal["keep", "error"] = "keep",
    sort_by_qid: bool = False,
    watch: Watch | None = None,
) -> ListDataset:
    r"""Convert files into lists on disk, in at most 1 GiB of memory.

    Lists and documents keep the order in which they first appear. If the rows of a query are not
    together, they are grouped in a second step, from temporary files as large as the lists. This is
    fast as long as these files fit into the memory in which the system caches files; sort the rows
    of far larger data before. The folder `out` appears when it is complete. Until then, the files
    are in `out.partial` beside it. An error or an interrupt removes that folder. A conversion that
    is killed leaves it, and the next one asks to delete it. Memory grows only with the longest list
    and with the number of lists, by 8 bytes for each.

    Args:
        source: what `TableDataModule` takes: a file, a folder or a pattern of LETOR text, CSV or
            Parquet. A query may be in several files.
        out: the folder, which must be new or empty.
        qid: the column of the query; None for LETOR text.
        label: the column of the labels; None for LETOR text, or if there are none.
        weight: see `Schema`.
        position: see `Schema`.
        protected: see `Schema`.
        doc_id: see `Schema`.
        features: see `Schema.infer`.
        categories: see `Schema.infer`.
        max_levels: see `Schema.fit_levels`.
        missing: see `read_table`.
        sort_by_qid: see `read_letor`; for LETOR text. The rows of other tables are always gathered.
        watch: called with the progress: bytes read, bytes in all, documents. If the rows have to be
            grouped, `watch` is then called with 0 documents, and the numbers start again, with the
            bytes of features.

    Returns:
        The lists, from the disk: see `open_lists`.

    Raises:
        ValueError: an argument is wrong, another process writes `out`, or `read_letor` or
            `read_table` would refuse the source. The message names the file and the line, or the
            row and the column.
        OSError: a file cannot be written, for example because the disk is full.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.csv")
    ...     _ = file.write_text("q,y,x\na,0,0.5\nb,1,0.1\na,2,0.25\n")
    ...     convert(file, f"{folder}/lists", qid="q", label="y")[0]["labels"]
    tensor([0., 2.])
    """
    check_at_least("max_levels", max_levels, 1)
    check_choice("missing", missing, "keep", "error")
    path = check_path("source", source)
    named: dict[str, Any] = {"qid": qid, "label": label, "weight": weight, "position": position}
    named |= {"protected": protected, "doc_id": doc_id}
    named |= {"features": features, "categories": categories}
    check_columns(named)
    if is_list_folder(path):
        raise ValueError(f"path must not be a folder of lists already, got {path}")
    files = find_files(path)
    is_letor = kind_of_file(files[0]) == "letor"
    if is_letor:
        for key, value in named.items():
            if value and value != {"qid": "qid", "label": "label", "doc_id": "doc_id"}.get(key):
                raise ValueError(f"{key} must be None for LETOR text, got {value!r}")
        check_one_split(path)
    elif qid is None:
        with naming(path):
            raise no_column("qid", None, column_names(path))
    with new_folder("out", out) as folder:
        if is_letor:
            schema = None
            reader = LetorReader(files, sort_by_qid=sort_by_qid, missing=missing)
            chunks = reader.chunks(watch)
        else:
            schema = scan_table(path, max_levels=max_levels, **named)
            chunks = table_chunks(path, schema, missing, watch)
        _write_rows(folder, chunks, schema, watch)
    return open_lists(out)


def table_chunks(
    path: Path,
    schema: Schema,
    missing: Literal["keep", "error"] = "keep",
    watch: Watch | None = None,
) -> Iterator[ListDataset]:
    """Yield the rows of CSV or Parquet files, at most 16,384 at a time, as runs of one qid.

    Args:
        path: the file, folder or pattern.
        schema: how the columns are used.
        missing: see `read_table`.
        watch: called with the progress.

    Raises:
        ValueError: see `read_table`; the message names the file, the row and the column.
    """
    files = TableFiles(path, schema.text_types())
    columns = [name for name in files.schema.names if name in {*schema.columns}]
    rows = 0
    with naming(path):
        for table in files.chunks(columns, rows_at_once(schema)):
            with counted_from(rows):
                data = read_table(table, schema, missing=missing, needs_label=False)
            rows += table.num_rows
            if watch is not None:
                watch(files.position, files.size, rows)
            yield data
    if not rows:
        raise ValueError(f"the table must have at least one row, got none in {path}")


def _write_rows(
    folder: Path, chunks: Iterable[ListDataset], schema: Schema | None, watch: Watch | None
) -> None:
    """Write runs of one qid as lists, and group them if a qid returns after another one."""
    returns = False

    def watched() -> Iterator[ListDataset]:
        nonlocal returns
        seen, last = SeenQids(), None
        for chunk in chunks:
            fresh = chunk.qids[chunk.qids[0] == last :]
            returns |= seen.add([qid.encode() for qid in fresh])
            last = chunk.qids[-1]
            yield chunk

    first = folder / "grouping"
    first.mkdir()
    with name_full_disk(folder):
        write_files(first, watched(), schema)
        if returns:
            write_files(folder, _grouped(open_lists(first), first, watch), schema)
        else:
            for file in first.iterdir():
                file.rename(folder / file.name)
    shutil.rmtree(first)


MEMORY = "256MB"
"""The memory that DuckDB may use; the rest lies in files."""

RUNS = 1 << 16
"""The most runs whose qids or numbers are in memory."""

_ORDER = """
    SELECT run FROM runs JOIN (SELECT qid, min(run) AS first FROM runs GROUP BY qid) USING (qid)
    ORDER BY first, run
"""


def _grouped(runs: ListDataset, temporary: Path, watch: Watch | None) -> Iterator[ListDataset]:
    """Yield the lists on disk again, with those of a qid joined, in the order of first appearance.

    Args:
        runs: in which a qid may return.
        temporary: a folder for DuckDB's files.
        watch: called with the progress, from 0 documents on.

    Raises:
        OSError: a file cannot be written.
    """
    done, documents, size = 0, int(runs.offsets[-1]), 4 * runs.num_features
    with _database(temporary) as database:
        # each insertion is its own transaction: what is not committed stays in memory
        database.execute("CREATE TABLE runs (qid VARCHAR, run BIGINT)")
        for start in range(0, len(runs), RUNS):
            qids = pa.array(runs.qids[start : start + RUNS], pa.string())
            numbers = np.arange(start, start + len(qids))
            database.register("chunk", pa.table({"qid": qids, "run": numbers}))
            database.execute("INSERT INTO runs FROM chunk")
        for batch in database.sql(_ORDER).to_arrow_reader(RUNS):
            for block in runs.select(batch.column("run").to_numpy()).blocks():
                if watch is not None:
                    watch(done * size, documents * size, done)
                yield gather_runs(block)
                done += int(block.offsets[-1])
    if watch is not None:
        watch(documents * size, documents * size, documents)


@contextmanager
def _database(temporary: Path) -> Iterator[Any]:
    """Open a database; its errors become OSErrors."""
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(temporary),
        "threads": "1",  # each takes memory of its own
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    database = duckdb.connect(str(temporary / "lists.duckdb"), config=settings)
    try:
        database.execute("SET enable_progress_bar = false")
        yield database
    except (duckdb.Error, pa.ArrowException) as error:
        message = f"the rows cannot be grouped: {' '.join(str(error).split())}"
        full = "Could not write" in message  # its class depends on when the write is made
        if not full and not isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
            raise
        raise OSError(errno.ENOSPC if full else errno.EIO, message, str(temporary)) from None
    finally:
        with suppress(duckdb.Error):  # a second error must not hide the first
            database.close()

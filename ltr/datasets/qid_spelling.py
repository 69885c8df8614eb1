"""Qids that are one number in two spellings, such as 5, 05 and 5.0.

pandas writes 5.0 where a column of numbers has a gap. Two such qids would be two lists of one
query.
"""

from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.arrays import pc
from ltr.datasets.table_errors import RowError

_NUMBER = r"^[+]?(-?)0*([0-9]+?)(?:\.0*)?$"
_QUERY = r"""
SELECT list(qid ORDER BY first), list(first ORDER BY first)
FROM (SELECT qid, plain, min(row) AS first FROM qids GROUP BY ALL)
GROUP BY plain HAVING count(*) > 1 ORDER BY min(first) LIMIT 1
"""
_SETTINGS: dict[str, Any] = {
    "memory_limit": "256MB",
    "threads": "1",  # each takes memory of its own
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_QIDS = pa.schema([("qid", pa.string()), ("plain", pa.string()), ("row", pa.int64())])


def check_spelling(qids: pa.Array, lists: np.ndarray, column: str) -> None:
    """Raise an error if a number is the qid of two lists, in two spellings.

    Args:
        qids: text, one a list, all different.
        lists: (rows,), the list of each row.
        column: the name of the column, for the error.

    Raises:
        RowError: there are two such lists.
    """
    numbers = _plain(qids).dictionary_encode().indices.to_numpy()
    _, first_list = np.unique(numbers, return_index=True)
    for again in np.flatnonzero(first_list[numbers] != np.arange(len(qids)))[:1]:
        both = [int(first_list[numbers[again]]), int(again)]
        rows = [int(np.argmax(lists == one)) for one in both]
        raise _two_spellings(column, [qids[one].as_py() for one in both], rows)


def check_spelling_of_files(read: Callable[[], Iterable[pa.ChunkedArray]], column: str) -> None:
    """Raise an error if a number is among the qids of large files in two spellings.

    Only if a number is not in its plain spelling, all qids are read again and compared by DuckDB,
    which keeps those in files that are too many for its memory, 256 MB.

    Args:
        read: gives the column of the qids, chunk by chunk: text.
        column: its name, for the error.

    Raises:
        RowError: there are two such qids.
    """
    if any(map(has_other_spelling, read())):
        import duckdb

        with TemporaryDirectory() as folder:
            settings = {**_SETTINGS, "temp_directory": folder}
            with duckdb.connect(config=settings) as database:
                reader = pa.RecordBatchReader.from_batches(_QIDS, _numbered(read()))
                database.register("qids", reader)
                found = database.execute(_QUERY).fetchone()
        if found is not None:
            raise _two_spellings(column, *found)


def has_other_spelling(qids: pa.ChunkedArray) -> bool:
    """Return whether a number among the qids is not in its plain spelling.

    >>> has_other_spelling(pa.chunked_array([["5", "-1.5", "a05"], ["5.0"]]))
    True
    """
    distinct = pc.unique(qids)
    return bool(pc.any(pc.not_equal(distinct, _plain(distinct))).as_py())


def _plain(qids: Any) -> Any:
    """Return qids, whole numbers without a plus, zeros in front and zeros behind the point."""
    return pc.replace_substring_regex(qids, _NUMBER, r"\1\2")


def _two_spellings(column: str, qids: list[str], rows: list[int]) -> RowError:
    problem = (
        f"a qid must be written in one way, got {qids[1]!r} (write both alike if they are one "
        f"list, else give them different names) and {qids[0]!r}"
    )
    return RowError(rows[1], column, problem, rows[0])


def _numbered(chunks: Iterable[pa.ChunkedArray]) -> Iterator[pa.RecordBatch]:
    start = 0
    for chunk in chunks:
        qids = chunk.combine_chunks()
        rows = pa.array(np.arange(start, start + len(qids)))
        start += len(qids)
        yield pa.record_batch([qids, _plain(qids), rows], schema=_QIDS)

"""Predictions of several processes: each writes a part, and one joins the parts in order."""

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa

from ltr.files import atomic_write
from ltr.modules.prediction_files import POSITION, Format, PredictionFile


def join_parts(
    parts: Sequence[Path],
    path: Path,
    format: Format,
    scattered: bool = False,
) -> int:
    """Write the file of predictions from its parts, completely or not at all.

    Rows are in the order of their positions; rows with the same position keep their order. If
    positions ascend in each part, as those of a sampler do, the memory is that of a few batches per
    part.

    Args:
        parts: the files of the format "part", one from each process, in a folder that all of them
            see.
        path: the file of predictions; an older one is replaced.
        format: its format.
        scattered: whether positions come in any order, each once, and without a gap. Then all rows
            are in memory.

    Returns:
        The number of rows.

    Raises:
        ValueError: a part is missing, two parts have the same position, or a position is missing.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for number, positions in enumerate([[0, 2], [1, 1]]):
    ...         with PredictionFile(Path(folder, str(number)), "part") as part:
    ...             part.write(pa.table({POSITION: positions, "score": [number, number + 0.5]}))
    ...     rows = join_parts([Path(folder, "0"), Path(folder, "1")], Path(folder, "p.csv"), "csv")
    ...     rows, Path(folder, "p.csv").read_text().split()
    (4, ['"score"', '0', '1', '1.5', '0.5'])
    """
    for part in parts:
        if not part.is_file():
            raise ValueError(
                f"all processes must write to one folder, got no file {part} here: give an "
                "--output on a disk that all machines share"
            )
    with atomic_write(path) as whole, PredictionFile(whole, format) as file:
        if scattered:
            file.write(_in_order([table for part in parts for table in _tables(part)]))
        else:
            for table in merged(parts):
                file.write(table)
    return file.rows


def merged(parts: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the lists of all parts in the order of their positions, which ascend in each part.

    Raises:
        ValueError: two parts have the same position, or the positions of a part do not ascend.
    """
    last = -1
    for position, table in heapq.merge(*map(_lists, parts), key=itemgetter(0)):
        if position == last:
            raise ValueError(f"each list must be in one process, got list {position} in two")
        last = position
        yield table


def _lists(part: Path) -> Iterator[tuple[int, pa.Table]]:
    """Yield the position and the rows of each list of a part."""
    last = -1
    for table in _tables(part):
        positions = table[POSITION].to_numpy()
        starts = np.flatnonzero(np.diff(positions, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(positions)], strict=True):
            if positions[start] <= last:
                raise ValueError(f"the lists of a process must come in order, got {positions}")
            last = int(positions[start])
            yield last, table.slice(start, end - start)


def _in_order(tables: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    positions = rows[POSITION].to_numpy()
    order = np.argsort(positions, kind="stable")
    if not np.array_equal(positions[order], np.arange(len(positions))):
        raise ValueError(f"each row must come from exactly one process, got {len(positions)} rows")
    return rows.take(pa.array(order))


def _tables(part: Path) -> Iterator[pa.Table]:
    """Yield the tables of a part as they were written."""
    if part.stat().st_size:
        with pa.OSFile(str(part)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(number)])

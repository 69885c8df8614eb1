"""Predictions of several processes: each writes a part, and one joins the parts in order."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from ltr.files import atomic_write
from ltr.modules.prediction_files import PLACE, Format, PredictionFile


class PartFile:
    """A process's share of the predictions, for `join_parts`; complete when its block ends.

    Args:
        path: where to write, as an Arrow file. Without a row it stays empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._open = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> "PartFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def write(self, table: pa.Table) -> None:
        """Add rows, with their places in the column `PLACE`."""
        if not table.num_rows:
            return
        self.rows += table.num_rows
        if self._writer is None:
            file = pa.ipc.new_file(self.path, table.schema)
            self._writer = self._open.enter_context(file)
        self._writer.write_table(table.combine_chunks())


def join_parts(
    parts: Sequence[Path],
    path: Path,
    format: Format,
    scattered: bool = False,
) -> int:
    """Write the file of predictions from its parts, whole or not at all.

    Rows come in the order of their places, those of one place in the order in which they were
    written. Where places rise in each part, as a sampler gives them, the memory is that of a few
    batches a part.

    Args:
        parts: the files that `PartFile` wrote, each of a process that sees this folder.
        path: the file of predictions; an older one is replaced.
        format: its format.
        scattered: whether places come in any order, each once, and without a gap. All rows are in
            memory then.

    Returns:
        The number of rows.

    Raises:
        ValueError: a part is not there, two parts have the same place, or a place is missing.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for number, places in enumerate([[0, 2], [1, 1]]):
    ...         with PartFile(Path(folder, str(number))) as part:
    ...             part.write(pa.table({PLACE: places, "score": [number, number + 0.5]}))
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
    """Yield the rows of all parts in the order of their places, which rise in each part.

    Raises:
        ValueError: two parts have the same place, or the places of a part fall.
    """
    readers = {number: _tables(part) for number, part in enumerate(parts)}
    last = dict.fromkeys(readers, -1)
    waiting: list[tuple[int, pa.Table]] = []
    while readers or waiting:
        for number, reader in list(readers.items()):
            table = next(reader, None)
            if table is None:
                del readers[number]
                continue
            places = table[PLACE].to_numpy()
            if places[0] <= last[number] or (np.diff(places) < 0).any():
                raise ValueError(f"the lists of a process must come in order, got {places}")
            last[number] = int(places[-1])
            waiting.append((number, table))
        if not waiting:
            return
        # nothing that is still to be read comes before this place
        bound = min((last[number] for number in readers), default=None)
        rows = pa.concat_tables([table for _, table in waiting])
        owners = np.repeat([number for number, _ in waiting], [len(table) for _, table in waiting])
        places = rows[PLACE].to_numpy()
        order = np.argsort(places, kind="stable")
        again = (np.diff(places[order]) == 0) & (np.diff(owners[order]) != 0)
        if again.any():
            place = int(places[order][:-1][again][0])
            raise ValueError(f"each list must be in one process, got list {place} in two")
        if bound is None:
            yield rows.take(pa.array(order))
            return
        cut = int(np.searchsorted(places[order], bound, side="right"))
        if cut:
            yield rows.take(pa.array(order[:cut]))
        rest = (number for number in np.unique(owners[order[cut:]]).tolist())
        later = order[cut:]
        waiting = [(number, rows.take(pa.array(later[owners[later] == number]))) for number in rest]


def _in_order(tables: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables)
    places = rows[PLACE].to_numpy()
    order = np.argsort(places, kind="stable")
    if not np.array_equal(places[order], np.arange(len(places))):
        raise ValueError(f"each of the rows must be in one process once, got {len(places)} rows")
    return rows.take(pa.array(order))


def _tables(part: Path) -> Iterator[pa.Table]:
    """Yield the tables of a part as they were written."""
    if part.stat().st_size:
        with pa.OSFile(str(part)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(number)])

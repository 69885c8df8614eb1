"""Convert files into lists on disk, in little memory."""

from collections.abc import Sequence
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ltr.arrays import check_columns
from ltr.datasets.grouping import NotGroupedError, check_grouped, group_chunks
from ltr.datasets.infer import no_column
from ltr.datasets.letor import LetorReader, Watch
from ltr.datasets.list_files import is_list_folder, open_lists
from ltr.datasets.list_writer import new_folder, write_files
from ltr.datasets.lists import ListDataset
from ltr.datasets.prepare import scan_table
from ltr.datasets.splits import check_one_split
from ltr.datasets.table_files import column_names, find_files, kind_of_file, naming
from ltr.datasets.table_stream import RowStream
from ltr.files import check_path
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
    together, DuckDB groups them. Its temporary files are about as large as the lists. The folder
    `out` appears when it is complete. Until then, the files are in `out.partial` beside it. An
    error or an interrupt removes that folder. A conversion that is killed leaves it, and the next
    one asks to delete it. Memory grows only with the longest list and with the number of lists, by
    8 bytes for each.

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
            grouped, the source is read twice more. `watch` is then called with 0 documents, and the
            numbers start again.

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
    named |= {
        "protected": protected,
        "doc_id": doc_id,
        "features": features,
        "categories": categories,
    }
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
            rows = LetorReader(files, sort_by_qid=sort_by_qid, missing=missing)
        else:
            rows = RowStream(path, scan_table(path, max_levels=max_levels, **named), missing)
        _write_rows(folder, rows, watch)
    return open_lists(out)


def _write_rows(folder: Path, rows: LetorReader | RowStream, watch: Watch | None) -> None:
    """Write rows as lists; group them if a list returns after another one and that is allowed."""
    if not rows.gathers:  # the reader refuses it
        write_files(folder, rows.chunks(watch), rows.schema)
        return
    with suppress(NotGroupedError):  # left before the next try: an error holds what it saw
        write_files(folder, check_grouped(rows.chunks(watch)), rows.schema)
        return
    if watch is not None:
        watch(0, 1, 0)
    temporary = folder / "grouping"
    with closing(group_chunks(rows.keys(), rows.chunks(watch), temporary)) as chunks:
        write_files(folder, chunks, rows.schema)

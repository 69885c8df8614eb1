"""Convert each file of a source by itself, in any process, and join the results.

Each file becomes a store in a folder of its own within the new store's folder. Those are joined in
the order of the files: their shards are moved, not copied, and the manifest is written last. So a
conversion that was killed keeps the stores that were done.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ltr.datasets.seen_qids import SeenQids
from ltr.datasets.store import PARTS, Store
from ltr.datasets.store_writer import StoreWriter

RunTasks = Callable[[Sequence[Callable[[], None]]], object]
"""Calls each task once at least, in any order and in any processes. The tasks can be pickled."""

_CHUNK = 1 << 16


def write_by_file(
    writer: StoreWriter,
    files: Sequence[Path],
    write: Callable[[Path, Path, Any], None],
    run_tasks: RunTasks,
) -> None:
    """Write a store from stores of its files.

    Args:
        writer: of the store; its folder must be locked.
        files: those that have rows.
        write: converts a file into a store; it is told the file, the folder of the store and the
            store's `source`.
        run_tasks: calls it for the files.

    Raises:
        ValueError: what `write` raises; or a query is in two files.
        OSError: a file cannot be written.
    """
    names = [f"{writer.key}-{number:06d}" for number in range(len(files))]
    folders = [writer.folder / PARTS / name for name in names]
    run_tasks(
        [
            partial(write, file, folder, folder.name)
            for file, folder in zip(files, folders, strict=True)
        ]
    )
    check_apart(files, folders)
    writer.join(folders)


def check_apart(files: Sequence[Path], folders: Sequence[Path]) -> None:
    """Check that no query is in two files.

    Args:
        files: for the message.
        folders: the stores of the files.

    Raises:
        ValueError: one is; the message names it and both files.
    """
    seen = SeenQids(spelling=True)
    for number, folder in enumerate(folders):
        qids = iter(Store(folder).qids)
        while chunk := [*islice(qids, _CHUNK)]:
            if not seen.add([qid.encode() for qid in chunk]):
                continue
            these = {*chunk}  # a suspicion: two qids may share a hash
            for file, before in zip(files, folders[:number], strict=False):
                qid = next((qid for qid in Store(before).qids if qid in these), None)
                if qid is not None:
                    raise ValueError(
                        f"{files[number]}: a query must be in one file where the files are "
                        f"converted apart, got {qid!r}, which is in {file} too: convert them "
                        "in one process"
                    )

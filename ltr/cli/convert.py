"""`ltr convert`: turn files of any size into a store of lists."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ltr.cli import on_ray
from ltr.cli.errors import CommandError
from ltr.cli.recipes import LineParser

if TYPE_CHECKING:
    from ltr.datasets.stored_lists import StoredLists

_EPILOG = """\
The store is a folder of shards and a manifest. `ltr fit`, `test` and `predict` take it instead
of a table; its lists are read from the disk on demand. The conversion takes at most 1 GiB of
memory. If it is stopped, the same command starts again: a store is either complete or absent.

  ltr convert train.parquet --out train.store --qid query --label grade
  ltr convert 'msn/Fold1/train.txt' --out train.store
  ltr fit --config table --data.path train.store
"""
_COLUMNS = {
    "qid": (None, "column of the queries; not for LETOR text"),
    "label": (None, "column of the labels, if there are any"),
    "weight": (None, "column of the weights"),
    "position": (None, "column of the positions"),
    "protected": (None, "column of numbers above 0 in the protected group"),
    "doc_id": (None, "column of the documents' names"),
    "features": ("+", "default: all other columns of numbers and dates"),
    "categories": ("+", "default: other text and booleans"),
}


def run(command: str, args: list[str], workers: int | None = None) -> int:
    """Run the command `convert`, on a Ray cluster with `workers`."""
    options = _parser().parse_args(args)
    if options.shard_mb <= 0:
        raise CommandError(f"--shard-mb must be > 0, got {options.shard_mb:g}")
    from ltr.datasets import convert  # imports torch, which takes a while
    from ltr.datasets.store import is_store
    from ltr.datasets.table_files import find_files

    run_tasks = None
    if workers is not None and not is_store(options.input):  # `convert` refuses a store
        if len(find_files(Path(options.input).expanduser())) > 1:
            run_tasks = partial(on_ray.run_tasks, workers=workers)
        else:
            said = f"ltr convert: {options.input} is one file: one process converts it, without Ray"
            print(said, file=sys.stderr)
    begin = time.monotonic()
    with _progress(options.input, quiet=options.quiet or run_tasks is not None) as watch:
        data = convert(
            options.input,
            options.out,
            **{name: getattr(options, name) for name in _COLUMNS},
            max_levels=options.max_levels,
            missing=options.missing,
            sort_by_qid=options.sort_by_qid,
            shard_bytes=max(1, int(options.shard_mb * 1e6)),
            watch=watch,
            run_tasks=run_tasks,
        )
    print(f"wrote {options.out}: {_told(data, time.monotonic() - begin)}")
    return 0


def _parser() -> LineParser:
    parser = LineParser(
        "ltr convert",
        usage="ltr convert INPUT --out STORE [--qid COLUMN] [--label COLUMN] ...",
        description="Convert LETOR text, CSV or Parquet of any size into a store of lists.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", metavar="INPUT", help="a file, a folder of files or a pattern")
    add("--out", required=True, metavar="STORE", help="the folder of the store")
    for name, (nargs, about) in _COLUMNS.items():
        add(f"--{name.replace('_', '-')}", nargs=nargs, metavar="COLUMN", help=about)
    add(
        "--max-levels",
        type=int,
        default=256,
        help="most levels of a category with a code; default: 256",
    )
    add("--missing", choices=["keep", "error"], default="keep", help="missing features")
    add("--sort-by-qid", action="store_true", help="gather the lines of a qid in LETOR text")
    add("--shard-mb", type=float, default=64, help="approximate megabytes of a shard; default: 64")
    add("--ray", action="store_true", help="each file by itself, on all CPUs of a Ray cluster")
    add("--ray-workers", metavar="N", type=int, help="like --ray, in N workers")
    add("--quiet", action="store_true", help="no progress bar")
    return parser


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[int, int, int], None]]:
    """Show a progress bar on stderr, with rate and time left; yield the function that moves it.

    If the rows have to be grouped, the bar says "grouping" and stops at its end.
    """
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TextColumn("{task.fields[documents]:,} documents"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(
        *columns, console=console, disable=quiet or not console.is_terminal
    ) as bar:
        task = bar.add_task(Path(name).name, total=None, documents=0)

        def watch(done: int, total: int, documents: int) -> None:
            if not documents:
                bar.update(task, description=f"{Path(name).name}, grouping")
            bar.update(task, completed=done, total=total, documents=documents)

        yield watch


def _told(data: "StoredLists", seconds: float) -> str:
    summary, entries = data.summary(), data.store.entries
    size = sum(entry.bytes for entry in entries)
    return (
        f"{summary}; {len(entries)} shards, {size / 1e6:,.1f} MB, "
        f"{summary.documents / max(seconds, 1e-3):,.0f} documents a second"
    )

"""`ltr convert`: turn files of any size into lists on disk."""

import time
from pathlib import Path

from ltr.cli.arguments import LineParser, add_roles, require_roles, roles_of, table_files
from ltr.files import check_path


def convert(parser: LineParser, args: list[str]) -> None:
    """Convert LETOR text, CSV or Parquet of any size into lists on disk.

    The result is a folder of arrays. `ltr train`, `test` and `predict` take it instead of a table;
    they memory-map the arrays, so lists are read from the disk on demand. The conversion takes at
    most 1 GiB of memory. The folder appears when it is complete. A conversion that is killed leaves
    a folder `FOLDER.partial`: delete it before you convert again.

      ltr convert train.parquet --output train.lists --qid query --label grade
      ltr convert 'msn/Fold1/train.txt' --output train.lists
      ltr train train.lists --output model
    """
    add = parser.add_argument
    about = "a file, a folder of files or a pattern"
    parser.reads(add("input", metavar="INPUT", help=about), table_files)
    parser.writes(add("--output", required=True, metavar="FOLDER", help="a new or empty folder"))
    add_roles(parser)
    levels = "most levels of a category with a code; default: 256"
    add("--max-levels", type=int, default=256, help=levels)
    add("--quiet", action="store_true", help="no progress bar")
    given = parser.parse_args(args)
    require_roles(given, given.input, ["qid"])

    from rich import progress
    from rich.console import Console

    from ltr import datasets  # this imports torch, which takes a while

    begin, console = time.monotonic(), Console(stderr=True)
    name = Path(given.input).name
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TextColumn("{task.fields[documents]:,} documents"),
        progress.TimeRemainingColumn(),
    )
    hidden = given.quiet or not console.is_terminal
    with progress.Progress(*columns, console=console, disable=hidden) as bar:
        task = bar.add_task(name, total=None, documents=0)

        def watch(done: int, total: int, documents: int) -> None:
            if not documents:  # the rows must be grouped, so they are read again
                bar.update(task, description=f"{name}, grouping")
            bar.update(task, completed=done, total=total, documents=documents)

        data = datasets.convert(
            given.input,
            given.output,
            **roles_of(given),
            max_levels=given.max_levels,
            watch=watch,
        )
    summary, seconds = data.summary(), max(time.monotonic() - begin, 1e-3)
    size = sum(file.stat().st_size for file in check_path("output", given.output).iterdir())
    speed = f"{size / 1e6:,.1f} MB, {summary.documents / seconds:,.0f} documents a second"
    print(f"wrote {given.output}: {summary}; {speed}")

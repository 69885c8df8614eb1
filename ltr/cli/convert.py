"""`ltr convert`: turn files of any size into lists on disk."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ltr.cli.arguments import LineParser, add_roles, roles_of

_EPILOG = """\
The result is a folder of arrays that numpy maps. `ltr train`, `test` and `predict` take it instead
of a table; its lists are read from the disk on demand. The conversion takes at most 1 GiB of
memory. The folder appears when it is complete. A conversion that is killed leaves a folder
`OUT.partial`: delete it before the next one.

  ltr convert train.parquet --out train.lists --qid query --label grade
  ltr convert 'msn/Fold1/train.txt' --out train.lists
  ltr train train.lists --out model
"""


def run(command: str, args: list[str]) -> int:
    """Run the command `convert`."""
    options = _parser().parse_args(args)
    from ltr.datasets import convert  # imports torch, which takes a while

    begin = time.monotonic()
    with _progress(options.input, quiet=options.quiet) as watch:
        data = convert(
            options.input,
            options.out,
            **roles_of(options),
            max_levels=options.max_levels,
            missing=options.missing,
            sort_by_qid=options.sort_by_qid,
            watch=watch,
        )
    summary, seconds = data.summary(), max(time.monotonic() - begin, 1e-3)
    size = sum(file.stat().st_size for file in Path(options.out).expanduser().iterdir())
    speed = f"{size / 1e6:,.1f} MB, {summary.documents / seconds:,.0f} documents a second"
    print(f"wrote {options.out}: {summary}; {speed}")
    return 0


def _parser() -> LineParser:
    parser = LineParser(
        "ltr convert",
        usage="ltr convert INPUT --out FOLDER [--qid COLUMN] [--label COLUMN] ...",
        description="Convert LETOR text, CSV or Parquet of any size into lists on disk.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("input", metavar="INPUT", help="a file, a folder of files or a pattern")
    add("--out", required=True, metavar="FOLDER", help="a new or empty folder")
    add_roles(parser)
    add(
        "--max-levels",
        type=int,
        default=256,
        help="most levels of a category with a code; default: 256",
    )
    add("--missing", choices=["keep", "error"], default="keep", help="missing features")
    add("--sort-by-qid", action="store_true", help="gather the lines of a qid in LETOR text")
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

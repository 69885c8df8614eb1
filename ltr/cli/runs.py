"""The folders of runs, `runs/NAME/1` and so on, each with its checkpoints and logs."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ltr.cli.errors import CommandError

_PATIENCE = 10  # seconds; the loaders of a killed run hold its lock for a few more


def numbered(root: Path) -> list[Path]:
    """Return the folders of runs, newest first, then the root, which earlier versions used.

    >>> numbered(Path("no/such/folder"))
    [PosixPath('no/such/folder')]
    """
    runs = [run for run in root.glob("[0-9]*") if run.name.isdecimal() and run.is_dir()]
    return [*sorted(runs, key=lambda run: int(run.name), reverse=True), root]


def find_checkpoint(root: Path, name: str) -> Path | None:
    """Return the checkpoint `best` or `last` of the newest run that has one."""
    files = (run / "checkpoints" / f"{name}.ckpt" for run in numbered(root))
    return next((file for file in files if file.is_file()), None)


def new_run(root: Path) -> Path:
    """Make the folder of a new run, with the next number. No two processes get the same one."""
    newest = numbered(root)[0]
    number = int(newest.name) if newest != root else 0
    while True:
        number += 1
        run = root / str(number)
        try:
            run.mkdir(parents=True)
            return run
        except FileExistsError:
            continue


@contextmanager
def removed_unless(run: Path, trained: Callable[[], bool]) -> Iterator[None]:
    """Remove the folder of a new run if an error comes before its first batch."""
    try:
        yield
    except BaseException:
        if not trained():
            shutil.rmtree(run, ignore_errors=True)
        raise


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Lock a run for this process, because two processes must not write the same checkpoints.

    Raises:
        CommandError: another process trains it.
    """
    run.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run / ".lock")
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout as error:
        raise CommandError(f"{run} is in use: another process trains it") from error
    except NotImplementedError:  # not every file system has locks
        pass
    try:
        yield
    finally:
        lock.release()

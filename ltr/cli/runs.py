"""The folders of runs, `runs/NAME/1` and so on, each with its checkpoints and logs."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ltr.cli.errors import CommandError
from ltr.files import check_archive, check_path, made_folder
from ltr.names import nearest, one_line

# Wait for a lock this many seconds, since data loaders of a killed run hold it for a while.
_PATIENCE = 10


def numbered(root: Path) -> list[Path]:
    """Return the folders of runs, newest first, then the root, where old versions of ltr wrote.

    >>> numbered(Path("no/such/folder"))
    [PosixPath('no/such/folder')]
    """
    runs = [run for run in root.glob("[0-9]*") if run.name.isdecimal() and run.is_dir()]
    return [*sorted(runs, key=lambda run: int(run.name), reverse=True), root]


def named_checkpoint(value: str, root: Path, *, resume: bool = False) -> Path | None:
    """Return the checkpoint that `--ckpt_path` names.

    Args:
        value: a file, or `best` or `last`.
        root: the folder whose runs `best` and `last` refer to.
        resume: whether to resume training; the result is then None if there is no `last` yet.

    Raises:
        CommandError: there is no such checkpoint; the message suggests the most similar path.
    """
    path = check_path("ckpt_path", value)
    if value in ("best", "last"):
        files = (run / "checkpoints" / f"{value}.ckpt" for run in numbered(root))
        newest = next((file for file in files if file.is_file()), None)
        if newest or (resume and value == "last"):
            return newest
    elif path.is_file():
        return path
    paths = [str(file) for run in numbered(root) for file in run.glob("checkpoints/*.ckpt")]
    choice = nearest(value, paths) if paths else f"{root} has none"
    raise CommandError(f"no checkpoint {value!r}: {choice}")


def read_checkpoint(path: Path, *, resume: bool = False) -> dict[str, Any]:
    """Return the content of a checkpoint: tensors and plain values.

    The file is read twice. The first time, the checksums of its parts are checked, because torch
    does not check them.

    Args:
        path: the file.
        resume: whether training must be able to resume from the file.

    Raises:
        CommandError: the file is damaged, was not written by Lightning, or holds more than tensors
            and plain values; or `resume` is set and the file has only weights.
        OSError: the file cannot be opened.
    """
    import torch

    with path.open("rb") as file:
        try:
            check_archive(file)
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises errors of many kinds
            cause = one_line(error).partition(". ")[0] or "it is empty"
            raise CommandError(
                f"{path} is not a checkpoint, is damaged, or holds more than tensors and plain "
                f"values: {cause}"
            ) from error
    needed = {"state_dict", "pytorch-lightning_version"}
    if not isinstance(content, dict) or not needed <= {*content}:
        raise CommandError(f"{path} is not a checkpoint of Lightning")
    if resume and not {"callbacks", "optimizer_states", "loops"} <= {*content}:
        raise CommandError(f"{path} has the weights only: a training cannot resume from it")
    return content


@contextmanager
def new_run(root: Path, keep: Callable[[], bool]) -> Iterator[Path]:
    """Make the folder of a new run, with the next number, which no other process gets.

    Args:
        root: the folder of the runs.
        keep: a function that returns whether the folder stays after an error.
    """
    with made_folder(root):
        newest = numbered(root)[0]
        run = root / ("0" if newest == root else newest.name)
        while True:
            run = root / str(int(run.name) + 1)
            with suppress(FileExistsError):
                run.mkdir()
                break
        try:
            yield run
        except BaseException:
            if not keep():
                shutil.rmtree(run, ignore_errors=True)
            raise


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Lock a run for this process, because two processes must not write the same checkpoints.

    Raises:
        CommandError: another process holds the lock.
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

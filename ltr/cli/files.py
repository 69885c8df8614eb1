"""Files that appear whole under their names, or not at all."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".part"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` to write, which then takes its place.

    After an error the temporary file is removed. A process that is killed leaves it; the next one
    that writes `path` removes it. Those of living processes are locked, and stay.

    Raises:
        OSError: with the file's name, such as that of a full disk.

    >>> with replacing(Path(tempfile.mkdtemp(), "a.txt")) as part:
    ...     _ = part.write_text("whole")
    >>> part.exists()
    False
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent, path.name)
        lock, part = _locked(path)
    try:
        with naming(path):
            yield part
            with part.open("rb") as written:  # a crash of the machine must not leave it empty
                os.fsync(written.fileno())
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
        os.close(lock)


def remove_abandoned(folder: Path, name: str = "*") -> None:
    """Remove the temporary files of `name` in a folder whose processes have died."""
    for part in folder.glob(f".{name}.*{_SUFFIX}"):
        with suppress(OSError):  # it is locked, or another process has removed it
            lock = os.open(part, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
            finally:
                os.close(lock)


def _locked(path: Path) -> tuple[int, Path]:
    while True:
        lock, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.parent)
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.exists(name):  # not taken for abandoned before it was locked
            os.chmod(name, 0o666 & ~_umask())
            return lock, Path(name)
        os.close(lock)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to the error of a full disk, which does not say what was written."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error

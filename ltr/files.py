"""Write files atomically, remove the temporary files of dead processes, and check archives."""

import errno
import os
import re
import secrets
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SUFFIX = ".ltr-partial"
_PARTIAL = re.compile(r"\..+\.(?P<host>[^.]+)-(?P<pid>\d+)-[0-9a-f]{8}\.ltr-partial")
# Temporary files that this process is writing. A container that is restarted often gives its
# process the same id as before: a file with our own id that is not in here is a leftover.
_being_written: set[str] = set()


def check_path(name: str, value: str | PathLike[str]) -> Path:
    """Return a path, with the home folder for "~", or raise a ValueError that names the argument.

    >>> check_path("path", 3)
    Traceback (most recent call last):
    ValueError: path must be a path, got 3
    """
    if not isinstance(value, str | PathLike):
        raise ValueError(f"{name} must be a path, got {value!r}")
    return Path(value).expanduser()


def check_archive(file: IO[bytes]) -> None:
    """Raise a ValueError for a zip archive that is larger than its file, or damaged.

    torch and skops compress nothing, so a small file must not need more memory than its size.
    """
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("its parts are compressed")
        if sum(entry.file_size for entry in entries) > file.seek(0, os.SEEK_END):
            raise ValueError("its parts overlap")
        if (wrong := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {wrong} is wrong")


@contextmanager
def atomic_write(path: str | PathLike[str]) -> Iterator[Path]:
    """Write a file completely or not at all: a reader sees the old file or the new one.

    It yields the path of an empty temporary file in the folder of `path`, so that both are on one
    file system. Without an error, the temporary file is flushed to the disk and replaces `path`.
    After an error it is removed, and `path` is unchanged. Its name holds the host and the process,
    so that `remove_leftovers` can tell whether its writer is dead. If `path` is a symbolic link,
    its target is replaced.

    Args:
        path: the file; its folder must exist.

    Raises:
        OSError: the file cannot be written. The error names `path` if it would not name a file, as
            for a full disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/scores.csv") as partial:
    ...         _ = partial.write_text("1,2")
    ...         seen = [p.name for p in Path(folder).glob("*.csv")]
    ...     seen, [p.name for p in Path(folder).iterdir()]
    ([], ['scores.csv'])
    """
    target = Path(os.path.realpath(path))
    try:
        with temporary_beside(target) as partial:
            yield partial
            with partial.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(partial, target)
            sync_folder(target.parent)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def temporary_beside(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield an empty temporary file in the folder of `path`, and remove it at the end.

    Its name holds the host and the process, like that of `atomic_write`, for `remove_leftovers`.

    Args:
        path: a file; its folder must exist.

    Raises:
        OSError: the file cannot be made.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with temporary_beside(f"{folder}/scores.csv") as part:
    ...         seen = [part.parent == Path(folder), part.exists()]
    ...     seen, part.exists()
    ([True, True], False)
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(_partial_name(target.name))
    _being_written.add(partial.name)
    try:
        partial.open("xb").close()
        yield partial
    finally:
        with suppress(OSError):  # a second error must not hide the first
            partial.unlink(missing_ok=True)
        _being_written.discard(partial.name)


@contextmanager
def made_folder(path: str | PathLike[str]) -> Iterator[Path]:
    """Make a folder and its parents; after an error, remove those made, if they are empty.

    >>> from tempfile import mkdtemp
    >>> top = Path(mkdtemp())
    >>> with suppress(ValueError), made_folder(top / "a" / "b") as folder:
    ...     raise ValueError(folder.is_dir())
    >>> [*top.iterdir()]
    []
    """
    folder = Path(path)
    missing = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        for one in missing:
            with suppress(OSError):  # what others have put there stays
                one.rmdir()
        raise


@contextmanager
def name_full_disk(path: str | PathLike[str]) -> Iterator[None]:
    """Add `path` to the error of a full disk, which does not say what was written.

    >>> with name_full_disk("/runs/1"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: '/runs/1'
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(path)
        raise


def remove_leftovers(folder: str | PathLike[str]) -> list[Path]:
    """Remove the temporary files of `atomic_write` whose processes are dead.

    Files of other hosts stay, because this host cannot know whether their processes live. Files
    that `atomic_write` did not name stay too. A file that cannot be removed stays too.

    Args:
        folder: where to look, without its subfolders; it need not exist.

    Returns:
        The files removed.

    >>> remove_leftovers("no/such/folder")
    []
    """
    removed: list[Path] = []
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for name in sorted(os.listdir(folder)):
            found = _PARTIAL.fullmatch(name)
            if found is None or found["host"] != _host() or name in _being_written:
                continue
            pid = int(found["pid"])
            if pid == os.getpid() or not _is_alive(pid):
                with suppress(OSError):
                    Path(folder, name).unlink()
                    removed.append(Path(folder, name))
    return removed


def _partial_name(name: str) -> str:
    # a file system allows 255 bytes for a name
    short = name.encode(errors="surrogateescape")[:120].decode(errors="ignore").lstrip(".")
    return f".{short or 'file'}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", socket.gethostname())[:64] or "localhost"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's process
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system supports it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

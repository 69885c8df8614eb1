"""Write files atomically, and check archives."""

import errno
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SUFFIX = ".ltr-partial"


def check_path(name: str, value: str | PathLike[str]) -> Path:
    """Return a path with "~" replaced by the home folder; raise a ValueError if it is not a path.

    A name such as "~data.csv" stays as it is if no user has this name.

    >>> check_path("path", 3)
    Traceback (most recent call last):
    ValueError: path must be a path, got 3
    """
    if not isinstance(value, str | PathLike):
        raise ValueError(f"{name} must be a path, got {value!r}")
    return Path(os.path.expanduser(value))


def check_archive(file: IO[bytes]) -> None:
    """Raise a ValueError if the parts of a zip archive are compressed or damaged.

    torch writes archives without compression, so reading a valid archive takes no more memory than
    the size of its file.
    """
    with zipfile.ZipFile(file) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("its parts are compressed")
        if (wrong := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {wrong} is wrong")


@contextmanager
def atomic_write(path: str | PathLike[str]) -> Iterator[Path]:
    """Write a file completely or not at all: a reader sees the old file or the new one.

    The context manager yields the path of an empty temporary file in the folder of `path`, so that
    both files are on the same file system. At the end, the temporary file is flushed to the disk
    and replaces `path`. After an error, the temporary file is removed, and `path` is unchanged. If
    the process is killed, the temporary file stays: it is hidden, and its name ends in
    `.ltr-partial`. If `path` is a symbolic link, its target is replaced.

    Args:
        path: the file. Its folder is made if it is missing, and removed again after an error.

    Raises:
        OSError: the file cannot be written. An error number without a file name, such as that of a
            full disk, gets the name `path`.

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
        with made_folder(target.parent), temporary_beside(target) as partial:
            yield partial
            with partial.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(partial, target)
            sync_folder(target.parent)
    except OSError as error:
        # Without an errno, a file name would hide the message of the error.
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def write_files(contents: Mapping[str | PathLike[str], bytes]) -> None:
    """Write several files; all are complete before one gets its name, the last one first.

    Args:
        contents: the content of each file by its path; see `atomic_write`.

    Raises:
        OSError: a file cannot be written, or is a folder. All files are then unchanged.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> write_files({folder / "model.json": b"{}", folder / "README.md": b"# A model"})
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'model.json']
    """
    for path in contents:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with ExitStack() as stack:
        for path, content in contents.items():
            stack.enter_context(atomic_write(path)).write_bytes(content)


@contextmanager
def temporary_beside(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield the path of a new empty file in the folder of `path`; delete the file at the end.

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
    try:
        partial.open("xb").close()
        yield partial
    finally:
        with suppress(OSError):  # a second error must not hide the first
            partial.unlink(missing_ok=True)


@contextmanager
def made_folder(path: str | PathLike[str]) -> Iterator[Path]:
    """Make a folder and its parents; after an error, remove those that are new and empty.

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
            with suppress(OSError):  # a folder with other files stays
                one.rmdir()
        raise


@contextmanager
def name_full_disk(path: str | PathLike[str]) -> Iterator[None]:
    """Add `path` to the error of a full disk, which does not name the file.

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


def _partial_name(name: str) -> str:
    # Most file systems allow 255 bytes for a name.
    short = name.encode(errors="surrogateescape")[:120].decode(errors="ignore").lstrip(".")
    return f".{short or 'file'}.{secrets.token_hex(8)}{_SUFFIX}"


def sync_folder(folder: Path) -> None:
    """Flush the list of a folder's files to the disk, if the system supports this."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

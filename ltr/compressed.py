"""Read and write text files, plain or compressed; the first bytes of a file tell its format."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from ltr.files import atomic_write

SUFFIXES = (".gz", ".zst")

_FORMATS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class TextFile(io.BufferedReader):
    """A plain or compressed text file, opened for reading its text as bytes."""

    on_disk: IO[bytes]
    form: str | None
    """"gzip", "zstd", or None for plain text."""

    def position(self) -> int:
        """Return the number of bytes that were read from the file on disk, before decompression."""
        return self.on_disk.tell()


@contextmanager
def open_text(path: Path) -> Iterator[TextFile]:
    """Open a text file, plain or in gzip or zstd, for reading its text as bytes.

    Args:
        path: the path of the file; its suffix does not matter.

    Raises:
        ValueError: a compressed file is damaged. Some damage is found only while the text is read.
        OSError: the file cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_bytes(gzip.compress(b"2 qid:7 1:0.5"))
    ...     with open_text(file) as text:
    ...         text.read()
    b'2 qid:7 1:0.5'
    """
    with path.open("rb") as raw:
        head = raw.read(4)
        raw.seek(0)
        form = next((name for magic, name in _FORMATS.items() if head.startswith(magic)), None)
        try:
            with TextFile(cast(Any, _decompressed(raw, form)), 1 << 16) as file:
                file.on_disk, file.form = raw, form
                yield file
        except (EOFError, zlib.error, OSError) as error:
            # An error with an errno comes from the operating system, and a file without compression
            # has no format that could be damaged.
            if form is None or getattr(error, "errno", None) is not None:
                raise
            raise ValueError(f"{path}: the {form} file is damaged, got {error}") from None


def write_text(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines to a file that appears under its name only when it is complete.

    Args:
        path: the file; compressed by gzip if its name ends in `.gz`. A missing folder is made.
        lines: the lines, with their ends.

    Raises:
        OSError: the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "lists.jsonl.gz")
    ...     write_text(file, [b"one line"])
    ...     gzip.decompress(file.read_bytes())
    b'one line'
    """
    with (
        atomic_write(path) as partial,
        gzip.open(partial, "wb") if path.suffix == ".gz" else partial.open("wb") as file,
    ):
        file.writelines(lines)


def _decompressed(raw: IO[bytes], form: str | None) -> Any:
    if form == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if form == "zstd":
        import pyarrow

        return pyarrow.CompressedInputStream(raw, "zstd")
    return raw

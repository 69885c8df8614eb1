"""Read text files, plain or compressed; the first bytes of a file tell its format."""

import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

SUFFIXES = (".gz", ".zst")

MAX_LINE = 1 << 26
"""The largest number of bytes in a line of text."""

_FORMATS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_NOT_TEXT = {
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\x00": "an xz file",
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
}
_READABLE = "plain text, or text in gzip or zstd"


class TextFile(io.BufferedReader):
    """A plain or compressed text file, opened for reading its text as bytes."""

    on_disk: IO[bytes]
    form: str | None
    """"gzip", "zstd", or None for plain text."""

    def position(self) -> int:
        """Return the number of bytes that were read from the file on disk, before decompression."""
        return self.on_disk.tell()

    def lines(self, max_line: int = MAX_LINE) -> Iterator[bytes]:
        """Yield the lines with their line feeds.

        Raises:
            ValueError: a line has more than `max_line` bytes before its line feed.
        """
        for number in itertools.count(1):
            line = self.readline(max_line + 1)
            if len(line) > max_line and not line.endswith(b"\n"):
                raise ValueError(
                    f"{self.on_disk.name}, line {number}: a line must have at most {max_line:,} "
                    "bytes, got more"
                )
            if not line:
                return
            yield line


@contextmanager
def open_text(path: Path) -> Iterator[TextFile]:
    """Open a text file, plain or in gzip or zstd, for reading its text as bytes.

    Args:
        path: the path of the file; its suffix does not matter.

    Raises:
        ValueError: the file is an archive or has another known format that is not text (the message
            names the format), or it is damaged. Some damage is found only while the text is read.
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
        head = raw.read(16)
        raw.seek(0)
        for magic, kind in _NOT_TEXT.items():
            if head.startswith(magic):
                raise ValueError(f"{path}: the file must be {_READABLE}, got {kind}")
        form = next((name for magic, name in _FORMATS.items() if head.startswith(magic)), None)
        try:
            with TextFile(cast(Any, _decompressed(raw, form)), 1 << 16) as file:
                file.on_disk, file.form = raw, form
                if file.peek(512)[257:262] == b"ustar":
                    raise ValueError(f"{path}: the file must be {_READABLE}, got a tar archive")
                yield file
        except (EOFError, zlib.error, OSError) as error:
            # An error with an errno comes from the operating system, and a file without compression
            # has no format that could be damaged.
            if form is None or getattr(error, "errno", None) is not None:
                raise
            raise ValueError(f"{path}: the {form} file is damaged, got {error}") from None


def _decompressed(raw: IO[bytes], form: str | None) -> Any:
    if form == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if form == "zstd":
        import pyarrow

        return pyarrow.CompressedInputStream(raw, "zstd")
    return raw

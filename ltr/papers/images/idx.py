"""Files of the idx format: a magic number, the shape, then the bytes of an array."""

import gzip
import zlib
from pathlib import Path

import numpy as np

_UINT8 = 0x08
_GZIP = b"\x1f\x8b"


def find_idx(folder: Path, name: str, dims: int) -> Path:
    """Return the file `name-idx{dims}-ubyte` or `name.idx{dims}-ubyte` of a folder, plain or `.gz`.

    Raises:
        ValueError: there is no such file.
    """
    for joint in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{name}{joint}idx{dims}-ubyte{suffix}"
            if path.is_file():
                return path
    raise ValueError(f"root must hold {name}-idx{dims}-ubyte or the same with .gz, got {folder}")


def read_idx(path: Path, dims: int) -> np.ndarray:
    """Return the uint8 array with `dims` axes in an idx file, which may be compressed by gzip.

    Raises:
        ValueError: the file is damaged, holds other types or axes, or is too short or too long.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz" or data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error})") from error
    start = 4 + 4 * dims
    if data[:4] != bytes([0, 0, _UINT8, dims]) or len(data) < start:
        raise ValueError(
            f"{path}: not an idx file of bytes with {dims} axes (starts with {data[:4].hex()!r})"
        )
    shape = np.frombuffer(data, ">u4", count=dims, offset=4).tolist()
    size = int(np.prod(shape, dtype=object))
    if len(data) - start != size:
        raise ValueError(
            f"{path}: {size} bytes of shape {tuple(shape)} expected, got {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)

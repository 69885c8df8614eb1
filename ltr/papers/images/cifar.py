"""Read CIFAR's batches: pickles of Python 2 in a folder or a .tar.gz, safely unpickled."""

import codecs
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_ARRAY = np.empty(0).__reduce__()[0]  # the function that rebuilds an array; its module varies
_CORES = ("numpy.core.multiarray", "numpy._core.multiarray")
# a damaged pickle may raise any of these
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ImportError,
    OverflowError,
    MemoryError,
)


@dataclass(frozen=True)
class Batch:
    """One file: pixels (N, 3, 32, 32) uint8, labels (N,) int64, and its name for messages."""

    pixels: np.ndarray
    labels: np.ndarray
    file: str


def read_cifar(
    root: Path, folder: str, archive: str, names: list[str], label_key: str
) -> dict[str, Batch]:
    """Return the batches called `names`, from `root`, `root`/`folder` or the archive.

    Raises:
        ValueError: there is no such folder or archive, or a batch is missing, damaged or of
            another kind.
    """
    if root.is_file():
        found = _from_archive(root, folder, names)
    elif not root.is_dir():
        raise ValueError(f"root must be a folder or a .tar.gz, got {root}")
    elif (root / folder).is_dir():
        found = _from_folder(root / folder, names)
    elif (root / archive).is_file():
        found = _from_archive(root / archive, folder, names)
    elif (root / names[0]).exists():
        found = _from_folder(root, names)
    else:
        raise ValueError(f"root must hold {folder} or {archive}, got {root}")
    return {name: _batch(data, label_key, file) for name, file, data in found}


def _from_folder(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str, bytes]]:
    for name in names:
        path = folder / name
        if not path.is_file():
            raise ValueError(f"root must hold {name}, got {folder}")
        yield name, str(path), path.read_bytes()


def _from_archive(
    path: Path, folder: str, names: Iterable[str]
) -> Iterator[tuple[str, str, bytes]]:
    missing = set(names)
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:  # in the archive's order, since reading backwards is slow
                name = member.name.removeprefix("./").removeprefix(f"{folder}/")
                file = archive.extractfile(member) if name in missing else None
                if file is not None:
                    missing.remove(name)
                    yield name, f"{path}:{member.name}", file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        cause = " ".join(str(error).split())
        raise ValueError(f"{path}: not a whole .tar.gz ({cause})") from error
    if missing:
        raise ValueError(f"{path}: no {', '.join(sorted(missing))} in {folder}")


def _batch(data: bytes, label_key: str, file: str) -> Batch:
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except _DAMAGE as error:
        raise ValueError(f"{file}: not a batch of images ({error or type(error).__name__})") from (
            error
        )
    if not isinstance(batch, dict) or not {"data", label_key} <= batch.keys():
        raise ValueError(f"{file}: a batch must have data and {label_key}")
    pixels, labels = batch["data"], batch[label_key]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise ValueError(f"{file}: data must be uint8 of shape (N, 3072)")
    if pixels.shape[1] != 3 * 32 * 32:
        raise ValueError(f"{file}: data must be uint8 of shape (N, 3072), got {pixels.shape}")
    if not isinstance(labels, list) or not all(
        type(label) is int and abs(label) < 2**31 for label in labels
    ):
        raise ValueError(f"{file}: {label_key} must be a list of integers")
    return Batch(pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64), file)


class _Unpickler(pickle.Unpickler):
    """Unpickler that allows only the functions and classes that rebuild an array of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _CORES and name == "_reconstruct":
            return _ARRAY
        if module == "numpy" and name == "ndarray":
            return np.ndarray
        if module == "numpy" and name == "dtype":
            return _number_type
        if module == "_codecs" and name == "encode":
            return _encode
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _number_type(name: Any, *options: Any) -> Any:
    kind = np.dtype(name, *options)
    if kind.kind not in "iu":
        raise pickle.UnpicklingError(f"arrays of {kind} are not allowed")
    return kind


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":  # how Python 3 writes bytes in the old protocols
        raise pickle.UnpicklingError(f"encoding {encoding} is not allowed")
    return codecs.encode(text, encoding)

"""Read a checkpoint file, which may be damaged or malicious."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import torch

from ltr.files import check_archive
from ltr.names import one_line


def read_checkpoint(path: str | Path | IO[bytes], map_location: Any = "cpu") -> dict[str, Any]:
    """Return the content of a checkpoint: tensors and plain values.

    The file is read twice, first to compare the checksums of its parts.

    Args:
        path: the file.
        map_location: as for `torch.load`.

    Raises:
        ValueError: the file is damaged, was not written by Lightning 2, or holds more than tensors
            and plain values.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") if isinstance(path, str | Path) else nullcontext(path) as file:
        try:
            check_archive(file)
            file.seek(0)
            content = torch.load(file, map_location=map_location, weights_only=True)
        except Exception as error:  # of any kind, if the file was made to do harm
            cause = one_line(error).partition(". ")[0] or "it is empty"
            raise ValueError(
                f"{path} is not a checkpoint, is damaged, or holds more than tensors and plain "
                f"values: {cause}"
            ) from error
    if not _is_checkpoint(content):
        raise ValueError(f"{path} is not a checkpoint of ltr")
    return content


def _is_checkpoint(content: Any) -> bool:
    """Return whether Lightning would read the content without changes for older versions."""
    if not isinstance(content, dict) or not _has_names(content.get("state_dict")):
        return False
    version, states = content.get("pytorch-lightning_version"), content.get("callbacks")
    if states is None:
        states = {}
    if not re.fullmatch(r"([2-9]|\d{2,})\.\d+(\.\w+)*", str(version)):
        return False
    return _has_names(states) and all(isinstance(state, Mapping) for state in states.values())


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


@contextmanager
def errors_name(path: Any) -> Iterator[None]:
    """Turn an error of any kind into a `ValueError` that names the checkpoint.

    The content may have any types, so the code that uses it may fail in any way.

    >>> with errors_name("best.ckpt"):
    ...     {}["state_dict"]
    Traceback (most recent call last):
    ValueError: best.ckpt: KeyError: 'state_dict'
    """
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(text if str(path) in text else f"{path}: {one_line(text)}") from error

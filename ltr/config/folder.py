"""A model in a folder: `config.json` describes its parts, `model.safetensors` has their weights.

`config.json` also holds the SHA-256 digest of each file that was written with it, and a digest of
its own content, which thus covers the whole folder. `config.json` decides which model a folder
holds. A save writes the new files under hidden names, then replaces `config.json` in one step, and
then renames the files. So a reader always finds one complete model, even if the writer is killed:
the old model until `config.json` is replaced, then the new one.
"""

import json
import os
import re
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import nn

import ltr
from ltr.config.reading import from_config
from ltr.config.writing import to_config
from ltr.files import made_folder, name_full_disk, sync_folder
from ltr.names import one_line

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_DIGESTS = "sha256"
_NEW = ".ltr-new"

_Part = TypeVar("_Part", bound=nn.Module)


@dataclass(frozen=True)
class Saved:
    """What is written into a folder from which a model can be loaded.

    Attributes:
        parts: the modules whose weights are saved, by name.
        config: the content of `config.json`.
        files: the content of further files, by name.
    """

    parts: Mapping[str, Any]
    config: Mapping[str, Any]
    files: Mapping[str, bytes]


def configs(values: Mapping[str, Any], unsaved: dict[str, str]) -> dict[str, Any]:
    """Return the configurations of several objects by name; None for an object that has none.

    Args:
        values: the objects.
        unsaved: a dict to fill with the reason for each object that has no configuration. A warning
            gives the reason too.

    >>> unsaved = {}
    >>> with warnings.catch_warnings(action="ignore"):
    ...     configs({"sizes": (1, 2), "gain": lambda x: x}, unsaved), [*unsaved]
    ({'sizes': [1, 2], 'gain': None}, ['gain'])
    """
    found = {}
    for name, value in values.items():
        try:
            found[name] = to_config(value)
        except ValueError as error:
            found[name], unsaved[name] = None, str(error)
            warnings.warn(
                f"{name} was not saved; give it again to load the model: {error}",
                stacklevel=5,
            )
    return found


def write_folder(
    folder: str | PathLike[str],
    parts: Mapping[str, nn.Module | None],
    content: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model into a folder, replacing an older model.

    Args:
        folder: the folder, made if it is missing. Other files in it stay.
        parts: the modules by name; None for a part that the model does not have.
        content: the content of `config.json`, as plain values.
        files: the content of further files of the model, by name.

    Raises:
        ValueError: a weight is not finite.
        OSError: a file cannot be written, as on a full disk. The folder is then unchanged.

    >>> from tempfile import mkdtemp
    >>> folder, layer = mkdtemp(), nn.Linear(2, 1)
    >>> write_folder(folder, {"scorer": layer}, {"scorer": to_config(layer)})
    >>> config, files = read_folder(folder)
    >>> again = read_part(config["scorer"], "scorer", nn.Linear, [])
    >>> load_weights(folder, files[WEIGHTS], {"scorer": again})
    >>> bool((again.weight == layer.weight).all())
    True
    """
    folder = Path(folder)
    state = {}
    for name, part in parts.items():
        if part is not None:
            check_finite(part, f"{folder / WEIGHTS}: {name}.")
            for key, x in part.state_dict().items():
                # Copy it, because safetensors refuses tensors that share memory (tied weights).
                x = x.detach().cpu().clone(memory_format=torch.contiguous_format)
                state[f"{name}.{key}"] = x
    contents = {WEIGHTS: safetensors.torch.save(state), **(files or {})}
    digests = {name: sha256(data).hexdigest() for name, data in contents.items()}
    config = with_digest({"ltr": ltr.__version__, _DIGESTS: digests, **content})
    contents[CONFIG] = f"{json.dumps(config, indent=1, allow_nan=False)}\n".encode()
    with made_folder(folder), _one_writer(folder):
        _finish(folder)
        try:
            for name, data in contents.items():
                path = folder / name
                with name_full_disk(path), _new(path).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(_new(folder / CONFIG), folder / CONFIG)
        finally:
            _finish(folder)


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a `config.json` with its own digest among the digests of the files.

    The digest is computed from the content as JSON, without the digest itself.

    >>> [*with_digest({"sha256": {}, "schema": None})["sha256"]]
    ['config.json']
    """
    digests = {name: digest for name, digest in content[_DIGESTS].items() if name != CONFIG}
    text = json.dumps({**content, _DIGESTS: digests})
    return {**content, _DIGESTS: {**digests, CONFIG: sha256(text.encode()).hexdigest()}}


def read_folder(folder: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the content of a folder's `config.json`, and of the files that a model needs.

    The files are `model.safetensors` and those that the configuration lists under `files`.

    Raises:
        ValueError: there is no model, a file is damaged, or a digest is missing.
        OSError: a file cannot be read.
    """
    config = Path(folder) / CONFIG
    while True:
        content = _read_config(config)
        names = content.get("files", [])
        if not isinstance(names, list) or not all(map(_is_name, names)):
            raise ValueError(f"{config} must name files of its folder, got {names!r}")
        try:
            return content, {name: _read_file(config, name, content) for name in (WEIGHTS, *names)}
        except ValueError:
            # If `config.json` has changed, another process has saved a model: read that model.
            if _read_config(config) == content:
                raise


@contextmanager
def describing(folder: str | PathLike[str]) -> Iterator[None]:
    """Turn an error of a malformed configuration into a ValueError that names the file.

    A ValueError or an OSError passes through unchanged.

    >>> with describing("model"):
    ...     {}["scorer"]
    Traceback (most recent call last):
    ValueError: model/config.json does not describe a model: KeyError: 'scorer'
    """
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:  # a class may raise anything for wrong arguments
        path, why = Path(folder) / CONFIG, one_line(f"{type(error).__name__}: {error}")
        raise ValueError(f"{path} does not describe a model: {why}") from error


def read_part(config: Any, name: str, kind: type[_Part], trust: Sequence[str]) -> _Part:
    """Make a part of a model from its configuration, without weights.

    Raises:
        ValueError: the configuration makes an object of another class, or names an untrusted class.
    """
    found = from_config(config, kind, trust)
    if not isinstance(found, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {found!r}")
    return found


def load_weights(
    folder: str | PathLike[str], weights: bytes, parts: Mapping[str, nn.Module]
) -> None:
    """Load the weights into parts of a model, and put the parts in evaluation mode.

    Args:
        folder: the folder, for error messages.
        weights: the content of `model.safetensors`.
        parts: the modules by name.

    Raises:
        ValueError: the weights cannot be read, do not fit, or are not finite.
    """
    path = Path(folder) / WEIGHTS
    try:
        state = safetensors.torch.load(weights)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name, part in parts.items():
        own = {key[len(name) + 1 :]: x for key, x in state.items() if key.startswith(f"{name}.")}
        try:
            part.load_state_dict(own)
        except RuntimeError as error:
            raise ValueError(
                f"{folder}: the weights do not fit the configuration: {error}"
            ) from None
        check_finite(part, f"{path}: {name}.")
        part.eval()


def check_finite(module: nn.Module, name: str = "") -> None:
    """Raise a ValueError for a parameter that is not finite, or a buffer with NaN.

    A buffer may be infinite: a mask may hold -inf.

    Args:
        module: a module that was loaded, or is to be saved.
        name: the text before the name of a weight in the message.

    >>> layer = nn.Linear(2, 1)
    >>> layer.bias.data.fill_(float("nan"))
    tensor([nan])
    >>> check_finite(layer, "scorer.")
    Traceback (most recent call last):
    ValueError: scorer.bias must be finite, got nan
    """
    learned = {key for key, _ in module.named_parameters()}
    for key, x in module.state_dict().items():
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            continue
        bad = ~x.isfinite() if key in learned else x.isnan()
        if bad.any():
            raise ValueError(f"{name}{key} must be finite, got {x[bad][0].item()}")


def _read_config(path: Path) -> dict[str, Any]:
    """Return the content of `config.json`."""
    _check_regular(path)
    try:
        content = json.loads(path.read_bytes(), parse_constant=_refuse)
        digests = content.get(_DIGESTS) if isinstance(content, dict) else None
        whole = isinstance(digests, dict) and content == with_digest(content)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"path must be a folder that `save` wrote, got one without {path}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not the configuration of a model")
    _check_digest(path, digests if isinstance(digests, dict) else {}, CONFIG)
    if not whole:
        raise ValueError(f"{path} is damaged: its digest is not the one that it holds")
    return content


def _read_file(config: Path, name: str, content: Mapping[str, Any]) -> bytes:
    """Return the content of a file of the model that a configuration describes."""
    _check_digest(config, content[_DIGESTS], name)
    path, why = config.with_name(name), "there is no such file"
    # The hidden name comes first, because the file may not be renamed yet.
    for one in (_new(path), path):
        with suppress(FileNotFoundError):
            _check_regular(one)
            data = one.read_bytes()
            if sha256(data).hexdigest() == content[_DIGESTS][name]:
                return data
            why = f"its digest is not the one in {CONFIG}"
    raise ValueError(f"{path} is damaged or missing: {why}")


def _check_digest(config: Path, digests: Mapping[str, str], name: str) -> None:
    if name not in digests:
        raise ValueError(f"{config} has no digest of {name}: save the model again")


def _check_regular(path: Path) -> None:
    """Raise a ValueError for a device or a pipe, which may have no end, and for a folder."""
    with suppress(OSError):  # if the file is missing, opening it gives the error
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(
                f"path must be a folder of regular files, but {path} is a folder, a device or a "
                "pipe"
            )


def _refuse(constant: str) -> float:
    raise ValueError(f"numbers must be finite, got {constant}")


def _is_name(value: Any) -> bool:
    """Return whether a value is a plain file name, not a path to another folder."""
    return isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value) is not None


def _new(path: Path) -> Path:
    """Return the hidden name that a file has until its model is complete."""
    return path.with_name(f".{path.name}{_NEW}")


def _finish(folder: Path) -> None:
    """Give the files of the folder's model their final names, and remove other hidden files."""
    digests: dict[str, str] = {}
    with suppress(ValueError):
        digests = _read_config(folder / CONFIG)[_DIGESTS]
    for path in sorted(folder.glob(f".*{_NEW}")):
        name = path.name[1 : -len(_NEW)]
        if digests.get(name) == sha256(path.read_bytes()).hexdigest():
            os.replace(path, folder / name)
        else:
            path.unlink()
    sync_folder(folder)


@contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder, if its file system has locks."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield

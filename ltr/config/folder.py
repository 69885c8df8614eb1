"""A model in a folder: `config.json` says how its parts are made, `model.safetensors` has them."""

import json
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

import ltr
from ltr.config.reading import from_config
from ltr.config.writing import to_config
from ltr.files import atomic_write

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_Part = TypeVar("_Part", bound=nn.Module)


def configs(values: Mapping[str, Any], unsaved: dict[str, str]) -> dict[str, Any]:
    """Return the configurations of several objects by name; None for one that has none.

    Args:
        values: the objects.
        unsaved: gets the reason for each object that has no configuration; a warning says it too.

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
                f"{name} is not saved, and must be given again to load the model: {error}",
                stacklevel=5,
            )
    return found


def write_folder(
    folder: str | PathLike[str], parts: Mapping[str, nn.Module | None], content: Mapping[str, Any]
) -> None:
    """Write a model into a folder, which is made.

    Args:
        folder: the folder; files of an earlier model are replaced.
        parts: the modules by name; None for one that the model does not have.
        content: of `config.json`, as plain values.

    Raises:
        OSError: the folder cannot be written.

    >>> from tempfile import mkdtemp
    >>> folder, layer = mkdtemp(), nn.Linear(2, 1)
    >>> write_folder(folder, {"scorer": layer}, {"scorer": to_config(layer)})
    >>> again = read_part(read_config(folder)["scorer"], "scorer", nn.Linear, [])
    >>> load_weights(folder, {"scorer": again})
    >>> bool((again.weight == layer.weight).all())
    True
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        f"{name}.{key}": x.detach().cpu().contiguous()
        for name, part in parts.items()
        if part is not None
        for key, x in part.state_dict().items()
    }
    text = json.dumps({"ltr": ltr.__version__, **content}, indent=1, allow_nan=False)
    with atomic_write(folder / WEIGHTS) as partial:
        save_file(state, partial)
    with atomic_write(folder / CONFIG) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")


def read_config(folder: str | PathLike[str]) -> dict[str, Any]:
    """Return the content of a folder's `config.json`.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    path = Path(folder) / CONFIG
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"path must be a folder that `save` wrote, got none with {path}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not the configuration of a model")
    return content


def read_part(config: Any, name: str, kind: type[_Part], trust: Sequence[str]) -> _Part:
    """Return a part of a model, made by its configuration, without weights.

    Raises:
        ValueError: the configuration is of another kind, or names a class that is not trusted.
    """
    found = from_config(config, kind, trust)
    if not isinstance(found, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {found!r}")
    return found


def load_weights(folder: str | PathLike[str], parts: Mapping[str, nn.Module]) -> None:
    """Load the weights of parts that are made already, and put the parts in evaluation mode.

    Raises:
        ValueError: the file is damaged, or the weights do not fit.
    """
    path = Path(folder) / WEIGHTS
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name, part in parts.items():
        own = {key[len(name) + 1 :]: x for key, x in state.items() if key.startswith(f"{name}.")}
        try:
            part.load_state_dict(own)
        except RuntimeError as error:
            raise ValueError(
                f"{folder}: the weights do not fit the configuration: {error}"
            ) from None
        part.eval()

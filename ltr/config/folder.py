"""A model in a folder: `config.json` describes it, and names the files that hold its weights.

Each of these files has the digest of its content in its name: `model-1f0c8d2e6b3a5974.safetensors`.
A save writes the new files, then replaces `config.json` in one step, and then removes the files of
the model before. So even if the writer is killed, `config.json` names the files of one model, the
old one or the new one. `config.json` also holds a digest of its own content, names included, which
thus covers the whole folder.
"""

import json
import re
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from ltr.files import write_files
from ltr.names import one_line

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_DIGEST = "sha256"
_OWN = re.compile(r"(model|ranker-\d+)-([0-9a-f]{16})(\.\w+)")
"""The name of a file of a model: its name for programs, with the digest before the suffix."""

_Part = TypeVar("_Part", bound=nn.Module)


@dataclass(frozen=True)
class Saved:
    """What is written into a folder from which a model can be loaded.

    Attributes:
        parts: the modules whose weights are saved, by name; None for a part that the model does
            not have.
        config: the content of `config.json`, as plain values, with the model's `kind`.
        files: the content of further files, such as `ranker-1.txt`, by name; or of all files, that
            of the weights too, for a model that was saved before.
    """

    parts: Mapping[str, nn.Module | None]
    config: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)


def configs(values: Mapping[str, Any], unsaved: dict[str, str]) -> dict[str, Any]:
    """Return the configurations of several objects by name; None for an object that has none.

    Args:
        values: the objects.
        unsaved: a dict to fill with the reason for each object that has no configuration.

    >>> unsaved = {}
    >>> configs({"sizes": (1, 2), "gain": lambda x: x}, unsaved), [*unsaved]
    ({'sizes': [1, 2], 'gain': None}, ['gain'])
    """
    configurations = {}
    for name, value in values.items():
        try:
            configurations[name] = to_config(value)
        except ValueError as error:
            configurations[name], unsaved[name] = None, str(error)
    return configurations


def write_folder(
    folder: str | PathLike[str], saved: Saved, beside: Mapping[str, bytes] | None = None
) -> None:
    """Write a model into a folder, replacing an older model.

    A warning names each object that has no configuration; see `configs`.

    Args:
        folder: the folder, made if it is missing. Other files in it stay.
        saved: the model.
        beside: the content of files that other programs read, which keep their names. Each of them
            is replaced in one step, before `config.json`.

    Raises:
        ValueError: a weight is not finite.
        OSError: a file cannot be written, as on a full disk. The folder is then unchanged.

    >>> from tempfile import mkdtemp
    >>> folder, layer = mkdtemp(), nn.Linear(2, 1)
    >>> about = {"kind": "Linear", "scorer": to_config(layer)}
    >>> write_folder(folder, Saved({"scorer": layer}, about))
    >>> config, files = read_folder(folder)
    >>> again = read_part(config["scorer"], "scorer", nn.Linear, [])
    >>> load_weights(folder, files[WEIGHTS], {"scorer": again})
    >>> bool((again.weight == layer.weight).all())
    True
    """
    folder = Path(folder)
    for name, reason in saved.config.get("unsaved", {}).items():
        text = f"{name} was not saved; give it again to load the model: {reason}"
        warnings.warn(text, stacklevel=3)
    state = {}
    for name, part in saved.parts.items():
        if part is not None:
            check_finite(part, f"{folder / WEIGHTS}: {name}.")
            for key, x in part.state_dict().items():
                # Copy it, because safetensors refuses tensors that share memory (tied weights).
                x = x.detach().cpu().clone(memory_format=torch.contiguous_format)
                state[f"{name}.{key}"] = x
    own = {WEIGHTS: safetensors.torch.save(state), **saved.files}
    own = {_with_digest_of(data, name): data for name, data in own.items()}
    config = with_digest({"ltr": ltr.__version__, **saved.config, "files": [*own]})
    text = f"{json.dumps(config, indent=1, allow_nan=False)}\n".encode()
    contents = {CONFIG: text, **own, **(beside or {})}  # `config.json` gets its name last
    write_files({folder / name: data for name, data in contents.items()})
    for path in model_files(folder):
        if path.name not in own and path.name != CONFIG:
            path.unlink(missing_ok=True)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a folder that a save writes or removes, `config.json` among them."""
    own = [folder / CONFIG, *folder.glob("*-*")]
    return [path for path in own if path.name == CONFIG or _OWN.fullmatch(path.name)]


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a `config.json` with its digest, which is computed without itself.

    >>> [*with_digest({"kind": "Blend"})]
    ['kind', 'sha256']
    """
    plain = {name: value for name, value in content.items() if name != _DIGEST}
    return {**plain, _DIGEST: sha256(json.dumps(plain).encode()).hexdigest()}


def read_folder(
    folder: str | PathLike[str], *kinds: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the content of a folder's `config.json`, and of the files of its model by name.

    Args:
        folder: the folder.
        kinds: the kinds of models that the caller can load. Default: all.

    Raises:
        ValueError: there is no model, it is of another kind, or a file is damaged or missing.
        OSError: a file cannot be read.
    """
    config = Path(folder) / CONFIG
    content = _read_config(config)
    if "kind" not in content:
        content = _of_0_2(config, content)
    elif content != with_digest(content):
        raise ValueError(f"{config} is damaged: its digest is not the one that it holds")
    if kinds and content["kind"] not in kinds:
        got = content["kind"]
        raise ValueError(f"{config} is not the configuration of a {kinds[0]}, but of a {got}")
    if isinstance(digests := content.get(_DIGEST), dict):  # 0.2 saved it
        return content, {WEIGHTS: _read_file(config.with_name(WEIGHTS), str(digests[WEIGHTS]))}
    files, names = {}, content.get("files")
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or (match := _OWN.fullmatch(name)) is None:
            raise ValueError(f"{config} must name files of its folder, got {name!r}")
        stem, digest, suffix = match.groups()
        files[f"{stem}{suffix}"] = _read_file(config.with_name(name), digest)
    if WEIGHTS not in files:
        raise ValueError(f"{config} must name a file of weights, got {names!r}")
    return content, files


def saved_in(folder: str | PathLike[str]) -> Saved:
    """Return the model of a folder with all that was saved with it, to write it beside other files.

    Raises:
        ValueError: see `read_folder`.
        OSError: a file cannot be read.
    """
    content, files = read_folder(folder)
    return Saved({}, content, files)


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
    part = from_config(config, kind, trust)
    if not isinstance(part, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {part!r}")
    return part


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
    except (FileNotFoundError, NotADirectoryError):
        if not path.parent.exists():
            raise ValueError(
                f"path must be a folder that `save` wrote, got {path.parent}, which does not exist"
            ) from None
        raise ValueError(
            f"path must be a folder that `save` wrote, got one without {path}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not the configuration of a model")
    return content


def _of_0_2(config: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a network that ltr 0.2 saved in the form of this version."""
    digests = content.get(_DIGEST)
    if not isinstance(digests, dict) or "rankers" in content or WEIGHTS not in digests:
        raise ValueError(f"{config} is not of this version of ltr: fit the model and save it again")
    if "config" not in content:
        return {**content, "kind": "RankingModel"}
    with describing(config.parent):
        return {**content, "kind": "NeuralRanker", "parameters": content["config"]["init_args"]}


def _read_file(path: Path, digest: str) -> bytes:
    """Return the content of a file, after comparing it with the first digits of its digest."""
    _check_regular(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: {CONFIG} names it") from None
    if not sha256(data).hexdigest().startswith(digest):
        raise ValueError(f"{path} is damaged: its digest is not {digest}")
    return data


def _with_digest_of(data: bytes, name: str) -> str:
    """Return the name of a file with the given content, which contains its digest."""
    path = Path(name)
    return f"{path.stem}-{sha256(data).hexdigest()[:16]}{path.suffix}"


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

"""Save an estimator as a configuration and tensors; load it without running code of the files."""

import json
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import ltr
from ltr._files import atomic_write
from ltr.config import check_trust, from_config, import_path, read_arguments, to_config
from ltr.datasets import FeatureTransform, Schema
from ltr.estimators._parameters import new_scorer, new_transform
from ltr.models import Ensemble

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_PARTS = {"scorer": Ensemble, "transform": FeatureTransform}
_PLAIN = ("columns", "n_iter", "best_iterations", "history", "validation_queries")


def save(estimator: Any, path: str | PathLike[str]) -> None:
    """Write the files of `NeuralRanker.save`."""
    arguments, unsaved = {}, {}
    for name, value in estimator.get_params(deep=False).items():
        try:
            arguments[name] = to_config(value)
        except ValueError as error:
            unsaved[name] = str(error)
            warnings.warn(
                f"{name} is not saved, and must be given again to load the model: {error}",
                stacklevel=3,
            )
    parts: dict[str, nn.Module] = {name: getattr(estimator, f"{name}_") for name in _PARTS}
    content = {
        "ltr": ltr.__version__,
        "config": {"class_path": import_path(type(estimator)), "init_args": arguments},
        "unsaved": unsaved,
        "num_features": parts["scorer"].num_features,
        # as they are: a default that changes in a later version does not change them
        **{name: None if name in unsaved else to_config(one) for name, one in parts.items()},
        "schema": estimator.schema_.to_dict(),
        "named": hasattr(estimator, "feature_names_in_"),
        **{name: to_config(getattr(estimator, f"{name}_")) for name in _PLAIN},
    }
    state = {
        f"{part}.{name}": x.contiguous()
        for part, one in parts.items()
        for name, x in one.state_dict().items()
    }
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / _WEIGHTS) as partial:
        save_file(state, partial)
    with atomic_write(folder / _CONFIG) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load(
    cls: type, path: str | PathLike[str], trust: Sequence[str], given: Mapping[str, Any]
) -> Any:
    """Return the estimator of these files; see `NeuralRanker.load`."""
    trusted = check_trust(trust)
    content = _read(Path(path) / _CONFIG)
    for name, reason in content["unsaved"].items():
        if name not in given:
            raise ValueError(f"{name} must be given, as it could not be saved: {reason}")
    saved = content["config"]["init_args"]
    arguments = {name: value for name, value in saved.items() if name not in given}
    new = cls(**{**read_arguments(cls, arguments, trusted), **given})
    parts = {}
    for name, kind in _PARTS.items():
        config = content[name]
        fresh = {"scorer": new_scorer, "transform": new_transform}[name]
        parts[name] = fresh(new) if config is None else from_config(config, kind, trusted)
        if not isinstance(parts[name], kind):
            raise ValueError(f"{name} must be a {kind.__name__}, got {parts[name]!r}")
    parts["scorer"].build(content["num_features"])
    state = _weights(Path(path) / _WEIGHTS)
    for name, part in parts.items():
        own = {key[len(name) + 1 :]: x for key, x in state.items() if key.startswith(f"{name}.")}
        try:
            part.load_state_dict(own)
        except RuntimeError as error:
            raise ValueError(f"{path}: the weights do not fit the configuration: {error}") from None
        setattr(new, f"{name}_", part.eval())
    new.schema_ = Schema.from_dict(content["schema"])
    for name in _PLAIN:
        setattr(new, f"{name}_", from_config(content[name]))
    new.n_features_in_ = len(new.columns_)
    if content["named"]:
        new.feature_names_in_ = np.asarray(new.columns_, dtype=object)
    return new


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a configuration whose keys and types are as `save` writes them."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"path must be a folder that `save` wrote, got none with {path}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    kinds = {"config": dict, "unsaved": dict, "schema": dict, "columns": list, "named": bool}
    kinds |= {"num_features": int}
    good = (
        isinstance(content, dict)
        and {*_PARTS, *_PLAIN} <= {*content}
        and all(isinstance(content.get(key), kind) for key, kind in kinds.items())
        and isinstance(content["config"].get("init_args"), dict)
        and all(isinstance(name, str) for name in content["columns"])
    )
    if not good:
        raise ValueError(f"{path} is not the configuration of a NeuralRanker")
    return content


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None

"""Save an estimator as a configuration and tensors; load it without running code from the files."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.config import (
    check_trust,
    from_config,
    import_path,
    parameters,
    read_arguments,
    to_config,
)
from ltr.config.folder import (
    CONFIG,
    WEIGHTS,
    configs,
    describing,
    load_weights,
    read_folder,
    read_part,
    write_folder,
)
from ltr.datasets import FeatureTransform, Schema
from ltr.estimators.columns import Column, is_column
from ltr.estimators.parameters import check_parameters
from ltr.models import Ensemble, RankingModel

PARTS = {"scorer": Ensemble, "transform": FeatureTransform}
_PLAIN = ("columns", "n_iter", "best_iterations", "history", "validation_queries", "settings")


def save(estimator: Any, path: str | PathLike[str]) -> None:
    """Write the files of `NeuralRanker.save`."""
    parts = {name: getattr(estimator, f"{name}_") for name in PARTS}
    write_folder(path, parts, content(estimator))


def content(estimator: Any) -> dict[str, Any]:
    """Return the content of `config.json`."""
    unsaved: dict[str, str] = {}
    arguments = configs(estimator.get_params(deep=False), unsaved)
    saved = {name: config for name, config in arguments.items() if name not in unsaved}
    # The parts are saved as they are, so that a later version may have other defaults.
    parts = {
        name: None if name in unsaved else to_config(getattr(estimator, f"{name}_"))
        for name in PARTS
    }
    return {
        "config": {"class_path": import_path(type(estimator)), "init_args": saved},
        "unsaved": unsaved,
        "num_features": estimator.scorer_.num_features,
        **parts,
        "schema": estimator.schema_.to_dict(),
        "selected": {name: asdict(column) for name, column in estimator.selected_.items()},
        "named": hasattr(estimator, "feature_names_in_"),
        **{name: to_config(getattr(estimator, f"{name}_")) for name in _PLAIN},
    }


def load(
    cls: type, path: str | PathLike[str], trust: Sequence[str], given: Mapping[str, Any]
) -> Any:
    """Return the estimator of these files; see `NeuralRanker.load`."""
    trusted = check_trust(trust)
    if unknown := sorted({*given} - {*parameters(cls)}):
        raise ValueError(f"{cls.__name__} has no parameter {unknown[0]!r}")
    content, files = read_folder(path)
    with describing(path):
        return make(cls, path, content, files[WEIGHTS], trusted, given)


def make(
    cls: type,
    path: str | PathLike[str],
    content: dict[str, Any],
    weights: bytes,
    trusted: Sequence[str],
    given: Mapping[str, Any],
    prefix: str = "",
) -> Any:
    """Return an estimator.

    Args:
        cls: its class.
        path: the folder, which errors name.
        content: of its configuration; see `content`.
        weights: the content of `model.safetensors`.
        trusted: see `NeuralRanker.load`.
        given: parameters that replace the saved ones.
        prefix: what the names of its weights begin with.

    Raises:
        ValueError: the configuration or the weights are not those of such an estimator.
    """
    _check(path, content)
    for name, reason in content["unsaved"].items():
        if name not in given:
            raise ValueError(f"{name} must be given, as it could not be saved: {reason}")
    saved = content["config"]["init_args"]
    arguments = {name: value for name, value in saved.items() if name not in given}
    new = cls(**{**read_arguments(cls, arguments, trusted), **given})
    check_parameters(new)
    members = content["settings"]["members"]
    parts: dict[str, Any] = {
        name: _given(new, name, members)
        if content[name] is None
        else read_part(content[name], name, kind, trusted)
        for name, kind in PARTS.items()
    }
    parts["scorer"].build(content["num_features"])
    load_weights(path, weights, {f"{prefix}{name}": part for name, part in parts.items()})
    new.model_ = RankingModel(**parts, schema=Schema.from_dict(content["schema"])).eval()
    new.selected_ = {name: Column(**one) for name, one in content["selected"].items()}
    for name in _PLAIN:
        setattr(new, f"{name}_", from_config(content[name]))
    new.n_features_in_ = len(new.columns_)
    if content["named"]:
        new.feature_names_in_ = np.asarray(new.columns_, dtype=object)
    return new


def _given(estimator: Any, name: str, members: int) -> Ensemble | FeatureTransform:
    """Return a parameter that could not be saved, from the value passed to `load`."""
    part = copy.deepcopy(estimator.get_params(deep=False)[name])
    return Ensemble(part, members) if name == "scorer" else part


def _check(folder: str | PathLike[str], content: dict[str, Any]) -> None:
    """Raise a ValueError unless the keys and types are those that `save` writes."""
    kinds = {"config": dict, "unsaved": dict, "schema": dict, "columns": list, "named": bool}
    kinds |= {"num_features": int, "settings": dict, "selected": dict}
    good = (
        {*PARTS, *_PLAIN} <= {*content}
        and all(isinstance(content.get(key), kind) for key, kind in kinds.items())
        and isinstance(content["config"].get("init_args"), dict)
        and all(isinstance(name, str) for name in content["columns"])
        and isinstance(content["settings"].get("members"), int)
        and all(is_column(one) for one in content["selected"].values())
    )
    if not good:
        raise ValueError(f"{Path(folder) / CONFIG} is not the configuration of a NeuralRanker")

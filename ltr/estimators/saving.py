"""Save an estimator as a configuration and tensors; load it without running code from the files."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from ltr.config import check_trust, from_config, parameters, read_arguments, to_config
from ltr.config.folder import CONFIG, WEIGHTS, configs, describing, read_folder
from ltr.config.reading import NotTrusted
from ltr.estimators import tables as tables
from ltr.estimators.columns import Column
from ltr.estimators.parameters import check_parameters
from ltr.models import Ensemble, RankingModel

_PLAIN = ("columns", "n_iter", "best_iterations", "history", "validation_queries", "settings")


def learned(estimator: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return what `fit` has learned, for `config.json`.

    Args:
        estimator: the fitted estimator.
        names: the names of its attributes, without the underscore at their ends.
    """
    named = hasattr(estimator, "feature_names_in_")
    return {"named": named, **{name: to_config(getattr(estimator, f"{name}_")) for name in names}}


def set_learned(estimator: Any, content: Mapping[str, Any], names: Sequence[str]) -> None:
    """Set the attributes that `learned` returned; `columns` is one of them."""
    for name in names:
        setattr(estimator, f"{name}_", from_config(content[name]))
    tables.set_columns(estimator, estimator.columns_, named=content["named"])


def content(estimator: Any) -> dict[str, Any]:
    """Return the content of `config.json`: the model's configuration and the estimator's own."""
    model = estimator.model_.to_dict()
    unsaved = model["unsaved"]
    given = estimator.get_params(deep=False)
    saved = configs({name: x for name, x in given.items() if name not in unsaved}, unsaved)
    arguments = {name: config for name, config in saved.items() if name not in unsaved}
    return {
        **model,
        "kind": "NeuralRanker",
        "parameters": arguments,
        "selected": {name: asdict(column) for name, column in estimator.selected_.items()},
        **learned(estimator, _PLAIN),
    }


def load(
    cls: type, path: str | PathLike[str], trust: Sequence[str], given: Mapping[str, Any]
) -> Any:
    """Return the estimator that is saved in a folder; see `NeuralRanker.load`."""
    trusted = check_trust(trust)
    if unknown := sorted({*given} - {*parameters(cls)}):
        raise ValueError(f"{cls.__name__} has no parameter {unknown[0]!r}")
    content, files = read_folder(path, "NeuralRanker")
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
    """Return an estimator from its saved configuration and weights.

    Args:
        cls: the class of the estimator.
        path: the folder, for errors.
        content: the configuration, made by the function `content`.
        weights: the content of `model.safetensors`.
        trusted: see `NeuralRanker.load`.
        given: parameters that replace the saved ones.
        prefix: the beginning of the names of the estimator's weights.

    Raises:
        ValueError: the configuration or the weights are not those of a `cls`, or a parameter that
            could not be saved is not given.
    """
    if not {"parameters", "selected", "named", *_PLAIN} <= {*content}:
        raise ValueError(f"{Path(path) / CONFIG} is not the configuration of a {cls.__name__}")
    for name, reason in content["unsaved"].items():
        if name not in given:
            raise ValueError(
                f"{name} must be given, as in load(path, {name}=...), as it could not be saved: "
                f"{reason}"
            )
    arguments = dict(given)
    for name, value in content["parameters"].items():
        if name not in given:
            try:
                arguments |= read_arguments(cls, {name: value}, trusted)
            except NotTrusted as error:
                if prefix:  # a blend takes no parameters of its rankers
                    raise
                raise ValueError(
                    f"{error}; or give {name} itself: load(path, {name}=...)"
                ) from None
    new = cls(**arguments)
    check_parameters(new)
    parts = {}
    if content["scorer"] is None:
        members = content["settings"]["members"]
        parts["scorer"] = Ensemble(copy.deepcopy(new.scorer), members)
    if content["transform"] is None:
        parts["transform"] = copy.deepcopy(new.transform)
    new.model_ = RankingModel.from_dict(
        content, weights, folder=path, trusted=trusted, prefix=prefix, given=parts
    )
    new.selected_ = {name: Column(**column) for name, column in content["selected"].items()}
    set_learned(new, content, _PLAIN)
    return new

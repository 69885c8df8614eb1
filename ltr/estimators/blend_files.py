"""Save a `Blend`, each ranker in the format of its library, and load it without pickle."""

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.base import clone
from torch import nn

from ltr.config import check_trust, from_config, to_config
from ltr.config.folder import WEIGHTS, Saved, describing, read_folder
from ltr.datasets import Schema
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.saving import content, learned, make, set_learned
from ltr.models.trees import CONSTRAINTS
from ltr.names import one_line

_PARAMETERS = ("validation", "n_jobs", "verbose")
_PLAIN = ("columns", "relative", "validation_score", "validation_queries")

_SUFFIXES = {
    **dict.fromkeys(("lightgbm.LGBMRanker", "lightgbm.LGBMRegressor", "lightgbm.Booster"), "txt"),
    **dict.fromkeys(("xgboost.XGBRanker", "xgboost.XGBRegressor", "xgboost.Booster"), "ubj"),
    **dict.fromkeys(("catboost.CatBoostRanker", "catboost.CatBoostRegressor"), "cbm"),
}
"""The rankers that can be written, by library and class, each with the suffix of its file."""


def contents(blend: Any, names: Sequence[str]) -> Saved:
    """Return the configuration and the files of a blend; errors call its rankers by `names`."""
    parts: dict[str, nn.Module | None] = {}
    own: dict[str, bytes] = {}
    rankers = []
    of_user = isinstance(blend.rankers, list | tuple)  # otherwise the rankers are the default ones
    originals = blend.rankers if of_user else blend.rankers_
    triples = zip(names, blend.rankers_, originals, strict=True)
    for position, (name, fitted, given) in enumerate(triples):
        if type(fitted) is NeuralRanker:
            entry = _neural_content(name, fitted)
            parts |= {f"{position}.{part}": module for part, module in fitted.model_.parts.items()}
        else:
            entry, suffix, data = _written(name, fitted, given)
            entry["file"] = f"ranker-{position}.{suffix}"
            own[entry["file"]] = data
        rankers.append(entry)
    about = {
        "kind": "Blend",
        "parameters": {name: to_config(getattr(blend, name)) for name in _PARAMETERS},
        "rankers": rankers,
        "scales": blend.scales_.tolist(),
        "weights": blend.weights_.tolist(),
        "schema": blend.schema_.to_dict(),
        **learned(blend, _PLAIN),
    }
    return Saved(parts, about, own)


def load(cls: type, path: str | PathLike[str], trust: Sequence[str]) -> Any:
    """Return the `Blend` that is saved in a folder; see `Blend.load`."""
    trusted = check_trust(trust)
    about, files = read_folder(path, "Blend")
    with describing(path):
        unfitted, fitted = [], []
        for position, entry in enumerate(about["rankers"]):
            if entry["kind"] == "NeuralRanker":
                given = path, entry, files[WEIGHTS], trusted, {}
                ranker = make(NeuralRanker, *given, prefix=f"{position}.")
                new = clone(ranker)
            else:
                file = entry["file"]
                data = files[file]
                try:
                    new, ranker = _read(entry, data)
                except Exception as error:  # the libraries' errors have no common base class
                    why = one_line(str(error))
                    raise ValueError(f"{Path(path) / file} cannot be read: {why}") from error
            unfitted.append(new)
            fitted.append(ranker)
        blend = cls(unfitted, **about["parameters"])
        blend.rankers_ = fitted
        blend.scales_, blend.weights_ = np.array(about["scales"]), np.array(about["weights"])
        blend.schema_ = Schema.from_dict(about["schema"])
        set_learned(blend, about, _PLAIN)
    return blend


def _neural_content(name: str, ranker: NeuralRanker) -> dict[str, Any]:
    saved = content(ranker)
    for part, reason in saved["unsaved"].items():
        raise ValueError(f"rankers must all have a safe format, got {name}: {part}: {reason}")
    return saved


def _written(name: str, fitted: Any, given: Any) -> tuple[dict[str, Any], str, bytes]:
    """Return the entry of a ranker in `config.json`, and its file's suffix and content.

    Args:
        name: the name of the ranker, for errors.
        fitted: the fitted ranker.
        given: the ranker before `fit`; it has the parameters that a `lightgbm.Booster` lacks, and
            constraints that name the user's columns.

    Raises:
        ValueError: no format supports this ranker.
    """
    library = type(fitted).__module__.partition(".")[0]
    suffix = _SUFFIXES.get(f"{library}.{type(fitted).__name__}")
    if suffix is None:
        raise ValueError(
            f"rankers must all have a safe file format, got {name}: it exists for NeuralRanker and "
            "for rankers and regressors of LightGBM, XGBoost and CatBoost"
        )
    source = fitted if hasattr(fitted, "get_params") else given
    params = source.get_params() if hasattr(source, "get_params") else {}  # of no `Booster`
    if hasattr(given, "get_params"):
        # `fit` has changed the names of columns in the fitted ranker to x0, x1 and so on.
        own = given.get_params()
        params |= {name: own[name] for name in CONSTRAINTS if name in own}
    entry = {"kind": f"{library}.{type(source).__name__}", "parameters": _plain(params)}
    return entry, suffix, _content(fitted, suffix)


def _content(ranker: Any, suffix: str) -> bytes:
    """Return the content of the file of a fitted ranker, in the format of its library."""
    if suffix == "txt":
        return getattr(ranker, "booster_", ranker).model_to_string().encode()
    if suffix == "ubj":
        booster = ranker.get_booster() if hasattr(ranker, "get_booster") else ranker
        return bytes(booster.save_raw("ubj"))
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.cbm")
        ranker.save_model(str(path), format="cbm")
        return path.read_bytes()


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a ranker, without those that are None or that JSON cannot hold.

    A warning names each parameter that JSON cannot hold. Only another `fit` needs such a parameter.
    """
    configs = {}
    for name, value in params.items():
        try:
            config = to_config(value)
            from_config(config)
        except ValueError as error:
            warnings.warn(
                f"{name} was not saved; if the loaded ranker is fitted again, it uses the "
                f"default: {error}",
                stacklevel=5,
            )
            continue
        if config is not None:
            configs[name] = config
    return configs


def _read(entry: Mapping[str, Any], data: bytes) -> tuple[Any, Any]:
    """Return the unfitted and the fitted form of a ranker, from the content of its file."""
    kind = entry["kind"]
    if kind not in _SUFFIXES:
        raise ValueError(f"kind must be a ranker of lightgbm, xgboost, catboost, got {kind!r}")
    library, _, name = kind.partition(".")
    module = import_module(library)
    cls = getattr(module, name)
    params = {key: from_config(value) for key, value in entry["parameters"].items()}
    if library == "lightgbm":
        fitted = module.Booster(model_str=data.decode())
    else:
        fitted = cls(**params)
        read = {"blob": data} if library == "catboost" else {"fname": bytearray(data)}
        fitted.load_model(**read)
    # The user trained a `Booster`, so it is not trained again.
    return (fitted if name == "Booster" else cls(**params)), fitted

"""Load the model of a folder that an export or `NeuralRanker.save` wrote."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from torch import nn

from ltr.config import check_trust
from ltr.config.folder import CONFIG, WEIGHTS, describing, load_weights, read_folder, read_part
from ltr.datasets import FeatureTransform, Schema
from ltr.export.program import ExportedRanker
from ltr.models import Scorer


def load_model(
    folder: str | PathLike[str], *, trust: Sequence[str] = (), per_document: bool = False
) -> ExportedRanker:
    """Load the model in a folder that an export wrote. Loading runs no code from the files.

    Args:
        folder: with `config.json` and `model.safetensors`, which `export_model`, `ltr export` and
            `NeuralRanker.save` write.
        trust: packages whose classes the configuration may use, besides `ltr` and `torch.nn`.
        per_document: see `ExportedRanker`.

    Raises:
        ValueError: the folder holds no model, a file is damaged or names a class that is not
            trusted, the weights do not match their digest, a weight is not finite, or a part has no
            configuration.

    >>> from tempfile import mkdtemp
    >>> import torch
    >>> from ltr.export import export_model
    >>> from ltr.models import LinearScorer
    >>> module, folder = ExportedRanker(None, LinearScorer(3), None), mkdtemp()
    >>> _ = export_model(module, folder, to="torch")
    >>> features = torch.randn(2, 5, 3)
    >>> bool((load_model(folder)(features) == module(features)).all())
    True
    """
    trusted = check_trust(trust)
    content, files = read_folder(folder)
    with describing(folder):
        return _make(folder, content, files[WEIGHTS], trusted, per_document)


def _make(
    folder: str | PathLike[str],
    content: dict[str, Any],
    weights: bytes,
    trusted: Sequence[str],
    per_document: bool,
) -> ExportedRanker:
    good = {"unsaved", "num_features", "scorer", "transform", "schema"} <= {*content}
    if not good or not isinstance(content["unsaved"], dict):
        raise ValueError(f"{folder}: {CONFIG} is not the configuration of a model")
    for name in ("scorer", "transform"):
        if reason := content["unsaved"].get(name):
            raise ValueError(
                f"{name} of {folder} cannot be loaded, because it could not be saved: {reason}"
            )
    scorer: Scorer = read_part(content["scorer"], "scorer", Scorer, trusted)
    parts: dict[str, nn.Module] = {"scorer": scorer}
    transform = None
    if content["transform"] is not None:
        transform = read_part(content["transform"], "transform", FeatureTransform, trusted)
        parts["transform"] = transform
    if content["num_features"] is not None:
        scorer.build(content["num_features"])
    load_weights(folder, weights, parts)
    schema = None if content["schema"] is None else Schema.from_dict(content["schema"])
    return ExportedRanker(transform, scorer, schema, per_document)

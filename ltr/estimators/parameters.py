"""The parameters of a `NeuralRanker`: their checks, and the parts that they stand for."""

import copy
import math
import numbers
from typing import Any

import torch

from ltr.datasets import FeatureTransform, PiecewiseLinearBins, TableTransform
from ltr.losses import XENDCG, RankingLoss
from ltr.models import Ensemble, MLPScorer, Scorer
from ltr.shapes import check_number

_EPOCHS, _STEPS = 3, 40  # the default of patience is this many epochs, and steps


def check_parameters(estimator: Any) -> None:
    """Raise `ValueError` if a parameter of a `NeuralRanker` is out of range."""
    from ltr.metrics.named import ranking_measure  # torchmetrics takes a while to import

    kinds = {"scorer": Scorer, "loss": RankingLoss, "transform": FeatureTransform}
    for name, kind in kinds.items():
        value = estimator.get_params(deep=False).get(name)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name} must be a {kind.__name__} or None, got {value!r}")
    for name in ("members", "batch_size", "max_epochs", "patience", "max_levels"):
        value = getattr(estimator, name)
        if name == "patience" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
    ranking_measure(estimator.metric)
    check_number("learning_rate", estimator.learning_rate, minimum=0, strict=True)
    check_number("weight_decay", estimator.weight_decay, minimum=0)
    if not check_number("validation", estimator.validation, minimum=0) < 1:
        raise ValueError(f"validation must be in [0, 1), got {estimator.validation!r}")
    if not isinstance(estimator.verbose, numbers.Integral):
        raise ValueError(f"verbose must be a whole number, got {estimator.verbose!r}")
    known = ("auto", "cpu", "cuda", "mps")
    kind, _, number = str(estimator.device).partition(":")
    if kind not in known or (number and not (kind == "cuda" and number.isdecimal())):
        raise ValueError(f'device must be "auto", "cpu", "cuda" or "mps", got {estimator.device!r}')
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device must be there, got {estimator.device!r} of {torch.cuda.device_count()} CUDA "
            "devices"
        )


def check_callbacks(callbacks: Any) -> None:
    """Raise `ValueError` if the callbacks of a `fit` are not a list of functions."""
    if not isinstance(callbacks, list | tuple) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a list of functions, got {callbacks!r}")


def patience(estimator: Any, lists: int) -> int:
    """Return how many epochs without a rise end the training on this many lists."""
    if estimator.patience is not None:
        return estimator.patience
    return max(_EPOCHS, math.ceil(_STEPS / math.ceil(lists / estimator.batch_size)))


def device(estimator: Any) -> str:
    """Return the name of the device that an estimator computes on."""
    if estimator.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return estimator.device


def new_scorer(estimator: Any) -> Ensemble:
    """Return the ensemble that an estimator trains, without weights."""
    scorer = MLPScorer(hidden=(128, 64)) if estimator.scorer is None else estimator.scorer
    return Ensemble(copy.deepcopy(scorer), estimator.members)


def new_transform(estimator: Any) -> FeatureTransform:
    """Return the transform of an estimator, not fitted."""
    given = estimator.get_params(deep=False).get("transform")
    return TableTransform(PiecewiseLinearBins(8)) if given is None else copy.deepcopy(given)


def new_loss(estimator: Any, of_lists: bool) -> RankingLoss:
    """Return the loss of an estimator; with weights of lists, one with a number for each list."""
    loss = XENDCG(gamma="random") if estimator.loss is None else copy.deepcopy(estimator.loss)
    if of_lists:
        loss.reduction = "none"
    return loss

"""The parameters of a `NeuralRanker`: their checks and their default values."""

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from ltr.datasets import (
    FeatureTransform,
    Join,
    PeriodicEmbedding,
    PiecewiseLinearBins,
    RankPerList,
    Standardize,
    StandardizePerList,
    TableTransform,
)
from ltr.datasets.schema import Schema
from ltr.losses import XENDCG, RankingLoss, SeveralLabels
from ltr.losses.base import Loss, check_one_number
from ltr.metrics.named import ranking_measure
from ltr.models import CrossScorer, MLPScorer, Scorer
from ltr.names import close_matches, nearest
from ltr.shapes import check_fraction, check_number, check_whole
from ltr.training.patience import default_patience

Effort = Literal["fast", "default", "best"]
Schedule = Literal["constant", "cycle"]
Columns = Literal["all", "useful"]
Relative = bool | Literal["auto"]
Kind = Literal["bins", "periodic"]
"""The kinds of networks: by the transform of their numeric columns."""

LARGE = 30_000
"""A table with at least this many training rows is large: see `settings`."""

HIDDEN = (128, 64)
"""The widths of the hidden layers."""

_OF_CYCLE = 1 / 3
"""With a cycle, the default patience is also at least this fraction of `max_epochs`.

While the learning rate of a cycle is high, the metric moves up and down.
"""


@dataclass(frozen=True)
class Choice:
    """The amount of training and validation for the choice of networks and columns.

    Attributes:
        lists: the largest number of validation lists.
        epochs: the smallest number of training epochs.
        steps: the smallest number of training steps.
        learning_rate: the learning rate at the top of the cycle.
    """

    lists: int = 2000
    epochs: int = 4
    steps: int = 300
    learning_rate: float = 3e-3


@dataclass(frozen=True)
class Settings:
    """The settings of a training run: a `NeuralRanker`'s parameters, with values instead of None.

    `scorer` is not built yet, and `transform` is not fitted yet. `directions` has the direction of
    each feature (1, 0 or -1); it is empty if `monotone` is None. `choice` sets how many validation
    lists and how much training are used to choose the kind of network and the columns. `kind` and
    `relative` say what the default transform is. The other settings are as in `NeuralRanker`.
    """

    scorer: Scorer
    loss: Loss
    transform: FeatureTransform
    members: int
    learning_rate: float
    schedule: Schedule
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    columns: Columns
    choice: "Choice"
    metric: Any
    device: str
    random_state: Any
    verbose: int
    kind: Kind | None
    relative: bool = False
    directions: tuple[int, ...] = ()

    def resolved(self) -> dict[str, Any]:
        """Return the loss's name and the settings that depend on `effort`, as plain data."""
        names = ("members", "learning_rate", "schedule", "max_epochs", "patience", "columns")
        names = (*names, "kind", "relative")
        return {"loss": type(self.loss).__name__, **{name: getattr(self, name) for name in names}}


_FIELDS = {field.name for field in fields(Settings)} - {"choice", "kind", "relative", "directions"}
"""The parameters of a `NeuralRanker` that are settings."""


def kinds(estimator: Any, rows: int) -> tuple[Kind, ...]:
    """Return the kinds of networks that are tried for a number of training rows."""
    own = estimator.scorer is not None or estimator.monotone is not None
    if own or getattr(estimator, "transform", None) is not None or rows < LARGE:
        return ("bins",)
    return ("bins", "periodic")


def settings(estimator: Any, rows: int, lists: int, kind: Kind = "bins") -> Settings:
    """Return the settings of an estimator for the given numbers of training rows and lists.

    Args:
        estimator: the `NeuralRanker`.
        rows: the number of training rows.
        lists: the number of training lists.
        kind: the kind of the networks, if neither the scorer nor the transform is given.
    """
    named = {name: getattr(estimator, name, None) for name in _FIELDS}  # a subclass may lack one
    given = {name: _plain(value) for name, value in named.items() if value is not None}
    given["batch_size"] = min(given["batch_size"], lists)  # torch takes no number beyond int64
    given["device"] = device(estimator)
    steps = math.ceil(lists / estimator.batch_size)
    relative = not is_auto(estimator.relative) and bool(estimator.relative)
    values = _values(estimator.effort, estimator.schedule, rows, steps, kind)
    values |= {"kind": None if "transform" in given else kind, "relative": relative}
    values |= {"loss": XENDCG(gamma="random"), "transform": default_transform(kind, relative)}
    given = {"random_state": None, **values, **given}
    patience = default_patience(steps)
    if given["schedule"] == "cycle":
        patience = max(patience, math.ceil(given["max_epochs"] * _OF_CYCLE))
    given = {"patience": patience, **given}
    built = any(True for _ in given["scorer"].parameters())
    if built or given["transform"].num_features is not None:
        if estimator.columns == "useful":
            raise ValueError(
                "columns must be 'all' if the scorer or the transform already has its "
                "number of features, got 'useful'"
            )
        given["columns"] = "all"
    return Settings(**given)


def _plain(value: Any) -> Any:
    """Return a number or a text of numpy as one of Python; return anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def for_trial(settings: Settings, lists: int) -> Settings:
    """Return the settings of the one member that networks and columns are chosen by."""
    choice = settings.choice
    epochs = math.ceil(choice.steps / math.ceil(lists / settings.batch_size))
    return replace(
        settings,
        members=1,
        schedule="cycle",
        learning_rate=choice.learning_rate,
        max_epochs=max(choice.epochs, epochs),
        verbose=0,
    )


def default_transform(kind: Kind, relative: bool) -> TableTransform:
    """Return the default transform of a kind of networks.

    Args:
        kind: the kind.
        relative: whether the networks also get the rank of each number within its list, and its
            difference from the list's mean in standard deviations of the list.
    """
    parts: list[FeatureTransform]
    parts = [PiecewiseLinearBins(4, thresholds=8), Standardize()]
    if kind == "periodic":
        parts = [PeriodicEmbedding()]
    return TableTransform(Join([*parts, *([RankPerList(), StandardizePerList()] * relative)]))


def with_relative(settings: Settings) -> Settings:
    """Return the settings of the same networks, but with columns relative to the list."""
    assert settings.kind is not None  # otherwise the transform is the user's
    transform = default_transform(settings.kind, relative=True)
    return replace(settings, transform=transform, relative=True)


def _values(
    effort: Effort, schedule: Schedule | None, rows: int, steps: int, kind: Kind
) -> dict[str, Any]:
    """Return the defaults of a kind for an effort and numbers of rows and of steps per epoch."""
    large = rows >= LARGE
    schedule = schedule or ("cycle" if large else "constant")
    periodic = kind == "periodic"
    defaults: dict[str, Any] = {
        "scorer": MLPScorer(hidden=HIDDEN, activation=nn.SiLU if periodic else nn.ReLU),
        "members": 3 if periodic else 5,
        "learning_rate": 6e-3 if periodic else 3e-3,
        "schedule": schedule,
        "max_epochs": _cycle(steps, 6 if periodic else 15) if schedule == "cycle" else 100,
        "columns": "useful" if large else "all",
    }
    choice: dict[str, Any] = {}
    if effort == "best":
        defaults["members"] *= 2
        if not periodic:
            defaults["scorer"] = CrossScorer(hidden=HIDDEN)
    elif effort == "fast" and large:
        defaults["members"] = 1 if periodic else 2
        choice = {"lists": 400, "epochs": 2, "steps": 150}
        if schedule == "cycle":
            defaults["max_epochs"] = _cycle(steps, longest=5)
    elif effort == "fast":
        defaults["members"] = 1
    return defaults | {"choice": Choice(learning_rate=6e-3 if periodic else 3e-3, **choice)}


def _cycle(steps: int, longest: int) -> int:
    """Return the number of epochs of a cycle for a number of steps per epoch.

    A cycle has about 2,000 steps, but at least 5 and at most `longest` epochs. If these give fewer
    than 300 steps, the cycle has about 300 steps instead, but at most 100 epochs.
    """
    long = min(max(round(2000 / steps), 5), longest)
    return min(max(long, math.ceil(300 / steps)), 100)


def max_levels(estimator: Any, rows: int) -> int:
    """Return how many levels of a category get a code, for a number of training rows."""
    if estimator.max_levels is not None:
        return estimator.max_levels
    return 1024 if rows >= LARGE else 256


def is_auto(value: Any) -> bool:
    """Return whether an argument is "auto"; an array, whose `==` gives an array, is not.

    >>> is_auto("auto"), is_auto(True)
    (True, False)
    """
    return isinstance(value, str) and value == "auto"


_ELSEWHERE = {"ndcg": "SoftNDCG", "pairwise": "RankNet", "xendcg": "XENDCG"}
"""Our loss for a name of LightGBM, XGBoost or CatBoost that is not like the name of its class."""


def _nearest_class(name: str, value: Any) -> str:
    """Return the end of a message: the call of the class that a text or a class names; "" if none.

    >>> _nearest_class("loss", "lambdarank"), _nearest_class("scorer", MLPScorer)
    (': did you mean LambdaRank()?', ': did you mean MLPScorer()?')
    >>> _nearest_class("loss", "rank:ndcg"), _nearest_class("transform", "standardise")
    (': did you mean SoftNDCG()?', ': did you mean Standardize()?')
    """
    from ltr import datasets, losses, models  # only a wrong value needs the names of all classes

    module, kind = {
        "loss": (losses, RankingLoss),
        "scorer": (models, Scorer),
        "transform": (datasets, FeatureTransform),
    }[name]
    if isinstance(value, type):
        return f": did you mean {value.__name__}()?" if issubclass(value, kind) else ""
    if not isinstance(value, str):
        return ""
    known = (getattr(module, attribute) for attribute in module.__all__)
    classes = [cls for cls in known if isinstance(cls, type) and issubclass(cls, kind)]
    names = [cls.__name__ for cls in classes if cls is not kind]
    word = re.sub("^rank[:_]", "", value.lower()).replace("_", "")
    close = close_matches(word, names)
    if name == "loss" and word in _ELSEWHERE:
        close = [_ELSEWHERE[word]]
    return f": did you mean {' or '.join(f'{near}()' for near in close)}?" if close else ""


def check_parameters(estimator: Any) -> None:
    """Raise `ValueError` if a parameter of a `NeuralRanker` is out of range."""
    kinds = {"scorer": Scorer, "loss": RankingLoss, "transform": FeatureTransform}
    for name, kind in kinds.items():
        value = getattr(estimator, name, None)  # a subclass may lack it
        if name == "loss" and isinstance(value, SeveralLabels):
            continue
        if value is not None and not isinstance(value, kind):
            near = _nearest_class(name, value)
            raise ValueError(f"{name} must be a {kind.__name__} or None, got {value!r}{near}")
    check_one_number(estimator.loss)
    check_whole("batch_size", estimator.batch_size)
    for name in ("members", "max_epochs", "patience", "max_levels"):
        if (value := getattr(estimator, name)) is not None:
            check_whole(name, value)
    if estimator.monotone is not None and estimator.scorer is not None:
        raise ValueError(
            f"scorer must be None if monotone is given, got {estimator.scorer!r}: "
            "the networks are MonotoneScorers"
        )
    relative = estimator.relative
    if not isinstance(relative, bool | np.bool_) and not is_auto(relative):
        raise ValueError(f"relative must be True, False or 'auto', got {relative!r}")
    if relative and not is_auto(relative):
        for name in ("transform", "monotone"):
            if getattr(estimator, name, None) is not None:
                raise ValueError(
                    f"relative must be False or 'auto' if {name} is given, got True"
                    + (": put RankPerList into the transform" if name == "transform" else "")
                )
    ranking_measure(estimator.metric)
    if estimator.learning_rate is not None:
        check_number("learning_rate", estimator.learning_rate, minimum=0, strict=True)
    for name, kind in (("effort", Effort), ("schedule", Schedule), ("columns", Columns)):
        value = getattr(estimator, name)
        if value not in get_args(kind) and (value is not None or name == "effort"):
            known = ", ".join(map(repr, get_args(kind)))
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    check_number("weight_decay", estimator.weight_decay, minimum=0)
    check_fraction("validation", estimator.validation, zero=True)
    if not isinstance(estimator.verbose, numbers.Integral):
        raise ValueError(f"verbose must be a whole number, got {estimator.verbose!r}")
    try:
        check_random_state(estimator.random_state)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a RandomState or a whole number in [0, 2**32 - 1], got "
            f"{estimator.random_state!r}"
        ) from error
    known = ("auto", "cpu", "cuda", "mps")
    kind, _, number = str(estimator.device).partition(":")
    if kind not in known or (number and not (kind == "cuda" and number.isdecimal())):
        raise ValueError(f'device must be "auto", "cpu", "cuda" or "mps", got {estimator.device!r}')
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {estimator.device!r} does not exist: the number of CUDA devices is "
            f"{torch.cuda.device_count()}"
        )
    if kind == "mps" and not torch.mps.is_available():
        raise ValueError("device 'mps' does not exist on this machine")


def check_monotone(monotone: Any, names: Iterable[str]) -> None:
    """Raise `ValueError` unless `monotone` maps names of numeric columns to 1, 0 or -1.

    `names` are the names of all numeric columns.
    """
    if not isinstance(monotone, Mapping):
        raise ValueError(f"monotone must be a dict of columns and directions, got {monotone!r}")
    known = [*names]
    for name, direction in monotone.items():
        if name not in known:
            raise ValueError(
                f"monotone must name columns of numbers, got {name!r}: "
                f"{nearest(str(name), known) if known else 'there is none'}"
            )
        if isinstance(direction, bool) or direction not in (-1, 0, 1):
            raise ValueError(f"monotone[{name!r}] must be 1, 0 or -1, got {direction!r}")


def device(estimator: Any) -> str:
    """Return the name of the device that an estimator computes on."""
    if estimator.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return estimator.device


def loss_of(loss: Loss | None, schema: Schema) -> Loss | None:
    """Return the loss for the labels of a schema.

    Several labels without a loss get the sum of the default losses, with weight 1 each.

    Raises:
        ValueError: the loss does not have the labels of the schema.

    >>> loss_of(None, Schema("q", label=["click", "buy"])).names
    ('click', 'buy')
    """
    labels = schema.labels
    if len(labels) > 1 and loss is None:
        return SeveralLabels({name: (XENDCG(gamma="random"), 1.0) for name in labels})
    own = loss.names if isinstance(loss, SeveralLabels) else None
    if own is not None and own != labels:
        raise ValueError(f"loss must have the labels {', '.join(labels)}, got {', '.join(own)}")
    if own is None and len(labels) > 1:
        raise ValueError(f"loss must be SeveralLabels for {', '.join(labels)}, got {loss!r}")
    return loss

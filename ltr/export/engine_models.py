"""Models in the form that search engines take: a forest or a weighted sum, with their columns."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from ltr.datasets import ListDataset, NoTransform, Standardize, TableTransform
from ltr.datasets.list_tables import with_schema
from ltr.export.forest import Forest, forest_of, is_category
from ltr.export.trees import Trees, member_trees, read_trees, scores_of_columns
from ltr.models import AdditiveScorer, Ensemble, LinearScorer, RankingModel, Scorer
from ltr.models.blend import BlendModel, Rows
from ltr.models.predictor import read_frame
from ltr.models.trees import tree_values

_INSTEAD = (
    "export it to ONNX, for Vespa or for your own service, or distil it into trees (see "
    '"Into production")'
)


@dataclass(frozen=True)
class Linear:
    """A weighted sum of the columns.

    Attributes:
        weights: the weight of each column by name.
        bias: the value that is added; engines leave it out, since it changes no ranking.
        ends: for each column, two values at about the ends of its training range.
    """

    weights: dict[str, float]
    bias: float
    ends: list[tuple[float, float]]


@dataclass(frozen=True)
class EngineModel:
    """A model for a search engine.

    Attributes:
        form: what is written.
        names: the names of the columns of numbers, which may include unused ones.
        predict: returns the model's scores (rows,) of the columns (rows, len(names)), float64.
        read: returns the columns of a table, an array or lists, float64 (rows, len(names)).
        booleans: the names of the columns that are 0 or 1.
    """

    form: Forest | Linear
    names: list[str]
    predict: Callable[[np.ndarray], np.ndarray]
    read: Callable[[Any], np.ndarray]
    booleans: Sequence[str] = ()

    @property
    def used(self) -> list[str]:
        """The names of the columns that the scores depend on."""
        if isinstance(self.form, Linear):
            return [name for name, weight in self.form.weights.items() if weight]
        return [self.names[at] for at in self.form.columns]

    @classmethod
    def of(cls, model: Any) -> "EngineModel":
        """Return the form of a model.

        Args:
            model: a fitted ranker, regressor or `Booster` of trees; a `Blend` of them, or its
                `model_`; a `NeuralRanker` or a `RankingModel` whose scores are linear in the
                columns.

        Raises:
            ValueError: the model has no such form.
        """
        model = getattr(model, "model_", model)
        if isinstance(model, RankingModel):
            return _of_linear(model)
        if isinstance(model, BlendModel):
            return _of_blend(model)
        if (trees := read_trees(model)) is None:
            raise ValueError(
                "model must be a fitted ranker of trees, a Blend of them or a linear model, got "
                f"{type(model).__name__}"
            )
        return _of_ranker(model, trees)


def _of_ranker(ranker: Any, trees: Trees) -> EngineModel:
    names = trees.names

    def predict(columns: np.ndarray) -> np.ndarray:
        return scores_of_columns(ranker, pd.DataFrame(columns, columns=names))

    def read(X: Any) -> np.ndarray:
        if isinstance(X, ListDataset):
            X = X.features
        if hasattr(X, "to_pandas"):
            X = X.to_pandas()
        if isinstance(X, pd.DataFrame) and {*names} <= {*X.columns}:
            X = X[names]
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"rows must be numbers, got {error}") from None
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(f"rows must have the columns {names}, got shape {values.shape}")
        return values

    forest = forest_of([(trees, 1.0, range(len(names)))], names)
    return EngineModel(forest, names, predict, read)


def _of_blend(model: BlendModel) -> EngineModel:
    schema = model.schema
    booleans = [name for name, category in schema.categories.items() if category.kind == "boolean"]
    names = [*schema.feature_names, *booleans]
    known = [*schema.feature_names, *schema.categories]
    parts = []
    for member, factor in zip(model.members, model.factors, strict=True):
        if not factor:
            continue
        if isinstance(member.ranker, RankingModel):
            raise ValueError(
                f"rankers of the Blend must be trees for a search engine, got {member.name}: "
                f"{_INSTEAD}"
            )
        trees, own = member_trees(member), model.positions_of(member)
        if member.relative:
            raise ValueError(
                "rankers of the Blend must not use columns relative to the list, which an engine "
                f"does not know, got some in {member.name}: fit it without a network"
            )
        for column in {node[2] for node in trees.nodes}:
            if (name := known[own[column]]) not in names:
                raise is_category(name)
        at = [names.index(x) if (x := known[i]) in names else 0 for i in own]
        parts.append((trees, factor, at))
    width = schema.num_features

    def predict(columns: np.ndarray) -> np.ndarray:
        codes = np.zeros((len(columns), len(schema.categories)), np.int64)
        for at, name in enumerate(booleans, start=width):
            levels = tree_values(schema.categories[name])
            for code, value in enumerate(levels, start=1):
                codes[columns[:, at] == value, [*schema.categories].index(name)] = code
        return model.score_codes(columns[:, :width], codes)

    def read(X: Any) -> np.ndarray:
        features, lists = _rows_of(model, X)
        values = [features]
        for name in booleans:
            table = np.array([np.nan, *tree_values(schema.categories[name])])
            codes = lists.categories[:, [*schema.categories].index(name)]
            values.append(table[np.where(codes < len(table), codes, 0)][:, None])
        return np.concatenate(values, axis=1)

    return EngineModel(forest_of(parts, names), names, predict, read, booleans)


def _of_linear(model: RankingModel) -> EngineModel:
    width = model.num_features
    if not isinstance(width, int):
        raise ValueError(f"num_features must be known: train the model first, got {width}")
    _check_linear(model.scorer)
    transform = model.transform
    if isinstance(transform, TableTransform):
        if len(transform.levels):
            raise is_category("" if model.schema is None else next(iter(model.schema.categories)))
        if len(transform.indicators):
            names = _names(model, width)
            name = names[int(transform.indicators[0])]
            raise ValueError(
                f"column {name!r} must not be missing in training for a linear model of a search "
                "engine, which has no weight for a missing value: fill it in before training"
            )
        transform = transform.features
    if transform is not None and type(transform) not in (Standardize, NoTransform):
        raise ValueError(
            "transform of a linear model must be Standardize or None for a search engine, got "
            f"{type(transform).__name__}: {_INSTEAD}"
        )
    weights, bias = _weights(model.scorer, width)
    if type(transform) is Standardize:
        mean, scale = transform.mean.double().numpy(), transform.scale.double().numpy()
        weights = weights * scale
        bias -= float(weights @ mean)
    names = _names(model, width)
    low, high = (-torch.ones(width), torch.ones(width))
    if model.transform is not None:
        low, high = model.transform.training_range()

    def predict(columns: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(columns.astype(np.float32))).double().numpy()

    def read(X: Any) -> np.ndarray:
        return _rows_of(model, X)[0]

    ends = list(zip(low.tolist(), high.tolist(), strict=True))
    linear = Linear(dict(zip(names, weights.tolist(), strict=True)), bias, ends)
    return EngineModel(linear, names, predict, read)


def _names(model: RankingModel, width: int) -> list[str]:
    return [f"x{i}" for i in range(width)] if model.schema is None else model.schema.feature_names


def _check_linear(scorer: Scorer) -> None:
    if isinstance(scorer, Ensemble):
        for member in scorer.copies:
            assert isinstance(member, Scorer)
            _check_linear(member)
        return
    additive = type(scorer) is AdditiveScorer and not scorer.hidden
    if type(scorer) is not LinearScorer and not additive:
        raise ValueError(
            f"scorer must be linear for a search engine, got {type(scorer).__name__}: {_INSTEAD}"
        )


def _weights(scorer: Scorer, width: int) -> tuple[np.ndarray, float]:
    """Return the weights (width,) and the bias of a scorer that is linear in its inputs."""
    exact = copy.deepcopy(scorer).cpu().double().eval()
    with torch.no_grad():
        scores = exact(torch.eye(width + 1, width, dtype=torch.float64)).numpy()
    return scores[:-1] - scores[-1], float(scores[-1])


def _rows_of(model: Any, X: Any) -> tuple[np.ndarray, Any]:
    """Return the features of a table or of lists, float64 (rows, d), and the rows as lists."""
    if isinstance(X, ListDataset):
        lists = X if model.schema is None else with_schema(X, model.schema)
        return lists.features.astype(np.float64), lists
    frame, schema = read_frame(model, X)
    rows = Rows.of_frame(schema, frame, None, None)
    return rows.features, rows.lists

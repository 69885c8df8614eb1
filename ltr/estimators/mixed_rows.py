"""Scores of rows that take each column from another row, with what it is relative to its list."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ltr.datasets import ListDataset, Schema
from ltr.datasets.coded import Coded
from ltr.datasets.list_tables import of_columns
from ltr.datasets.reading import RowOrder
from ltr.estimators import tables as tables
from ltr.estimators.calibration import Calibrated
from ltr.estimators.importance import column_names, take_by_column
from ltr.models import RankingModel
from ltr.models.blend import BlendModel, Rows
from ltr.models.predictor import in_row_order, read_frame

Mixed = Callable[[np.ndarray], np.ndarray]
"""From row numbers (m, columns) to scores (m,): row i takes column j from row `numbers[i, j]`."""


def has_relative(ranker: Any) -> bool:
    """Return whether a fitted ranker has columns relative to the list.

    Raises:
        ValueError: the ranker looks at the list in another way.

    >>> has_relative(3)
    False
    """
    model = _model(_inner(ranker))
    models = [x.ranker for x in model.members] if isinstance(model, BlendModel) else [model]
    looking = [model for model in models if getattr(model, "looks_at_list", False)]
    for model in looking:
        per_document = isinstance(model, RankingModel) and model.scorer.per_document
        if not per_document or _sources(model) is None:
            raise ValueError(
                "ranker must score each row by itself, or with columns relative to the list, got "
                "one whose scorer or transform looks at the whole list in another way"
            )
    return bool(looking)


def mixed_scores(ranker: Any, X: Any, groups: np.ndarray) -> Mixed:
    """Return a function that scores mixed rows.

    A column keeps what it is relative to the list of the row that it comes from.

    Args:
        ranker: a `NeuralRanker`, `Blend` or `Calibrated`, or the model of one, that `has_relative`.
        X: (rows, columns), a pandas data frame or an array with the columns of the training.
        groups: (rows,), the index of each row's list.
    """
    ranker, given = _inner(ranker), [*map(str, column_names(X))]
    model = _model(ranker)
    X = tables.by_name(ranker, X)  # in the order of the training
    columns = [given.index(str(name)) for name in column_names(X)]
    if ranker is model:
        frame, schema = read_frame(model, X)
    else:
        frame, schema = tables.as_table(ranker, X), model.schema
    order = RowOrder.of(groups, [str(i) for i in range(int(groups.max()) + 1)])
    whole = Rows.of_frame(schema, frame, order, X)
    inverse = in_row_order(np.arange(len(groups)), whole.lists)
    position = {name: at for at, name in enumerate(frame.column_names)}
    if isinstance(model, BlendModel):
        scores = _of_blend(model, whole, inverse, position)
    else:
        scores = _of_network(model, whole, inverse, position)
    return lambda rows: scores(rows[:, columns])


def _inner(ranker: Any) -> Any:
    """Return the ranker whose scores a `Calibrated` has."""
    while isinstance(ranker, Calibrated):
        ranker = ranker.ranker
    return ranker


def _model(ranker: Any) -> Any:
    """Return the model of an estimator of ltr; any other ranker is returned unchanged."""
    return getattr(ranker, "model_", ranker)


def _owners(schema: Schema, position: Mapping[str, int]) -> np.ndarray:
    """Return for each feature, and then each category, the index of its column in X."""
    names = [name for name, width in schema.features.items() for _ in range(width)]
    return np.array([position[name] for name in (*names, *schema.categories)], np.int64)


def _of_network(
    model: RankingModel, whole: Rows, inverse: np.ndarray, position: Mapping[str, int]
) -> Mixed:
    """Return the function for a network. The outputs of its transform are computed once.

    Args:
        model: the network.
        whole: all rows, with the columns of the network, and maybe others.
        inverse: (rows,), the index in `whole` of each row of X.
        position: the index in X of each column.
    """
    schema = model.schema or whole.schema
    lists, owners = of_columns(whole.lists, whole.schema, schema), _owners(schema, position)
    model, sources = copy.deepcopy(model).eval(), _sources(model)
    assert sources is not None
    with torch.inference_mode():
        batches = [model.scorer_inputs(**batch) for batch in model.batches(lists)]
    numbers, *codes = (torch.cat([*parts]) for parts in zip(*map(_tensors, batches), strict=True))
    of_numbers = owners[sources[: numbers.shape[1]].numpy()]
    of_codes = owners[lists.features.shape[1] :]
    scorer = RankingModel(model.scorer)

    def scores(rows: np.ndarray) -> np.ndarray:
        own, coded = torch.from_numpy(inverse[rows]), batches[0]
        mixed: Any = _by_column(numbers, own, of_numbers)
        if isinstance(coded, Coded):
            mixed = coded._replace(numbers=mixed, codes=_by_column(codes[0], own, of_codes))
        with torch.inference_mode():
            return scorer(mixed).double().numpy()

    return scores


def _sources(model: RankingModel) -> torch.Tensor | None:
    """Return the column of each output of the transform; None if some depend on several."""
    if model.transform is None:
        return None
    sources = model.transform.source_columns().cpu()
    known = len(sources) == model.transform.out_features and bool((sources >= 0).all())
    return sources if known else None


def _tensors(outputs: torch.Tensor | Coded) -> list[torch.Tensor]:
    """Return the tensors of a transform's output: the numbers, and the codes if it has some."""
    return [outputs.numbers, outputs.codes] if isinstance(outputs, Coded) else [outputs]


def _by_column(values: Any, rows: Any, owners: np.ndarray) -> Any:
    """Return (m, k): column j of the values (n, k) from the rows `rows[:, owners[j]]`."""
    return values[rows[:, owners], np.arange(len(owners))]


def _of_blend(
    model: BlendModel, whole: Rows, inverse: np.ndarray, position: Mapping[str, int]
) -> Mixed:
    """Return the function for a blend; see `_of_network`."""
    schema, width = whole.schema, whole.features.shape[1]
    owners = _owners(schema, position)
    networks: dict[int, Mixed] = {}
    for at, member in enumerate(model.members):
        if isinstance(member.ranker, RankingModel) and member.ranker.looks_at_list:
            networks[at] = _of_network(member.ranker, whole, inverse, position)
    relative = whole.relative if any(member.relative for member in model.members) else None

    def scores(rows: np.ndarray) -> np.ndarray:
        own = inverse[rows]
        codes, to_list = whole.lists.categories, None
        if codes is not None:
            codes = _by_column(codes, own, owners[width:])
        if relative is not None:
            to_list = _by_column(relative, own, np.tile(owners[:width], 2))
        features = _by_column(whole.features, own, owners[:width])
        one_list = np.array([0, len(rows)]), ["0"]
        lists = ListDataset(features.astype(np.float32), None, *one_list, categories=codes)
        mixed = Rows(schema, lists, features, take_by_column(whole.X, [*own.T]), to_list)
        parts = [
            networks[at](rows) if at in networks else member.scores(mixed, model.positions)
            for at, member in enumerate(model.members)
        ]
        return model.weights @ (np.stack(parts) * model.scales[:, None])

    return scores

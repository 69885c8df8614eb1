"""The weighted sum of the scores of networks and trees, and the rows that it scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from ltr.datasets import ListDataset, Schema
from ltr.datasets.frames import Frame
from ltr.datasets.list_tables import of_columns
from ltr.datasets.reading import RowOrder, frame_lists
from ltr.models.predictor import predict_table
from ltr.models.ranking_model import RankingModel
from ltr.models.trees import (
    Form,
    booster_names,
    library_of,
    relative_to_list,
    scores_of,
    tree_positions,
    tree_table,
)


@dataclass(frozen=True)
class Rows:
    """Rows with the queries together, in each form that a ranker of a blend takes.

    Attributes:
        schema: the schema of the columns.
        lists: the rows as lists, for networks.
        features: (rows, d), the numbers for trees, in the order of the schema: float64 as they were
            read, or those of `lists`.
        X: the rows of the table or array, for rankers of other libraries; None if the rows come
            from lists.
        known_relative: (rows, 2 d), the features relative to lists that are not `lists`; None if
            they are relative to `lists`.
    """

    schema: Schema
    lists: ListDataset
    features: np.ndarray
    X: Any = None
    known_relative: np.ndarray | None = None

    @classmethod
    def of(
        cls, schema: Schema, lists: ListDataset, exact: np.ndarray | None, X: Any = None
    ) -> "Rows":
        """Return the rows of lists.

        Args:
            schema: the schema of the lists.
            lists: the lists.
            exact: the features of `lists` in float64, or None; see `Prepared`.
            X: the table or array that `lists.rows` counts, or None.
        """
        own = None if X is None or lists.rows is None else _take(X, lists.rows)
        return cls(schema, lists, lists.features if exact is None else exact, own)

    @classmethod
    def of_frame(cls, schema: Schema, frame: Frame, order: RowOrder | None, X: Any) -> "Rows":
        """Return the rows of a table without labels.

        Args:
            schema: the schema of the columns.
            frame: the table.
            order: the order of the rows; None for one list of all rows, in their order.
            X: see `of`.
        """
        schema = Schema("", steps=schema.steps)  # the queries need not be a column of the table
        lists, features = frame_lists(frame, schema, exact=True, order=order)
        return cls.of(schema, lists, features, X)

    def first(self, count: int) -> "Rows":
        """Return the first lists."""
        lists = self.lists.between(0, min(count, len(self.lists)))
        rows = len(lists.features)
        X = None if self.X is None else _take(self.X, np.arange(rows))
        return Rows(self.schema, lists, self.features[:rows], X)

    @cached_property
    def relative(self) -> np.ndarray:
        """`features` relative to their lists, float64 (rows, 2 d); see `relative_to_list`."""
        if self.known_relative is not None:
            return self.known_relative
        with torch.no_grad():
            lengths = torch.from_numpy(self.lists.lengths)
            numbers = torch.from_numpy(np.asarray(self.features, np.float64))
            return relative_to_list(numbers, lengths=lengths).numpy()

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels, float64 (rows,)."""
        return self.lists.labels.astype(np.float64)

    @cached_property
    def groups(self) -> np.ndarray:
        """The index of each row's list, from 0 without gaps, int64 (rows,)."""
        return np.repeat(np.arange(len(self.lists)), self.lists.lengths)


@dataclass(frozen=True)
class Member:
    """A fitted ranker of a blend.

    Attributes:
        name: its name in error messages.
        ranker: a `RankingModel`, or a fitted estimator or `Booster` of another library.
        named: whether it is a `Booster` that the user trained, on columns with their own names.
        relative: whether it is of trees that get columns relative to the list too.
        device: where a `RankingModel` computes.
    """

    name: str
    ranker: Any
    named: bool = False
    relative: bool = False
    device: str = "cpu"

    def scores(self, rows: Rows, positions: Sequence[int]) -> np.ndarray:
        """Return the scores of the rows, float64 (rows,); see `tree_positions` for `positions`."""
        if isinstance(self.ranker, RankingModel):
            lists = of_columns(rows.lists, rows.schema, self.ranker.schema or rows.schema)
            return self.ranker.score(lists, device=self.device).astype(np.float64)
        X = columns_for(self.ranker, rows, positions, named=self.named, relative=self.relative)
        return scores_of(self.ranker, X, rows.groups)


class BlendModel:
    """The weighted sum of the scores of several rankers, for tables and lists.

    Trees compare the numbers of a table as they were read, in float64. Lists have float32 numbers.

    Args:
        members: the rankers.
        schema: how the columns of a table are used.
        columns: the names of the columns of the training table, in order.
        scales: (members,), the constants that the scores of the rankers are multiplied by.
        weights: (members,), the weights of the rankers, which add up to 1.

    Attributes:
        positions: the order in which trees get features and categories; see `tree_positions`.
        num_features: the number of features of a document.
        looks_at_list: whether a score depends on the other documents of the list.
        takes_exact: True: trees compare the numbers of a table in float64.
    """

    takes_exact = True

    def __init__(
        self,
        members: Sequence[Member],
        schema: Schema,
        columns: Sequence[str],
        scales: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        self.members, self.schema, self.columns = members, schema, columns
        self.scales, self.weights = scales, weights
        self.positions = tree_positions(schema, columns)
        self.num_features: int = schema.num_features
        networks = (x.ranker for x in members if isinstance(x.ranker, RankingModel))
        self.looks_at_list = any(network.looks_at_list for network in networks)

    @property
    def factors(self) -> list[float]:
        """The factor of each ranker's scores in the sum."""
        return (self.weights * self.scales).tolist()

    def positions_of(self, member: Member) -> list[int]:
        """Return the order of a ranker's columns; a `Booster` of the user has its own columns."""
        known = [*self.schema.feature_names, *self.schema.categories]
        own = booster_names(member.ranker) if member.named else []
        by_name = own and {*own} <= {*known}
        return [known.index(name) for name in own] if by_name else self.positions

    def scaled(self, rows: Rows) -> np.ndarray:
        """Return the scores (members, rows) times the scales, float64."""
        scores = np.stack([member.scores(rows, self.positions) for member in self.members])
        return scores * self.scales[:, None]

    def score_rows(self, rows: Rows) -> np.ndarray:
        """Return the score of each row, float64 (rows,), in the order of `rows`."""
        if not len(rows.features):
            return np.zeros(0)  # the libraries of trees refuse a table without rows
        return self.weights @ self.scaled(rows)

    def predict(self, table: Any, qid: Any = None) -> np.ndarray:
        """Return the scores of a table's rows, float64 (rows,); see `RankingModel.predict`."""
        return predict_table(self, table, qid)

    def score(self, lists: ListDataset, exact: np.ndarray | None = None) -> np.ndarray:
        """Return the scores of lists, float64 (documents,), in the order of the documents.

        Args:
            lists: the lists, in memory or on disk.
            exact: the features of lists in memory, as they were read; see `Predictor`.
        """
        parts = [np.empty(0)]
        for block in lists.blocks():
            features = block.features if exact is None else exact
            parts.append(self.score_rows(Rows(self.schema, block, features)))
        return np.concatenate(parts)

    def score_codes(self, features: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        """Return the scores (documents,) of one list, float64.

        If `looks_at_list` is False, the documents may be those of several lists.

        Args:
            features: (documents, d), in the order of the schema.
            codes: int64 (documents, c), the codes of the categories; None if there are none.
        """
        offsets = np.array([0, len(features)])
        given = {"categories": codes if self.schema.categories else None}
        lists = ListDataset(features.astype(np.float32), None, offsets, ["0"], **given)
        return self.score_rows(Rows(self.schema, lists, features))


def columns_for(
    ranker: Any,
    rows: Rows,
    positions: Sequence[int],
    *,
    named: bool = False,
    relative: bool = False,
) -> Any:
    """Return the columns in the form that a ranker takes that is not a network.

    Args:
        ranker: the ranker.
        rows: the rows.
        positions: see `tree_positions`.
        named: whether the ranker is a `Booster` that the user trained; see `tree_table`.
        relative: whether trees get columns relative to the list too.

    Raises:
        ValueError: the ranker takes tables alone, and the rows are those of lists.
    """
    if (library := library_of(ranker)) is not None:
        most = ranker.max_bins if library == "sklearn" else None
        form: Form = "codes" if library == "catboost" else "categories"
        relative_columns = rows.relative if relative else None
        options = {"form": form, "most": most, "named": named, "relative": relative_columns}
        return tree_table(rows.schema, rows.features, rows.lists.categories, positions, **options)
    if rows.X is None:
        raise ValueError(
            "rankers must be NeuralRankers or trees of LightGBM, XGBoost or CatBoost for lists "
            f"and files, got {ranker!r}"
        )
    return rows.X


def _take(X: Any, rows: np.ndarray) -> Any:
    """Return the given rows of a table or an array."""
    if isinstance(X, pa.Table):
        return X.take(pa.array(rows))
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]

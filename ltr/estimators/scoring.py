"""The base class of the estimators, and the functions that score rows and lists."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import InputTags, Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from ltr.arrays import rank
from ltr.datasets import ListDataset
from ltr.datasets.list_tables import holds_lists
from ltr.datasets.prepare import Prepared
from ltr.datasets.reading import group_rows
from ltr.estimators import tables as tables
from ltr.estimators.list_input import is_lists, refuse_beside
from ltr.metrics.named import ranking_measure
from ltr.models.predictor import Predictor, predict_table, score_table
from ltr.models.trees import library_of

if TYPE_CHECKING:
    from ltr.config.folder import Saved
    from ltr.export import CardMetrics, EngineExport, Exported
    from ltr.export.engines import Engine, Missing
    from ltr.export.program import Target


class RankingEstimator(BaseEstimator):
    """Base class of the estimators: ranks, metrics and metadata."""

    metric: Any = "ndcg@10"

    # scikit-learn's tools pass on these arguments by default; `set_fit_request` changes that.
    __metadata_request__fit: ClassVar = {"qid": True, "position": True, "protected": True}
    __metadata_request__predict: ClassVar = {"qid": True}
    __metadata_request__score: ClassVar = {"qid": True}

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return a score for each row, (rows,); a subclass defines it."""
        raise NotImplementedError

    @property
    def _predictor(self) -> tuple[Predictor, dict[str, Any]]:
        """The fitted model, and arguments of its `score`; a subclass defines them."""
        raise NotImplementedError

    def rank(self, X: Any, *, qid: Any = None, group: Any = None) -> np.ndarray:
        """Return the position of each row within its query, from 1, int32 (rows,).

        Position 1 has the highest score. Rows with equal scores keep their order.

        Args:
            X: see `predict`.
            qid: (rows,), the query of each row, in any order.
            group: instead of `qid`, the sizes of the lists. The rows of each list must be together,
                in the order of the sizes.

        Raises:
            ValueError: neither or both of `qid` and `group` are given for a table, one is given for
                lists, or `predict` raises this error.

        >>> from ltr.estimators import NeuralRanker
        >>> X, y, qid = np.array([[1.0], [2.0], [3.0], [2.0]]), [0, 1, 2, 1], [7, 8, 7, 7]
        >>> ranker = NeuralRanker(members=1, random_state=0, verbose=0).fit(X, y, qid=qid)
        >>> ranker.rank(X, qid=qid)
        array([3, 1, 1, 2], dtype=int32)
        """
        check_is_fitted(self)
        if is_lists(X):
            scores, groups, _ = self._score_lists(X, {"qid": qid, "group": group})
            return rank(scores, groups)
        groups, _ = tables.list_groups(tables.query_names(tables.row_count(X), qid, group))
        return rank(self.predict(X, qid=qid, group=group), groups)

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        metric: Any = None,
    ) -> float:
        """Return the mean metric of the lists; the NDCG of a list without a relevant row is 0.

        Args:
            X: (rows, columns); see `fit` for this and the other arguments. Or lists or the path of
                a table, which bring their labels and queries; see `predict`.
            y: (rows,), the labels. Several labels (rows, labels), as in `fit`, give the mean of
                their metrics, with the weights of a `SeveralLabels`.
            qid: (rows,), the query of each row.
            group: the sizes of the lists, instead of `qid`.
            sample_weight: (rows,) or (queries,). Weights of rows, divided by their mean, multiply
                the gains, as in `ltr.metrics.NDCG`. Weights of queries are those of the mean.
            metric: a name, a function or an object (see `NeuralRanker`). Default: the metric of
                early stopping; "ndcg@10" for a `Blend` or a `Calibrated`.

        Raises:
            ValueError: X has no rows, the metric is unknown, or weights of rows are given and the
                metric does not take them.
        """
        check_is_fitted(self)
        weights, list_weights = None, False
        if is_lists(X):
            beside = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
            scores, groups, labels = self._score_lists(X, beside, judged=True)
        else:
            columns = tables.label_columns(y, tables.row_count(X), (), getattr(self, "loss", None))
            labels = np.stack([*columns.values()], axis=1) if columns else None
            if labels is None:
                labels = tables.as_labels(y, tables.row_count(X))
            groups, queries = tables.list_groups(tables.query_names(len(labels), qid, group))
            scores = self.predict(X, qid=qid, group=group) if len(labels) else np.empty(0)
            if sample_weight is not None:
                weights, list_weights = tables.row_weights(sample_weight, groups, queries)
                weights = weights if list_weights else weights / weights.mean()
        if not len(labels):
            raise ValueError("X must have at least one row for a metric, got none")
        means = []
        for column in labels.reshape(len(labels), -1).T:
            known = ~np.isnan(column)
            own = None if weights is None else weights[known]
            if not known.any() or (list_weights and own is not None and not own.any()):
                means.append(np.nan)
                continue
            _, first, lists = np.unique(groups[known], return_index=True, return_inverse=True)
            of_rows, of_lists = (None, own) if list_weights else (own, None)
            rows = scores[known], column[known], lists, of_rows
            values = values_of_lists(*rows, metric=metric or self.metric)
            factors = None if of_lists is None else of_lists[first]
            means.append(float(np.average(values, weights=factors)))
        return means[0] if labels.ndim == 1 else self._combined(np.array(means))

    def _combined(self, means: np.ndarray) -> float:
        """Return one number for the metrics of several labels, (labels,)."""
        return float(np.nanmean(means))

    def _predict_lists(self, X: Any, qid: Any, group: Any) -> np.ndarray:
        """Return the scores of lists or of a path, which bring their own queries."""
        model, options = self._predictor
        refuse_beside({"qid": qid, "group": group})
        return predict_table(model, X, **options)

    def _queries(self, model: Predictor, rows: int, qid: Any, group: Any) -> pa.Array | None:
        """Return the query of each row of a table; None if none is given and none is needed."""
        if qid is not None or group is not None:
            return tables.query_names(rows, qid, group)
        if not model.looks_at_list:
            return None
        relative = getattr(self, "settings_", {}).get("relative")
        raise ValueError(
            f"qid or group must be given to predict: the scores of this {type(self).__name__} "
            "depend on the whole list"
            + " (on columns relative to it; relative=False trains without them)"
            * bool(relative)
        )

    def _score_lists(
        self, X: Any, beside: Mapping[str, Any], *, judged: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the scores of lists or of a path, the index of each row's list, and the labels.

        Args:
            X: see `predict`.
            beside: the other arguments, which must be None.
            judged: whether labels are needed; otherwise an empty array is returned instead.
        """
        refuse_beside(beside)
        model, options = self._predictor
        assert model.schema is not None
        of_table = isinstance(X, str | PathLike) and not holds_lists(X)
        qid, labels = model.schema.qid if of_table else "qid", model.schema.labels
        names = [] if not judged else labels if of_table or len(labels) > 1 else ["label"]
        parts = [*score_table(model, X, keys=[qid, *names], label=names, **options)]
        if any(not {*names} <= {*table.column_names} for table, _ in parts):
            raise ValueError(f"X must have labels, got lists without them: {X}")
        table = pa.concat_tables([table for table, _ in parts])
        if isinstance(X, str | PathLike):
            groups, _ = group_rows(table.column(qid), qid)
        else:  # two lists may have the same qid, as in a sample with replacement
            lists = X.train if isinstance(X, Prepared) else X
            groups = np.repeat(np.arange(len(lists)), lists.lengths)
        scores = np.concatenate([scores for _, scores in parts])
        if not judged:
            return scores, groups, np.empty(0)
        arrays = [table.column(name).to_numpy() for name in names]
        if len(arrays) > 1:
            return scores, groups, np.stack(arrays, axis=1)
        return scores, groups, tables.as_labels(arrays[0], len(scores))

    @contextmanager
    def _fitting(self) -> Iterator[Self]:
        """Yield a copy to fit; at the end, adopt its attributes. An error changes nothing."""
        fitted = copy.copy(self)
        yield fitted
        self.__dict__ = vars(fitted)

    def _members(self) -> Sequence[Any]:
        """Return the rankers that get X; a subclass without such rankers takes all values."""
        return ()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        own = [_input_tags(ranker) for ranker in self._members()]
        tags.input_tags.allow_nan = all(taken.allow_nan for taken in own)
        tags.input_tags.categorical = all(taken.categorical for taken in own)
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags


class SavedEstimator(RankingEstimator):
    """Base class of `NeuralRanker` and `Blend`, which are saved in folders and exported."""

    def saved(self) -> "Saved":
        """Return what `save` writes, for code that saves more; a subclass defines it."""
        raise NotImplementedError

    @overload
    def export(
        self,
        path: str | PathLike[str],
        *,
        to: "Target | None" = None,
        opset: int | None = None,
        per_document: bool = False,
        single: bool = False,
        test: tuple[Any, Any, Any] | None = None,
    ) -> "Exported": ...
    @overload
    def export(
        self,
        path: str | PathLike[str],
        *,
        to: "Engine",
        missing: "Missing" = "model",
        test: tuple[Any, Any, Any] | None = None,
    ) -> "EngineExport": ...
    def export(
        self,
        path: str | PathLike[str],
        *,
        to: "Target | Engine | None" = None,
        opset: int | None = None,
        per_document: bool = False,
        single: bool = False,
        missing: "Missing" = "model",
        test: tuple[Any, Any, Any] | None = None,
    ) -> "Exported | EngineExport":
        """Write the model for other programs; see `ltr.export.export_model`.

        The file of a `Blend` contains the transforms, the networks and the trees. Its rankers must
        be `NeuralRanker`s or trees of LightGBM, XGBoost, CatBoost or scikit-learn; those of a
        search engine must be trees alone.

        Args:
            path: a file that ends in .onnx or .pt2, or a folder, which `load` can read too; for a
                search engine, a file that ends in .json, or a folder.
            to: "onnx", or "torch" for a `NeuralRanker`. Default: the format that the ending of
                `path` names, otherwise "onnx". Or the name of a search engine, for a blend of trees
                or a linear scorer.
            opset: the version of the ONNX operator set. Default: 17.
            per_document: whether the inputs are single documents (N, d), not lists (B, n, d).
            single: whether the features of a blend are float32; see `export_model`.
            missing: where a search engine sends a missing value; see `export_model`.
            test: (X, y, qid) of test lists, for the metrics of the model card. For a search engine,
                rows that the check of the file compares too.
        """
        from ltr.export import export_model
        from ltr.export.engines import ENGINES
        from ltr.export.write import is_file

        check_is_fitted(self)
        if test is not None and (not isinstance(test, tuple | list) or len(test) != 3):
            raise ValueError(f"test must be (X, y, qid), got {type(test).__name__}")
        model, _ = self._predictor
        options: dict[str, Any] = {"to": to, "missing": missing, "opset": opset}
        options |= {"per_document": per_document, "single": single}
        if to in ENGINES:
            rows, _, qid = test or (None, None, None)
            return export_model(model, path, rows=rows, qid=qid, **options)
        saved, evaluation = None if is_file(path) else self.saved(), self._evaluation(test)
        return export_model(model, path, saved=saved, evaluation=evaluation, **options)

    def _evaluation(self, test: Any) -> "CardMetrics | None":
        """Return the metrics of test lists (X, y, qid) for a model card; None if `test` is None."""
        if test is None:
            return None
        from ltr.export.card import card_metrics_of

        X, y, qid = test
        labels = tables.as_labels(y, tables.row_count(X))
        groups, queries = tables.list_groups(tables.query_names(len(labels), qid, None))
        if len(queries) < 2:  # one list has no confidence interval
            raise ValueError(f"test must have at least two lists, got {len(queries)}")
        order = np.argsort(groups, kind="stable")
        scores, grades = (torch.from_numpy(x[order]) for x in (self.predict(X, qid), labels))
        return card_metrics_of(scores, grades, torch.from_numpy(np.bincount(groups)))


def _input_tags(ranker: Any) -> InputTags:
    """Return what a ranker takes; a `Blend` encodes missing values and categories for trees."""
    if library_of(ranker) is not None:
        return InputTags(allow_nan=True, categorical=True)
    return get_tags(ranker).input_tags if hasattr(ranker, "__sklearn_tags__") else InputTags()


def values_of_lists(
    scores: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    metric: Any = "ndcg@10",
) -> np.ndarray:
    """Return the metric of each list, (lists,).

    Args:
        scores: (rows,), the scores.
        labels: (rows,), the labels.
        groups: (rows,), the index of each row's list, from 0 without gaps.
        weights: (rows,), the weights, which multiply the gains. Default: 1.
        metric: the name of the metric, or a function; see `NeuralRanker`.
    """
    order = np.argsort(groups, kind="stable")
    predicted, target = (torch.from_numpy(x[order]) for x in (scores, labels))
    lengths = torch.from_numpy(np.bincount(groups))
    factors = None if weights is None else torch.from_numpy(weights[order])
    largest = float(labels.max(initial=0))
    measure = ranking_measure(metric)
    return measure.per_list(predicted, target, lengths, largest=largest, weights=factors).numpy()


def values_of_dataset(scores: np.ndarray, lists: ListDataset, metric: Any) -> np.ndarray:
    """Return the metric of each list of a data set, float64 (lists,), for scores (documents,)."""
    groups = np.repeat(np.arange(len(lists)), lists.lengths)
    values = values_of_lists(scores, lists.relevance, groups, metric=metric)
    return values.astype(np.float64)


def mean_gain(values: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Return the mean gain of a metric over others on the same lists, and its standard error.

    Args:
        values: (lists,), the metric of each list.
        others: (lists,), the metric of each list to compare with.

    >>> mean_gain(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    (0.0, 0.5)
    """
    gain = values - others
    error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.inf
    return float(gain.mean()), float(error)

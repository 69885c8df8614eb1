"""The weighted average of the scores of several rankers."""

import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from ltr.config.folder import Saved, write_folder
from ltr.datasets import ListDataset, Schema
from ltr.datasets.prepare import RowOrder
from ltr.datasets.splits import hold_out, labels_vary
from ltr.estimators import tables as tables
from ltr.estimators.categories import columns_of, form_of, from_codes, in_form
from ltr.estimators.list_input import is_lists, read_lists
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.scoring import BlendModel, RankingEstimator, scores_of, values_of_lists
from ltr.estimators.weights import best_weights
from ltr.models import Ensemble
from ltr.shapes import check_at_least, check_number

if TYPE_CHECKING:
    from ltr.export import Exported

_SCALE_LISTS = 1000
"""The scales of the rankers are fitted on at most this many training lists."""

_LEAVES = (15, 31)
"""The default trees are fitted with each of these numbers of leaves."""


class Blend(RankingEstimator):
    """Averages the scores of several rankers, such as networks and boosted trees.

    Different kinds of rankers make different mistakes, so the average of their scores often ranks
    better than each of them. The scores of each ranker are multiplied by a constant, so that their
    standard deviation within a training list is 1 on average. Then the scores are averaged with
    weights.

    The weights are chosen for the best NDCG@10 on the validation lists. For two rankers, all
    weights that are multiples of 1/20 are tried. For more rankers, these multiples are tried for
    the weight of one ranker at a time, in rounds, until a round improves nothing or five rounds are
    over. The weights stay equal if the mean gain over equal weights, paired by list, is at most two
    standard errors. With a few hundred lists, the best weights are mostly due to chance, and equal
    weights are better on new lists.

    A ranker is any estimator with `fit(X, y)`, `predict(X)` and `get_params()`. Its `fit` gets the
    rows sorted by query, and those of the following arguments that it takes: `qid` (the index of
    each row's list), or else `group` (the sizes of the lists), or else `group_id` (the same as
    `qid`); `sample_weight`; and the validation lists as `eval_set` (or `eval_X` and `eval_y`) with
    `eval_qid` or `eval_group`. So `NeuralRanker`, `lightgbm.LGBMRanker`, `xgboost.XGBRanker`,
    `catboost.CatBoostRanker` and scikit-learn's regressors work. Rankers of LightGBM, XGBoost and
    CatBoost without a metric or cutoff of their own evaluate NDCG@10 on the validation lists. So
    their early stopping uses the metric of the blend.

    Each ranker gets columns of text and pandas' categories in the form that it accepts: LightGBM,
    XGBoost and `HistGradientBoostingRegressor` get categories. CatBoost gets text and the names of
    these columns. scikit-learn's other regressors get a column of 0 and 1 for each level. Text or
    a category that does not occur in the training lists counts as missing. Dates become numbers:
    the days since 1970-01-01, and the hour of the day in a column `NAME (hour)`; see
    `Schema.infer`. Other rankers, such as pipelines, get X unchanged. Each ranker must handle
    missing values in numeric columns itself.

    Args:
        rankers: the estimators, one or more. They are cloned, so that they do not change. Default:
            `NeuralRanker()` and LightGBM's `LGBMRanker`, which needs `ltr-torch[baselines]`. Its
            trees have at most 15 or at most 31 leaves, whichever gives the better NDCG@10 on the
            validation lists. Its early stopping uses this metric too. Without validation lists,
            `LGBMRanker` has its own defaults. If `rankers` is a `NeuralRanker`, not a list, it
            replaces the default one, and its `monotone` applies to the trees too.
        validation: the fraction of the queries that is held out to choose the weights if `fit` gets
            no `eval_set`, in [0, 1). A hash of the qid decides which queries are held out. With 0,
            or with too few queries, none are held out and the weights stay equal.
        n_jobs: the number of threads of the default trees, >= 1. Default: as OpenMP says, which is
            the environment variable `OMP_NUM_THREADS`, or one thread per core. LightGBM's own
            default is one thread per core, whatever the variable says.
        verbose: 0 prints nothing, 1 prints one line on stderr with the weights.

    Attributes:
        rankers_: the fitted rankers.
        levels_: for each column of text or categories, its levels in the training lists.
        schema_: the schema of the columns, for `ltr predict` and exports. None if X was an array,
            or had a column whose name is not text or whose levels are not all text, all numbers or
            all booleans.
        scales_: (rankers,), the constants that the scores of the rankers are multiplied by.
        weights_: (rankers,), the weights of the rankers, >= 0, which add up to 1.
        validation_score_: NDCG@10 of the blend on the validation lists; None if there are none.
        validation_queries_: the number of validation queries.
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns, if all of them are strings.

    To set a parameter of a ranker, put the lower-case name of the ranker's class and two
    underscores before the parameter's name: `set_params(lgbmranker__num_leaves=7)`. Two rankers of
    the same class are called, for example, `ridge-1` and `ridge-2`.

    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 3)), np.arange(600) // 10
    >>> y = (X[:, 0] + (X[:, 1] > 0) > 1).astype(int)
    >>> blend = Blend([Ridge(), DecisionTreeRegressor(max_depth=3, random_state=0)], verbose=0)
    >>> blend = blend.fit(X[:500], y[:500], qid=qid[:500])
    >>> blend.predict(X[500:]).shape, float(blend.weights_.sum())
    ((100,), 1.0)
    >>> blend.score(X[500:], y[500:], qid=qid[500:]) > 0.9
    True
    """

    rankers_: list[Any]
    levels_: dict[Any, pd.Index]
    schema_: Schema | None
    scales_: np.ndarray
    weights_: np.ndarray

    def __init__(
        self,
        rankers: Sequence[Any] | NeuralRanker | None = None,
        *,
        validation: float = 0.2,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> None:
        self.rankers = rankers
        self.validation = validation
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        position: Any = None,
        protected: Any = None,
        eval_set: Any = None,
        eval_qid: Any = None,
        eval_group: Any = None,
    ) -> Self:
        """Fit each ranker, the scales and the weights; see `NeuralRanker.fit` for the arguments.

        If `fit` fails, the blend stays as it was. If X is lists, they are read into memory, and
        turned back into the table that they were made from.

        If `sample_weight` has one weight per list, a ranker whose `fit` takes `qid` gets one weight
        per list. Any other ranker gets one weight per row. Only rankers whose `fit` takes
        `position` or `protected` get these arguments.

        Returns:
            The blend itself.

        Raises:
            ValueError: a parameter or an argument is out of range, the arguments do not fit
                together, `rankers` is None and LightGBM is not installed, or a ranker raises this
                error.
        """
        evaluation, schema = None, None
        given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        given |= {"position": position, "protected": protected, "eval_set": eval_set}
        given |= {"eval_qid": eval_qid, "eval_group": eval_group}
        if is_lists(X):
            data = read_lists(X, given, None, None, 0)
            schema = data.schema
            X, given = _of_lists(data.train, schema)
            if data.val is not None:
                own, labeled = _of_lists(data.val, schema)
                evaluation = own, labeled["y"], labeled["qid"], None
        else:
            evaluation = tables.one_evaluation(given)
        with self._fitting() as fitted:
            fitted._fit(X, given, evaluation)
            if schema is not None:
                fitted.schema_ = schema
        return self

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return a score for each row, float64 (rows,); the highest score of a query ranks first.

        Args:
            X: the columns of the training data. If they have names, their order does not matter,
                and X may have further columns, which the rankers do not get.
            qid: (rows,), see `fit`; passed to the rankers whose `predict` takes `qid`. It may be
                left out if none of these rankers needs it.
            group: the sizes of the lists, instead of `qid`; see `fit`.
        """
        check_is_fitted(self)
        X = self._columns(X)
        if group is not None:
            qid = np.asarray(tables.query_names(tables.row_count(X), qid, group))
        if not tables.row_count(X):
            return np.zeros(0)  # the libraries of trees refuse a table without rows
        return self.weights_ @ self._scaled(X, qid)

    @property
    def model_(self) -> BlendModel:
        """A model that scores lists, tables and files, and finds the columns by their names."""
        check_is_fitted(self)
        return BlendModel(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the blend into a folder, without pickle.

        `config.json` holds the scales, the weights and the columns. `model.safetensors` holds the
        weights of each `NeuralRanker`. Each other ranker has its own file: LightGBM's text,
        XGBoost's UBJ, CatBoost's cbm, and skops' zip for those of scikit-learn's estimators that
        skops trusts, such as linear models, but not trees. As with `NeuralRanker.save`, a reader
        finds the previous model or this one, and other files stay.

        Args:
            path: the folder, made if it is missing.

        Raises:
            ValueError: the blend is not fitted; a ranker has no safe format (the message names the
                ranker); levels are not text, numbers or booleans; or a weight is not finite.
                Nothing is written.
            OSError: a file cannot be written. The folder is then unchanged.
        """
        saved = self.saved()
        write_folder(path, saved.parts, saved.config, saved.files)

    def saved(self) -> Saved:
        """Return what `save` writes, for code that saves more in the same folder."""
        from ltr.estimators.blend_files import contents

        check_is_fitted(self)
        return contents(self, self._names_of_fitted())

    def export(
        self,
        path: str | PathLike[str],
        *,
        opset: int = 17,
        per_document: bool = False,
        single: bool = False,
        test: tuple[Any, Any, Any] | None = None,
    ) -> "Exported":
        """Write the blend as one ONNX file; see `ltr.export.export_model`.

        The file contains the transforms, the networks and the trees. Its input is the raw columns,
        and its output is one score per document. The rankers must be `NeuralRanker`s or trees of
        LightGBM and XGBoost.

        Args:
            path: a file that ends in .onnx, or a folder, which `load` can read too.
            opset: the version of the ONNX operator set.
            per_document: whether the inputs are single documents (N, d), not lists (B, n, d).
            single: whether the features are float32; see `export_model`.
            test: (X, y, qid) of test lists, for the metrics of the model card.
        """
        from ltr.estimators.blend_files import contents
        from ltr.export import export_model
        from ltr.export.blend import ExportedBlend
        from ltr.export.write import is_file

        check_is_fitted(self)
        names = self._names_of_fitted()
        module = ExportedBlend.of_blend(self, names, per_document, single)
        module.saved = None if is_file(path) else contents(self, names)
        evaluation = self._evaluation(test)
        return export_model(module, path, to="onnx", opset=opset, evaluation=evaluation)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trust: Sequence[str] = ()) -> Self:
        """Return the blend that `save` wrote; its scores are the same bit for bit.

        Loading runs no code from the files. Each library parses its own files of trees. A ranker
        of LightGBM becomes a `lightgbm.Booster`. `fit` of the loaded blend trains new rankers, with
        the parameters of the original ones.

        Args:
            path: the folder.
            trust: packages whose classes a `NeuralRanker` of the blend may use, besides `ltr` and
                `torch.nn`.

        Raises:
            ValueError: the folder holds no blend, a file is damaged or names a class that is not
                trusted, or the library of a ranker is not installed.
        """
        from ltr.estimators.blend_files import load

        return load(cls, path, trust)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; if `deep`, those of the rankers too (see the class)."""
        parameters = super().get_params(deep=False)
        for name, one in zip(_names(self._rankers()), self._rankers(), strict=True) if deep else ():
            parameters[name] = one
            own = hasattr(one, "get_params") and not isinstance(one, type)
            inner = one.get_params() if own else {}
            parameters |= {f"{name}__{key}": value for key, value in inner.items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the blend or of its rankers, or replace a ranker; return the blend."""
        if "rankers" in params:
            self.rankers = params.pop("rankers")
        names = _names(self._rankers())
        if any(name in params for name in names):
            own = zip(names, self._rankers(), strict=True)
            self.rankers = [params.pop(name, one) for name, one in own]
        super().set_params(**params)
        return self

    def _rankers(self) -> Sequence[Any]:
        """Return `rankers` if it is a list, otherwise (); `fit` checks its type."""
        return self.rankers if isinstance(self.rankers, list | tuple) else ()

    def _names_of_fitted(self) -> list[str]:
        """Return names for `rankers_`, from the classes in `rankers` if that is a list.

        After `load`, a fitted ranker of LightGBM is a `Booster`, whose class gives another name.
        """
        return _names(self._rankers() or self.rankers_)

    def _check(self) -> None:
        given = self.rankers
        if not self._rankers() and given is not None and not isinstance(given, NeuralRanker):
            raise ValueError(f"rankers must be a list of estimators or None, got {given!r}")
        for one in self._rankers():
            methods = "fit", "predict", "get_params"
            if isinstance(one, type) or not all(hasattr(one, name) for name in methods):
                raise ValueError(
                    f"rankers must have `fit`, `predict` and `get_params`, got {one!r}"
                )
        if not check_number("validation", self.validation, minimum=0) < 1:
            raise ValueError(f"validation must be in [0, 1), got {self.validation!r}")
        if self.n_jobs is not None:
            check_at_least("n_jobs", self.n_jobs, 1)

    def _fit(
        self,
        X: Any,
        given: Mapping[str, Any],
        evaluation: tuple[Any, Any, Any, Any] | None,
    ) -> None:
        self._check()
        X = tables.with_rows(X)
        validate_data(self, X, given["y"], skip_check_array=True)
        tables.check_whole_numbers(X)
        rows = tables.row_count(X)
        if not rows:
            raise ValueError("X must have at least one row, got none")
        labels = tables.as_labels(given["y"], rows)
        groups, queries = tables.list_groups(tables.query_names(rows, given["qid"], given["group"]))
        if labels.min() == labels.max():
            raise ValueError(
                f"y must not be the same everywhere, got {labels[0]:g} in all rows "
                f"(n_samples={rows}): there is nothing to learn"
            )
        weights = None
        if given["sample_weight"] is not None:
            weights = tables.row_weights(given["sample_weight"], groups, queries)
        side = tables.row_numbers({name: given[name] for name in ("position", "protected")}, rows)
        held, val, note = None, None, "equal weights, no query held out"
        if evaluation is not None:
            val, note = _Lists.read(self._columns(evaluation[0]), *evaluation[1:]), ""
        elif self.validation:
            held = hold_out(queries, self.validation, varied=labels_vary(groups, labels))
        order = RowOrder.of(groups, queries, held)
        train = _Lists.of(X, labels, order, 0, order.train)
        if held is not None:
            val = _Lists.of(X, labels, order, order.train, len(queries))
            note = f"{held.sum()} of {len(held)} queries held out for it, by a hash of the qid"
        self.levels_, self.schema_ = columns_of(train.X, {"qid": given["qid"], "label": given["y"]})
        candidates = [[one] for one in self._rankers()]
        if not candidates:
            network = self.rankers or NeuralRanker(verbose=self.verbose)
            candidates = [[network], self._default_trees(val is not None, train.X)]
        self.rankers_ = [self._best(some, train, val, weights, side) for some in candidates]
        self.scales_ = self._fit_scales(train)
        self.weights_ = np.full(len(self.rankers_), 1 / len(self.rankers_))
        self.validation_score_ = None
        self.validation_queries_ = 0
        if val is not None:
            scores = self._scaled(val.X, val.codes)
            self.weights_ = best_weights(len(scores), lambda x: val.ndcg(x @ scores))
            self.validation_score_ = float(val.ndcg(self.weights_ @ scores).mean())
            self.validation_queries_ = len(val.sizes)
        if self.verbose:
            self._tell(note)

    def _default_trees(self, validated: bool, X: Any) -> list[Any]:
        """Return the unfitted candidates for the trees of `Blend()`.

        Args:
            validated: whether there are validation lists, for early stopping and to choose the
                number of leaves.
            X: the columns, for the directions of `monotone`.

        Raises:
            ValueError: LightGBM is not installed.
        """
        try:
            trees = import_module("lightgbm").LGBMRanker
        except ImportError:
            raise ValueError("Blend() needs LightGBM: pip install 'ltr-torch[baselines]'") from None
        given: dict[str, Any] = {"n_jobs": self.n_jobs or 0, "verbose": -1}  # 0: as OpenMP says
        if directions := self._directions(X):
            given["monotone_constraints"] = directions
        if not validated:
            return [trees(**given)]
        given |= {"n_estimators": 1000, "learning_rate": 0.05, "early_stopping_round": 50}
        given |= {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
        return [trees(num_leaves=leaves, **given) for leaves in _LEAVES]

    def _directions(self, X: Any) -> list[int]:
        """Return the direction of each column that the trees get; [] without `monotone`."""
        given = getattr(self.rankers, "monotone", None)
        if not given:
            return []
        if not tables.is_frame(X):
            return [given.get(f"x{i}", 0) for i in range(X.shape[1])]
        return [given.get(x, 0) for x in in_form(X, self.levels_, "categories", self.schema_)]

    def _columns(self, X: Any) -> Any:
        """Check X and return it; if its columns have names, only the training columns, in order."""
        X = tables.by_name(self, tables.with_rows(X))
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _best(
        self,
        candidates: Sequence[Any],
        train: "_Lists",
        val: "_Lists | None",
        weights: tuple[np.ndarray, bool] | None,
        side: dict[str, np.ndarray],
    ) -> Any:
        """Fit the candidates, and return the one with the best NDCG@10 on the validation lists.

        Among equally good candidates, and without validation lists, the first one is returned.
        """
        fitted = [self._fitted(clone(one), train, val, weights, side) for one in candidates]
        if val is None or len(fitted) == 1:
            return fitted[0]
        return max(fitted, key=lambda one: val.ndcg(self._scores_of(one, val.X, val.codes)).mean())

    def _fitted(
        self,
        ranker: Any,
        train: "_Lists",
        val: "_Lists | None",
        weights: tuple[np.ndarray, bool] | None,
        side: dict[str, np.ndarray],
    ) -> Any:
        """Fit a ranker with the arguments that its `fit` takes, and return the ranker."""
        takes, form = inspect.signature(ranker.fit).parameters, form_of(ranker)
        given: dict[str, Any] = {}
        if "qid" in takes:
            given["qid"] = train.codes
        elif "group" in takes:
            given["group"] = train.sizes
        elif "group_id" in takes:  # CatBoost calls it `group_id`
            given["group_id"] = train.codes
        if form == "text":
            given["cat_features"] = [*self.levels_]
        elif form == "categories" and self.levels_ and hasattr(ranker, "enable_categorical"):
            ranker.set_params(enable_categorical=True)  # XGBoost needs this for categories
        if weights is not None:
            if "sample_weight" not in takes:
                raise ValueError(f"sample_weight must be None for {ranker!r}, which takes none")
            of_rows, of_lists = weights
            first = np.cumsum(train.sizes) - train.sizes
            by_list = of_lists and "qid" in takes
            # CatBoost's losses on lists refuse weights of rows.
            name = "group_weight" if of_lists and "group_weight" in takes else "sample_weight"
            given[name] = of_rows[train.rows[first] if by_list else train.rows]
        given |= {name: values[train.rows] for name, values in side.items() if name in takes}
        if val is not None:
            own = in_form(val.X, self.levels_, form, self.schema_)
            given |= _evaluation(takes, own, val, given) | _stopping(ranker, takes)
        ranker.fit(in_form(train.X, self.levels_, form, self.schema_), train.labels, **given)
        return ranker

    def _scores_of(self, ranker: Any, X: Any, qid: Any) -> np.ndarray:
        """Return the scores (rows,) of a fitted ranker, not scaled."""
        own = in_form(X, self.levels_, form_of(ranker), self.schema_)
        return scores_of(ranker, own, qid)

    def _scores(self, X: Any, qid: Any) -> np.ndarray:
        """Return the scores (rankers, rows), not scaled."""
        return np.stack([self._scores_of(one, X, qid) for one in self.rankers_])

    def _fit_scales(self, train: "_Lists") -> np.ndarray:
        """Return the scales (rankers,) of the scores, fitted as in an `Ensemble`."""
        sizes = train.sizes[:_SCALE_LISTS]
        some = np.arange(sizes.sum())
        scores = torch.from_numpy(self._scores(_take(train.X, some), train.codes[some]))
        ensemble = Ensemble(members=len(self.rankers_))
        ensemble.fit_scales(scores, torch.from_numpy(sizes))
        return ensemble.scales.double().numpy()

    def _scaled(self, X: Any, qid: Any) -> np.ndarray:
        """Return the scores (rankers, rows) times the scales."""
        return self._scores(X, qid) * self.scales_[:, None]

    def _tell(self, note: str) -> None:
        shares = zip(self.weights_, self._names_of_fitted(), strict=True)
        parts = ["weights " + ", ".join(f"{weight:.2f} {name}" for weight, name in shares)]
        if self.validation_score_ is not None:
            parts.append(f"validation NDCG@10 {self.validation_score_:.4f}")
        sys.stderr.write(f"Blend: {'; '.join([*parts, note] if note else parts)}\n")


def _names(rankers: Sequence[Any]) -> list[str]:
    """Return the lower-case class names of rankers, numbered if a class occurs more than once."""
    names = [type(one).__name__.lower() for one in rankers]
    total, seen, found = Counter(names), Counter(), []
    for name in names:
        seen[name] += 1
        found.append(f"{name}-{seen[name]}" if total[name] > 1 else name)
    return found


def _of_lists(lists: ListDataset, schema: Schema) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the table that lists were made from, and the other arguments of `fit`."""
    for name, width in schema.features.items():
        if width > 1 and name not in schema.dates:
            raise ValueError(f"column {name!r}: the rankers of a blend take no lists of numbers")
    levels = {
        name: pd.Index(one.levels if one.kind == "string" else pd.to_numeric([*one.levels]))
        for name, one in schema.categories.items()
        if one.kind != "boolean"
    }
    codes = np.zeros((len(lists.features), 0), np.int64)
    codes = codes if lists.categories is None else lists.categories
    table = from_codes(schema, levels, lists.features, codes)
    given = {"y": lists.labels, "qid": np.repeat(np.arange(len(lists)), lists.lengths)}
    given |= {"group": None, "sample_weight": lists.weight}
    return table, given | {"position": lists.position, "protected": lists.protected}


@dataclass
class _Lists:
    """Rows that are sorted by query.

    Attributes:
        X: (rows, columns), a table or an array.
        labels: (rows,).
        rows: (rows,), the index of each row in the original X.
        sizes: (lists,), the number of rows of each list.
    """

    X: Any
    labels: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, X: Any, labels: np.ndarray, order: RowOrder, start: int, stop: int) -> "_Lists":
        """Return the lists with an index from `start` to `stop` - 1 in the given order."""
        offsets = order.offsets[start : stop + 1]
        rows = order.rows[offsets[0] : offsets[-1]]
        return cls(_take(X, rows), labels[rows], rows, np.diff(offsets))

    @classmethod
    def read(cls, X: Any, y: Any, qid: Any, group: Any) -> "_Lists":
        """Return the lists of the validation arguments of `fit`, checked and sorted by query."""
        rows = tables.row_count(X)
        labels = tables.as_labels(y, rows)
        order = RowOrder.of(*tables.list_groups(tables.query_names(rows, qid, group, "eval_")))
        return cls.of(X, labels, order, 0, order.train)

    @property
    def codes(self) -> np.ndarray:
        """The index of each row's query, from 0 without gaps."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def ndcg(self, scores: np.ndarray) -> np.ndarray:
        """Return NDCG@10 of each list, (lists,), for scores (rows,)."""
        return values_of_lists(scores, self.labels, self.codes)


def _evaluation(
    takes: Mapping[str, Any], X: Any, val: _Lists, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the validation arguments that a `fit` takes."""
    if "group_id" in takes:  # CatBoost has no argument for validation qids
        pool = import_module("catboost").Pool
        more = {"group_id": val.codes, "cat_features": given.get("cat_features")}
        return {"eval_set": pool(X, val.labels, **more)}
    if "eval_X" in takes:  # LightGBM warns if `eval_set` is used
        found: dict[str, Any] = {"eval_X": (X,), "eval_y": (val.labels,)}
    elif "eval_set" in takes:
        found = {"eval_set": [(X, val.labels)]}
    else:
        return {}
    if "verbose" in takes:  # by default, XGBRegressor prints its metric after each round
        found["verbose"] = False
    if "eval_qid" in takes:
        found["eval_qid"] = [val.codes]
    elif "eval_group" in takes:
        found["eval_group"] = [val.sizes]
    return found


def _stopping(ranker: Any, takes: Mapping[str, Any]) -> dict[str, Any]:
    """Let a ranker without a metric of its own stop early on NDCG@10; return arguments of `fit`.

    By default, LightGBM stops as soon as one of NDCG@1 to NDCG@5 no longer improves, XGBoost
    evaluates NDCG@32, and CatBoost evaluates the NDCG of whole lists or its loss.
    """
    if "eval_at" in takes:  # in LightGBM, a cutoff in the constructor has priority
        return {"eval_at": (10,)}
    own = ranker.get_params()
    if own.get("eval_metric") is None:
        if "group_id" in takes:
            ranker.set_params(eval_metric="NDCG:top=10;type=Exp")
        elif "eval_metric" in own and "eval_qid" in takes:
            ranker.set_params(eval_metric="ndcg@10")
    return {}


def _take(X: Any, rows: np.ndarray) -> Any:
    """Return the given rows of a table or an array."""
    if isinstance(X, pa.Table):
        return X.take(pa.array(rows))
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]

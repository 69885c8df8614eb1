"""The weighted average of the scores of several rankers."""

import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain, islice
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from ltr.config.folder import Saved, write_folder
from ltr.datasets import Schema
from ltr.datasets.prepare import Prepared
from ltr.datasets.reading import RowOrder
from ltr.datasets.table_notices import warn_caller
from ltr.estimators import tables as tables
from ltr.estimators.habits import check_others
from ltr.estimators.list_input import is_lists, read_data
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.parameters import device, max_levels
from ltr.estimators.scoring import SavedEstimator, values_of_lists
from ltr.estimators.weights import best_weights
from ltr.models.blend import BlendModel, Member, Rows, columns_for
from ltr.models.ensemble import SCALE_LISTS, Ensemble
from ltr.models.predictor import in_row_order
from ltr.models.trees import (
    is_booster,
    library_of,
    set_names,
    takes_relative,
    tree_categories,
    tree_positions,
)
from ltr.shapes import check_at_least, check_fraction

_LEAVES = (15, 31)
"""The default trees are fitted with each of these numbers of leaves."""


class Blend(SavedEstimator):
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
    their early stopping uses the metric of the blend. A `Booster` of LightGBM or XGBoost, the
    result of their `train`, is not trained again: it is scaled and weighed only. So train it on
    other lists than the validation lists.

    All rankers share one schema, that of `NeuralRanker`: it says which columns are numbers,
    categories or dates, and which are left out; see `Schema.infer`. Networks get lists. Trees (of
    LightGBM, XGBoost and CatBoost, and `HistGradientBoostingRegressor`) get the numbers in float64
    as they were read, dates as the days since 1970-01-01 and the hour of the day, booleans as 0 and
    1, and categories as the indices of their levels (CatBoost from 1, with 0 for a missing value).
    A category with more levels than `HistGradientBoostingRegressor` allows is a number there. The
    columns are in the order of X, and are called x0, x1 and so on, because the libraries refuse
    some names. `monotone_constraints` and the like may use the names of X. Any other ranker, such
    as a linear model or a pipeline, gets the rows of X as they are. It must handle text and missing
    values itself; it takes no lists, and a blend with it cannot be saved.

    Args:
        rankers: the estimators or `Booster`s, one or more. They are cloned, so that they do not
            change. Default: `NeuralRanker()` and LightGBM's `LGBMRanker`, which needs
            `ltr-torch[baselines]`. Its trees have at most 15 or at most 31 leaves, whichever gives
            the better NDCG@10 on the validation lists. Its early stopping uses this metric too.
            Without validation lists, `LGBMRanker` has its own defaults. If `rankers` is a
            `NeuralRanker`, not a list, it replaces the default one, and its `monotone` applies to
            the trees too.
        validation: the fraction of the queries that is held out to choose the weights if `fit` gets
            no `eval_set`, in [0, 1). A hash of the qid decides which queries are held out. With 0,
            or with too few queries, none are held out and the weights stay equal.
        n_jobs: the number of cores to fit on, >= 1. With several, rankers are fitted at the same
            time, each in a process of its own, and the default trees share the cores. Trees that
            may get columns relative to the list wait for the networks. The scores are the same,
            if `random_state` of each ranker is a number and each has the same number of threads.
            Default: one ranker after the other, and as many threads as OpenMP says for the default
            trees. That is the environment variable `OMP_NUM_THREADS`, or one thread per core.
            LightGBM's own default is one thread per core, whatever the variable says.
        verbose: 0 prints nothing, 1 prints one line on stderr with the weights.

    Attributes:
        rankers_: the fitted rankers.
        schema_: the schema of the columns, with the levels of the categories in the training lists.
            Columns of an array are called x0, x1 and so on.
        relative_: (rankers,), whether each ranker is of trees that get columns relative to the
            list: the rank of each number within its list, and its difference from the list's mean
            in standard deviations. Trees without constraints get these columns if a network of the
            blend does; see `NeuralRanker(relative="auto")`. `predict` then needs `qid`.
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
    columns_: list[str]
    schema_: Schema
    relative_: list[bool]
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
        **others: Any,
    ) -> Self:
        """Fit each ranker, the scales and the weights; see `NeuralRanker.fit` for the arguments.

        Of `others`, `categorical_feature` makes columns categories, and `eval_metric` and `eval_at`
        may name NDCG@10. Any other argument of `LGBMRanker.fit` is an error that says what to do.

        If `fit` fails, the blend stays as it was. If X is lists, they are read into memory, and
        trees get their float32 numbers.

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
        given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        given |= {"position": position, "protected": protected, "eval_set": eval_set}
        given |= {"eval_qid": eval_qid, "eval_group": eval_group}
        given["categorical_feature"] = others.get("categorical_feature")
        check_others(others, "ndcg@10", "Blend")
        with self._fitting() as fitted:
            fitted._fit(X, given)
        return self

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return a score for each row, float64 (rows,); the highest score of a query ranks first.

        Args:
            X: the columns of the training data. If they have names, their order does not matter,
                and X may have further columns, which the rankers do not get. Or the path of a
                table (CSV, Parquet or LETOR text: a file, a folder or a pattern), the folder of
                `ltr convert`, or a `ListDataset`. These bring their own queries, so `qid` and
                `group` must be None. The scores are in the order of the rows, or of the documents
                of a `ListDataset`.
            qid: (rows,), see `fit`. It is needed only if a ranker looks at the whole list.
            group: the sizes of the lists, instead of `qid`; see `fit`.

        Raises:
            ValueError: a column is missing or has another type than in training, or `qid` and
                `group` are missing but needed.
        """
        model = self.model_
        if is_lists(X):
            return self._predict_lists(X, qid, group)
        X = tables.by_name(self, tables.with_rows(X))
        frame = tables.as_table(self, X)
        names = self._queries(model, frame.num_rows, qid, group)
        order = None if names is None else RowOrder.of(*tables.list_groups(names))
        rows = Rows.of_frame(self.schema_, frame, order, X)
        return in_row_order(model.score_rows(rows), rows.lists)

    @property
    def model_(self) -> BlendModel:
        """A model that scores lists, tables and files, and finds the columns by their names."""
        check_is_fitted(self)
        given = self._rankers() or self.rankers_
        arguments = zip(self._names_of_fitted(), self.rankers_, given, self.relative_, strict=True)
        members = [_member(*of_member) for of_member in arguments]
        return BlendModel(members, self.schema_, self.columns_, self.scales_, self.weights_)

    @property
    def _predictor(self) -> tuple[BlendModel, dict[str, Any]]:
        return self.model_, {}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the blend into a folder, without pickle.

        `config.json` holds the scales, the weights and the schema. One file holds the weights of
        each `NeuralRanker`. Each other ranker has its own file: LightGBM's text, XGBoost's UBJ or
        CatBoost's cbm. As with `NeuralRanker.save`, a killed process leaves the previous model or
        this one, and other files stay.

        Args:
            path: the folder, made if it is missing.

        Raises:
            ValueError: the blend is not fitted; a ranker has no safe format (the message names the
                ranker); or a weight is not finite. Nothing is written.
            OSError: a file cannot be written. The folder is then unchanged.
        """
        write_folder(path, self.saved())

    def saved(self) -> Saved:
        """Return what `save` writes, for code that saves more in the same folder."""
        from ltr.estimators.blend_files import contents

        check_is_fitted(self)
        return contents(self, self._names_of_fitted())

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
        rankers = self._rankers() if deep else ()
        for name, ranker in zip(_names(rankers), rankers, strict=True):
            parameters[name] = ranker
            own = hasattr(ranker, "get_params") and not isinstance(ranker, type)
            inner = ranker.get_params() if own else {}
            parameters |= {f"{name}__{key}": value for key, value in inner.items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the blend or of its rankers, or replace a ranker; return the blend."""
        if "rankers" in params:
            self.rankers = params.pop("rankers")
        names = _names(self._rankers())
        if any(name in params for name in names):
            own = zip(names, self._rankers(), strict=True)
            self.rankers = [params.pop(name, ranker) for name, ranker in own]
        super().set_params(**params)
        return self

    def _rankers(self) -> Sequence[Any]:
        """Return `rankers` if it is a list, otherwise (); `fit` checks its type."""
        return self.rankers if isinstance(self.rankers, list | tuple) else ()

    def _members(self) -> Sequence[Any]:
        """Return the rankers that get X; the default trees take what the networks take."""
        return self._rankers() or ([self.rankers] if self.rankers is not None else [])

    def _names_of_fitted(self) -> list[str]:
        """Return names for `rankers_`, from the classes in `rankers` if that is a list.

        After `load`, a fitted ranker of LightGBM is a `Booster`, whose class gives another name.
        """
        return _names(self._rankers() or self.rankers_)

    def _check(self) -> None:
        given = self.rankers
        if not self._rankers() and given is not None and not isinstance(given, NeuralRanker):
            raise ValueError(f"rankers must be a list of estimators or None, got {given!r}")
        for ranker in self._rankers():
            methods = "fit", "predict", "get_params"
            made = not isinstance(ranker, type) and all(hasattr(ranker, name) for name in methods)
            if not made and not is_booster(ranker):
                raise ValueError(
                    f"rankers must have `fit`, `predict` and `get_params`, or be a Booster, got "
                    f"{ranker!r}"
                )
        check_fraction("validation", self.validation, zero=True)
        if self.n_jobs is not None:
            check_at_least("n_jobs", self.n_jobs, 1)

    def _fit(self, X: Any, given: Mapping[str, Any]) -> None:
        self._check()
        data, X, X_val, note = self._read(X, given)
        warn_caller(data.notice)
        self.schema_ = data.schema
        train = Rows.of(data.schema, data.train, data.exact, X)
        val = None
        if data.val is not None:
            val = Rows.of(data.schema, data.val, data.exact_val, X_val)
        if train.labels.min() == train.labels.max():
            raise ValueError(
                f"y must not be the same everywhere, got {train.labels[0]:g} in all rows "
                f"(n_samples={len(train.labels)}): there is nothing to learn"
            )
        candidates = [[ranker] for ranker in self._rankers()]
        if not candidates:
            network = self.rankers or NeuralRanker(verbose=self.verbose)
            candidates = [[network], self._default_trees(val is not None)]
        for ranker in chain.from_iterable(candidates):
            _check_takes(ranker, train)
        networks = [at for at, x in enumerate(candidates) if isinstance(x[0], NeuralRanker)]
        # The networks decide whether the trees that wait for them get columns relative to the list.
        waiting = [at for at, x in enumerate(candidates) if networks and takes_relative(x[0])]
        others = [at for at in range(len(candidates)) if at not in waiting]
        self.rankers_ = [None] * len(candidates)
        self.relative_ = [False] * len(candidates)
        relative = False
        for group in (others, waiting):
            own = [candidates[at] for at in group]
            fitted = self._fit_all(own, train, val, data.list_weights, relative)
            for at, ranker in zip(group, fitted, strict=True):
                self.rankers_[at], self.relative_[at] = ranker, relative
            relative = any(self.rankers_[at].settings_["relative"] for at in networks)
        self.weights_ = np.full(len(self.rankers_), 1 / len(self.rankers_))
        self.scales_ = np.ones(len(self.rankers_))
        self.scales_ = self._fit_scales(train)
        self.validation_score_ = None
        self.validation_queries_ = 0
        if val is not None:
            scores = self.model_.scaled(val)
            self.weights_ = best_weights(len(scores), lambda x: _ndcg(val, x @ scores))
            self.validation_score_ = float(_ndcg(val, self.weights_ @ scores).mean())
            self.validation_queries_ = len(val.lists)
        if self.verbose:
            self._tell("equal weights, no query held out" if val is None else note)

    def _read(self, X: Any, given: Mapping[str, Any]) -> tuple[Prepared, Any, Any, str]:
        """Return the lists, the tables that they and the validation lists were made from, or None.

        The last result says in words which of the lists were held out for validation.
        """
        of_lists = is_lists(X)
        if not of_lists:
            X = tables.with_rows(X)
            if not tables.row_count(X):
                raise ValueError("X must have at least one row, got none")
        # The members share the levels of the one that asks for the most.
        networks = [member for member in self._members() if isinstance(member, NeuralRanker)]
        networks = networks or [NeuralRanker()]
        data, note = read_data(
            self,
            X,
            given,
            tables.row_numbers,
            validation=self.validation,
            max_levels=lambda documents: max(max_levels(x, documents) for x in networks),
            exact=True,
        )
        if len(labels := data.schema.labels) > 1:
            raise ValueError(
                f"y must be one label for a Blend, got {', '.join(labels)}: NeuralRanker takes "
                "several, and trees by ltr.boosting.objective"
            )
        if not of_lists:
            pair = tables.one_evaluation(given)
            X_val = X if pair is None else tables.by_name(self, tables.with_rows(pair[0]))
            return data, X, X_val, note
        train, val = data.train.in_memory(), None if data.val is None else data.val.in_memory()
        return replace(data, train=train, val=val), None, None, note

    def _default_trees(self, validated: bool) -> list[Any]:
        """Return the unfitted candidates for the trees of `Blend()`.

        Args:
            validated: whether there are validation lists, for early stopping and to choose the
                number of leaves.

        Raises:
            ValueError: LightGBM is not installed.
        """
        try:
            trees = import_module("lightgbm").LGBMRanker
        except ImportError:
            raise ValueError("Blend() needs LightGBM: pip install 'ltr-torch[baselines]'") from None
        count = len(_LEAVES) if validated else 1
        threads = max(1, self.n_jobs // count) if self.n_jobs else 0  # 0: as OpenMP says
        given: dict[str, Any] = {"n_jobs": threads, "verbose": -1}
        if directions := getattr(self.rankers, "monotone", None):
            known = [*self.schema_.feature_names, *self.schema_.categories]
            own = [directions.get(known[at], 0) for at in self._tree_positions]
            given["monotone_constraints"] = own
        if not validated:
            return [trees(**given)]
        given |= {"n_estimators": 1000, "learning_rate": 0.05, "early_stopping_round": 50}
        given |= {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
        return [trees(num_leaves=leaves, **given) for leaves in _LEAVES]

    @property
    def _tree_positions(self) -> list[int]:
        """The order in which trees get features and categories."""
        return tree_positions(self.schema_, self.columns_)

    def _fit_all(
        self,
        candidates: Sequence[Sequence[Any]],
        train: Rows,
        val: Rows | None,
        list_weights: bool,
        relative: bool,
    ) -> list[Any]:
        """Fit all candidates, and return the best of each group by NDCG@10 on validation lists.

        Among equally good candidates, and without validation lists, the first one is the best.
        """
        lists = train, val, list_weights, self._tree_positions, relative
        calls = [partial(_fitted, ranker, *lists) for ranker in chain.from_iterable(candidates)]
        processes = min(self.n_jobs or 1, len(calls))
        if processes > 1:
            parallel = Parallel(n_jobs=processes, mmap_mode="c")  # no process changes an array
            fitted = iter(parallel(delayed(call)() for call in calls))
        else:
            fitted = (call() for call in calls)
        return [self._best([*islice(fitted, len(x))], val, relative) for x in candidates]

    def _best(self, fitted: Sequence[Any], val: Rows | None, relative: bool) -> Any:
        """Return the fitted ranker with the best NDCG@10 on the validation lists."""
        if val is None or len(fitted) == 1:
            return fitted[0]
        members = [_member("", ranker, ranker, relative) for ranker in fitted]
        means = [_ndcg(val, member.scores(val, self._tree_positions)).mean() for member in members]
        return fitted[int(np.argmax(means))]

    def _fit_scales(self, train: Rows) -> np.ndarray:
        """Return the scales (rankers,) of the scores, fitted as in an `Ensemble`."""
        sample = train.first(SCALE_LISTS)
        ensemble = Ensemble(members=len(self.rankers_))
        scores = torch.from_numpy(self.model_.scaled(sample))
        ensemble.fit_scales(scores, torch.from_numpy(sample.lists.lengths))
        return ensemble.scales.double().numpy()

    def _tell(self, note: str) -> None:
        shares = zip(self.weights_, self._names_of_fitted(), strict=True)
        parts = ["weights " + ", ".join(f"{weight:.2f} {name}" for weight, name in shares)]
        if self.validation_score_ is not None:
            parts.append(f"validation ndcg@10 {self.validation_score_:.4f}")
        sys.stderr.write(f"Blend: {'; '.join([*parts, note] if note else parts)}\n")


def _names(rankers: Sequence[Any]) -> list[str]:
    """Return the lower-case class names of rankers, numbered if a class occurs more than once."""
    names = [type(ranker).__name__.lower() for ranker in rankers]
    total, seen, unique = Counter(names), Counter(), []
    for name in names:
        seen[name] += 1
        unique.append(f"{name}-{seen[name]}" if total[name] > 1 else name)
    return unique


def _member(name: str, fitted: Any, given: Any, relative: bool) -> Member:
    """Return a fitted ranker as a member of the model; `given` is the ranker before `fit`."""
    if isinstance(fitted, NeuralRanker):
        return Member(name, fitted.model_, device=device(fitted))
    return Member(name, fitted, is_booster(given), relative)


def _ndcg(rows: Rows, scores: np.ndarray) -> np.ndarray:
    """Return NDCG@10 of each list, (lists,), for scores (rows,)."""
    return values_of_lists(scores, rows.labels, rows.groups)


def _fitted(
    given: Any,
    train: Rows,
    val: Rows | None,
    list_weights: bool,
    positions: Sequence[int],
    relative: bool,
) -> Any:
    """Return a fitted copy of a ranker; a trained `Booster` is returned as it is.

    Args:
        given: the ranker.
        train: the rows to train on.
        val: the rows of the validation lists, or None.
        list_weights: whether the weights are those of lists, not of rows.
        positions: see `tree_positions`.
        relative: whether trees get columns relative to the list too.
    """
    if is_booster(given):
        return given
    ranker: Any = clone(given)
    if isinstance(ranker, NeuralRanker):
        own = None if val is None else val.lists
        lists = Prepared(train.schema, train.lists, own, list_weights=list_weights, divided=True)
        return ranker.fit(lists)
    takes = inspect.signature(ranker.fit).parameters
    arguments = _of_lists(takes, train, list_weights)
    if (library := library_of(ranker)) is not None:
        set_names(ranker, train.schema, positions)
        categories = tree_categories(train.schema, positions)
        if library == "catboost":
            arguments["cat_features"] = categories
        elif categories and hasattr(ranker, "enable_categorical"):
            ranker.set_params(enable_categorical=True)  # XGBoost needs this for categories
    if val is not None:
        X = columns_for(ranker, val, positions, relative=relative)
        arguments |= _evaluation(takes, X, val, arguments) | _stopping(ranker, takes)
    X = columns_for(ranker, train, positions, relative=relative)
    ranker.fit(X, train.labels, **arguments)
    return ranker


def _check_takes(ranker: Any, train: Rows) -> None:
    """Raise a `ValueError` if a ranker cannot be fitted on these rows, before another is fitted."""
    if isinstance(ranker, NeuralRanker) or is_booster(ranker):
        return
    if train.lists.weight is not None and not {"sample_weight", "group_weight"} & {
        *inspect.signature(ranker.fit).parameters
    }:
        raise ValueError(f"sample_weight must be None for {ranker!r}, which takes none")
    if library_of(ranker) is None and train.X is None:
        raise ValueError(
            "rankers must be NeuralRankers or trees of LightGBM, XGBoost or CatBoost if X is "
            f"lists, got {ranker!r}"
        )


def _of_lists(takes: Mapping[str, Any], train: Rows, list_weights: bool) -> dict[str, Any]:
    """Return the lists, weights and side inputs that a `fit` takes."""
    given: dict[str, Any] = {}
    if "qid" in takes:
        given["qid"] = train.groups
    elif "group" in takes:
        given["group"] = train.lists.lengths
    elif "group_id" in takes:  # CatBoost calls it `group_id`
        given["group_id"] = train.groups
    lists = train.lists
    if lists.weight is not None:
        first = lists.offsets[:-1]
        weights = lists.weight.astype(np.float64)
        # CatBoost's losses on lists refuse weights of rows.
        name = "group_weight" if list_weights and "group_weight" in takes else "sample_weight"
        given[name] = weights[first] if list_weights and "qid" in takes else weights
    side = {"position": lists.position, "protected": lists.protected}
    return given | {name: x for name, x in side.items() if x is not None and name in takes}


def _evaluation(
    takes: Mapping[str, Any], X: Any, val: Rows, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the validation arguments that a `fit` takes."""
    if "group_id" in takes:  # CatBoost has no argument for validation qids
        pool = import_module("catboost").Pool
        pool_options = {"group_id": val.groups, "cat_features": given.get("cat_features")}
        return {"eval_set": pool(X, val.labels, **pool_options)}
    if "eval_X" in takes:  # LightGBM warns if `eval_set` is used
        arguments: dict[str, Any] = {"eval_X": (X,), "eval_y": (val.labels,)}
    elif "eval_set" in takes:
        arguments = {"eval_set": [(X, val.labels)]}
    else:
        return {}
    if "verbose" in takes:  # by default, XGBRegressor prints its metric after each round
        arguments["verbose"] = False
    if "eval_qid" in takes:
        arguments["eval_qid"] = [val.groups]
    elif "eval_group" in takes:
        arguments["eval_group"] = [val.lists.lengths]
    return arguments


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

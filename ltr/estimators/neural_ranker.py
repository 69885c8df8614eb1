"""A neural ranker that is used like the rankers of LightGBM and XGBoost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ltr.config.folder import Saved, write_folder
from ltr.datasets import FeatureTransform, ListDataset, Schema
from ltr.datasets.list_tables import of_columns
from ltr.datasets.lists import constant_label
from ltr.datasets.table_notices import warn_caller
from ltr.estimators import tables as tables
from ltr.estimators.columns import (
    Column,
    all_kept,
    choose_columns,
    column_names,
)
from ltr.estimators.habits import check_callbacks, check_others
from ltr.estimators.list_input import is_lists, read_data
from ltr.estimators.parameters import (
    Columns,
    Effort,
    Relative,
    Schedule,
    Settings,
    check_monotone,
    check_parameters,
    device,
    is_auto,
    kinds,
    loss_of,
    max_levels,
    settings,
)
from ltr.estimators.scoring import SavedEstimator
from ltr.estimators.screening import Trial, choose_settings, evenly, try_out
from ltr.losses import RankingLoss, SeveralLabels
from ltr.metrics.named import ranking_measure
from ltr.models import Ensemble, RankingModel, Scorer

Callback = Callable[[list[list[float]]], Any]


class NeuralRanker(SavedEstimator):
    """Ranks the rows of a table by the average score of networks trained with a ranking loss.

    The data has the same form as for `lightgbm.LGBMRanker` and `xgboost.XGBRanker`, and the class
    follows scikit-learn's conventions. Values may be missing. Text, booleans, categorical columns
    and dates are encoded; see `Schema.infer`.

    Args:
        effort: "fast", "default" or "best". It sets the arguments that are None, depending on the
            number of training rows and the kind of the networks; see `settings_`. "fast" trains one
            network; from 30,000 rows on, it trains one network of periodic embeddings, or two of
            bins, for a few epochs. "best" trains twice as many members as the default; those of
            bins are `CrossScorer`s.
        columns: "all" or "useful". With "useful", one member is trained first, and each column is
            shuffled on the validation lists. Columns are dropped if shuffling them, alone and
            together, hardly lowers the metric; see `selected_`. Default: "useful" from 30,000
            training rows on, if there are validation lists.
        relative: True, False or "auto": whether the networks also get columns relative to the list,
            the rank of each number within its list and its difference from the list's mean, in
            standard deviations of the list. A score then depends on the list, so that `predict`
            needs `qid`; the line that `fit` prints says so. With "auto", two linear models are
            fitted, with these columns and without. If the metric of the validation lists gains more
            than one standard error by them, one network is trained for a short time with these
            columns and one without. The columns are kept if the metric gains more than two standard
            errors. "auto" is False
            without validation lists, with fewer than 100 of them, with a `transform` of your own,
            and with `monotone`.
        scorer: the network, made without `num_features`; each member is a copy of it.
            Default: `MLPScorer(hidden=(128, 64))` ("best": `CrossScorer(hidden=(128, 64))`); with
            periodic embeddings `MLPScorer(hidden=(128, 64), activation=nn.SiLU)`.
        loss: the loss that training minimizes. Default: `XENDCG(gamma="random")`; with several
            labels, a `SeveralLabels` of it, with weight 1 for each label.
        transform: the transform of the columns into the scorer's input. Default:
            `TableTransform(Join([PiecewiseLinearBins(4, thresholds=8), Standardize()]))`, networks
            of bins. From 30,000 training rows on, if there are validation lists, and `scorer` and
            `monotone` are None, a network of `TableTransform(PeriodicEmbedding())` is tried too.
            One member of each kind is trained for a short time; the validation lists decide.
        monotone: a dict such as `{"price": -1, "rating": 1}`, which sets for numeric columns
            whether the score may only rise (1) or only fall (-1) as the value rises. The networks
            are then `MonotoneScorer`s. Missing values are exempt. Columns of an array are called
            x0, x1 and so on. Default: None; no column is restricted.
        members: the number of networks that are trained and averaged, >= 1. They differ only by
            random draws. Default: 5 ("best": 10; "fast": 1, and 2 from 30,000 rows on); with
            periodic embeddings, which the members share, 3 ("best": 6; "fast": 1).
        learning_rate: the learning rate of AdamW. Default: 3e-3; with periodic embeddings 6e-3.
        schedule: "constant" or "cycle". With "cycle", the learning rate rises in the first tenth of
            the steps of `max_epochs`, and then decreases to 0 along half a cosine wave. Default:
            "constant", and "cycle" from 30,000 rows on.
        weight_decay: the weight decay of AdamW.
        batch_size: the number of lists per training step.
        max_epochs: the largest number of passes over the training lists. Default: 100. With a
            cycle, the number that gives 2,000 steps, but at least 5 and at most 15 (periodic
            embeddings: 6; "fast" from 30,000 rows on: 5). If this gives fewer than 300 steps, it is
            the number that gives 300, but at most 100.
        metric: the name of the metric for early stopping and `score`, such as "ndcg@10" (the
            default), "mrr@10" or "map"; see `ltr.reports.evaluate`. Or a function of the labels,
            the scores and the qids of one list, numpy arrays (items,), that returns a number,
            higher for a better ranking; its mean over the lists is used. Or an object of a class
            of `ltr.metrics`, such as `MRR(top_k=5)`, or of your own.
        patience: a member stops when its metric on the validation lists has not risen for this
            many epochs, and keeps the weights of its best epoch. Default: 3, or the number that
            gives 40 steps if 3 epochs give fewer; with a cycle, at least a third of `max_epochs`.
        validation: the fraction of the queries that is held out for early stopping if `fit` gets no
            `eval_set`, in [0, 1). A hash of the qid decides, so a query is always or never held
            out. With 0, or with too few queries, none are held out, and training runs for
            `max_epochs` epochs.
        max_levels: the largest number of levels of a category that get a code of their own. They
            are the most frequent ones. All other levels get the code of missing values. Default:
            256, and 1,024 from 30,000 rows on.
        warm_start: whether another `fit` continues from the existing weights, with the same columns
            and transform.
        device: "auto" (a CUDA device if there is one), "cpu", "cuda", "cuda:1" or "mps".
        random_state: a number, a `numpy.random.RandomState` or None, as in scikit-learn. With the
            same number, `fit` gives the same result each time, on a CPU bit for bit.
        verbose: 0 prints nothing. 1 prints one line on stderr; on a terminal, each epoch overwrites
            it. 2 shows a progress bar on a terminal and in a notebook; elsewhere it prints a line
            after each epoch.

    Attributes:
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns, if all of them are strings.
        model_: the `RankingModel`: schema, transform and scorer. It scores tables without
            scikit-learn's checks, and can be saved, exported and served.
        schema_: the schema of `model_`: the type of each column that the networks get, the levels
            of the categories, and the names of `qid` and `y` if they were series with a name.
        selected_: for each column, by name, a `Column`: whether the column was kept, how much the
            metric decreases if the column is shuffled, the standard error of this decrease, and the
            reason in words. Columns of an array are called x0, x1 and so on.
        settings_: the name of the loss; the values of `members`, `learning_rate`, `schedule`,
            `max_epochs`, `patience`, `columns` and `relative` that training used; and the kind of
            the networks, "bins" or "periodic" (None with a `transform` of your own).
        transform_: the transform of `model_`, fitted on the training lists.
        scorer_: the scorer of `model_`, an `Ensemble`.
        n_iter_: the number of epochs of the last training run.
        best_iterations_: the best epoch of each member, from 1; without validation lists, the last
            epoch. If the transform has weights to train, the list has only one epoch, the same for
            all members.
        history_: for each epoch, the value of `metric` for each member on the validation lists; NaN
            for a member that has stopped. Without validation lists, `history_` is empty.
        validation_queries_: the number of validation queries.

    With the default loss, a list without a relevant row, or with only one row, has a loss of 0 and
    no gradient. `rank` keeps the order of rows with equal scores.

    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> pixels, digits = load_digits(return_X_y=True)
    >>> qid = np.arange(len(digits)) // 12  # lists of twelve digits, the highest first
    >>> train = qid < 120
    >>> ranker = NeuralRanker(members=2, max_epochs=10, random_state=0, verbose=0)
    >>> ranker = ranker.fit(pixels[train], digits[train], qid=qid[train])
    >>> ranker.predict(pixels[~train]).shape
    (357,)
    >>> ranker.score(pixels[~train], digits[~train], qid=qid[~train]) > 0.8
    True
    """

    __metadata_request__partial_fit: ClassVar = {"qid": True, "position": True, "protected": True}

    columns_: list[str]
    model_: RankingModel
    selected_: dict[str, Column]
    settings_: dict[str, Any]

    def __init__(
        self,
        *,
        scorer: Scorer | None = None,
        loss: RankingLoss | SeveralLabels | None = None,
        transform: FeatureTransform | None = None,
        effort: Effort = "default",
        columns: Columns | None = None,
        relative: Relative = "auto",
        monotone: Mapping[str, int] | None = None,
        members: int | None = None,
        learning_rate: float | None = None,
        schedule: Schedule | None = None,
        weight_decay: float = 0.01,
        batch_size: int = 64,
        max_epochs: int | None = None,
        metric: str | Callable[..., Any] = "ndcg@10",
        patience: int | None = None,
        validation: float = 0.2,
        max_levels: int | None = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        self.scorer = scorer
        self.loss = loss
        self.transform = transform
        self.effort = effort
        self.columns = columns
        self.relative = relative
        self.monotone = monotone
        self.members = members
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.metric = metric
        self.patience = patience
        self.validation = validation
        self.max_levels = max_levels
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
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
        callbacks: Sequence[Callback] = (),
        **others: Any,
    ) -> Self:
        """Train on the rows of queries.

        Args:
            X: (rows, columns): a pandas or polars data frame, an Arrow table, or an array of
                numbers. NaN and null are missing values. Or lists: the path of LETOR text or of
                a folder of `ltr convert`, a `ListDataset`, or the result of `prepare`. Lists have
                their own labels, weights, positions and so on, so all other arguments except
                `eval_set` and `callbacks` must be None. Lists on disk are read batch by batch, and
                need not fit into memory.
            y: (rows,), graded relevance >= 0. Or several labels, such as clicks and purchases: a
                frame or an array (rows, labels), with NaN where a label is not known; see
                `SeveralLabels`. The metric of early stopping is then the loss's `quality`, a mean
                over the labels. Columns are chosen by the sum of the labels, each divided by its
                largest value.
            qid: (rows,), the query of each row, numbers or names; the rows of a query need not be
                together.
            group: instead of `qid`, the sizes of the lists. The rows of each list must be together,
                in the order of the sizes.
            sample_weight: (rows,), weights of the rows, which the loss uses as item weights; or
                (queries,), weights of the lists, in the order of their first rows. Default: 1.
                These weights, and those of lists, are divided by their mean.
            position: (rows,), the position at which each row was shown in its list, from 1. Only a
                loss on clicks (`Unbiased`) needs positions; other losses ignore them.
            protected: (rows,), the protected group: above 0 for its rows. Only a penalty on
                exposure (`ExposureParity`) needs these values; other losses ignore them.
            eval_set: `[(X_val, y_val)]`, the lists to validate on; or `[lists]` if X is lists.
                With a loss on clicks (`Unbiased`), the metric of validation lists with positions
                is weighted by clicks: each click is a list of its own, with the weight that the
                loss gives it. Lists that `fit` holds out keep their positions; `(X_val, y_val)` has
                no positions, so its metric is not weighted by clicks.
            eval_qid: `[qid_val]`.
            eval_group: `[group_val]`, instead of `eval_qid`.
            callbacks: a list of functions. After each epoch, each function is called with the
                history so far: for each epoch, a list with `metric` of each member on the
                validation lists. This value is NaN for a member that has stopped, or if there are
                no validation lists. If a callback returns True, training stops, and each member
                keeps the weights of its best epoch. If a callback raises an exception, `fit` ends
                without a new model.
            others: arguments of `LGBMRanker.fit`. `categorical_feature` is a list of names or
                indices of columns that are categories, besides those that are categories anyway.
                `eval_metric` and `eval_at` may name the metric of this ranker. Any other is an
                error that says what to do instead.

        In one process, a `fit` waits until any other `fit` has ended, because all threads share the
        random number generators. So `random_state` works in threads too, but several threads save
        no time; several processes do. If `fit` or `partial_fit` fails, the ranker stays as it was.

        Returns:
            The ranker itself.

        Raises:
            ValueError: a parameter or an argument is out of range; the arguments do not fit
                together; the loss needs a missing side input; a column has another type than in the
                previous training run (`warm_start`); a value is infinite in float32; or no list has
                two distinct labels, so that there is nothing to learn.
        """
        check_others(others, self.metric)
        again = self.warm_start and hasattr(self, "model_")
        given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        given |= {"position": position, "protected": protected, "eval_set": eval_set}
        given |= {"eval_qid": eval_qid, "eval_group": eval_group}
        given["categorical_feature"] = others.get("categorical_feature")
        with self._fitting() as fitted:
            fitted._train(X, given, again, callbacks=callbacks)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        position: Any = None,
        protected: Any = None,
    ) -> Self:
        """Train for one pass over more queries, without validation.

        The first call infers the schema of the columns and fits the transform; later calls keep
        both. Each call starts with a new optimizer. For the arguments, see `fit`.
        """
        again = hasattr(self, "model_")
        given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        given |= {"position": position, "protected": protected}
        with self._fitting() as fitted:
            fitted._train(X, given, again, one_pass=True)
        return self

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return a score for each row, float32 (rows,); the highest score of a query ranks first.

        Args:
            X: the columns of the training data. If they have names, their order does not matter,
                and X may have further columns. Or the path of a table (CSV, Parquet or LETOR
                text: a file, a folder or a pattern), the folder of `ltr convert`, or a
                `ListDataset`. These bring their own queries, so `qid` and `group` must be None. The
                scores are in the order of the rows, or of the documents of a `ListDataset`.
            qid: (rows,), see `fit`. It is needed only if the transform or the scorer looks at the
                whole list; otherwise a score depends on its row alone.
            group: the sizes of the lists, instead of `qid`; see `fit`.

        Raises:
            ValueError: a column is missing or has another type than in training, or `qid` and
                `group` are missing but needed.
        """
        check_is_fitted(self)
        if is_lists(X):
            return self._predict_lists(X, qid, group)
        frame = tables.as_table(self, X)
        names = self._queries(self.model_, frame.num_rows, qid, group)
        return self.model_.predict(frame, names, device=device(self))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model into a folder: `config.json`, and a file with the weights.

        Even if the process is killed, `load` finds the previous model of the folder or this one.
        Other files in the folder stay. Parameters that have no configuration (see
        `ltr.config.to_config`), such as a loss with a lambda, are left out with a warning. They
        must then be passed to `load`.

        Args:
            path: the folder, made if it is missing.

        Raises:
            ValueError: the model is not fitted, or has a weight that is not finite.
            OSError: a file cannot be written, for example because the disk is full. The folder is
                then unchanged.
        """
        write_folder(path, self.saved())

    def saved(self) -> Saved:
        """Return what `save` writes, for code that saves more in the same folder."""
        from ltr.estimators.saving import content

        check_is_fitted(self)
        return Saved(self.model_.parts, content(self))

    @classmethod
    def load(cls, path: str | PathLike[str], *, trust: Any = (), **given: Any) -> Self:
        """Return the model that `save` wrote. Loading runs no code from the files.

        Args:
            path: the folder.
            trust: packages whose classes the configuration may use, besides `ltr` and `torch.nn`.
            given: parameters that replace saved ones, or that could not be saved.

        Raises:
            ValueError: the folder holds no such model, a file is damaged or names a class that is
                not trusted, the weights do not match the digest in the configuration, a weight is
                not finite, or a parameter that could not be saved is missing.
        """
        from ltr.estimators.saving import load

        return load(cls, path, trust, given)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        transform = getattr(self, "transform", None)  # a subclass may not have it yet
        tags.input_tags.allow_nan = transform is None or transform.takes_missing
        return tags

    @property
    def evals_result_(self) -> dict[str, dict[str, list[float]]]:
        """The metric after each epoch, the mean of the members that trained, as in LightGBM.

        The form is {"valid_0": {"ndcg@10": [...]}}; {} without validation lists.
        """
        values = [float(np.nanmean(row)) for row in self.history_]
        return {"valid_0": {self._metric_title: values}} if values else {}

    @property
    def best_score_(self) -> dict[str, dict[str, float]]:
        """The metric on the validation lists, the mean of each member at its best epoch.

        The form is LightGBM's, {"valid_0": {"ndcg@10": 0.5}}; {} without validation lists.
        """
        if not self.history_:
            return {}
        history, best = np.array(self.history_), np.array(self.best_iterations_) - 1
        best = np.broadcast_to(best, history.shape[1])  # members may share one best epoch
        value = float(history[best, np.arange(len(best))].mean())
        return {"valid_0": {self._metric_title: value}}

    @property
    def feature_importances_(self) -> np.ndarray:
        """How much the metric decreases if a column is shuffled, (n_features_in_,).

        The values were measured when the columns were chosen (`columns="useful"`), with a network
        that was trained on all columns. A column that the networks cannot use has 0.

        Raises:
            AttributeError: no choice was made.
        """
        costs = {name: column.cost for name, column in self.selected_.items()}
        if None in costs.values():
            raise AttributeError(
                "feature_importances_ needs a choice of columns: call "
                "ltr.estimators.importance(ranker, X, y, qid), or fit with columns='useful'"
            )
        return np.array([costs.get(name) or 0.0 for name in self.columns_])

    def _combined(self, means: np.ndarray) -> float:
        loss = loss_of(self.loss, self.schema_)
        assert isinstance(loss, SeveralLabels)
        return loss.quality(dict(zip(loss.names, means.tolist(), strict=True)))

    @property
    def _metric_title(self) -> str:
        return ranking_measure(self.metric).title

    @property
    def _predictor(self) -> tuple[RankingModel, dict[str, Any]]:
        return self.model_, {"device": device(self)}

    @property
    def schema_(self) -> Schema:
        """The schema of `model_`."""
        return cast(Schema, self.model_.schema)

    @property
    def transform_(self) -> FeatureTransform:
        """The transform of `model_`."""
        return cast(FeatureTransform, self.model_.transform)

    @property
    def scorer_(self) -> Ensemble:
        """The scorer of `model_`."""
        return cast(Ensemble, self.model_.scorer)

    def _train(
        self,
        X: Any,
        given: dict[str, Any],
        again: bool,
        one_pass: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        check_parameters(self)
        check_callbacks(callbacks)
        data, note = read_data(
            self,
            X,
            given,
            partial(tables.side_columns, self.loss),
            validation=0 if one_pass else self.validation,
            max_levels=partial(max_levels, self),
            known=self.schema_ if again else None,
        )
        schema, lists, of_lists = data.schema, data.train, data.list_weights
        if self.monotone is not None:
            widths = schema.features
            check_monotone(self.monotone, [x for x in schema.feature_names if widths.get(x) == 1])
        validation = None if one_pass else data.val
        several = len(schema.labels) > 1
        if several and (constant := constant_label(lists.labels, schema.labels)):
            raise ValueError(f"y must have labels that vary, got {constant}: nothing to learn")
        if not lists.varied().any():
            raise ValueError(
                "labels (y) must differ in some list that is trained on, got lists of "
                f"equal labels only (n_samples={lists.offsets[-1]}): there is nothing to learn"
            )
        notes = ["no query held out" if validation is None and not one_pass else note]
        warn_caller(data.notice)
        from ltr.estimators.training import train  # predictions do not need it

        size = int(lists.offsets[-1]), len(lists)
        tried = kinds(self, size[0])
        # Rankers that 0.2 saved are of bins, without columns relative to the list.
        before = {"kind": "bins", "relative": False, **self.settings_} if again else {}
        if before.get("kind") is not None:
            tried = (before["kind"],)
        of_schema: dict[str, Any] = {"directions": self._directions(schema)}
        if loss := loss_of(self.loss, schema):
            of_schema["loss"] = loss
        candidates = [replace(settings(self, *size, kind), **of_schema) for kind in tried]
        chosen = candidates[0]
        if one_pass:
            chosen = replace(chosen, max_epochs=1, schedule="constant")
        if again:
            relative = before["relative"]
            chosen = replace(chosen, members=self.scorer_.members, relative=relative)
            selected = self.selected_
        else:
            trial = None
            if validation is not None:
                free = chosen.kind is not None and not any(chosen.directions)
                auto = is_auto(self.relative) and free
                given_lists = lists, validation, of_lists
                chosen, trial, tried_note = choose_settings(candidates, auto, *given_lists)
                notes += [tried_note] if tried_note else []
            if chosen.relative:
                notes.append("with columns relative to the list: predict needs qid")
            selected = self._select(chosen, trial, lists, validation, schema, of_lists)
            kept = [name for name, column in selected.items() if column.kept]
            if len(kept) < len(selected):
                narrow = schema.narrowed(kept)
                lists = of_columns(lists, schema, narrow)
                if validation is not None:
                    validation = of_columns(validation, schema, narrow)
                schema = narrow
                chosen = replace(chosen, directions=self._directions(schema))
                notes.append(f"{len(kept)} of {len(selected)} columns")
        trained = train(
            chosen,
            lists,
            validation,
            known=(self.scorer_, self.transform_) if again else None,
            of_lists=of_lists,
            note="; ".join(filter(None, notes)),
            callbacks=callbacks,
        )
        self.settings_ = chosen.resolved()
        self.selected_ = selected
        self.model_ = RankingModel(trained.scorer, trained.transform, schema).eval()
        self.n_iter_ = trained.epochs
        self.best_iterations_ = trained.best_epochs
        self.history_ = trained.history
        self.validation_queries_ = 0 if validation is None else len(validation)

    def _directions(self, schema: Schema) -> tuple[int, ...]:
        """Return the direction of each feature of a schema; () if `monotone` is None."""
        if self.monotone is None:
            return ()
        return tuple(self.monotone.get(name, 0) for name in schema.feature_names)

    def _select(
        self,
        settings: Settings,
        trial: Trial | None,
        lists: ListDataset,
        validation: ListDataset | None,
        schema: Schema,
        of_lists: bool,
    ) -> dict[str, Column]:
        """Return which columns to keep, and why.

        The columns are chosen by one member, which is trained here if there was no trial.
        """
        if settings.columns == "all":
            return all_kept(schema, "kept: no choice was made")
        if validation is None:
            return all_kept(schema, "kept: there are no validation lists to choose by")
        if len(validation) == 1:
            return all_kept(schema, "kept: one validation list is too few to choose by")
        if len(column_names(schema)) == 1:
            return all_kept(schema, "kept: it is the only column")
        trial = trial or try_out(settings, lists, of_lists)
        sample = evenly(validation, settings.choice.lists).to_fit()
        return choose_columns(trial.model, sample, schema, self.metric, settings.device, trial.seed)

"""Probabilities from the scores of a ranker."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from ltr.config.folder import CONFIG, describing, read_folder, write_folder
from ltr.estimators import tables as tables
from ltr.estimators.blend import Blend
from ltr.estimators.list_input import is_lists
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.scoring import RankingEstimator
from ltr.models.predictor import Predictor
from ltr.shapes import check_number

Method = Literal["isotonic", "sigmoid"]


class Calibrated(RankingEstimator):
    """Turns the scores of a fitted ranker into the probabilities that rows are relevant.

    `fit` learns a non-decreasing function from scores to probabilities, on lists that the ranker
    was not trained on. So the order within a list never changes: `predict`, `rank` and `score` use
    the scores of the ranker, and only `probability` is new. Rows with different scores may have the
    same isotonic probability. `rank` still orders them by their scores.

    Probabilities can be compared across lists only if the scores can. Losses on differences of
    scores, such as the default of `NeuralRanker`, do not determine the level of the scores in a
    list. With such a loss, the probability of a row in a list without relevant rows may be far off.
    `CalibratedSoftmax` and pointwise losses determine the level.

    Args:
        ranker: a fitted `NeuralRanker`, a fitted `Blend`, or any other fitted estimator with
            `predict(X)`. It is not changed.
        method: "isotonic", which fits any non-decreasing function and needs about 1,000 rows, or
            "sigmoid", which fits the slope and the intercept of Platt's method.
        relevant_from: the lowest label that counts as relevant.

    Attributes:
        scores_: (steps,), the ascending scores between which the isotonic function is linear;
            below and above them it is constant.
        probabilities_: (steps,), the values of the isotonic function at `scores_`.
        slope_: the slope of the sigmoid 1 / (1 + exp(-slope * score - intercept)).
        intercept_: the intercept of the sigmoid.

    Reference: Platt, "Probabilistic outputs for support vector machines", 1999; Zadrozny and Elkan,
    "Transforming classifier scores into accurate multiclass probability estimates", KDD 2002.

    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 3)), np.arange(600) // 10
    >>> y = (X[:, 0] + rng.normal(size=600) > 0.5).astype(int)
    >>> train, val = qid < 40, qid >= 40
    >>> ranker = NeuralRanker(members=1, max_epochs=5, random_state=0, verbose=0)
    >>> ranker = ranker.fit(X[train], y[train], qid=qid[train])
    >>> calibrated = Calibrated(ranker, method="sigmoid").fit(X[val], y[val], qid=qid[val])
    >>> bool(abs(calibrated.probability(X[val]).mean() - y[val].mean()) < 0.01)
    True
    >>> bool((calibrated.rank(X[val], qid=qid[val]) == ranker.rank(X[val], qid=qid[val])).all())
    True
    """

    scores_: np.ndarray
    probabilities_: np.ndarray
    slope_: float
    intercept_: float

    def __init__(self, ranker: Any, *, method: Method = "isotonic", relevant_from: float = 1):
        self.ranker = ranker
        self.method: Method = method
        self.relevant_from = relevant_from

    def fit(self, X: Any, y: Any = None, *, qid: Any = None, group: Any = None) -> Self:
        """Learn the probabilities on lists that the ranker was not trained on.

        Args:
            X: see `NeuralRanker.predict`. Lists, or the path of a table, bring their labels.
            y: (rows,), the labels.
            qid: (rows,), the query of each row. It is needed only if the ranker looks at the whole
                list.
            group: the sizes of the lists, instead of `qid`.

        Raises:
            ValueError: an argument is out of range; all rows are relevant, or none is; or the
                probability does not rise with the score.
        """
        if self.method not in get_args(Method):
            raise ValueError(f"method must be 'isotonic' or 'sigmoid', got {self.method!r}")
        check_number("relevant_from", self.relevant_from, minimum=0, strict=True)
        if is_lists(X):
            beside = {"y": y, "qid": qid, "group": group}
            scores, _, labels = self._score_lists(X, beside, judged=True)
        else:
            labels = tables.as_labels(y, tables.row_count(X))
            scores = self.predict(X, qid, group=group)
        if labels.ndim > 1:
            raise ValueError(f"X must be lists with one label, got {labels.shape[1]} labels")
        relevant = labels >= self.relevant_from
        if relevant.all() or not relevant.any():
            raise ValueError(
                f"y must have labels below and from relevant_from={self.relevant_from:g} on, got "
                f"{int(relevant.sum())} of {len(relevant)} rows from there on"
            )
        with self._fitting() as fitted:
            if self.method == "isotonic":
                regression = IsotonicRegression(y_min=0, y_max=1).fit(scores, relevant)
                fitted.scores_ = np.asarray(regression.X_thresholds_)
                fitted.probabilities_ = np.asarray(regression.y_thresholds_)
                rises = fitted.probabilities_[0] < fitted.probabilities_[-1]
            else:
                fitted.slope_, fitted.intercept_ = _sigmoid(scores, relevant)
                rises = fitted.slope_ > 0
            if not rises:
                raise ValueError(
                    "ranker must give relevant rows higher scores, but on these rows the "
                    "probability does not rise with the score"
                )
        return self

    def predict(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return the ranker's scores, float64 (rows,); see `NeuralRanker.predict`."""
        if is_lists(X):
            return self._predict_lists(X, qid, group).astype(np.float64)
        if isinstance(self.ranker, RankingEstimator):
            scores = self.ranker.predict(X, qid=qid, group=group)
        elif hasattr(self.ranker, "predict"):
            scores = self.ranker.predict(X)
        else:
            raise ValueError(f"ranker must have a method predict, got {self.ranker!r}")
        return np.asarray(scores, dtype=np.float64)

    def probability(self, X: Any, qid: Any = None, *, group: Any = None) -> np.ndarray:
        """Return the probability that each row is relevant, in [0, 1], float64 (rows,)."""
        check_is_fitted(self)
        return self.of_scores(self.predict(X, qid, group=group))

    def of_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return the probabilities for scores of the ranker, float64 (rows,)."""
        check_is_fitted(self)
        if self.method == "sigmoid":
            return expit(self.slope_ * scores.astype(np.float64) + self.intercept_)
        probabilities = np.interp(scores, self.scores_, self.probabilities_)
        # Rounding may put the end of a step above the start of the next step.
        after = np.searchsorted(self.scores_, scores).clip(max=len(self.scores_) - 1)
        return np.minimum(probabilities, self.probabilities_[after])

    @property
    def _predictor(self) -> tuple[Predictor, dict[str, Any]]:
        if not isinstance(self.ranker, NeuralRanker | Blend):
            raise ValueError(
                "X must be a table or an array unless the ranker is a NeuralRanker or a Blend, got "
                f"a {type(self.ranker).__name__}"
            )
        return self.ranker._predictor

    def _score_lists(
        self, X: Any, beside: Mapping[str, Any], *, judged: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scores, groups, labels = super()._score_lists(X, beside, judged=judged)
        return scores.astype(np.float64), groups, labels

    def _members(self) -> Sequence[Any]:
        """Return the ranker."""
        return [self.ranker]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the ranker and the calibration into a folder, which the ranker's `load` reads too.

        Raises:
            ValueError: the calibration is not fitted; the ranker is neither a `NeuralRanker` nor a
                `Blend`; or the ranker's `save` raises this error.
            OSError: a file cannot be written. The folder is then unchanged.
        """
        check_is_fitted(self)
        if not isinstance(self.ranker, NeuralRanker | Blend):
            raise ValueError(
                "ranker must be a NeuralRanker or a Blend to be saved, got a "
                f"{type(self.ranker).__name__}: Blend([ranker]) can be saved"
            )
        saved = self.ranker.saved()
        numbers = {name: np.asarray(getattr(self, name)).tolist() for name in _VALUES[self.method]}
        about = {"method": self.method, "relevant_from": self.relevant_from, **numbers}
        write_folder(path, replace(saved, config={**saved.config, "calibration": about}))

    @classmethod
    def load(cls, path: str | PathLike[str], *, trust: Sequence[str] = ()) -> Self:
        """Return the calibrated ranker that `save` wrote; see `NeuralRanker.load`.

        Raises:
            ValueError: the folder has no calibration, or the ranker cannot be loaded.
        """
        content, _ = read_folder(path)
        with describing(path):
            if "calibration" not in content:
                raise ValueError(f"{Path(path) / CONFIG} has no calibration")
            ranker = (Blend if content["kind"] == "Blend" else NeuralRanker).load(path, trust=trust)
            return cls._of(content["calibration"], ranker)

    @classmethod
    def of_folder(cls, path: str | PathLike[str]) -> Self | None:
        """Return the calibration of a folder without its ranker, for `of_scores`; None if none.

        Raises:
            ValueError: the folder is damaged.
        """
        content, _ = read_folder(path)
        with describing(path):
            return cls._of(content["calibration"], None) if "calibration" in content else None

    @classmethod
    def _of(cls, about: Mapping[str, Any], ranker: Any) -> Self:
        new = cls(ranker, method=about["method"], relevant_from=about["relevant_from"])
        for name in _VALUES[new.method]:
            value = np.array(about[name], dtype=np.float64)
            setattr(new, name, value if value.ndim else float(value))
        return new


_VALUES = {"isotonic": ("scores_", "probabilities_"), "sigmoid": ("slope_", "intercept_")}


def _sigmoid(scores: np.ndarray, relevant: np.ndarray) -> tuple[float, float]:
    """Return the slope and the intercept of a logistic regression on Platt's targets."""
    number = relevant.sum()
    # Platt's targets lie between 0 and 1. So the slope is finite even if a threshold on the score
    # separates the relevant rows from the others.
    target = np.where(relevant, (number + 1) / (number + 2), 1 / (len(relevant) - number + 2))
    middle, spread = scores.mean(), scores.std() or 1.0
    x = np.tile((scores - middle) / spread, 2)[:, None]
    kind = np.repeat([1, 0], len(scores))
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    model.fit(x, kind, sample_weight=np.r_[target, 1 - target])
    slope = np.asarray(model.coef_).item() / spread
    return slope, np.asarray(model.intercept_).item() - slope * middle

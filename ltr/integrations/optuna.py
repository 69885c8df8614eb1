"""A callback with which Optuna stops unpromising trials in a search for `NeuralRanker` parameters.

This module needs the extra `tune`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

try:
    from optuna import Trial, TrialPruned
    from optuna.study import StudyDirection
except ModuleNotFoundError as error:
    raise ImportError(
        f"ltr.integrations.optuna needs pip install 'ltr-torch[tune]': {error}"
    ) from error

if TYPE_CHECKING:
    from optuna.trial import BaseTrial


class Pruning:
    """A callback of `NeuralRanker.fit` that reports each epoch to a trial and may end the trial.

    Each member of the ranker keeps its best epoch. So after each epoch the callback takes, for each
    member, the best metric on the validation lists so far, and reports the mean over members. If
    the study's pruner then rejects the trial, `fit` ends with `optuna.TrialPruned`, which the study
    counts as a pruned trial. A higher metric is better, so the study must have
    `direction="maximize"`. Otherwise the pruner would end the best trials.

    Args:
        trial: the argument of the study's objective function. Call `fit` only once for each trial:
            the epochs of `fit` are the steps of the trial.

    Raises:
        ValueError: the study minimizes, or has several objectives; or `fit` has no validation
            lists.

    Reference: Akiba et al., "Optuna: a next-generation hyperparameter optimization framework", KDD
    2019.

    >>> import optuna
    >>> from ltr.estimators import NeuralRanker
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(200, 3)), np.arange(200) // 10
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> def objective(trial):
    ...     rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
    ...     ranker = NeuralRanker(learning_rate=rate, members=1, max_epochs=3, verbose=0)
    ...     ranker.fit(X, y, qid=qid, callbacks=[Pruning(trial)])
    ...     return max(max(epoch) for epoch in ranker.history_)
    >>> study = optuna.create_study(direction="maximize")
    >>> study.optimize(objective, n_trials=2)
    >>> len(study.trials[0].intermediate_values)
    3
    """

    def __init__(self, trial: "BaseTrial") -> None:
        # A `FixedTrial` belongs to no study, so it has no directions to check.
        if isinstance(trial, Trial) and trial.study.directions != [StudyDirection.MAXIMIZE]:
            directions = ", ".join(each.name.lower() for each in trial.study.directions)
            raise ValueError(
                f'trial must be of a study with direction="maximize", got {directions}'
            )
        self.trial = trial

    def __call__(self, history: Sequence[Sequence[float]]) -> None:
        """Report the last epoch of the history, and raise `TrialPruned` if the trial should end."""
        values = np.asarray(history, dtype=np.float64)
        if np.isnan(values[0]).any():
            raise ValueError(
                "validation must be above 0 with Pruning, unless eval_set is given to fit"
            )
        self.trial.report(float(np.nanmax(values, axis=0).mean()), step=len(values))
        if self.trial.should_prune():
            raise TrialPruned(f"behind other trials after epoch {len(values)}")

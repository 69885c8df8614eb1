"""Optuna's studies over `NeuralRanker`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from ltr.estimators import NeuralRanker
from ltr.integrations.optuna import Pruning

optuna.logging.set_verbosity(optuna.logging.WARNING)


def lists() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, (X[:, 0] > 0.5).astype(int), np.arange(200) // 10


def test_each_epoch_is_the_mean_of_the_members_best():
    X, y, qid = lists()
    kept = {}

    def objective(trial: optuna.Trial) -> float:
        ranker = NeuralRanker(members=2, max_epochs=5, random_state=0, verbose=0)
        ranker.fit(X, y, qid=qid, callbacks=[Pruning(trial)])
        kept[trial.number] = np.array(ranker.history_)
        return float(np.nanmax(ranker.history_))

    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    study.optimize(objective, n_trials=1)
    reported = study.trials[0].intermediate_values
    history = kept[0]
    assert [*reported] == [*range(1, len(history) + 1)]
    for epoch, value in reported.items():
        best = [np.nanmax(history[:epoch, member]) for member in (0, 1)]
        assert value == pytest.approx(np.mean(best))


def test_a_member_that_has_stopped_keeps_its_best():
    trial = optuna.create_study(direction="maximize").ask()
    pruning = Pruning(trial)
    history = [[0.5, 0.2]]
    pruning(history)
    history.append([float("nan"), 0.4])
    pruning(history)
    assert trial.study.trials[0].intermediate_values == {1: 0.35, 2: 0.45}


def test_a_trial_that_is_behind_is_pruned_and_leaves_no_model():
    X, y, qid = lists()
    ranker = NeuralRanker(members=1, max_epochs=5, random_state=0, verbose=0)

    def objective(trial: optuna.Trial) -> float:
        ranker.fit(X, y, qid=qid, callbacks=[Pruning(trial)])
        raise AssertionError("not pruned")

    pruner = optuna.pruners.ThresholdPruner(lower=2, n_warmup_steps=3)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=1)
    assert study.trials[0].state == TrialState.PRUNED
    assert [*study.trials[0].intermediate_values] == [1, 2, 3]
    assert not hasattr(ranker, "scorer_")


def test_without_validation_nothing_can_be_pruned():
    X, y, qid = lists()
    trial = optuna.create_study(direction="maximize").ask()
    ranker = NeuralRanker(members=1, max_epochs=2, validation=0, verbose=0)
    with pytest.raises(ValueError, match=r"validation must be above 0 with Pruning"):
        ranker.fit(X, y, qid=qid, callbacks=[Pruning(trial)])


@pytest.mark.parametrize("directions", [["minimize"], ["maximize", "minimize"]])
def test_a_study_must_maximize_one_value(directions: list[str]):
    trial = optuna.create_study(directions=directions).ask()
    with pytest.raises(ValueError, match=f'direction="maximize", got {", ".join(directions)}$'):
        Pruning(trial)
    Pruning(optuna.trial.FixedTrial({}))([[0.5]])  # it has no study, and is never pruned


def test_without_optuna_the_extra_is_named():
    code = "import sys; sys.modules['optuna'] = None; import ltr.integrations.optuna"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ltr.integrations.optuna needs pip install")
    assert "'ltr-torch[tune]'" in last


SCRIPT = """
import sys
import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from ltr.estimators import NeuralRanker
from ltr.integrations.optuna import Pruning

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y, qid = (X[:, 0] > 0.5).astype(int), np.arange(200) // 10

def objective(trial):
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
    ranker = NeuralRanker(learning_rate=rate, members=1, max_epochs=3, random_state=0, verbose=0)
    ranker.fit(X, y, qid=qid, callbacks=[Pruning(trial)])
    return max(max(epoch) for epoch in ranker.history_)

storage = JournalStorage(JournalFileBackend(sys.argv[1]))
study = optuna.create_study(
    study_name="rank", storage=storage, direction="maximize", load_if_exists=True
)
study.optimize(objective, n_trials=3)
"""


@pytest.mark.slow
def test_two_processes_share_a_study_which_resumes(tmp_path: Path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "study.journal")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    subprocess.run(command, check=True)
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    )
    study = optuna.load_study(study_name="rank", storage=storage)
    assert sorted(trial.number for trial in study.trials) == [*range(9)]
    assert {trial.state for trial in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}

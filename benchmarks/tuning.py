"""What a search over the parameters of NeuralRanker gains on test lists.

    nice -n 15 python benchmarks/tuning.py
    python benchmarks/tuning.py --sets OHSUMED --folds 1 --trials 5

For each fold of a set, Optuna tries parameters of `docs/tuning.md`'s space on the fold's training
lists, with one network a trial, and chooses by NDCG@10 on its validation lists. Trials that are
behind the median of the others are pruned. Then `NeuralRanker()` and `NeuralRanker` with the best
trial's parameters are fitted, each as an average of five networks that stop by the same validation
lists, and both rank the test lists. The paired test is over the test lists of all folds, of which
each query is in one.

Studies are kept in a journal file beside the result, so that a search that was stopped resumes. A
study's sampler has the fold's number as its seed. `seconds` are of this process, which resumes: of
trials that an earlier one made, they know nothing. The result is written after each fold.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from measure import RESULTS, environment, write
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from quality_sets import Fold, load

from ltr.datasets import PiecewiseLinearBins, TableTransform
from ltr.estimators import NeuralRanker
from ltr.integrations.optuna import Pruning
from ltr.losses import XENDCG, SoftNDCG
from ltr.metrics import compare
from ltr.models import MLPScorer
from ltr.reports import evaluate


def made(trial: optuna.trial.BaseTrial, **options: Any) -> NeuralRanker:
    """Return a ranker with a trial's parameters: the space of `docs/tuning.md`."""
    width = trial.suggest_categorical("width", [64, 128, 256])
    dropout = trial.suggest_float("dropout", 0.0, 0.4, step=0.1)
    bins = trial.suggest_int("bins", 4, 32, log=True)
    losses = {"xendcg": XENDCG(gamma="random"), "soft ndcg": SoftNDCG(mean="harmonic")}
    return NeuralRanker(
        scorer=MLPScorer(hidden=(width, width // 2), dropout=dropout),
        loss=losses[trial.suggest_categorical("loss", [*losses])],
        transform=TableTransform(PiecewiseLinearBins(bins)),
        learning_rate=trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
        weight_decay=trial.suggest_float("weight_decay", 1e-3, 0.3, log=True),
        random_state=0,
        verbose=0,
        **options,
    )


def searched(fold: Fold, name: str, seed: int, trials: int, journal: Path) -> optuna.Study:
    """Return the study of a fold with so many finished trials."""

    def objective(trial: optuna.Trial) -> float:
        pruning = Pruning(trial)
        ranker = fitted(made(trial, members=1), fold, callbacks=[pruning])
        return float(np.nanmax(ranker.history_))

    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(journal))),
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=False),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=3),
        direction="maximize",
        load_if_exists=True,
    )
    done = [trial for trial in study.trials if trial.state.is_finished()]
    study.optimize(objective, n_trials=max(0, trials - len(done)))
    return study


def fitted(ranker: NeuralRanker, fold: Fold, **options: Any) -> NeuralRanker:
    """Return the ranker, fitted on the training lists, with the validation lists to stop by."""
    train, val = fold.train, fold.val
    validation = {"eval_set": [(val.X, val.y)], "eval_qid": [val.qid]}
    return ranker.fit(train.X, train.y, qid=train.qid, **validation, **options)


def measured(fold: Fold, study: optuna.Study) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what both rankers reach on a fold, and NDCG@10 of each of its test lists."""
    states = [trial.state for trial in study.trials]
    row: dict[str, Any] = {"parameters": study.best_params}
    row["pruned"] = states.count(optuna.trial.TrialState.PRUNED)
    values = {}
    rankers = {
        "default": NeuralRanker(random_state=0, verbose=0),
        "tuned": made(optuna.trial.FixedTrial(study.best_params)),
    }
    for kind, ranker in rankers.items():
        fitted(ranker, fold)
        for side, lists in (("val", fold.val), ("test", fold.test)):
            found = evaluate(lists.y, ranker.predict(lists.X), lists.qid, ["ndcg@10"])
            row[f"{kind}_{side}"] = found["ndcg@10"].mean
            values[kind] = found.values["ndcg@10"]  # of the test lists, at the end
    return row, values


def main() -> None:
    """Search, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "tuning.json")
    parser.add_argument("--journal", type=Path, default=Path("runs/tuning.journal"))
    parser.add_argument("--sets", nargs="+", default=["MQ2008", "OHSUMED"])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=12)
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    args.journal.parent.mkdir(parents=True, exist_ok=True)
    folds = {name: load(name)[: args.folds] for name in args.sets}
    content: dict[str, Any] = {name: {"trials": args.trials, "folds": []} for name in args.sets}
    values: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in args.sets}
    for number in range(1, args.folds + 1):
        for name in args.sets:
            start, fold = time.process_time(), folds[name][number - 1]
            study = searched(fold, f"{name}, fold {number}", number, args.trials, args.journal)
            row, found = measured(fold, study)
            row["seconds"] = time.process_time() - start
            content[name]["folds"].append(row)
            values[name].append(found)
            pairs = {kind: np.concatenate([x[kind] for x in values[name]]) for kind in found}
            comparison = compare(pairs, baseline="default")
            content[name]["test"] = comparison.to_dict()
            print(f"{name}, fold {number}: {json.dumps(row)}\n{comparison}", flush=True)
        write(args.output, {**environment(), "sets": content})  # the folds so far


if __name__ == "__main__":
    main()

"""Trees that imitate a ranker, beside LightGBM: NDCG@10 on generated tables and on real lists.

    python benchmarks/distilled_trees.py noise MQ2008 OHSUMED

A set is one of `generated_tables.TABLES` (its numbers alone, `--rows` of them) or of
`quality_sets.SETS` (all its folds). The teacher is `NeuralRanker()`. Students are regressors of
LightGBM on the teacher's scores, as differences from the mean of the list:

- "student": 8 leaves, 2,000 trees with a learning rate of 0.1, on the training lists;
- "student, copy": as "student", also on a copy of the rows in which each value is swapped, with a
  probability of 0.1, with that of another row; the teacher scores it too;
- "LightGBM + student" and "LightGBM + student, copy": the trees of both in one sum, with the
  weight that is best on the validation lists.

"LightGBM" is at full strength: a learning rate of 0.1 or 0.03 and 7, 15 or 31 leaves, as is best on
the validation lists, with early stopping. "LightGBM + LightGBM" is the control: a second one, with
sampled rows and columns, in the sum. "blend" is the sum of LightGBM and the teacher.

benchmarks/results/distilled_trees.json has NDCG@10 of the test lists, the leaves of all trees, the
weight in the sum, and the difference from LightGBM paired by list, with its 95 % interval. A set
in the file is not run again.
"""

import argparse
import json
import time
from itertools import product
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from generated_tables import TABLES, generated_table
from large_tables import ndcg
from measure import RESULTS, environment, rounded, write
from quality_sets import SETS, Fold, load

from ltr.estimators import NeuralRanker
from ltr.metrics import compare

RESULT = RESULTS / "distilled_trees.json"
RATES, LEAVES = (0.1, 0.03), (7, 15, 31)
COPIES, SWAPPED = 1, 0.1
TREES = 2000
"""The trees of a student."""
SAMPLED: dict[str, Any] = {"subsample": 0.5, "subsample_freq": 1, "colsample_bytree": 0.5}
PARTS = ("train", "val", "test")


def boosted(fold: Fold, **given: Any) -> lightgbm.LGBMRanker:
    """Return LightGBM, fitted to the labels."""
    train, val = fold.train, fold.val
    model = lightgbm.LGBMRanker(
        n_estimators=6000, metric="ndcg", early_stopping_round=50, n_jobs=1, verbose=-1, **given
    )
    lists = {"eval_X": (val.X,), "eval_y": (val.y,), "eval_group": [val.lengths]}
    return model.fit(train.X, train.y, group=train.lengths, eval_at=[10], **lists)


def best_boosted(fold: Fold) -> lightgbm.LGBMRanker:
    """Return LightGBM at full strength."""
    models = [
        boosted(fold, learning_rate=rate, num_leaves=leaves)
        for rate, leaves in product(RATES, LEAVES)
    ]
    values = [ndcg(np.asarray(one.predict(fold.val.X)), fold.val).mean() for one in models]
    return models[int(np.argmax(values))]


def swapped(X: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return rows in which some values are those of other rows."""
    found = X.copy()
    for column in found.T:
        rows = np.flatnonzero(draw.random(len(X)) < SWAPPED)
        column[rows] = column[draw.integers(0, len(X), len(rows))]
    return found


def taught(fold: Fold, teacher: NeuralRanker, copies: int, **given: Any) -> Any:
    """Return a regressor of the teacher's scores."""
    X, qid = np.asarray(fold.train.X, dtype=np.float32), fold.train.qid
    draw = np.random.default_rng(0)
    tables = [X, *(swapped(X, draw) for _ in range(copies))]
    targets = []
    for table in tables:
        named = pd.DataFrame(table, columns=fold.train.X.columns)
        scores = pd.Series(teacher.predict(named, qid=qid))
        targets.append((scores - scores.groupby(qid).transform("mean")).to_numpy())
    student = lightgbm.LGBMRegressor(learning_rate=0.1, n_jobs=1, verbose=-1, **SAMPLED, **given)
    return student.fit(np.concatenate(tables), np.concatenate(targets))


def spread(scores: np.ndarray, qid: np.ndarray) -> float:
    """Return the mean standard deviation within a list."""
    return float(pd.Series(scores).groupby(qid).std().mean())


def summed(fold: Fold, first: dict[str, Any], second: dict[str, Any]) -> tuple[Any, float]:
    """Return the weighted sum of two rankers' scores, and the weight of the second one."""
    scaled = [
        {part: one[part] / (spread(one["train"], fold.train.qid) or 1) for part in PARTS}
        for one in (first, second)
    ]
    best: tuple[float, Any, float] | None = None
    for weight in np.linspace(0, 1, 11):
        scores = {part: (1 - weight) * scaled[0][part] + weight * scaled[1][part] for part in PARTS}
        value = float(ndcg(scores["val"], fold.val).mean())
        if best is None or value > best[0]:
            best = value, scores, float(weight)
    assert best is not None
    return best[1], best[2]


def trial(fold: Fold, seed: int) -> dict[str, dict[str, Any]]:
    """Return for each ranker NDCG@10 of each test list, and its size."""
    for lists in (fold.train, fold.val, fold.test):
        X = lists.X if isinstance(lists.X, pd.DataFrame) else pd.DataFrame(lists.X)
        X = X.select_dtypes("number").astype(np.float32)
        lists.X = X.set_axis([f"x{i}" for i in range(X.shape[1])], axis=1)

    def scored(model: Any) -> dict[str, Any]:
        lists = ((part, getattr(fold, part)) for part in PARTS)
        if not hasattr(model, "booster_"):
            return {part: model.predict(one.X, qid=one.qid) for part, one in lists}
        return {part: np.asarray(model.booster_.predict(one.X)) for part, one in lists}

    trees = best_boosted(fold)
    other = boosted(fold, learning_rate=0.05, num_leaves=trees.num_leaves, **SAMPLED)
    val = fold.val
    teacher = NeuralRanker(random_state=seed, verbose=0)
    teacher.fit(
        fold.train.X,
        fold.train.y,
        qid=fold.train.qid,
        eval_set=[(val.X, val.y)],
        eval_qid=[val.qid],
    )
    students = {
        "student": taught(fold, teacher, 0, num_leaves=8, n_estimators=TREES),
        "student, copy": taught(fold, teacher, COPIES, num_leaves=8, n_estimators=TREES),
    }
    scores = {"LightGBM": scored(trees), "network": scored(teacher)}
    scores |= {name: scored(one) for name, one in students.items()}
    leaves = {"LightGBM": trees.num_leaves * (trees.best_iteration_ or trees.n_estimators)}
    leaves |= {name: one.num_leaves * one.n_estimators for name, one in students.items()}
    weights = {}
    seconds = [("LightGBM + LightGBM", scored(other)), ("blend", scores["network"])]
    seconds += [(f"LightGBM + {name}", scores[name]) for name in ("student", "student, copy")]
    for name, second in seconds:
        scores[name], weights[name] = summed(fold, scores["LightGBM"], second)
    size = other.num_leaves * (other.best_iteration_ or other.n_estimators)
    leaves["LightGBM + LightGBM"] = leaves["LightGBM"] + size
    for name in ("student", "student, copy"):
        leaves[f"LightGBM + {name}"] = leaves["LightGBM"] + leaves[name]
    return {
        name: {
            "values": ndcg(one["test"], fold.test),
            "leaves": leaves.get(name),
            "weight": weights.get(name),
        }
        for name, one in scores.items()
    }


def measured(name: str, rows: int, seed: int) -> dict[str, Any]:
    """Return the entry of a set."""
    start = time.process_time()
    folds = [generated_table(name, rows, seed)] if name in TABLES else load(name)
    trials = [trial(fold, seed) for fold in folds]
    values = {
        ranker: np.concatenate([one[ranker]["values"] for one in trials]) for ranker in trials[0]
    }
    rankers = {}
    for ranker, own in values.items():
        entry: dict[str, Any] = {"ndcg_10": rounded(float(own.mean()))}
        for key in ("leaves", "weight"):
            each = [one[ranker][key] for one in trials]
            if each[0] is not None:
                entry[key] = rounded(float(np.mean(each)))
        if ranker != "LightGBM":
            found = compare(values["LightGBM"], own).models[1].difference
            assert found is not None
            entry["difference"] = [rounded(x) for x in found]
        rankers[ranker] = entry
    about = {"rows": rows} if name in TABLES else {}
    return {
        "set": name,
        **about,
        "seed": seed,
        "test_lists": len(values["LightGBM"]),
        "cpu_seconds": round(time.process_time() - start),
        "rankers": rankers,
    }


def kept() -> list[dict[str, Any]]:
    """Return the entries of the file."""
    return json.loads(RESULT.read_text())["sets"] if RESULT.exists() else []


def main() -> None:
    """Run the sets that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sets", nargs="+", choices=[*TABLES, *SETS])
    parser.add_argument("--rows", type=int, default=30_000, help="of a generated table")
    parser.add_argument("--seed", type=int, default=10)
    given = parser.parse_args()
    for name in given.sets:
        rows = given.rows if name in TABLES else None
        if any((x["set"], x.get("rows"), x["seed"]) == (name, rows, given.seed) for x in kept()):
            continue
        found = measured(name, given.rows, given.seed)
        write(RESULT, {"environment": environment(), "sets": [*kept(), found]})
        for ranker, entry in found["rankers"].items():
            print(f"{name}: {ranker}: {entry}", flush=True)


if __name__ == "__main__":
    main()

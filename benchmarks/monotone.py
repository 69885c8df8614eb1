"""What monotone constraints cost: NDCG@10 with and without, of networks and of LightGBM.

    LTR_DATA=data python benchmarks/monotone.py

The score may only rise with BM25, the language models' scores, the links that point to a page and
PageRank, and with clicks and dwell time on MSLR-WEB10K, and may only fall with the length of the
address and its slashes: 25 of 46 columns of MQ2008 (five folds, two seeds) and 28 of 136 of a part
of MSLR-WEB10K (one fold, three seeds). Differences are paired over the test lists, with the mean of
a list over the seeds. CPU seconds are of one fit, in one thread.
"""

import time
import warnings
from typing import Any

import lightgbm
import numpy as np
import torch
from lightgbm import LGBMRanker
from measure import RESULTS, environment, rounded, write
from quality_sets import load
from quality_summary import values

from ltr.estimators import NeuralRanker
from ltr.metrics import compare

# positions from 0, by the lists of features of LETOR 4.0 and MSLR
SETS: dict[str, tuple[int, dict[int, int]]] = {
    "MQ2008": (2, {**dict.fromkeys([*range(20, 42), 45], 1), 43: -1, 44: -1}),
    "MSLR-WEB10K, part": (
        3,
        {**dict.fromkeys([*range(105, 125), 127, 129, 130, *range(133, 136)], 1), 125: -1, 126: -1},
    ),
}


def rankers(directions: dict[int, int], width: int, seed: int) -> dict[str, Any]:
    """Return the rankers to compare, not fitted."""
    trees = {"n_estimators": 1000, "learning_rate": 0.05, "early_stopping_round": 50}
    trees |= {"num_leaves": 15, "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
    trees |= {"eval_at": (10,), "random_state": seed, "n_jobs": 1, "verbose": -1}
    each = [directions.get(i, 0) for i in range(width)]
    named = {f"x{i}": direction for i, direction in directions.items()}
    return {
        "NeuralRanker": NeuralRanker(random_state=seed, verbose=0),
        "NeuralRanker, monotone": NeuralRanker(monotone=named, random_state=seed, verbose=0),
        "LightGBM": LGBMRanker(**trees),
        "LightGBM, monotone": LGBMRanker(**trees, monotone_constraints=each),
    }


def measure(name: str) -> dict[str, Any]:
    """Return the results on one set."""
    seeds, directions = SETS[name]
    folds = load(name)
    found: dict[str, list[np.ndarray]] = {}
    seconds: dict[str, float] = {}
    for fold in folds:
        runs: dict[str, list[np.ndarray]] = {}
        for seed in range(seeds):
            for title, ranker in rankers(directions, fold.train.X.shape[1], seed).items():
                start = time.process_time()
                if isinstance(ranker, LGBMRanker):
                    sizes = {"group": fold.train.lengths, "eval_group": [fold.val.lengths]}
                    ranker.fit(
                        fold.train.X,
                        fold.train.y,
                        eval_X=(fold.val.X,),
                        eval_y=(fold.val.y,),
                        **sizes,
                    )
                else:
                    sets: dict[str, Any] = {"eval_set": [(fold.val.X, fold.val.y)]}
                    sets["eval_qid"] = [fold.val.qid]
                    ranker.fit(fold.train.X, fold.train.y, qid=fold.train.qid, **sets)
                seconds[title] = seconds.get(title, 0) + time.process_time() - start
                scores = np.asarray(ranker.predict(fold.test.X))
                runs.setdefault(title, []).append(values(scores, fold.test.y, fold.test.lengths))
        for title, ndcg in runs.items():
            found.setdefault(title, []).append(np.mean(ndcg, axis=0))
    lists = {title: np.concatenate(parts) for title, parts in found.items()}
    table = {}
    for title, ndcg in lists.items():
        table[title] = {"ndcg_10": round(float(ndcg.mean()), 4)}
        table[title]["seconds"] = rounded(seconds[title] / (seeds * len(folds)))
    for title in ("NeuralRanker", "LightGBM"):
        pair = {one: torch.from_numpy(lists[one]) for one in (title, f"{title}, monotone")}
        result = compare(pair).models[1]
        assert result.difference is not None
        difference = [round(float(x), 4) for x in result.difference]
        more = {"difference": difference, "p": rounded(float(result.p or 0))}
        table[f"{title}, monotone"] |= more
    sizes = {"monotone_columns": len(directions), "lists": len(ndcg), "seeds": seeds}
    return {"data": name, **sizes, "rankers": table}


def main() -> None:
    """Measure both sets, and write the file."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    sets = [measure(name) for name in SETS]
    for one in sets:
        print(one)
    versions = {**environment(), "lightgbm": lightgbm.__version__}
    write(RESULTS / "monotone.json", {"environment": versions, "sets": sets})


if __name__ == "__main__":
    main()

"""What positions gain in learning from simulated clicks, beside LightGBM.

    nice -n 10 python benchmarks/clicks.py
    python benchmarks/clicks.py --sets "generated" --seeds 1

A production ranker orders the lists. In each session a user looks at position k with a probability
that is known, and clicks on a document that was looked at with a probability that depends on its
grade. Rankers are trained on the clicks of all sessions, with and without positions, and tested on
the grades of other lists. A last one is trained on the grades themselves.

- "LightGBM's example": LightGBM's own example, nearly as in its own test of positions: a column
  orders the documents, the user looks at position k with probability 0.8^(k - 1), and clicks with
  probabilities of 0.4 to 0.9. Needs `LTR_DATA`. (In that test a user who does not look at a
  position looks at none after it.)
- "generated": lists of ten documents with twenty normal columns. The production ranker orders by
  one column that says nothing of relevance and by a part of what does. The user looks at position k
  with probability 1 / k, and clicks with probabilities of 0.05 to 1.

`NeuralRanker` trains one network. It gets the true propensities, and its weights are at most 10.
LightGBM's `position=` estimates a bias by itself. LightGBM has the parameters of its example.
`ndcg_10` is a mean over the test lists for each seed. A seed draws the clicks, the generated lists
and the weights of the networks. `difference` is to the same learner without positions: the mean
over the seeds, and its standard error. The result is written after each fit, and a run that was
stopped resumes.

`users` are CPU seconds of a million simulated sessions of ten documents. `propensities` are CPU
seconds of `PositionBias.estimate` of 200,000 sessions of 1,000 queries, in which three rankers
order ten documents (for swaps, one ranker and random exchanges); `error` is the largest relative
error of a position, and `inside` how many of the nine true values are in their 95 % intervals.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from measure import RESULTS, environment, rounded, write
from sklearn.linear_model import LogisticRegression

from ltr.clicks import Cascade, DependentClick, PositionBased, simulate_clicks
from ltr.datasets import read_letor
from ltr.datasets.splits import find_splits
from ltr.estimators import NeuralRanker
from ltr.losses import XENDCG, PositionBias, RankingLoss, SoftmaxLoss, Unbiased
from ltr.metrics.functional import ndcg

CLIP = 10.0
"""The largest weight of a click. Without it, LightGBM's example has weights up to 330."""

BASELINE = 33
"""The column by which LightGBM's test orders the documents of its example."""


@dataclass
class Lists:
    """Lists of documents, one after the other.

    Attributes:
        X: (rows, columns).
        grades: (rows,).
        lengths: (lists,).
    """

    X: np.ndarray
    grades: np.ndarray
    lengths: np.ndarray

    @property
    def qid(self) -> np.ndarray:
        """The list of each row, (rows,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass
class Log:
    """Simulated sessions, and what is known about them.

    Attributes:
        shown: the lists of the sessions.
        clicks: (rows,), 1 for a click.
        position: (rows,), from 1.
        looks: the probability of a look at each position, from the first.
        judged: the lists with their grades.
        test: other lists.
    """

    shown: Lists
    clicks: np.ndarray
    position: np.ndarray
    looks: np.ndarray
    judged: Lists
    test: Lists


def simulated(
    judged: Lists,
    test: Lists,
    order: np.ndarray,
    looks: np.ndarray,
    click: np.ndarray,
    sessions: int,
    seed: int,
) -> Log:
    """Return a log of sessions.

    Args:
        judged: the lists that are shown.
        test: for `Log`.
        order: (rows,), the production ranker's scores.
        looks: (longest list,), the probability of a look at each position.
        click: (grades,), the probability of a click on a document of each grade, after a look.
        sessions: how many, of all lists together.
        seed: of the clicks.
    """
    user = PositionBased(click.tolist(), PositionBias(examination=looks.tolist()))
    log = simulate_clicks(user, judged.grades, order, judged.qid, sessions=sessions, seed=seed)
    # a learner may prefer the first one of equal rows, which must not be the first that was shown
    shuffled = np.lexsort((log["row"], log["session"]))
    row, position, clicks = (log[name][shuffled] for name in ("row", "position", "click"))
    shown = Lists(judged.X[row], judged.grades[row], np.bincount(log["session"]))
    return Log(shown, clicks.astype(np.float32), position, looks, judged, test)


def example(seed: int, sessions: int = 10) -> Log:
    """Return a log of LightGBM's example."""
    files = find_splits(Path(os.environ["LTR_DATA"]) / "lightgbm-lambdarank", 1)
    parts = [read_letor(files[name]) for name in ("train", "test")]
    width = max(part.num_features for part in parts)
    judged, test = (
        Lists(part.features, part.labels, part.lengths) for part in (p.widen(width) for p in parts)
    )
    looks = 0.8 ** np.arange(max(judged.lengths))
    click = np.array([0.4, 0.6, 0.7, 0.8, 0.9])
    order, count = judged.X[:, BASELINE], sessions * len(judged.lengths)
    return simulated(judged, test, order, looks, click, count, seed)


def generated(seed: int, lists: int = 2000, sessions: int = 1) -> Log:
    """Return a log of generated lists of ten documents."""
    draw = np.random.default_rng(seed)
    parts = []
    for count in (lists, 1000):
        X = draw.normal(size=(10 * count, 20)).astype(np.float32)
        value = X[:, 1] + X[:, 2] + np.sin(2 * X[:, 3]) + X[:, 4] * X[:, 5]
        value += 0.5 * draw.normal(size=len(X))
        grades = np.digitize(value, [1.0, 2.0, 3.0, 4.0]).astype(np.float32)
        parts.append(Lists(X, grades, np.full(count, 10)))
    judged, test = parts
    order = judged.X[:, 0] + 0.5 * judged.X[:, 1]
    looks, click = 1 / np.arange(1, 11), np.array([0.05, 0.2, 0.4, 0.7, 1.0])
    return simulated(judged, test, order, looks, click, sessions * lists, seed)


SETS: dict[str, Callable[[int], Log]] = {"generated": generated, "LightGBM's example": example}


def network(log: Log, seed: int, loss: RankingLoss, *, unbiased: bool, split: bool) -> np.ndarray:
    """Return the scores of the test lists by a network that is trained on clicks."""
    if unbiased:
        loss = Unbiased(loss, PositionBias(examination=log.looks.tolist()), CLIP, split=split)
    ranker = NeuralRanker(loss=loss, members=1, random_state=seed, verbose=0)
    position = log.position if unbiased else None
    ranker.fit(log.shown.X, log.clicks, qid=log.shown.qid, position=position)
    return ranker.predict(log.test.X)


def trees(log: Log, seed: int, *, positions: bool) -> np.ndarray:
    """Return the scores of the test lists by LightGBM, with the parameters of its example."""
    data = lightgbm.Dataset(
        log.shown.X,
        log.clicks,
        group=log.shown.lengths,
        position=(log.position - 1).astype(np.int32) if positions else None,
    )
    parameters: dict[str, Any] = {"objective": "lambdarank", "num_leaves": 31, "seed": seed}
    parameters |= {"learning_rate": 0.1, "min_data_in_leaf": 50, "min_sum_hessian_in_leaf": 5.0}
    parameters |= {"verbose": -1, "num_threads": 1}
    return np.asarray(lightgbm.train(parameters, data, 100).predict(log.test.X))


def on_grades(log: Log, seed: int) -> np.ndarray:
    """Return the scores of the test lists by a network that is trained on the grades."""
    ranker = NeuralRanker(members=1, random_state=seed, verbose=0)
    lists = log.judged
    return ranker.fit(lists.X, lists.grades, qid=lists.qid).predict(log.test.X)


# the learner without positions, which the next ones are compared with, comes first
PLAIN: dict[str, str] = {
    "XENDCG, Unbiased": "XENDCG",
    "XENDCG, Unbiased, split": "XENDCG",
    "SoftmaxLoss, Unbiased": "SoftmaxLoss",
    "SoftmaxLoss, Unbiased, split": "SoftmaxLoss",
    "LightGBM, position": "LightGBM",
}
RANKERS: dict[str, Callable[[Log, int], np.ndarray]] = {
    "XENDCG": partial(network, loss=XENDCG("random"), unbiased=False, split=False),
    "XENDCG, Unbiased": partial(network, loss=XENDCG("random"), unbiased=True, split=False),
    "XENDCG, Unbiased, split": partial(network, loss=XENDCG("random"), unbiased=True, split=True),
    "SoftmaxLoss": partial(network, loss=SoftmaxLoss(), unbiased=False, split=False),
    "SoftmaxLoss, Unbiased": partial(network, loss=SoftmaxLoss(), unbiased=True, split=False),
    "SoftmaxLoss, Unbiased, split": partial(network, loss=SoftmaxLoss(), unbiased=True, split=True),
    "LightGBM": partial(trees, positions=False),
    "LightGBM, position": partial(trees, positions=True),
    "the grades": on_grades,
}


ATTRACTION = [0.05, 0.2, 0.4, 0.7, 1.0]
USERS = {
    "PositionBased": PositionBased(ATTRACTION),
    "Cascade": Cascade(ATTRACTION),
    "DependentClick": DependentClick(ATTRACTION),
}


def lists_of_ten(queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the grades (rows,) of lists, the scores of three rankers (3, rows), and the qids."""
    draw = np.random.default_rng(0)
    grades, qid = draw.integers(0, 5, 10 * queries), np.repeat(np.arange(queries), 10)
    common = grades + 2 * draw.normal(size=len(qid))
    return grades, common + draw.normal(size=(3, len(qid))), qid


def users(sessions: int) -> dict[str, float]:
    """Return the CPU seconds of so many sessions of each user."""
    grades, scores, qid = lists_of_ten(1000)
    found = {}
    for name, user in USERS.items():
        start = time.process_time()
        simulate_clicks(user, grades, scores, qid, sessions=sessions)
        found[name] = rounded(time.process_time() - start)
    return found


def propensities(sessions: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds and the errors of each method."""
    grades, scores, qid = lists_of_ten(1000)
    user, found = USERS["PositionBased"], {}
    truth = 1 / np.arange(1, 11)
    features = np.eye(5)[grades]
    for name in ("harvesting", "swaps", "em", "em, features"):
        swaps = {"swaps": True} if name == "swaps" else {}
        shown = scores[0] if swaps else scores
        log = simulate_clicks(user, grades, shown, qid, sessions=sessions, seed=1, **swaps)
        given: dict[str, Any] = {"method": name.split(",")[0]}
        given |= {"swap": log["swap"]} if swaps else {}
        if "features" in name:
            given |= {"features": features[log["row"]], "classifier": LogisticRegression(C=1e4)}
        columns = (log[key] for key in ("click", "position", "qid", "row"))
        start = time.process_time()
        bias = PositionBias.estimate(*columns, **given)
        seconds = time.process_time() - start
        assert bias.interval is not None
        assert bias.examination is not None
        low, high = np.array(bias.interval).T / bias.examination[0]
        apart = np.array(bias.examination) / bias.examination[0] / truth - 1
        found[name] = {"seconds": rounded(seconds), "error": rounded(float(abs(apart).max()))}
        found[name]["inside"] = int(((low <= truth) & (truth <= high))[1:].sum())
    return found


def quality(scores: np.ndarray, test: Lists) -> float:
    """Return NDCG@10 on the grades."""
    given = torch.from_numpy(np.asarray(scores, np.float64)), torch.from_numpy(test.grades)
    return float(ndcg(*given, top_k=10, lengths=torch.from_numpy(test.lengths)))


def summary(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the mean of each ranker over its seeds, and the difference that positions make."""
    result: dict[str, Any] = {}
    for name, values in found.items():
        one: dict[str, Any] = {"ndcg_10": rounded(float(np.mean([*values.values()])))}
        plain = found.get(PLAIN.get(name, ""), {})
        apart = [values[seed] - plain[seed] for seed in values if seed in plain]
        if len(apart) > 1:
            error = np.std(apart, ddof=1) / len(apart) ** 0.5
            one["difference"] = [rounded(float(np.mean(apart))), rounded(float(error))]
        result[name] = {**one, "seeds": values}
    return result


def main() -> None:
    """Fit what is missing, and write the results after each fit."""
    parser = argparse.ArgumentParser(description="Learning from clicks, with and without positions")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=[*SETS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sessions", type=int, nargs=2, default=[10**6, 200_000])
    parser.add_argument("--output", type=Path, default=RESULTS / "clicks.json")
    given = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "sets": {}}
    if given.output.exists():
        result = json.loads(given.output.read_text()) | {"environment": result["environment"]}
    if "users" not in result:
        result["users"] = users(given.sessions[0])
        result["propensities"] = propensities(given.sessions[1])
        write(given.output, result)
    for name in given.sets:
        one = result["sets"].setdefault(name, {"rankers": {}})
        found = {ranker: row["seeds"] for ranker, row in one["rankers"].items()}
        for seed in range(given.seeds):
            missing = [ranker for ranker in RANKERS if str(seed) not in found.get(ranker, {})]
            if not missing:
                continue
            log = SETS[name](seed)
            sessions = len(log.shown.lengths)
            one |= {"sessions": sessions, "clicks": rounded(float(log.clicks.sum() / sessions))}
            one |= {"test_lists": len(log.test.lengths)}
            for ranker in missing:
                start = time.process_time()
                value = quality(RANKERS[ranker](log, seed), log.test)
                seconds = time.process_time() - start
                print(f"{name}, seed {seed}, {ranker}: {value:.4f}, {seconds:.1f} s", flush=True)
                found.setdefault(ranker, {})[str(seed)] = rounded(value)
                one["rankers"] = summary(found)
                write(given.output, result)


if __name__ == "__main__":
    main()

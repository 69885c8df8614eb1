"""Trials of losses for NDCG on tables where there is much to learn.

    python benchmarks/soft_ndcg_trials.py NAME ... [--data "generated, 100,000"] [--seeds 100 101]

A trial trains one network of `NeuralRanker`'s defaults for small tables on one data set with one
loss, and adds a line to benchmarks/results/soft_ndcg_trials.json: NDCG@10 on the test and training
lists, the epochs, and the seconds of CPU time. For the names see `loss`. "A then B" trains on A,
and from A's best epoch on B, at a third of the learning rate. Seeds from 100 on are for choosing;
the comparison in `soft_ndcg_goal.py` uses 0, 1 and 2. A soft NDCG without a `mean` in the file is
the harmonic one, which was the default. Trials of SoftNDCG(mean='tight') have seeds from 0 on, with
the same of SoftNDCG(SoftplusRank(), mean='regret'); neither chose anything.
"""

import argparse
import copy
import json
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from measure import RESULTS
from quality_sets import SETS, Fold, Lists, load
from quality_summary import values
from torch import Tensor
from torch.nn.functional import softplus

import ltr.losses
import ltr.operators
from ltr.datasets import PiecewiseLinearBins, TableTransform
from ltr.estimators import NeuralRanker
from ltr.losses import XENDCG, RankingLoss, SoftmaxLoss

RESULT = RESULTS / "soft_ndcg_trials.json"
SIZES = {"generated, 10,000": 10_000, "generated, 100,000": 100_000, "generated, 300,000": 300_000}
DOCUMENTS = 25
PLAIN = {
    "learning_rate": 1e-3,
    "schedule": "constant",
    "columns": "all",
    "transform": TableTransform(PiecewiseLinearBins(8)),
}
"""Of the networks at every size."""

SLOWER = 1 / 3
"""Of the learning rate, for the losses after the first."""


def generated(rows: int, seed: int) -> Fold:
    """Return lists of 25 rows of 100 normal columns, with grades 0 to 3 by rank in the list.

    The target has a linear part, a sine, a product, a threshold and noise.
    """
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 100)).astype(np.float32)
    w = np.where(np.arange(100) < 30, draw.normal(size=100), 0)
    target = X @ w * 0.4 + 1.5 * np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    target = target + 2 * (X[:, 3] > 0.5) * X[:, 4] + draw.normal(0, 1.5, rows)
    ranks = (-target.reshape(-1, DOCUMENTS)).argsort(1).argsort(1) / DOCUMENTS
    labels = ((ranks < 0.4).astype(int) + (ranks < 0.2) + (ranks < 0.07)).ravel()
    queries = rows // DOCUMENTS
    first, second = (int(queries * share) * DOCUMENTS for share in (0.65, 0.75))

    def part(start: int, stop: int) -> Lists:
        qid = np.arange(stop - start) // DOCUMENTS
        return Lists(X[start:stop], labels[start:stop].astype(np.float32), qid)

    return Fold(part(0, first), part(first, second), part(second, rows))


def folds(data: str, seed: int) -> list[Fold]:
    """Return the folds of a set; generated ones depend on the seed."""
    return load(data) if data in SETS else [generated(SIZES[data], seed)]


class Trial(RankingLoss):
    """A loss of many options, in its plainest form.

    Args:
        ranks: "sigmoid", "softplus" (upper bounds of the ranks), "exp" (1 / softmax) or "leaky"
            (sigmoids plus `leak` times the upper bound).
        temperature: of the ranks.
        standardize: whether the scores of a list are divided by their standard deviation first.
        value: "ndcg" (1 - NDCG), "log" (-log NDCG), "mean log" (the mean log of the inverse
            discounts), or of the mean inverse discount "log2" (its distance from the ideal),
            "harmonic" (1 - the ideal / it) or "ratio" (the log of it / the ideal).
        leak: see `ranks`.
        softmax: the weight of SoftmaxLoss, of the scores times `scale`.
        xendcg: the weight of XENDCG with random gammas, of the scores times `scale`.
        raw_terms: whether these two take the scores as they are, not standardized.
        ndcg: the weight of the differentiable form of NDCG.
        gamma: the gain is 2^label - gamma; "random" draws one for each document.
    """

    defaults: ClassVar = {
        "ranks": "sigmoid",
        "temperature": 0.3,
        "standardize": False,
        "value": "ndcg",
        "leak": 0.1,
        "softmax": 0.0,
        "xendcg": 0.0,
        "raw_terms": True,
        "scale": 1.0,
        "ndcg": 1.0,
        "gamma": 1.0,
    }

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.o = SimpleNamespace(**{**self.defaults, **options})

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the loss of each list."""
        real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        labels = labels.where(real, 0)
        z = scores.where(real, 0)
        count = real.sum(-1, keepdim=True).clamp(min=1)
        centered = (z - z.sum(-1, keepdim=True) / count).where(real, 0)
        if self.o.standardize:
            variance = (centered**2).sum(-1, keepdim=True) / count
            spread = torch.where(variance > 0, variance, 1.0).sqrt()
            z = centered / spread
        total = scores.new_zeros(scores.shape[:-1])
        if self.o.ndcg:
            total = total + self.o.ndcg * self.ndcg_term(z, labels, real)
        base = scores.where(real, 0) if self.o.raw_terms else z
        if self.o.softmax:
            total = total + self.o.softmax * SoftmaxLoss(reduction="none")(
                base * self.o.scale, labels, real
            )
        if self.o.xendcg:
            total = total + self.o.xendcg * XENDCG("random", reduction="none")(
                base * self.o.scale, labels, real
            )
        return total

    def ndcg_term(self, z: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """Return the differentiable form of NDCG."""
        gap = (z.unsqueeze(-2) - z.unsqueeze(-1)) / self.o.temperature  # [i, j] = s_j - s_i
        n = z.shape[-1]
        pairs = real.unsqueeze(-2) & ~torch.eye(n, dtype=torch.bool)
        if self.o.ranks == "exp":
            each = gap.exp()
        else:
            soft, bound = gap.sigmoid(), softplus(gap) / np.log(2)
            each = {"sigmoid": soft, "softplus": bound}.get(
                self.o.ranks, soft + self.o.leak * bound
            )
        ranks = 1 + each.where(pairs, 0).sum(-1)
        if isinstance(self.o.gamma, str):
            gains = (2**labels - torch.rand_like(labels)).where(real, 0)
            gains = gains * (labels > 0).any(-1, keepdim=True)
        else:
            gains = (2**labels - self.o.gamma).where(real, 0)
        order = gains.sort(-1, descending=True).values
        positions = torch.arange(1, n + 1, device=z.device)
        best = (order / (1 + positions).log2()).sum(-1)
        if self.o.value == "mean log":
            share = gains / gains.sum(-1, keepdim=True).clamp(min=1e-9)
            return (share * (1 + ranks).log2().log()).sum(-1)
        if self.o.value in ("log2", "harmonic", "ratio"):
            share = gains / gains.sum(-1, keepdim=True).clamp(min=1e-9)
            mean = (share * (1 + ranks).log2()).sum(-1)
            share = order / order.sum(-1, keepdim=True).clamp(min=1e-9)
            least = (share * (1 + positions).log2()).sum(-1)
            if self.o.value == "log2":
                return mean - least
            some = least > 0
            ratio = torch.where(some, least, 1.0) / torch.where(some, mean, 1.0)
            return 1 - ratio if self.o.value == "harmonic" else -ratio.log()
        got = (gains / (1 + ranks).log2()).sum(-1)
        ndcg = torch.where(best > 0, got / torch.where(best > 0, best, 1.0), 1.0)
        return 1 - ndcg if self.o.value == "ndcg" else -ndcg.log()


class Sum(RankingLoss):
    """The sum of losses."""

    def __init__(self, *losses: RankingLoss) -> None:
        super().__init__()
        self.losses = torch.nn.ModuleList(losses)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the sum for each list."""
        parts = [loss.per_list(scores, labels, mask, weights) for loss in self.losses]  # pyright: ignore
        return torch.stack(parts).sum(0)


class Anchor(RankingLoss):
    """The squared logarithm of the scores' standard deviation / `spread`, times a weight."""

    def __init__(self, weight: float, spread: float) -> None:
        super().__init__()
        self.weight, self.spread = weight, spread

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the term of each list; those of ties have none."""
        real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        count = real.sum(-1, keepdim=True).clamp(min=1)
        filled = scores.where(real, 0)
        centered = (filled - filled.sum(-1, keepdim=True) / count).where(real, 0)
        variance = (centered.square() / count).sum(-1)
        ratio = torch.where(variance > 0, variance, self.spread**2) / self.spread**2
        return self.weight * (ratio.log() / 2).square()


def loss(name: str) -> RankingLoss:
    """Return a loss of the package by its expression, or a `Trial` by its options as JSON.

    >>> loss("SoftNDCG(SigmoidRank(0.3))")
    """
    if name.startswith("{"):
        return Trial(**json.loads(name))
    return eval(name, {"Sum": Sum, "Anchor": Anchor, **vars(ltr.losses), **vars(ltr.operators)})


def fitted(names: list[str], fold: Fold, seed: int, known: dict, **options: Any) -> tuple:
    """Return a ranker that was trained on one loss after the other.

    The rankers of a fold and a seed are kept in `known`, since many trials begin alike.
    """
    key = (*names,)
    if key not in known:
        start = time.process_time()
        given = {"random_state": seed, "verbose": 0, **PLAIN, **options}
        if len(names) == 1:
            ranker, before = NeuralRanker(members=1, **given), [0, 0.0]
        else:
            first, *before = known.get(key[:-1]) or fitted(names[:-1], fold, seed, known, **options)
            ranker = copy.deepcopy(first).set_params(warm_start=True)
            rate = options.get("learning_rate", ranker.learning_rate) * SLOWER
            ranker.set_params(learning_rate=rate)
        ranker.set_params(loss=loss(names[-1]))
        lists = {"qid": fold.train.qid, "eval_qid": [fold.val.qid]}
        ranker.fit(fold.train.X, fold.train.y, eval_set=[(fold.val.X, fold.val.y)], **lists)
        seconds = before[1] + time.process_time() - start
        known[key] = ranker, before[0] + ranker.n_iter_, seconds
    return known[key]


def trial(
    name: str,
    data: str,
    seed: int,
    test_lists: list[np.ndarray] | None = None,
    known: dict | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train on each fold of a set, and return what came out.

    NDCG@10 of the test lists of each fold is appended to `test_lists`. Rankers of this set, seed
    and options are looked up and kept in `known`.
    """
    test: list[np.ndarray] = [] if test_lists is None else test_lists
    known = {} if known is None else known
    train, epochs, spent = [], [], 0.0
    for number, fold in enumerate(folds(data, seed)):
        same = known.setdefault(number, {})
        ranker, count, seconds = fitted(name.split(" then "), fold, seed, same, **options)
        spent += seconds
        epochs.append(count)
        for part, found in ((fold.test, test), (fold.train, train)):
            found.append(values(ranker.predict(part.X), part.y, part.lengths))
    return {
        "data": data,
        "seed": seed,
        "loss": json.loads(name) if name.startswith("{") else name,
        **({"options": options} if options else {}),
        "test": round(float(np.concatenate(test).mean()), 4),
        "train": round(float(np.concatenate(train).mean()), 4),
        "epochs": epochs if len(epochs) > 1 else epochs[0],
        "seconds": round(spent, 1),
    }


def main() -> None:
    """Run the trials and add each to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("losses", nargs="+", help="see `loss`")
    parser.add_argument("--data", nargs="+", default=["generated, 100,000"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--options", type=json.loads, default={}, help="of NeuralRanker, as JSON")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for data in arguments.data:
        for seed in arguments.seeds:
            known = {}
            for name in arguments.losses:
                found = trial(name, data, seed, known=known, **arguments.options)
                print(json.dumps(found), flush=True)
                kept = json.loads(arguments.output.read_text())
                kept["trials"].append(found)
                arguments.output.write_text(json.dumps(kept, indent=0))


if __name__ == "__main__":
    sys.exit(main())

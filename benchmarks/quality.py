"""The quality of rankers on four data sets, beside LightGBM: NDCG@10 and paired tests.

    LTR_DATA=data python benchmarks/quality.py --cells runs/quality
    LTR_DATA=data python benchmarks/quality.py --cells runs/quality --methods "linear, XENDCG"

The sets are MQ2008 and OHSUMED by their five folds, LightGBM's example by five folds over its
queries, and a part of MSLR-WEB10K. A cell is one method on one set with one seed. Its scores are
kept in the folder `--cells`, where an interrupted run resumes. `quality_summary.py` makes the
table of the cells.

What a method has several values for, LightGBM its `num_leaves` and single networks their learning
rate, is chosen on the validation lists of each fold, by the mean NDCG@10 over the seeds. LightGBM
takes as many trees, and a network as many epochs, as are best on the validation lists.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
from lightgbm import LGBMRanker
from measure import RESULTS, environment, write
from quality_sets import SETS, Fold, load
from quality_summary import TREES, cell_path, summarize, validation
from quality_tabm import TabMRanker
from sklearn.base import BaseEstimator

from ltr.datasets import PiecewiseLinearBins, SignedLog1pStandardize, TableTransform
from ltr.estimators import Blend, NeuralRanker
from ltr.files import atomic_write
from ltr.losses import (
    XENDCG,
    ApproxNDCG,
    LambdaLoss,
    LambdaRank,
    NeuralNDCG,
    RankingLoss,
    SoftmaxLoss,
    SoftNDCG,
)
from ltr.models import AdditiveScorer, AttentionScorer, LinearScorer, MLPScorer, Scorer
from ltr.operators import SigmoidRank, SoftSort, Stochastic

LEAVES = (7, 15, 31, 63)
RATES = (1e-3, 3e-3)
FLAGSHIP = "`NeuralRanker`, 8 bins"
BLEND = f"blend of {FLAGSHIP}, and LightGBM"
OBJECTIVES = ("lambdarank", "rank_xendcg", "regression")


def trees(objective: str, leaves: int, seed: int) -> Any:
    """Return LightGBM's ranker that stops on the validation lists."""
    return LGBMRanker(
        objective=objective,
        num_leaves=leaves,
        n_estimators=1000,
        learning_rate=0.05,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.8,
        metric="ndcg",
        eval_at=[10],
        early_stopping_round=50,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
    )


def network(
    seed: int,
    rate: float,
    loss: RankingLoss | None = None,
    scorer: Scorer | None = None,
    logarithm: bool = False,
) -> Any:
    """Return a single network, on bins or on standardized signed logarithms."""
    numbers = SignedLog1pStandardize() if logarithm else PiecewiseLinearBins(8)
    return NeuralRanker(
        scorer=scorer,
        loss=loss,
        transform=TableTransform(numbers),
        members=1,
        learning_rate=rate,
        random_state=seed,
        verbose=0,
    )


def old_letor(seed: int, rate: float) -> Any:
    """Return the network of the recipe `letor` as it was: layer norm and Gumbel noise."""
    loss = SoftNDCG(Stochastic(SigmoidRank(1.0), samples=4), 10, mean="arithmetic")
    return network(
        seed, rate, loss, MLPScorer(hidden=(128, 64), dropout=0.3, norm=True), logarithm=True
    )


def flagship(seed: int) -> Any:
    """Return our ranker on eight bins of each column alone."""
    return NeuralRanker(
        transform=TableTransform(PiecewiseLinearBins(8)),
        learning_rate=1e-3,
        random_state=seed,
        verbose=0,
    )


class Loaded(BaseEstimator):
    """Our ranker from a folder, fitted on these lists with this seed: fitting gives it again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fit(self, X: Any, y: Any) -> "Loaded":
        """Load it."""
        self.ranker_ = NeuralRanker.load(self.folder)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return its scores."""
        return self.ranker_.predict(X)


class Method(NamedTuple):
    """A row of the table: how its rankers are made, and the values that they choose from."""

    make: Callable[..., Any]
    option: str = ""
    choices: tuple[Any, ...] = ()


def _bins(loss: RankingLoss, scorer: Scorer | None = None) -> Method:
    return Method(partial(network, loss=loss, scorer=scorer), "rate", RATES)


METHODS = {
    **{f"{TREES}{name}": Method(partial(trees, name), "leaves", LEAVES) for name in OBJECTIVES},
    FLAGSHIP: Method(flagship),
    BLEND: Method(flagship),
    "MLP with bins, XENDCG": _bins(XENDCG(gamma="random")),
    "MLP with bins, softmax": _bins(SoftmaxLoss()),
    "MLP with bins, SoftNDCG with SoftSort": _bins(SoftNDCG(SoftSort(), mean="harmonic")),
    "linear, XENDCG": Method(
        partial(network, loss=XENDCG(gamma="random"), scorer=LinearScorer(), logarithm=True),
        "rate",
        RATES,
    ),
    "MLP as the recipe `letor` was": Method(old_letor, "rate", RATES),
    "MLP with bins, ApproxNDCG": _bins(ApproxNDCG()),
    "MLP with bins, LambdaRank": _bins(LambdaRank()),
    "MLP with bins, LambdaLoss": _bins(LambdaLoss()),
    "MLP with bins, NeuralNDCG": _bins(NeuralNDCG()),
    "additive with bins, XENDCG": _bins(XENDCG(gamma="random"), AdditiveScorer(hidden=())),
    "self-attention with bins, XENDCG": _bins(XENDCG(gamma="random"), AttentionScorer()),
    "TabM with bins, XENDCG": Method(TabMRanker, "rate", (3e-3,)),
}


def blend(out: Path, data: str, folds: list[Fold], number: int, seed: int) -> Any:
    """Return our ranker and the trees of this seed that are best on a fold's validation lists."""
    best: list[tuple[float, str, int]] = []
    for name in METHODS:
        if name.startswith(TREES):
            found = validation(folds, np.load(cell_path(out, data, name, seed)))[:, number]
            best.append((found.max(), name, LEAVES[found.argmax()]))
    _, name, leaves = max(best, key=lambda one: one[0])
    networks = Loaded(cell_path(out, data, FLAGSHIP, seed).with_suffix(f".{number}"))
    return Blend([networks, METHODS[name].make(leaves=leaves, seed=seed)], verbose=0)


def fitted(ranker: Any, fold: Fold) -> Any:
    """Return the ranker, fitted."""
    train, val = fold.train, fold.val
    lists: dict[str, Any] = {"qid": train.qid, "eval_qid": [val.qid]}
    if isinstance(ranker, LGBMRanker):
        lists = {"group": train.lengths, "eval_group": [val.lengths]}
    return ranker.fit(train.X, train.y, eval_set=[(val.X, val.y)], **lists)


def run(out: Path, data: str, folds: list[Fold], name: str, seed: int) -> None:
    """Train one method on all folds of a set with one seed, and keep the scores."""
    method = METHODS[name]
    options = [{method.option: choice} for choice in method.choices] or [{}]
    scores: dict[str, list[list[np.ndarray]]] = {
        side: [[] for _ in options] for side in ("val", "test")
    }
    seconds = np.zeros(len(options))
    path = cell_path(out, data, name, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    for number, fold in enumerate(folds):
        for position, option in enumerate(options):
            if name == BLEND:
                ranker: Any = blend(out, data, folds, number, seed)
            else:
                ranker = method.make(seed=seed, **option)
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                warnings.filterwarnings("ignore", module="lightgbm")  # of its names of arguments
                fitted(ranker, fold)
                seconds[position] += time.process_time() - start
                if name == FLAGSHIP:
                    ranker.save(path.with_suffix(f".{number}"))
                for side, lists in (("val", fold.val), ("test", fold.test)):
                    known: dict[str, Any] = (
                        {} if isinstance(ranker, LGBMRanker) else {"qid": lists.qid}
                    )
                    predicted = np.asarray(ranker.predict(lists.X, **known), np.float32)
                    scores[side][position].append(predicted)
    if name == BLEND:
        seconds += np.load(cell_path(out, data, FLAGSHIP, seed))["seconds"]
    val, test = (np.stack([np.concatenate(x) for x in found]) for found in scores.values())
    with atomic_write(path) as partial_file, partial_file.open("wb") as file:
        np.savez_compressed(file, val=val, test=test, seconds=seconds)
    quality = validation(folds, {"val": val}).max(0).mean()
    print(f"{data}, {name}, seed {seed}: {seconds.sum():.0f} s, {quality:.4f}", flush=True)


def main() -> None:
    """Read the arguments, run the cells that are missing, write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=Path, required=True, help="the folder of the cells")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--methods", nargs="*", default=[*METHODS], choices=METHODS)
    parser.add_argument("--output", type=Path, default=RESULTS / "quality.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folds = {data: load(data) for data in arguments.sets}
    for name, seed, data in product(arguments.methods, range(arguments.seeds), folds):
        if not cell_path(arguments.cells, data, name, seed).exists():
            run(arguments.cells, data, folds[data], name, seed)
    choices = {name: method.choices for name, method in METHODS.items()}
    sets = [
        summarize(folds[data], arguments.cells, data, choices, arguments.seeds, (FLAGSHIP, BLEND))
        for data in folds
    ]
    versions = {**environment(), "lightgbm": lightgbm.__version__}
    write(arguments.output, {"environment": versions, "seeds": arguments.seeds, "sets": sets})


if __name__ == "__main__":
    main()

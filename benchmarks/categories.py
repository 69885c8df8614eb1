"""A category of 30, 300 or 3,000 levels in `NeuralRanker`: one-hot codes, or learned embeddings.

    python benchmarks/categories.py --levels 30 300 3000

The generated tables have 20 columns of numbers and one category, in lists of 25 rows: 800 to train
on, 200 to validate on and 500 to test on. A level's frequency is in proportion to
1 / (rank + 10). The target is linear in 10 numbers, with a sine, a product and a threshold, plus an
effect of each level and an effect of each level on the slope of the first number; a twentieth of
the categories is missing. Grades of 0 to 3 are the ranks within a list (top 40, 20 and 8 %).

- `none`: the numbers alone.
- `one-hot, 256`: the 256 most frequent levels have a code, others count as missing.
- `one-hot`: every level has a code.
- `embedding`: the transform holds an embedding of min(16, ceil(1.6 levels ** .56)) numbers, which
  all members share; the vector of the missing or unseen level is learned too.
- `own embeddings`: each member has embeddings of its own.

For each: NDCG@10 on the test lists with the 95 % interval of the difference to `one-hot` over these
lists, CPU seconds of `fit` on one thread, and weights. Rankers have one member. The result is
written to benchmarks/results/categories.json, beside the existing levels. Takes two minutes.

    python benchmarks/categories.py --seconds --levels 30 300 1500

This measures what the category costs: CPU seconds of a training step, and of a fit with the
defaults and a code for each level, on 42,000 rows of such a table. All take turns in one process,
on one thread. Takes five minutes.

- `none`: the numbers alone.
- `codes`: the first layer looks up the weights of the levels (`CodedLinear`).
- `one-hot`: the first layer multiplies its weights by one-hot numbers.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import RESULTS, environment, rounded, times, write
from torch import Tensor, nn

from ltr.datasets import FeatureTransform, PiecewiseLinearBins, TableTransform, read_table
from ltr.estimators import NeuralRanker
from ltr.losses import XENDCG
from ltr.models import MLPScorer
from ltr.models.ragged import score_ragged
from ltr.models.scorer import FeatureScorer, transformed
from ltr.reports import evaluate

LENGTH, NUMBERS = 25, 20
QUERIES = {"train": 800, "validation": 200, "test": 500}
LEVELS = (30, 300, 3000)
TIMED = 1680
"""Queries of the table whose step and fit are timed."""


def make_table(
    levels: int, seed: int, queries: int = sum(QUERIES.values())
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return the columns, the labels and the queries of a generated table."""
    rng = np.random.default_rng(seed)
    rows = queries * LENGTH
    x = rng.normal(size=(rows, NUMBERS))
    frequency = 1 / (np.arange(levels) + 10)
    level = rng.choice(levels, rows, p=frequency / frequency.sum())
    target = x[:, :10] @ rng.normal(size=10) * 0.4 + 1.5 * np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]
    target += 2 * (x[:, 3] > 0.5) * x[:, 4] + rng.normal(size=rows) * 1.5
    there = rng.random(rows) > 0.05
    effects, slopes = rng.normal(size=(2, levels))
    target += (1.5 * effects[level] + 0.7 * slopes[level] * x[:, 0]) * there
    ranks = (-target.reshape(queries, LENGTH)).argsort(1).argsort(1)
    labels = (ranks < LENGTH * 0.4).astype(int) + (ranks < LENGTH * 0.2) + (ranks < LENGTH * 0.08)
    frame = pd.DataFrame(x.astype(np.float32), columns=[f"x{i}" for i in range(NUMBERS)])
    frame["category"] = np.where(there, np.char.add("level ", level.astype(str)), None)
    return frame, labels.ravel(), np.repeat(np.arange(queries), LENGTH)


def width_of(levels: int) -> int:
    """Return the width of the embedding of a category."""
    return min(16, math.ceil(1.6 * levels**0.56))


class Embedded(FeatureTransform):
    """The numbers as in `TableTransform`, and an embedding of each category that members share."""

    takes_missing = fits_missing = True

    def __init__(self, scale: float = 0.3) -> None:
        super().__init__()
        self.numbers = TableTransform(PiecewiseLinearBins(8))
        self.tables = nn.ModuleList()
        self.scale = scale

    @property
    def out_features(self) -> int:
        """The width of what comes out."""
        return (self.numbers.out_features or 0) + sum(one.embedding_dim for one in self.tables)

    def fit(self, features: Any, categories: Any = None) -> "Embedded":
        """Make the embeddings."""
        self.numbers.fit(features)
        self.num_features = self.numbers.num_features
        for levels in categories.max(0).tolist():
            self.tables.append(nn.Embedding(levels + 1, width_of(levels)))
            nn.init.normal_(self.tables[-1].weight, std=self.scale)
        return self

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the numbers and the embeddings side by side."""
        assert categories is not None
        codes = categories.unbind(-1)
        found = [
            one(code % one.num_embeddings) for one, code in zip(self.tables, codes, strict=True)
        ]
        return torch.cat([self.numbers(features, mask), *found], -1)


class Passed(Embedded):
    """The numbers as in `TableTransform`, and the codes of the categories as they are."""

    @property
    def out_features(self) -> int:
        """The width of what comes out."""
        return (self.numbers.out_features or 0) + 1

    def fit(self, features: Any, categories: Any = None) -> "Passed":
        """Fit the numbers."""
        self.numbers.fit(features)
        self.num_features = self.numbers.num_features
        return self

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the numbers and the codes side by side."""
        assert categories is not None
        return torch.cat([self.numbers(features, mask), categories.to(features.dtype)], -1)


class EmbeddingLayer(nn.Module):
    """An embedding of the last number, a code."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.table = nn.Embedding(levels + 1, width_of(levels))
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the other numbers and the embedding."""
        return torch.cat([x[..., :-1], self.table(x[..., -1].long())], -1)


class OwnEmbedding(FeatureScorer):
    """`MLPScorer(hidden=(128, 64))` after an embedding of the last number."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the embedding and the layers."""
        behind = MLPScorer(num_features - 1 + width_of(self.levels), hidden=(128, 64))
        assert behind.layers is not None
        return nn.Sequential(EmbeddingLayer(self.levels), behind.layers)


def contestants(levels: int) -> dict[str, dict[str, Any]]:
    """Return the parameters of each ranker."""
    all_levels = {"max_levels": levels}
    bins = {"transform": TableTransform(PiecewiseLinearBins(8))}
    found: dict[str, dict[str, Any]] = {"none": bins, "one-hot": {**bins, **all_levels}}
    if levels > 256:
        found["one-hot, 256"] = {**bins, "max_levels": 256}
    found["embedding"] = {"transform": Embedded(), **all_levels}
    found["own embeddings"] = {
        "transform": Passed(),
        "scorer": OwnEmbedding(levels),
        **all_levels,
    }
    return {name: {"learning_rate": 1e-3, **one} for name, one in found.items()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--seconds", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for levels in given.levels:
        part = "seconds" if given.seconds else "rows"
        if given.seconds:
            rows = seconds(levels)
        else:
            draws = range(given.draws)
            rows = [row for draw in draws for row in measure(levels, draw, given.members)]
        file = RESULTS / "categories.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        rows += [row for row in known.get(part, []) if row["levels"] != levels]
        rows.sort(key=lambda row: row["levels"])
        write(file, {**known, "environment": environment(), part: rows})


def measure(levels: int, draw: int, members: int) -> list[dict[str, Any]]:
    """Return the results of all rankers on one table."""
    frame, labels, qid = make_table(levels, draw)
    bounds = np.cumsum([QUERIES["train"], QUERIES["validation"]])
    parts = np.searchsorted(bounds, qid, side="right")
    train, val, test = (parts == i for i in range(3))
    rows, values = [], {}
    for name, parameters in contestants(levels).items():
        ranker = NeuralRanker(**parameters, members=members, random_state=draw, verbose=0)
        columns = frame.drop(columns="category") if name == "none" else frame
        held = {"eval_set": [(columns[val], labels[val])], "eval_qid": [qid[val]]}
        start = time.process_time()
        ranker.fit(columns[train], labels[train], qid=qid[train], **held)
        seconds = time.process_time() - start
        scores = ranker.predict(columns[test])
        found = evaluate(labels[test], scores, qid[test], metrics=["ndcg@10"])
        (values[name],) = found.values.values()
        parameters = [*ranker.scorer_.parameters(), *ranker.transform_.parameters()]
        row = {"levels": levels, "draw": draw, "ranker": name, "epochs": ranker.n_iter_}
        row |= {"seconds": rounded(seconds), "weights": sum(x.numel() for x in parameters)}
        rows.append({**row, "ndcg@10": rounded(values[name].mean())})
        print(rows[-1], flush=True)
    for row in rows:
        gain = values[row["ranker"]] - values["one-hot"]
        error = 1.96 * gain.std(ddof=1) / math.sqrt(len(gain))
        row["difference"] = [rounded(gain.mean() - error), rounded(gain.mean() + error)]
    return rows


class OneHot(MLPScorer):
    """Gets one-hot numbers, as a subclass does that does not ask for codes."""


def seconds(levels: int) -> list[dict[str, Any]]:
    """Return the seconds of a training step and of a fit, with the category and without it."""
    frame, labels, qid = make_table(levels, 0, TIMED)
    kinds = {"none": MLPScorer, "codes": MLPScorer, "one-hot": OneHot}
    steps, fits, widths = {}, {}, {}
    for name, kind in kinds.items():
        columns = frame.drop(columns="category") if name == "none" else frame
        scorer = kind(hidden=(128, 64))
        ranker = NeuralRanker(scorer=scorer, max_levels=levels, random_state=0, verbose=0)
        start = time.process_time()
        ranker.fit(columns, labels, qid=qid)
        fits[name] = time.process_time() - start
        widths[name] = ranker.scorer_.num_features
        steps[name] = step_of(ranker, columns, labels, qid)
    step = times(steps, rounds=10)
    return [
        {"levels": levels, "category": name, "inputs": widths[name]}
        | {"step": rounded(step[name]), "fit": rounded(fits[name])}
        for name in kinds
    ]


def step_of(
    ranker: NeuralRanker, columns: pd.DataFrame, labels: np.ndarray, qid: np.ndarray
) -> Callable[[], None]:
    """Return a training step of a fitted ranker's members on its first 64 lists."""
    size, schema = 64 * LENGTH, ranker.schema_
    named = {schema.qid: qid[:size], str(schema.label): labels[:size]}
    lists = read_table(columns[:size].assign(**named), schema)
    batch = lists.__getitems__(range(len(lists)))
    scorer, transform, loss = ranker.scorer_, ranker.transform_, XENDCG(gamma="random")
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        given = batch["features"], None, batch.get("categories"), batch["lengths"]
        features = transformed(scorer, transform, *given)
        for one in scorer.copies:
            scores = score_ragged(one, features, batch["lengths"])
            loss(scores, batch["labels"], lengths=batch["lengths"]).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

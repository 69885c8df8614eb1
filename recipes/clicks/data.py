"""A Lightning data module of simulated clicks on the lists of a production ranker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from ltr.clicks import PositionBased, PositionBias, simulate_clicks
from ltr.datasets import (
    DigitsDataModule,
    FeatureTransform,
    ListDataModule,
    ListDataset,
    PiecewiseLinearBins,
    find_splits,
    read_letor,
)
from ltr.models import FeatureScorer
from ltr.rerank import rank
from ltr.shapes import check_at_least, check_choice, check_number, check_whole

Learn = Literal["production", "naive", "true", "estimated", "grades"]
_NOISE = 0.1
"""The probability of a click on an irrelevant document that the user looks at."""


class ClickDataModule(ListDataModule):
    """Judged lists as a log of clicks, to learn from; the lists to test on keep their grades.

    `rankers` production rankers share the sessions, as versions in an A/B test do. Each is a ridge
    regression of the grades of `labelled` of the training lists, at least one. A session shows the
    first `top_k` documents of a list, training or validation. The user looks at position k with
    probability 1 / k, and clicks on a document that was looked at with probability
    0.1 + 0.9 (2^grade - 1) / (2^largest - 1).

    A training list is what one ranker showed of one list, in all its sessions. The label of a
    document is the number of its clicks, each divided by the propensity of its position, on a scale
    on which the mean sum of a list is 1. So `SoftmaxLoss(normalize=False)` is proportional to the
    sum over all sessions of `Unbiased` of that loss, and costs as much for a million sessions as
    for a thousand. Validation lists are of this form too: `val_loss` needs no grades.

    Args:
        root: the folder that holds the folder `source`.
        source: a folder of LETOR's files, such as "MQ2008"; or "digits", lists of scikit-learn's
            handwritten digits, which need no files, with grades 0 to 4.
        fold: the number of the fold.
        learn: "naive" (all propensities are 1), "true", "estimated" (by harvesting, from the log),
            "grades" (no clicks: all grades of all documents, as gains (2^grade - 1) /
            (2^largest - 1)), or "production" (the only feature is the score of the first production
            ranker, for `GivenScores`).
        sessions: how many there are, of training and validation lists together.
        rankers: how many production rankers there are.
        labelled: the fraction of the training lists whose grades a production ranker knows.
        top_k: how many documents are shown.
        batch_size: lists in a batch.
        transform: fitted on the training lists in `setup`. Default: `PiecewiseLinearBins()`.
        num_workers: processes that make batches.
        seed: of the labelled lists, the clicks and the shuffling, >= 0. Default: see
            `SplitDataModule`.

    Attributes:
        bias: the propensities that the weights were made with; None without clicks; after `setup`.

    Raises:
        ValueError: an argument is out of range; in `setup`, files are missing, or the log does not
            tell the propensities.

    >>> data = ClickDataModule(learn="true", sessions=500)
    >>> data.setup("fit")
    >>> data.splits["train"].summary().longest, data.splits["test"].summary().longest
    (10, 12)
    """

    bias: PositionBias | None

    def __init__(
        self,
        root: str | None = None,
        source: str = "digits",
        fold: int = 1,
        learn: Learn = "true",
        sessions: int = 10_000,
        rankers: int = 3,
        labelled: float = 0.01,
        top_k: int = 10,
        batch_size: int = 64,
        transform: FeatureTransform | None = None,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            transform=PiecewiseLinearBins() if transform is None else transform,
            num_workers=num_workers,
            seed=seed,
        )
        check_choice("learn", learn, "production", "naive", "true", "estimated", "grades")
        self.root, self.source, self.learn = root, source, learn
        self.fold = check_at_least("fold", fold, 1)
        self.sessions, self.rankers = (
            check_whole("sessions", sessions),
            check_whole("rankers", rankers),
        )
        if self.sessions < self.rankers:
            raise ValueError(
                f"sessions must be at least the number of rankers, {rankers}, got {sessions}"
            )
        self.labelled = check_number("labelled", labelled, minimum=0.0)
        self.top_k = check_whole("top_k", top_k)
        self.bias = None

    def load_splits(self) -> dict[str, ListDataset]:
        """Read the lists, and draw the clicks."""
        judged = self._judged()
        largest = max(int(part.labels.max()) for part in judged.values())
        gains = (2.0 ** np.arange(largest + 1) - 1) / (2.0**largest - 1)
        learned = {name: part for name, part in judged.items() if name != "test"}
        if self.learn == "grades":
            return judged | {
                name: _lists(part, labels=gains[part.labels.astype(int)])
                for name, part in learned.items()
            }
        rankers = [*self._production(judged["train"])]
        if self.learn == "production":
            return {
                name: _lists(part, features=rankers[0].predict(part.features)[:, None])
                for name, part in judged.items()
            }
        clicked = self._clicked(learned, rankers, _NOISE + (1 - _NOISE) * gains)
        return judged | clicked

    def _judged(self) -> dict[str, ListDataset]:
        """Return the lists with their grades."""
        if self.source == "digits":
            splits = DigitsDataModule(train_lists=200, val_lists=50, seed=0).load_splits()
            del splits["predict"]
            return {name: _lists(part, labels=part.labels // 2) for name, part in splits.items()}
        files = find_splits(Path(self.root or ".") / self.source, self.fold)
        return {name: read_letor(path) for name, path in files.items()}

    def _production(self, train: ListDataset) -> Iterator[Any]:
        """Yield the production rankers."""
        lists = np.repeat(np.arange(len(train)), train.lengths)
        draw = np.random.default_rng([self.seed, 0])
        able = np.flatnonzero(train.varied())
        for _ in range(self.rankers):
            known = draw.choice(able, max(1, round(self.labelled * len(train))), replace=False)
            rows = np.isin(lists, known)
            ranker = make_pipeline(StandardScaler(), Ridge(10.0))
            yield ranker.fit(train.features[rows], train.labels[rows])

    def _clicked(
        self, judged: dict[str, ListDataset], rankers: list[Any], attraction: np.ndarray
    ) -> dict[str, ListDataset]:
        """Return the lists that the rankers showed, with their clicks."""
        parts = [*judged.values()]
        features, grades, lengths = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("features", "labels", "lengths")
        )
        qid = np.repeat(np.arange(len(lengths)), lengths)
        user, cells = PositionBased(attraction.tolist()), []
        for version, ranker in enumerate(rankers):
            scores = ranker.predict(features)
            count = len(range(version, self.sessions, len(rankers)))
            seed = self.seed * len(rankers) + version
            log = simulate_clicks(
                user, grades, scores, qid, sessions=count, top_k=self.top_k, seed=seed
            )
            clicks = np.bincount(log["row"], log["click"], len(qid))
            shown = np.bincount(log["row"], minlength=len(qid))
            position = rank(scores, qid)
            row = np.lexsort((position, qid))
            row = row[shown[row] > 0]
            lists = qid[row] + version * len(lengths)
            cells.append((lists, row, position[row], clicks[row], shown[row]))
        lists, row, position, clicks, shown = map(np.concatenate, zip(*cells, strict=True))
        self.bias = PositionBias(power=1.0 if self.learn == "true" else 0.0)
        if self.learn == "estimated":
            self.bias = PositionBias.estimate(
                clicks, position, qid[row], row, impressions=shown, resamples=0
            )
        weight = clicks / self.bias(torch.from_numpy(position)).numpy()
        names, starts = np.unique(lists, return_index=True)
        whole = ListDataset(
            features[row],
            (weight * len(names) / weight.sum()).astype(np.float32),
            np.append(starts, len(lists)),
            [f"version {name // len(lengths)}, list {name % len(lengths)}" for name in names],
        )
        own = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[names % len(lengths)]
        return {name: whole.select(np.flatnonzero(own == part)) for part, name in enumerate(judged)}


class GivenScores(FeatureScorer):
    """Scores that are the only feature.

    >>> GivenScores(num_features=1)(torch.tensor([[3.0], [2.0]]))
    tensor([3., 2.])
    """

    def make_layers(self, num_features: int) -> nn.Module:
        """Return what leaves the feature as it is."""
        return nn.Identity()


def _lists(part: ListDataset, **other: np.ndarray) -> ListDataset:
    """Return lists with other labels or features."""
    arrays = {"features": part.features, "labels": part.labels} | other
    features, labels = (arrays[name].astype(np.float32) for name in ("features", "labels"))
    return ListDataset(features, labels, part.offsets, part.qids)

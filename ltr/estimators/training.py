"""Train the members of an ensemble in a plain loop, each up to its own best epoch."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from ltr.datasets.lists import ListDataset
from ltr.datasets.samplers import ListSampler, order_lists
from ltr.datasets.transforms import FeatureTransform, fit_documents
from ltr.estimators.parameters import HIDDEN, Settings
from ltr.estimators.progress import Progress
from ltr.losses import SeveralLabels
from ltr.losses.base import Loss
from ltr.losses.unbiased import click_weights, one_click_lists
from ltr.metrics.named import ranking_measure
from ltr.models import Ensemble, MonotoneScorer, Scorer
from ltr.models.ensemble import SCALE_LISTS
from ltr.models.ragged import score_ragged
from ltr.models.scorer import build_scorer, transformed
from ltr.ragged import sum_lists
from ltr.training.finite import all_finite, check_scores, not_finite
from ltr.training.losses import ScoredLists, batch_loss, check_gradient, side_inputs
from ltr.training.seeds import own_random_numbers, seed_batch

Batch = dict[str, Any]
History = list[list[float]]

_WARM_UP = 0.1
"""The learning rate rises during this fraction of a cycle's steps, at its beginning."""


def train(
    settings: Settings,
    lists: ListDataset,
    validation: ListDataset | None,
    *,
    of_lists: bool,
    known: tuple[Ensemble, FeatureTransform] | None = None,
    note: str = "",
    callbacks: Sequence[Callable[[History], Any]] = (),
) -> "Training":
    """Train the ensemble of a `NeuralRanker`, each member up to its own best epoch.

    Afterwards, the states of the global random number generators are restored.

    Args:
        settings: the settings of this training run.
        lists: the lists to train on.
        validation: the lists on which each member's best epoch is chosen; None to keep the last
            epoch.
        of_lists: whether the weights are those of lists, not of rows.
        known: the ensemble and the transform to continue with, which are not changed; None to start
            with new ones.
        note: text for the end of the progress line.
        callbacks: see `NeuralRanker.fit`.

    Raises:
        ValueError: the loss or a gradient is not finite, the scorer has no parameters to train, or
            its directions (`monotone`) are not those of `known`.
    """
    seed = int(check_random_state(settings.random_state).randint(np.iinfo(np.int32).max))
    with own_random_numbers(), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(seed)
        if known is None:
            transform = copy.deepcopy(settings.transform).train()
            fit_documents(transform, lists.to_fit())
            scorer = Ensemble(_scorer(settings, transform), settings.members)
        else:
            scorer, transform = copy.deepcopy(known)
            transform.train()
            wanted = _scorer(settings, transform)
            if _directions(wanted) != _directions(scorer.scorer):
                raise ValueError("monotone must be as in the previous training (warm_start)")
        scorer.train()
        build_scorer(scorer, transform, lists.num_features)
        loss = copy.deepcopy(settings.loss)
        if of_lists:
            loss.reduction = "none"  # `batch_loss` weighs the value of each list
        training = Training(settings, scorer, loss, transform, seed, of_lists)
        written = settings.metric if isinstance(settings.metric, str) else training.measure.title
        with Progress(settings.verbose, settings.max_epochs, written, note) as progress:
            training.run(lists, validation, callbacks, progress)
        training.finish(lists)
        training.parts.to("cpu").eval()
    return training


def _scorer(settings: Settings, transform: FeatureTransform) -> Scorer:
    """Return the scorer that the members are copies of, for a fitted transform."""
    if not any(settings.directions):
        return copy.deepcopy(settings.scorer)
    signs = torch.tensor([*settings.directions, 0])  # the last sign is for index -1, no column
    return MonotoneScorer(signs[transform.monotone_columns()].tolist(), HIDDEN)


def _columns(labels: Any) -> Any:
    """Return labels (rows,) or (rows, labels) as (rows, labels)."""
    return labels[:, None] if labels.ndim == 1 else labels


def _check_floors(loss: SeveralLabels, labels: np.ndarray) -> None:
    """Raise an error if a label with a floor has no known value in validation labels."""
    for name in loss.floors:
        if np.isnan(labels[:, loss.names.index(name)]).all():
            raise ValueError(
                f"eval_set must have known values of {name!r}, which has a floor, got none"
            )


def _directions(scorer: Scorer) -> list[int]:
    return scorer.directions if isinstance(scorer, MonotoneScorer) else []


@dataclass
class _Best:
    """The best epoch so far of members that stop together, and their weights at this epoch."""

    members: list[int]
    parts: nn.ModuleList
    value: float = -math.inf
    epoch: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, value: float, epoch: int) -> None:
        """Keep the weights if the value is the best so far."""
        if value > self.value:
            self.value, self.epoch = value, epoch
            self.state = {name: x.clone() for name, x in self.parts.state_dict().items()}


class Training:
    """Trains each member of an ensemble on the loss of its own scores, in ragged batches.

    A member stops when its metric on the validation lists has not risen for `patience` epochs, and
    keeps the weights of its best epoch. So each member ends as if it had been trained alone. But if
    the transform, which the members share, is trained too, all members stop together.

    Attributes:
        transform: the transform, fitted on the training lists.
        scorer: the members and their scales. After `finish`, the members have the weights of their
            best epochs.
        epochs: the number of epochs that were trained.
        history: for each epoch, the metric of each member on the validation lists; empty without
            validation lists.
    """

    def __init__(
        self,
        settings: Settings,
        scorer: Ensemble,
        loss: Loss,
        transform: FeatureTransform,
        seed: int,
        of_lists: bool,
    ) -> None:
        self.settings, self.seed, self.of_lists = settings, seed, of_lists
        self.measure = ranking_measure(settings.metric)
        self.device = torch.device(settings.device)
        named = {"loss": loss, "scorer": scorer, "transform": transform}
        self.parts = nn.ModuleDict(named).to(self.device)
        self.scorer, self.loss, self.transform = scorer, loss, transform
        self.active = list(range(self.scorer.members))
        self.history: History = []
        self.epochs = self.steps = self.planned = 0
        self.parameters = [x for x in self.parts.parameters() if x.requires_grad]
        if not self.parameters:
            raise ValueError(f"scorer must have parameters to train, got {self.scorer.scorer}")
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),  # one call updates all members
        )
        copies = self.scorer.copies
        if any(x.requires_grad for x in self.transform.parameters()):
            self.best = [_Best([*self.active], nn.ModuleList([*copies, self.transform]))]
        else:
            self.best = [_Best([i], nn.ModuleList([copies[i]])) for i in self.active]

    def run(
        self,
        lists: ListDataset,
        validation: ListDataset | None,
        callbacks: Sequence[Callable[[History], Any]],
        progress: Progress,
    ) -> None:
        """Train until all members have stopped, a callback returns True, or all epochs are over."""
        order = self._order(lists, shuffle=True)
        steps = -(-len(order) // self.settings.batch_size)
        epochs = self.settings.max_epochs
        self.planned = steps * epochs
        largest = np.empty(0)
        if validation is not None:
            labels = _columns(validation.labels)
            largest = np.fmax.reduce(labels, axis=0, initial=0.0)
            if isinstance(self.loss, SeveralLabels):
                _check_floors(self.loss, labels)
        for epoch in range(epochs):
            order.set_epoch(epoch)
            batches = progress.steps(self._batches(lists, order), steps)
            for position, batch in enumerate(batches):
                seed_batch(self.seed, "train", epoch, position)
                self._step(batch, epoch, position)
            values = [float("nan")] * self.scorer.members
            if validation is not None:
                values = self._validate(validation, epoch, largest)
                self._choose(values, epoch + 1)
            self.history.append(values)
            # Every callback is called. Each gets a copy, because it may change what it gets.
            asked = [call([[*row] for row in self.history]) for call in callbacks]
            stop = not self.active or any(asked) or epoch + 1 == epochs
            best = [group.value for group in self.best for _ in group.members]
            progress.epoch(sum(best) / len(best) if validation else None, last=stop)
            if stop:
                break
        self.epochs = len(self.history)
        if validation is None:
            self.history.clear()

    @property
    def best_epochs(self) -> list[int]:
        """The best epoch of each member, from 1; without validation, the last epoch.

        If the transform is trained too, the list has only one epoch, the same for all members.
        """
        return [group.epoch or self.epochs for group in self.best]

    def finish(self, lists: ListDataset) -> None:
        """Give each member its best weights, and fit the scales on training lists."""
        for group in self.best:
            if group.state:
                group.parts.load_state_dict(group.state)
        self.active = list(range(self.scorer.members))
        sample = lists.between(0, min(SCALE_LISTS, len(lists)))
        scores, lengths = [], []
        with self._scoring():
            for batch in self._batches(sample, range(len(sample))):
                scores.append(self._scores(self._moved(batch)).cpu())
                lengths.append(batch["lengths"])
                # The last step may have made weights that are not finite.
                for of_member in scores[-1]:
                    check_scores(of_member, batch, finite=True)
        self.scorer.fit_scales(torch.cat(scores, 1).clone(), torch.cat(lengths))

    def _order(self, lists: ListDataset, *, shuffle: bool) -> ListSampler:
        options: dict[str, Any] = {"shuffle": shuffle, "seed": self.seed}
        options |= {"num_replicas": 1, "rank": 0}  # each of several processes reads all lists
        bucket = not self.scorer.per_document
        return order_lists(lists, self.settings.batch_size, bucket=bucket, **options)

    def _batches(self, lists: ListDataset, order: Any) -> Iterator[Batch]:
        for positions in BatchSampler(order, self.settings.batch_size, drop_last=False):
            yield lists.__getitems__(positions)

    def _moved(self, batch: Batch) -> Batch:
        return {
            key: value.to(self.device) if isinstance(value, Tensor) else value
            for key, value in batch.items()
        }

    def _step(self, batch: Batch, epoch: int, position: int) -> None:
        moved = self._moved(batch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self._pace()
        self.optimizer.zero_grad()
        loss = self._loss(moved)
        loss.backward()
        if not all_finite(loss.detach(), [x.grad for x in self.parameters if x.grad is not None]):
            raise not_finite(loss.detach(), batch, epoch=epoch, batch_idx=position)
        self.optimizer.step()
        self.steps += 1

    def _pace(self) -> float:
        """Return what the learning rate is multiplied by at this step."""
        if self.settings.schedule == "constant":
            return 1.0
        done = (self.steps + 0.5) / self.planned
        if done < _WARM_UP:
            return done / _WARM_UP
        return (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP))) / 2

    def _scores(self, batch: Batch) -> Tensor:
        """Return the scores (members, N) of the members that have not stopped."""
        lengths, given = batch["lengths"], (batch["features"], None, batch.get("categories"))
        features = transformed(self.scorer, self.transform, *given, lengths)
        copies = [self.scorer.copies[i] for i in self.active]
        return torch.stack([score_ragged(member, features, lengths) for member in copies])

    def _loss(self, batch: Batch) -> Tensor:
        """Return the sum of the members' losses on the same lists."""
        scores = self._scores(batch)
        times = len(scores)
        side = side_inputs(self.loss, batch)
        lists = ScoredLists(
            scores.flatten(),
            batch["labels"].repeat(times, *[1] * (batch["labels"].dim() - 1)),
            mask=None,
            weights=batch["weight"].repeat(times) if "weight" in batch else None,
            lengths=batch["lengths"].repeat(times),
            side_inputs={name: x.repeat(times) for name, x in side.items()},
        )
        loss = batch_loss(self.loss, lists, of_lists=self.of_lists)
        return check_gradient(self.loss, loss) * times

    def _validate(self, lists: ListDataset, epoch: int, largest: np.ndarray) -> list[float]:
        """Return the metric of each member on the lists, NaN for a member that has stopped.

        With several labels, it is the `quality` of the metrics of the labels, and the multipliers
        of floors are updated by the means of the members.

        With a loss on clicks (`Unbiased`), if the lists have positions, each click is a list of its
        own, and the mean over these lists is weighted by the weights of the clicks. Without these
        weights, the metric would favor the epoch that best predicts where users looked.

        Args:
            lists: the validation lists.
            epoch: the index of the epoch, from 0.
            largest: (labels,), the largest value of each label of the lists.
        """
        total = torch.zeros(len(largest), len(self.active), dtype=torch.float64)
        count = torch.zeros(len(largest), 1, dtype=torch.float64)
        with self._scoring():
            batches = self._batches(lists, self._order(lists, shuffle=False))
            for position, batch in enumerate(batches):
                seed_batch(self.seed, "validate", epoch, position)
                scores, lengths = self._scores(self._moved(batch)).cpu(), batch["lengths"]
                for of_member in scores:
                    check_scores(of_member, batch)
                labels, weights = batch["labels"], (lengths > 0).double()
                if "position" in batch:
                    factors = click_weights(self.loss, batch["position"].to(self.device))
                    if factors is not None:
                        clicks, items, labels, lengths = one_click_lists(labels, lengths)
                        scores, weights = scores[:, items], factors.cpu()[clicks].double()
                for k, label in enumerate(_columns(labels).unbind(1)):
                    own = scores, label, lengths, weights
                    values, counted = self._values(*own, float(largest[k]))
                    total[k] += values
                    count[k] += counted
        means = total / torch.where(count > 0, count, 1.0)
        values = means[0].tolist()
        if isinstance(self.loss, SeveralLabels):
            means = torch.where(count > 0, means, math.nan)
            names = self.loss.names
            values = [self.loss.quality(dict(zip(names, x.tolist(), strict=True))) for x in means.T]
            self.loss.update(dict(zip(names, means.mean(1).tolist(), strict=True)))
        now = dict(zip(self.active, values, strict=True))
        return [now.get(i, float("nan")) for i in range(self.scorer.members)]

    def _values(
        self, scores: Tensor, labels: Tensor, lengths: Tensor, weights: Tensor, largest: float
    ) -> tuple[Tensor, float]:
        """Return the weighted sum of each member's metric over lists, and the sum of the weights.

        Items whose label is NaN are left out, and so are lists without another item.
        """
        known = ~labels.isnan()
        if not known.all():
            lengths = sum_lists(known.long(), lengths)
            scores, labels = scores[:, known], labels[known]
            weights = torch.where(lengths > 0, weights, 0.0)
        labels, repeated = (x.repeat(len(scores)) for x in (labels, lengths))
        values = self.measure.per_list(scores.flatten(), labels, repeated, largest=largest)
        counted = weights > 0  # a batch may have empty lists, whose value is NaN
        values = values.view(len(scores), -1).double()[:, counted]
        return values @ weights[counted], float(weights.sum())

    def _choose(self, values: list[float], epoch: int) -> None:
        """Keep members' weights at a new best epoch; stop members without a recent one.

        A member stops if `patience` epochs have passed since its best epoch.
        """
        going = []
        for group in self.best:
            if group.members[0] in self.active:
                group.keep(sum(values[i] for i in group.members) / len(group.members), epoch)
                if epoch - group.epoch < self.settings.patience:
                    going += group.members
        self.active = sorted(going)

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        """Put scorer and transform in evaluation mode, and back in training mode at the end."""
        modules = nn.ModuleList([self.scorer, self.transform]).eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            modules.train()

"""Train the members of an ensemble with Lightning, each up to its own best epoch."""

import logging
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from ltr.datasets.list_data import ListDataModule
from ltr.datasets.lists import ListDataset
from ltr.datasets.transforms import FeatureTransform
from ltr.estimators.progress import Progress
from ltr.losses import RankingLoss
from ltr.metrics.functional import ndcg
from ltr.models import Ensemble
from ltr.models.ragged import score_ragged
from ltr.modules import MoveCutoff, Ranker, SeedSteps
from ltr.modules.scores import check_scores
from ltr.modules.scoring import ScoredLists, side_inputs

_SCALE_LISTS = 1000  # of the training lists, to fit the scales of the members on


@dataclass
class Options:
    """How to train: see `NeuralRanker`, whose parameters these are."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    seed: int
    device: str
    verbose: int
    list_weights: bool = False
    note: str = ""


@dataclass
class Trained:
    """What a training gives: the fitted transform and scorer, and how it went.

    Attributes:
        transform: fitted on the training lists.
        scorer: the members with the weights of their best epochs, and their scales.
        epochs: how many were trained.
        best_epochs: of each member, from 1; the last one where nothing was validated.
        history: NDCG@10 of each member after each epoch, on the validation lists.
    """

    transform: FeatureTransform
    scorer: Ensemble
    epochs: int
    best_epochs: list[int]
    history: list[list[float]]


def train(
    scorer: Ensemble,
    loss: RankingLoss,
    transform: FeatureTransform,
    lists: ListDataset,
    validation: ListDataset | None,
    options: Options,
    *,
    fit_transform: bool = True,
) -> Trained:
    """Train an ensemble, and return it with the weights of each member's best epoch.

    Nothing of this process is changed: neither the random numbers, nor the logging, nor what
    Ctrl+C does.

    Args:
        scorer: trained in place, from the weights that it has; without, they are made.
        loss: of the members, one by one.
        transform: of the features; fitted in place if `fit_transform`.
        lists: to train on.
        validation: to choose each member's epoch by; None: the last one.
        options: see `Options`.
        fit_transform: whether the transform is to be fitted.

    Raises:
        ValueError: the loss is not finite, or has no gradient.
    """
    scorer.train()
    transform.train()
    with _guest(), _folder() as folder, isolate_rng():
        torch.manual_seed(options.seed)
        data = _Lists(lists, validation, transform, options, fit_transform)
        data.setup()
        module = MemberTraining(scorer, loss, options)
        module.transform = transform
        trainer = Trainer(
            max_epochs=options.max_epochs,
            **_devices(options.device),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0 if validation is None else 1.0,
            default_root_dir=folder,
            callbacks=[
                SeedSteps(options.seed),
                # a network that is trained on has spread its scores
                MoveCutoff() if fit_transform else MoveCutoff(steps=0),
                Progress(options.verbose, options.max_epochs, options.note),
            ],
        )
        try:
            trainer.fit(module, datamodule=data)
        except SystemExit:  # what Lightning makes of Ctrl+C
            if trainer.interrupted:
                raise KeyboardInterrupt from None
            raise
        module.finish(data)
    module.to("cpu").eval()
    return Trained(
        transform.eval(),
        scorer,
        trainer.current_epoch,
        [one.epoch or trainer.current_epoch for one in module.best],
        module.history,
    )


@dataclass
class _Best:
    """The best epoch so far of members that are chosen together, and their weights then."""

    members: list[int]
    parts: nn.ModuleList
    value: float = -1.0
    epoch: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, value: float, epoch: int) -> None:
        """Keep the weights if the value is better than before."""
        if value > self.value:
            self.value, self.epoch = value, epoch
            self.state = {name: x.clone() for name, x in self.parts.state_dict().items()}


class MemberTraining(Ranker):
    """Trains each member of an ensemble on the loss of its own scores, by ragged batches.

    A member stops when its NDCG@10 on the validation lists has not risen for `patience` epochs, and
    keeps the weights of its best epoch: it ends as if it had been trained alone. If the transform
    learns too, which the members share, all stop together.

    Logged after each epoch: `val_ndcg_10`, the mean over the members of their best so far.
    """

    def __init__(self, scorer: Ensemble, loss: RankingLoss, options: Options) -> None:
        rate, decay = options.learning_rate, options.weight_decay
        fused = options.device.startswith(("cpu", "cuda"))  # one call for all members
        optimizer = partial(torch.optim.AdamW, lr=rate, weight_decay=decay, fused=fused)
        super().__init__(scorer, loss, {}, optimizer)
        self.members = scorer
        self.options = options
        self.best: list[_Best] = []
        self.active = list(range(scorer.members))
        self.history: list[list[float]] = []
        self._sums = torch.zeros(0)

    def on_fit_start(self) -> None:
        """Say which members are chosen together."""
        assert self.transform is not None
        every = range(self.members.members)
        if any(x.requires_grad for x in self.transform.parameters()):
            parts = nn.ModuleList([*self.members.copies, self.transform])
            self.best = [_Best([*every], parts)]
        else:
            self.best = [_Best([i], nn.ModuleList([self.members.copies[i]])) for i in every]

    def member_scores(self, batch: dict[str, Any]) -> Tensor:
        """Return the scores (members, N) of the members that have not stopped."""
        assert self.transform is not None
        features = transformed(self.transform, batch)
        lengths = batch["lengths"]
        copies = [self.members.copies[i] for i in self.active]
        return torch.stack([score_ragged(one, features, lengths) for one in copies])

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the lists once for each member that has not stopped, with its scores."""
        scores = self.member_scores(batch)
        times, weights = len(scores), batch.get("weights")
        return ScoredLists(
            scores.flatten(),
            batch["labels"].repeat(times),
            None,
            None if weights is None else weights.repeat(times),
            batch["lengths"].repeat(times),
            {name: x.repeat(times) for name, x in side_inputs(self.loss, batch).items()},
        )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the sum of the members' losses."""
        loss = self._loss(self.score_batch(batch))
        if not loss.requires_grad:
            raise ValueError(f"loss must have a gradient to train by, got one without ({loss})")
        return loss * len(self.active)

    def _loss(self, lists: ScoredLists) -> Tensor:
        scores, labels, _, weights, lengths, side = lists
        assert lengths is not None
        if weights is None or not self.options.list_weights:
            return self.loss(scores, labels, weights=weights, lengths=lengths, **side)
        each = self.loss(scores, labels, lengths=lengths, **side)  # with reduction="none"
        starts = (lengths.cumsum(0) - lengths).clamp(max=len(weights) - 1)
        return (each * weights[starts]).sum() / (lengths > 0).sum().clamp(min=1)

    def on_validation_epoch_start(self) -> None:
        """Start new sums."""
        self._sums = torch.zeros(len(self.active) + 1, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add NDCG@10 of the lists to the sums."""
        lists = self.score_batch(batch)
        for one in lists.scores.view(len(self.active), -1):
            check_scores(one, batch)
        values = ndcg(lists.scores, lists.labels, lengths=lists.lengths, top_k=10, reduction="none")
        real = batch["lengths"] > 0  # a bucket may be filled up with empty lists
        self._sums[:-1] += values.double().view(len(self.active), -1)[:, real].sum(1)
        self._sums[-1] += real.sum()

    def on_validation_epoch_end(self) -> None:
        """Keep the weights of the members that are better than before, and stop the others."""
        values = (self._sums[:-1] / self._sums[-1]).tolist()
        now = dict(zip(self.active, values, strict=True))
        self.history.append([now.get(i, float("nan")) for i in range(self.members.members)])
        epoch = self.current_epoch + 1
        for one in self.best:
            if one.members[0] in now:
                one.keep(sum(now[i] for i in one.members) / len(one.members), epoch)
        going = [one for one in self.best if epoch - one.epoch < self.options.patience]
        self.active = sorted(i for one in going for i in one.members if i in now)
        self.trainer.should_stop = not self.active
        best = [one.value for one in self.best for _ in one.members]
        self.log("val_ndcg_10", sum(best) / len(best))

    def finish(self, data: ListDataModule) -> None:
        """Take the best weights, and fit the scales of the members on training lists."""
        for one in self.best:
            if one.state:
                one.parts.load_state_dict(one.state)
        self.active = list(range(self.members.members))
        self.eval()
        some = data.splits["train"]
        if len(some) > _SCALE_LISTS:
            some = some.select(range(_SCALE_LISTS))
        scores, lengths = [], []
        with torch.inference_mode():
            for start in range(0, len(some), data.batch_size):
                end = min(start + data.batch_size, len(some))
                batch = data.transfer_batch_to_device(
                    some.__getitems__(range(start, end)), self.device, 0
                )
                scores.append(self.member_scores(batch))
                lengths.append(batch["lengths"])
                for one in scores[-1]:  # the last step may have made weights that are not finite
                    check_scores(one, batch, finite=True)
        self.members.fit_scales(torch.cat(scores, 1).clone(), torch.cat(lengths))


def transformed(transform: FeatureTransform, batch: dict[str, Any]) -> Tensor:
    """Return the transformed features (N, d') of a ragged batch."""
    known = {"categories": batch["categories"]} if "categories" in batch else {}
    if transform.within_list:
        known["lengths"] = batch["lengths"]
    return transform(batch["features"], **known)


class _Lists(ListDataModule):
    """The lists to train and to validate on, and the transform of their features."""

    def __init__(
        self,
        train: ListDataset,
        val: ListDataset | None,
        transform: FeatureTransform,
        options: Options,
        fit: bool,
    ) -> None:
        super().__init__(batch_size=options.batch_size, transform=transform, seed=options.seed)
        self.given = {"train": train} if val is None else {"train": train, "val": val}
        self.fit = fit

    def load_splits(self) -> dict[str, ListDataset]:
        return dict(self.given)

    def fit_transform(self, train: ListDataset) -> None:
        if self.fit:
            super().fit_transform(train)


def _devices(device: str) -> dict[str, Any]:
    kind, _, number = device.partition(":")
    accelerator = {"cuda": "gpu"}.get(kind, kind)
    return {"accelerator": accelerator, "devices": [int(number)] if number else 1}


@contextmanager
def _folder() -> Iterator[str]:
    """A folder for the batch that `CheckFinite` saves when it stops a training."""
    folder = tempfile.mkdtemp(prefix="ltr-")
    try:
        yield folder
    finally:
        with suppress(OSError):  # there is a batch
            os.rmdir(folder)


@contextmanager
def _guest() -> Iterator[None]:
    """Keep Lightning quiet, and undo what it does to this process."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [one.level for one in loggers]
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for text in (".*does not have many workers.*", ".*smaller than the logging.*"):
                warnings.filterwarnings("ignore", text)
            warnings.filterwarnings("ignore", ".*LeafSpec.*")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
        if main and handler is not None:
            signal.signal(signal.SIGINT, handler)

"""The Lightning module that trains a scorer."""

import copy
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.datasets.schema import Schema
from ltr.datasets.transforms import FeatureTransform
from ltr.losses import SoftNDCG
from ltr.losses.base import Loss
from ltr.metrics import MRR, NDCG, RankingMetric
from ltr.models import MLPScorer, RankingModel, Scorer
from ltr.models.scorer import build_scorer
from ltr.modules.base import ScoringModule
from ltr.training.losses import ScoredLists, side_inputs


class Ranker(ScoringModule):
    """Trains a scorer on a ranking loss, and tests it by metrics.

    A scorer made without `num_features` gets the number of features from the data module. The
    Ranker also adopts the data module's `feature_transform`, but only once: from then on the
    transform belongs to the model, and batches hold raw features. Without a data module there is no
    transform. In `fit` the Ranker also adopts the `schema` of a data module of tables.

    The Ranker logs once an epoch: `train_loss`, `val_loss`, and `val_<name>` and `test_<name>` for
    each metric. A loss that draws noise, such as `XENDCG("random")`, draws it in training only. So
    `val_loss` has no noise, but is then another quantity than `train_loss`. A NaN score ends a
    validation or a test with a `ValueError` that names the list; no list is dropped.

    `SeedSteps` seeds the random numbers before each batch. With a data module of `ltr.datasets`, a
    run resumed from the end of an epoch equals an uninterrupted run.

    Some losses need side inputs: `Unbiased`, for example, needs the position at which each item was
    shown. Side inputs come from the batches, under their own names. With a data module of tables,
    name the columns of the side inputs: `TableDataModule(position="position",
    protected="minority")`. A missing side input is an error in the first batch.

    `model.save(folder)` writes the trained model, and `RankingModel.load` reads it. A checkpoint is
    only for the Trainer, to resume or to test: `trainer.test(ranker, data, ckpt_path="best.ckpt")`,
    with a Ranker that was made with the same arguments. A checkpoint has weights and plain values,
    so the Trainer can read it with `weights_only=True`.

    Args:
        scorer: the model. Default: `MLPScorer()`.
        loss: the loss to minimize. Default: `SoftNDCG()`.
        metrics: a dict from names to metrics; each metric is logged under its name. A name has only
            letters, digits and _. Default: `ndcg_1`, `ndcg_5` and `ndcg_10` (`NDCG(top_k=...)`) and
            `mrr` (`MRR()`).
        optimizer: a function from the parameters to the optimizer. Default: None, which means
            `torch.optim.AdamW`. The default is None so that another optimizer in a configuration
            does not inherit AdamW's weight decay.
        scheduler: a function from the optimizer to the scheduler, which is stepped once an epoch.
            The scheduler may be Lightning's `ReduceLROnPlateau`, which has a `monitor`. Default: a
            constant learning rate.
        compile: whether `torch.compile` compiles scorer and loss.

    Raises:
        ValueError: the scorer or the loss is a class, not an object; the loss's reduction is
            "none"; a metric's name is "loss", or has characters other than letters, digits and _;
            in training, the loss is not a scalar, has no gradient, or lacks a side input.

    >>> from ltr.losses import PointwiseMSE
    >>> from ltr.models import LinearScorer
    >>> ranker = Ranker(LinearScorer(num_features=3), PointwiseMSE())
    >>> ranker(torch.zeros(2, 4, 3)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        scorer: Scorer | None = None,
        loss: Loss | None = None,
        metrics: dict[str, RankingMetric] | None = None,
        optimizer: OptimizerCallable | None = None,
        scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
    ):
        self.check_part("scorer", scorer)
        super().__init__(
            SoftNDCG() if loss is None else loss,
            _default_metrics() if metrics is None else metrics,
            torch.optim.AdamW if optimizer is None else optimizer,
            scheduler,
        )
        self.scorer = MLPScorer() if scorer is None else scorer
        self.transform: FeatureTransform | None = None
        self.schema: Schema | None = None
        self._compile = compile

    @property
    def model(self) -> RankingModel:
        """The scorer with its transform and schema, to save, export or score with.

        The model shares its weights with the Ranker.
        """
        return RankingModel(self.scorer, self.transform, self.schema)

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the scores (..., n) of raw features (..., n, *item); 0 for masked documents.

        With `lengths` the lists are ragged: features (N, *item), categories (N, c), scores (N,).

        Args:
            features: (..., n, *item), with NaN for missing values, if the transform takes NaN.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c), codes, if the transform takes categories.
            lengths: (B,) int64, the number of documents of each list; instead of a mask.

        Raises:
            ValueError: there are categories but no transform that takes them; `mask` and `lengths`
                are both given; or a shape or dtype is wrong.
        """
        return self.model(features, mask, categories, lengths)

    def setup(self, stage: str) -> None:
        """Adopt the number of features, the transform and the schema of the data module.

        A Ranker that already has a schema passes it to the data module, which then matches the
        columns of its table by name.
        """
        data = getattr(self.trainer, "datamodule", None)
        if self.schema is not None:
            self._give_schema()
        elif stage == "fit":
            self.schema = getattr(data, "schema", None)
        transform = getattr(data, "feature_transform", None)
        if self.transform is None and transform is not None:
            self.transform = copy.deepcopy(transform)
        build_scorer(self.scorer, self.transform, getattr(data, "num_features", None))
        if self._compile:  # this is in place, so that weights keep their names in a checkpoint
            self.scorer.compile()
            self.loss.compile()
            self._compile = False

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the lists of a batch with their scores."""
        scores = self(**_inputs(batch))
        return ScoredLists(
            scores,
            batch["labels"],
            batch.get("mask"),
            batch.get("weight"),
            batch.get("lengths"),
            side_inputs(self.loss, batch),
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the number of features and the schema to the checkpoint, as plain values."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["num_features"] = getattr(self.scorer, "num_features", None)
        checkpoint["schema"] = None if self.schema is None else self.schema.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the weights need, and pass the schema to the data module."""
        super().on_load_checkpoint(checkpoint)
        if (num_features := checkpoint.get("num_features")) is not None:
            self.scorer.build(num_features)
        if (schema := checkpoint.get("schema")) is not None:
            self.schema = Schema.from_dict(schema)
            self._give_schema()

    def _give_schema(self) -> None:
        use_schema = getattr(getattr(self.trainer, "datamodule", None), "use_schema", None)
        if self.schema is not None and use_schema is not None:
            use_schema(self.schema)


def _inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Ranker.forward` that a batch has."""
    keys = ("features", "mask", "categories", "lengths")
    return {key: batch[key] for key in keys if key in batch}


def _default_metrics() -> dict[str, RankingMetric]:
    return {**{f"ndcg_{k}": NDCG(top_k=k) for k in (1, 5, 10)}, "mrr": MRR()}

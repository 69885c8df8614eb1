"""The Lightning module that trains a scorer."""

import copy
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.config import from_config, packages, to_config
from ltr.datasets.schema import Schema
from ltr.datasets.transforms import FeatureTransform
from ltr.losses import RankingLoss, SoftNDCG
from ltr.metrics import MRR, NDCG, RankingMetric
from ltr.models import MLPScorer, Scorer
from ltr.models.ragged import score_ragged
from ltr.modules.checks import check_scores
from ltr.modules.scoring import ScoredLists, ScoringModule
from ltr.modules.steps import side_inputs
from ltr.modules.trainable import check_part


class Ranker(ScoringModule):
    """Trains a scorer on a ranking loss, and tests it by metrics.

    A scorer made without the number of features gets it from the data module. Once, the Ranker also
    adopts the data module's `feature_transform`. From then on the transform belongs to the model
    and its checkpoints, and batches hold raw features. Without a data module there is no transform.

    Logged once an epoch: `train_loss`, `val_loss`, and `val_<name>` and `test_<name>` for each
    metric. A NaN score ends a validation, test or prediction with a `ValueError` that names the
    list; nothing is dropped.

    `SeedSteps` seeds the random numbers before each batch. With a data module of `ltr.datasets`, a
    run resumed from any checkpoint equals an uninterrupted run.

    Some losses need side inputs: `Unbiased`, for example, needs the position at which each item was
    shown. They come from the batches, under their own names. With a data module of tables, name
    their columns: `TableDataModule(position="position", protected="minority")`. A missing side
    input is an error before the first step.

    In `fit` it also adopts the `schema` of a data module of tables. In `test` and `predict` it
    passes the schema to the data module, which matches its columns by name.

    A checkpoint holds all of this: `Ranker.load_from_checkpoint(path)` needs neither data nor
    arguments, and runs no code from the file (see `PortableModule`). If the file lacks the
    transform, pass it as `transform=`. For the Trainer's `ckpt_path`, make the Ranker with the same
    arguments.

    Args:
        scorer: the model. Default: `MLPScorer()`.
        loss: the loss to minimize. Default: `SoftNDCG(gain="linear", dequantize=True,
            softmax=1.0)`, as the page "How to train on soft NDCG" recommends.
        metrics: a dict from names, of letters, digits and _, to metrics; they are logged by these
            names. Default: `ndcg_1`, `ndcg_5` and `ndcg_10` (`NDCG(top_k=...)`) and `mrr`
            (`MRR()`).
        optimizer: a function from the parameters to the optimizer. Default: None, which means
            `torch.optim.AdamW`; so another class in a configuration does not inherit AdamW's weight
            decay.
        scheduler: a function from the optimizer to the scheduler, which is stepped once an epoch;
            this may be Lightning's `ReduceLROnPlateau`, which has a `monitor`. Default: a constant
            learning rate.
        compile: whether `torch.compile` compiles scorer and loss.

    Raises:
        ValueError: a scorer or loss is a class, not an object; a metric's name is "loss", or has
            characters other than letters, digits and _; in training, the loss is not a scalar, has
            no gradient, or lacks a side input.

    >>> from ltr.losses import PointwiseMSE
    >>> from ltr.models import LinearScorer
    >>> ranker = Ranker(LinearScorer(num_features=3), PointwiseMSE())
    >>> ranker(torch.zeros(2, 4, 3)).shape
    torch.Size([2, 4])
    """

    extra_parts = ("transform",)

    def __init__(
        self,
        scorer: Scorer | None = None,
        loss: RankingLoss | None = None,
        metrics: dict[str, RankingMetric] | None = None,
        optimizer: OptimizerCallable | None = None,
        scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
    ):
        check_part("scorer", scorer)
        super().__init__(
            SoftNDCG(gain="linear", dequantize=True, softmax=1.0) if loss is None else loss,
            _default_metrics() if metrics is None else metrics,
            torch.optim.AdamW if optimizer is None else optimizer,
            scheduler,
        )
        self.save_hyperparameters()
        self.scorer = MLPScorer() if scorer is None else scorer
        self.transform: FeatureTransform | None = None
        self.schema: Schema | None = None
        self._compile = compile

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the scores (..., n) of raw features (..., n, *item); 0 under mask (..., n).

        With `lengths` the lists are ragged: features (N, *item), categories (N, c), scores (N,).

        Args:
            features: (..., n, *item), NaN where missing, if the transform takes that.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c), codes, if the transform takes them.
            lengths: (B,) int64, instead of a mask; the number of documents of each list.

        Raises:
            ValueError: there are categories and no transform that takes them; mask and lengths are
                both given; or a shape or dtype is wrong.
        """
        if mask is not None and lengths is not None:
            raise ValueError("mask must be None if lengths are given: ragged lists have no mask")
        if self.transform is None and categories is not None:
            raise ValueError("categories must be None: the Ranker has no transform that takes them")
        if self.transform is not None:
            # a transform of the user's own may not know of categories, or of lists
            known = {} if categories is None else {"categories": categories}
            if self.transform.within_list and lengths is not None:
                known["lengths"] = lengths
            features = self.transform(features, mask, **known)
        if lengths is None:
            return self.scorer(features, mask)
        return score_ragged(self.scorer, features, lengths)

    def setup(self, stage: str) -> None:
        """Adopt the number of features, the transform and the schema of the data module.

        A Ranker with a schema from an earlier training passes it to the data module.
        """
        data = getattr(self.trainer, "datamodule", None)
        if self.schema is not None:
            self._give_schema()
        elif stage == "fit":
            self.schema = getattr(data, "schema", None)
        transform = getattr(data, "feature_transform", None)
        if self.transform is None and transform is not None:
            _check_transform(transform)
            self.transform = copy.deepcopy(transform)
        num_features = getattr(self.transform, "out_features", None)
        if num_features is None and not getattr(self.transform, "takes_missing", False):
            num_features = getattr(data, "num_features", None)
        if num_features is not None:
            self.scorer.build(num_features)
        if self._compile:  # in place, so that the names in a checkpoint stay
            self.scorer.compile()
            self.loss.compile()
            self._compile = False

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """The lists of a batch with their scores."""
        scores = self(**_inputs(batch))
        return ScoredLists(
            scores,
            batch["labels"],
            batch.get("mask"),
            batch.get("weight"),
            batch.get("lengths"),
            side_inputs(self.loss, batch),
        )

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return `scores` (N,) with `lengths` and, if they exist, `qid`, `doc_id`, `rows`.

        For a padded batch, return `scores` (B, n) with `mask`.
        """
        keys = ("qid", "doc_id", "rows", "mask", "lengths")
        known = {key: batch[key] for key in keys if key in batch}
        scores = self(**_inputs(batch))
        check_scores(scores, batch)
        return {**known, "scores": scores}

    def nothing_to_train(self) -> str:
        """Return the message for a scorer without parameters."""
        return (
            "scorer must have parameters to train: without a data module that has "
            f"num_features, give it num_features; got {self.scorer}"
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the transform, the number of features and the schema."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["num_features"] = getattr(self.scorer, "num_features", None)
        checkpoint["transform"] = self.save_part(checkpoint, "transform", self.transform)
        checkpoint["schema"] = None if self.schema is None else self.schema.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers and the transform that the checkpoint's weights need.

        Raises:
            ValueError: the transform is of a package that is not trusted, or could not be saved and
                is not given.
        """
        super().on_load_checkpoint(checkpoint)
        if (num_features := checkpoint.get("num_features")) is not None:
            self.scorer.build(num_features)
        self.transform = self._saved_transform(checkpoint)
        if (schema := checkpoint.get("schema")) is not None:
            self.schema = Schema.from_dict(schema)
            self._give_schema()

    def _give_schema(self) -> None:
        """A data module that matches the columns of its tables with the model's schema."""
        try:
            data = getattr(self.trainer, "datamodule", None)
        except RuntimeError:  # there is no Trainer, as in `load_from_checkpoint`
            return
        use_schema = getattr(data, "use_schema", None)
        if self.schema is not None and use_schema is not None:
            use_schema(self.schema)

    def _saved_transform(self, checkpoint: dict[str, Any]) -> FeatureTransform | None:
        config, own = checkpoint.get("transform"), self.transform
        if reason := checkpoint.get("unsaved", {}).get("transform"):
            if own is None:
                raise ValueError(f"transform must be given, as it could not be saved: {reason}")
            return own
        if config is None:
            return None
        trust = {*self.trust}
        if own is not None and isinstance(config, dict):
            own_config = _config_of(own)
            if own_config.get("class_path") == config.get("class_path"):
                trust |= packages(own_config)  # the user's own object is of that class
        found = from_config({"transform": config}, FeatureTransform, sorted(trust))["transform"]
        if not isinstance(found, FeatureTransform):
            raise ValueError(f"transform must be a FeatureTransform, got {found!r}")
        return found.to(self.device).train(self.training)


def _inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """The columns of a batch that the Ranker scores."""
    keys = ("features", "mask", "categories", "lengths")
    return {key: batch[key] for key in keys if key in batch}


def _config_of(transform: FeatureTransform) -> dict[str, Any]:
    """Return the configuration, or an empty dict if there is none; saving then warns."""
    try:
        return to_config(transform)
    except ValueError:
        return {}


def _check_transform(transform: FeatureTransform) -> None:
    """Raise `ValueError` now, not after hours, if no checkpoint could restore the transform."""
    if not (config := _config_of(transform)):
        return
    try:
        again = from_config(config, FeatureTransform, sorted(packages(config)))
        again.load_state_dict(transform.state_dict())
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            "transform must be reproducible from its arguments and its state, got "
            f"{transform}: {error}"
        ) from error


def _default_metrics() -> dict[str, RankingMetric]:
    return {**{f"ndcg_{k}": NDCG(top_k=k) for k in (1, 5, 10)}, "mrr": MRR()}

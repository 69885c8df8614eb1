"""The Lightning module that trains a scorer."""

from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.datasets.transforms import FeatureTransform
from ltr.losses import RankingLoss, SoftNDCG
from ltr.metrics import MRR, NDCG, RankingMetric
from ltr.models import MLPScorer, Scorer
from ltr.modules.portable import pack, unpack
from ltr.modules.scoring import ScoredLists, ScoringModule
from ltr.modules.trainable import check_part


class Ranker(ScoringModule):
    """Trains a scorer on a ranking loss, and tests it by metrics.

    From a data module it takes the number of features, for a scorer that was made without, and
    the `feature_transform`, once: from then on the transform belongs to the model and its
    checkpoints, and batches are of raw features. Without a data module there is no transform.

    Logged, one value an epoch: `train_loss`, `val_loss`, and `val_<name>` and `test_<name>` for
    each metric. A NaN score stops a validation with the metric's ValueError; nothing is dropped.

    Random numbers are seeded before each batch by `SeedSteps`: with a data module of
    `ltr.datasets`, a run resumed from any checkpoint goes on as if it had not been broken.

    A checkpoint holds all of it: `Ranker.load_from_checkpoint(path)` needs neither data nor
    arguments (see `PortableModule`); with the Trainer's `ckpt_path`, the Ranker given is made with
    the same arguments.

    Args:
        scorer: the model. Default: `MLPScorer()`.
        loss: what is minimised. Default: `SoftNDCG()`.
        metrics: by the name, of letters, digits and _, under which they are logged. Default:
            `ndcg_1`, `ndcg_5` and `ndcg_10` (`NDCG(top_k=...)`) and `mrr` (`MRR()`).
        optimizer: parameters -> optimiser. Default: `torch.optim.AdamW`. (None stands for it, so
            that another class given in a configuration does not take over AdamW's weight decay.)
        scheduler: optimiser -> scheduler, stepped once an epoch; Lightning's `ReduceLROnPlateau`,
            which has a `monitor`, too. Default: a constant learning rate.
        compile: whether `torch.compile` compiles scorer and loss.

    Raises:
        ValueError: a scorer or loss is a class, not an object; a metric's name is "loss", or has
            other than letters, digits and _. In training: the loss is not a scalar, or has no
            gradient.

    >>> from ltr.losses import PointwiseMSE
    >>> from ltr.models import LinearScorer
    >>> ranker = Ranker(LinearScorer(num_features=3), PointwiseMSE())
    >>> ranker(torch.zeros(2, 4, 3)).shape
    torch.Size([2, 4])
    """

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
            SoftNDCG() if loss is None else loss,
            _default_metrics() if metrics is None else metrics,
            torch.optim.AdamW if optimizer is None else optimizer,
            scheduler,
        )
        self.save_hyperparameters()
        self.scorer = MLPScorer() if scorer is None else scorer
        self.transform: FeatureTransform | None = None
        self._compile = compile

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Scores (..., n) of raw features (..., n, *item); 0 under mask (..., n)."""
        if self.transform is not None:
            features = self.transform(features, mask)
        return self.scorer(features, mask)

    def setup(self, stage: str) -> None:
        """Take over what the data module knows: the number of features and the transform."""
        data = getattr(self.trainer, "datamodule", None)
        if (num_features := getattr(data, "num_features", None)) is not None:
            self.scorer.build(num_features)
        transform = getattr(data, "feature_transform", None)
        if self.transform is None and transform is not None:
            # a copy of its own; one that no checkpoint could give back fails here, not after hours
            self.transform = unpack(pack(transform), FeatureTransform)
        if self._compile:  # in place, so that the names in a checkpoint stay
            self.scorer.compile()
            self.loss.compile()
            self._compile = False

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """The lists of a batch with their scores."""
        scores = self(batch["features"], batch["mask"])
        return ScoredLists(scores, batch["labels"], batch["mask"], batch.get("weights"))

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """`scores` (B, n) with `mask`, and `qid` and `doc_ids` where the batch has them."""
        known = {key: batch[key] for key in ("qid", "doc_ids", "mask") if key in batch}
        return {**known, "scores": self(batch["features"], batch["mask"])}

    def nothing_to_train(self) -> str:
        """What is said where the scorer has no parameters."""
        return (
            "scorer must have parameters to train: without a data module that has "
            f"num_features, give it num_features; got {self.scorer}"
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the transform and the number of features."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["num_features"] = getattr(self.scorer, "num_features", None)
        checkpoint["transform"] = None if self.transform is None else pack(self.transform)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers and the transform that the checkpoint's state is for."""
        super().on_load_checkpoint(checkpoint)
        if (num_features := checkpoint.get("num_features")) is not None:
            self.scorer.build(num_features)
        self.transform = None
        if (transform := checkpoint.get("transform")) is not None:
            self.transform = (
                unpack(transform, FeatureTransform).to(self.device).train(self.training)
            )


def _default_metrics() -> dict[str, RankingMetric]:
    return {**{f"ndcg_{k}": NDCG(top_k=k) for k in (1, 5, 10)}, "mrr": MRR()}

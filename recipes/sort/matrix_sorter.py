"""Sorting by a score for each pair of item and position: Gumbel-Sinkhorn networks."""

from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.datasets import pad_batch
from ltr.metrics import RankingMetric
from ltr.models import RankingModel
from ltr.modules import ListMean, Ranker, ScoredLists
from ltr.operators import GumbelSinkhorn, SoftPermutation, descending_order
from recipes.networks import ImageCNN


class MatrixSorter(Ranker):
    """Trains a network that tells for each item how well each position suits it.

    The network returns n numbers an item, the columns of an n x n matrix. The operator turns the
    matrix into a soft matching of positions and items. The loss is the cross-entropy of the true
    order: the mean over the positions of -log P[i, order_i], and over the samples. Validation
    and test use the hard matching, without noise. Otherwise this is a `Ranker`.

    Args:
        scorer: has at least as many `outputs` as the longest list has items; a list of n uses the
            first n. Default: `ImageCNN(outputs=16)`.
        operator: makes the matching. Default: `GumbelSinkhorn(samples=5)`.
        metrics: as for `Ranker`.
        optimizer: parameters -> optimizer.
        scheduler: as for `Ranker`.

    Raises:
        ValueError: the scorer or the operator is of another class; as for `Ranker`; in `forward`, a
            list is longer than the scorer has outputs.

    Reference: Mena, Belanger, Linderman and Snoek, "Learning Latent Permutations with
    Gumbel-Sinkhorn Networks", ICLR 2018.

    >>> sorter = MatrixSorter(ImageCNN((1, 8, 8), outputs=4))
    >>> sorter(torch.rand(2, 3, 1, 8, 8)).sort().values
    tensor([[0., 1., 2.],
            [0., 1., 2.]])
    """

    scorer: ImageCNN

    def __init__(
        self,
        scorer: ImageCNN | None = None,
        operator: GumbelSinkhorn | None = None,
        metrics: dict[str, RankingMetric] | None = None,
        optimizer: OptimizerCallable = torch.optim.AdamW,
        scheduler: LRSchedulerCallable | None = None,
    ):
        for name, given, kind in (
            ("scorer", scorer, ImageCNN),
            ("operator", operator, GumbelSinkhorn),
        ):
            if given is not None and not isinstance(given, kind):
                raise ValueError(f"{name} must be of class {kind.__name__}, got {given!r}")
        super().__init__(scorer, None, metrics, optimizer, scheduler)
        self.scorer = ImageCNN(outputs=16) if scorer is None else scorer
        self.operator = GumbelSinkhorn(samples=5) if operator is None else operator

    @property
    def model(self) -> RankingModel:
        """There is none: the scorer alone gives no scores."""
        raise AttributeError("a MatrixSorter has no model of its scorer alone")

    def matching(self, features: Tensor, mask: Tensor | None = None) -> SoftPermutation:
        """Return the soft matching of features (..., n, C, H, W), with noise in training mode."""
        return self.operator(self._matrix(features, mask), mask)

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return scores (..., n): the positions of the hard matching, n - 1 for the first.

        Raises:
            ValueError: there are lengths, as a matching is of padded lists.
        """
        if lengths is not None:
            raise ValueError("lengths must be None: MatrixSorter scores padded lists")
        was_training = self.operator.training
        order = self.operator.eval()(self._matrix(features, mask), mask).hard()
        self.operator.train(was_training)
        n = order.shape[-1]
        scores = (n - 1 - order.argsort(-1)).to(torch.float32)
        return scores if mask is None else scores.where(mask, 0.0)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the cross-entropy of a batch."""
        batch = pad_batch(batch)
        loss = self._cross_entropy(batch, self.train_loss)
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, batch["mask"].any(-1).sum())

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the loss and the metrics."""
        batch = pad_batch(batch)
        self._cross_entropy(batch, self.val_loss)
        self.log("val_loss", self.val_loss, prog_bar=True)
        self.measure("val", self.score_batch(batch))

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the lists of a batch, padded, with their scores."""
        return super().score_batch(pad_batch(batch))

    def _matrix(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return how well position i suits item j, (..., n, n)."""
        n = features.shape[-1 - self.scorer.item_dims]
        if self.scorer.outputs < n:
            raise ValueError(
                f"scorer must have outputs >= {n} for lists of {n}, got {self.scorer.outputs}"
            )
        if mask is not None:
            features = torch.where(mask[..., None, None, None], features, 0)
        return self.scorer.outputs_of(features)[..., :n].mT

    def _cross_entropy(self, batch: dict[str, Any], mean: ListMean) -> Tensor:
        labels, mask = batch["labels"], batch["mask"]
        matching = self.matching(batch["features"], mask)
        ranks = matching.ranks().detach()
        ranks = ranks.mean(0) if ranks.dim() > labels.dim() else ranks
        # items with equal labels keep the order of the matching, as both sorts are stable
        matched = descending_order(-ranks, mask)
        keys = labels.where(mask, -torch.inf).gather(-1, matched)
        order = matched.gather(-1, descending_order(keys))
        log_p = matching.log_prob(order.expand(matching.scores.shape))
        items = mask.sum(-1).to(labels.dtype).clamp(min=1)
        per_list = -log_p.sum(-1) / items
        if per_list.dim() >= labels.dim():
            per_list = per_list.mean(0)
        lists = mask.any(-1).sum()
        loss = per_list.sum() / lists.clamp(min=1)
        mean.update(loss.detach(), lists)
        return loss

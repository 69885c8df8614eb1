"""The Lightning module that learns numbers from one quantile of each list."""

import warnings
from typing import Any, cast

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import MeanSquaredError, Metric, R2Score, SpearmanCorrCoef

from ltr.datasets import pad_batch
from ltr.losses import QuantileLoss
from ltr.models import Scorer
from ltr.modules import ListMean, TrainableModule
from ltr.operators import SortOperator, Stochastic, descending_order, gumbel_noise
from ltr.shapes import check_number
from recipes.networks import ImageCNN


class QuantileRegressor(TrainableModule):
    """Two networks that learn from one quantile of each list: which item it is, and what number.

    One network gives the items' scores, the other their numbers g(x_j). The row of the operator's
    matrix at the quantile weights the numbers. Training sees the quantile of the labels and no
    other label. The loss is `QuantileLoss` with the numbers as `values`: the squared error of
    (P g)_row against the true quantile or, with `expected`, the mean squared error under the row.

    Positions count from the highest score, rank 1. For a list of n = 2m + 1 the median's row is
    m counted from 0, rank m + 1, as in the published code (`n // 2`). Between two positions the
    rows are interpolated, as in `torch.quantile`. Rows of the operators sum to 1.

    Validation and test use the hard row: the number of the item that the scores without noise put
    at the quantile. Logged once an epoch, with `val_` and `test_`: `mse`, `r2` and `spearman` of
    these numbers against the true quantiles, over all lists, and `identified`, the share of lists
    where the item is the right one (or has the same label). Logged too: the losses `train_loss` and
    `val_loss`, the latter without noise.

    Random numbers, checkpoints and resuming are as in `Ranker`. Features are not transformed.

    Args:
        scorer: gives the scores. Default: `ImageCNN()`.
        values: gives the numbers; also a scorer. Default: another `ImageCNN()`.
        operator: any `SortOperator` with a row for each item. Default: `SoftSort()`.
        q: the level, counted from the lowest. Default: 0.5, the median.
        expected: use the mean squared error under the row, the papers' stochastic variant, which
            they use with a `Stochastic` operator. Default: False.
        value_scale: factor of the second network's output. Default: 1, as published.
        noisy_evaluation: evaluate as the published stochastic code does. The operator, which must
            be `Stochastic`, keeps its noise; `mse` and `identified` are means over its samples;
            `r2` and `spearman` are of the mean of the samples' numbers. Default: False.
        optimizer: parameters -> optimizer. Default: Adam.
        scheduler: optimizer -> scheduler, stepped once an epoch. Default: a constant rate.

    Raises:
        ValueError: q is not in [0, 1], value_scale is not > 0, noisy_evaluation is set with an
            operator that is not `Stochastic`, or a part is a class, not an object.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.2; Prillo and Eisenschlos, ICML
    2020, section 5.3.

    >>> from ltr.models import LinearScorer
    >>> model = QuantileRegressor(LinearScorer(3), LinearScorer(3))
    >>> model(torch.zeros(2, 5, 3)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        scorer: Scorer | None = None,
        values: Scorer | None = None,
        operator: SortOperator | None = None,
        q: float = 0.5,
        expected: bool = False,
        value_scale: float = 1.0,
        noisy_evaluation: bool = False,
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
    ):
        super().__init__(optimizer, scheduler)
        for name, part in (("scorer", scorer), ("values", values), ("operator", operator)):
            self.check_part(name, part)
        if noisy_evaluation and not isinstance(operator, Stochastic):
            raise ValueError(
                f"noisy_evaluation needs a Stochastic operator, got {type(operator).__name__}"
            )
        self.value_scale = check_number("value_scale", value_scale, minimum=0.0, strict=True)
        self.scorer = ImageCNN() if scorer is None else scorer
        self.values = ImageCNN() if values is None else values
        self.loss = QuantileLoss(operator, q, expected)
        self.noisy_evaluation = noisy_evaluation
        self.val_metrics = _metrics()
        self.test_metrics = _metrics()
        self.val_loss = ListMean()
        self._noise: torch.Generator | None = None

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the quantiles (...) of features (..., n, *item), estimated by the hard row."""
        scores, values = self.scorer(features, mask), self.values(features, mask)
        return at_quantile(self.value_scale * _float32(values), scores, self.loss.q, mask)

    def setup(self, stage: str) -> None:
        """Take the number of features, or the images' shape, from the data module."""
        data = getattr(self.trainer, "datamodule", None)
        if (num_features := getattr(data, "num_features", None)) is not None:
            self.scorer.build(num_features)
            self.values.build(num_features)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        batch = pad_batch(batch)
        scores, values = self._both(batch)
        loss = self._loss(batch, scores, values, self.train_loss)
        if not loss.requires_grad:
            raise ValueError(f"loss must have a gradient to train by, got one without ({self})")
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, batch["mask"].any(-1).sum())

    def on_validation_epoch_start(self) -> None:
        """Empty the metrics."""
        self._start_evaluation(self.val_loss, *self.val_metrics.values())

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the loss and the metrics."""
        batch = pad_batch(batch)
        scores, values = self._both(batch)
        self._loss(batch, scores, values, self.val_loss)
        self.log("val_loss", self.val_loss)
        self._update("val", self.val_metrics, batch, scores, values)

    def on_test_epoch_start(self) -> None:
        """Empty the metrics."""
        self._start_evaluation(*self.test_metrics.values())

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the metrics."""
        batch = pad_batch(batch)
        self._update("test", self.test_metrics, batch, *self._both(batch))

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return `scores` and `values` (B, n), `estimate` (B,), `mask`, and `qid` if present."""
        batch = pad_batch(batch)
        known = {key: batch[key] for key in ("qid", "doc_id", "mask") if key in batch}
        scores, values = self._both(batch)
        estimate = at_quantile(values, scores, self.loss.q, batch["mask"])
        return {**known, "scores": scores, "values": values, "estimate": estimate}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the shape of the data."""
        super().on_save_checkpoint(checkpoint)
        for name in ("scorer", "values"):
            checkpoint[f"{name}_features"] = getattr(getattr(self, name), "num_features", None)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the checkpoint has weights for."""
        super().on_load_checkpoint(checkpoint)
        for name in ("scorer", "values"):
            if (num_features := checkpoint.get(f"{name}_features")) is not None:
                getattr(self, name).build(num_features)

    def _both(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        features, mask = batch["features"], batch["mask"]
        return self.scorer(features, mask), self.value_scale * _float32(self.values(features, mask))

    def _loss(
        self, batch: dict[str, Any], scores: Tensor, values: Tensor, mean: ListMean
    ) -> Tensor:
        mask = batch["mask"]
        loss = self.loss(scores, batch["labels"], mask, batch.get("weight"), values=values)
        mean.update(loss.detach(), mask.any(-1).sum())
        return loss

    def _start_evaluation(self, *metrics: nn.Module) -> None:
        for metric in metrics:
            cast(Metric, metric).reset()
        self._noise = torch.Generator().manual_seed(0)  # the same noise in every evaluation

    def _update(
        self,
        split: str,
        metrics: nn.ModuleDict,
        batch: dict[str, Any],
        scores: Tensor,
        values: Tensor,
    ) -> None:
        labels, mask, q = batch["labels"].to(values.dtype), batch["mask"], self.loss.q
        drawn = _float32(scores).unsqueeze(0)  # one sample of no noise
        if self.noisy_evaluation:
            operator = cast(Stochastic, self.loss.operator)
            drawn = drawn[0] + gumbel_noise(
                scores, operator.samples, scale=operator.scale, generator=self._noise
            )
        real = mask.any(-1)  # without the empty lists that fill up a distributed epoch
        truth = at_quantile(labels, labels, q, mask)[real].double()
        numbers = at_quantile(values, drawn, q, mask)[:, real].double()
        found = at_quantile(labels, drawn, q, mask)[:, real].double()
        if len(truth):
            cast(Any, metrics["mse"]).update(numbers.flatten(), truth.repeat(len(numbers)))
            share = (found == truth).double().mean()
            cast(ListMean, metrics["identified"]).update(share, real.sum())
            for name in ("r2", "spearman"):
                cast(Any, metrics[name]).update(numbers.mean(0), truth)
        for name, metric in metrics.items():
            self.log(f"{split}_{name}", cast(Metric, metric), prog_bar=name == "mse")


def at_quantile(values: Tensor, scores: Tensor, q: float, mask: Tensor | None = None) -> Tensor:
    """Return the value of the item that the scores put at quantile q.

    Items are sorted by their scores. Between two positions their values are interpolated, as in
    `torch.quantile`; if the values are the scores, this is `torch.quantile`.

    Args:
        values: (..., n).
        scores: (..., n).
        q: the level in [0, 1], counted from the lowest score.
        mask: (..., n) bool, True = a real item. Default: all are real.

    Returns:
        (...); 0 for a list without a real item.

    >>> at_quantile(torch.tensor([10.0, 20.0, 30.0]), torch.tensor([0.2, 0.1, 0.3]), 0.5)
    tensor(10.)
    """
    scores = _float32(scores.detach())
    shape = torch.broadcast_shapes(values.shape, scores.shape)
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    real, values, scores = (x.expand(shape) for x in (real, values, scores))
    values, scores = values.where(real, 0), scores.where(real, 0)
    if not shape[-1]:
        return values.sum(-1)
    ordered = values.gather(-1, descending_order(scores, real))
    last = (real.sum(-1, keepdim=True).to(scores.dtype) - 1).clamp(min=0)
    position = last - q * last  # from the highest
    above = position.floor()
    below = torch.minimum(above + 1, last)
    high, low = (ordered.gather(-1, i.long()).squeeze(-1) for i in (above, below))
    chosen = torch.lerp(high, low, (position - above).squeeze(-1).to(high.dtype))
    return torch.where(scores.isnan().any(-1), torch.nan, chosen)


def _float32(x: Tensor) -> Tensor:
    """Return half-precision numbers as float32, and others as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _metrics() -> nn.ModuleDict:
    with warnings.catch_warnings():  # a warning that Spearman's rho keeps all numbers in memory
        warnings.filterwarnings("ignore", ".*will save all targets.*")
        spearman = SpearmanCorrCoef()
    metrics = {"mse": MeanSquaredError(), "r2": R2Score(), "spearman": spearman}
    for metric in metrics.values():  # squares of thousands, added up
        metric.set_dtype(torch.float64)
    return nn.ModuleDict({**metrics, "identified": ListMean()})

"""One objective from several labels, such as clicks and purchases."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ltr.losses.base import Loss, RankingLoss, Reduction
from ltr.names import nearest
from ltr.ragged import Lengths, check_exclusive, check_lengths, group_columns, sum_lists
from ltr.shapes import check_choice, check_mask, check_number

How = Literal["sum", "chebyshev", "floor"]
Scale = Literal["start", "running"]

START_BATCHES = 32
"""With scale="start", a loss is divided by its mean over this many training batches."""

RUNNING_BATCHES = 200
"""With scale="running", the mean is exponential, over about this many training batches."""


class SeveralLabels(Loss):
    r"""Combine the losses of several labels of the same items into one number.

    Each label has its own loss L_k and weight w_k. In training mode, the loss is divided by a mean
    c_k of its own values (`scale`), so that a weight compares labels and not the units of losses.

    | how | the result | meant for |
    | --- | --- | --- |
    | "sum" | sum of w_k L_k / c_k | a fixed exchange rate |
    | "chebyshev" | largest w_k L_k / c_k | no label falls behind |
    | "floor" | sum of w_k L_k / c_k + sum of m_j L_j / c_j | the best A whose B stays above x |

    With "floor", the labels j in `floors` have multipliers m_j instead of fixed weights. After each
    epoch, `update` gets the metric of these labels on validation lists, and changes m_j by `step`
    times the amount by which the metric falls short of its floor, but never below 0 (dual ascent on
    the Lagrangian of the constrained problem). `quality` compares epochs, so that a loop can keep
    the best of those that hold all floors.

    `NeuralRanker` trains with it and calls `update` and `quality`. It is also for a loop of one's
    own and, by `ltr.boosting.objective`, for trees.

    A label that is NaN is not known: its item is masked in the loss of this label alone. So a list
    without any known value of a label adds nothing to the loss of this label.

    Args:
        losses: the name of each label, with its loss and its weight >= 0, in the order of the
            labels' last axis. At least one weight must be above 0. All losses have the same
            `reduction`.
        how: "sum" (default), "chebyshev" or "floor"; see above. The largest of "chebyshev" is found
            for a whole batch, not for each list.
        floors: for "floor", the least value that the metric of some labels must have on validation
            lists. Their weights are the first values of the multipliers. At least one label must
            have no floor.
        scale: "start" (default): c_k is the mean of L_k over the first 32 training batches.
            "running": an exponential mean over about 200 batches; the sum then has the gradient of
            the logarithms of the losses. None: c_k is 1. Only a forward pass in training mode
            changes c_k. With `vmap`, scale must be None.
        step: for "floor", > 0: the change of a multiplier if the metric is 1 below its floor.
            Default: 20, so that a gap of .01 changes a multiplier by .2 an epoch.

    Attributes:
        names: the names of the labels.
        losses: the loss and the first weight of each label, as they were given.
        scales: (labels,), the means c_k, float64; saved with the module.
        weights: (labels,), the weights w_k and the multipliers m_j, float64; saved too.
        side_inputs: the further arguments that one of the losses needs, as in `RankingLoss`.

    Raises:
        ValueError: `losses` is empty or contains anything but pairs of a loss and a weight, a
            weight is negative or not finite, or all are 0; `how` or `scale` is unknown; floors are
            given without "floor", are missing, name no label or name all of them.

    Reference: Mahapatra, Dong, Chen and Momma, "Multi-label learning to rank through
    multi-objective optimization", KDD 2023 (arXiv 2207.03060), compares these forms (there weighted
    sum, weighted Chebyshev and epsilon constraint).

    >>> from ltr.losses import SoftmaxLoss
    >>> losses = {"click": (SoftmaxLoss(), 1.0), "buy": (SoftmaxLoss(), 3.0)}
    >>> loss = SeveralLabels(losses, scale=None)
    >>> scores = torch.tensor([2.0, 1.0, 0.0])
    >>> labels = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, torch.nan]])
    >>> loss(scores, labels)
    tensor(4.1542)
    >>> {name: round(x.item(), 4) for name, x in loss.each(scores, labels).items()}
    {'click': 0.2145, 'buy': 1.3133}
    """

    scales: Tensor
    weights: Tensor
    batches: Tensor

    def __init__(
        self,
        losses: Mapping[str, tuple[RankingLoss, float]],
        how: How = "sum",
        *,
        floors: Mapping[str, float] | None = None,
        scale: Scale | None = "start",
        step: float = 20.0,
    ):
        super().__init__()
        check_choice("how", how, "sum", "chebyshev", "floor")
        if scale is not None:
            check_choice("scale", scale, "start", "running")
        pairs = checked_losses(losses)
        self.names = tuple(pairs)
        self.how: How = how
        self.scale: Scale | None = scale
        self.step = check_number("step", step, minimum=0.0, strict=True)
        self.floors = checked_floors(how, floors, self.names)
        self.terms = nn.ModuleList([loss for loss, _ in pairs.values()])
        self.side_inputs = tuple(dict.fromkeys(x for loss in self.parts for x in loss.side_inputs))
        self.first_weights = tuple(weight for _, weight in pairs.values())
        weights = torch.tensor(self.first_weights, dtype=torch.float64)
        self.register_buffer("weights", weights)
        self.register_buffer("scales", torch.zeros_like(weights))
        self.register_buffer("batches", torch.tensor(0))

    @property
    def parts(self) -> list[RankingLoss]:
        """The loss of each label, in the order of `names`."""
        return [loss for loss in self.terms if isinstance(loss, RankingLoss)]

    @property
    def losses(self) -> dict[str, tuple[RankingLoss, float]]:
        """The loss of each label and its first weight, as they were given."""
        pairs = zip(self.parts, self.first_weights, strict=True)
        return dict(zip(self.names, pairs, strict=True))

    @property
    def reduction(self) -> Reduction:
        """The reduction of all losses; setting it sets theirs."""
        return self.parts[0].reduction

    @reduction.setter
    def reduction(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, reduction: Reduction
    ) -> None:
        for loss in self.parts:
            loss.reduction = reduction

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        **given: Any,
    ) -> Tensor:
        """Return the combined loss of scores (..., n) against labels (..., n, labels).

        Args:
            scores: (..., n).
            labels: (..., n, labels), in the order of `names`; NaN where a label is not known.
            mask: (..., n) bool, as in `RankingLoss`; the same for all labels, as all that follows.
            weights: (..., n), the weights of the items.
            given: `lengths`: (R,), the lengths of ragged lists. `qid`: (N,), the query of each
                item. Others: the side inputs of the losses, in the shape of the scores.

        Raises:
            ValueError: as in `RankingLoss`, with the name of the label.
            TypeError: no loss needs an argument of `given`.
        """
        values = torch.stack([*self.each(scores, labels, mask, weights, **given).values()])
        totals = values.detach().double().reshape(len(self.names), -1).mean(1)
        if self.training and self.scale is not None:
            self._observe(totals)
        scales = torch.where(self.scales > 0, self.scales, 1.0)
        factors = self.weights / scales
        if self.how == "chebyshev":
            largest = (factors * totals).argmax()
            return values[largest] * factors[largest].to(values.dtype)
        return (values * factors.to(values.dtype).view(-1, *[1] * (values.dim() - 1))).sum(0)

    def each(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        qid: Tensor | None = None,
        **extra: Tensor | None,
    ) -> dict[str, Tensor]:
        """Return the loss L_k of each label, by name, without weights and scales.

        The arguments are those of `forward`.
        """
        unknown = [name for name in extra if name not in self.side_inputs]
        if unknown:
            known = {"mask", "weights", "lengths", "qid", *self.side_inputs}
            raise TypeError(
                f"{type(self).__name__} got an unexpected argument {unknown[0]!r}: "
                f"{nearest(unknown[0], known)}"
            )
        is_tensor = isinstance(labels, Tensor)
        if not is_tensor or labels.shape != (*scores.shape, len(self.names)):
            shape = tuple(labels.shape) if is_tensor else repr(labels)
            raise ValueError(
                f"labels must have the shape {(*scores.shape, len(self.names))}, that of the "
                f"scores and an axis for {', '.join(self.names)}, got {shape}"
            )
        check_exclusive(mask, lengths, qid)
        if mask is not None:
            check_mask(mask, scores.shape)
        rows = {"scores": scores, "labels": labels, "weights": weights, **extra}
        rows = {name: x for name, x in rows.items() if x is not None}
        if qid is not None:
            rows, lengths = group_columns(rows, qid)
        labels = rows.pop("labels")
        parts = {}
        for k, (name, loss) in enumerate(zip(self.names, self.parts, strict=True)):
            own = {key: x for key, x in rows.items() if key in ("scores", "weights")}
            own |= {key: rows[key] for key in loss.side_inputs if key in rows}
            own["labels"] = labels[..., k]
            try:
                parts[name] = of_known(loss, own, mask, lengths)
            except ValueError as error:
                raise ValueError(f"label {name!r}: {error}") from None
        return parts

    @torch.no_grad()
    def update(self, values: Mapping[str, float]) -> None:
        """Change the multipliers of the floors after an epoch: m += step (floor - value), >= 0.

        Args:
            values: the metric of each label that has a floor, on validation lists. Other names are
                not used.

        Raises:
            ValueError: the value of a label with a floor is missing or not finite.
        """
        for name, floor in self.floors.items():
            value = values.get(name, math.nan)
            if not math.isfinite(value):
                raise ValueError(
                    f"values must have a finite {name!r}, which has a floor, got {value}"
                )
            position = self.names.index(name)
            self.weights[position] = max(
                0.0, self.weights[position].item() + self.step * (floor - value)
            )

    def quality(self, values: Mapping[str, float]) -> float:
        """Return one number by which epochs are compared; higher is better.

        It is the mean of the labels' metrics, weighted by their weights. With "floor" it is the
        weighted mean over the labels without a floor if all floors hold, and otherwise minus the
        sum of what is missing, so any epoch that holds the floors is better than any other.

        Args:
            values: the metric of each label, in [0, 1]. A label whose metric is NaN does not count.
        """
        short = sum(max(0.0, floor - values[name]) for name, floor in self.floors.items())
        if short > 0:
            return -short
        pairs = zip(self.names, self.weights.tolist(), strict=True)
        free = {name: weight for name, weight in pairs if name not in self.floors}
        known = {name: weight for name, weight in free.items() if not math.isnan(values[name])}
        total = sum(known.values())
        return (
            sum(weight * values[name] for name, weight in known.items()) / total
            if total
            else math.nan
        )

    @torch.no_grad()
    def _observe(self, totals: Tensor) -> None:
        """Add the losses of a batch to their means."""
        self.batches += 1
        if self.scale == "running":
            rate = 1 / self.batches.clamp(max=RUNNING_BATCHES)
        else:
            rate = (self.batches <= START_BATCHES) / self.batches
        finite = torch.where(totals.isfinite(), totals, self.scales)
        self.scales += rate * (finite - self.scales)

    def extra_repr(self) -> str:
        """Return the names of the labels, their weights and the form."""
        pairs = zip(self.names, self.weights.tolist(), strict=True)
        named = ", ".join(f"{name}: {weight:g}" for name, weight in pairs)
        floors = f", floors={self.floors}" if self.floors else ""
        return f"{named}, how={self.how!r}{floors}, scale={self.scale!r}"


def checked_losses(
    losses: Mapping[str, tuple[RankingLoss, float]],
) -> dict[str, tuple[RankingLoss, float]]:
    """Return the losses and weights by label.

    Raises:
        ValueError: see `SeveralLabels`.

    >>> checked_losses({"click": 1.0})
    Traceback (most recent call last):
    ValueError: losses['click'] must be a loss and its weight, such as (SoftNDCG(), 1.0), got 1.0
    """
    if not isinstance(losses, Mapping) or not losses:
        raise ValueError(f"losses must name a loss and a weight for each label, got {losses!r}")
    pairs = {}
    for name, pair in losses.items():
        if (
            not isinstance(pair, tuple | list)
            or len(pair) != 2
            or not isinstance(pair[0], RankingLoss)
        ):
            wanted = "a loss and its weight, such as (SoftNDCG(), 1.0)"
            raise ValueError(f"losses[{name!r}] must be {wanted}, got {pair!r}")
        pairs[str(name)] = pair[0], check_number(f"the weight of {name!r}", pair[1], minimum=0.0)
    if not any(weight for _, weight in pairs.values()):
        raise ValueError("losses must have a weight above 0, got only 0")
    reductions = {loss.reduction for loss, _ in pairs.values()}
    if len(reductions) > 1:
        raise ValueError(f"losses must have one reduction, got {', '.join(sorted(reductions))}")
    return pairs


def checked_floors(
    how: How, floors: Mapping[str, float] | None, names: tuple[str, ...]
) -> dict[str, float]:
    """Return the floors by label, empty unless how="floor".

    Raises:
        ValueError: see `SeveralLabels`.

    >>> checked_floors("floor", {"view": 0.5}, ("click", "buy"))
    Traceback (most recent call last):
    ValueError: floors must name labels of click, buy, got 'view'
    """
    if how != "floor":
        if floors:
            raise ValueError(f"floors need how='floor', got how={how!r}")
        return {}
    if not floors:
        raise ValueError("floors must name at least one label with how='floor', got none")
    for name in floors:
        if name not in names:
            raise ValueError(f"floors must name labels of {', '.join(names)}, got {name!r}")
    if len(floors) == len(names):
        raise ValueError("floors must leave at least one label without a floor, got all")
    return {name: check_number(f"floors[{name!r}]", x, minimum=0.0) for name, x in floors.items()}


def of_known(
    loss: nn.Module, rows: dict[str, Tensor], mask: Tensor | None, lengths: Lengths | None
) -> Tensor:
    """Return a loss over the items whose label is known, that is not NaN.

    >>> from ltr.losses import SoftmaxLoss
    >>> scores, labels = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, torch.nan, 0.0])
    >>> of_known(SoftmaxLoss(), {"scores": scores, "labels": labels}, None, [3])
    tensor(1.3133)
    """
    labels = rows["labels"]
    if not labels.is_floating_point():
        return loss(mask=mask, lengths=lengths, **rows)
    known = ~labels.isnan()
    if lengths is None:
        rows = {**rows, "labels": torch.where(known, labels, 0.0)}
        return loss(mask=known if mask is None else mask & known, **rows)
    if not bool(known.all()):
        lengths = check_lengths(rows["scores"], lengths)
        lengths = sum_lists(known.long(), lengths)
        rows = {name: x[known] for name, x in rows.items()}
    return loss(lengths=lengths, **rows)

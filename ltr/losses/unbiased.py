"""Learning from clicks: inverse propensity weights for any loss."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.fairness import unreduced
from ltr.losses.ndcg import SoftNDCG
from ltr.shapes import check_number, masked_fill, positions


class PositionBias(nn.Module):
    """The probability that a user looks at each position, a model of position bias in clicks.

    It maps positions (..., n) to probabilities in (0, 1].

    It is 1 / position^power, or comes from a table of probabilities. Such a table can be estimated
    from experiments that swap results.

    Args:
        power: eta >= 0. With 0 there is no bias. Default: 1.
        examination: probabilities in (0, 1] at positions 1, 2, and so on. Later positions have the
            last probability. Default: None, which uses the power.

    Raises:
        ValueError: power < 0, or a probability outside (0, 1].

    Reference: Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased
    feedback", WSDM 2017.

    >>> PositionBias()(torch.tensor([1, 2, 4]))
    tensor([1.0000, 0.5000, 0.2500])
    >>> PositionBias(examination=[1.0, 0.6])(torch.tensor([1, 2, 4]))
    tensor([1.0000, 0.6000, 0.6000])
    """

    propensities: Tensor | None

    def __init__(self, power: float = 1.0, examination: Sequence[float] | None = None):
        super().__init__()
        self.power = check_number("power", power, minimum=0.0)
        table = None
        self.examination = None if examination is None else [float(p) for p in examination]
        if self.examination is not None:
            table = torch.tensor(self.examination)
            if not len(table) or not ((table > 0) & (table <= 1)).all():
                raise ValueError(f"examination must lie in (0, 1], got {self.examination}")
        self.register_buffer("propensities", table, persistent=False)

    def forward(self, position: Tensor) -> Tensor:
        """Return the propensities (..., n) of positions (..., n), counted from 1."""
        position = position if position.is_floating_point() else position.float()
        position = position.clamp(min=1)
        if self.propensities is None:
            return position ** (-self.power)
        entry = position.clamp(max=len(self.propensities)).long() - 1
        return self.propensities.to(position.dtype)[entry]

    def extra_repr(self) -> str:
        """Return the hyper-parameter, for `print`."""
        return f"power={self.power:g}" if self.examination is None else "examination=..."


def inverse_propensity_weights(
    position: Tensor, bias: PositionBias | None = None, *, clip: float | None = None
) -> Tensor:
    """Return the weights 1 / propensity of positions (..., n), limited to `clip`.

    Args:
        position: (..., n), where the items were shown, counted from 1.
        bias: the propensities of positions. Default: `PositionBias()`.
        clip: the largest weight. It lowers the variance and adds some bias. Default: no limit.

    >>> inverse_propensity_weights(torch.tensor([1, 2, 9]), clip=5.0)
    tensor([1., 2., 5.])
    """
    weights = 1 / (PositionBias() if bias is None else bias)(position)
    limit = _check_clip(clip)
    return weights if limit is None else weights.clamp(max=limit)


class Unbiased(RankingLoss):
    r"""Corrects a loss on clicks for position bias: clicks on rarely seen positions count more.

    A click has the weight v = 1 / probability that a user looks at its position (propensity). So a
    click at a position that few users look at also counts for the users who did not look.

    With clicks c_i and m = sum of v_i c_i / sum of c_i, the mean weight of the list's clicks, the
    loss of a list is m L, where L is the given loss with the weights v_i / m of the clicks, and 1
    of the other items. The weights within the list say which click counts more, and m says how
    much the list counts. Most losses divide by the gains of the list or by an ideal. The weight of
    a single click would cancel there without m. Losses that are linear in the weights of the
    clicks, such as `SoftmaxLoss(normalize=False)`, have the same value as with the weights v_i.
    Without position bias the loss is L.

    What the expected value over the users' looks is:

    - One click in a list: the loss is exactly L / propensity. So for lists with one relevant item,
      the expected loss is exactly the loss on relevance, for any L. If a list has several clicks,
      this holds if each of them is passed as a list of its own. The expected sum is then the sum
      of L over the relevant items, each as the only one.
    - Several clicks in a list: the loss is a mean over them. `SoftmaxLoss` has the gradient of the
      sum over i of v_i c_i / (sum of c_j) * (-log softmax(s)_i). Multiplied by the number of
      clicks, this is linear in them, so its expected value is exactly that on relevance. With
      `normalize=False` it is linear as it is. (The values differ by an entropy, which does not
      depend on the scores.)
    - Otherwise the expected value for several relevant items is an approximation: an ideal, the
      pairs of a pairwise loss, and the rivals in `UniqueSoftmax` depend on all clicks together. A
      relevant item without a click counts there as irrelevant.

    Losses over all items, relevant or not (`every_item`: pointwise losses and regression), do not
    divide by the gains. They get the weights v_i of all items, and are not multiplied.

    Unusual lists are treated as in the loss. For a list without a click, a ranking loss is 0 with a
    zero gradient.

    Args:
        loss: any `RankingLoss` that takes weights. Default: `SoftNDCG()`.
        bias: the propensities. Default: `PositionBias()`, 1 / position.
        clip: the largest weight. Default: no limit.
        reduction: replaces the reduction of the loss.

    `forward` has one more argument, `position` (..., n): where the items were shown, counted from
    1. By default the items are in the order in which they were shown, and masked items were not
    shown. Weights multiply the inverse propensities.

    Raises:
        ValueError: clip is not > 0; shapes differ.

    Reference: Joachims, Swaminathan and Schnabel, WSDM 2017; Wang, Bendersky, Metzler and Najork,
    "Learning to rank with selection bias in personal search", SIGIR 2016.

    >>> from ltr.operators import HardRank
    >>> clicks = torch.tensor([1.0, 0.0, 1.0])
    >>> Unbiased(SoftNDCG(HardRank()))(torch.tensor([2.0, 1.0, 3.0]), clicks)  # the rare one first
    tensor(0.)
    """

    grades = False  # the loss checks its labels itself

    def __init__(
        self,
        loss: RankingLoss | None = None,
        bias: PositionBias | None = None,
        clip: float | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.loss = unreduced(SoftNDCG() if loss is None else loss)
        self.bias = PositionBias() if bias is None else bias
        self.clip = _check_clip(clip)
        self.every_item = self.loss.every_item
        self.side_inputs = tuple(dict.fromkeys(("position", *self.loss.side_inputs)))

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        position: Tensor | None = None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each list on clicks (..., n), shown at positions (..., n)."""
        if position is None:
            position = positions(scores).expand(scores.shape)
            position = position if mask is None else mask.cumsum(-1).to(scores.dtype)
        position = masked_fill(position, mask, 1.0)
        inverse = inverse_propensity_weights(position, self.bias, clip=self.clip)
        if "position" in self.loss.side_inputs:
            extra["position"] = position
        if self.every_item:
            weights = inverse if weights is None else weights * inverse
            return self.loss(scores, labels, mask, weights, **extra)
        clicks = masked_fill(labels, mask)
        weights = None if weights is None else masked_fill(weights, mask)
        mean, weights = _weights_of_clicks(inverse, clicks, weights)
        return mean * self.loss(scores, labels, mask, weights, **extra)


def _weights_of_clicks(
    inverse: Tensor, clicks: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the mean inverse propensity of each list's clicks, and all weights relative to it.

    A list without a click has the mean 1.
    """
    counted = clicks.clamp(min=0) if weights is None else clicks.clamp(min=0) * weights
    number = counted.sum(-1)
    some = number > 0
    mean = torch.where(some, (inverse * counted).sum(-1) / torch.where(some, number, 1.0), 1.0)
    relative = torch.where(clicks > 0, inverse / mean.unsqueeze(-1), 1.0)
    return mean, relative if weights is None else weights * relative


def _check_clip(clip: float | None) -> float | None:
    return None if clip is None else check_number("clip", clip, minimum=0.0, strict=True)

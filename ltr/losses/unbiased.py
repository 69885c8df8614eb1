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

    def forward(self, shown: Tensor) -> Tensor:
        """Return the propensities (..., n) of positions (..., n), counted from 1."""
        shown = shown if shown.is_floating_point() else shown.float()
        shown = shown.clamp(min=1)
        if self.propensities is None:
            return shown ** (-self.power)
        position = shown.clamp(max=len(self.propensities)).long() - 1
        return self.propensities.to(shown.dtype)[position]

    def extra_repr(self) -> str:
        """Return the hyper-parameter, for `print`."""
        return f"power={self.power:g}" if self.examination is None else "examination=..."


def inverse_propensity_weights(
    shown: Tensor, bias: PositionBias | None = None, *, clip: float | None = None
) -> Tensor:
    """Return the weights 1 / propensity of positions (..., n), limited to `clip`.

    Args:
        shown: (..., n), the positions at which the items were shown, counted from 1.
        bias: the propensities of positions. Default: `PositionBias()`.
        clip: the largest weight. It lowers the variance and adds some bias. Default: no limit.

    >>> inverse_propensity_weights(torch.tensor([1, 2, 9]), clip=5.0)
    tensor([1., 2., 5.])
    """
    weights = 1 / (PositionBias() if bias is None else bias)(shown)
    limit = _check_clip(clip)
    return weights if limit is None else weights.clamp(max=limit)


class Unbiased(RankingLoss):
    """Corrects a loss on clicks for position bias: clicks on rarely seen positions count more.

    Each item has the weight 1 / probability that a user looks at its position (propensity). So a
    click at a position that few users look at also counts for the users who did not look. If the
    weights of the loss multiply the gains, or the terms of relevant items, this is inverse
    propensity weighting. If the loss divides by an ideal, the estimate is self-normalized.

    Unusual lists are treated as in the loss. For a list without a click, a ranking loss is 0 with a
    zero gradient.

    Args:
        loss: any `RankingLoss` that takes weights. Default: `SoftNDCG()`.
        bias: the propensities. Default: `PositionBias()`, 1 / position.
        clip: the largest weight. Default: no limit.
        reduction: replaces the reduction of the loss.

    `forward` has one more argument, `shown` (..., n): the positions at which the items were shown,
    counted from 1. By default the items are in the order in which they were shown, and
    masked items were not shown. Weights multiply the inverse propensities.

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
        self.side_inputs = tuple(dict.fromkeys(("shown", *self.loss.side_inputs)))

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        shown: Tensor | None = None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each list on clicks (..., n), shown at positions (..., n)."""
        if shown is None:
            shown = positions(scores).expand(scores.shape)
            shown = shown if mask is None else mask.cumsum(-1).to(scores.dtype)
        shown = masked_fill(shown, mask, 1.0)
        inverse = inverse_propensity_weights(shown, self.bias, clip=self.clip)
        weights = inverse if weights is None else weights * inverse
        if "shown" in self.loss.side_inputs:
            extra["shown"] = shown
        return self.loss(scores, labels, mask, weights, **extra)

    def per_ragged_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        shown: Tensor | None = None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each ragged list on clicks (N,), shown at positions (N,)."""
        if shown is None:
            before = lengths.cumsum(0) - lengths
            before = before.repeat_interleave(lengths, output_size=len(scores))
            shown = positions(scores) - before.to(scores.dtype)
        inverse = inverse_propensity_weights(shown, self.bias, clip=self.clip)
        weights = inverse if weights is None else weights * inverse
        if "shown" in self.loss.side_inputs:
            extra["shown"] = shown
        return self.loss(scores, labels, None, weights, lengths=lengths, **extra)


def _check_clip(clip: float | None) -> float | None:
    return None if clip is None else check_number("clip", clip, minimum=0.0, strict=True)

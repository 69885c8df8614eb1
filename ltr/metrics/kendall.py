"""Kendall's rank correlation."""

from dataclasses import KW_ONLY
from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order, runs
from ltr.metrics.core import EmptyArguments, EmptyCore, measured_by
from ltr.metrics.pairs import dense_ranks, rising_pairs
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.shapes import check_choice, count, masked_fill, positions

Variant = Literal["a", "b", "weighted"]
TauTies = Literal["tied", "stable", "expected", "worst"]


class KendallTauCore(EmptyCore):
    """The arithmetic of `kendall_tau`."""

    variant: Variant = "b"
    _: KW_ONLY
    ties: TauTies = "tied"

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, "a", "b", "weighted")
        check_choice("ties", self.ties, "tied", "stable", "expected", "worst")
        if self.variant == "weighted" and self.ties != "tied":
            raise ValueError(f'ties must be "tied" for the variant "weighted", got {self.ties!r}')
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        ranked = lists.tied_by(lists.labels, descending=True)[0]
        weighted = self.variant == "weighted"
        counts = _counts(ranked.scores, ranked.labels, lists.mask, hyperbolic=weighted)
        if self.ties in ("stable", "worst"):  # no scores are tied in one order of all items
            ordered = lists if self.ties == "stable" else lists.tied_by(lists.labels)[0]
            in_order = -positions(lists.scores).expand(lists.scores.shape)
            counts = _counts(in_order, ordered.labels, lists.mask, hyperbolic=False)
        excess, by_score, by_label, pairs = counts
        if self.ties == "expected":  # a pair of equal scores is in either order equally often
            by_score = pairs
        values = _ratio(excess, by_score, by_label)
        if weighted:
            order = descending_order(lists.labels, lists.mask)  # tied labels stay in order of score
            by_rank = lists.reorder(order)
            other = _counts(by_rank.labels, by_rank.scores, lists.mask, hyperbolic=True)
            values = values / 2 + _ratio(*other[:3]) / 2
        elif self.variant == "a":
            values = excess / pairs.clamp(min=1)
        defined = pairs > 0 if self.variant == "a" else (by_score > 0) & (by_label > 0)
        return list_values(values.to(lists.scores.dtype), defined, lists, self.empty)


@measured_by(KendallTauCore)
def kendall_tau(
    scores: Tensor,
    labels: Tensor,
    *,
    variant: Variant = "b",
    ties: TauTies = "tied",
    **shared: Unpack[EmptyArguments],
) -> Tensor:
    """Kendall's tau: concordant minus discordant pairs, divided by the number of pairs.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        variant: "a" divides by the number of all pairs. "b" divides by sqrt(pairs not tied in the
            scores * pairs not tied in the labels). A tied pair is neither concordant nor
            discordant, so equal labels may be in either order. "weighted" is "b" with a weight for
            each pair: the sum of 1 / rank over its two items. Its value is the mean of two values,
            as in `scipy.stats.weightedtau`: one with ranks by score, where ties are broken by
            label, and one with ranks by label, where ties are broken by score.
        empty: the value of a list for which tau is not defined (one item; or, except with "a", all
            labels or all scores equal): a number, "skip" or "error".
        ties: how equal scores count. "tied", the definition above, or as in other metrics in one
            order of all items, so that no pair is tied in the scores: "stable" (in list order),
            "worst" (in the order with the smallest value) or "expected" (the mean over all orders
            of tied items). The variant "weighted" has only "tied". `evaluate` and `ltr evaluate`
            always take "tied".

    Returns:
        A scalar in [-1, 1], or (...) with reduction="none". A fully masked list is left out.
        Cost: O(n log n) time, O(n) memory.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Kendall, "The treatment of ties in ranking problems", Biometrika 1945; Knight, "A
    computer method for calculating Kendall's tau with ungrouped data", 1966; Vigna, "A weighted
    correlation index for rankings with ties", WWW 2015.

    >>> kendall_tau(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0, 0.0]))
    tensor(0.8165)
    """
    ...


def _ratio(excess: Tensor, by_score: Tensor, by_label: Tensor) -> Tensor:
    geometric_mean = by_score.clamp(min=0).sqrt() * by_label.clamp(min=0).sqrt()
    return excess / geometric_mean.where(geometric_mean > 0, 1.0)


def _counts(
    scores: Tensor, labels: Tensor, mask: Tensor | None, hyperbolic: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four counts of pairs: concordant - discordant, untied by score, untied by label, all.

    Items (..., n) must be in order of descending score, and items with tied scores in order of
    descending label. The counts (...) are float64. Each pair counts as the sum of the weights of
    its two items: 1/2 for each item, or 1 / rank if `hyperbolic`. So each item in a run of g ties
    contributes (g - 1) times its weight to the tied pairs.
    """
    position = positions(scores.double())
    weight = 1 / position if hyperbolic else torch.full_like(position, 0.5)
    weight = masked_fill(weight.expand(scores.shape), mask)

    def tied(starts: Tensor, ends: Tensor, weight: Tensor = weight) -> Tensor:
        return ((ends - starts - 1) * weight).sum(-1)

    m = count(weight, mask).squeeze(-1)
    everything = (m - 1).clamp(min=0) * weight.sum(-1)
    # This is the order by labels. The padding has weight 0, but it must not lengthen a run of ties.
    order = descending_order(labels, mask)
    by_score = tied(*runs(scores, mask))
    by_label = tied(*runs(labels.gather(-1, order), mask), weight.gather(-1, order))
    ranks = dense_ranks(masked_fill(labels, mask, -torch.inf))
    discordant = rising_pairs(ranks, weight, weight)
    excess = everything - by_score - by_label + tied(*runs(scores, labels, mask)) - 2 * discordant
    # Sums of 1 / rank are rounded: a sum below `least` means that no pair is untied.
    least = 1e-12 * everything
    by_score, by_label = everything - by_score, everything - by_label
    by_score = by_score.where(by_score > least, 0.0)
    return excess, by_score, by_label.where(by_label > least, 0.0), everything

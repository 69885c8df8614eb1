"""Metrics that count hits: precision, recall, F-beta, R-precision, hit rate and top-k accuracy."""

from typing import Unpack

from torch import Tensor

from ltr.metrics.core import (
    BinaryArguments,
    BinaryCore,
    CutoffCore,
    EmptyCore,
    TiesArguments,
    measured_by,
)
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import first_hit, placed_sum, within
from ltr.shapes import check_number, check_whole, largest, positions


class PrecisionCore(BinaryCore):
    """The arithmetic of `precision`."""

    takes_weights = True
    divides_by_k = True

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = self.hits(lists)
        divisor = self.top_k or lists.lengths.clamp(min=1)
        values = placed_sum(within(hits, self.top_k), hits, lists, self.ties) / divisor
        return list_values(values, hits.any(-1), lists, self.empty)


@measured_by(PrecisionCore)
def precision(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """Precision@k: the fraction of relevant items among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.
    With weights, a relevant item counts as its weight instead of 1; the divisor does not change.

    Args:
        top_k: k, which is the divisor even for a list with fewer items, as in trec_eval. Default:
            the length of the list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=2)
    tensor(0.5000)
    """
    ...


class RecallCore(BinaryCore):
    """The arithmetic of `recall`."""

    takes_weights = True

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = self.hits(lists)
        total = hits.sum(-1)
        first_hits = placed_sum(within(hits, self.top_k), hits, lists, self.ties)
        return list_values(first_hits / total.where(total > 0, 1.0), total > 0, lists, self.empty)


@measured_by(RecallCore)
def recall(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """Recall@k: the fraction of the relevant items that are among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.
    With weights, a relevant item counts as its weight instead of 1.

    Args:
        top_k: k. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> recall(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=1)
    tensor(0.5000)
    """
    ...


class F1Core(BinaryCore):
    """The arithmetic of `f1`."""

    divides_by_k = True

    beta = 1.0

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = self.hits(lists)
        relevant = hits.sum(-1)
        first_hits = placed_sum(within(hits, self.top_k), hits, lists, self.ties)
        k = self.top_k or lists.lengths.clamp(min=1)
        values = (1 + self.beta**2) * first_hits / (k + self.beta**2 * relevant)
        return list_values(values, relevant > 0, lists, self.empty)


class FBetaCore(F1Core):
    """The arithmetic of `f_beta`."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        self.beta = check_number("beta", self.beta, minimum=0.0)
        super().__post_init__()


@measured_by(FBetaCore)
def f_beta(
    scores: Tensor,
    labels: Tensor,
    *,
    beta: float = 1.0,
    **shared: Unpack[BinaryArguments],
) -> Tensor:
    """F-beta@k: the weighted harmonic mean of precision P and recall R at k.

    It is (1 + beta^2) P R / (beta^2 P + R). This is (1 + beta^2) * hits / (k + beta^2 * relevant
    items), where the hits are the relevant items among the first k. What trec_eval and ir_measures
    call the beta of `set_F` is beta^2 here.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Precision divides by k even for a list with fewer items. Default: the length of
            the list.
        beta: the weight of recall relative to precision, >= 0. 1 gives `f1`, and 0 gives
            `precision`.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: van Rijsbergen, "Information retrieval", 1979, chapter 7.

    >>> import torch
    >>> scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0])
    >>> f_beta(scores, labels, top_k=1, beta=2)
    tensor(0.5556)
    """
    ...


@measured_by(F1Core)
def f1(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """F1@k: the harmonic mean of precision and recall at k, 2 * hits / (k + relevant items).

    The hits are the relevant items among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Precision divides by k even for a list with fewer items. Default: the length of
            the list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> f1(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=2)
    tensor(0.5000)
    """
    ...


class RPrecisionCore(BinaryCore):
    """The arithmetic of `r_precision`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = self.hits(lists)
        total = hits.sum(-1)
        first = (positions(hits) <= total.unsqueeze(-1)) * within(hits, self.top_k)
        values = placed_sum(first, hits, lists, self.ties) / total.clamp(min=1)
        return list_values(values, total > 0, lists, self.empty)


@measured_by(RPrecisionCore)
def r_precision(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """R-precision: the precision at rank R, where R is the number of relevant items.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; relevant items below rank k do not count as hits, but R does not change. Default:
            the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> r_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.5000)
    """
    ...


class HitRateCore(BinaryCore):
    """The arithmetic of `hit_rate`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = lists.relevant(self.relevant_from)
        first = first_hit(hits, lists, self.ties)
        values = (first * within(first, self.top_k)).sum(-1)
        return list_values(values, hits.any(-1), lists, self.empty)


@measured_by(HitRateCore)
def hit_rate(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """Hit rate, or success@k: whether a relevant item is among the first k.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> hit_rate(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 2.0]), top_k=1)
    tensor(0.)
    """
    ...


class TopKAccuracyCore(CutoffCore, EmptyCore):
    """The arithmetic of `top_k_accuracy`."""

    top_k: int = 1  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        check_whole("top_k", self.top_k)
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        best = (lists.labels > 0) & (lists.labels == largest(lists.labels).unsqueeze(-1))
        first = first_hit(best, lists, self.ties)
        values = (first * within(first, self.top_k)).sum(-1)
        return list_values(values, best.any(-1), lists, self.empty)


@measured_by(TopKAccuracyCore)
def top_k_accuracy(
    scores: Tensor, labels: Tensor, *, top_k: int = 1, **shared: Unpack[TiesArguments]
) -> Tensor:
    """Top-k accuracy: whether an item with the largest label of its list is among the first k.

    With one-hot labels, the items are classes, and this is the top-k accuracy of a classifier.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        labels: (..., n), >= 0. An item with the largest label counts if that label is above 0.
        top_k: k. Default: 1.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Russakovsky et al., "ImageNet large scale visual recognition challenge", 2015.

    >>> import torch
    >>> top_k_accuracy(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]), top_k=2)
    tensor(1.)
    """
    ...

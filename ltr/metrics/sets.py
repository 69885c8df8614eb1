"""Metrics of the set of retrieved items, whatever their order: precision, recall, F-beta."""

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Unpack

from torch import Tensor

from ltr.metrics.core import RelevantCore, RetrievedCore, SetArguments, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.shapes import check_number


class SetCore(RelevantCore, RetrievedCore):
    """Base class of the metrics of the set of retrieved items."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        relevant, retrieved = self.hits(lists), self.retrieved(lists)
        hits, total = (relevant * retrieved).sum(-1), relevant.sum(-1)
        value = self.value(hits, retrieved.sum(-1), total)
        return list_values(value, total > 0, lists, self.empty)

    @abstractmethod
    def value(self, hits: Tensor, retrieved: Tensor, relevant: Tensor) -> Tensor:
        """Return the value of each list, (...), from three counts of items (...).

        Args:
            hits: the number of relevant items that were retrieved.
            retrieved: the number of retrieved items.
            relevant: the number of relevant items.
        """


class SetPrecisionCore(SetCore):
    """The arithmetic of `set_precision`."""

    def value(self, hits: Tensor, retrieved: Tensor, relevant: Tensor) -> Tensor:
        """Return the value of each list."""
        return hits / retrieved.clamp(min=1)


class SetRecallCore(SetCore):
    """The arithmetic of `set_recall`."""

    def value(self, hits: Tensor, retrieved: Tensor, relevant: Tensor) -> Tensor:
        """Return the value of each list."""
        return hits / relevant.clamp(min=1)


class SetFBetaCore(SetCore):
    """The arithmetic of `set_f_beta`."""

    _: KW_ONLY
    beta: float = 1.0

    def __post_init__(self) -> None:
        self.beta = check_number("beta", self.beta, minimum=0.0)
        super().__post_init__()

    def value(self, hits: Tensor, retrieved: Tensor, relevant: Tensor) -> Tensor:
        """Return the value of each list."""
        square = self.beta**2
        both = retrieved + square * relevant
        return (1 + square) * hits / both.where(both > 0, 1.0)


@measured_by(SetFBetaCore)
def set_f_beta(
    scores: Tensor, labels: Tensor, *, beta: float = 1.0, **shared: Unpack[SetArguments]
) -> Tensor:
    """F-beta of the retrieved items: (1 + beta^2) P R / (beta^2 P + R), like `f_beta` at a cutoff.

    P is the precision and R the recall of the retrieved items. What trec_eval and ir_measures call
    the beta of `set_F` is beta^2 here.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        threshold: items with a score above it are retrieved. Default: all items. A `JoinedRun`
            sets the threshold itself.
        beta: the weight of recall relative to precision, >= 0.

    Returns:
        A scalar, or (...) with reduction="none"; 0 for a list in which nothing was retrieved. A
        fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: van Rijsbergen, "Information retrieval", 1979, chapter 7.

    >>> import torch
    >>> set_f_beta(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 0]), threshold=0.0)
    tensor(0.6667)
    """
    ...


@measured_by(SetPrecisionCore)
def set_precision(scores: Tensor, labels: Tensor, **shared: Unpack[SetArguments]) -> Tensor:
    """Set precision: the fraction of relevant items among the retrieved items.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        threshold: items with a score above it are retrieved. Default: all items. A `JoinedRun`
            sets the threshold itself.

    Returns:
        A scalar, or (...) with reduction="none"; 0 for a list in which nothing was retrieved. A
        fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> set_precision(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 0]), threshold=0.0)
    tensor(0.5000)
    """
    ...


@measured_by(SetRecallCore)
def set_recall(scores: Tensor, labels: Tensor, **shared: Unpack[SetArguments]) -> Tensor:
    """Set recall: the fraction of the relevant items that were retrieved.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        threshold: items with a score above it are retrieved. Default: all items. A `JoinedRun`
            sets the threshold itself.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> set_recall(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 1]), threshold=0.0)
    tensor(0.5000)
    """
    ...

"""Distillation: a teacher's scores are the labels."""

from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.shapes import check_number, masked_fill


class Distillation(RankingLoss):
    """KL(softmax(teacher / T) || softmax(scores / T)) * T^2: labels are a teacher's scores.

    The softmaxes are over the list. The loss is 0 if the scores of each list equal the teacher's
    up to a constant. The factor T^2 keeps the size of the gradients as T grows: for large T the
    loss tends to half the variance of the differences. The labels may be any numbers.

    Other losses accept a teacher's scores too. `SpearmanLoss` and `PairwiseMSE` take any scores.
    `SoftNDCG(gain="linear")` and the listwise losses take scores >= 0. The other pairwise losses
    and `ListMLE` use only the order: subtract the smallest score first, so that all are >= 0.

    Special cases: the loss is 0, with a zero gradient, for one item and for a fully masked list.
    Ties need no special treatment.

    Args:
        temperature: T > 0. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    An item of weight w counts like w copies of the item, in both softmaxes.

    Raises:
        ValueError: temperature is not > 0.

    Reference: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015;
    Cao, Qin, Liu, Tsai and Li, "Learning to rank: from pairwise approach to listwise approach",
    ICML 2007, which calls these softmaxes top-one probabilities.

    >>> teacher = torch.tensor([2.0, -1.0, 0.5])
    >>> Distillation()(teacher + 3, teacher).abs() < 1e-6
    tensor(True)
    """

    grades = False

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.temperature = _check_temperature(temperature)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list."""
        return _divergence(scores, labels, mask, weights, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return ", ".join(filter(None, [f"temperature={self.temperature:g}", super().extra_repr()]))


def _divergence(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    if not scores.shape[-1]:
        return scores.sum(-1)
    w = masked_fill(torch.ones_like(scores) if weights is None else weights, mask)
    real = w > 0
    log_w = torch.where(real, w, 1.0).log()
    student = _log_softmax(scores / temperature, log_w, real)
    teacher = _log_softmax(labels / temperature, log_w, real)
    terms = teacher.exp() * (teacher - student)
    divergence = torch.where(real, terms, 0.0).sum(-1)
    # a NaN score is a mistake even if its weight is 0, so it makes the loss NaN
    return temperature**2 * divergence + 0 * masked_fill(scores, mask).sum(-1)


def _log_softmax(x: Tensor, log_w: Tensor, real: Tensor) -> Tensor:
    """Return the log-softmax of x + log_w over the real items, and finite numbers elsewhere."""
    some = real | ~real.any(-1, keepdim=True)
    x = torch.where(real, x, 0.0) + log_w
    return torch.where(some, x - torch.where(some, x, -torch.inf).logsumexp(-1, keepdim=True), 0.0)


def _check_temperature(temperature: float) -> float:
    return check_number("temperature", temperature, minimum=0.0, strict=True)


def distillation_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the divergence from a teacher's softmax: the function form of `Distillation`.

    >>> distillation_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 50.0]))  # log 2
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_divergence, temperature=_check_temperature(temperature)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )

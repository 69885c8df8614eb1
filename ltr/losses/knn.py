"""The differentiable k-nearest-neighbor loss."""

from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_whole, count, masked_fill
from ltr.losses._soft import log_sum, relevance, sort_operator
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import SoftSort, SortOperator


class KNNLoss(RankingLoss):
    """1 - p, or -log p: p is the share of the query's class among its k soft nearest neighbors.

    A list is a query's candidates: the scores are how near each is, such as minus the squared
    distance of embeddings, and labels are 1 (above 0) for candidates of the query's class. p is
    the mean over the first k rows of P of (P labels)_i. With a hard permutation it is the share
    of the query's class among the k nearest. The paper's loss is -p, whose gradient is the same.

    What unusual lists give: no candidate of the class, or all masked: 0, with a graph. Fewer than
    k real candidates: all of them vote. Tied scores: what the operator gives them. With fewer
    than k candidates of the class the loss cannot fall to 0.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `SoftSort()`.
        top_k: k. Default: 5.
        form: "probability" (1 - p, the default), or "log" (-log p, in logarithms throughout, so
            that a query far from its class has a gradient).
        average: whether the first k rows are averaged; False sums them, as the published code
            does, and gives k (1 - p). Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights weigh the candidates' votes.

    Raises:
        ValueError: an argument that is none of these, named with its value; an operator
            that has no permutation or, in `forward`, not a row for each item.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.3; Prillo and Eisenschlos, ICML
    2020.

    >>> near = -torch.tensor([0.1, 0.2, 3.0, 5.0])
    >>> KNNLoss(SoftSort(0.01), top_k=2)(near, torch.tensor([1.0, 0.0, 1.0, 0.0]))
    tensor(0.5000)
    """

    def __init__(
        self,
        operator: SortOperator | None = None,
        top_k: int = 5,
        form: Literal["probability", "log"] = "probability",
        average: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.top_k = check_whole("top_k", top_k)
        if form not in ("probability", "log"):
            raise ValueError(f"form must be 'probability' or 'log', got {form!r}")
        self.form: Literal["probability", "log"] = form
        self.average = average

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The loss of each query."""
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        if P.rows != n:
            raise ValueError(f"operator must give {n} rows, one for each item, got {P.rows}")
        top, shape = P.top(self.top_k), P.scores.shape
        all_votes = masked_fill(torch.ones_like(scores) if weights is None else weights, mask)
        votes = all_votes * masked_fill(relevance(labels), mask)
        defined = votes.sum(-1) > 0
        if self.form == "log":
            log_p = top.log_dense()
            loss = _log_votes(log_p, all_votes) - _log_votes(log_p, votes)
        else:
            got = top.mv(votes.expand(shape)).sum(-1)
            given = count(scores, mask).squeeze(-1).clamp(min=1, max=self.top_k)
            if weights is not None:
                given = top.mv(all_votes.expand(shape)).sum(-1)
            # neighbors without weight have no vote for the class: a loss of 1
            loss = 1 - got / torch.where(given > 0, given, 1.0)
        loss = torch.where(defined, loss, 0 * loss)
        return loss if self.average else self.top_k * loss


def _log_votes(log_p: Tensor, votes: Tensor) -> Tensor:
    """Log of the sum over rows and items of P * votes, (..., rows, n), (..., n) -> (...)."""
    some = votes > 0
    log_votes = torch.where(some, torch.where(some, votes, 1.0).log(), -torch.inf)
    return log_sum((log_p + log_votes.unsqueeze(-2)).flatten(-2), -1)


def knn_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    top_k: int = 5,
    form: Literal["probability", "log"] = "probability",
    average: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Differentiable k-nearest-neighbor loss, as a function. See `KNNLoss`.

    >>> knn_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]), top_k=1)
    tensor(1.)
    """
    return KNNLoss(operator, top_k, form, average, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )

"""The differentiable k-nearest-neighbor loss."""

from typing import Literal

import torch
from torch import Tensor

from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.soft import log_sum, real_weights, relevance, sort_operator
from ltr.operators import SoftSort, SortOperator
from ltr.operators.permutation import check_rows
from ltr.shapes import check_choice, check_flag, check_whole, count, masked_fill

Form = Literal["probability", "log"]


class KNNLoss(RankingLoss):
    """Loss of k-nearest-neighbor classification with soft neighbors.

    The loss is 1 - p or -log p. p is the fraction of the k soft nearest neighbors that have the
    query's class.

    A list holds the candidates of one query. The nearer a candidate is to the query, the higher its
    score, for example minus the squared distance of the two embeddings. The label is 1 (or another
    value above 0, which counts as 1) for candidates of the query's class, else 0. P is the
    operator's soft permutation matrix, and p is the mean of (P labels)_i over the first k rows i.
    With a hard permutation, p is the fraction of the k nearest candidates that have the query's
    class. The paper's loss is -p, which has the same gradient as 1 - p.

    Special cases: the loss is 0, with a zero gradient, for a list without a candidate of the class
    and for a fully masked list. If a list has fewer than k real candidates, all of them count. If a
    list has at least k real candidates, but fewer than k of the class, the loss cannot be 0. The
    operator decides how candidates with tied scores count.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item. Default: `SoftSort()`.
        top_k: k. Default: 5.
        form: "probability" (1 - p, the default), or "log" (-log p). The second form is computed in
            logarithms throughout, so it has a gradient even if the query is far from all candidates
            of its class.
        average: True (default) for 1 - p or -log p. False for k times this loss, as in the
            published code.

    With weights, p is a weighted fraction: each candidate counts by its weight.

    Raises:
        ValueError: an argument is invalid (the message names it and its value); the operator has
            no permutation; in `forward`, the operator does not give a row for each item.

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
        form: Form = "probability",
        average: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.top_k = check_whole("top_k", top_k)
        check_choice("form", form, "probability", "log")
        self.form: Form = form
        self.average = check_flag("average", average)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the loss of each query."""
        P = self.operator.permutation(scores, mask)
        check_rows(P.rows, scores.shape[-1])
        top, shape = P.top(self.top_k), P.scores.shape
        all_votes = real_weights(scores, mask, weights)
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
            # If all neighbors have weight 0, none counts for the class, and the loss is 1.
            loss = 1 - got / torch.where(given > 0, given, 1.0)
        loss = torch.where(defined, loss, 0 * loss)
        return loss if self.average else self.top_k * loss


def _log_votes(log_p: Tensor, votes: Tensor) -> Tensor:
    """Return the log of the sum of P * votes over rows and items.

    The arguments are log_p = log P (..., rows, n) and votes (..., n), >= 0; the result is (...).
    """
    has_votes = votes > 0
    log_votes = torch.where(has_votes, torch.where(has_votes, votes, 1.0).log(), -torch.inf)
    return log_sum((log_p + log_votes.unsqueeze(-2)).flatten(-2), -1)

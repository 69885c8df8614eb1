"""Alpha-NDCG: novelty and diversity over topics."""

from typing import Unpack

import torch
from torch import Tensor

from ltr.gains import Discount, discount_function, greedy_topics
from ltr.metrics.core import EmptyArguments, EmptyCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import within
from ltr.shapes import check_fraction, check_top_k, positions


class AlphaNDCGCore(EmptyCore):
    """The arithmetic of `alpha_ndcg`."""

    takes_topics = True

    top_k: int | None = None
    alpha: float = 0.5
    discount: Discount = "log2"

    def __post_init__(self) -> None:
        self.top_k = check_top_k(self.top_k)
        self.alpha = check_fraction("alpha", self.alpha, zero=True, one=True)
        discount_function(self.discount)  # this checks the discount
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        topics = lists.labels.unsqueeze(-1) if lists.topics is None else lists.topics
        has = (topics > 0).to(lists.scores.dtype)
        discounts = discount_function(self.discount)(positions(lists.scores))
        discounts = discounts * within(lists.scores, self.top_k)
        gains = (has * torch.pow(1.0 - self.alpha, has.cumsum(-2) - has)).sum(-1)
        # The ideal must not depend on the scores, so ties in gain are broken by the original order.
        best, _ = greedy_topics(lists.in_list_order(has), self.alpha, self.top_k)
        ideal = (best * discounts).sum(-1)
        values = (gains * discounts).sum(-1) / ideal.where(ideal > 0, 1.0)
        return list_values(values, ideal > 0, lists, self.empty)


@measured_by(AlphaNDCGCore)
def alpha_ndcg(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    alpha: float = 0.5,
    discount: Discount = "log2",
    **shared: Unpack[EmptyArguments],
) -> Tensor:
    """Alpha-NDCG@k: NDCG over topics, in which a topic counts less each time it is seen again.

    An item gains (1 - alpha)^(number of earlier items with the topic) for each of its topics. The
    discounted sum of the gains is divided by the same sum for the greedy order, as in the
    reference, because finding the best order is NP-hard. Tied scores are ranked in list order;
    there is no option `ties`.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        labels: (..., n, topics), >= 0. A label above 0 means that the item has the topic. Labels
            (..., n) mean one topic.
        top_k: k. Default: the whole list.
        alpha: the fraction of the gain that a topic loses each time it is seen, in [0, 1].
        discount: "log2", "letor4", or a function of the ranks.
        empty: the value of a list without any topic: a number, "skip" or "error".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort,
        and O(k n topics) for the greedy order.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Clarke et al., "Novelty and diversity in information retrieval evaluation", SIGIR
    2008.

    >>> scores, topics = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([[1, 0], [1, 0], [0, 1]])
    >>> alpha_ndcg(scores, topics)
    tensor(0.9652)
    """
    ...

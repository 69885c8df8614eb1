"""Losses on soft ranks: 1 minus a metric, such as MRR, MAP or Spearman's rho; ADR-MSE."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltr.gains import (
    Discount,
    check_discount,
    discount_function,
    ideal_dcg,
    item_gains,
    log_left,
    stop_probabilities,
)
from ltr.kernels.sorting import falling_values, in_list_order, runs
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.listmle import labels_differ
from ltr.losses.soft import (
    cutoff_discount,
    rank_operator,
    real_weights,
    reciprocal_rank,
    relevance,
    shortfall,
    weighted_mean,
)
from ltr.operators import RankOperator, SigmoidRank, truncated
from ltr.operators.stochastic import one_draw
from ltr.shapes import (
    check_flag,
    check_positive,
    check_top_k,
    check_whole,
    count,
    largest,
    masked_fill,
    positions,
)


class _AtCutoff(RankingLoss):
    """Base class of the losses with a rank operator and a cutoff."""

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.top_k = check_top_k(top_k)


class SoftMRR(_AtCutoff):
    """A differentiable loss for MRR (mean reciprocal rank): 1 - MRR with soft ranks.

    The loss is 1 minus the largest 1 / (soft rank of i) over the relevant items i.

    With hard ranks this is exactly 1 - `ltr.metrics.MRR`: only the first relevant item counts.
    (Some libraries take the mean of 1 / rank over the relevant items instead. With that mean, a
    second relevant item usually lowers the MRR.) Soft ranks below 1 count as 1.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. For one item the loss is 0 if the item's soft rank is 1 and there is no
    smooth cutoff. The operator decides the ranks of tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: k of MRR@k, with a cutoff at rank k + 1/2, which is smooth unless `exact_cutoff` of
            the operator is True. Default: all items.

    Weights multiply the reciprocal ranks. The ideal value is then the largest weight of a relevant
    item.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Voorhees, "The TREC-8 question answering track report", 1999; with soft ranks as in
    Qin, Liu and Li, 2010.

    >>> import torch
    >>> from ltr.operators import HardRank
    >>> SoftMRR(HardRank())(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    tensor(0.5000)
    """

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 minus the soft reciprocal rank of each list."""
        gains = item_gains(labels, mask, weights, relevance)
        discount = cutoff_discount(reciprocal_rank, self.top_k, self.operator)
        reciprocal = self.operator.discounts(discount, scores, mask)
        return shortfall(largest(gains * reciprocal), largest(gains))


class SoftMAP(_AtCutoff):
    """A differentiable loss for MAP (mean average precision): 1 - MAP with soft ranks.

    The loss is 1 minus the mean of the soft precisions at the relevant items.

    The soft precision at item i is i's soft rank among the relevant items, divided by i's soft rank
    among all items. So the operator is called twice. With hard ranks the loss is exactly 1 -
    `ltr.metrics.MAP`. With `SigmoidRank`, the default, it is Smooth-AP;
    `SoftMAP(SigmoidRank(0.01))` has the paper's temperature, which suits cosine similarities. The
    loss may be below 0: with operators whose ranks are not sums over pairs, for ties with
    `SoftRank`, and for ties at a cutoff (by 0.7 if 9 relevant items are tied and k = 5).

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. Without `top_k`, the loss is 0 for one item. The operator decides the ranks
    of tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. With a `Stochastic` operator both
            ranks use the same draw.
        top_k: k of AP@k, with a cutoff at rank k + 1/2, which is smooth unless `exact_cutoff` of
            the operator is True. The sum of the precisions is then divided by min(k, number of
            relevant items). Default: all items.

    With weights, the mean over the relevant items is a weighted mean. With `top_k` the divisor is
    the sum of the k largest weights of relevant items.

    Cost: twice that of the operator.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Brown, Xie, Kalogeiton and Zisserman, "Smooth-AP: Smoothing the path towards
    large-scale image retrieval", ECCV 2020; Qin, Liu and Li, 2010.

    >>> from ltr.operators import HardRank
    >>> SoftMAP(HardRank())(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]))
    tensor(0.1667)
    """

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 minus the soft average precision of each list."""
        gains = item_gains(labels, mask, weights, relevance)
        ideal = ideal_dcg(gains, torch.ones_like, self.top_k)
        relevant = (masked_fill(labels, mask) > 0).expand(scores.shape)
        operator, scores, mask = one_draw(self.operator, scores, mask)
        relevant = relevant.expand(scores.shape)
        among = operator(scores, relevant if mask is None else relevant & mask)
        discount = cutoff_discount(reciprocal_rank, self.top_k, operator)
        precision = masked_fill(among, relevant) * operator.discounts(discount, scores, mask)
        return shortfall((gains * precision).sum(-1), ideal)


class SoftERR(_AtCutoff):
    """A differentiable loss for ERR (expected reciprocal rank): 1 - ERR with soft ranks.

    The loss is 1 - sum over i of R_i / rank_i * product over the j before i of (1 - R_j).

    R = (2^label - 1) / 2^max_label is the probability that a reader stops at the item. The soft
    product is over all j, with each R_j multiplied by the operator's `before`, which is near 1 if j
    comes before i, and near 0 if j comes after i. `before` is a smooth step of the difference of
    the two soft ranks. The step is 1/2 for equal ranks, and as wide as the smooth cutoff at k. With
    hard ranks, those of `StraightThrough` included, and `normalize=False`, the loss is exactly 1 -
    ERR. By default, ERR is divided by the ERR of the ideal order, so the minimum of the loss is 0.
    (With `NeuralSort`, whose ranks can be below 1, the loss may be slightly below 0.)

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. By default, the loss is 0 for one item whose soft rank is 1. If the soft
    ranks of two items are equal, each item counts as half before the other.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: k of ERR@k, with a cutoff at rank k + 1/2, which is smooth unless `exact_cutoff` of
            the operator is True (exact in the ideal ERR). Default: all items.
        max_label: the highest grade of the scale, such as 4. Labels above `max_label` count as
            `max_label`. Default: the largest label of each list.
        normalize: whether to divide by the ERR of the ideal order. Default: True.

    A weight w replaces R by 1 - (1 - R)^w, as if the reader looked at the item w times. A weight of
    0 makes the item irrelevant, and a small R grows in proportion to w. (If weights multiplied the
    terms of the sum instead, sorting the items by a key would not give the best order: which of two
    neighbors should come first would depend on their ranks.)

    The ideal order is by descending R, with the weights included in R. To see this, take items a
    and b, with R_a > R_b, at the neighboring ranks r and r + 1. Let q be the probability that the
    reader arrives at rank r. With a first, the two items add q (R_a / r + (1 - R_a) R_b / (r + 1))
    to the ERR. With b first, they add q (R_a - R_b) / (r (r + 1)) less. The terms of all other
    items stay the same. So no order is better than the ideal order. With hard ranks, the loss is >=
    0, and it is 0 only for an ideal order.

    Cost: that of the operator, and O(n^2) time and memory.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
    relevance", CIKM 2009.

    >>> from ltr.operators import HardRank
    >>> loss = SoftERR(HardRank(), max_label=1, normalize=False)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))  # 1 - 1/4 - 1/12
    tensor(0.6667)
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        max_label: float | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(operator, top_k, reduction)
        self.max_label = check_positive("max_label", max_label)
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 minus the soft ERR of each list."""
        stops = stop_probabilities(labels, mask, self.max_label, weights)
        ideal = ideal_err(stops, self.top_k)
        operator, scores, mask = one_draw(self.operator, scores, mask)
        before = operator.before(scores, mask)
        arrivals = log_left(stops.unsqueeze(-2) * before).sum(-1).exp()
        discounts = operator.discounts(
            cutoff_discount(reciprocal_rank, self.top_k, operator), scores, mask
        )
        err = (stops * discounts * arrivals).sum(-1)
        if self.normalize:
            return shortfall(err, ideal)
        return torch.where(ideal > 0, 1 - err, 0 * err)


def ideal_err(stops: Tensor, top_k: int | None = None) -> Tensor:
    """Return the ERR (...) of the best order, given stop probabilities (..., n).

    >>> ideal_err(torch.tensor([0.0, 0.5, 0.5]))  # 1/2 + 1/2 * 1/2 * 1/2
    tensor(0.6250)
    """
    stops = falling_values(stops)
    left = log_left(stops)
    arrivals = (left.cumsum(-1) - left).exp()
    discount = reciprocal_rank if top_k is None else truncated(reciprocal_rank, top_k, exact=True)
    return (stops * arrivals * discount(positions(stops))).sum(-1)


class _SoftTopK(RankingLoss):
    """Base class of the losses for precision and recall, which differ in the divisor."""

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | Sequence[int] = 10,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.cutoffs = _check_cutoffs(top_k)
        self.top_k = self.cutoffs if isinstance(top_k, Sequence) else self.cutoffs[0]
        self.normalize = check_flag("normalize", normalize)

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return the divisor (...) of the soft hits if `normalize` is False.

        `items` (..., n) are the weights, 0 under the mask. `gains` (..., n) are the weights of the
        relevant items, and 0 for all other items.
        """
        raise NotImplementedError

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 minus the soft metric of each list, as a mean over the cutoffs."""
        gains = item_gains(labels, mask, weights, relevance)
        items = item_gains(labels, mask, weights, torch.ones_like)
        losses = []
        for k in self.cutoffs:
            hits = (gains * self.operator.top_k(k, scores, mask)).sum(-1)
            ideal = ideal_dcg(gains, torch.ones_like, k)
            if not self.normalize:
                ideal = torch.where(ideal > 0, self.divisor(gains, items, k), 0.0)
            losses.append(shortfall(hits, ideal))
        return torch.stack(losses).mean(0)


class SoftPrecision(_SoftTopK):
    """A differentiable loss for precision@k: 1 - precision@k with soft ranks.

    The soft hits are the sum of the relevant items' soft memberships in the first k. Soft
    precision@k is the soft hits divided by their maximum over all orders. This maximum is min(k,
    number of relevant items), so the loss of the ideal order is about 0 (up to 0.06, since the
    cutoff is smooth). With `normalize=False` the divisor is k; with hard ranks the loss is then
    exactly 1 - precision@k. With `normalize=True`, `SoftPrecision` and `SoftRecall` are the same.
    If many items are tied at the cutoff, their memberships may sum to more than k, so the loss may
    be below 0. The memberships of `LapSum` sum to exactly k.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. With `normalize=True`, the loss is about 0 for one item. The operator decides
    how tied scores share the positions.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. The operator computes the soft
            membership in the first k, usually by a smooth cutoff of the ranks at k + 1/2.
        top_k: k, or a sequence of cutoffs; the loss is then the mean over the cutoffs. Default: 10.
        normalize: whether to divide by the maximum (True, the default) or by k.

    Weights multiply the hits. The maximum is then the sum of the k largest weights of relevant
    items. With `normalize=False` the divisor is k times the mean of the k largest weights. In this
    mean, weights of 0 do not count.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    >>> from ltr.operators import HardRank
    >>> loss = SoftPrecision(HardRank(), top_k=2)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return k times the mean of the k largest weights; weights of 0 do not count."""
        positions = ideal_dcg((items > 0).to(items.dtype), torch.ones_like, k)
        largest = ideal_dcg(items, torch.ones_like, k)
        return k * largest / positions.clamp(min=1)


class SoftRecall(_SoftTopK):
    """A differentiable loss for recall@k: 1 - recall@k with soft ranks.

    The loss is 1 - soft recall@k: the soft hits among the first k, divided by their maximum over
    all orders.

    The soft hits are the sum of the relevant items' soft memberships in the first k. Their maximum
    is min(k, number of relevant items), so the loss of the ideal order is about 0. With
    `normalize=False` the divisor is the number of relevant items; with hard ranks the loss is then
    exactly 1 - recall@k. As in `SoftPrecision`, ties at the cutoff may make the loss negative.

    The recall@k surrogate of Patel et al. is
    `SoftRecall(SigmoidRank(0.01), top_k=[1, 2, 4, 8, 16])`: ranks by sigmoids of score differences,
    then a smooth step at k. The step of Patel et al. is a sigmoid; the step here has a longer tail.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. For one item the loss is about 0. The operator decides how tied scores share
    the positions.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. The operator computes the soft
            membership in the first k, usually by a smooth cutoff of the ranks at k + 1/2.
        top_k: k, or a sequence of cutoffs; the loss is then the mean over the cutoffs. Default: 10.
        normalize: whether to divide by the maximum (True, the default) or by the number of relevant
            items.

    Weights multiply the hits. The maximum is then the sum of the k largest weights of relevant
    items.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Patel, Tolias and Matas, "Recall@k surrogate loss with large batches and similarity
    mixup", CVPR 2022.

    >>> from ltr.operators import HardRank
    >>> loss = SoftRecall(HardRank(), top_k=1, normalize=False)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return the number of relevant items, or with weights their total weight."""
        return gains.sum(-1)


def _check_cutoffs(top_k: int | Sequence[int]) -> list[int]:
    cutoffs = list(top_k) if isinstance(top_k, Sequence) else [top_k]
    if not cutoffs:
        raise ValueError(f"top_k must have at least one whole number, got {top_k!r}")
    return [check_whole("top_k", k) for k in cutoffs]


def average_ranks(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the exact ranks (..., n): 1 for the highest value; equal values get their mean rank.

    The ranks of masked items mean nothing. The ranks have no gradient. Cost: one sort.

    >>> average_ranks(torch.tensor([5.0, 7.0, 5.0, 1.0]))
    tensor([2.5000, 1.0000, 2.5000, 4.0000])
    """
    return weighted_ranks(values, torch.ones_like(values), mask) + 0.5


def weighted_ranks(values: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return, for each item, the weight of all higher items plus half that of tied items: (..., n).

    The item itself is one of the tied items. With weights of 1 the result is `average_ranks` - 1/2.
    The values get no gradient. Cost: one sort.

    >>> weighted_ranks(torch.tensor([5.0, 7.0, 5.0]), torch.tensor([1.0, 4.0, 2.0]))
    tensor([5.5000, 2.0000, 5.5000])
    """
    weights = masked_fill(weights, mask)
    if not values.shape[-1]:
        return weights
    ordered, order = masked_fill(values.detach(), mask, -torch.inf).sort(
        dim=-1, descending=True, stable=True
    )
    first, end = runs(ordered)
    behind = weights.gather(-1, order).cumsum(-1)
    before = torch.cat([torch.zeros_like(behind[..., :1]), behind[..., :-1]], -1)
    middle = (before.gather(-1, first) + behind.gather(-1, end - 1)) / 2
    return in_list_order(middle, order)


class SpearmanLoss(RankingLoss):
    """A differentiable loss for Spearman's rho: 1 - correlation of soft ranks and label ranks.

    The correlation is cov(soft ranks, label ranks) divided by its largest value, the variance of
    the label ranks. Items with equal labels get their mean rank. The loss is 0 if the soft ranks
    are the label ranks, 1 if all scores are equal, and 2 for the opposite order. With operators
    whose ranks are not sums over pairs (`NeuralSort`, `SoftSort`) the loss may be slightly below 0.
    `SoftplusRank` does not fit: its ranks have no upper limit, so the loss has no minimum.
    The loss is linear in the soft ranks, so it has a gradient even if all scores are tied. With
    hard ranks and no equal labels it is exactly 1 - rho. With hard ranks and labels 0 and 1, the
    correlation is 2 AUC - 1.

    With `normalize=False` the covariance is divided by the standard deviation of the label ranks
    and by the standard deviation of 1, ..., m, for a list of m items. With hard ranks the loss is
    then 1 - rho even if some labels are equal, but in that case its minimum is above 0.

    Special cases: the loss is 0, with a zero gradient, for a list with equal labels, with one item
    or with all items masked.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        normalize: see above. Default: True.

    Labels may be any finite numbers, such as a teacher's scores. An item of weight w takes up w
    label ranks instead of 1 (see `weighted_ranks`). Two items in the wrong order then cost the
    weight between them, including half of their own weights. So with hard ranks the loss is >= 0.
    It is 0 only if all items with different labels are in the correct order, except pairs with a
    weight of 0 between them. (If weights multiplied the terms of the covariance instead, moving a
    heavy item beyond its correct rank could lower the loss.)

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Spearman, "The proof and measurement of association between two things", 1904; as a
    loss on soft ranks: Blondel, Teboul, Berthet and Djolonga, "Fast differentiable sorting and
    ranking", ICML 2020, with the squared distance of the ranks.

    >>> from ltr.operators import HardRank
    >>> loss = SpearmanLoss(HardRank())
    >>> loss(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([0.0, 1.0, 2.0]))
    tensor(0.5000)
    """

    grades = False

    def __init__(
        self,
        operator: RankOperator | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 minus the soft correlation of each list."""
        real = masked_fill(torch.ones_like(scores), mask)
        m = count(scores, mask)
        wanted = masked_fill(average_ranks(labels, mask), mask)
        room = wanted
        if weights is not None:
            # The loss does not depend on the scale of the weights. They are scaled to at most 1,
            # because float32 does not hold the squares of tiny and of huge weights.
            weights = masked_fill(weights, mask)
            top = largest(weights).unsqueeze(-1)
            weights = weights / torch.where(top > 0, top, 1.0)
            room = masked_fill(weighted_ranks(labels, weights, mask), mask)
        centered = real * (room - room.sum(-1, keepdim=True) / m.clamp(min=1))
        # The covariance is largest if the ranks are the label ranks.
        most = (centered * wanted).sum(-1)
        # If all labels are equal, the computed variance may be a rounding error instead of 0.
        defined = labels_differ(labels, mask) & (most > 0)
        most = torch.where(defined, most, 1.0)
        ranks = self.operator(scores, mask)
        if self.normalize:
            loss = (centered * (wanted - ranks)).sum(-1) / most
        else:
            m = m.squeeze(-1)
            full = m * (m.square() - 1).clamp(min=1) / 12
            variance = torch.where(defined, centered.square().sum(-1), 1.0)
            loss = 1 - (centered * ranks).sum(-1) / (variance * full).sqrt()
        return torch.where(defined, loss, 0 * ranks.sum(-1))


class ADRMSE(RankingLoss):
    """Squared distance between the soft ranks and the label ranks, for distilling rerankers.

    Item i has the soft rank r_i and the label rank t_i, which is 1 for the highest label. The loss
    of a list of m items is 1/m times the sum over i of D(t_i) (r_i - t_i)^2, with the discount D(t)
    = 1 / log2(1 + t), so the highest labels count most. Items with equal labels have their mean
    rank as label rank. The labels may be any finite numbers, such as a teacher's scores. The loss
    is 0 only if all soft ranks equal the label ranks.

    Special cases: the loss is 0, with a zero gradient, if all labels are equal, for one item, and
    for a fully masked list. With weights, the mean over the items is a weighted mean. The operator
    decides the ranks of tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank(1.0)`, as in the paper.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks, such as `torch.reciprocal`
            or, for no discount, `torch.ones_like`.

    Cost: that of the operator, and a sort of the labels.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Schlatt et al., "Rank-DistiLLM: closing the effectiveness gap between cross-encoders
    and LLMs for passage re-ranking", ECIR 2025 (ADR-MSE).

    >>> from ltr.operators import HardRank
    >>> loss = ADRMSE(HardRank())
    >>> loss(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([0.0, 1.0, 2.0]))  # (1/log2(3) + 1) / 3
    tensor(0.5436)
    """

    grades = False
    every_item = True

    def __init__(
        self,
        operator: RankOperator | None = None,
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = SigmoidRank(1.0) if operator is None else rank_operator(operator)
        self.discount: Discount = check_discount(discount)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean of the discounted squared errors of each list."""
        wanted = average_ranks(labels, mask)
        errors = (self.operator(scores, mask) - wanted).square()
        each = masked_fill(discount_function(self.discount)(wanted) * errors, mask)
        mean = weighted_mean(each, real_weights(scores, mask, weights))
        return torch.where(labels_differ(labels, mask), mean, 0 * mean)

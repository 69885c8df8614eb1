"""Pairwise preferences: votes of the form "this document beat that one".

`PreferenceLoss` trains your own model on the votes. `bradley_terry` turns the votes into grades, on
which any ranker can train. `lists_from_preferences` returns the documents and the pairs that
`PreferenceLoss` and `bradley_terry` use.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit
from torch import Tensor, nn

from ltr.arrays import as_names, as_qids, list_numbers, rows_by_list
from ltr.clicks.strengths import bradley_terry_strengths
from ltr.columns import unmasked
from ltr.losses.base import Reduction, check_values
from ltr.losses.pair_costs import LogisticCost, PairCost
from ltr.metrics.resampling import normal_quantile
from ltr.shapes import check_choice, check_lists, check_number, full_precision, upcast

__all__ = ["PreferenceLoss", "bradley_terry", "lists_from_preferences"]


class PreferenceLoss(nn.Module):
    r"""Pairwise loss over judged pairs only: log(1 + exp(-(s_w - s_l))) for each vote.

    s_w and s_l are the scores of the winner and of the loser of a vote. The loss is the negative
    log-likelihood of the Bradley-Terry model, in which the winner is preferred with probability
    sigmoid(s_w - s_l). `RankNet` counts all pairs of a list whose labels differ. Here a pair that
    nobody judged does not count. Every vote counts, even if several votes are for the same pair.
    Contradictory votes have gradients in opposite directions. If two documents beat each other
    equally often, and no other votes concern them, their scores become equal.

    `forward(scores, pairs, weights=None)` returns a scalar, or (votes,) with reduction="none". The
    arguments:

    - `scores`, of any shape, such as (rows,) or (lists, n). With half precision, the loss is
      computed in float32.
    - `pairs`, (votes, 2) whole numbers: the winner and the loser as indices in `scores.flatten()`,
      from 0, as `lists_from_preferences` returns them. An array or a list of pairs is accepted too.
    - `weights`, (votes,), >= 0: how much each vote counts. Default: 1.

    There is no mask: items that are in no pair, such as padding, change neither the value nor the
    gradient, even if they are NaN. For padded lists, give `scores[mask]`, in which items have the
    indices of the ragged lists. With the default cost, a pair of an item with itself costs log(2),
    with a gradient of 0. Without votes, or if all weights are 0, the loss is 0, with an autograd
    graph.

    Args:
        cost: the cost of a pair, for example `HingeCost()`. It is called with a gap of 1. Default:
            `LogisticCost()`.
        reduction: the weighted "mean" over the votes (default), "sum" or "none".

    Raises:
        ValueError: an argument is invalid, or an index in `pairs` is outside the scores. Values are
            checked on the CPU only: on a GPU, a weight that is negative or not finite makes the
            loss of its vote NaN.

    Cost: O(votes) time and memory.

    Reference: Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 1952;
    Burges et al., "Learning to rank using gradient descent", ICML 2005.

    >>> scores = torch.tensor([1.0, 1.0, 3.0])
    >>> PreferenceLoss(reduction="none")(scores, [[0, 1], [2, 0], [0, 2]])
    tensor([0.6931, 0.1269, 2.1269])
    """

    def __init__(self, cost: PairCost | None = None, reduction: Reduction = "mean"):
        super().__init__()
        self.cost = LogisticCost() if cost is None else cost
        if not isinstance(self.cost, PairCost):
            raise ValueError(f"cost must be a PairCost, got {cost!r}")
        check_choice("reduction", reduction, "mean", "sum", "none")
        self.reduction: Reduction = reduction

    def forward(
        self,
        scores: Tensor,
        pairs: Tensor | np.ndarray | Sequence[Sequence[int]],
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of scores (...) on pairs (votes, 2), with weights (votes,)."""
        check_lists(scores)
        pairs = _checked_pairs(pairs, scores)
        with full_precision(scores):
            of_pairs = upcast(scores.flatten()).index_select(0, pairs.flatten()).view(-1, 2)
            margin = of_pairs[:, 0] - of_pairs[:, 1]
            each = self.cost(margin, torch.ones_like(margin))
            weight = torch.ones_like(each)
            if weights is not None:
                if not isinstance(weights, Tensor):
                    raise ValueError(f"weights must be a tensor, got {type(weights).__name__}")
                if weights.shape != each.shape:
                    got = tuple(weights.shape)
                    raise ValueError(
                        f"weights must be one for each of {len(each)} votes, got {got}"
                    )
                wrong = check_values("weights", weights, None, 0.0)
                weight = weights.to(each.dtype)
                weight = weight if wrong is None else torch.where(wrong, torch.nan, weight)
            each = weight * each
            if self.reduction != "mean":
                return each if self.reduction == "none" else each.sum()
            total = weight.sum()
            return each.sum() / torch.where(total == 0, 1.0, total)

    def extra_repr(self) -> str:
        """Return the reduction, unless it is the default."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


def _checked_pairs(given: Any, scores: Tensor) -> Tensor:
    """Return pairs (votes, 2) as int64, or raise an error if an index is outside the scores."""
    try:
        pairs = given if isinstance(given, Tensor) else torch.as_tensor(unmasked(given))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"pairs must be whole numbers (votes, 2), got {given!r}") from None
    if pairs.shape == (0,):  # an empty list gives this shape
        pairs = pairs.new_zeros((0, 2), dtype=torch.int64)
    whole = not (pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool)
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not whole:
        got = f"{pairs.dtype} {tuple(pairs.shape)}"
        raise ValueError(f"pairs must be whole numbers (votes, 2), got {got}")
    pairs, rows = pairs.long(), scores.numel()
    readable = pairs.device.type == "cpu" and not torch.compiler.is_compiling()
    if readable and pairs.numel():
        low, high = (int(end) for end in pairs.aminmax())
        if low < 0 or high >= rows:
            wrong = low if low < 0 else high
            raise ValueError(f"pairs must number the {rows} scores from 0, got {wrong}")
    return pairs.to(scores.device)


class PreferenceLists(NamedTuple):
    """The documents that votes compare, list by list, and each vote as a pair of rows.

    Attributes:
        qid: (rows,), the query of each document, as given; 0 if no queries were given.
        doc_id: (rows,), the name of each document, as given.
        pairs: (votes, 2) int64, the row of the winner and the row of the loser of each vote.
    """

    qid: np.ndarray
    doc_id: np.ndarray
    pairs: np.ndarray


def lists_from_preferences(winner: Any, loser: Any, qid: Any = None) -> PreferenceLists:
    """Return the documents that votes compare, as lists, and the pairs for `PreferenceLoss`.

    A document has one row for each query for which it was compared. The rows of a list follow one
    after the other. Lists and documents are in the order of their first votes; of two documents
    whose first vote is the same, the winner comes first. Vote i is row i of the pairs. So repeated
    and contradictory votes are all kept, and weights of votes fit the pairs. Without votes there
    are no rows.

    Args:
        winner: (votes,), the name of the preferred document of each vote, a number or text.
        loser: (votes,), the name of the other document.
        qid: (votes,), the query for which the two documents were compared. Default: all votes
            belong to one list.

    Returns:
        `PreferenceLists(qid, doc_id, pairs)`: two arrays (rows,) and one (votes, 2).

    Raises:
        ValueError: lengths differ, a name is missing, or a document beats itself; the message names
            the row.

    Cost: one sort of the votes.

    >>> lists = lists_from_preferences(["b", "a", "a"], ["a", "c", "b"], qid=[7, 8, 7])
    >>> lists.qid.tolist(), lists.doc_id.tolist()
    ([7, 7, 8, 8], ['b', 'a', 'a', 'c'])
    >>> lists.pairs.tolist()
    [[0, 1], [2, 3], [1, 0]]
    """
    names = as_names("winner", winner), as_names("loser", loser)
    votes = len(names[0]) if names[0].ndim else 0
    of_each = [
        as_qids(argument, values, votes, "votes", "a document")
        for argument, values in zip(("winner", "loser"), names, strict=True)
    ]
    # Names of two types, such as integers and text, are compared as text.
    if of_each[0].type != of_each[1].type:
        of_each = [values.cast(pa.string()) for values in of_each]
    codes = pa.concat_arrays(of_each).dictionary_encode().indices.to_numpy().astype(np.int64)
    documents = codes.reshape(2, votes).T
    if (same := np.flatnonzero(documents[:, 0] == documents[:, 1])).size:
        name = names[0].tolist()[same[0]]
        raise ValueError(f"winner and loser must differ, got {name!r} twice in row {same[0]}")
    lists = list_numbers(qid, votes)
    keys = (lists[:, None] * (codes.max(initial=0) + 1) + documents).ravel()
    _, first, found = np.unique(keys, return_index=True, return_inverse=True)
    order = np.lexsort((first, lists[first // 2]))
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    vote, side = np.divmod(first[order], 2)
    return PreferenceLists(
        lists[vote] if qid is None else as_names("qid", qid)[vote],
        np.where(side == 0, names[0][vote], names[1][vote]),
        rows[found].reshape(votes, 2),
    )


@dataclass(frozen=True)
class BradleyTerry:
    """The result of `bradley_terry`: the rows of `PreferenceLists`, with an estimate for each row.

    Attributes:
        qid: (rows,), the query of each document.
        doc_id: (rows,), the name of each document.
        strength: (rows,), the strength of each document in log-odds. The mean over each component
            is 0.
        low: (rows,), the lower end of the strength's interval.
        high: (rows,), the upper end of the strength's interval.
        component: (rows,) int64, the component of each document, from 0. Two documents are in the
            same component if votes connect them, directly or through other documents. Strengths of
            different components cannot be compared.
    """

    qid: np.ndarray
    doc_id: np.ndarray
    strength: np.ndarray
    low: np.ndarray
    high: np.ndarray
    component: np.ndarray

    @property
    def grade(self) -> np.ndarray:
        """The probability of winning against a document of strength 0, (rows,), in (0, 1).

        The grade is >= 0, so every loss and metric accepts it as a label. LightGBM needs whole
        numbers as labels: `(4 * grade).round()` gives five grades.
        """
        return expit(self.strength)


def bradley_terry(
    winner: Any, loser: Any, qid: Any = None, *, ridge: float = 0.1, confidence: float = 0.95
) -> BradleyTerry:
    r"""Estimate from votes how good each document is, with intervals.

    In the Bradley-Terry model, document i beats document j of the same list with probability
    sigmoid(b_i - b_j). The strengths b minimize

        sum over the votes of log(1 + exp(-(b_winner - b_loser))) + ridge / 2 * sum of b_i^2

    **Ridge.** The ridge term is a normal prior with mean 0 and standard deviation 1 / sqrt(ridge),
    3.2 by default. So the strength of a document that never lost is finite, and few votes give
    small differences. Many votes outweigh the prior. Without the prior (ridge 0), a document that
    never lost would be infinitely strong. `choix.opt_pairwise(n, pairs, alpha=ridge / 2)` minimizes
    the same sum.

    **Intervals.** The information matrix holds the second derivatives of the sum above, at the
    minimum. The inverse of this matrix is the covariance of the estimates. The interval is the
    strength plus and minus z standard deviations, with the normal quantile z of `confidence`. The
    standard deviation is that of the strength minus the mean of its component, since votes contain
    no information about this mean. The interval is a normal approximation, and it includes the
    prior. It is rough for documents with few votes, and for documents that always won or always
    lost. Votes count as independent: if one person votes often, the intervals are too short.

    **Components.** Two documents are in the same component if votes connect them, directly or
    through other documents. The strengths of each component have the mean 0, and strengths of
    different components cannot be compared. This function warns if a list has several components.
    In this case, train with `component` as `qid`, so that only documents that votes connect are
    compared.

    Args:
        winner: (votes,), the name of the preferred document of each vote, a number or text.
        loser: (votes,), the name of the other document.
        qid: (votes,), the query for which the two documents were compared. Default: all votes
            belong to one list.
        ridge: the strength of the prior, >= 1e-6, see above. Default: 0.1.
        confidence: the level of the intervals, in (0, 1). Default: 0.95.

    Returns:
        A `BradleyTerry`, with the rows of `lists_from_preferences` in the same order. Without votes
        it has no rows.

    Raises:
        ValueError: as for `lists_from_preferences`, or an option is invalid.

    Cost: O(n^2) memory and O(n^3) time for each component of n documents, by Newton's method: one
    second for 1,000 lists of ten documents.

    Reference: Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 1952;
    Hunter, "MM algorithms for generalized Bradley-Terry models", Annals of Statistics 2004, for the
    condition under which the maximum without a prior exists.

    >>> votes = bradley_terry(["a", "a", "b", "a"], ["b", "b", "a", "c"])
    >>> votes.doc_id.tolist(), votes.strength.round(2).tolist()
    (['a', 'b', 'c'], [0.93, 0.2, -1.13])
    """
    ridge = check_number("ridge", ridge, minimum=1e-6)
    quantile = normal_quantile(confidence)
    qids, doc_id, pairs = lists_from_preferences(winner, loser, qid)
    component = _components(pairs, qids)
    strength, error = np.zeros(len(doc_id)), np.zeros(len(doc_id))
    votes_of = rows_by_list(component[pairs[:, 0]])
    for rows, votes in zip(rows_by_list(component), votes_of, strict=True):
        own = np.searchsorted(rows, pairs[votes])
        wins = np.bincount(own @ [len(rows), 1], minlength=len(rows) ** 2).reshape(len(rows), -1)
        strength[rows], error[rows] = _strengths(wins, ridge)
    low, high = strength - quantile * error, strength + quantile * error
    return BradleyTerry(qids, doc_id, strength, low, high, component)


def _components(pairs: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Return the component of each row, (rows,) int64. Warn if a list has several components."""
    rows = len(qid)
    edges = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(rows, rows))
    component = connected_components(edges, directed=False)[1].astype(np.int64)
    lists = list_numbers(qid, rows)
    firsts = np.unique(component, return_index=True)[1]  # this is the first row of each component
    parts = np.bincount(lists[firsts])
    if (several := np.flatnonzero(parts > 1)).size:
        row = np.flatnonzero(lists == several[0])[0]
        warnings.warn(
            f"the votes of {len(several):,} of {len(parts):,} lists do not connect all documents, "
            f"as in qid {qid.tolist()[row]!r} with {parts[several[0]]} parts: strengths of "
            f"different parts cannot be compared, so train with `component` as qid",
            stacklevel=3,
        )
    return component


def _strengths(wins: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths (n,) and their standard errors (n,); `wins[i, j]` is how often i beat j."""
    strength, information = bradley_terry_strengths(wins, ridge)
    covariance = np.linalg.inv(information)
    means = covariance.mean(0)
    return strength, np.sqrt(np.diag(covariance) - 2 * means + means.mean())

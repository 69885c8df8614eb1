"""The contracts of rank and sort operators.

A new operator is one subclass: `forward` for a `RankOperator`, `permutation` for a
`SortOperator`. Nothing has to be registered, and every loss takes it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ltr._shapes import check_lists, check_whole, masked_fill
from ltr.kernels import Lengths, check_lengths, pad_lists
from ltr.operators.permutation import SoftPermutation

CUT_WIDTH = 0.1
"""Width of the smooth cut at rank k + 1/2, in ranks: rank k counts 0.94, rank k + 1 counts 0.06."""


def truncated(
    discount: Callable[[Tensor], Tensor], k: int, *, exact: bool
) -> Callable[[Tensor], Tensor]:
    """`discount` of ranks, cut off behind rank k: the one cut-off that losses and metrics share.

    Args:
        discount: ranks (..., n) -> (..., n).
        k: a whole number >= 1.
        exact: cut at k (for whole ranks), or smoothly: times the Cauchy distribution's
            1/2 + arctan((k + 1/2 - rank) / CUT_WIDTH) / pi. Its tail falls like one over the
            distance: where all items of a long list are soft and so far behind k, as before
            training, they still have a gradient, which an exponential tail would not give them.

    Raises:
        ValueError: k is not a whole number >= 1.

    >>> truncated(torch.ones_like, 2, exact=True)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 1., 0.])
    >>> truncated(torch.ones_like, 2, exact=False)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.9788, 0.9372, 0.0628])
    """
    k = check_whole("k", k)
    return _Cut(discount, k, exact)


class _Cut:
    """What `truncated` makes. `StraightThrough` asks a smooth cut for its `exact` twin."""

    def __init__(self, discount: Callable[[Tensor], Tensor], k: int, exact: bool):
        self.discount = discount
        self.k = k
        self.is_exact = exact

    def __call__(self, ranks: Tensor) -> Tensor:
        if self.is_exact:  # NaN ranks stay NaN
            return torch.where(ranks > self.k, 0.0, self.discount(ranks) + 0 * ranks)
        inside = torch.atan((self.k + 0.5 - ranks) / CUT_WIDTH)
        return self.discount(ranks) * (0.5 + inside / torch.pi)

    @property
    def exact(self) -> "_Cut":
        return _Cut(self.discount, self.k, True)


class RankOperator(nn.Module):
    """scores (..., n), mask (..., n) -> soft ranks (..., n), 1 = the highest score.

    What every operator keeps to:

    - the m real items of a list get what they would get with the masked ones deleted; a masked
      item has rank m + 1 and gradient 0, and NaN or inf under the mask never gets out;
    - ranks of half-precision scores come in float32;
    - a NaN among the scores makes ranks of its list NaN, and of no other; so does an infinite
      score, at least its own rank, but for hard operators, which rank it (inf - inf is NaN);
    - weights scale to sum to m; `SinkhornSort` moves that much mass, `SigmoidRank`,
      `GaussianRank` and `LaplaceRank` count each item that often; weights that are all 0 count as
      equal, and negative ones are the caller's mistake (to look would wait for the device). An
      operator without a weighted
      form refuses `weights` with a ValueError: its rows are positions and hold one item each. A
      loss weighs its terms instead, as `SoftNDCG` does the gains.

    >>> class SoftplusRank(RankOperator):
    ...     def forward(self, scores, mask=None, weights=None):
    ...         above = torch.nn.functional.softplus(scores.unsqueeze(-2) - scores.unsqueeze(-1))
    ...         return 1 + above.sum(-1)
    >>> SoftplusRank()(torch.tensor([0.0, 50.0])).round()
    tensor([52.,  2.])
    """

    @property
    def whole_ranks(self) -> bool:
        """Whether `discounts` takes the discount at whole ranks only: a cut is exact then.

        True for hard ranks (temperature 0), and for an operator that averages over their law.
        """
        return False

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Soft ranks (..., n) of scores (..., n); mask (..., n) bool, weights (..., n)."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """`discount` of the soft ranks, (..., n), 0 where masked.

        An operator that knows the whole law of each rank gives the mean instead. `truncated`
        makes a discount that is cut off at rank k.
        """
        return masked_fill(discount(self(scores, mask)), mask)

    def top_k(self, k: int, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Soft membership in the first k, (..., n) in [0, 1], 0 where masked.

        `(ranks <= k)` with the smooth cut of `truncated`, so that an item outside has a gradient.
        It is exact where `whole_ranks`.

        Raises:
            ValueError: k is not a whole number >= 1.
        """
        return self.discounts(truncated(torch.ones_like, k, exact=self.whole_ranks), scores, mask)

    def ragged(self, scores: Tensor, lengths: Lengths, weights: Tensor | None = None) -> Tensor:
        """Soft ranks (N,) of ragged lists: flat scores with `lengths` in place of a mask.

        Each list gets what it would get alone. Operators that are kernel sums do all lists in one
        sweep, with no padding; the others pad to the longest list.

        Args:
            scores: (N,), one list after the other.
            lengths: (R,) whole numbers, the lists' lengths; they sum to N.
            weights: (N,), or None.

        Raises:
            ValueError: scores are not flat, or lengths do not fit.
        """
        lengths = check_lengths(scores, lengths)
        check_lists(scores, weights=weights)
        if weights is None:
            mask, padded = pad_lists(lengths, scores)
            return self(padded, mask)[..., mask]
        mask, padded, w = pad_lists(lengths, scores, weights)
        return self(padded, mask, w)[..., mask]

    def ragged_discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, lengths: Lengths
    ) -> Tensor:
        """`discounts` (N,) of ragged lists: scores (N,) and lengths (R,) as in `ragged`."""
        lengths = check_lengths(scores, lengths)
        mask, padded = pad_lists(lengths, scores)
        return self.discounts(discount, padded, mask)[..., mask]


def check_operator(operator: RankOperator) -> RankOperator:
    """The operator, or a ValueError for what is none; what wraps one (a compiled one) will do.

    >>> check_operator("SoftSort")
    Traceback (most recent call last):
    ValueError: operator must be a RankOperator, got 'SoftSort'
    """
    if isinstance(operator, type) or not hasattr(operator, "discounts"):
        raise ValueError(f"operator must be a RankOperator, got {operator!r}")
    return operator


class SortOperator(RankOperator):
    """A rank operator that has a relaxed permutation matrix; its transpose gives the ranks.

    >>> from ltr.operators import DensePermutation
    >>> class SquaredSort(SortOperator):
    ...     def permutation(self, scores, mask=None, weights=None):
    ...         tops = scores.sort(descending=True).values.unsqueeze(-1)
    ...         logits = -(tops - scores.unsqueeze(-2)).square()
    ...         return DensePermutation(logits.log_softmax(-1), scores, mask)
    >>> SquaredSort()(torch.tensor([0.0, 9.0, 4.0])).round()
    tensor([3., 1., 2.])
    """

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> SoftPermutation:
        """The `SoftPermutation` that sorts scores (..., n) in falling order."""
        raise NotImplementedError(f"{type(self).__name__} must define permutation")

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Soft ranks (..., n): the transposed permutation applied to 1..n."""
        return self.permutation(scores, mask, weights).ranks()

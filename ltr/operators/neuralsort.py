"""NeuralSort (Grover, Wang, Zweig and Ermon 2019)."""

from torch import Tensor

from ltr.operators.base import SortOperator
from ltr.operators.hard import descending_order
from ltr.operators.hard_permutation import HardPermutation
from ltr.operators.pairwise import TemperatureRank
from ltr.operators.tiled import TiledPermutation
from ltr.shapes import check_lists, check_temperature, masked_fill, refuse_weights, upcast


def neuralsort(
    scores: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> TiledPermutation | HardPermutation:
    """Return the soft permutation with rows softmax over j of ((n + 1 - 2i) s_j - A_j) / tau.

    Here A_j = sum over k of |s_j - s_k|. The hard twin is `torch.argsort(scores,
    descending=True)` as a one-hot matrix: row-wise argmax gives it at every temperature.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item (n is then their number m). Default: all are real.
        temperature: tau, in units of the scores; >= 0, and 0 is the hard permutation.

    Returns:
        A `TiledPermutation`; a `HardPermutation` at temperature 0. Tied items have equal columns.
        Cost: one sort, then O(n) time and memory, forward and backward, for any gaps between
        scores. A series computes long rows of nearby scores together. Short lists take the n x n
        matrix (`ltr.kernels.prefers_dense`).

    For equally spaced scores with gap a, the matrix is that of `softsort` with power 2 at
    temperature a * tau. So a row covers about sqrt(tau / a) neighbors. To blur the same share of a
    longer list of the same spread, the temperature must grow with n.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Grover, Wang, Zweig and Ermon, "Stochastic Optimization of Sorting Networks via
    Continuous Relaxations", ICLR 2019, equation 3.

    >>> import torch
    >>> neuralsort(torch.tensor([1.0, 3.0, 2.0]), temperature=1.0).dense().round(decimals=2)
    tensor([[0.0100, 0.7200, 0.2700],
            [0.2100, 0.2100, 0.5800],
            [0.7200, 0.0100, 0.2700]])
    """
    temperature = check_temperature(temperature)
    check_lists(scores, mask=mask)
    scores = upcast(masked_fill(scores, mask))
    if temperature == 0:
        return HardPermutation(descending_order(scores, mask), scores, mask)
    return TiledPermutation(scores, mask, None, temperature, power=None)


class NeuralSort(TemperatureRank, SortOperator):
    """NeuralSort. Its rows are Gaussian in the index, not in the scores.

    Its ranks are the transpose applied to 1..n. They can leave [1, n] slightly, since columns need
    not sum to 1. As the temperature falls to 0 the ranks tend to the hard ranks (tied items share
    their rank). As it grows each row tends to 1/n and each rank to (n + 1) / 2.

    Args:
        temperature: tau, in units of the scores; >= 0, and 0 is hard (ties in list order, no
            gradient). Default 1: see `neuralsort` for how it compares with SoftSort's.

    Cost: one sort, then O(n) time and memory, forward and backward. A row covers about
    sqrt(temperature / gap) neighbors; wide rows take no more time than narrow ones.

    Reference: Grover et al., ICLR 2019; `neuralsort` is the function.

    >>> import torch
    >>> NeuralSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 1.0):
        super().__init__(temperature)

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> TiledPermutation | HardPermutation:
        """Return the soft permutation of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return neuralsort(scores, mask, temperature=self.temperature)

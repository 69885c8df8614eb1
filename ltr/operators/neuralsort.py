"""NeuralSort (Grover, Wang, Zweig and Ermon 2019)."""

from torch import Tensor

from ltr.operators.base import SortOperator, TemperatureRank
from ltr.operators.lazy_permutation import NeuralSortPermutation
from ltr.operators.permutation import SoftPermutation


class NeuralSort(TemperatureRank, SortOperator):
    """NeuralSort: a soft sort in which about the same number of items share each position.

    Row i of the permutation is the softmax over j of ((n + 1 - 2i) s_j - A_j) / temperature.

    Here A_j = sum over k of |s_j - s_k|, and n is the number m of real items. The hard limit is
    `torch.argsort(scores, descending=True)` as a one-hot matrix: the row-wise argmax gives this
    matrix at every temperature. Along the sorted items, a row is about Gaussian in the position,
    not in the score.

    The ranks are the transposed matrix applied to 1..n. They can leave [1, n] slightly, since
    columns need not sum to 1. As the temperature approaches 0, the ranks tend to the hard ranks,
    except that tied items share their mean rank. As the temperature grows, the elements of the
    matrix tend to 1/n and the ranks to (n + 1) / 2.

    For equally spaced scores with gap a, the matrix is that of `SoftSort` with power 2 at
    temperature a * tau, for the temperature tau of `NeuralSort`. So a row covers about
    sqrt(tau / a) neighbors. To cover the same fraction of a longer list with the same spread, the
    temperature must grow with n.

    Args:
        temperature: tau, in units of the scores, >= 0; 0 gives hard ranks (ties in list order, no
            gradient). Default: 1.

    Cost: O(n^2) time and O(n) memory, forward and backward: a matrix with more than 2^22 elements
    is computed some rows at a time (not under `torch.compile`).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Grover, Wang, Zweig and Ermon, "Stochastic Optimization of Sorting Networks via
    Continuous Relaxations", ICLR 2019, equation 3.

    >>> import torch
    >>> NeuralSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> NeuralSort().permutation(torch.tensor([1.0, 3.0, 2.0])).dense().round(decimals=2)
    tensor([[0.0100, 0.7200, 0.2700],
            [0.2100, 0.2100, 0.5800],
            [0.7200, 0.0100, 0.2700]])
    """

    def __init__(self, temperature: float = 1.0):
        super().__init__(temperature)

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the soft permutation of scores (..., n), whose rows are softmaxes."""
        return NeuralSortPermutation(scores, mask, None, self.temperature).ordered()

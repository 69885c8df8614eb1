"""Random orders (Plackett-Luce) for any operator, by Gumbel noise on the scores."""

from collections.abc import Callable

import torch
from torch import Tensor

from ltr.operators.base import RankOperator, SortOperator, check_operator
from ltr.operators.permutation import SoftPermutation
from ltr.operators.softsort import SoftSort
from ltr.shapes import check_lists, check_number, check_whole, upcast


def gumbel_noise(
    scores: Tensor, samples: int, *, scale: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Return Gumbel noise for `samples` copies of scores (..., n): (samples, ..., n).

    Sorting scores + noise draws an order from the Plackett-Luce distribution with weights
    exp(scores / scale): the first item is i with probability softmax(scores / scale)_i, and so on
    among the remaining items.

    Args:
        scores: (..., n), of which only the shape, dtype and device are used; the noise is at least
            float32.
        samples: the number of copies.
        scale: the scale of the noise, in units of the scores.
        generator: the random number generator, on any device; the noise is drawn there and then
            moved to the scores' device. Default: torch's own generator of the scores' device.

    >>> generator = torch.Generator().manual_seed(0)
    >>> gumbel_noise(torch.zeros(2, 3), samples=4, generator=generator).shape
    torch.Size([4, 2, 3])
    """
    shape, dtype = (samples, *scores.shape), upcast(scores.new_empty(0)).dtype
    if generator is None:  # torch.compile fails on generator=None if n is symbolic
        uniform = torch.rand(shape, dtype=dtype, device=scores.device)
    else:
        uniform = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
    # The smallest value of torch.rand is 0, and -log(-log(0)) = -inf. Its largest value is below 1.
    uniform = uniform.clamp(min=torch.finfo(dtype).tiny)
    return (-scale * (-uniform.log()).log()).to(scores.device)


def check_generator(generator: torch.Generator | None) -> torch.Generator | None:
    """Return `generator`, or raise a ValueError unless it is a generator or None."""
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    return generator


class TransformedScores(SortOperator):
    """Base class of operators that apply another operator to transformed scores.

    A subclass defines `transform` and sets `operator`. The results have the shape of the
    transformed scores.
    """

    operator: RankOperator

    @property
    def exact_cutoff(self) -> bool:
        """Return `exact_cutoff` of the operator."""
        return self.operator.exact_cutoff

    def transform(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the scores, mask and weights (..., n) that the operator gets."""
        raise NotImplementedError(f"{type(self).__name__} must define transform")

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n)."""
        return self.operator(*self.transform(scores, mask, weights))

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> SoftPermutation:
        """Return the soft permutation (..., n, n) of the transformed scores.

        Raises:
            ValueError: the operator has no permutation.
        """
        operator = needs_matrix(self.operator, f"{type(self).__name__}.permutation")
        return operator.permutation(*self.transform(scores, mask, weights))

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return the operator's discounts, (..., n)."""
        return self.operator.discounts(discount, *self.transform(scores, mask)[:2])

    def top_k(self, k: int, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the operator's soft membership, (..., n)."""
        return self.operator.top_k(k, *self.transform(scores, mask)[:2])

    def before(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the operator's steps between ranks, (..., n, n)."""
        return self.operator.before(*self.transform(scores, mask)[:2])


class Stochastic(TransformedScores):
    """An operator on scores with Gumbel noise, which draws random orders.

    `Stochastic` adds noise only in training mode, like dropout; results then have a first axis of
    `samples`. In eval mode it gives the results of the plain operator, without this axis. With a
    hard operator, the draws are orders from the Plackett-Luce distribution with weights
    exp(scores / scale). With a soft operator, the draws are reparameterized relaxations of such
    orders, with gradients (the stochastic variants of NeuralSort and SoftSort). With
    `P = permutation(scores)`, `P.mv(scores)` puts the scores without noise in the noisy order. Each
    call of `forward`, `permutation`, `discounts`, `top_k` or `before` draws noise once. Masked
    items stay masked in every sample. Noise is drawn for masked items too, so masking an item gives
    the same distribution as deleting it, but not the same random numbers.

    With a generator, the draws repeat after `generator.manual_seed(...)`. The generator and its
    state are pickled and copied with the module, but are not in the `state_dict`. With
    `torch.func.vmap`, the argument `randomness` of `vmap` says whether all batch elements share one
    draw ("same") or each has its own draw ("different").

    Args:
        operator: any `RankOperator`; `permutation` needs a `SortOperator`. Default: `SoftSort()`.
        samples: the number of draws, >= 1. Default: 5.
        scale: the scale of the noise, in units of the scores; >= 0. Default: 1.
        generator: the random number generator, on any device. Default: torch's own, which
            `torch.manual_seed` seeds.

    Cost: `samples` times the cost of the operator.

    Raises:
        ValueError: samples < 1 or scale < 0; `permutation` is called, and the operator has no
            permutation.

    Reference: Grover, Wang, Zweig and Ermon, "Stochastic Optimization of Sorting Networks via
    Continuous Relaxations", ICLR 2019, section 4.

    >>> generator = torch.Generator().manual_seed(0)
    >>> operator = Stochastic(SoftSort(0.1), samples=2, generator=generator)
    >>> operator(torch.tensor([0.0, 0.0, 9.0])).shape
    torch.Size([2, 3])
    >>> operator.eval()(torch.tensor([0.0, 5.0, 9.0])).round()
    tensor([3., 2., 1.])
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        samples: int = 5,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.operator = SoftSort() if operator is None else check_operator(operator)
        self.samples = check_whole("samples", samples)
        self.scale = check_number("scale", scale, minimum=0.0)
        self.generator = check_generator(generator)

    def transform(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the noisy scores, and the mask and weights for them, each (samples, ..., n).

        In eval mode, return the arguments unchanged.
        """
        check_lists(scores, mask=mask, weights=weights)
        if not self.training:
            return scores, mask, weights
        noisy = upcast(scores) + self.noise(scores)
        mask, weights = (None if t is None else t.expand(noisy.shape) for t in (mask, weights))
        return noisy, mask, weights

    def noise(self, scores: Tensor) -> Tensor:
        """Return the noise (samples, ..., n) for scores (..., n); a subclass may draw its own."""
        return gumbel_noise(scores, self.samples, scale=self.scale, generator=self.generator)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"samples={self.samples}, scale={self.scale:g}"


def needs_matrix(operator: RankOperator, method: str) -> SortOperator:
    """Return `operator`, or raise a ValueError that names `method` if the operator has no matrix.

    >>> from ltr.operators import SigmoidRank
    >>> needs_matrix(SigmoidRank(), "soft_sort")
    Traceback (most recent call last):
    ValueError: soft_sort needs a permutation: operator must be a SortOperator, got SigmoidRank
    """
    if not isinstance(operator, SortOperator):
        raise ValueError(
            f"{method} needs a permutation: operator must be a SortOperator, "
            f"got {type(operator).__name__}"
        )
    return operator


def one_draw(
    operator: RankOperator, scores: Tensor, mask: Tensor | None
) -> tuple[RankOperator, Tensor, Tensor | None]:
    """Return the operator without its noise, and scores and mask with one draw of the noise.

    A `Stochastic` operator draws new noise at each call. If a loss calls the operator twice, both
    calls must use the same noise, so that they see the same order.
    """
    while isinstance(operator, Stochastic):
        scores, mask, _ = operator.transform(scores, mask)
        operator = operator.operator
    return operator, scores, mask

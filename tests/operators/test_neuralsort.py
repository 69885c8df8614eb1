"""NeuralSort against equation 3, and its kinship with SoftSort of power 2."""

import numpy as np
import pytest
import torch
from operator_table import draw

from ltr.kernels import use
from ltr.operators import NeuralSort, SoftSort


def naive_neuralsort(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    """Equation 3 as it stands: ((n + 1 - 2i) s - A 1) / tau, A the matrix of distances."""
    n = len(scores)
    sums = (scores[:, None] - scores[None, :]).abs() @ torch.ones_like(scores)
    logits = torch.stack([(n + 1 - 2 * i) * scores - sums for i in range(1, n + 1)])
    return torch.softmax(logits / temperature, -1)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_equation_3(n, temperature):
    scores = draw(n, seed=n)
    matrix = NeuralSort(temperature).permutation(scores).dense()
    torch.testing.assert_close(matrix, naive_neuralsort(scores, temperature), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "scores",
    [[1.0, 3.0, 3.0, 2.0, 3.0, 2.0], [0.5] * 4, [0.7, 0.7], [0.1, -0.4, 2.2, 1.3]],
    ids=["ties", "equal", "two equal", "distinct"],
)
def test_derivatives_are_those_of_the_formula_on_ties_too(scores):
    scores = torch.tensor(scores, dtype=torch.float64)
    weights = draw(len(scores), len(scores), seed=4)

    def derivatives(matrix):
        x = scores.clone().requires_grad_()
        (first,) = torch.autograd.grad((matrix(x) * weights).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * weights[0]).sum(), x)
        return first, second

    fast = derivatives(lambda x: NeuralSort(0.8).permutation(x).dense())
    naive = derivatives(lambda x: naive_neuralsort(x, 0.8))
    torch.testing.assert_close(fast, naive, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spacing", [0.01, 1.0, 7.0])
@pytest.mark.parametrize("temperature", [0.3, 5.0])
def test_appendix_D_of_softsort(spacing, temperature):
    # (n + 1 - 2i) s_j - A_j is -a (j - i)^2 and a term of the row alone, for s_j = -a j
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    scores = 3 + spacing * order.double()
    matrix = NeuralSort(temperature).permutation(scores).dense()
    square = SoftSort(spacing * temperature, 2).permutation(scores).dense()
    torch.testing.assert_close(matrix, square, rtol=1e-9, atol=1e-14)


def test_float32_keeps_its_digits_on_long_lists():
    scores = 100 + draw(1500, dtype=torch.float32)
    single = NeuralSort().permutation(scores).dense()
    double = NeuralSort().permutation(scores.double()).dense()
    assert (single - double).abs().max() < 2e-6
    naive = naive_neuralsort(scores, 1.0)
    assert (naive - double).abs().max() > 1e-3  # what the formula loses as it stands


def test_a_mask_over_scores_that_tie_with_masked_ones():
    scores = torch.tensor([0.0, 5.0, -1.0, 0.0, 9.0], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, False, True, True, False])
    real = scores.detach()[mask].requires_grad_()
    weights = draw(3, seed=2)
    (NeuralSort(0.5)(scores, mask)[mask] * weights).sum().backward()
    (NeuralSort(0.5)(real) * weights).sum().backward()
    np.testing.assert_allclose(scores.grad[mask], real.grad, atol=1e-12)


def test_gap_sums_of_many_items_are_those_of_the_formula():
    # 400 items, with ties, take prefix sums instead of pairs
    scores = (draw(400, seed=5) * 8).round() / 8
    weights = draw(400, 400, seed=6)

    def gradient(matrix):
        x = scores.clone().requires_grad_()
        return torch.autograd.grad((matrix(x) * weights).sum(), x)[0]

    with use("dense"):
        ours = NeuralSort().permutation(scores).dense()
        found = gradient(lambda x: NeuralSort().permutation(x).dense())
    torch.testing.assert_close(ours, naive_neuralsort(scores, 1.0), rtol=0, atol=1e-11)
    torch.testing.assert_close(
        found, gradient(lambda x: naive_neuralsort(x, 1.0)), rtol=1e-9, atol=1e-9
    )


def test_gap_sums_of_many_items_under_a_mask():
    scores = draw(2, 300, seed=7)
    mask = draw(2, 300, seed=8) > -0.5
    scores[1, 0], mask[1, 0] = torch.inf, False
    with use("dense"):
        P = NeuralSort().permutation(scores, mask)
        for row in range(2):
            real = scores[row][mask[row]]
            alone = NeuralSort().permutation(real).ranks()
            torch.testing.assert_close(P.ranks()[row][mask[row]], alone, rtol=0, atol=1e-9)
        broken = scores.clone()
        broken[0, mask[0].nonzero()[0]] = -torch.inf
        assert NeuralSort().permutation(broken, mask).ranks()[0][mask[0]].isnan().all()

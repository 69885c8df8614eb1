"""Sinkhorn scaling by compiled code, compared with the plain iterations."""

import pytest
import torch

from ltr.kernels.cpu import scaling
from ltr.losses import NeuralNDCG
from ltr.losses.scaling import adjoint, potentials
from ltr.operators import NeuralSort


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("iterations", [1, 2, 7])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5, 5), (1, 1, 1)])
def test_potentials_and_their_derivatives(shape, iterations):
    matrix = draw(*shape)
    if shape[-1] > 1:
        matrix[..., 1, :] = 0  # like a masked row
        matrix[..., :, 2] = 0
    given = potentials(matrix, iterations)
    found = scaling.potentials(matrix, iterations)
    torch.testing.assert_close(found, given, rtol=1e-12, atol=1e-12)
    grads = [draw(*x.shape, seed=1) - 0.5 for x in given]
    kept = [x.clone() for x in grads]
    found = scaling.adjoint(matrix, *given, *grads)
    torch.testing.assert_close(found, adjoint(matrix, *given, *grads), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(grads, kept, rtol=0, atol=0)


def test_nan_stays_in_its_matrix():
    matrix = draw(2, 3, 3)
    matrix[0, 1, 1] = torch.nan
    for found, expected in zip(scaling.potentials(matrix, 3), potentials(matrix, 3), strict=True):
        assert found[0, -1].isnan().all()
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_sharp_rows_cost_no_precision():
    # entries below the smallest normal number of float32 are left out
    scores = (3 * draw(2, 80)).float().requires_grad_()
    labels = (draw(2, 80, seed=1) * 5).floor().float()
    loss = NeuralNDCG(NeuralSort(0.5), scaling=20)
    found = torch.autograd.grad(loss(scores, labels), scores)[0]
    wide = scores.detach().double().requires_grad_()
    expected = torch.autograd.grad(loss(wide, labels.double()), wide)[0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)
    assert expected.abs().max() > 1e-4

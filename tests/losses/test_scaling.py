"""Sinkhorn scaling compared with its definition, and its derivatives with those of autograd."""

import pytest
import torch

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
    us, vs = given = potentials(matrix, iterations)
    leaf, products = matrix.clone().requires_grad_(), []
    u = torch.ones_like(leaf[..., 0])
    for t in range(iterations):
        for kernel, found in ((leaf.mT, vs), (leaf, us)):
            product = (kernel * u.unsqueeze(-2)).sum(-1)
            product.retain_grad()
            products.append(product)
            none = product == 0
            u = torch.where(none, 0.0, 1 / torch.where(none, 1.0, product))
            torch.testing.assert_close(found[..., t, :], u, rtol=1e-12, atol=1e-12)
            u.retain_grad()
            products.append(u)
    of_us, of_vs = grads = [draw(*x.shape, seed=1) - 0.5 for x in given]
    kept = [x.clone() for x in grads]
    given_grads = [g for t in range(iterations) for g in (of_vs[..., t, :], of_us[..., t, :])]
    total = sum((u * g).sum() for u, g in zip(products[1::2], given_grads, strict=True))
    assert isinstance(total, torch.Tensor)
    total.backward()
    left, right = adjoint(matrix, *given, *grads)
    for t, (by_v, by_u) in enumerate(zip(products[::4], products[2::4], strict=True)):
        torch.testing.assert_close(right[..., t, :], by_v.grad, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(left[..., t, :], by_u.grad, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(grads, kept, rtol=0, atol=0)


def test_nan_stays_in_its_matrix():
    matrix = draw(2, 3, 3)
    expected = potentials(matrix, 3)
    matrix[0, 1, 1] = torch.nan
    for found, clean in zip(potentials(matrix, 3), expected, strict=True):
        assert found[0, -1].isnan().all()
        torch.testing.assert_close(found[1], clean[1])


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

"""Sinkhorn scaling in single precision, compared with double."""

import torch

from ltr.losses import NeuralNDCG
from ltr.operators import NeuralSort


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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

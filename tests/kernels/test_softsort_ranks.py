"""SoftSort's compiled ranks against the same from kernel sums, and against the dense matrix."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx

from ltr.kernels import softsort_ranks, sums, use
from ltr.kernels.choice import computed_by
from ltr.kernels.cpu import softsort
from ltr.kernels.reference import REFERENCE
from ltr.kernels.softsort_ranks import compiled_ranks, fused
from ltr.kernels.sorting import descending_order
from ltr.operators import SigmoidRank, SoftSort


def ranks_and_slopes(scores, mask, temperature, g, dense=False):
    scores = scores.clone().requires_grad_()
    P = SoftSort(temperature).permutation(scores, mask)
    if dense:  # the plain definition
        positions = torch.arange(1, scores.shape[-1] + 1).to(scores.dtype)
        ranks = (P.dense() * positions.unsqueeze(-1)).sum(-2)
        if mask is not None:
            ranks = torch.where(mask, ranks, mask.sum(-1, keepdim=True) + 1)
    else:
        ranks = P.ranks()
    return ranks.detach(), torch.autograd.grad(ranks, scores, g)[0]


@pytest.mark.parametrize("temperature", [1e-6, 0.01, 0.3, 1e6])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 7), (2, 2, 150)])
def test_the_dense_matrix(shape, masked, temperature):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator).double().round(decimals=1)  # ties
    mask = torch.rand(shape, generator=generator) < 0.7 if masked else None
    g = torch.randn(shape, generator=generator).double()
    assert fused(scores)
    found = ranks_and_slopes(scores, mask, temperature, g)
    expected = ranks_and_slopes(scores, mask, temperature, g, dense=True)
    for y, z in zip(found, expected, strict=True):
        scale = max(1.0, float(z.abs().max()))
        torch.testing.assert_close(y / scale, z / scale, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (64, 40), (64, 64), (2, 365), (512,), (513,)])
def test_the_sort_within_the_call(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator).to(dtype).round(decimals=1)  # ties
    some = torch.rand(shape, generator=generator) < 0.7
    for mask in (None, some, torch.zeros_like(some)):
        order = descending_order(scores, mask)
        found = compiled_ranks(scores, mask, None, 0.3)
        torch.testing.assert_close(found, compiled_ranks(scores, mask, order, 0.3), rtol=0, atol=0)
        _, _, sorted_here = softsort.ranks(scores, mask, None, 0.3)
        assert sorted_here.equal(order)


def test_scores_in_another_layout():
    scores = torch.randn(7, 5).mT.requires_grad_()
    g = torch.randn(7, 5).mT
    (found,) = torch.autograd.grad(SoftSort(0.2)(scores), scores, g)
    copy = scores.detach().contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(SoftSort(0.2)(copy), copy, g.contiguous())
    assert found.equal(expected)


def test_under_vmap_and_compile():
    operator, scores, mask = SoftSort(0.2), torch.randn(3, 6), torch.rand(3, 6) < 0.7
    expected = operator(scores, mask)
    compiled = torch.compile(operator, backend="eager", fullgraph=True)
    for found in (torch.vmap(operator)(scores, mask), compiled(scores, mask)):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_trace_keeps_no_numbers(mode):
    def slopes(scores, mask):
        return torch.autograd.grad(SoftSort(0.2)(scores, mask).square().sum(), scores)[0]

    first, other = ((torch.randn(3, 6).requires_grad_(), torch.rand(3, 6) < 0.7) for _ in "ab")
    found = make_fx(slopes, tracing_mode=mode)(*first)(*other)
    torch.testing.assert_close(found, slopes(*other), rtol=1e-4, atol=1e-4)


def test_what_is_not_plain_takes_the_sums():
    scores = torch.randn(3, 6)
    assert fused(scores)
    assert fused(torch.nn.Parameter(scores))
    with FakeTensorMode() as mode:
        assert not fused(mode.from_tensor(scores))
        assert SoftSort(0.2)(mode.from_tensor(scores)).shape == (3, 6)


def test_the_parts_that_are_differentiated_again():
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    ranks = SoftSort(0.5).permutation(scores, mask).ranks
    g = torch.randn(2, 5).double()
    (quick,) = torch.autograd.grad(ranks(), scores, g)
    (parts,) = torch.autograd.grad(SoftSort(0.5)(scores, mask), scores, g, create_graph=True)
    torch.testing.assert_close(quick, parts.detach())
    assert gradcheck(lambda s: SoftSort(0.5)(s, mask), (scores,))
    assert gradgradcheck(lambda s: SoftSort(0.5)(s, mask), (scores,))


def test_without_compiled_code_the_same():
    scores = torch.randn(3, 40, requires_grad=True)
    g = torch.randn(3, 40)
    (found,) = torch.autograd.grad(SoftSort(0.2)(scores), scores, g)
    with computed_by(REFERENCE):
        assert not fused(scores)
        (expected,) = torch.autograd.grad(SoftSort(0.2)(scores), scores, g)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_broken_list_breaks_alone():
    scores = torch.randn(3, 6, requires_grad=True)
    with torch.no_grad():
        scores[1, 2] = float("nan")
    ranks = SoftSort(0.2)(scores)
    ranks.sum().backward()
    for y in (ranks, scores.grad):
        assert y[1].isnan().all()
        assert y[[0, 2]].isfinite().all()


def test_what_needs_no_compiled_code_does_not_load_it(monkeypatch):
    def compiled():
        raise AssertionError("compiled code was loaded")

    monkeypatch.setattr(softsort_ranks, "compiled", compiled)
    monkeypatch.setattr(sums, "compiled", compiled)
    scores = torch.randn(2, 5, requires_grad=True)
    with use("dense"):
        (SoftSort()(scores) + SigmoidRank()(scores)).sum().backward()
    SigmoidRank()(scores).sum().backward()
    with pytest.raises(AssertionError, match="was loaded"):
        SoftSort()(scores)

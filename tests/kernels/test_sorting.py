"""The fast sort against torch's, and values in descending order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.kernels.sorting import by_torch, descending_order, falling_values, on_cpu

ODD = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, float("inf"), -float("inf")]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(ODD) | st.floats(width=32, allow_nan=False), st.booleans())),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_the_fast_sort_is_torchs(items, dtype):
    scores = torch.tensor([score for score, _ in items]).to(dtype)
    mask = torch.tensor([real for _, real in items], dtype=torch.bool)
    assert (descending_order(scores) == by_torch(scores, None)).all()
    many = scores.repeat(1100)  # few scores without a mask are sorted by torch
    assert (on_cpu(many, None) == by_torch(many, None)).all()
    # torch.argsort cannot tell a real -inf from the lowest number; neither is masked
    if not (scores == -float("inf")).any():
        assert (descending_order(scores, mask) == by_torch(scores, mask)).all()
    assert descending_order(scores, mask)[: mask.sum()].sort().values.equal(mask.nonzero()[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_stay_in_the_order_of_the_list(dtype):
    scores = torch.randn(20, 1000).mul(5).round().to(dtype)
    assert (descending_order(scores) == by_torch(scores, None)).all()
    mask = torch.rand(20, 1000) < 0.7
    assert (descending_order(scores, mask) == by_torch(scores, mask)).all()
    assert (descending_order(scores.mT) == by_torch(scores.mT, None)).all()


def test_nan_comes_first_and_masked_items_last():
    scores = torch.tensor([0.0, float("nan"), 2.0, -float("inf"), 5.0])
    mask = torch.tensor([True, True, True, True, False])
    for dtype in (torch.float32, torch.float64):
        assert descending_order(scores.to(dtype), mask).tolist() == [1, 2, 0, 3, 4]
        every = torch.ones_like(mask)
        for sort in (on_cpu, lambda x, _: by_torch(x, None)):
            assert sort(scores.to(dtype), every).tolist() == [1, 4, 2, 0, 3]
            assert sort(-scores.to(dtype), every).tolist() == [1, 3, 0, 2, 4]  # NaN of either sign


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
def test_falling_values_are_torchs(dtype):
    values = torch.randn(3, 50).mul(4).round().to(dtype)
    if dtype.is_floating_point:
        values[0, :3] = torch.tensor([float("inf"), -float("inf"), -0.0])
    expected = values.sort(descending=True).values
    assert falling_values(values).equal(expected)
    assert torch.vmap(falling_values)(values).equal(expected)
    if dtype.is_floating_point:
        values[1, 4] = float("nan")
        assert falling_values(values).isnan().sum(-1).tolist() == [0, 1, 0]


def test_falling_values_have_the_derivatives_of_a_sort():
    values = torch.randn(3, 5, dtype=torch.float64)
    leaf = values.clone().requires_grad_()
    assert torch.autograd.gradcheck(falling_values, (leaf,))
    assert torch.autograd.gradgradcheck(falling_values, (leaf,))
    expected = values.sort(-1, descending=True).values
    assert torch.vmap(falling_values)(values).equal(expected)
    assert falling_values(torch.tensor([1, 3, 2])).equal(torch.tensor([3, 2, 1]))

"""SoftSort's distances normalized by item: the formula, and its advantages over the transpose."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_table import draw

from ltr.operators import SoftSort, SoftSortRank


@pytest.mark.parametrize("power", [0.5, 1, 2])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_the_formula(power, temperature):
    scores = [0.3, -1.2, 2.0, 0.3, 0.9]
    expected = []
    for s in scores:
        tops = np.array(sorted(scores, reverse=True))
        chances = np.exp(-(abs(tops - s) ** power) / temperature)
        expected.append((chances * [1, 2, 3, 4, 5]).sum() / chances.sum())
    ranks = SoftSortRank(temperature, power)(torch.tensor(scores, dtype=torch.float64))
    np.testing.assert_allclose(ranks, expected, rtol=1e-13)


def test_it_is_the_matrix_of_softsort_with_columns_normalized():
    scores = draw(7)
    logits = -(scores.sort(descending=True).values[:, None] - scores).abs() / 0.3
    columns = logits.exp() / logits.exp().sum(0)
    expected = columns.T @ torch.arange(1.0, 8).double()
    torch.testing.assert_close(SoftSortRank(0.3)(scores), expected)


def test_ranks_stay_inside_where_those_of_the_transpose_do_not():
    scores = torch.cat([torch.tensor([5.6]), torch.zeros(100)])
    assert SoftSort(1.0)(scores)[0] < 0.95
    assert 1 <= SoftSortRank(1.0)(scores)[0] < 15


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=9),
    st.sampled_from([1e-3, 0.3, 5.0]),
    st.sampled_from([1.0, 1.5, 2.0]),
)
@settings(max_examples=100, deadline=None)
def test_ranks_lie_between_1_and_n_in_the_order_of_the_scores(scores, temperature, power):
    x = torch.tensor(scores, dtype=torch.float64)
    ranks = SoftSortRank(temperature, power)(x)
    assert (ranks >= 1 - 1e-12).all()
    assert (ranks <= len(scores) + 1e-12).all()
    assert (ranks[x.argsort(descending=True)].diff() >= -1e-12).all()


def test_the_transpose_need_not_keep_the_order():
    scores = torch.tensor([50.0] * 8 + [1.2, 0.0, -1.2])
    middle = SoftSort(1.0)(scores)[8:]
    assert middle[1] > middle[2]  # the lowest item is not last
    assert (SoftSortRank(1.0)(scores)[8:].diff() > 0).all()

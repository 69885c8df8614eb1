"""SoftSort against its formula, and the products of its permutation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonargparse import ArgumentParser
from scipy.optimize import linear_sum_assignment

from ltr.operators import (
    DensePermutation,
    RankOperator,
    SigmoidRank,
    SoftSort,
    SoftSortRank,
    hard_ranks,
)


def naive_softsort(scores: list[float], temperature: float, power: float) -> np.ndarray:
    """Equation 4, entry by entry."""
    rows = []
    for top in sorted(scores, reverse=True):
        row = np.array([np.exp(-(abs(top - s) ** power) / temperature) for s in scores])
        rows.append(row / row.sum())
    return np.array(rows)


@pytest.mark.parametrize("power", [0.5, 1, 1.5, 2, 3])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_equation_4(power, temperature):
    scores = [0.3, -1.2, 2.0, 0.3, 0.9]
    matrix = (
        SoftSort(temperature, power).permutation(torch.tensor(scores, dtype=torch.float64)).dense()
    )
    np.testing.assert_allclose(matrix, naive_softsort(scores, temperature, power), atol=1e-13)


def test_two_items_in_closed_form():
    ranks = SoftSort(temperature=0.5)(torch.tensor([0.0, 1.0], dtype=torch.float64))
    far = 1 / (1 + np.exp(1 / 0.5))  # weight of the other item in each row
    np.testing.assert_allclose(ranks, [far + 2 * (1 - far), (1 - far) + 2 * far], rtol=1e-14)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9, unique=True))
@settings(max_examples=100, deadline=None)
def test_proposition_1_rows_sum_to_one_and_argmax_sorts(scores):
    x = torch.tensor(scores, dtype=torch.float64)
    P = SoftSort(temperature=3.0).permutation(x)
    torch.testing.assert_close(P.dense().sum(-1), torch.ones_like(x))
    best = P.dense().max(-1).values
    own = P.dense().gather(-1, x.argsort(descending=True).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(best, own)


def test_theorem_1_rows_are_unimodal_in_sorted_order():
    scores = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = SoftSort(0.5).permutation(scores.sort(descending=True).values).dense()
    for i, row in enumerate(matrix):
        assert (row[: i + 1].diff() >= 0).all()
        assert (row[i:].diff() <= 0).all()


def test_ranks_can_leave_the_interval():
    scores = torch.cat([torch.tensor([5.6]), torch.zeros(100)])
    assert SoftSort(temperature=1.0)(scores)[0].item() == pytest.approx(0.92, abs=0.01)


def test_an_item_below_nine_tied_ones_ranks_best_at_a_distance():
    # docs/operators/softsort.md explains by this why a classifier loses classes
    gap = torch.linspace(1e-6, 4, 4001, dtype=torch.float64)
    scores = torch.cat([torch.zeros(len(gap), 9), -gap.unsqueeze(-1)], -1)
    found = SoftSort(temperature=1.0)(scores)[:, -1]
    e = (-gap).exp()
    torch.testing.assert_close(found, 45 * e / (9 + e) + 10 / (1 + 9 * e))
    assert gap[found.argmin()].item() == pytest.approx(0.97, abs=0.01)
    assert found.min().item() == pytest.approx(4.09, abs=0.01)
    slope = (found[1] - found[0]) / (gap[1] - gap[0])
    assert slope.item() == pytest.approx(-3.15, abs=0.01)  # a higher score loses three positions
    safe = SoftSortRank(temperature=1.0)(scores)[:, -1]
    assert (safe.diff() > 0).all()


MASK = torch.tensor([[True, False, True, True, True], [True] * 5])


@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "masked"])
@pytest.mark.parametrize("k", [None, 2, 9])
def test_products_agree_with_the_matrix(mask, k):
    generator = torch.Generator().manual_seed(1)
    scores, v = torch.randn(2, 2, 5, dtype=torch.float64, generator=generator)
    V = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator)
    P = SoftSort(0.5).permutation(scores, mask)
    if mask is not None:  # what lies under the mask must not count
        v, V = torch.where(mask, v, torch.nan), torch.where(mask[..., None], V, torch.nan)
    if k is not None:
        P = P.top(k)
    matrix = P.dense()
    rows = min(k or 5, 5)
    clean, Clean = v.nan_to_num(), V.nan_to_num()
    W = torch.randn(2, rows, 3, dtype=torch.float64, generator=generator)
    assert P.shape == matrix.shape == (2, rows, 5)
    assert P.mT.shape == (2, 5, rows)
    torch.testing.assert_close(P.mv(v), (matrix @ clean.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(P.matmul(V), matrix @ Clean)
    torch.testing.assert_close(P @ V, matrix @ Clean)
    torch.testing.assert_close(P.mT.dense(), matrix.mT)
    torch.testing.assert_close(P.mT.mv(W[..., 0]), (matrix.mT @ W[..., :1]).squeeze(-1))
    torch.testing.assert_close(P.mT @ W, matrix.mT @ W)
    torch.testing.assert_close(P.mT.mT.dense(), matrix)
    torch.testing.assert_close(P.sort(), (matrix @ P.scores.unsqueeze(-1)).squeeze(-1))
    order = P.scores.argsort(-1, descending=True)[..., :rows]
    expected = matrix.gather(-1, order.unsqueeze(-1)).squeeze(-1)
    real = expected > 0
    torch.testing.assert_close(P.log_prob(order)[real], expected[real].log())


def test_ranks_are_the_transpose_applied_to_positions():
    scores = torch.tensor([0.2, 0.9, 0.4], dtype=torch.float64)
    P = SoftSort(0.3).permutation(scores)
    torch.testing.assert_close(P.ranks(), P.dense().mT @ torch.tensor([1.0, 2, 3]).double())
    torch.testing.assert_close(P.ranks(), SoftSort(0.3)(scores))


def test_masked_columns_and_rows_are_zero():
    matrix = SoftSort(0.5).permutation(torch.randn(2, 5), MASK).dense()
    assert (matrix[0, :, 1] == 0).all()
    assert (matrix[0, 4] == 0).all()
    torch.testing.assert_close(matrix[0, :4].sum(-1), torch.ones(4))


def test_log_prob_is_right_where_the_probability_underflows():
    scores = torch.tensor([0.0, 1000.0])
    log_p = SoftSort(temperature=0.1).permutation(scores).log_prob(torch.tensor([0, 1]))
    torch.testing.assert_close(log_p, torch.tensor([-10000.0, -10000.0]))


def test_hard_gives_the_order_even_with_ties_and_masks():
    scores = torch.tensor([[0.5, 9.0, 0.5, 0.7, 0.5], [1.0, 2.0, 3.0, 4.0, 5.0]])
    order = SoftSort(0.5).permutation(scores, MASK).hard()
    assert order.tolist() == [[3, 0, 2, 4, 1], [4, 3, 2, 1, 0]]
    ranks = hard_ranks(scores, MASK)
    assert torch.equal(ranks.gather(-1, order)[:, :4], torch.arange(1.0, 5).expand(2, 4))


def test_hard_is_linear_assignment_if_the_argmax_is_not_a_permutation():
    matrix = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6]])
    P = DensePermutation(matrix.log(), torch.zeros(3))
    _, columns = linear_sum_assignment(matrix.numpy(), maximize=True)
    assert P.hard().tolist() == columns.tolist() == [0, 1, 2]
    masked = DensePermutation(
        torch.tensor([[0.6, 0.0, 0.4], [0.7, 0.0, 0.3], [0.0, 0.0, 0.0]]).log(),
        torch.zeros(3),
        torch.tensor([True, False, True]),
    )
    assert sorted(masked.hard().tolist()) == [0, 1, 2]
    assert masked.hard()[2] == 1


def test_methods_that_need_all_rows_raise():
    P = SoftSort(0.5).permutation(torch.randn(4)).top(2)
    with pytest.raises(ValueError, match="ranks needs all 4 rows of the permutation, got 2"):
        P.ranks()
    with pytest.raises(ValueError, match="hard needs all 4 rows"):
        P.hard()
    with pytest.raises(ValueError, match=r"k.*0"):
        P.top(0)


def test_a_permutation_leaves_vmap():
    scores, operator = torch.randn(2, 5), SoftSort(0.5)
    P = torch.func.vmap(operator.permutation)(scores)
    torch.testing.assert_close(P.dense(), operator.permutation(scores).dense())
    P = torch.func.vmap(operator.permutation)(scores, MASK)
    torch.testing.assert_close(P.ranks(), operator(scores, MASK))


def test_a_permutation_leaves_compile_and_export():
    class Sort(torch.nn.Module):
        def forward(self, scores):
            return SoftSort(0.5).permutation(scores)

    scores = torch.randn(2, 5)
    expected = Sort()(scores).dense()
    compiled = torch.compile(Sort(), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores).dense(), expected)
    exported = torch.export.export(Sort(), (scores,)).module()
    torch.testing.assert_close(exported(scores).dense(), expected)


def test_power_must_be_positive():
    with pytest.raises(ValueError, match=r"power.*0"):
        SoftSort(power=0)


def test_sigmoid_ranks_by_the_formula():
    scores = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = scores.tolist()
    expected = [
        1 + sum(1 / (1 + np.exp(-(values[j] - s) / 0.3)) for j in range(6) if j != i)
        for i, s in enumerate(values)
    ]
    ranks = SigmoidRank(0.3)(scores)
    np.testing.assert_allclose(ranks, expected, rtol=1e-13)
    assert ranks.sum().item() == pytest.approx(21)


def test_temperature_0_puts_ties_in_list_order():
    scores = torch.tensor([1.0, 2.0, 1.0, 2.0])
    for operator in [SoftSort(0), SigmoidRank(0)]:
        assert operator(scores).tolist() == [3, 1, 4, 2]


def test_hard_ranks_keep_real_minus_infinity_before_masked_items():
    scores = torch.tensor([0.0, -torch.inf, 1.0])
    mask = torch.tensor([False, True, True])
    assert hard_ranks(scores, mask).tolist() == [3, 2, 1]


def test_power_may_be_a_function():
    scores = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    by_function = SoftSort(power=lambda a, b: (a - b).abs() ** 1.5).permutation(scores, MASK)
    by_number = SoftSort(power=1.5).permutation(scores, MASK)
    torch.testing.assert_close(by_function.dense(), by_number.dense())
    with pytest.raises(ValueError, match=r"power.*\(5, 1"):
        SoftSort(power=lambda a, b: a).permutation(torch.randn(5))
    with pytest.raises(ValueError, match=r"power must return.*float"):
        SoftSort(power=lambda a, b: 1.0).permutation(torch.randn(5))
    with pytest.raises(ValueError, match=r"power.*'laplace'"):
        SoftSort(power="laplace")


class LearnedDistance(torch.nn.Module):
    """log(1 + exp(scale) |a - b|), a semi-metric with something to learn."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (self.scale.exp() * (a - b).abs()).log1p()


@pytest.mark.parametrize("kind", [SoftSort, SoftSortRank])
def test_a_module_as_power_is_learned(kind):
    operator = kind(0.5, power=LearnedDistance())
    assert [name for name, _ in operator.named_parameters()] == ["power.scale"]
    assert list(operator.state_dict()) == ["power.scale"]
    assert repr(operator).splitlines()[1] == "  temperature=0.5"
    scores = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def ranks(scale):
        return torch.func.functional_call(operator, {"power.scale": scale}, (scores, MASK))

    scale = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ranks, scale)
    assert torch.autograd.gradgradcheck(ranks, scale)
    operator(scores)[:, 0].sum().backward()
    assert operator.power.scale.grad.abs() > 0


def test_a_function_is_named_in_the_repr():
    assert repr(SoftSort(0.5, torch.dist)) == "SoftSort(temperature=0.5, power=dist)"
    assert repr(SoftSort(0.5, 2)) == "SoftSort(temperature=0.5, power=2)"


@pytest.mark.parametrize(
    "power", [2, "torch.dist", {"class_path": "torch.nn.PairwiseDistance", "init_args": {"p": 1.0}}]
)
def test_a_configuration_may_hold_any_power(power):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--operator", type=RankOperator)
    operator = {"class_path": "ltr.operators.SoftSort", "init_args": {"power": power}}
    parser.parse_object({"operator": operator})

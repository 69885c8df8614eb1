"""The rules that every operator keeps. The operators are in operator_table.py, one line each."""

import copy
import io
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_table import (
    AVERAGES_OVER_RANKS,
    BOUNDS,
    HEAVY_TAILED,
    NOT_EQUIVARIANT,
    NOT_FLAT_WHEN_HOT,
    OPERATORS,
    RANK_SUM_DIFFERS,
    ROW_SOFTMAX,
    SOFT,
    SOFT_OPERATORS,
    SORT_OPERATORS,
    SPARSE_GRADIENT,
    TAKES_WEIGHTS,
    TIES_DIFFER,
    draw,
    every,
    over,
    soft,
)
from pairwise import named
from torch.func import vmap

from ltr.gains import log2_discount
from ltr.operators import HardRank, SigmoidRank, SoftSort, SortOperator


@every
def test_batch_is_loop(operator):
    scores = draw(2, 3, 5)
    looped = torch.stack([torch.stack([operator(row) for row in block]) for block in scores])
    torch.testing.assert_close(operator(scores), looped, rtol=0, atol=1e-12)


@over(OPERATORS, but=NOT_EQUIVARIANT)
def test_permuting_items_permutes_ranks(operator):
    scores, order = draw(4, 7), torch.randperm(7, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        operator(scores[:, order]), operator(scores)[:, order], rtol=0, atol=1e-12
    )


@every
def test_shifting_scores_changes_nothing(operator):
    scores = draw(4, 7)
    torch.testing.assert_close(operator(scores + 3), operator(scores), rtol=0, atol=1e-11)


@every
def test_nested_scores_raise_a_clear_error(operator):
    nested = torch.nested.nested_tensor([draw(3), draw(2)], layout=torch.jagged)
    with pytest.raises(ValueError, match=r"scores.*scores\.values\(\)"):
        operator(nested)


@over(
    OPERATORS,
    named(0.0, 1e30, torch.nan, torch.inf, -torch.inf),
    arguments="operator, hidden",
)
def test_mask_is_deletion(operator, hidden):
    real, mask = draw(4, 6), torch.zeros(4, 9, dtype=torch.bool)
    mask[:, [1, 2, 4, 5, 6, 8]] = True
    scores = torch.full((4, 9), hidden, dtype=torch.float64).masked_scatter(mask, real)
    real.requires_grad_()
    scores.requires_grad_()
    ranks = operator(scores, mask)
    expected = operator(real)
    torch.testing.assert_close(ranks[mask].view(4, 6), expected, rtol=0, atol=1e-12)
    assert (ranks[~mask] == 7).all()
    if ranks.requires_grad:
        weights = draw(4, 6, seed=2)
        (expected * weights).sum().backward()
        (ranks[mask].view(4, 6) * weights).sum().backward()
        assert (scores.grad[~mask] == 0).all()
        torch.testing.assert_close(scores.grad[mask].view(4, 6), real.grad, rtol=0, atol=1e-12)


@every
def test_all_masked(operator):
    scores = draw(2, 4).requires_grad_()
    ranks = operator(scores, torch.tensor([[False] * 4, [True] * 4]))
    assert (ranks[0] == 1).all()
    if ranks.requires_grad:
        ranks.sum().backward()
        assert scores.grad.isfinite().all()


@every
def test_short_lists(operator):
    for n in (0, 1, 2):
        assert operator(draw(3, n)).shape == (3, n)
    torch.testing.assert_close(operator(draw(3, 1)), torch.ones(3, 1, dtype=torch.float64))


@over(
    OPERATORS,
    named(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    arguments="operator, dtype",
)
def test_dtypes(operator, dtype):
    scores = draw(2, 5, dtype=dtype)
    ranks = operator(scores)
    assert ranks.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(ranks.double(), operator(scores.double()), rtol=0, atol=2e-6)


def test_ranks_of_long_half_precision_lists_are_exact():
    scores = torch.arange(3000, 0, -1).half()  # float16 has steps of 2 beyond 2048
    ranks = HardRank()(scores)
    assert ranks.dtype == torch.float32
    assert ranks.unique().numel() == 3000


@every
def test_nan_stays_in_its_list(operator):
    scores = draw(3, 5)
    expected = operator(scores)
    scores[1, 2] = torch.nan
    ranks = operator(scores)
    assert ranks[1].isnan().all()
    torch.testing.assert_close(ranks[[0, 2]], expected[[0, 2]])


@over({name: name for name in SOFT}, but=BOUNDS, arguments="name")
def test_low_temperatures_give_the_hard_ranks(name):
    scores, make = draw(4, 6), SOFT[name]
    low = 1e-12 if name in HEAVY_TAILED else 1e-6
    torch.testing.assert_close(make(low)(scores), HardRank()(scores), rtol=0, atol=1e-9)
    torch.testing.assert_close(make(0)(scores), HardRank()(scores), rtol=0, atol=0)


@over(SOFT, but=NOT_FLAT_WHEN_HOT, arguments="make")
def test_high_temperatures_give_the_mean_rank(make):
    flat = torch.full((4, 6), 3.5, dtype=torch.float64)
    torch.testing.assert_close(make(1e9)(draw(4, 6)), flat, rtol=0, atol=1e-6)


@over(SOFT_OPERATORS, but=TIES_DIFFER)
def test_tied_items_share_their_rank(operator):
    ranks = operator(torch.tensor([1.0, 2.0, 1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(ranks[[0, 0]], ranks[[2, 3]], rtol=0, atol=1e-12)


@over(OPERATORS, but=RANK_SUM_DIFFERS)
def test_ranks_sum_to_those_of_a_permutation(operator):
    mask = torch.tensor([[True] * 4 + [False], [True] * 5])
    sums = operator(draw(2, 5), mask).where(mask, 0.0).sum(-1)
    torch.testing.assert_close(sums, torch.tensor([10.0, 15.0]).double(), rtol=0, atol=1e-9)


@over(SORT_OPERATORS, but=ROW_SOFTMAX)
def test_columns_sum_to_one(operator):
    columns = operator.permutation(draw(2, 6)).dense().sum(-2)
    torch.testing.assert_close(columns, torch.ones_like(columns), rtol=0, atol=1e-9)


@over({name: OPERATORS[name] for name in sorted(ROW_SOFTMAX)})
def test_rows_are_unimodal_and_their_argmax_sorts(operator):
    scores = draw(3, 20).sort(descending=True).values  # Proposition 1 and Theorem 1 of SoftSort
    matrix = operator.permutation(scores).dense()
    assert torch.equal(matrix.argmax(-1), torch.arange(20).expand(3, 20))
    ascending = torch.ones(20, 19).tril(-1).bool()
    assert (matrix.diff(dim=-1) * torch.where(ascending, 1.0, -1.0) >= 0).all()


@soft
@pytest.mark.parametrize(
    "scores",
    [[0.0] * 5, [1e4, 0.0, -1e4, 0.0, 1e4], [3.0, 3.0, 1.0, 1.0, 0.0]],
    ids=["equal", "far apart", "ties"],
)
def test_gradients_are_finite(operator, scores):
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    (operator(x) * draw(5, seed=3)).sum().backward()
    assert x.grad.isfinite().all()


@soft
@pytest.mark.parametrize("masked", [False, True])
def test_derivatives(operator, masked):
    scores = draw(2, 4, seed=5).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [True] * 4]) if masked else None
    assert torch.autograd.gradcheck(lambda x: operator(x, mask), scores)
    # the second list of the mask is full, so all entries are compared there, and a projection here
    assert torch.autograd.gradgradcheck(lambda x: operator(x, mask), scores, fast_mode=not masked)


@soft
def test_vmap(operator):
    scores = draw(3, 5)
    torch.testing.assert_close(vmap(operator)(scores), operator(scores))


@over(OPERATORS, but=AVERAGES_OVER_RANKS)
def test_discounts_and_top_k(operator):
    scores, mask = draw(2, 5), torch.tensor([[True] * 4 + [False], [True] * 5])
    ranks = operator(scores, mask)
    discounts = operator.discounts(log2_discount, scores, mask)
    torch.testing.assert_close(discounts[mask], log2_discount(ranks)[mask])
    assert (discounts[~mask] == 0).all()
    members = operator.top_k(2, scores, mask)
    assert ((members >= 0) & (members <= 1)).all()
    assert (members[~mask] == 0).all()
    if operator.exact_cutoff:
        assert torch.equal(members, ((ranks <= 2) & mask).double())


@over(SOFT_OPERATORS, but=SPARSE_GRADIENT)
def test_an_item_just_outside_the_top_has_a_gradient(operator):
    scores = draw(1, 6, seed=4).requires_grad_()
    third = scores.argsort(descending=True)[0, 2]
    operator.top_k(2, scores)[0, third].backward()
    assert scores.grad[0, third] > 1e-4


@over(OPERATORS, but=TAKES_WEIGHTS)
def test_weights_are_refused(operator):
    with pytest.raises(ValueError, match="weights must"):
        operator(draw(3), None, torch.ones(3))


@every
def test_bad_arguments(operator):
    with pytest.raises(ValueError, match=r"mask.*\(3,"):
        operator(draw(2, 3), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask.*torch.float32"):
        operator(draw(3), torch.ones(3))
    with pytest.raises(ValueError, match=r"scores.*\(\)"):
        operator(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"scores.*torch\.int64"):
        operator(torch.arange(3))
    with pytest.raises(ValueError, match=r"scores.*ndarray"):
        operator(np.ones(3))
    with pytest.raises(ValueError, match=r"k.*0"):
        operator.top_k(0, draw(3))


@over(SOFT, but=BOUNDS, arguments="make")
def test_bad_temperature(make):
    for temperature in (-1.0, torch.nan, torch.inf):
        expected = f"(temperature|epsilon) must be >= 0, got {temperature!r}"
        with pytest.raises(ValueError, match=expected):
            make(temperature)
    for temperature in ("warm", None, True, torch.tensor(0.1)):
        expected = r"(temperature|epsilon) must be a number >= 0, got ('warm'|None|True|tensor)"
        with pytest.raises(ValueError, match=expected):
            make(temperature)


@over(SOFT, arguments="make")
def test_numbers_of_numpy_are_numbers(make):
    scores = draw(2, 5)
    for temperature in (np.float64(0.5), np.float32(0.5)):
        assert torch.equal(make(temperature)(scores), make(0.5)(scores))
    assert torch.equal(make(np.int64(1))(scores), make(1.0)(scores))
    assert torch.equal(make(0.5).top_k(np.int64(2), scores), make(0.5).top_k(2, scores))


@over(SOFT, but=BOUNDS, arguments="make")
def test_the_ends_of_the_temperature(make):
    with pytest.raises(ValueError, match=r"must be 0 \(hard\) or >= 1e-30, got 1e-300"):
        make(1e-300)
    x = torch.tensor([[0.3, 0.7, 0.5, 0.5], [1e4, 0, -1e4, 0]], requires_grad=True)
    for temperature in (1e-30, 1e300):  # in float32, which has neither 1e-60 nor 1e300
        ranks = make(temperature)(x)
        (gradient,) = torch.autograd.grad((ranks * torch.arange(4)).sum(), x)
        assert ranks.isfinite().all()
        assert gradient.isfinite().all()


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
    st.sampled_from(list(SOFT)),
    st.sampled_from([1e-6, 1e-2, 1.0, 1e6]),
)
@settings(max_examples=150, deadline=None)
def test_any_scores_give_finite_ranks_and_gradients(scores, name, temperature):
    x = torch.tensor(scores, dtype=torch.float32, requires_grad=True)
    ranks = SOFT[name](temperature)(x)
    (ranks * torch.arange(len(scores))).sum().backward()
    assert ranks.isfinite().all()
    assert x.grad.isfinite().all()


@every
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf])
def test_an_infinite_score_stays_in_its_list(operator, bad):
    scores = draw(3, 5)
    expected = operator(scores)
    scores[1, 2] = bad
    ranks = operator(scores)
    if isinstance(operator, HardRank):
        assert ranks[1, 2] == (1 if bad > 0 else 5)
    if operator in SOFT_OPERATORS.values():
        assert ranks[1, 2].isnan()
    torch.testing.assert_close(ranks[[0, 2]], expected[[0, 2]], rtol=0, atol=1e-12)


def one_more(x: torch.Tensor) -> torch.Tensor:
    """The values of x with other strides: every second of a longer list."""
    return x.repeat_interleave(2, -1)[..., ::2]


@every
def test_any_strides(operator):
    scores, mask = draw(3, 5), torch.tensor([True, True, False, True, True])
    expected = operator(scores, mask.repeat(3, 1))
    for view in (one_more(scores), scores.mT.contiguous().mT):
        assert not view.is_contiguous()
        torch.testing.assert_close(operator(view, mask.expand(3, 5)), expected)
    one = scores[:1].expand(3, 5)
    torch.testing.assert_close(operator(one), operator(one.contiguous()))


@every
def test_copies_and_files(operator):
    scores, file = draw(3, 5), io.BytesIO()
    expected = operator(scores)
    assert torch.equal(copy.deepcopy(operator)(scores), expected)
    torch.save(operator, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(scores), expected)


@every
def test_without_gradients(operator):
    scores = draw(3, 5).requires_grad_()
    with torch.no_grad():
        assert not operator(scores).requires_grad
    with torch.inference_mode():
        ranks = operator(draw(3, 5))
    torch.testing.assert_close(ranks, operator(draw(3, 5)))


@every
def test_autocast_does_not_round_ranks(operator):
    scores = draw(600, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ranks = operator(scores)
    torch.testing.assert_close(ranks, operator(scores))


def test_matrices_are_only_asked_of_sort_operators():
    for operator, power in itertools.product([SoftSort], [1, 2]):
        assert isinstance(operator(0.1, power), SortOperator)
    assert not isinstance(SigmoidRank(), SortOperator)

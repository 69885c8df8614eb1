"""Every product of every permutation against its matrix."""

import pytest
import torch
from operator_table import SORT_OPERATORS, draw, over
from pairwise import named

from ltr.operators import descending_order
from ltr.operators.permutation import HardPermutation

MASK = torch.tensor([[True, False, True, True, True], [True] * 5])
SHORT = torch.tensor([[True, False, True, True], [True] * 4, [False] * 4])


@over(
    SORT_OPERATORS,
    {"full": None, "masked": MASK},
    named(None, 2, 9),
    arguments="operator, mask, k",
)
def test_products_agree_with_the_matrix(operator, mask, k):
    scores, v = draw(2, 5), draw(2, 5, seed=1)
    V, W = draw(2, 5, 3, seed=2), draw(2, min(k or 5, 5), 3, seed=3)
    P = operator.permutation(scores, mask)
    if mask is not None:  # what lies under the mask must not count
        v, V = torch.where(mask, v, torch.nan), torch.where(mask[..., None], V, torch.nan)
    if k is not None:
        P = P.top(k)
    matrix = P.dense()
    assert P.shape == matrix.shape == (2, min(k or 5, 5), 5)
    assert P.mT.shape == matrix.mT.shape
    clean, columns = v.nan_to_num(), V.nan_to_num()
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(P.log_dense().exp(), matrix, **close)
    torch.testing.assert_close(P.mv(v), (matrix @ clean.unsqueeze(-1)).squeeze(-1), **close)
    torch.testing.assert_close(P.matmul(V), matrix @ columns, **close)
    torch.testing.assert_close(P.matmul(columns[1]), matrix @ columns[1], **close)
    torch.testing.assert_close(P @ V, matrix @ columns, **close)
    torch.testing.assert_close(P.mT.dense(), matrix.mT, **close)
    torch.testing.assert_close(P.mT.mv(W[..., 0]), (matrix.mT @ W[..., :1]).squeeze(-1), **close)
    torch.testing.assert_close(P.mT.matmul(W), matrix.mT @ W, **close)
    torch.testing.assert_close(P.mT @ W, matrix.mT @ W, **close)
    torch.testing.assert_close(P.mT.mT.dense(), matrix, **close)
    torch.testing.assert_close(P.sort(), (matrix @ P.scores.unsqueeze(-1)).squeeze(-1), **close)
    if k is None:
        torch.testing.assert_close(P.ranks(), operator(scores, mask), **close)
        order = P.hard()
        positions = torch.arange(5).expand(2, 5)
        assert torch.equal(order.sort(-1).values, positions)
        picked = matrix.gather(-1, order.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(P.log_prob(order).exp()[picked > 0], picked[picked > 0])


@over({name: made for name, made in SORT_OPERATORS.items() if not made.exact_cutoff})
def test_gradients_of_products_agree_with_the_matrix(operator):
    def gradients(product):
        scores, v = draw(2, 5).requires_grad_(), draw(2, 5, seed=1).requires_grad_()
        y = product(operator.permutation(scores), v)
        return torch.autograd.grad((y * draw(2, 5, seed=2)).sum(), (scores, v))

    close = {"rtol": 0, "atol": 1e-12}
    lazy = gradients(lambda P, v: P.mv(v))
    dense = gradients(lambda P, v: (P.dense() @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(lazy, dense, **close)
    lazy = gradients(lambda P, v: P.mT.mv(v))
    dense = gradients(lambda P, v: (P.dense().mT @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(lazy, dense, **close)


@over(SORT_OPERATORS)
def test_rows_sum_to_one_and_masked_columns_to_zero(operator):
    matrix = operator.permutation(draw(2, 5), MASK).dense()
    torch.testing.assert_close(matrix.sum(-1)[0], torch.tensor([1.0, 1, 1, 1, 0]).double())
    torch.testing.assert_close(matrix.sum(-1)[1], torch.ones(5).double())
    assert (matrix[0, :, 1] == 0).all()


@over(SORT_OPERATORS)
def test_a_permutation_leaves_vmap(operator):
    scores = draw(2, 5)
    P = torch.func.vmap(operator.permutation)(scores)
    torch.testing.assert_close(P.dense(), operator.permutation(scores).dense())
    P = torch.func.vmap(operator.permutation)(scores, MASK)
    torch.testing.assert_close(P.ranks(), operator(scores, MASK))


def test_a_hard_permutation_is_its_order():
    scores = torch.tensor([[0.3, 0.9, torch.nan], [2.0, 1.0, 3.0]])
    mask = torch.tensor([[True, True, False], [True] * 3])
    clean = torch.where(mask, scores, 0.0)
    P = HardPermutation(descending_order(clean, mask), clean, mask)
    assert P.dense().tolist() == [
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
        [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
    ]
    assert P.ranks().tolist() == [[2, 1, 3], [2, 3, 1]]
    assert P.mv(torch.arange(3)).tolist() == [[1, 0, 0], [2, 0, 1]]
    assert P.matmul(torch.arange(3.0)).tolist() == [[1, 0, 0], [2, 0, 1]]
    assert P.top(1).mT.matmul(torch.ones(1)).tolist() == [[0, 1, 0], [0, 0, 1]]
    broken = HardPermutation(descending_order(scores), scores)
    assert broken.sort()[0].isnan().all()
    assert not broken.sort()[1].isnan().any()


def test_a_class_that_names_its_tensors_is_a_pytree_node():
    class Mine(HardPermutation, tensors=("order", "scores", "mask"), static=("num_rows",)):
        pass

    P = Mine(torch.tensor([1, 0]), torch.tensor([0.0, 1.0]))
    leaves, spec = torch.utils._pytree.tree_flatten(P)
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    assert len(leaves) == 2
    assert isinstance(again, Mine)
    assert torch.equal(again.dense(), P.dense())


@over(SORT_OPERATORS)
@pytest.mark.parametrize("mask", [None, SHORT], ids=["full", "masked"])
def test_vectors_of_another_length_are_refused(operator, mask):
    P = operator.permutation(draw(3, 4), mask)
    for length in (1, 3, 5):
        v, V = torch.ones(3, length).double(), torch.ones(3, length, 2).double()
        with pytest.raises(ValueError, match=rf"v.*\(3, {length}\)"):
            P.mv(v)
        with pytest.raises(ValueError, match=rf"V.*\(3, {length}, 2"):
            P.matmul(V)
        with pytest.raises(ValueError, match=rf"w.*\(3, {length}\)"):
            P.mT.mv(v)
        with pytest.raises(ValueError, match=rf"W.*\(3, {length}, 2"):
            P.mT.matmul(V)
    with pytest.raises(ValueError, match=r"v.*list"):
        P.mv([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"order.*torch\.float64"):
        P.log_prob(draw(3, 4))
    for k in (0, 2.5, True, None):
        with pytest.raises(ValueError, match=f"k.*{k!r}"):
            P.top(k)


@over(SORT_OPERATORS, {"full": None, "masked": SHORT}, arguments="operator, mask")
def test_log_prob_takes_one_order_for_all_lists(operator, mask):
    P, order = operator.permutation(draw(3, 4), mask), torch.tensor([2, 0, 3, 1])
    expected = P.log_prob(order.expand(3, 4))
    for given in (order, order[None]):
        torch.testing.assert_close(P.log_prob(given), expected)


@over(SORT_OPERATORS)
def test_empty_lists(operator):
    P = operator.permutation(draw(2, 0))
    assert P.dense().shape == (2, 0, 0)
    assert P.hard().shape == P.sort().shape == P.mT.mv(P.sort()).shape == (2, 0)


@over(SORT_OPERATORS)
def test_detach_stops_the_gradients_alone(operator):
    P = operator.permutation(draw(2, 5).requires_grad_(), MASK)
    detached = P.detach()
    assert type(detached) is type(P)
    assert not detached.dense().requires_grad
    assert torch.equal(detached.dense(), P.dense())


def test_a_class_that_does_not_name_its_tensors_is_not_detached():
    class Mine(HardPermutation):
        pass

    with pytest.raises(ValueError, match="Mine must"):
        Mine(torch.tensor([1, 0]), torch.tensor([0.0, 1.0])).detach()

"""SinkhornSort against a dense Sinkhorn, linear programming and the paper's formulas."""

import math

import numpy as np
import pytest
import torch
from operator_table import draw
from pairwise import named, split, together
from scipy.optimize import linprog
from torch.func import hessian, jacfwd, jacrev, jvp, vmap
from torch.library import opcheck

from ltr.operators import SinkhornSort, hard_ranks
from ltr.operators.sinkhorn_permutation import SinkhornPermutation
from ltr.operators.sinkhorn_transport import solve_rows

A = torch.tensor([0.5, 2.0, 1.0, 1.0, 3.0, 0.3], dtype=torch.float64)
B = [1.0, 3.0, 2.0, 0.5]
SHAPES = {
    "an item each": ({}, None),
    "four": ({"milestones": 4}, None),
    "weighted": ({"milestone_weights": B}, A),
    "placed": ({"milestones": [1.2, 0.7, 0.6, 0.1], "milestone_weights": B}, A),
    "more than items": ({"milestones": 9}, A),
}
shapes = pytest.mark.parametrize(("options", "weights"), SHAPES.values(), ids=SHAPES)


def squash(x, a, kind):
    """Algorithm 2, with the mean and the deviation under a."""
    z = x - (a * x).sum()
    z = z / np.sqrt((a * z**2).sum())
    return 1 / (1 + np.exp(-z)) if kind == "logistic" else 0.5 + np.arctan(z) / np.pi


def problem(scores, options, weights, power=2.0, kind="arctan"):
    """Costs (milestones, items) and the weights a, b, as written in the class."""
    x, n = scores.numpy(), len(scores)
    a = np.full(n, 1 / n) if weights is None else weights.numpy() / weights.sum().item()
    b = np.array(options.get("milestone_weights") or np.ones(options.get("milestones", n)))
    b = b / b.sum()
    y = options.get("milestones")
    y = np.array(y) if isinstance(y, list) else 1 - (np.cumsum(b) - b / 2)
    return np.abs(y[:, None] - squash(x, a, kind)) ** power, a, b


def dense_sinkhorn(cost, a, b, epsilon, iterations):
    """Algorithm 1: scalings of the kernel, rows last. The coupling (milestones, items)."""
    K = np.exp(-cost / epsilon)
    u = np.ones(len(b))
    for _ in range(iterations):
        v = a / (K.T @ u)
        u = b / (K @ v)
    return u[:, None] * K * v


@shapes
@pytest.mark.parametrize(
    ("power", "kind"), [(1, "logistic"), (1.5, "arctan"), (2, "arctan"), (3, "logistic")]
)
def test_the_solution_is_that_of_dense_sinkhorn(options, weights, power, kind):
    scores = draw(6)
    cost, a, b = problem(scores, options, weights, power, kind)
    T = dense_sinkhorn(cost, a, b, 0.05, 3000)
    operator = SinkhornSort(0.05, cost=power, squash=kind, **options)
    P = operator.permutation(scores, None, weights)
    np.testing.assert_allclose(P.dense(), T / b[:, None], atol=1e-10)
    # R = n a^-1 * (T b_bar), S = b^-1 * (T x), with T transposed to (items, milestones) in R
    ranks = 6 * (T.T @ np.cumsum(b)) / a
    np.testing.assert_allclose(operator(scores, None, weights), ranks, atol=1e-9)
    np.testing.assert_allclose(P.sort(), (T @ scores.numpy()) / b, atol=1e-10)
    v = draw(len(b), seed=1)
    np.testing.assert_allclose(P.spread(v), (T.T @ v.numpy()) / a, atol=1e-9)


@shapes
@pytest.mark.parametrize("gradient", ["implicit", "unrolled"])
@pytest.mark.parametrize("iterations", [1, 2, 30])
def test_a_number_of_iterations_is_the_published_algorithm(options, weights, gradient, iterations):
    scores = draw(6)
    cost, a, b = problem(scores, options, weights)
    T = dense_sinkhorn(cost, a, b, 0.1, iterations)
    operator = SinkhornSort(0.1, iterations=iterations, gradient=gradient, **options)
    P = operator.permutation(scores, None, weights)
    np.testing.assert_allclose(P.dense(), T / b[:, None], rtol=1e-10)
    np.testing.assert_allclose(P.dense().sum(-1), 1, rtol=1e-14)


@shapes
@pytest.mark.parametrize("power", [1, 2])
def test_epsilon_0_is_the_linear_program(options, weights, power):
    scores = draw(6)
    cost, a, b = problem(scores, options, weights, power)
    rows, columns = cost.shape
    sums = np.concatenate(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    )
    best = linprog(cost.ravel(), A_eq=sums, b_eq=np.concatenate([b, a]))
    P = SinkhornSort(0, cost=power, **options).permutation(scores, None, weights)
    T = P.dense().numpy() * b[:, None]
    assert (T * cost).sum() == pytest.approx(best.fun, abs=1e-12)
    np.testing.assert_allclose(T.sum(0), a, atol=1e-14)
    if power == 2 and not isinstance(options.get("milestones"), list):
        np.testing.assert_allclose(T, best.x.reshape(rows, columns), atol=1e-9)
        soft = SinkhornSort(1e-6, **options).permutation(scores, None, weights)
        np.testing.assert_allclose(soft.dense(), P.dense(), atol=1e-6)


def test_pot_agrees():
    ot = pytest.importorskip("ot")
    for epsilon, power in [(0.1, 2.0), (0.02, 2.0), (0.1, 1.0)]:
        cost, a, b = problem(draw(8), {"milestone_weights": B}, None, power)
        T = ot.sinkhorn(b, a, cost, epsilon, method="sinkhorn_log", stopThr=1e-12, numItermax=10**5)
        P = SinkhornSort(epsilon, milestone_weights=B, cost=power).permutation(draw(8))
        np.testing.assert_allclose(P.dense(), T / b[:, None], atol=1e-9)


@pytest.mark.parametrize("power", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 1e-2, 1.0, 100.0])
def test_columns_are_right_for_any_epsilon(power, epsilon):
    n = 40
    far = draw(n, seed=1)
    far[0] = 1e6
    lists = torch.stack([draw(n), draw(n).round(), far, torch.arange(float(n)).double()])
    weights = draw(4, n, seed=2).abs() ** 4
    for milestones in (None, 2, 7):
        operator = SinkhornSort(epsilon, milestones, cost=power)
        P = operator.permutation(lists, None, weights)
        columns = P.mT.mv(P.row_weights)
        torch.testing.assert_close(columns, P.item_weights, rtol=0, atol=1e-8)


def test_plain_iterations_are_slow():
    """What the docstring says of them."""
    for iterations, least, most in [(100, 0.01, 0.04), (None, 0.0, 1e-10)]:
        P = SinkhornSort(0.001, iterations=iterations).permutation(draw(100))
        assert least <= (P.dense().sum(-2) - 1).abs().mean() < most


@together("shape, kind", *split(SHAPES, named("arctan", "logistic")))
def test_first_and_second_derivatives(shape, kind):
    options, weights = shape
    scores = draw(6, seed=3).requires_grad_()
    weights = (A if weights is None else weights).clone().requires_grad_()
    operator = SinkhornSort(0.1, cost=1.5, squash=kind, **options)
    assert torch.autograd.gradcheck(lambda x, w: operator(x, None, w), (scores, weights))
    assert torch.autograd.gradgradcheck(lambda x, w: operator(x, None, w), (scores, weights))


def test_implicit_and_unrolled_derivatives_agree():
    scores, direction = draw(6), draw(6, seed=1)
    implicit = SinkhornSort(0.2)
    for other in (
        SinkhornSort(0.2, iterations=300, gradient="unrolled"),
        SinkhornSort(0.2, iterations=300),
    ):
        for derive in (jacrev, hessian):
            torch.testing.assert_close(
                derive(lambda x: implicit(x) @ direction)(scores),
                derive(lambda x, other=other: other(x) @ direction)(scores),
                rtol=1e-8,
                atol=1e-9,
            )


def test_unrolled_derivatives_are_those_of_the_iterations():
    operator = SinkhornSort(0.05, iterations=3, gradient="unrolled")
    scores = draw(2, 4).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [True] * 4])
    for m in (None, mask):
        assert torch.autograd.gradcheck(lambda x, m=m: operator(x, m), scores)
        assert torch.autograd.gradgradcheck(lambda x, m=m: operator(x, m), scores)


class Metric(torch.nn.Module):
    """A convex cost with a parameter to learn."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor([1.5], dtype=torch.float64))

    def forward(self, difference):
        return self.slope * difference.square() + difference.exp()


def test_a_cost_may_be_learned():
    metric = Metric()
    operator = SinkhornSort(0.3, cost=metric)
    assert list(operator.parameters()) == [metric.slope]
    scores = draw(5).requires_grad_()

    def ranks(x, slope):
        return torch.func.functional_call(operator, {"cost.slope": slope}, (x,))

    slope = metric.slope.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(ranks, (scores, slope))
    assert torch.autograd.gradgradcheck(ranks, (scores, slope))
    # |.|^2 as a function is |.|^2 as a number
    plain = SinkhornSort(0.3, cost=torch.square).permutation(scores)
    torch.testing.assert_close(plain.dense(), SinkhornSort(0.3).permutation(scores).dense())
    assert sorted(plain.hard().tolist()) == list(range(5))
    assert SinkhornSort(0.3, cost=Metric().float())(scores.float()).dtype == torch.float32


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("power", [1, 2])
def test_float32_gradients_are_right(epsilon, power):
    grads = []
    for dtype in (torch.float32, torch.float64):
        scores = draw(100).float().to(dtype).requires_grad_()
        ranks = SinkhornSort(epsilon, cost=power)(scores)
        (ranks * draw(100, seed=1).to(dtype)).sum().backward()
        grads.append(scores.grad.double())
    assert (grads[0] - grads[1]).norm() < 1e-5 * grads[1].norm()


@pytest.mark.parametrize("options", [{}, {"milestones": 3}, {"milestone_weights": B}])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
@pytest.mark.parametrize("hidden", [0.0, 1e30, torch.nan, torch.inf])
def test_mask_is_deletion_in_the_matrix(options, epsilon, hidden):
    real, mask = draw(2, 5), torch.tensor([[True, False, True, True, False, True, True]] * 2)
    scores = torch.full((2, 7), hidden, dtype=torch.float64).masked_scatter(mask, real)
    weights = torch.full((2, 7), hidden, dtype=torch.float64).masked_scatter(
        mask, draw(2, 5, seed=1).abs()
    )
    scores.requires_grad_()
    operator = SinkhornSort(epsilon, **options)
    for w in (None, weights):
        P = operator.permutation(scores, mask, w)
        expected = operator.permutation(real, None, None if w is None else w[mask].view(2, 5))
        rows = expected.rows
        inside = P.dense()[..., :rows, :][..., mask[0]]
        torch.testing.assert_close(inside, expected.dense(), rtol=0, atol=1e-12)
        assert (P.dense()[..., ~mask[0]] == 0).all()
        assert (P.dense()[..., rows:, :] == 0).all()
        torch.testing.assert_close(P.sort()[..., :rows], expected.sort(), rtol=0, atol=1e-12)
        assert (P.ranks()[~mask] == 6).all()
        v = draw(2, P.rows, seed=2)
        if not options:
            v = v.masked_fill(~P.row_mask(), torch.nan)
        assert P.spread(v).isfinite().all()
        if epsilon:
            (grad,) = torch.autograd.grad(P.dense().square().sum(), scores)
            assert grad.isfinite().all()
            assert (grad[~mask] == 0).all()


def test_rows_and_columns_sum_to_one():
    P = SinkhornSort(0.01).permutation(draw(3, 9))
    ones = torch.ones(3, 9, dtype=torch.float64)
    torch.testing.assert_close(P.dense().sum(-1), ones, rtol=0, atol=1e-14)
    torch.testing.assert_close(P.dense().sum(-2), ones, rtol=0, atol=1e-12)
    torch.testing.assert_close(P.ranks().sum(-1), 45 * ones[:, 0])


@pytest.mark.parametrize("rows", [2, 5, 9])
def test_compiled_code_gets_the_shapes_of_the_solver(rows):
    log_kernel, a, b = draw(3, rows, 5), torch.full((3, 5), 0.2), torch.full((3, rows), 1 / rows)
    opcheck(solve_rows, (log_kernel, a.double(), b.double(), 1e-9, 0))


def test_few_milestones():
    scores = draw(2, 6)
    P = SinkhornSort(0.01, milestones=2).permutation(scores)
    assert isinstance(P, SinkhornPermutation)
    assert P.shape == (2, 2, 6)
    assert P.mT.shape == (2, 6, 2)
    # the ends of the milestones' shares
    hard = SinkhornSort(0, milestones=2)(scores)
    torch.testing.assert_close(hard, torch.where(hard_ranks(scores) <= 3, 3.0, 6.0).double())
    with pytest.raises(ValueError, match="hard needs all 6 rows of the permutation, got 2"):
        P.hard()
    assert P.top(1).rows == 1
    torch.testing.assert_close(P.top(1).mv(scores), P.sort()[..., :1])
    with pytest.raises(ValueError, match="ranks needs all 2 rows of the permutation, got 1"):
        P.top(1).ranks()
    with pytest.raises(ValueError, match=r"k.*0"):
        P.top(0)
    assert not SinkhornSort(0, milestones=2).exact_cutoff
    assert SinkhornSort(0).exact_cutoff


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("options", [{"milestones": 4}, {"milestone_weights": B}])
def test_whole_weights_are_copies(epsilon, options):
    scores = draw(4)
    operator = SinkhornSort(epsilon, **options)
    weighted = operator.permutation(scores, None, torch.tensor([1.0, 3.0, 2.0, 1.0]).double())
    copies = operator.permutation(scores[[0, 1, 1, 1, 2, 2, 3]])
    torch.testing.assert_close(weighted.sort(), copies.sort(), rtol=0, atol=1e-9)
    if epsilon:  # copies are told apart by nothing but the list's order
        ranks = copies.ranks()[[0, 1, 4, 6]] / 7
        torch.testing.assert_close(weighted.ranks() / 4, ranks, rtol=0, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_an_item_of_weight_0_moves_no_other(epsilon):
    scores = draw(6).requires_grad_()
    weights = torch.tensor([1.0, 0.0, 2.0, 1.0, 1.0, 0.0]).double().requires_grad_()
    kept = weights > 0
    operator = SinkhornSort(epsilon, milestones=5)
    ranks = operator(scores, None, weights)
    expected = operator(scores[kept], None, weights[kept])
    torch.testing.assert_close(ranks[kept] / 6, expected / 4, rtol=0, atol=1e-12)
    assert ((ranks > 0) & (ranks <= 6)).all()
    grads = torch.autograd.grad(ranks.square().sum(), (scores, weights))
    assert all(g.isfinite().all() for g in grads)


def test_scale_and_shift_do_not_matter_once_squashed():
    scores = draw(3, 7)
    for kind in ("arctan", "logistic"):
        operator = SinkhornSort(0.05, squash=kind)
        torch.testing.assert_close(operator(1e3 * scores - 70), operator(scores))
    raw = SinkhornSort(0.05, squash=None)
    assert (raw(2 * scores) - raw(scores)).abs().max() > 0.01
    # with a squared cost a shift goes into the potentials
    torch.testing.assert_close(raw(scores + 3), raw(scores))


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("cost", [1, 2])
def test_top_k_sums_to_k(k, epsilon, cost):
    scores = draw(4, 6)
    members = SinkhornSort(epsilon, cost=cost).top_k(k, scores)
    torch.testing.assert_close(members.sum(-1), torch.full((4,), float(k)).double())
    assert ((members >= 0) & (members <= 1)).all()
    if epsilon == 1e-4 and cost == 2:
        expected = (hard_ranks(scores) <= k).double()
        torch.testing.assert_close(members, expected, rtol=0, atol=1e-6)


def test_top_k_is_a_logistic_threshold():
    scores = draw(9)
    members = SinkhornSort(0.1).top_k(4, scores)
    x = torch.from_numpy(squash(scores.numpy(), np.full(9, 1 / 9), "arctan"))
    offsets = members.logit() - x / 0.1
    torch.testing.assert_close(offsets, offsets[:1].expand(9))


def test_top_k_of_short_and_masked_lists():
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    scores = draw(3, 4).masked_fill(~mask, torch.nan).requires_grad_()
    for epsilon in (0.0, 0.1):
        members = SinkhornSort(epsilon).top_k(3, scores, mask)
        torch.testing.assert_close(members.sum(-1), torch.tensor([3.0, 0, 3]).double())
        torch.testing.assert_close(members[0], mask[0].double())
    members[2, 0].backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[2, 0] > 0
    x = draw(1, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: SinkhornSort(0.2).top_k(2, x), x)
    assert torch.autograd.gradgradcheck(lambda x: SinkhornSort(0.2).top_k(2, x), x)


def test_hard_is_the_order_of_the_scores():
    scores = draw(3, 6)
    mask = draw(3, 6, seed=1) > -0.5
    for epsilon in (0.0, 0.01, 10.0):
        P = SinkhornSort(epsilon).permutation(scores, mask)
        real = mask.gather(-1, P.hard())
        ranks = torch.where(real, torch.arange(1.0, 7).double(), 0)
        assert torch.equal(ranks, hard_ranks(scores, mask).gather(-1, P.hard()) * real)


def test_nan_stays_in_its_list():
    scores = draw(2, 4)
    scores[0, 1] = torch.nan
    for epsilon in (0.0, 0.1):
        P = SinkhornSort(epsilon).permutation(scores).dense()
        assert P[0].isnan().all()
        assert P[1].isfinite().all()


@pytest.mark.parametrize(
    "operator",
    [  # a second each to trace
        pytest.param(SinkhornSort(0.1), id="implicit"),
        pytest.param(
            SinkhornSort(0.1, iterations=4, gradient="unrolled"),
            id="unrolled",
            marks=pytest.mark.slow,
        ),
        pytest.param(SinkhornSort(0), id="hard", marks=pytest.mark.slow),
    ],
)
def test_transforms(operator):
    scores, tangent = draw(3, 5), draw(3, 5, seed=1)
    mask, weights = draw(3, 5, seed=2) > -1, draw(3, 5, seed=3).abs()
    P = vmap(operator.permutation)(scores, mask, weights)
    assert isinstance(P, SinkhornPermutation)
    expected = operator.permutation(scores, mask, weights)
    torch.testing.assert_close(P.dense(), expected.dense())
    torch.testing.assert_close(P.ranks(), operator(scores, mask, weights))
    if operator.epsilon:
        jacobian = jacrev(operator)(scores[0])
        torch.testing.assert_close(jacfwd(operator)(scores[0]), jacobian)
        _, forward = jvp(operator, (scores[0],), (tangent[0],))
        torch.testing.assert_close(forward, jacobian @ tangent[0])
        torch.testing.assert_close(
            vmap(lambda x: operator.top_k(2, x))(scores), operator.top_k(2, scores)
        )

    class Sort(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.operator = operator

        def forward(self, scores):
            return self.operator.permutation(scores)

    expected = operator.permutation(scores).dense()
    compiled = torch.compile(Sort(), fullgraph=True, backend="aot_eager")
    x = scores.clone().requires_grad_()
    soft = compiled(x).dense()
    torch.testing.assert_close(soft, expected)
    if operator.epsilon:
        (grad,) = torch.autograd.grad(soft.square().sum(), x)
        (right,) = torch.autograd.grad(operator.permutation(x).dense().square().sum(), x)
        torch.testing.assert_close(grad, right)
    exported = torch.export.export(Sort(), (scores,)).module()
    torch.testing.assert_close(exported(scores).dense(), expected)


def test_the_state_holds_no_constants_but_moves_with_the_module():
    operator = SinkhornSort(0.1, milestones=[0.9, 0.1])
    assert operator.state_dict() == {}
    assert len(list(operator.buffers())) == 2
    assert operator.half()(draw(4, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": 0.5}, "cost.*0.5"),
        ({"squash": "tanh"}, "squash.*'tanh'"),
        ({"gradient": "none"}, "gradient.*'none'"),
        ({"gradient": "unrolled"}, "iterations must"),
        ({"iterations": 0}, "iterations.*0"),
        ({"threshold": 0}, "threshold.*0"),
        ({"milestones": 0}, "milestones.*0"),
        ({"milestones": []}, r"milestones.*\[\]"),
        ({"milestones": "abc"}, "milestones.*'abc'"),
        ({"milestones": 2.5}, "milestones.*2.5"),
        ({"milestones": [math.inf, 0.5]}, r"milestones.*\[inf, 0.5\]"),
        ({"milestones": [0.1, 0.9]}, r"milestones.*\[0.1, 0.9\]"),
        ({"milestone_weights": []}, r"milestone_weights.*\[\]"),
        ({"milestone_weights": [1, 0]}, "milestone_weights must"),
        ({"milestone_weights": 2.5}, "milestone_weights.*2.5"),
        ({"milestones": 3, "milestone_weights": [1, 1]}, "must be 3 positive numbers, got"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        SinkhornSort(**options)


def test_bad_calls():
    with pytest.raises(ValueError, match="weights must"):
        SinkhornSort()(draw(3), None, torch.ones(2))
    with pytest.raises(ValueError, match=r"v must.*\(\.\.\., 3\), got \(2,\)"):
        SinkhornSort().permutation(draw(3)).spread(torch.ones(2))


def test_milestone_weights_may_be_an_array():
    scores, weights = draw(5), [1.0, 2.0, 4.0]
    for given in (np.array(weights), torch.tensor(weights)):
        ranks = SinkhornSort(milestone_weights=given)(scores)
        assert ranks.equal(SinkhornSort(milestone_weights=weights)(scores))


def test_nan_reaches_the_hard_memberships():
    members = SinkhornSort(0).top_k(1, torch.tensor([[1.0, torch.nan], [1.0, 2.0]]))
    assert members[0].isnan().all()
    assert members[1].tolist() == [0, 1]


def test_a_long_list_needs_few_milestones():
    scores = draw(2001)
    for call in (
        SinkhornSort(),
        SinkhornSort(cost=torch.square),
        SinkhornSort(milestones=2001),
    ):
        with pytest.raises(ValueError, match="milestones must be at most 2000, got 2001"):
            call(scores)
    ranks = SinkhornSort(1e-5, milestones=3)(scores)
    counts = torch.bincount((ranks * 3 / 2001).round().long(), minlength=4)
    assert counts.tolist() == [0, 667, 667, 667]
    assert SinkhornSort(0)(scores).equal(hard_ranks(scores))

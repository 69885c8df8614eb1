"""Votes: the loss of judged pairs, the lists of votes, and strengths by the Bradley-Terry model.

The numbers of `choix` are those of its version 0.4.1 on `VOTES`.
"""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.losses import ExponentialCost, HingeCost, RankNet, SquaredCost
from ltr.preferences import PreferenceLoss, bradley_terry, lists_from_preferences

PAIRS = torch.tensor([[0, 3], [3, 0], [0, 3], [4, 1], [2, 4]])
VOTES = np.array([[0, 1], [0, 1], [1, 2], [2, 0], [3, 2], [3, 0], [1, 3], [0, 3]])


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def each_vote(scores: torch.Tensor) -> torch.Tensor:
    """The loss of each of `PAIRS`, as its formula."""
    return torch.stack([torch.log(1 + torch.exp(-(scores[w] - scores[l]))) for w, l in PAIRS])


def test_the_loss_is_its_formula_and_each_vote_counts_once():
    scores = draw(5)
    each = each_vote(scores)
    torch.testing.assert_close(PreferenceLoss(reduction="none")(scores, PAIRS), each)
    torch.testing.assert_close(PreferenceLoss(reduction="sum")(scores, PAIRS), each.sum())
    torch.testing.assert_close(PreferenceLoss()(scores, PAIRS), each.mean())
    counts = torch.tensor([2.0, 1.0, 1.0, 1.0])  # the first and the third vote are equal
    once = PAIRS[[0, 1, 3, 4]]
    torch.testing.assert_close(PreferenceLoss()(scores, once, counts), each.mean())


def test_on_all_pairs_of_a_list_it_is_ranknet():
    scores, labels = draw(6), torch.tensor([0.0, 2, 1, 0, 2, 1])
    pairs = (labels[:, None] > labels).nonzero()
    torch.testing.assert_close(PreferenceLoss()(scores, pairs), RankNet()(scores, labels))


@pytest.mark.parametrize("cost", [HingeCost(0.5), ExponentialCost(), SquaredCost()])
def test_other_costs(cost):
    scores = draw(5)
    margin = scores[PAIRS[:, 0]] - scores[PAIRS[:, 1]]
    expected = cost(margin, torch.ones(5)).mean()
    torch.testing.assert_close(PreferenceLoss(cost)(scores, PAIRS), expected)


def test_derivatives():
    scores, weights = draw(5).requires_grad_(), torch.tensor([1.0, 2, 3, 0, 5])
    assert torch.autograd.gradcheck(lambda x: PreferenceLoss()(x, PAIRS, weights), scores)
    assert torch.autograd.gradgradcheck(lambda x: PreferenceLoss()(x, PAIRS, weights), scores)
    step = 1e-6 * torch.eye(5).double()
    loss = PreferenceLoss()
    slopes = [(loss(scores + e, PAIRS) - loss(scores - e, PAIRS)) / 2e-6 for e in step]
    found = torch.autograd.grad(loss(scores, PAIRS), scores)[0]
    torch.testing.assert_close(torch.stack(slopes), found, rtol=1e-6, atol=1e-8)


def test_the_order_of_items_and_of_votes_does_not_matter():
    scores, order = draw(5), torch.tensor([3, 0, 4, 2, 1])
    votes = torch.tensor([4, 2, 0, 1, 3])
    moved = torch.empty_like(order)
    moved[order] = torch.arange(5)  # where each item is now
    found = PreferenceLoss()(scores[order], moved[PAIRS][votes])
    torch.testing.assert_close(found, PreferenceLoss()(scores, PAIRS))


@pytest.mark.parametrize("hidden", [0.0, 1e30, torch.nan, -torch.inf])
def test_padding_changes_neither_value_nor_gradient(hidden):
    real = draw(5).requires_grad_()
    mask = torch.tensor([[True, True, False, False], [False, True, True, True]])
    padded = torch.full((2, 4), hidden).double().masked_scatter(mask, real.detach())
    padded.requires_grad_()
    at = mask.flatten().nonzero().squeeze(-1)  # the position of each item in the padded lists
    expected = PreferenceLoss()(real, PAIRS)
    expected.backward()
    for scores, pairs in ((padded, at[PAIRS]), (padded[mask], PAIRS)):
        padded.grad = None
        loss = PreferenceLoss()(scores, pairs)
        torch.testing.assert_close(loss, expected, rtol=0, atol=0)
        loss.backward()
        torch.testing.assert_close(padded.grad[mask], real.grad, rtol=0, atol=0)
        assert not padded.grad[~mask].any()


def test_a_nan_score_makes_only_its_own_votes_nan():
    scores = draw(5)
    scores[4] = torch.nan
    found = PreferenceLoss(reduction="none")(scores, PAIRS)
    assert found.isnan().tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_votes_and_votes_of_weight_0_have_a_graph(reduction):
    scores = draw(5).requires_grad_()
    loss = PreferenceLoss(reduction=reduction)
    empty = loss(scores, np.zeros((0, 2), int)), loss(scores, [])
    for value in (*empty, loss(scores, PAIRS, torch.zeros(5))):
        assert not value.any()
        value.sum().backward()
        assert not scores.grad.any()


def test_votes_that_are_far_off_are_finite_and_an_item_beside_itself_has_no_gradient():
    scores = torch.tensor([0.0, 200.0, -1e30], requires_grad=True)
    value = PreferenceLoss(reduction="none")(scores, [[0, 1], [2, 1], [2, 2]])
    assert value.tolist() == [200, pytest.approx(1e30), pytest.approx(math.log(2))]
    assert torch.autograd.grad(value[2], scores)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype):
    scores = draw(5).to(dtype)
    loss = PreferenceLoss()(scores, PAIRS.int())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), PreferenceLoss()(scores.double(), PAIRS))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(PreferenceLoss()(scores, PAIRS.numpy()), loss)
    torch.testing.assert_close(PreferenceLoss()(scores, PAIRS.numpy().astype("uint32")), loss)


def test_under_vmap_and_compile():
    scores, loss = draw(3, 5), PreferenceLoss()
    expected = torch.stack([loss(row, PAIRS) for row in scores])
    torch.testing.assert_close(torch.func.vmap(lambda x: loss(x, PAIRS))(scores), expected)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores[0], PAIRS), expected[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": [[0, 5]]}, "pairs must number the 5 scores from 0, got 5"),
        ({"pairs": [[-1, 2]]}, "pairs must number the 5 scores from 0, got -1"),
        ({"pairs": [0, 1]}, r"pairs must be whole numbers \(votes, 2\), got torch.int64 \(2,\)"),
        ({"pairs": [[0.0, 1.0]]}, r"pairs must be whole numbers .* got torch.float32 \(1, 2\)"),
        ({"pairs": None}, r"pairs must be whole numbers \(votes, 2\), got None"),
        ({"pairs": [[0, 1], [2]]}, r"pairs must be whole numbers .* got \[\[0, 1\], \[2\]\]"),
        ({"weights": [1.0] * 5}, "weights must be a tensor, got list"),
        ({"weights": torch.ones(2)}, r"weights must be one for each of 5 votes, got \(2,\)"),
        ({"weights": -torch.ones(5)}, "weights must be >= 0, got -1"),
        ({"weights": torch.full((5,), torch.nan)}, "weights must be finite, got nan"),
        ({"scores": torch.arange(5)}, "scores must be floating point"),
        ({"cost": "hinge"}, "cost must be a PairCost, got 'hinge'"),
        ({"reduction": "all"}, "reduction must be .* got 'all'"),
    ],
)
def test_what_is_wrong_with_a_loss(change, message):
    options = {name: change.pop(name) for name in ("cost", "reduction") if name in change}
    with pytest.raises(ValueError, match=message):
        PreferenceLoss(**options)(**{"scores": draw(5), "pairs": PAIRS} | change)


def test_training_on_votes_finds_the_strengths():
    votes = bradley_terry(*VOTES.T, ridge=1e-6)
    strength = torch.zeros(4).double().requires_grad_()
    pairs = lists_from_preferences(*VOTES.T).pairs
    optimizer = torch.optim.LBFGS([strength], max_iter=100, tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        loss = PreferenceLoss()(strength, pairs)
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(strength.detach().numpy(), votes.strength, atol=1e-4)


names = st.sampled_from(["a", "b", "c", "d"])
one_vote = st.tuples(names, names, st.integers(0, 2)).filter(lambda x: x[0] != x[1])


@given(votes=st.lists(one_vote, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_lists_of_any_votes(votes):
    winner, loser, qid = ([vote[i] for vote in votes] for i in range(3))
    lists = lists_from_preferences(winner, loser, qid)
    rows = list(zip(lists.qid.tolist(), lists.doc_id.tolist(), strict=True))
    assert len(set(rows)) == len(rows)
    found = [(rows[w][1], rows[l][1], rows[w][0]) for w, l in lists.pairs]
    assert found == votes
    assert all(rows[w][0] == rows[l][0] for w, l in lists.pairs)
    changes = [i for i in range(1, len(rows)) if rows[i][0] != rows[i - 1][0]]
    assert len(changes) + 1 == len({q for q, _ in rows}) or not rows  # the rows of a list adjoin
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        votes_of = bradley_terry(winner, loser, qid, ridge=0.5)
    gradient = 0.5 * votes_of.strength
    for w, l in lists.pairs:
        surprise = 1 / (1 + np.exp(votes_of.strength[w] - votes_of.strength[l]))
        gradient[w] -= surprise
        gradient[l] += surprise
    np.testing.assert_allclose(gradient, 0, atol=1e-8)
    for part in np.unique(votes_of.component):
        assert abs(votes_of.strength[votes_of.component == part].mean()) < 1e-12


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, torch.tensor])
def test_votes_as_users_have_them(kind):
    lists = lists_from_preferences(kind([5, 7]), kind([7, 5]), kind([1, 2]))
    assert lists.qid.tolist() == [1, 1, 2, 2]
    assert lists.doc_id.tolist() == [5, 7, 7, 5]
    assert lists.pairs.tolist() == [[0, 1], [2, 3]]


def test_numbers_and_text_are_one_document_and_names_keep_their_type():
    lists = lists_from_preferences(["5", "x"], [7, 5])
    assert lists.pairs.tolist() == [[0, 1], [2, 0]]
    assert lists.qid.tolist() == [0, 0, 0]
    text = lists_from_preferences(pd.Series(["x"]), pd.Series(["y"]), pd.Series(["q"]))
    assert (text.qid.tolist(), text.doc_id.tolist()) == (["q", "q"], ["x", "y"])


def test_the_rows_of_lists_join_a_table_of_features():
    lists = lists_from_preferences(["b", "a"], ["a", "c"], ["q", "r"])
    keys = pd.DataFrame({"qid": lists.qid, "doc_id": lists.doc_id})
    features = pd.DataFrame(
        {"qid": ["r", "r", "q", "q"], "doc_id": ["c", "a", "a", "b"], "x": [4, 3, 2, 1]}
    )
    assert keys.merge(features, how="left")["x"].tolist() == [1, 2, 3, 4]


def test_no_votes_give_no_rows():
    lists = lists_from_preferences([], [], [])
    assert [x.shape for x in lists] == [(0,), (0,), (0, 2)]
    votes = bradley_terry([], [])
    assert votes.strength.shape == votes.grade.shape == votes.component.shape == (0,)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ((["a", "b"], ["b", "b"]), "winner and loser must differ, got 'b' twice in row 1"),
        ((["a"], ["b", "c"]), "loser must have one value for each of the 1 votes"),
        ((["a", None], ["b", "c"]), "winner must name a document in each row, got None in row 1"),
        ((["a", "b"], ["b", np.nan]), "loser must name a document in each row, got nan in row 1"),
        ((["a"], ["b"], [""]), "qid must name a query in each row, got '' in row 0"),
        ((["a"], ["b"], [1, 2]), "qid must have one value for each of the 1"),
        ((3, 4), "winner must be an array, got 3"),
    ],
)
def test_what_is_wrong_with_votes(votes, message):
    for function in (lists_from_preferences, bradley_terry):
        with pytest.raises(ValueError, match=message):
            function(*votes)


@pytest.mark.parametrize(
    ("ridge", "expected"),
    [
        (0.1, [0.3402804321664, 0.0646616582, -0.4696037485664, 0.0646616582]),
        (1.0, [0.2055649108, 0.0229177898, -0.2514004904, 0.0229177898]),
    ],
)
def test_strengths_are_those_of_choix(ridge, expected):
    votes = bradley_terry(*VOTES.T, ridge=ridge)  # opt_pairwise(4, VOTES, alpha=ridge / 2)
    np.testing.assert_allclose(votes.strength[votes.doc_id.argsort()], expected, atol=1e-7)


def test_with_a_small_ridge_strengths_are_the_maximum_likelihood():
    votes = bradley_terry(*VOTES.T, ridge=1e-6)
    expected = [0.36933539, 0.0764919, -0.52231919, 0.07649189]  # choix.ilsr_pairwise(4, VOTES)
    np.testing.assert_allclose(votes.strength[votes.doc_id.argsort()], expected, atol=1e-6)


@pytest.mark.parametrize(("wins", "losses"), [(3, 1), (7, 7), (40, 10)])
def test_two_documents_have_the_log_odds_and_their_interval(wins, losses):
    votes = bradley_terry("a" * wins + "b" * losses, "b" * wins + "a" * losses, ridge=1e-6)
    odds = math.log(wins / losses)
    np.testing.assert_allclose(votes.strength, [odds / 2, -odds / 2], atol=1e-5)
    # the variance of the log-odds is 1 / wins + 1 / losses, and half of them has a quarter
    error = math.sqrt(1 / wins + 1 / losses) / 2
    np.testing.assert_allclose(votes.high - votes.strength, 1.959964 * error, rtol=1e-5)
    np.testing.assert_allclose(votes.strength - votes.low, 1.959964 * error, rtol=1e-5)


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 100.0])
def test_a_document_that_never_lost_is_finite(ridge):
    votes = bradley_terry(["a"] * 5, ["b"] * 5, ridge=ridge)
    x = votes.strength[0]  # the minimum of 5 log(1 + exp(-2 x)) + ridge x^2
    assert 10 / (1 + math.exp(2 * x)) == pytest.approx(2 * ridge * x, rel=1e-8)
    assert votes.strength[1] == pytest.approx(-x)
    assert votes.low[0] < x < votes.high[0]
    assert 0.5 < votes.grade[0] < 1


def test_grades_are_the_probability_of_beating_strength_0():
    votes = bradley_terry(*VOTES.T)
    np.testing.assert_allclose(np.log(votes.grade / (1 - votes.grade)), votes.strength)


def test_lists_do_not_touch_each_other():
    two = bradley_terry([0, 1, 0], [1, 0, 1], ["q", "r", "q"])
    alone = bradley_terry([0, 0], [1, 1])
    np.testing.assert_allclose(two.strength[:2], alone.strength)
    np.testing.assert_allclose(two.low[:2], alone.low)
    assert two.component.tolist() == [0, 0, 1, 1]
    assert two.doc_id.tolist() == [0, 1, 1, 0]


def test_parts_of_a_list_without_a_vote_between_them_are_said():
    words = r"votes of 1 of 2 lists do not connect .* as in qid 'q' with 2 parts.*`component`"
    with pytest.warns(UserWarning, match=words) as caught:
        votes = bradley_terry("acax", "bdby", "qqqr")
    assert caught[0].filename == __file__
    assert votes.doc_id.tolist() == ["a", "b", "c", "d", "x", "y"]
    assert votes.component.tolist() == [0, 0, 1, 1, 2, 2]
    alone = bradley_terry("aa", "bb")  # what another part has does not matter
    np.testing.assert_allclose(votes.strength[:2], alone.strength)
    np.testing.assert_allclose(votes.high[:2], alone.high)


def test_intervals_cover_the_strengths():
    random, inside = np.random.default_rng(0), []
    for _ in range(60):
        true = random.normal(size=8)
        first = random.integers(8, size=400)
        second = (first + random.integers(1, 8, size=400)) % 8
        wins = random.random(400) < 1 / (1 + np.exp(true[second] - true[first]))
        votes = bradley_terry(np.where(wins, first, second), np.where(wins, second, first))
        expected = (true - true.mean())[votes.doc_id]
        inside += [*((votes.low <= expected) & (expected <= votes.high))]
    # 95 % of 480; their standard error is 1 %, and a little more since lists share a mean
    assert 0.93 <= np.mean(inside) <= 0.98


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": 0}, "ridge must be >= 1e-06, got 0"),
        ({"ridge": np.nan}, "ridge must be >= 1e-06, got nan"),
        ({"confidence": 1.0}, r"confidence must lie in \(0, 1\), got 1.0"),
        ({"confidence": "95%"}, r"confidence must lie in \(0, 1\), got '95%'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        bradley_terry(["a"], ["b"], **options)

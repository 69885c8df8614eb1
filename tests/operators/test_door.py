"""What the base classes do around an operator's own mathematics, and that they can be left out."""

import sys
from typing import Any

import pytest
import torch
from operator_table import OPERATORS, SOFT, SORT_OPERATORS, TAKES_WEIGHTS, draw, over

from ltr.kernels import use
from ltr.losses import SoftNDCG
from ltr.operators import DensePermutation, RankOperator, SortOperator, hard_ranks, truncated
from ltr.operators.base import TemperatureRank
from ltr.operators.permutation import HardPermutation
from ltr.shapes import check_lists

SCORES = torch.tensor([[1.0, torch.nan, 3.0, 2.0], [4.0, 2.0, torch.nan, 3.0]])
MASK = torch.tensor([[True, False, True, True], [True, True, True, False]])


class HalfRank(RankOperator):
    """The ranks (1 + number of items above) by the body alone."""

    def soft_ranks(self, scores, mask, weights):
        assert scores.dtype == torch.float32
        above = (scores.unsqueeze(-2) > scores.unsqueeze(-1)) & self.real(scores, mask)
        return 1.0 + above.sum(-1)

    def real(self, scores, mask):
        return torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.unsqueeze(-2)


class ScaledRank(TemperatureRank):
    weighted = True

    def soft_ranks(self, scores, mask, weights):
        assert self.temperature > 0
        return scores / self.temperature if weights is None else scores * weights


class ReverseSort(TemperatureRank, SortOperator):
    def soft_permutation(self, scores, mask, weights):
        n = scores.shape[-1]
        return DensePermutation(torch.eye(n).flip(-1).log().expand(*scores.shape, n), scores, mask)


def test_a_body_gets_real_scores_and_its_ranks_are_finished():
    ranks = HalfRank()(SCORES.half(), MASK)
    assert ranks.dtype == torch.float32
    assert ranks[0].tolist() == [3, 4, 1, 2]  # the masked item has rank m + 1
    assert ranks[1].isnan().all()


def test_a_body_needs_no_check_of_its_arguments():
    for scores, mask, name in [
        (torch.zeros(3), torch.ones(2, dtype=torch.bool), "mask must"),
        (torch.zeros(3), torch.ones(3), "mask must be bool"),
        (torch.zeros(3, dtype=torch.int64), None, "scores must be floating"),
    ]:
        for operator in (HalfRank(), ReverseSort(0.1)):
            with pytest.raises(ValueError, match=name):
                operator(scores, mask)


def test_weights_are_refused_unless_the_class_is_weighted():
    ones = torch.ones(3)
    for call in (HalfRank(), ReverseSort(0.1), ReverseSort(0.1).permutation):
        with pytest.raises(ValueError, match=r"weights must be None: \w+ has no weighted form"):
            call(torch.zeros(3), None, ones)
    with pytest.raises(ValueError, match="weights must have the shape"):
        ScaledRank(0.1)(torch.zeros(3), None, torch.ones(2))
    assert ScaledRank(0.1)(ones, None, 2 * ones).tolist() == [2, 2, 2]


def test_a_body_is_not_called_at_temperature_0():
    scores = draw(2, 5)
    assert torch.equal(ScaledRank(0)(scores), hard_ranks(scores))
    assert isinstance(ReverseSort(0).permutation(scores), HardPermutation)
    assert torch.equal(ReverseSort(0)(scores), hard_ranks(scores))
    assert ReverseSort(0.1)(scores)[0].tolist() == [5, 4, 3, 2, 1]
    assert ScaledRank(0).exact_cutoff
    assert not ScaledRank(0.1).exact_cutoff


def test_memberships_have_the_same_door():
    class Share(TemperatureRank):
        def soft_top_k(self, k, scores, mask):
            assert self.temperature > 0
            assert scores.dtype == torch.float32
            return scores + k

    scores, mask = torch.tensor([3.0, torch.nan, 1.0]).half(), torch.tensor([True, False, True])
    assert Share(0.1).top_k(2, scores, mask).tolist() == [5, 0, 3]
    assert Share(0).top_k(1, scores, mask).tolist() == [1, 0, 0]
    with pytest.raises(ValueError, match="k must be a whole number >= 1, got 0"):
        Share(0).top_k(0, scores, mask)
    with pytest.raises(ValueError, match="mask must have the shape"):
        Share(0.1).top_k(1, scores, mask[:2])


def test_an_own_forward_gets_and_returns_what_it_did():
    got: list[Any] = []

    class Own(RankOperator):
        def forward(self, scores, mask=None, weights=None):
            got[:] = [scores, mask, weights]
            return scores * 2

    scores = SCORES.half()
    ranks = Own()(scores, MASK, scores)  # weights are not refused, nor anything filled
    assert got[0] is scores
    assert got[1] is MASK
    assert got[2] is scores
    torch.testing.assert_close(ranks, scores * 2, equal_nan=True)
    members = Own().top_k(2, scores, MASK)
    assert got[0] is scores  # not upcast or filled either
    torch.testing.assert_close(
        members,
        Own().discounts(truncated(torch.ones_like, 2, exact=False), scores, MASK),
        equal_nan=True,
    )
    loss = SoftNDCG(Own(), mean="arithmetic")(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    assert loss.isfinite()


def test_an_own_forward_refuses_weights_in_its_own_words():
    class Own(TemperatureRank):
        def forward(self, scores, mask=None, weights=None):
            if weights is not None:
                raise ValueError("no weights here")
            return scores

    assert Own(0)(torch.ones(2)).tolist() == [1, 1]  # also at temperature 0
    with pytest.raises(ValueError, match=r"^no weights here$"):
        Own()(torch.ones(2), None, torch.ones(2))


def test_an_own_permutation_gets_what_it_did():
    got: list[Any] = []

    class Own(TemperatureRank, SortOperator):
        def permutation(self, scores, mask=None, weights=None):
            got[:] = [scores, mask, weights]
            return HardPermutation(torch.tensor([1, 0]), scores.float(), mask)

    scores = torch.tensor([3.0, 1.0]).half()
    assert Own(0)(scores, None, scores).tolist() == [2, 1]
    assert got[0] is scores
    assert got[1] is None
    assert got[2] is scores


def test_an_operator_with_neither_says_what_it_needs():
    class Empty(RankOperator):
        pass

    class EmptySort(SortOperator):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define forward"):
        Empty()(torch.zeros(2))
    with pytest.raises(NotImplementedError, match="EmptySort must define permutation"):
        EmptySort()(torch.zeros(2))


def checks_in(call: Any, shape: tuple[int, ...]) -> int:
    """How often `check_lists` checks scores of a shape in a call."""
    found = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal found
        if event == "call" and frame.f_code is check_lists.__code__:
            found += frame.f_locals["scores"].shape == shape

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("form", ["dense", "sums"])
@over({name: make(0.7) for name, make in SOFT.items()})
def test_the_arguments_are_checked_once(operator, form):
    scores, mask = draw(3, 8), draw(3, 8, seed=1) > -1
    with use(form):
        assert checks_in(lambda: operator(scores, mask), (3, 8)) == 1
        if isinstance(operator, SortOperator):
            assert checks_in(lambda: operator.permutation(scores, mask), (3, 8)) == 1


@over({name: operator for name, operator in OPERATORS.items() if name not in TAKES_WEIGHTS})
def test_every_unweighted_operator_names_the_argument(operator):
    with pytest.raises(ValueError, match="weights must be None"):
        operator(draw(3), None, torch.ones(3, dtype=torch.float64))
    if isinstance(operator, SortOperator) and operator in SORT_OPERATORS.values():
        with pytest.raises(ValueError, match="weights must be None"):
            operator.permutation(draw(3), None, torch.ones(3, dtype=torch.float64))

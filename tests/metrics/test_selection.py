"""Metrics at k select the first k positions: the same values as by a sort, ties in list order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.kernels.sorting import SELECTED, descending_order
from ltr.metrics import ERR, F1, MAP, MRR, NDCG, RBP, HitRate, Precision, RankingMetrics, Recall
from ltr.metrics.functional import mrr, ndcg, precision
from ltr.metrics.ranked import rank

LONG = 3 * SELECTED
AT_K = [NDCG, MRR, Precision, Recall, HitRate, F1, MAP, ERR]


@st.composite
def lists(draw):
    """Scores, labels and a mask or None: many ties, some lists with fewer than k items or none."""
    shape = draw(st.sampled_from([(LONG,), (3, LONG), (2, 2, LONG + 7), (4, LONG - 1)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    kinds = draw(st.sampled_from([2, 5, 10**6]))
    scores = torch.randint(0, kinds, shape, generator=generator).float() - kinds // 2
    if draw(st.booleans()):
        scores[..., ::5] = draw(st.sampled_from([-torch.inf, torch.inf, -0.0]))
    labels = torch.randint(0, 4, shape, generator=generator).float()
    share = draw(st.sampled_from([None, 0.0, 0.01, 0.5, 0.99]))
    mask = None if share is None else torch.rand(shape, generator=generator) < share
    return scores, labels, mask


@settings(max_examples=60, deadline=None)
@given(lists(), st.sampled_from([1, 2, 3, 4, 500]))
def test_the_first_positions_are_those_of_the_sort(data, k):
    scores, _, mask = data
    whole, some = descending_order(scores, mask), descending_order(scores, mask, k)
    assert torch.equal(some[..., :k], whole[..., :k])
    assert torch.equal(some.sort(-1).values, whole.sort(-1).values)


@settings(max_examples=40, deadline=None)
@given(lists(), st.sampled_from([1, 3, 500]))
def test_values_are_those_of_the_sort(data, k):
    scores, labels, mask = data
    for kind in AT_K:
        metric = kind(top_k=k)
        assert metric.first_positions == k
        found, expected = (
            metric.core(rank(scores, labels, mask, first=first), **metric.arguments)
            for first in (k, None)
        )
        torch.testing.assert_close(found.values, expected.values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(found.empty, expected.empty)


def test_functions_classes_and_collections_agree():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (5, LONG), generator=generator).float()
    labels = torch.randint(0, 3, (5, LONG), generator=generator).float()
    lengths = torch.full((5,), LONG)
    for function, kind in ((ndcg, NDCG), (mrr, MRR), (precision, Precision)):
        expected = function(scores.double(), labels, top_k=3).float()  # float64 takes a sort
        flat = function(scores.flatten(), labels.flatten(), lengths=lengths, top_k=3)
        assert function(scores, labels, top_k=3) == pytest.approx(expected.item())
        assert flat == pytest.approx(expected.item())
        together = RankingMetrics({"it": kind(top_k=3), "other": kind(top_k=1)})
        together.update(scores, labels)
        assert together.compute()["it"] == pytest.approx(expected.item())


def test_which_metrics_need_all_positions():
    assert NDCG().first_positions is None
    assert NDCG(top_k=3, ties="expected").first_positions is None
    assert RBP().first_positions is None

    class Other(MRR):
        core = staticmethod(lambda lists, top_k, empty, ties: MRR.core(lists, top_k, empty, ties))

    assert Other(top_k=3).first_positions is None


def test_nan_and_the_first_positions():
    scores = torch.zeros(LONG)
    scores[7] = torch.nan
    assert descending_order(scores, first=2).tolist()[:2] == [7, 0]
    with pytest.raises(ValueError, match=r"first.*0"):
        descending_order(scores, first=0)
    with pytest.raises(ValueError, match="top_k"):
        ndcg(torch.ones(LONG), torch.ones(LONG), top_k=0)

"""The average of several scorers."""

import pytest
import torch

from ltr.models import Ensemble, LinearScorer


def test_scales_give_each_member_the_same_spread():
    ensemble = Ensemble(LinearScorer(), members=3)
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = scores * torch.tensor([[1.0], [10.0], [0.1]])
    ensemble.fit_scales(scores, torch.tensor([4, 1, 0, 4]))
    scaled = scores * ensemble.scales.unsqueeze(-1)
    lists = torch.stack([scaled[:, :4], scaled[:, 5:]], dim=1)
    torch.testing.assert_close(lists.std(-1, correction=0).mean(1), torch.ones(3).double())


@pytest.mark.parametrize(
    ("shape", "lengths", "message"),
    [
        ((3, 4), [4], r"scores.*\(3, 4\)"),
        ((4,), [4], r"scores must"),
        ((2, 4), [1, 2], "lengths.*3"),
        ((2, 4), [5, -1], "lengths.*-1"),
        ((2, 4), [4.0], "lengths must"),
    ],
)
def test_scales_of_scores_that_do_not_fit(shape, lengths, message):
    with pytest.raises(ValueError, match=message):
        Ensemble(LinearScorer(), members=2).fit_scales(torch.zeros(shape), torch.tensor(lengths))


def test_equal_scores_in_double_precision_have_scale_1():
    ensemble = Ensemble(LinearScorer(), members=2)
    scores = torch.tensor([[0.1] * 7, [0.0, 2.0] * 3 + [1.0]], dtype=torch.float64)
    ensemble.fit_scales(scores, torch.tensor([3, 4]))
    assert ensemble.scales[0] == 1


def test_a_refused_width_keeps_the_members():
    ensemble = Ensemble(LinearScorer(3), members=1)
    ensemble.build(3)
    with pytest.raises(ValueError, match="num_features must be 3"):
        ensemble.build(4)
    assert ensemble(torch.zeros(2, 3)).shape == (2,)

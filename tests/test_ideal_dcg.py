"""The ideal DCG by selection is that by a sort."""

import pytest
import torch

from ltr.gains import SELECTED, ideal_dcg, log2_discount


@pytest.mark.parametrize("n", [3 * SELECTED - 1, 3 * SELECTED, 1000])
@pytest.mark.parametrize("values", [4, 10**6], ids=["tied", "distinct"])
def test_the_first_k_are_the_same(n, values):
    gains = torch.randint(0, values, (5, n), generator=torch.Generator().manual_seed(n)).double()
    best = gains.sort(-1, descending=True).values[..., :3]
    expected = (best * log2_discount(torch.arange(1.0, 4).double())).sum(-1)
    assert torch.equal(ideal_dcg(gains, log2_discount, 3), expected)
    learned = gains.clone().requires_grad_()  # by a sort
    torch.testing.assert_close(ideal_dcg(learned, log2_discount, 3), expected)


def test_nan_stays_in_its_list():
    gains = torch.ones(2, 1000)
    gains[0, 5] = torch.nan
    assert ideal_dcg(gains, log2_discount, 3).isnan().tolist() == [True, False]

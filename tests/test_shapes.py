"""The argument checks accept numbers of any type."""

from fractions import Fraction

import numpy as np
import pytest

from ltr.shapes import check_fraction


@pytest.mark.parametrize("p", [0.5, np.float64(0.5), np.float32(0.5), Fraction(1, 2)])
def test_a_fraction_may_be_any_real_number(p):
    assert check_fraction("p", p) == 0.5


def test_zero_is_a_fraction_only_where_it_may_be():
    assert check_fraction("dropout", 0, zero=True) == 0
    with pytest.raises(ValueError, match=r"p must lie in \(0, 1\), got 0"):
        check_fraction("p", 0)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, np.nan, "0.5", True, False, None])
def test_what_is_no_fraction(value):
    with pytest.raises(ValueError, match=rf"risk must lie in \[0, 1\), got {value!r}"):
        check_fraction("risk", value, zero=True)

"""The argument checks accept numbers of any type."""

from fractions import Fraction

import numpy as np
import pytest

from ltr.shapes import check_persistence


@pytest.mark.parametrize("p", [0.5, np.float64(0.5), np.float32(0.5), Fraction(1, 2)])
def test_a_persistence_may_be_any_real_number(p):
    assert check_persistence(p) == 0.5

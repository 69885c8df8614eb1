import pytest

import ltr.datasets


def test_every_name_is_there():
    for name in ltr.datasets.__all__:
        assert getattr(ltr.datasets, name).__name__ == name
    assert set(ltr.datasets.__all__) <= set(dir(ltr.datasets))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ltr.datasets.nothing  # noqa: B018

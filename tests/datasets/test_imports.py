import subprocess
import sys

import pytest

import ltr.datasets


def loaded_by(code: str) -> set[str]:
    names = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{names}"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_reading_does_not_load_lightning():
    heavy = {"lightning", "torchmetrics", "sklearn", "scipy", "jsonargparse"}
    assert not heavy & loaded_by("from ltr.datasets import read_letor, ListDataset, Standardize")


def test_every_name_is_there():
    for name in ltr.datasets.__all__:
        assert getattr(ltr.datasets, name).__name__ == name
    assert set(ltr.datasets.__all__) <= set(dir(ltr.datasets))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ltr.datasets.nothing  # noqa: B018

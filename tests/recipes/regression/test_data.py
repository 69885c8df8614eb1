"""The diabetes sample: its division, its outliers, and its scale."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from recipes.regression.data import RegressionDataModule


def module(**options: Any) -> RegressionDataModule:
    data = RegressionDataModule(**options)
    data.setup()
    return data


def test_test_labels_are_as_they_were():
    features, labels = load_diabetes(return_X_y=True)
    clean, dirty = module(outliers=0.0), module(outliers=0.3)
    for data in (clean, dirty):
        assert [len(data.splits[split][1]) for split in ("train", "test")] == [354, 88]
    assert torch.equal(clean.splits["test"][1], dirty.splits["test"][1])
    found = torch.cat([clean.splits["train"][1], clean.splits["test"][1]])
    assert sorted(found.tolist()) == sorted(labels.tolist())
    # features are standardized by the training sample, whose order says which patient is which
    train = clean.splits["train"][0].double()
    assert train.mean(0).abs().max() < 1e-6
    assert (train.std(0, correction=0) - 1).abs().max() < 1e-6
    first = np.abs(labels - found[0].item()) < 1e-6
    scaled = features[first] / features.std(0)
    assert np.abs(scaled - train[0].numpy()).max(1).min() < 0.3


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35])
def test_outliers(share: float):
    clean, data = module(outliers=0.0), module(outliers=share, outlier_size=4.0)
    moved = data.splits["train"][1] - clean.splits["train"][1]
    assert torch.equal(moved != 0, data.planted)
    assert int(data.planted.sum()) == round(share * 354)
    sizes = moved[data.planted] / clean.splits["train"][1].std(correction=0)
    if len(sizes):
        assert 4 <= sizes.min() < sizes.max() <= 8.001


def test_a_larger_share_has_the_smaller_ones_outliers():
    few, many = module(outliers=0.1), module(outliers=0.3)
    assert (few.planted <= many.planted).all()
    both = few.planted
    assert torch.equal(few.splits["train"][1][both], many.splits["train"][1][both])


def test_centre_and_scale():
    data = module(outliers=0.2)
    y = data.splits["train"][1].double().numpy()
    assert data.label_center == pytest.approx(np.median(y))
    assert data.label_scale == pytest.approx(1.4826 * np.median(np.abs(y - np.median(y))))


def test_a_batch_is_the_sample():
    data = module(steps=4)
    batches = list(data.train_dataloader())
    assert len(batches) == 4
    for batch in batches:
        assert torch.equal(batch["features"][0], data.splits["train"][0])
        assert torch.equal(batch["labels"][0], data.splits["train"][1])
    [batch] = data.test_dataloader()
    assert batch["features"].shape == (1, 88, 10)


def test_the_seed():
    one, other = module(seed=1), module(seed=2)
    assert not torch.equal(one.splits["test"][1], other.splits["test"][1])
    assert torch.equal(one.splits["train"][1], module(seed=1).splits["train"][1])


@pytest.mark.parametrize(
    "options",
    [
        {"outliers": -0.1},
        {"outliers": 1.0},
        {"outlier_size": 0.0},
        {"test_share": 0.0},
        {"test_share": 1.0},
        {"steps": 0},
        {"seed": -1},
    ],
)
def test_arguments_are_checked(options: dict[str, Any]):
    [name] = options
    with pytest.raises(ValueError, match=f"{name} must"):
        RegressionDataModule(**options)

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ltr.datasets import DigitsDataModule, NoTransform


def digits(**options) -> DigitsDataModule:
    data = DigitsDataModule(
        **{"list_size": 10, "train_lists": 40, "val_lists": 15, "test_lists": 17, **options}
    )
    data.setup("fit")
    return data


def test_lists_of_images():
    data = digits()
    pixels, grades = load_digits(return_X_y=True)
    assert data.num_features == 64
    assert isinstance(data.feature_transform, NoTransform)
    assert {name: len(lists) for name, lists in data.splits.items()} == {
        "train": 40,
        "val": 15,
        "test": 17,
        "predict": 17,
    }
    item = data.splits["test"][16]
    assert item["qid"] == "digits-test-16"
    assert item["features"].shape == (10, 64)
    rows = [int(doc_id) for doc_id in item["doc_id"]]
    assert len(set(rows)) == 10
    np.testing.assert_array_equal(item["features"], pixels[rows] / 16)
    np.testing.assert_array_equal(item["labels"], grades[rows])
    features = data.splits["train"].features
    assert features.min() == 0
    assert features.max() == 1


def test_no_image_in_two_splits():
    data = digits(train_lists=300, val_lists=300, test_lists=300)
    images = [set(data.splits[s].doc_id.to_pylist()) for s in ("train", "val", "test")]
    assert sum(len(part) for part in images) == len(set.union(*images))
    assert [len(part) for part in images] == pytest.approx([1078, 359, 360], abs=70)


def test_seeded():
    def rows(seed: int) -> list[str]:
        return digits(seed=seed).splits["test"].doc_id.to_pylist()

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_batches():
    data = digits(batch_size=16)
    batches = list(data.train_dataloader())
    assert [len(batch["qid"]) for batch in batches] == [16, 16, 8]
    assert batches[0]["features"].shape == (160, 64)
    assert batches[0]["lengths"].tolist() == [10] * 16
    assert len(list(data.val_dataloader())) == 1
    assert next(iter(data.test_dataloader()))["qid"][0] == "digits-test-0"


def test_bad_arguments():
    for name in ("train_lists", "val_lists", "test_lists", "list_size"):
        with pytest.raises(ValueError, match=f"{name}.*0"):
            DigitsDataModule(**{name: 0})
    with pytest.raises(ValueError, match=r"list_size.*500"):
        digits(list_size=500)


def test_each_list_may_have_its_own_scale():
    one, other = (DigitsDataModule(list_size=5, scale=x) for x in (1.0, 100.0))
    for data in (one, other):
        data.setup("fit")
    plain, scaled = (data.splits["train"] for data in (one, other))
    digits, labels = plain.labels.reshape(-1, 5), scaled.labels.reshape(-1, 5)
    assert np.array_equal(plain.features, scaled.features)
    factors = labels.max(axis=1) / np.maximum(digits.max(axis=1), 1)
    assert np.allclose(labels, digits * factors[:, None], rtol=1e-6)
    assert 0.01 <= factors.min() < 0.02  # over many lists
    assert 50 < factors.max() <= 100
    assert abs(np.log10(factors).mean()) < 0.1


@pytest.mark.parametrize("scale", [0.5, float("inf"), float("nan"), "a", None])
def test_a_scale_out_of_range(scale):
    with pytest.raises(ValueError, match=r"scale must"):
        DigitsDataModule(scale=scale)

"""Arguments of any type of number, large ones too, and the message of a training that diverges."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr.datasets import TableDataModule
from ltr.datasets.prepare import prepare
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import PointwiseMSE
from ltr.models import AttentionScorer, LinearScorer
from ltr.serving import OnnxRanker

ROWS = 60
X, QID = np.random.default_rng(0).normal(size=(ROWS, 2)), np.arange(ROWS) // 5
LABELS = (X[:, 0] > 0.3).astype(int)


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"scorer": LinearScorer(), "members": 1, "max_epochs": 2, "verbose": 0}
    return NeuralRanker(**{**small, "random_state": 0, **parameters})


OF_NUMPY: dict[str, Any] = {
    "members": np.int64(2),
    "learning_rate": np.float32(0.125),
    "weight_decay": np.float32(0),
    "batch_size": np.int64(3),
    "max_epochs": np.uint8(3),
    "patience": np.int32(2),
    "validation": np.float32(0.25),
    "max_levels": np.int64(9),
    "warm_start": np.bool_(True),
    "verbose": np.int64(0),
    "random_state": np.int64(3),
    "metric": np.str_("mrr"),
    "schedule": np.str_("cycle"),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_a_parameter_of_numpy_is_as_one_of_python(name, tmp_path: Path):
    value = OF_NUMPY[name]
    ranker = quick(**{name: value}).fit(X, LABELS, qid=QID)
    expected = quick(**{name: value.item()}).fit(X, LABELS, qid=QID)
    np.testing.assert_array_equal(ranker.predict(X), expected.predict(X))
    ranker.save(tmp_path)
    assert NeuralRanker.load(tmp_path).get_params()[name] == value.item()


def test_numbers_of_numpy_elsewhere(tmp_path: Path):
    blend = Blend([quick()], validation=np.float32(0.25), verbose=np.int64(0))
    blend.fit(X, LABELS, qid=QID).save(tmp_path / "blend")
    assert Blend.load(tmp_path / "blend").validation == 0.25
    table = pa.table({"q": QID, "y": LABELS, "shop": [*"abc"] * 20})
    found = prepare(table, {"qid": "q", "label": "y"}, max_levels=np.int64(2))
    assert found.schema.categories["shop"].levels == ("a", "b")
    ranker = quick().fit(X, LABELS, qid=QID)
    options = {"opset": np.int64(18), "per_document": np.bool_(True)}
    path = ranker.export(tmp_path / "m.onnx", **options).model
    served = OnnxRanker(path, threads=np.int64(1))
    np.testing.assert_allclose(served.score_arrays(X), ranker.predict(X), atol=1e-5)


@pytest.mark.parametrize("scorer", [LinearScorer(), AttentionScorer(hidden=(4,), heads=2)])
def test_a_batch_that_is_larger_than_the_data(scorer):
    given = {"scorer": scorer, "validation": 0}
    ranker = quick(batch_size=2**63, **given).fit(X, LABELS, qid=QID)
    expected = quick(batch_size=12, **given).fit(X, LABELS, qid=QID)
    np.testing.assert_array_equal(ranker.predict(X, qid=QID), expected.predict(X, qid=QID))


@pytest.mark.parametrize("bucket", [True, False])
def test_a_batch_of_a_data_module_that_is_larger_than_the_data(bucket):
    table = pd.DataFrame(X, columns=["a", "b"]).assign(q=QID, y=LABELS)
    data = TableDataModule(table, "q", "y", validation=0.3, batch_size=2**63)
    data.bucket = bucket
    data.setup("fit")
    assert sum(len(batch["qid"]) for batch in data.train_dataloader()) == len(data.splits["train"])


@pytest.mark.parametrize("loss", [None, PointwiseMSE()])
def test_a_training_that_diverges_asks_for_a_smaller_learning_rate(loss):
    with pytest.raises(ValueError, match="a smaller learning rate helps"):
        quick(learning_rate=1e30, loss=loss, scorer=None).fit(X, LABELS, qid=QID)

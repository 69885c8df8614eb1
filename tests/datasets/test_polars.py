"""Tables of polars itself, where it is installed."""

import numpy as np
import pandas as pd
import pytest
from lightning.pytorch import Trainer

from ltr.datasets import Schema, TableDataModule, load_table, query_folds, read_table
from ltr.losses import SoftmaxLoss
from ltr.models import LinearScorer
from ltr.modules import Ranker

pl = pytest.importorskip("polars")


def test_each_type_of_column():
    nan = float("nan")
    frame = pl.DataFrame(
        {
            "q": ["a", "b", "a", "c"],
            "y": [0, 1, 2, 0],
            "x": [0.5, None, nan, 1],
            "n": pl.Series([1, None, 3, 4], dtype=pl.Int16),
            "v": pl.Series([[1.0, 2.0], [3.0, 4.0], None, [5, 6]], dtype=pl.Array(pl.Float32, 2)),
            "price": pl.Series(["1.5", "2.5", None, "1"]).cast(pl.Decimal(10, 2)),
            "shop": pl.Series(["s", "t", None, "s"], dtype=pl.Categorical),
            "size": pl.Series(["m", "l", None, "m"], dtype=pl.Enum(["l", "m"])),
            "name": ["s", None, "é", ""],
            "new": [True, None, False, True],
            "day": pl.Series([1, 2, 3, 4]).cast(pl.Date),
            "tags": [["a"], [], None, ["b"]],
        }
    )
    table = load_table(frame)
    schema = Schema.infer(table, qid="q", label="y").fit_levels(table)
    assert schema.features == {"x": 1, "n": 1, "v": 2, "price": 1, "day": 1}
    assert {name: one.levels for name, one in schema.categories.items()} == {
        "shop": ("s", "t"),
        "size": ("l", "m"),
        "name": ("", "s", "é"),
        "new": ("false", "true"),
    }
    for source in (frame, frame.slice(0, 4), pl.concat([frame[:1], frame[1:]], rechunk=False)):
        data = read_table(source, schema)
        assert data.qids == ["a", "b", "c"]
        assert data.rows.tolist() == [0, 2, 1, 3]
        np.testing.assert_array_equal(
            data.features,
            [
                [0.5, 1, 1, 2, 1.5, 1],
                [nan, 3, nan, nan, nan, 3],
                [nan, nan, 3, 4, 2.5, 2],
                [1, 4, 5, 6, 1, 4],
            ],
        )
        assert data.categories.tolist() == [[1, 2, 2, 2], [0, 0, 3, 1], [2, 1, 0, 0], [1, 2, 1, 2]]


def test_training_and_scores_are_those_of_pandas():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "q": rng.integers(0, 12, 90).astype(str),
            "y": rng.integers(0, 3, 90),
            "x": np.where(rng.random(90) < 0.2, np.nan, rng.normal(size=90)),
            "shop": rng.choice(list("abc"), 90),
        }
    )
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    found = []
    for one in (frame, pl.from_pandas(frame)):
        ranker = Ranker(LinearScorer(), SoftmaxLoss())
        run = Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet)
        data = TableDataModule(one, qid="q", label="y", validation=0.3)
        data.setup("fit")
        ranker.scorer.build(data.feature_transform.out_features)
        for weight in ranker.scorer.parameters():
            weight.data.zero_()
        run.fit(ranker, datamodule=data)
        fresh = TableDataModule(one)
        assert ranker.schema is not None
        fresh.use_schema(ranker.schema)
        found.append((ranker.schema, ranker.model.score(fresh.dataset("predict"))))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    folds = query_folds(pl.from_pandas(frame)["q"], 3).folds
    np.testing.assert_array_equal(folds, query_folds(frame["q"], 3).folds)


def test_errors_name_row_and_column():
    good = {"q": [1, 1], "y": [0, 1], "x": [1.0, 2.0]}
    for change, message in (
        ({"q": [1, None]}, "row 1, column 'q': a qid must not be missing"),
        ({"y": [1, None]}, "row 1, column 'y': a label must be a finite number >= 0, got nothing"),
        ({"x": [1.0, float("inf")]}, "row 1, column 'x': must be finite"),
    ):
        frame = pl.DataFrame({**good, **change})
        with pytest.raises(ValueError, match=message):
            TableDataModule(frame, qid="q", label="y", val_path=frame).setup("fit")
    with pytest.raises(ValueError, match=r"got a LazyFrame: call collect\(\)"):
        load_table(pl.DataFrame(good).lazy())
    with pytest.raises(ValueError, match="the table must have at least one row, got none"):
        load_table(pl.DataFrame(good)[:0])

"""Tables to score that come after training: chunks without values in a column, and without rows."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMRanker

from ltr.cli import main
from ltr.estimators import Blend, NeuralRanker
from ltr.models import AttentionScorer, LinearScorer, RankingModel
from ltr.serving import OnnxRanker

pytestmark = pytest.mark.filterwarnings("ignore:columns of the table")

ROWS, FEW = 60, 6
QID = np.arange(ROWS) // 5


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=ROWS)
    return pd.DataFrame(
        {
            "price": rng.normal(size=ROWS),
            "shop": rng.choice(list("xyz"), ROWS),
            "new": rng.random(ROWS) < 0.5,
            "day": days,
            "written": days.strftime("%Y-%m-%d"),
            "size": pd.Categorical(rng.choice([1, 2, 5], ROWS)),
        }
    )


LABELS = (table()["price"] > 0.3).astype(int).to_numpy()

NOTHING: dict[str, Callable[[], Any]] = {
    "float": lambda: np.full(FEW, np.nan),
    "text": lambda: pd.Series([None] * FEW, dtype=str),
    "boolean": lambda: pd.array([None] * FEW, dtype="boolean"),
    "integer": lambda: pd.array([None] * FEW, dtype="Int64"),
    "arrow": lambda: pd.array([None] * FEW, dtype=pd.ArrowDtype(pa.float32())),
    "time": lambda: pd.Series([pd.NaT] * FEW),
    "zone": lambda: pd.Series([pd.NaT] * FEW).dt.tz_localize("UTC"),
    "category": lambda: pd.Categorical([None] * FEW, categories=["q"]),
    "category of numbers": lambda: pd.Categorical([None] * FEW, categories=[1.5]),
}
"""Columns without a value, of all types."""


def network(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"scorer": LinearScorer(), "members": 1, "max_epochs": 2, "verbose": 0}
    return NeuralRanker(**{**small, "random_state": 0, **parameters})


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., np.ndarray]]:
    """All ways to score a table, by name."""
    folder = tmp_path_factory.mktemp("models")
    ranker = network().fit(table(), LABELS, qid=QID)
    blend = Blend([network(), LGBMRanker(n_estimators=5, verbose=-1, n_jobs=1)], verbose=0)
    blend.fit(table(), LABELS, qid=QID)
    ranker.save(folder / "ranker")
    blend.save(folder / "blend")
    ranker.export(folder / "ranker.onnx")
    of_trees = copy.copy(blend)
    of_trees.weights_ = np.array([0.0, 1.0])  # the first file has a network
    of_trees.export(folder / "blend.onnx")

    def command(frame: Any, model: str) -> np.ndarray:
        data, scores = folder / "data.parquet", folder / "scores.parquet"
        pd.DataFrame(frame).to_parquet(data)
        main(["predict", str(folder / model), str(data), "--output", str(scores)])
        return pd.read_parquet(scores)["score"].to_numpy()

    return {
        "NeuralRanker": ranker.predict,
        "RankingModel": RankingModel.load(folder / "ranker").predict,
        "Blend": blend.predict,
        "loaded Blend": Blend.load(folder / "blend").predict,
        "model of a Blend": blend.model_.predict,
        "file": OnnxRanker(folder / "ranker.onnx").predict,
        "file of a Blend": OnnxRanker(folder / "blend.onnx").predict,
        "ltr predict": lambda frame: command(frame, "ranker"),
        "ltr predict of a Blend": lambda frame: command(frame, "blend"),
        "ltr predict of a file": lambda frame: command(frame, "ranker.onnx"),
    }


@pytest.mark.parametrize("column", [*table()])
def test_the_type_of_a_column_without_values_does_not_matter(doors, column):
    few = table().iloc[:FEW]
    rows = few.assign(**{column: np.full(FEW, None)})
    expected = {name: score(rows) for name, score in doors.items()}
    at, wrong = [*table()].index(column), []
    for number, (kind, nothing) in enumerate(NOTHING.items()):
        chunk = few.assign(**{column: nothing()})
        for name, score in doors.items():
            if "ltr predict" in name and (number - at) % 3:
                continue  # a command writes and reads files: each kind with two columns will do
            try:
                same = np.array_equal(score(chunk), expected[name])
            except Exception as error:
                same = False
                kind += f" ({error})"
            wrong += [] if same else [f"{name}: {kind}"]
    assert not wrong


@pytest.mark.parametrize("column", [*table()])
def test_a_value_of_another_type_is_still_an_error(doors, column):
    other = {"price": "cheap", "shop": 1.5, "new": 1.5, "day": 1.5, "written": 1.5, "size": "big"}
    values = [None] * (FEW - 1) + [other[column]]  # the first values are missing
    chunk = table().iloc[:FEW].assign(**{column: pd.Series(values)})
    for name in ("NeuralRanker", "RankingModel", "Blend"):
        with pytest.raises(ValueError, match=f"column '{column}'"):
            doors[name](chunk)


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas])
def test_nan_of_polars_and_arrow(doors, make):
    rows = table().iloc[:FEW].drop(columns="size").assign(size=1, shop=np.nan)
    expected = doors["NeuralRanker"](rows.assign(shop=None))
    np.testing.assert_array_equal(doors["NeuralRanker"](make(rows)), expected)
    nan = pl.from_pandas(rows).with_columns(shop=pl.Series([float("nan")] * FEW))
    np.testing.assert_array_equal(doors["NeuralRanker"](nan), expected)


def test_vectors_of_another_size():
    rows = pl.DataFrame({"v": pl.Series(np.eye(ROWS)[:, :3], dtype=pl.Array(pl.Float32, 3))})
    ranker = network().fit(rows, np.eye(ROWS)[0], qid=np.zeros(ROWS, int))
    none = pl.DataFrame({"v": pl.Series([[None, None]] * FEW, dtype=pl.Array(pl.Float32, 2))})
    missing = pl.DataFrame({"v": pl.Series([None] * FEW, dtype=pl.Array(pl.Float32, 3))})
    np.testing.assert_array_equal(ranker.predict(none), ranker.predict(missing))
    with pytest.raises(ValueError, match="column 'v' must be lists of size 3"):
        ranker.predict(rows.with_columns(v=pl.col("v").arr.to_list().list.head(2).list.to_array(2)))


def test_later_chunks_of_a_training(tmp_path: Path):
    rows = table().astype({"new": object}).assign(label=LABELS, query=QID)
    rows.loc[FEW:, ["shop", "new", "written"]] = None
    rows.to_csv(path := tmp_path / "t.csv", index=False)
    ranker = network()
    for start, chunk in enumerate(pd.read_csv(path, chunksize=ROWS // 2, parse_dates=["day"])):
        assert (chunk["shop"].dtype == float) == (start == 1)
        y, qid = chunk.pop("label"), chunk.pop("query")
        ranker.partial_fit(chunk, y, qid=qid)
    last = rows.iloc[ROWS // 2 :].drop(columns=["label", "query"]).assign(shop=np.nan, new=np.nan)
    evaluation = {"eval_set": [(last, LABELS[last.index])], "eval_qid": [QID[last.index]]}
    whole = network().fit(table(), LABELS, qid=QID, **evaluation)
    assert np.isfinite(whole.predict(last)).all()


EMPTY: dict[str, Callable[[], Any]] = {
    "pandas": lambda: table().iloc[:0],
    "columns alone": lambda: pd.DataFrame(columns=[*table()]),
    "polars": lambda: pl.from_pandas(table()).clear(),
    "arrow": lambda: pa.Table.from_pandas(table()).slice(0, 0),
}
"""Tables with the columns of the training, but without rows."""


@pytest.mark.parametrize("empty", EMPTY)
def test_a_table_without_rows_has_no_scores(doors, empty):
    for name, score in doors.items():
        frame = EMPTY[empty]()
        if "ltr predict" in name and empty != "pandas":
            continue  # the command reads a file
        assert score(frame).shape == (0,), name


def test_an_array_without_rows_has_no_scores():
    rows = np.random.default_rng(0).normal(size=(ROWS, 2))
    for ranker in (network(), Blend([network()], verbose=0)):
        ranker.fit(rows, rows[:, 0] > 0, qid=QID)
        assert ranker.predict(rows[:0]).shape == ranker.rank(rows[:0], qid=[]).shape == (0,)
        with pytest.raises(ValueError, match=r"0 features|X has 1 feature"):
            ranker.predict(rows[:0, :1])


def test_without_rows_and_with_scores_that_depend_on_the_list(tmp_path: Path):
    ranker = network(scorer=AttentionScorer(hidden=(4,), heads=2, blocks=1))
    rows = table()[["price"]]
    ranker.fit(rows, LABELS, qid=pd.Series(QID, name="query"))
    assert ranker.predict(rows.iloc[:0], qid=[]).shape == (0,)
    assert ranker.model_.predict(rows.iloc[:0].assign(query=[])).shape == (0,)
    ranker.save(tmp_path / "model")
    rows.iloc[:0].assign(query=[]).to_csv(tmp_path / "t.csv", index=False)
    paths = [str(tmp_path / name) for name in ("model", "t.csv", "scores.csv")]
    main(["predict", *paths[:2], "--output", paths[2]])
    assert (tmp_path / "scores.csv").read_text().strip() == '"query","score","rank"'


def test_the_rank_and_the_metric_without_rows(doors):
    ranker = network().fit(table(), LABELS, qid=QID)
    assert ranker.rank(table().iloc[:0], qid=[]).tolist() == []
    with pytest.raises(ValueError, match="X must have at least one row for a metric, got none"):
        ranker.score(table().iloc[:0], [], qid=[])
    with pytest.raises(ValueError, match="the table must have at least one row, got none"):
        network().fit(table().iloc[:0], [], qid=[])


def test_a_vector_of_size_one_is_a_number(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=ROWS)
    plain = pd.DataFrame({"v": values, "w": values**2})
    kind = pl.Array(pl.Float64, 1)
    vectors = pl.DataFrame({"v": pl.Series(values[:, None], dtype=kind), "w": values**2})
    ranker = network().fit(vectors, LABELS, qid=QID)
    np.testing.assert_array_equal(
        ranker.predict(plain), network().fit(plain, LABELS, qid=QID).predict(plain)
    )
    np.testing.assert_array_equal(ranker.predict(vectors), ranker.predict(plain))
    gap = [None, [None], *([[x] for x in values[:4].tolist()])]
    some = pl.DataFrame({"v": pl.Series(gap, dtype=kind), "w": values[:6] ** 2})
    assert ranker.predict(some)[0] == ranker.predict(some.with_columns(v=pl.lit(None)))[0]
    ranker.export(path := tmp_path / "m.onnx")
    served = OnnxRanker(path)
    expected = ranker.predict(some)
    np.testing.assert_allclose(served.predict(some), expected, atol=1e-5)
    np.testing.assert_allclose(served.score(some.to_dicts()), expected, atol=1e-5)
    with pytest.raises(ValueError, match="column 'v' must hold 1 number"):
        served.score([{"v": [1.0, 2.0], "w": 0.0}])

"""Arrow's types, in Arrow tables, in pandas and polars frames and in rows of a service."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.columns import steps_of
from ltr.datasets import Standardize, TableTransform
from ltr.datasets.prepare import prepare
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.serving import OnnxRanker

ROWS = 28
ROLES: dict[str, Any] = {"qid": "query", "label": "grade"}
NUMBERS = [None if i % 7 == 3 else i % 5 + 0.5 for i in range(ROWS)]
DECIMALS = [None if x is None else Decimal(str(x)) for x in NUMBERS]
TEXTS = [None if x is None else f"s{x}" for x in NUMBERS]
DAYS = [None if x is None else dt.datetime(2024, 1, int(x) + 1, 5) for x in NUMBERS]

COLUMNS = {
    "double": pa.array(NUMBERS),
    "float": pa.array(NUMBERS, pa.float32()),
    "uint8": pa.array([None if x is None else int(x) for x in NUMBERS], pa.uint8()),
    "bool": pa.array([None if x is None else x > 2 for x in NUMBERS]),
    "decimal128": pa.array(DECIMALS, pa.decimal128(10, 3)),
    "decimal256": pa.array(DECIMALS, pa.decimal256(50, 3)),
    "decimal32": pa.array(DECIMALS, pa.decimal128(5, 2)).cast(pa.decimal32(5, 2)),
    "decimal64": pa.array(DECIMALS, pa.decimal128(12, 4)).cast(pa.decimal64(12, 4)),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "date32": pa.array(DAYS, pa.date32()),
    "timestamp": pa.array(DAYS, pa.timestamp("ns", "UTC")),
    "null": pa.nulls(ROWS),
    "vector": pa.array([[x or 0, 1.0] for x in NUMBERS], pa.list_(pa.float32(), 2)),
}
CATEGORIES = ["decimal128", "decimal32", "float", "double", "uint8"]


def table(column: pa.Array) -> pa.Table:
    return pa.table(
        {
            "query": np.arange(ROWS) // 4,
            "grade": np.arange(ROWS) % 3,
            "x": np.arange(ROWS) * 0.5,
            "column": column,
        }
    )


def arrow_frame(given: pa.Table) -> pd.DataFrame:
    """Return a pandas frame whose columns have Arrow's types."""
    columns = zip(given.column_names, given.columns, strict=True)
    return pd.DataFrame({name: pd.arrays.ArrowExtensionArray(one) for name, one in columns})


@pytest.mark.parametrize("door", ["pandas", "parquet", "arrow"])
@pytest.mark.parametrize(
    ("name", "as_category"),
    [*((x, False) for x in COLUMNS), *((x, True) for x in CATEGORIES)],
)
def test_a_column_of_arrow_is_one_thing_in_every_door(
    tmp_path: Path, name: str, as_category: bool, door: str
):
    given = table(COLUMNS[name])
    roles = {**ROLES, "categories": ["column"]} if as_category else ROLES
    source: Any = given
    if door == "pandas":
        source = arrow_frame(given)
    elif door == "parquet":
        pq.write_table(given, source := tmp_path / "t.parquet")
    column: Any = COLUMNS[name]
    if pa.types.is_decimal(column.type):
        column = pa.array([None if x is None else float(x) for x in DECIMALS])
    elif name == "string_view":
        column = column.cast(pa.string())
    expected = prepare(table(column), roles)
    found = prepare(source, roles)
    assert found.schema == expected.schema
    np.testing.assert_array_equal(found.train.features, expected.train.features)
    np.testing.assert_array_equal(found.train.categories, expected.train.categories)
    # A service reads the values of frames, of Arrow and of numpy as the table does.
    read = expected.schema.steps["column"].read("column", pa.chunked_array([column]))
    step = steps_of(found.schema.to_dict())["column"]
    for values in (
        arrow_frame(given)["column"].tolist(),
        given["column"].to_pylist(),
        [*given.to_pandas()["column"]],
    ):
        np.testing.assert_array_equal(step.encode("column", values, np.float32), read)


@pytest.mark.parametrize("use", ["query", "grade", "weight"])
def test_decimals_may_be_any_column(use: str):
    given = table(COLUMNS["double"])
    weight = pa.array([Decimal(i % 3 + 1) for i in range(ROWS)], pa.decimal128(5, 2))
    if use == "weight":
        given = given.append_column("weight", weight)
    else:
        numbers = given[use].cast(pa.decimal128(20, 1))
        given = given.set_column(given.column_names.index(use), use, numbers)
    roles = {**ROLES, "weight": "weight"} if use == "weight" else ROLES
    for source in (given, arrow_frame(given), given.to_pandas()):
        found = prepare(source, roles)
        assert found.train.labels.tolist() == [i % 3 for i in range(ROWS)]
        assert found.train.qids == [str(i) for i in range(ROWS // 4)]
        if use == "weight":
            assert found.train.weight is not None
            assert found.train.weight.tolist() == [i % 3 + 1 for i in range(ROWS)]


def test_a_service_knows_the_levels_of_decimals(tmp_path: Path):
    given = table(COLUMNS["decimal128"])
    found = prepare(given, {**ROLES, "categories": ["column"]})
    quick = {"transform": TableTransform(Standardize()), "members": 1, "max_epochs": 3}
    ranker = NeuralRanker(**quick, random_state=0, verbose=0).fit(found)
    expected = ranker.predict(given)
    served = OnnxRanker(export_model(ranker.model_, tmp_path / "m.onnx").model)
    documents = [given.to_pylist(), given.to_pandas(), arrow_frame(given), given]
    for one in documents:
        np.testing.assert_allclose(served.score(one), expected, rtol=1e-4, atol=1e-5)
    assert len({*expected.round(6).tolist()}) > ROWS // 2

"""A column is treated alike in training and in serving."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ltr.columns import steps_of
from ltr.datasets.column_steps import STEPS, Category, Date, Number, Vector
from ltr.datasets.schema import Schema

UTC = datetime.UTC
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "number": (Number(), [1.5, None, 3, -0.25]),
    "flag": (Number(), [True, None, False, True]),
    "vector": (Vector(2), [[1.0, 2.0], None, [0.5, None], [3.0, 4.0]]),
    "day": (Date("naive"), [datetime.date(2024, 2, 29), None, datetime.date(1969, 1, 1), None]),
    "text": (Date("naive", hour=True), ["2024-02-29T12:30:15", None, "1969-01-01", " 2024-01-01"]),
    "at": (Date("utc", hour=True), ["2024-02-29T23:30:00+02:00", None, "2024-01-01T00:00:00Z"]),
    "shop": (Category("string", ("a", "b")), ["b", None, "c", "a"]),
    "id": (Category("number", ("7", "8.5", str(10**18 + 1))), [7, None, 10**18 + 1]),
    "ean": (Category("number", ("4006381333931",)), [4006381333931, None, 10**10]),
    "size": (
        Category("number", ("10000000000", "1e-05", "7", "8.5")),
        [7.0, None, 8.5, 9.0, 1e10, 1e-5],
    ),
    "new": (Category("boolean", ("false", "true")), [True, None, False]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_step_reads_a_table_as_it_encodes_plain_values(name: str):
    step, values = COLUMNS[name]
    vectors = pa.list_(pa.float32(), 2) if name == "vector" else None
    column = pa.chunked_array([pa.array(values, vectors)])
    step.check(name, column.type)
    if name == "vector":  # JSON has a number at each position
        values = [one and [np.nan if x is None else x for x in one] for one in values]
    plain = step.encode(name, values, np.int64 if isinstance(step, Category) else np.float32)
    np.testing.assert_array_equal(step.read(name, column), plain)


def test_plain_data_gives_the_same_steps_to_both():
    steps = {name: step for name, (step, _) in COLUMNS.items()}
    data = Schema("q", steps=steps).to_dict()
    assert steps_of(data, STEPS) == steps
    serving = steps_of(data)
    assert {name: one.describe() for name, one in serving.items()} == {
        name: one.describe() for name, one in steps.items()
    }


@pytest.mark.parametrize(
    ("step", "dtype", "message"),
    [
        (Number(), pa.string(), "'x' must be numbers, as in training, got type string"),
        (Vector(2), pa.list_(pa.float32(), 3), "'x' must be lists of size 2"),
        (Date("utc"), pa.timestamp("us"), "'x' must be dates with a time zone"),
        (Date("naive"), pa.int64(), "'x' must be dates, as in training"),
        (Category("string"), pa.int64(), "'x' must be text, as in training"),
    ],
)
def test_another_type_than_in_training(step: Any, dtype: pa.DataType, message: str):
    with pytest.raises(ValueError, match=message):
        step.check("x", dtype)
    step.check("x", pa.null())

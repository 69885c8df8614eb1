"""One preparation: the lists of `read_table`, in one array."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.datasets import Schema, TableDataModule, convert, infer, read_table
from ltr.datasets.frames import Frame
from ltr.datasets.prepare import prepare
from ltr.datasets.splits import query_shares
from ltr.estimators.list_input import read_lists
from ltr.estimators.tables import row_numbers

ROLES = {"qid": "query", "label": "grade"}


def frame(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(rows, 11)), columns=[f"f{i}" for i in range(11)])
    made["f3"] = made["f3"].where(rng.random(rows) < 0.5)
    return made.assign(
        query=rng.integers(0, 30, rows),
        grade=rng.integers(0, 3, rows),
        day=pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, rows), "h"),
        shop=rng.choice(list("abc"), rows),
    )


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_training_and_validation_lists_are_those_of_the_whole_table(kind: str):
    made = frame()
    table = pa.Table.from_pandas(made)
    found = prepare(made if kind == "pandas" else table, ROLES, validation=0.3, seed=1)
    qids = np.unique(made["query"])
    held = np.isin(made["query"], qids[query_shares(qids.tolist(), 1) < 0.3])
    train = table.filter(pa.array(~held))
    assert found.schema == Schema.infer(table, **ROLES).fit_levels(train)
    for part, rows in ((found.train, ~held), (found.val, held)):
        assert part is not None
        want = read_table(table.filter(pa.array(rows)), found.schema)
        assert part.qids == want.qids
        np.testing.assert_array_equal(part.features, want.features)
        np.testing.assert_array_equal(part.labels, want.labels)
        np.testing.assert_array_equal(part.categories, want.categories)
        np.testing.assert_array_equal(part.offsets, want.offsets)
        np.testing.assert_array_equal(part.rows, np.flatnonzero(rows)[want.rows])
    assert found.val is not None
    assert found.train.features.base is found.val.features.base  # one array, no copies


def test_a_wide_embedding_beside_numbers():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(60, 41)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers[:, 1:40].ravel()), 39)
    table = pa.table(
        {
            "query": rng.integers(0, 6, 60),
            "grade": rng.integers(0, 3, 60),
            "a": numbers[:, 0],
            "v": vectors,
            "b": numbers[:, 40],
        }
    )
    data = prepare(table, ROLES).train
    np.testing.assert_array_equal(data.features, numbers[data.rows])


def test_too_few_queries():
    made = frame(40).assign(query=1)
    assert prepare(made, ROLES, validation=0.3).val is None
    data = TableDataModule(made, **ROLES, validation=0.3)
    with pytest.raises(ValueError, match=r"validation must leave queries .* 0\.3 of 1 queries"):
        data.setup("fit")
    equal = frame().assign(grade=lambda x: x["query"] % 3)  # no list has two labels
    assert (
        read_lists(prepare(equal, ROLES), {"eval_set": None}, row_numbers, None, validation=0.3).val
        is None
    )


def test_the_levels_of_an_earlier_training_are_kept():
    schema = prepare(frame(), ROLES).schema
    again = prepare(frame().assign(shop="d"), ROLES, schema=schema)
    assert again.schema == schema
    assert not again.notice
    assert not again.train.categories.any()  # pyright: ignore[reportOptionalMemberAccess]


def test_a_frame_does_not_copy_numbers():
    made = frame()
    kept = Frame.of(made)
    values = kept.column("grade").chunk(0).to_numpy()
    assert np.shares_memory(values, made["grade"].to_numpy())


def test_rare_levels_are_forgotten_if_there_are_too_many(monkeypatch):
    monkeypatch.setattr(infer, "MOST_LEVELS", 4)
    levels = infer.Levels("shop")
    levels.counts = Counter({"a": 5, "b": 4, "c": 1})
    levels.add(pa.table({"shop": ["d", "e", "a"]}), 10)
    assert levels.counts == {"a": 6, "b": 4}


@pytest.mark.parametrize(("key", "message"), [("q", "a qid must be"), ("y", "a label must be")])
def test_a_key_of_lists_is_named(key: str, message: str, tmp_path: Path):
    table = pa.table({"q": [1, 2], "y": [0, 1], "x": [1, 2], key: [[1], [2]]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=f"column '{key}': {message}"):
        prepare(table, {"qid": "q", "label": "y"})
    with pytest.raises(ValueError, match=f"column '{key}': {message}"):
        convert(tmp_path / "t.parquet", tmp_path / "lists", qid="q", label="y")

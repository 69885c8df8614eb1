"""Tables of any kind become lists; what cannot be read is named."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.datasets import Category, Schema, collate_lists, load_table, read_table
from ltr.datasets.column_steps import Number

FRAME = pd.DataFrame(
    {
        "query": ["b", "a", "b", "c", "a"],
        "grade": [0, 1, 2, 0, 1],
        "price": [1.5, np.nan, -3.0, 4.0, 0.25],
        "stock": pd.array([3, 1, None, 2, 0], dtype="Int64"),
        "shop": pd.Categorical(["x", "y", None, "x", "z"]),
        "new": [True, False, False, True, True],
        "doc": ["D1", "D2", "D3", "D4", "D5"],
    }
)
USES = {"qid": "query", "label": "grade", "doc_id": "doc"}


def infer(table: pa.Table, **uses: object) -> Schema:
    return Schema.infer(table, **{**USES, **uses}).fit_levels(table)


class Stream:
    """A table of another library, as polars has it: Arrow's stream and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def sources(folder: Path) -> dict[str, object]:
    table = load_table(FRAME)
    FRAME.to_csv(folder / "t.csv", index=False)
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    pq.write_table(table, folder / "t.parquet")
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 2), folder / "parts" / "1.parquet")
    pq.write_table(table.slice(2), folder / "parts" / "2.parquet")
    return {
        "pandas": FRAME,
        "arrow": table,
        "stream": Stream(table),
        "csv": folder / "t.csv",
        "csv.gz": folder / "t.csv.gz",
        "parquet": folder / "t.parquet",
        "folder": folder / "parts",
        "pattern": str(folder / "parts" / "*.parquet"),
    }


@pytest.mark.parametrize(
    "kind", ["pandas", "arrow", "stream", "csv", "csv.gz", "parquet", "folder", "pattern"]
)
def test_every_source_gives_the_same_lists(tmp_path: Path, kind: str):
    source = sources(tmp_path)[kind]
    schema = infer(load_table(source, text={"doc", "query"}))
    assert schema.features == {"price": 1, "stock": 1}
    assert schema.categories == {
        "shop": Category("string", ("x", "y", "z")),
        "new": Category("boolean", ("false", "true")),
    }
    data = read_table(source, schema)
    assert data.qids == ["b", "a", "c"]
    assert data.lengths.tolist() == [2, 2, 1]
    assert data.rows.tolist() == [0, 2, 1, 4, 3]
    assert data.labels.tolist() == [0, 2, 1, 1, 0]
    assert data.doc_id.to_pylist() == ["D1", "D3", "D2", "D5", "D4"]
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(
        data.features, [[1.5, 3], [-3, np.nan], [np.nan, 1], [0.25, 0], [4, 2]]
    )
    assert data.categories.tolist() == [[1, 2], [0, 1], [2, 1], [3, 2], [1, 2]]
    batch = collate_lists([data[0], data[2], data[-1]])
    assert batch["rows"].tolist() == [[0, 2], [3, 0], [0, 0]]
    assert batch["categories"].shape == (3, 2, 2)
    assert data.select([2]).categories.tolist() == [[1, 2]]


def test_a_schema_is_plain_data():
    schema = infer(load_table(FRAME))
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert again.difference(schema) is None
    plain = schema.to_dict()
    unknown = {**plain, "group": plain["protected"]}
    for broken in ({}, {**plain, "qid": 3}, {**plain, "features": {"x": 0}}, unknown):
        with pytest.raises(ValueError, match="a schema must"):
            Schema.from_dict(broken)


def test_columns_match_by_name():
    schema = infer(load_table(FRAME))
    new = FRAME[["shop", "doc", "stock", "query", "price", "new"]].assign(more=1)
    schema.check(load_table(new), optional={"grade"})
    with pytest.raises(ValueError, match="grade"):
        schema.check(load_table(new))
    schema.check(new.drop(columns="price"), optional={"grade", "price"})
    data = read_table(new, schema, needs_label=False)
    assert not data.has_labels
    assert "labels" not in data[0]
    assert "there are no labels" in str(data.summary())
    with pytest.raises(ValueError, match="must have labels"):
        data.labels  # noqa: B018
    np.testing.assert_array_equal(data.features, read_table(FRAME, schema).features)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="price"), "must have the column 'price', as in training"),
        (lambda t: t.drop(columns="shop"), "must have the column 'shop'"),
        (lambda t: t.drop(columns="grade"), "must have the column 'grade'"),
        (lambda t: t.assign(shop=1), "column 'shop'.*type int64"),
        (lambda t: t.assign(new="yes"), "column 'new' must"),
        (
            lambda t: t.assign(price=["1", "2", "?", "4", "5"]),
            "row 2, column 'price': a feature must be a number, got '\\?'",
        ),
        (
            lambda t: t.assign(price=pd.Timestamp("2024-01-01")),
            "column 'price'.*type timestamp",
        ),
    ],
)
def test_a_missing_or_retyped_column_is_named(change, message):
    schema = infer(load_table(FRAME))
    with pytest.raises(ValueError, match=message):
        read_table(change(FRAME), schema)


def test_numbers_may_change_their_width():
    schema = infer(load_table(FRAME))
    data = read_table(FRAME.assign(price=pd.array([1, 2, 3, 4, 5], dtype="int8")), schema)
    assert data.features[:, 0].tolist() == [1, 3, 2, 5, 4]
    assert read_table(FRAME.assign(stock=None), schema).features.shape == (5, 2)


def test_an_unseen_category_has_code_0():
    schema = infer(load_table(FRAME))
    assert read_table(FRAME.assign(shop="w"), schema).categories[:, 0].tolist() == [0] * 5


def test_codes_are_of_the_levels_whatever_their_order():
    schema = infer(load_table(FRAME))
    other = FRAME.assign(shop=pd.Categorical(FRAME["shop"], categories=["z", "y", "x"]))
    assert (
        read_table(other, schema).categories.tolist()
        == read_table(FRAME, schema).categories.tolist()
    )


def test_categories_of_numbers():
    table = pa.table({"q": [1, 1, 1], "brand": [7, 8, 7], "x": [1, 2, 3]})
    schema = Schema.infer(table, qid="q", categories=["brand"]).fit_levels(table)
    assert schema.categories == {"brand": Category("number", ("7", "8"))}
    assert schema.features == {"x": 1}
    floats = pa.table({"q": [1, 1, 1], "brand": [8.0, None, float("nan")], "x": [1, 2, 3]})
    assert read_table(floats, schema, needs_label=False).categories.tolist() == [[2], [0], [0]]


def test_large_identifiers_in_csv_keep_their_codes(tmp_path: Path):
    ids = [10**18 + 1, 10**18 + 2, 7]
    table = pd.DataFrame({"query": [1, 1, 1], "user": pd.Categorical(ids)})
    schema = Schema.infer(table, qid="query").fit_levels(load_table(table))
    table.to_csv(tmp_path / "t.csv", index=False)
    data = read_table(tmp_path / "t.csv", schema, needs_label=False)
    assert data.categories.tolist() == [[1], [2], [3]]
    write(tmp_path / "f.csv", "query,user\n1,7.0\n1,8.5\n")
    data = read_table(tmp_path / "f.csv", schema, needs_label=False)
    assert data.categories.tolist() == [[3], [0]]


def test_rare_levels_share_the_code_0():
    table = pa.table({"q": [1] * 6, "c": ["a", "b", "b", "c", "c", "c"]})
    schema = Schema.infer(table, qid="q").fit_levels(table, max_levels=2)
    assert schema.categories["c"].levels == ("b", "c")


def test_an_embedding_counts_as_its_size():
    vectors = pa.array([[1, 2, 3], None, [4, None, 6]], pa.list_(pa.float32(), 3))
    table = pa.table({"q": [1, 2, 1], "x": [7, 8, 9], "v": vectors})
    schema = Schema.infer(table, qid="q")
    assert schema.features == {"x": 1, "v": 3}
    assert schema.num_features == 4
    data = read_table(table, schema, needs_label=False)
    nan = np.nan
    np.testing.assert_array_equal(data.features, [[7, 1, 2, 3], [9, 4, nan, 6], [8, nan, nan, nan]])
    np.testing.assert_array_equal(
        read_table(table.slice(1), schema, needs_label=False).features[0], [8, nan, nan, nan]
    )
    short = table.set_column(2, "v", pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)))
    with pytest.raises(ValueError, match="column 'v' must"):
        read_table(short, schema, needs_label=False)


def test_weights_positions_and_groups():
    table = pa.table({"q": [1, 1], "w": [0.5, 2], "p": [1, 3], "g": [-1, 1], "x": [1, 2]})
    schema = Schema.infer(table, qid="q", weight="w", position="p", protected="g")
    assert [*schema.features] == ["x"]
    assert Schema.from_dict(schema.to_dict()) == schema
    item = read_table(table, schema, needs_label=False)[0]
    assert item["weight"].tolist() == [0.5, 2]
    assert item["position"].tolist() == [1, 3]
    assert item["protected"].tolist() == [-1, 1]
    booleans = table.set_column(3, "g", pa.array([True, False]))
    assert read_table(booleans, schema, needs_label=False)[0]["protected"].tolist() == [1, 0]
    for name, bad, message in (
        ("w", [0.5, -1], "row 1, column 'w': a weight must be a finite number >= 0, got -1"),
        ("p", [0, 1], "row 0, column 'p': a position must be a whole number >= 1, got 0"),
        ("p", [1, 1.5], "row 1, column 'p': a position must be a whole number >= 1, got 1.5"),
        ("g", [1, None], "row 1, column 'g'.*nothing"),
        ("g", ["a", "b"], "row 0, column 'g'.*'a'"),
    ):
        position = table.column_names.index(name)
        with pytest.raises(ValueError, match=message):
            read_table(table.set_column(position, name, pa.array(bad)), schema, needs_label=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.iloc[:0], "the table.*none"),
        (lambda t: t.assign(query=["b", None, "b", "c", "a"]), "row 1, column 'query': a qid must"),
        (lambda t: t.assign(query=["b", "a", "", "c", "a"]), "row 2, column 'query': a qid must"),
        (lambda t: t.assign(query=[1, 2, np.nan, 3, 4]), "row 2, column 'query': a qid must"),
        (lambda t: t.assign(price=[1, 2, 3, np.inf, 5]), "row 3, column 'price': .* got inf"),
        (lambda t: t.assign(price=[1, 1e39, 3, 4, 5]), r"row 1, column 'price': .* got 1e\+39"),
        (
            lambda t: t.assign(grade=[0, 1, np.nan, 0, 1]),
            "row 2, column 'grade': a label .*nothing",
        ),
        (lambda t: t.assign(grade=[0, 1, 2, -1, 1]), "row 3, column 'grade': .* got -1 .*padding"),
        (lambda t: t.assign(grade=["0", "1", "good", "0", "1"]), "row 2, column 'grade': a label"),
        (lambda t: t.assign(grade=[0, 1, np.inf, 0, 1]), "row 2, column 'grade': .* got inf"),
        (lambda t: t.assign(doc=["a", "b", None, "c", "d"]), "row 2, column 'doc': a document id"),
        (lambda t: t.assign(doc=[1, 2, np.nan, 3, 4]), "row 2, column 'doc': a document id"),
        (lambda t: t.assign(doc=[[1]] * 5), "column 'doc': a document id must be a name or a num"),
        (lambda t: t.assign(query=[[1]] * 5), "column 'query': a qid must be a name or a number"),
        (
            lambda t: t.assign(price=pd.arrays.SparseArray([1.0, 0, 0, 0, 2])),
            r"column 'price' of type Sparse\[float64",
        ),
        (
            lambda t: t.assign(price=[1, "x", 2, 3, 4]),
            "row 1, column 'price': values of mixed types, got 'x' of type str after 1 of type int",
        ),
        (
            lambda t: t.assign(price=np.array([1, 2.5, "x", 3, 4], object)),
            "row 2, column 'price': values of mixed types, got 'x' of type str after 1 of type int",
        ),
        (
            lambda t: t.rename(columns={"stock": "price"}),
            "duplicate column 'price'",
        ),
    ],
)
def test_bad_values_are_named(change, message):
    schema = infer(load_table(FRAME))
    with pytest.raises(ValueError, match=message):
        read_table(change(FRAME), schema)


@pytest.mark.parametrize(
    ("uses", "message"),
    [
        ({"qid": "nothing"}, "qid.*'nothing'"),
        ({"qid": None}, "qid must name a column.*None"),
        ({"features": ["shop"]}, "a feature.*column 'shop'"),
        ({"features": ["price", "price"]}, "a column.*'price'"),
        ({"label": "query"}, "a column.*'query' as qid and as label"),
        ({"features": [], "categories": []}, "a table must"),
    ],
)
def test_uses_that_cannot_be(uses, message):
    with pytest.raises(ValueError, match=message):
        Schema.infer(load_table(FRAME), **{**USES, **uses})


def test_constant_and_missing_columns_are_features():
    table = pa.table({"q": [1, 2], "one": [5, 5], "none": pa.nulls(2)})
    schema = Schema.infer(table, qid="q")
    assert schema.features == {"one": 1, "none": 1}
    np.testing.assert_array_equal(
        read_table(table, schema, needs_label=False).features, [[5, np.nan], [5, np.nan]]
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_types_in_a_csv_file(tmp_path: Path):
    text = "query,x,flag,size,none\n007, 1.5,True,S,\n007,2e3,,42,NULL\n08,NaN,false,,\n"
    table = load_table(write(tmp_path / "t.csv", text), text={"query"})
    assert table.to_pydict() == {
        "query": ["007", "007", "08"],
        "x": [1.5, 2000.0, None],
        "flag": [True, None, False],
        "size": ["S", "42", None],
        "none": [None, None, None],
    }
    semicolons = write(tmp_path / "t.tsv", 'query\tx\n"a\tb"\t1\n')
    assert load_table(semicolons).to_pydict() == {"query": ["a\tb"], "x": [1.0]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q,x,x\na,1,2\n", "duplicate column 'x'"),
        ("q,x\na,1\nb\n", "cannot be read: .*Row #3"),
        ("", "not a table: empty CSV file"),
        ("q,x\n", "the table must"),
    ],
)
def test_bad_csv_files(tmp_path: Path, text, message):
    file = write(tmp_path / "t.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        load_table(file)
    assert str(file) in str(caught.value)


def test_files_of_several_schemas(tmp_path: Path):
    pq.write_table(pa.table({"q": [1], "x": [2]}), tmp_path / "a.parquet")
    for columns, message in (
        ({"q": [1]}, "no 'x'"),
        ({"q": [1], "x": [2], "y": [3]}, "no 'y'"),
        ({"q": [1], "x": ["two"]}, "Field x has incompatible types: int64 vs string"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "b.parquet")
        with pytest.raises(ValueError, match=rf"b\.parquet: the files of a table .*{message}"):
            load_table(tmp_path)
    pq.write_table(pa.table({"x": [2.5], "q": [1]}), tmp_path / "b.parquet")
    assert load_table(tmp_path).to_pydict() == {"q": [1, 1], "x": [2.0, 2.5]}
    (tmp_path / "b.parquet").rename(tmp_path / "B.PARQUET")
    assert load_table(tmp_path).num_rows == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no/such.csv", "got no/such.csv .no such file"),
        ("none-*.parquet", "no file matches the pattern"),
        ("empty", "a folder of a table must hold CSV, Parquet or LETOR files"),
        ("t.xlsx", "must end in .csv, .tsv, .parquet or .pq"),
        ("bad.parquet", "bad.parquet: cannot be read"),
        ([1, 2], "a table.*builtins.list"),
        (pd.Series([1]), "a table.*pandas.*Series"),
    ],
)
def test_sources_that_are_none(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "t.xlsx", "x")
    write(tmp_path / "bad.parquet", "x")
    with pytest.raises(ValueError, match=message):
        load_table(source)


def test_differences_are_named():
    one = Schema("q", steps={"x": Number(), "c": Category("string", ("a",))})
    two = Schema("q", steps={"x": Number(), "c": Category("string", ("a", "b"))})
    assert "column 'c': string category of 1 levels 'a', and" in str(one.difference(two))
    assert one.difference(Schema("q", steps={"x": Number()})) is not None
    assert Schema("q").difference(Schema("p")) == "qid: column 'q', and column 'p'"


def test_gathering_is_a_stable_group_by():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"q": rng.integers(0, 50, 1000), "y": 0, "x": np.arange(1000)})
    data = read_table(frame, Schema.infer(load_table(frame), qid="q", label="y"))
    expected = pd.concat([rows for _, rows in frame.groupby("q", sort=False)])
    assert data.features[:, 0].tolist() == expected["x"].tolist()
    assert data.rows.tolist() == expected.index.tolist()
    assert data.qids == [str(qid) for qid in frame["q"].unique()]

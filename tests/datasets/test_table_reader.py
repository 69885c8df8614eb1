"""The rows of files, chunk by chunk, against the same files read as a whole."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr.datasets import Schema, read_table, table_files
from ltr.datasets.column_steps import Number
from ltr.datasets.conversion import table_chunks
from ltr.datasets.table_files import TableFiles

ROWS = 60


@pytest.fixture(autouse=True)
def pieces_of_seven_rows(monkeypatch):
    monkeypatch.setattr(table_files, "ROWS", 7)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "query": rng.integers(0, 9, ROWS),  # spread over the table
            "price": rng.normal(size=ROWS).astype(np.float32),
            "stock": np.where(rng.random(ROWS) < 0.4, np.nan, rng.poisson(3, ROWS)),
            "shop": rng.choice(["a", "b", "007", None], ROWS),
            "new": rng.random(ROWS) < 0.5,
            "level": rng.integers(0, 4, ROWS),
            "sku": [f"S{i}" for i in range(ROWS)],
            "unused": ["x"] * ROWS,
        }
    )
    made.loc[20:40, "stock"] = np.nan  # missing throughout in some chunks
    made["level"] = made["level"].astype("category")
    return made


def write(where: Path, made: pd.DataFrame, kind: str) -> Path:
    half = len(made) // 2
    if kind == "parquet":
        made.to_parquet(path := where / "t.parquet", row_group_size=25)
    elif kind == "csv":
        made.to_csv(path := where / "t.csv", index=False)
    elif kind == "csv.gz":
        made.to_csv(path := where / "t.csv.gz", index=False)
    elif kind == "folder":
        (path := where / "several").mkdir()
        made[:half].to_csv(path / "a.csv", index=False)
        made[half:][made.columns[::-1]].to_csv(path / "b.csv", index=False)
    else:
        made[:half].to_parquet(where / "p1.parquet")
        made[half:].astype({"query": "Int32"}).to_parquet(where / "p2.parquet")
        path = where / "p*.parquet"
    return path


def schema() -> Schema:
    table = pa.Table.from_pandas(frame())
    found = Schema.infer(table, qid="query", doc_id="sku", features=["price", "stock"])
    assert set(found.categories) == {"shop", "new", "level", "unused"}
    return found.fit_levels(table, 256)


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "folder", "pattern"])
def test_the_rows_are_those_of_the_whole_table(kind, tmp_path):
    path, used = write(tmp_path, frame(), kind), schema()
    whole = read_table(path, used, needs_label=False)
    order = np.argsort(whole.rows)
    for _ in range(2):
        features, categories, queries, names, told = [], [], [], [], []
        for chunk in table_chunks(path, used, lambda *one, told=told: told.append(one)):
            back = np.argsort(chunk.rows)
            features.append(chunk.features[back])
            categories.append(chunk.categories[back])
            queries += np.repeat(chunk.qids, chunk.lengths)[back].tolist()
            names += np.array(chunk.doc_id.to_pylist())[back].tolist()
        np.testing.assert_array_equal(np.concatenate(features), whole.features[order])
        np.testing.assert_array_equal(np.concatenate(categories), whole.categories[order])
        assert queries == frame()["query"].astype(str).tolist()
        assert names == frame()["sku"].tolist()
        position, size, rows = told[-1]
        assert 0 < position <= size
        assert rows == ROWS
        assert max(map(len, features)) == 7
    chunks = [*table_chunks(path, Schema("query"))]
    keys = [np.repeat(chunk.qids, chunk.lengths)[np.argsort(chunk.rows)] for chunk in chunks]
    assert np.concatenate(keys).tolist() == queries


@pytest.mark.parametrize("kind", ["parquet", "csv", "folder", "pattern"])
@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("query", 33, None, "column 'query': a qid must not be missing"),
        ("price", 51, np.inf, "column 'price': must be finite in float32, got inf"),
        ("sku", 12, None, "column 'sku': a document id must not be missing"),
    ],
)
def test_errors_name_the_table_and_the_row(kind, column, row, value, message, tmp_path):
    made = frame()
    made[column] = made[column].astype(object)
    made.loc[row, column] = value
    if column == "query":
        made["query"] = made["query"].astype("Int64")
    if column == "price":
        made["price"] = made["price"].astype(float)
    path = write(tmp_path, made, kind)
    for read in (
        lambda: [*table_chunks(path, schema())],
        lambda: read_table(path, schema(), needs_label=False),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            read()
        assert str(caught.value) == f"{path}: row {row}, {message}"


@pytest.mark.parametrize("kind", ["csv", "folder"])
def test_text_among_numbers_is_an_error_of_arrow_with_the_file(kind, tmp_path):
    made = frame().astype({"price": object})
    made.loc[44, "price"] = "cheap"
    path = write(tmp_path, made, kind)
    file, row = (path, 46) if kind == "csv" else (path / "b.csv", 16)  # Arrow counts the header
    message = rf"^{file}: cannot be read: .* Row #{row}: .* to double: invalid value 'cheap'"
    for read in (
        lambda: [*table_chunks(path, schema())],
        lambda: read_table(path, schema(), needs_label=False),
    ):
        with pytest.raises(ValueError, match=message):
            read()


def test_files_that_cannot_be_read(tmp_path):
    used = schema()

    def read(path: Path) -> None:
        for _ in table_chunks(path, used):
            pass

    with pytest.raises(ValueError, match="path must"):
        read(tmp_path / "none.csv")
    path = write(tmp_path, frame().drop(columns="shop"), "csv")
    with pytest.raises(ValueError, match=r"t\.csv: the table must have the column 'shop'"):
        read(path)
    path = write(tmp_path, frame()[:0], "csv")
    with pytest.raises(
        ValueError, match=r"the table must have at least one row, got none in .*t\.csv"
    ):
        read(path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ValueError, match=r"bad\.parquet: cannot be read"):
        read(tmp_path / "bad.parquet")
    path = write(tmp_path, frame(), "folder")
    frame().drop(columns="sku").to_csv(path / "c.csv", index=False)
    with pytest.raises(ValueError, match=r"c\.csv: the files of a table must have the same col"):
        read(path)
    read(write(tmp_path, frame().assign(more=1), "csv"))


@pytest.mark.parametrize("form", [None, "gzip", "zstd"])
def test_arrow_reads_csv_without_files_of_python(form: str | None, tmp_path: Path, monkeypatch):
    given, opened = [], table_files.csv.open_csv
    monkeypatch.setattr(
        table_files.csv, "open_csv", lambda file, *rest: given.append(file) or opened(file, *rest)
    )
    lines = [f"{i // 5},{i}\n".encode() for i in range(5000)]
    parts = [b"query,price\n", *lines]
    if form == "gzip":  # two streams in one file
        halves = (b"".join(parts[:2000]), b"".join(parts[2000:]))
        content = b"".join(gzip.compress(half) for half in halves)
    else:
        content = pa.compress(b"".join(parts), "zstd", asbytes=True) if form else b"".join(parts)
    (tmp_path / "t.csv").write_bytes(content)
    lists = read_table(
        tmp_path / "t.csv", Schema("query", steps={"price": Number()}), needs_label=False
    )
    assert lists.features[:, 0].tolist() == [*range(5000)]
    # Arrow's thread may release the file while Python exits, which a file of Python makes an abort.
    assert given
    assert all(isinstance(file, pa.NativeFile) for file in given)
    assert not any(isinstance(file, pa.PythonFile) for file in given)
    if form is not None:
        (tmp_path / "t.csv").write_bytes(content[: -len(content) // 3])
        with pytest.raises(ValueError, match=f"t.csv: the {form} file is damaged"):
            read_table(
                tmp_path / "t.csv", Schema("query", steps={"price": Number()}), needs_label=False
            )


def test_a_file_that_is_left_early_is_not_closed_under_the_thread_that_reads_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the thread may take rows from the next file, which gets the same descriptor."""
    path, files, open_file = tmp_path / "t.csv", [], pa.OSFile
    path.write_text("price\n" + "1234567\n" * 1_000_000)
    monkeypatch.setattr(pa, "OSFile", lambda name: files.append(open_file(name)) or files[-1])
    chunks = TableFiles(path).chunks(["price"], 10)
    next(chunks)
    chunks.close()
    assert [file.closed for file in files] == [False]

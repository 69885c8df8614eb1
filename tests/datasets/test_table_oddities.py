"""Tables that were read in silence as something else than their makers meant, and odd files."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ltr.datasets import (
    Schema,
    TableDataModule,
    convert,
    infer,
    load_table,
    read_table,
    table_files,
)
from ltr.datasets.column_steps import Number
from ltr.datasets.conversion import table_chunks
from ltr.datasets.infer import WholeNumbers
from ltr.datasets.table_files import BLOCKS, MISSING, TableFiles

ROWS = 60


def frame(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "query": np.arange(rows) // 3,
            "grade": rng.integers(0, 3, rows),
            "price": rng.normal(size=rows),
            "shop": rng.choice(list("abc"), rows),
        }
    )


def fit(source: Any, **options: Any) -> TableDataModule:
    data = TableDataModule(source, **{"qid": "query", "label": "grade", **options}, validation=0.3)
    data.setup("fit")
    return data


def told(call: Callable[[], object]) -> list[str]:
    """Return the warnings of a call, each of which must point to this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


# 6: silently wrong


def test_the_index_of_a_concatenated_frame_is_no_feature(tmp_path: Path):
    whole = pd.concat([frame(), frame()])
    whole.to_parquet(path := tmp_path / "t.parquet")
    assert "__index_level_0__" in load_table(path).column_names
    data = None

    def run() -> None:
        nonlocal data
        data = fit(path)

    [said] = told(run)
    assert "not used: __index_level_0__ (the index of a pandas frame)" in said
    assert data is not None
    assert data.schema is not None
    assert [*data.schema.features] == ["price"]
    [said] = told(lambda: convert(path, tmp_path / "s", qid="query", label="grade"))
    assert "__index_level_0__ (the index of a pandas frame)" in said


def test_an_index_that_is_named_may_be_used(tmp_path: Path):
    made = frame().assign(day=1.0).set_index(["query", "day"])
    made.to_parquet(path := tmp_path / "t.parquet")
    assert "day (the index of a pandas frame)" in told(lambda: fit(path))[0]
    assert told(lambda: fit(path, features=["price", "day"])) == []


def test_the_index_in_a_csv_file_is_no_feature(tmp_path: Path):
    frame().to_csv(path := tmp_path / "t.csv")
    assert "'' (the index of a pandas frame)" in told(lambda: fit(path))[0]
    pd.read_csv(path).to_parquet(path := tmp_path / "t.parquet")
    assert "Unnamed: 0 (the index of a pandas frame)" in told(lambda: fit(path))[0]


def test_metadata_that_pandas_did_not_write_does_no_harm():
    table = pa.table({"query": [1], "x": [1.0]})
    for text in (b"", b"[]", b"{", b'{"index_columns": 3}', b'{"index_columns": [3, {}]}'):
        odd = table.replace_schema_metadata({"pandas": text})
        assert [*Schema.infer(odd, qid="query").features] == ["x"]


@pytest.mark.parametrize("names", [["007", "7", "7.5", "a0", "1e2", "100"], ["5.0", "5", "05"]])
def test_qids_are_text_as_they_are_written(tmp_path: Path, names: list[str]):
    made = frame(len(names)).assign(query=names)
    made.to_csv(path := tmp_path / "t.csv", index=False)
    schema = Schema("query", "grade", steps={"price": Number()})
    assert read_table(path, schema).qids == names
    assert [qid for chunk in table_chunks(path, schema) for qid in chunk.qids] == names
    assert list(convert(path, tmp_path / "s", qid="query", label="grade").qids) == names


def test_columns_that_look_like_a_mistake_are_told_before_training(tmp_path: Path):
    made = frame().assign(
        day=[f"2024-01-{1 + i % 28:02}" for i in range(ROWS)],
        at=["2024-01-01 10:00:00"] * ROWS,
        zone=["2024-01-01T10:00:00Z"] * ROWS,
        title=[f"title {i}" for i in range(ROWS)],
        again=frame()["query"],
        many=[f"m{i % 40}" for i in range(ROWS)],
    )
    made.to_csv(path := tmp_path / "t.csv", index=False)
    both = [
        told(lambda: fit(path, max_levels=30)),
        told(
            lambda: convert(path, tmp_path / "s", qid="query", label="grade", max_levels=30),
        ),
    ]
    for [said] in both:
        assert said == (
            "columns of the table: dates, by their text: day, at, zone (make them categorical, to "
            "keep the text); title is left out, with 60 different "
            "texts in 60 rows: a name, not a category (to use its words, add columns of TF-IDF "
            "or embeddings); "
            "many has 40 levels: the 30 most frequent ones have a code, the others count as "
            "missing (max_levels); again equals the qid (leave it out)"
        )


@pytest.mark.parametrize("words", [0, 1, 6, 7])
def test_numbers_that_are_written_as_text_are_called_numbers(tmp_path: Path, words: int):
    texts = [f"n/a {i}" if i < words else f"{i + 1}.5" for i in range(ROWS)]
    made = frame().assign(cost=texts)
    made.to_parquet(path := tmp_path / "t.parquet")
    for source in made, path:
        [said] = told(lambda source=source: fit(source))
        if words > 0.1 * ROWS:
            assert "cost is left out, with 60 different texts in 60 rows: a name" in said
            continue
        shown = ", ".join(f"'n/a {i}'" for i in range(words))
        assert said == (
            "columns of the table: cost is left out, with 60 different texts in 60 rows: numbers "
            f"written as text{f', except {shown}' if words else ''} (unless they are identifiers, "
            "make them numbers, in pandas with pd.to_numeric(X['cost'], errors='coerce'))"
        )
    made["cost"] = pd.to_numeric(made["cost"], errors="coerce")
    assert told(lambda: fit(made)) == []


def test_the_error_of_a_table_without_columns_names_the_words_among_the_numbers():
    texts = ["12 EUR" if i == 7 else f"{i + 1}.5" for i in range(ROWS)]
    with pytest.raises(ValueError, match="besides the columns") as error:
        fit(frame()[["query", "grade"]].assign(cost=texts))
    left = "cost is left out, with 60 different texts in 60 rows: numbers written as text, except"
    assert f"({left} '12 EUR' (unless they are identifiers, make them numbers" in str(error.value)


@pytest.mark.parametrize("kind", ["pandas", "csv", "parquet"])
def test_numbers_with_a_word_among_them_are_told(tmp_path: Path, kind: str):
    made = frame().assign(cost=[f"{i % 20}.5" for i in range(ROWS - 1)] + ["?"])
    source = source_of(kind, made, tmp_path)
    [said] = told(lambda: fit(source))
    assert said == (
        "columns of the table: cost is a category, with 21 different texts: numbers written as "
        "text, except '?' (unless they are identifiers, make them numbers, in pandas with "
        "pd.to_numeric(X['cost'], errors='coerce'))"
    )
    assert told(lambda: fit(source, categories=["shop", "cost"])) == []


@pytest.mark.parametrize("as_text", [False, True])
def test_a_copy_of_the_qid_is_told(as_text: bool):
    made = frame()
    made["again"] = made["query"].astype(str) if as_text else made["query"] * 1.0
    assert "again equals the qid" in told(lambda: fit(made))[0]
    made.loc[50, "again"] = made.loc[3, "again"]
    assert told(lambda: fit(made)) == []


def test_a_sound_table_gives_no_warning(tmp_path: Path):
    frame().to_csv(path := tmp_path / "t.csv", index=False)
    assert told(lambda: fit(path)) == []
    assert (
        told(lambda: fit(frame().assign(day=pd.Timestamp(0)), features=["price"], categories=[]))
        == []
    )
    level = ((frame()["grade"] + 1) % 3).astype("category")
    assert told(lambda: fit(frame().assign(level=level))) == []


def test_a_categorical_column_of_numbers_is_a_category():
    table = pa.Table.from_pandas(frame().assign(level=frame()["grade"].astype("category")))
    schema = Schema.infer(table, qid="query", label="grade")
    assert [*schema.features], [*schema.categories] == (["price"], ["shop", "level"])
    named = Schema.infer(table, qid="query", label="grade", features=["level"])
    assert [*named.features] == ["level"]


# 2: types


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_type_holds_for_the_whole_file_wherever_a_chunk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    monkeypatch.setattr(infer, "_FIRST", 1)
    monkeypatch.setattr(infer, "ROWS", size)
    columns = {
        "number": ["1", "", "2.5", "1e3", " 4 "],
        "flag": ["true", "false", "", "true", "False"],
        "text": ["1", "true", "", "", "x y"],
        "day": ["2024-01-01", "2024-02-29", "", "1999-12-31", ""],
        "odd": ["2024-01-01", "2024-02-30", "", "", ""],
        "none": [""] * 5,
    }
    pd.DataFrame(columns).to_csv(path := tmp_path / "t.csv", index=False)
    want = {"number": "double", "flag": "bool", "text": "string", "day": "large_string"}
    want |= {"odd": "string", "none": "null"}
    found = table_files.text_types(TableFiles(path), ())
    assert {name: str(dtype) for name, dtype in found.items()} == want


@pytest.mark.parametrize(
    "text",
    [
        *(
            "0x1F",
            "+5",
            "1e5",
            "1_000",
            "Infinity",
            "nan(1)",
            "1.",
            ".5",
            "-.5e-3",
            "00012",
            "1e400",
        ),
        *("true", "TRUE", "True", "tRuE", "true ", " true", "yes", "T", "f", "1,5", "1.5.2"),
        *("9223372036854775808", "18446744073709551616", " 5", "5\t", "\u00a05", "\u0661", "1e400"),
        *("2024-01-01", "2024-1-1", "2024-01-01T10:00Z", "NA ", "  NA", "NA", "--5"),
    ],
)
def test_the_types_are_those_that_arrow_infers(tmp_path: Path, text: str):
    path = tmp_path / "t.csv"
    path.write_text(f'query,x\n1,"{text}"\n2,"{text}"\n', encoding="utf-8")
    spaced = [f"{word} " for word in MISSING]
    options = pa_csv.ConvertOptions(null_values=[*MISSING, *spaced])
    inferred = pa_csv.read_csv(path, convert_options=options).schema.field("x").type
    table = load_table(path)
    if pa.types.is_temporal(inferred):  # dates stay text
        assert table["x"].to_pylist() == [text, text]
    else:
        assert table["x"].type == inferred


def test_a_late_text_makes_the_column_text_everywhere(tmp_path: Path, monkeypatch):
    block = 1 << 17
    monkeypatch.setattr("ltr.datasets.table_files.BLOCKS", (block, BLOCKS[-1]))
    rows = [f"{i // 3},{i % 2},x{i % 5},{i}" for i in range(40_000)]
    rows[-1] = "13333,1,x1,cheap"
    path = tmp_path / "t.csv"
    path.write_text("query,grade,shop,price\n" + "\n".join(rows))
    assert path.stat().st_size > 4 * block
    assert load_table(path)["price"].type == pa.string()
    for call in (
        lambda: fit(path),
        lambda: convert(path, tmp_path / "s", qid="query", label="grade"),
    ):
        [said] = told(call)
        assert "price is left out, with 40000 different texts in 40000 rows: numbers" in said
        assert "written as text, except 'cheap'" in said
    schema = Schema("query", "grade", steps={"price": Number()})
    message = r"t\.csv: .*CSV conversion error to double: invalid value 'cheap'"
    for call in (lambda: read_table(path, schema), lambda: [*table_chunks(path, schema)]):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", ["a'b; DROP TABLE x --.csv", 'q"uote.csv', "st*r.csv", "[x].csv"])
def test_names_of_files_are_no_patterns_and_no_code(tmp_path: Path, name: str):
    frame().to_csv(path := tmp_path / name, index=False)
    assert load_table(path).num_rows == ROWS


# 7: hostile or odd files


def test_many_columns_take_linear_time(tmp_path: Path):
    """By the number of Python calls, since a test takes no time."""
    calls = []
    for width in (125, 500):
        names = ["query", "grade", *(f"f{i}" for i in range(width))]
        table = pa.table({name: np.arange(6) for name in names})
        pa_csv.write_csv(table, path := tmp_path / f"{width}.csv")
        count = 0

        def tick(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            convert(path, tmp_path / f"{width}.store", qid="query", label="grade")
            fit(path)
        finally:
            sys.setprofile(None)
        calls.append(count)
    assert calls[1] < 5 * calls[0]


@pytest.mark.parametrize("split", ["validation", "val_path"])
def test_a_missing_whole_number_as_qid_is_named(tmp_path: Path, split: str):
    made = frame().astype({"query": "Int64"})
    made.loc[7, "query"] = None
    made.to_parquet(path := tmp_path / "t.parquet")
    data = TableDataModule(
        path, qid="query", label="grade", **{split: 0.3 if split == "validation" else path}
    )
    message = r"t\.parquet: row 7, column 'query': a qid must not be missing"
    with pytest.raises(ValueError, match=message):
        data.setup("fit")


def test_string_views_in_parquet(tmp_path: Path):
    table = pa.Table.from_pandas(frame().assign(query=lambda t: "q" + t["query"].astype(str)))
    want = read_table(table, Schema.infer(table, qid="query", label="grade").fit_levels(table))
    for name in ("query", "shop"):
        column = table.column(name).cast(pa.string_view())
        position = table.column_names.index(name)
        table = table.set_column(position, name, column)
    pq.write_table(table, path := tmp_path / "t.parquet")
    data = fit(path)
    assert data.schema is not None
    assert data.schema.categories["shop"].levels == ("a", "b", "c")
    assert next(table_chunks(path, data.schema)).features.shape == (ROWS, 1)
    assert len(convert(path, tmp_path / "s", qid="query", label="grade")) == len(want)


def test_a_large_cell_that_fits_can_be_predicted(tmp_path: Path):
    made = frame().assign(note="")
    made.loc[40, "note"] = "x" * 10_000_000
    made.to_csv(path := tmp_path / "t.csv", index=False)
    schema = Schema("query", "grade", steps={"price": Number()})
    want = read_table(path, schema)
    got = np.concatenate([chunk.features for chunk in table_chunks(path, schema)])
    np.testing.assert_array_equal(got, want.features)
    assert len(convert(path, tmp_path / "s", qid="query", label="grade")) == len(want)


def test_a_row_that_is_too_long_is_an_error(tmp_path: Path):
    made = frame().assign(note="")
    made.loc[40, "note"] = "x" * (2 * BLOCKS[-1] + 1)
    made.to_csv(path := tmp_path / "t.csv", index=False)
    for call in (lambda: load_table(path), lambda: [*TableFiles(path).chunks(["price"], 99)]):
        with pytest.raises(ValueError, match=r"t\.csv: cannot be read: "):
            call()


def test_no_extension_of_duckdb_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rows that are not together make a query of DuckDB; it needs no extension."""
    import duckdb  # as ltr does: at the top, it says at exit that it leaks

    made = frame().assign(query=[f"q{i % 3}" for i in range(ROWS)])
    made.to_csv(path := tmp_path / "t.csv", index=False)
    whole, found = duckdb.connect, []

    def connect(*given: Any, **more: Any) -> Any:
        connection = whole(*given, **more)
        names = ("autoinstall_known_extensions", "autoload_known_extensions")
        settings = ", ".join(f"current_setting('{name}')" for name in names)
        found.extend(connection.execute(f"SELECT {settings}").fetchall())
        return connection

    monkeypatch.setattr(duckdb, "connect", connect)
    convert(path, tmp_path / "s", qid="query", label="grade")
    assert found == [(False, False)]


def test_without_duckdb_grouped_rows_convert_and_others_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "duckdb", None)  # an import of it fails
    grouped = frame().assign(query=[f"q{3 * i // ROWS}" for i in range(ROWS)])
    grouped.to_csv(path := tmp_path / "grouped.csv", index=False)
    assert len(convert(path, tmp_path / "s", qid="query", label="grade")) == 3
    grouped.assign(query=[f"q{i % 3}" for i in range(ROWS)]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"needs duckdb: pip install 'ltr-torch\[convert\]'"):
        convert(path, tmp_path / "t", qid="query", label="grade")
    assert {file.name for file in tmp_path.iterdir()} == {"grouped.csv", "s"}


# 8: columns that no model can learn from, or learns the wrong thing from

IDS = [10**18 + i for i in range(ROWS)]
KINDS = ["pandas", "polars", "arrow", "csv", "parquet"]


def source_of(kind: str, made: pd.DataFrame, folder: Path) -> Any:
    """Return a frame as a table of another library, or as a file in a folder."""
    if kind == "pandas":
        return made
    table = pa.Table.from_pandas(made, preserve_index=False)
    if kind == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if kind == "arrow":
        return table
    path = folder / f"t.{kind}"
    write = pa_csv.write_csv if kind == "csv" else pq.write_table
    write(table, path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_that_are_one_in_float32_are_refused(tmp_path: Path, kind: str):
    source = source_of(kind, frame().assign(user=IDS), tmp_path)
    message = (
        f"column 'user': {IDS[0]} and {IDS[1]} are one number in float32, the type of features, "
        "and so are most others: make them text, subtract a constant, or leave the column out"
    )
    calls = [lambda: fit(source), lambda: fit(source, features=["price", "user"])]
    if kind in ("csv", "parquet"):
        message = f"{source}: {message}"
        calls.append(lambda: convert(source, tmp_path / "s", qid="query", label="grade"))
    for call in calls:
        with pytest.raises(ValueError, match="float32") as caught:
            call()
        assert str(caught.value) == message
    assert (
        fit(source, features=["price"]).schema
        == fit(frame(), features=["price"], categories=["shop"]).schema
    )


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_of_which_float32_keeps_some_are_told(tmp_path: Path, kind: str):
    users = 100_000_000 + np.arange(5000) % 4000  # float32 keeps every eighth
    table = pd.DataFrame({"query": np.arange(5000) // 5, "grade": np.arange(5000) % 3})
    source = source_of(kind, table.assign(user=users, price=np.arange(5000) % 7), tmp_path)
    with pytest.warns(UserWarning, match="user has 4000") as caught:
        fit(source)
    said = " ".join(str(one.message) for one in caught)
    assert "different whole numbers in some rows, of which float32" in said
    assert "keeps 501 (if they are identifiers, make them text)" in said
    assert "price" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_beyond_float64_are_different_categories(tmp_path: Path, kind: str):
    users = [IDS[i % 5] for i in range(ROWS)]
    source = source_of(kind, frame().assign(user=users), tmp_path)
    data = fit(source, categories=["user"])
    assert data.schema is not None
    assert data.schema.categories["user"].levels == tuple(map(str, IDS[:5]))
    codes = data.splits["train"].categories
    assert codes is not None
    want = [IDS.index(users[row]) + 1 for row in data.splits["train"].rows]
    assert codes[:, 0].tolist() == want


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_second_value_may_come_late(tmp_path: Path, kind: str):
    """Two values that become one are refused, wherever in the files they are."""
    rows = 40_000
    made = frame(rows).assign(user=[10**18] * (rows - 1) + [10**18 + 1])
    source = source_of(kind, made, tmp_path)
    for call in (
        lambda: fit(source),
        lambda: convert(source, tmp_path / "s", qid="query", label="grade"),
    ):
        with pytest.raises(ValueError, match=f"'user': {10**18} and {10**18 + 1} are one num"):
            call()


def test_large_numbers_may_come_after_a_nan_of_arrow():
    """Arrow's NaN is not null, and has no fraction."""
    numbers = WholeNumbers("user")
    table = pa.table({"user": [float("nan"), 3.0, *(1e18 + 128 * i for i in range(9))]})
    numbers.add(table.slice(0, 2), 0)
    numbers.add(table.slice(2), 2)
    with pytest.raises(ValueError, match=r"column 'user': .* are one number in float32"):
        numbers.check()


@pytest.mark.parametrize("kind", ["pandas", "csv", "parquet"])
def test_large_numbers_may_come_after_small_ones(tmp_path: Path, kind: str):
    """The first chunk has only small numbers."""
    rows = 40_000
    user = [i % 50 for i in range(rows // 2)] + [10**18 + i for i in range(rows // 2)]
    source = source_of(kind, frame(rows).assign(user=user), tmp_path)
    calls = [lambda: fit(source)]
    if kind != "pandas":
        calls.append(lambda: convert(source, tmp_path / "s", qid="query", label="grade"))
    for call in calls:
        with pytest.raises(ValueError, match=r"column 'user': .* are one number in float32"):
            call()


@pytest.mark.parametrize(
    "numbers",
    [
        [1_700_000_000_000_000_000 + i * 525_600_000_000_000 for i in range(ROWS)],  # 6 days apart
        [2**24 + 2 * i for i in range(ROWS)],  # exact
        [i % 7 * 2**40 for i in range(ROWS)],
        [10**18] * ROWS,
        [None] * 30 + [10**18] * 30,
        [i + 0.5 for i in range(ROWS)],
        [1e18 + 0.5, 0.5] * 30,
        [-(2**63)] + [2**63 - 1] * (ROWS - 1),
        [16777217, 16777219, 16777221] * 20,  # 3 values, which become 2
    ],
)
def test_whole_numbers_that_float32_tells_apart_are_features(tmp_path: Path, numbers: list[Any]):
    table = pa.Table.from_pandas(frame(), preserve_index=False).append_column(
        "at", pa.array(numbers)
    )
    pq.write_table(table, path := tmp_path / "t.parquet")
    for source in (table, path):
        assert fit(source).schema.features == {"price": 1, "at": 1}  # pyright: ignore
    assert convert(path, tmp_path / "s", qid="query", label="grade").num_features == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grade", [0, 1])
def test_labels_that_are_all_equal_are_refused(tmp_path: Path, kind: str, grade: int):
    source = source_of(kind, frame().assign(grade=grade), tmp_path)
    named = f"{source}: " if kind in ("csv", "parquet") else ""
    message = (
        f"{named}column 'grade': labels must not all be equal, got {grade} in all [0-9]+ documents "
        "of the training lists: there is nothing to learn"
    )
    with pytest.raises(ValueError, match=message):
        fit(source)
    if named:
        convert(source, tmp_path / "s", qid="query", label="grade")
        data = TableDataModule(tmp_path / "s", validation=0.3)
        with pytest.raises(ValueError, match="column 'grade': labels must not all be equal"):
            data.setup("fit")


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_the_label_is_told(tmp_path: Path, kind: str):
    made = frame(300).sort_values("grade", ignore_index=True)  # the first rows are alike
    made = made.assign(again=made["grade"] * 1.0, text=made["grade"].astype(str))
    source = source_of(kind, made, tmp_path)
    calls = [lambda: fit(source, categories=["text"])]
    if kind in ("csv", "parquet"):
        options = {"qid": "query", "label": "grade", "categories": ["text"]}
        calls.append(lambda: convert(source, tmp_path / "s", **options))
    for call in calls:
        [said] = told(call)
        for name in ("again", "text"):
            assert f"{name} equals the label (leave it out)" in said
    made.loc[299, "again"] = 0.5
    [said] = told(lambda: fit(made, categories=["text"]))
    assert "again" not in said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_copy_of_the_qid_is_told_whatever_the_lengths_of_the_lists(tmp_path: Path, kind: str):
    made = frame(600).assign(query=np.arange(600) // 100).drop(columns="shop")
    source = source_of(kind, made.assign(again=made["query"]), tmp_path)
    for call in (
        lambda: fit(source),
        lambda: convert(source, tmp_path / "s", qid="query", label="grade"),
    ):
        [said] = told(call)
        assert "again equals the qid" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_different_whole_number_in_each_row_is_told(tmp_path: Path, kind: str):
    numbers = np.random.default_rng(1).permutation(1_000_000)[:1200]
    made = frame(1200).assign(user=numbers, seen=np.r_[numbers[:-1], numbers[0]])
    source = source_of(kind, made, tmp_path)
    calls = [lambda: fit(source)]
    if kind in ("csv", "parquet"):
        calls.append(lambda: convert(source, tmp_path / "s", qid="query", label="grade"))
    for call in calls:
        assert told(call) == [
            "columns of the table: user has a different whole number in each of the 1200 rows: "
            "leave it out if it is an identifier"
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_text_with_a_value_per_row_is_left_out(tmp_path: Path, kind: str):
    made = frame().assign(title=[f"title {i % 50}" for i in range(ROWS)])
    source = source_of(kind, made, tmp_path)
    store = tmp_path / "s"
    options: dict[str, Any] = {"qid": "query", "label": "grade"}
    schemas, said = [], []
    said += told(lambda: schemas.append(fit(source).schema))
    if kind in ("csv", "parquet"):
        said += told(lambda: schemas.append(convert(source, store, **options).schema))
    for schema, one in zip(schemas, said, strict=True):
        assert [*schema.categories] == ["shop"]
        assert "title is left out, with 50 different texts in 60 rows" in one
    named = fit(source, categories=["title"])
    assert named.schema is not None
    assert len(named.schema.categories["title"].levels) == len(
        {*made["title"][named.splits["train"].rows]}
    )
    assert told(lambda: fit(source, features=["price"], categories=["shop"])) == []


def test_text_with_a_value_per_row_may_be_made_categorical():
    made = frame().assign(title=pd.Categorical([f"title {i}" for i in range(ROWS)]))
    data = fit(made)
    assert data.schema is not None
    assert [*data.schema.categories] == ["shop", "title"]


def test_a_table_of_names_alone_has_no_feature(tmp_path: Path):
    made = frame()[["query", "grade"]].assign(title=[f"title {i}" for i in range(ROWS)])
    made.to_csv(path := tmp_path / "t.csv", index=False)
    for call in (
        lambda: fit(path),
        lambda: convert(path, tmp_path / "s", qid="query", label="grade"),
    ):
        with pytest.raises(ValueError, match="must have a feature or a category besides"):
            call()


# 9: damaged Parquet, and names that no column has


def damaged(path: Path) -> None:
    """Overwrite the description of the columns at the end of a Parquet file."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[-8:-4], "little")
    content[-8 - size : -8] = bytes([255]) * size
    path.write_bytes(content)


def test_damaged_parquet_is_named(tmp_path: Path):
    frame().to_parquet(path := tmp_path / "t.parquet", index=False)
    damaged(path)
    for call in (
        lambda: load_table(path),
        lambda: fit(path),
        lambda: convert(path, tmp_path / "s", qid="query", label="grade"),
        lambda: [*table_chunks(path, Schema("query", steps={"price": Number()}))],
    ):
        with pytest.raises(ValueError, match=r"t\.parquet: cannot be read: .*deserialize thrift"):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_no_column_has_lists_the_columns(tmp_path: Path, kind: str):
    source = source_of(kind, frame(), tmp_path)
    columns = "the columns are 'query', 'grade', 'price', 'shop'"
    for options, message in (
        ({"qid": "quer"}, rf"got 'quer': {columns} \(did you mean 'query'\?\)"),
        ({"qid": None}, f"qid must name a column of the table, got None: {columns}$"),
        ({"label": None}, f"label must name a column of the table, got None: {columns}$"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(source, **options)
    if kind in ("csv", "parquet"):
        with pytest.raises(ValueError, match=f"{source}: qid must name .*got None: {columns}$"):
            convert(source, tmp_path / "s", label="grade")

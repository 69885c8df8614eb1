"""Texts such as NA are missing in numbers, booleans and dates of CSV files, and text in text."""

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ltr.cli import main
from ltr.datasets import (
    Schema,
    Standardize,
    TableTransform,
    convert,
    load_table,
    read_table,
)
from ltr.datasets.prepare import prepare
from ltr.datasets.table_files import MISSING
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.serving import OnnxRanker

ROLES: dict[str, Any] = {"qid": "query", "label": "grade"}
NOTICE = "shop has the text .*, which is a level, not a missing value"


def frame(rows: int = 160) -> pd.DataFrame:
    """Return a table whose label is the code of a text, of which most spell "missing"."""
    rng = np.random.default_rng(0)
    shops = ["NA", "None", "null", "N/A", "nan", "<NA>", "a", "Namibia"]
    grade = rng.integers(0, len(shops), rows)
    return pd.DataFrame(
        {
            "query": np.where(np.arange(rows) < 8, "NA", (np.arange(rows) // 8).astype(str)),
            "grade": grade // 2,
            "price": rng.normal(size=rows),
            "shop": np.array(shops)[grade],
        }
    )


def write(made: pd.DataFrame, path: Path) -> Path:
    made.to_parquet(path) if path.suffix == ".parquet" else made.to_csv(path, index=False)
    return path


@pytest.mark.filterwarnings("ignore:columns of the table")
def test_text_is_one_category_in_every_door(tmp_path: Path):
    made = frame()
    files = [write(made, tmp_path / name) for name in ("t.csv", "t.parquet")]
    frames = [made, *files, load_table(files[0], text={"query"})]
    found = [prepare(one, ROLES) for one in frames]
    levels = found[0].schema.categories["shop"].levels
    assert levels == tuple(sorted({*made["shop"]}))
    assert "NA" in found[0].train.qids
    for one in found[1:]:
        assert one.schema == found[0].schema
        assert one.train.qids == found[0].train.qids
        np.testing.assert_array_equal(one.train.categories, found[0].train.categories)
    stored = convert(files[0], tmp_path / "lists", **ROLES)
    np.testing.assert_array_equal(stored.categories, found[0].train.categories)


@pytest.mark.filterwarnings("ignore:columns of the table")
def test_a_model_gives_one_answer_in_every_door(tmp_path: Path):
    made = frame()
    path = write(made, tmp_path / "t.csv")
    given = {"members": 1, "max_epochs": 40, "random_state": 0, "verbose": 0}
    given["transform"] = TableTransform(Standardize())  # quick to export
    ranker = NeuralRanker(**given).fit(prepare(made, ROLES))
    expected = ranker.predict(made)
    assert np.corrcoef(expected, made["grade"])[0, 1] > 0.9
    ranker.save(tmp_path / "model")
    assert main(["predict", str(tmp_path / "model"), str(path), f"--output={tmp_path}/s.csv"]) == 0
    scores = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
    np.testing.assert_allclose(scores["score"].astype(float), expected, rtol=1e-5, atol=1e-5)
    assert scores["query"].tolist() == made["query"].tolist()
    served = OnnxRanker(export_model(ranker.model_, tmp_path / "model.onnx").model)
    for documents in (made, made.to_dict("records"), load_table(path, text={"query"})):
        np.testing.assert_allclose(served.score(documents), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("word", [*MISSING, " NA", "null "])
def test_a_word_is_missing_in_numbers_booleans_and_dates(tmp_path: Path, word: str, quoting: int):
    made = pd.DataFrame(
        {
            "query": ["a", "a", "b", "b", "c"],
            "grade": [0, 1, 0, 1, 2],
            "number": ["1.5", word, "2", "-3e2", "4"],
            "whole": ["1", "2", word, "5", "7"],
            "flag": ["true", "false", word, "True", "0"],
            "day": ["2024-01-01", word, "2024-02-29", "1999-12-31", "2024-01-01"],
            "at": ["2024-01-01T10:00Z", "2024-01-01T12:00Z", word, word, "2024-01-02 00:00+01:00"],
            "none": [word] * 5,
        }
    )
    made.to_csv(path := tmp_path / "t.csv", index=False, quoting=quoting)
    table = load_table(path)
    assert table["number"].to_pylist() == [1.5, None, 2, -300, 4]
    assert table["whole"].to_pylist() == [1, 2, None, 5, 7]
    assert table["whole"].type == pa.int64()
    assert table["flag"].to_pylist() == [True, False, None, True, False]
    assert table["none"].to_pylist() == [None] * 5
    schema = Schema.infer(table, **ROLES).fit_levels(table)
    assert schema.dates == {"day": "naive", "at": "utc"}
    assert [*schema.categories] == ["flag"]
    gaps = {"number": 1, "whole": 2, "day": 1, "at": 2, "at (hour)": 2}
    for source in (table, path):
        lists = read_table(source, schema)
        for name, row in gaps.items():
            column = lists.features[:, schema.feature_names.index(name)]
            assert np.isnan(column[row])
            assert np.isnan(column).sum() == (2 if name.startswith("at") else 1)
        assert lists.categories is not None
        assert lists.categories[:, 0].tolist() == [2, 1, 0, 2, 1]


def test_an_empty_cell_of_text_is_missing_with_or_without_quotes(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text('query,grade,shop\n1,0,a\n1,1,\n2,0,""\n2,1,b\n3,1,a\n')
    table = load_table(path)
    assert table["shop"].to_pylist() == ["a", None, None, "b", "a"]
    schema = Schema.infer(table, **ROLES).fit_levels(table)
    assert schema.categories["shop"].levels == ("a", "b")
    path.write_text('"query","grade","shop"\n"1","0","a"\n"","1","b"\n')
    with pytest.raises(ValueError, match=r"t\.csv: row 1, column 'query': a qid must not be miss"):
        read_table(path, schema)


def test_the_first_wrong_value_is_named_not_the_missing_one(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("query,grade,price,day\n1,0,NA,2024-01-01\n1,1,cheap,NA\n1,1,2,NA\n")
    schema = Schema.infer(
        pa.table({"query": ["1"], "grade": [1], "price": [0.5], "day": ["2024-01-01"]}), **ROLES
    )
    with pytest.raises(
        ValueError, match="Row #3: CSV conversion error to double: invalid value 'cheap'"
    ):
        read_table(path, schema)
    path.write_text("query,grade,price,day\n1,0,NA,NA\n1,1,1,soon\n1,1,2,NA\n")
    with pytest.raises(ValueError, match=r"row 1, column 'day': must be an ISO 8601 date"):
        read_table(path, schema)


@pytest.mark.parametrize("ending", ["csv", "parquet", None])
def test_a_level_that_looks_missing_is_told(tmp_path: Path, ending: str | None):
    made = frame()
    source: Any = made if ending is None else write(made, tmp_path / f"t.{ending}")
    assert "shop has the text" in prepare(source, ROLES).notice
    if ending is not None:
        with pytest.warns(UserWarning, match=NOTICE):
            convert(source, tmp_path / "lists", **ROLES)
    plain = made.assign(shop=np.where(made["grade"] > 1, "a", "b"))
    plain.loc[3, "shop"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = plain if ending is None else write(plain, tmp_path / f"t.{ending}")
        assert prepare(source, ROLES).notice == ""


def test_dates_of_two_kinds_are_an_error_only_where_they_are_used(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("query,grade,x,at\n1,0,1,2024-01-01\n1,1,2,\n1,1,3,2024-01-01T10:00Z\n")
    assert prepare(path, {**ROLES, "features": ["x"], "categories": []}).train.num_features == 1
    with pytest.raises(ValueError, match=r"row 2, column 'at': dates must all have a time zone"):
        prepare(path, ROLES)

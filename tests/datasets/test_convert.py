"""Conversion into lists on disk: the lists of `read_letor` and `read_table`, whatever happens."""

import gzip
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.cli import main
from ltr.datasets import (
    ListDataset,
    Schema,
    conversion,
    convert,
    load_table,
    open_lists,
    read_letor,
    read_table,
    table_files,
)


def write_letor(path: Path, lists: int, *, seed: int = 0, back: bool = False) -> None:
    """Write lists of 1 to 9 documents with comments; with `back`, lines of many qids mixed."""
    draw = random.Random(seed)
    lines = []
    for qid in range(lists):
        for doc in range(draw.randint(1, 9)):
            pairs = " ".join(f"{i}:{draw.random():.6f}" for i in range(1, 12))
            lines.append(f"{draw.randrange(3)} qid:{qid} {pairs} #docid = D{qid}-{doc}\n")
    if back:
        draw.shuffle(lines)
    path.write_text("".join(lines))


def assert_same(got: ListDataset, want: ListDataset) -> None:
    assert list(got.qids) == list(want.qids)
    np.testing.assert_array_equal(got.offsets, want.offsets)
    assert got.features.tobytes() == want.features.tobytes()
    assert {*got.columns()} - {"rows"} == {*want.columns()} - {"rows"}
    for name, array in want.columns().items():
        if name != "rows":
            assert got.columns()[name].tobytes() == array.tobytes()
    assert (got.doc_id is None) == (want.doc_id is None)
    if want.doc_id is not None:
        assert got.doc_id.to_pylist() == want.doc_id.to_pylist()


def frame(rows: int, seed: int = 0, grouped: bool = False) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    query = draw.integers(0, max(1, rows // 6), rows)
    return pd.DataFrame(
        {
            "query": np.sort(query) if grouped else query,
            "price": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(size=rows)),
            "stock": draw.poisson(3, rows),
            "new": draw.random(rows) < 0.5,
            "shop": draw.choice(["a", "b", None, "dé"], rows),
            "w": draw.random(rows),
            "position": draw.integers(1, 9, rows),
            "kind": draw.random(rows) < 0.3,
            "id": [f"d{i}" for i in range(rows)],
            "grade": draw.integers(0, 3, rows),
        }
    )


USES: dict[str, Any] = {"qid": "query", "label": "grade", "weight": "w", "position": "position"}
USES |= {"protected": "kind", "doc_id": "id"}


def table_lists(path: Path) -> tuple[ListDataset, Schema]:
    table = load_table(path, {"query", "id"})
    schema = Schema.infer(table, **USES).fit_levels(table)
    return read_table(table, schema), schema


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_letor_text(tmp_path: Path, name: str):
    write_letor(tmp_path / "plain.txt", 60)
    raw = (tmp_path / "plain.txt").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    told: list[tuple[int, int, int]] = []
    data = convert(
        tmp_path / name,
        tmp_path / "lists",
        watch=lambda *numbers: told.append(numbers),
    )
    want = read_letor(tmp_path / name)
    assert_same(data, want)
    assert told[-1] == (size := (tmp_path / name).stat().st_size, size, len(want.labels))
    assert data.summary() == want.summary()


def test_lines_that_are_not_together(tmp_path: Path):
    write_letor(tmp_path / "train.txt", 300, back=True)
    data = convert(tmp_path / "train.txt", tmp_path / "lists")
    assert_same(data, read_letor(tmp_path / "train.txt"))
    assert all(path.is_file() for path in (tmp_path / "lists").iterdir())


def test_several_files_and_widths(tmp_path: Path):
    (tmp_path / "a.txt").write_text("1 qid:1 1:1\n0 qid:1 1:2\n")
    (tmp_path / "b.txt").write_text("1 qid:2 3:1 # x\n0 qid:3 2:2\n")
    data = convert(tmp_path / "*.txt", tmp_path / "lists")
    assert data.features.tolist() == [[1, 0, 0], [2, 0, 0], [0, 0, 1], [0, 2, 0]]
    assert data.doc_id.to_pylist() == ["", "", "x", ""]
    assert data[0]["doc_id"] == ["", ""]
    (tmp_path / "b.txt").write_text("1 qid:2 3:1\n1 qid:1 1:1\n")
    data = convert(tmp_path / "*.txt", tmp_path / "again")
    assert data.qids == ["1", "2"]
    assert data.features.tolist() == [[1, 0, 0], [2, 0, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz"])
def test_tables(tmp_path: Path, monkeypatch, name: str, grouped: bool):
    monkeypatch.setattr(table_files, "ROWS", 50)
    monkeypatch.setattr(conversion, "FILE_BYTES", 2000)
    monkeypatch.setattr(conversion, "BATCH", 1500)
    table = frame(500, grouped=grouped)
    if name.endswith("parquet"):
        table.to_parquet(tmp_path / name, row_group_size=120)
    else:
        table.to_csv(tmp_path / name, index=False)
    want, schema = table_lists(tmp_path / name)
    data = convert(tmp_path / name, tmp_path / "lists", **USES)
    assert_same(data, want)
    assert data.schema == schema
    batch, other = data.__getitems__([3, -1, 0]), want.__getitems__([3, -1, 0])
    assert batch.keys() == other.keys() - {"rows"}
    for key, value in batch.items():
        assert np.array_equal(value, other[key], equal_nan=key == "features"), key


def test_wide_rows_that_are_not_together(tmp_path: Path):
    rows, width = 1200, 6000  # a vector of DuckDB's would take 49 MB
    values = np.random.default_rng(0).random(rows * width, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), width)
    qids = np.arange(rows) % 7
    pq.write_table(pa.table({"q": qids, "v": vectors}), tmp_path / "t.parquet")
    data = convert(tmp_path / "t.parquet", tmp_path / "lists", qid="q")
    values = values.reshape(rows, width)
    for number in range(7):
        assert np.array_equal(data[number]["features"], values[qids == number])


def test_files_with_columns_in_another_order(tmp_path: Path):
    one = pa.table({"q": ["a", "b"], "x": [0.5, 1.5], "z": [1, 2], "y": [1, 0]})
    two = pa.table({"y": [0, 1], "z": [3.5, 4.0], "q": ["c", "a"], "x": [2, 3]})
    (tmp_path / "in").mkdir()
    for number, table in enumerate((one, two)):
        pq.write_table(table, tmp_path / f"in/{number}.parquet")
    data = convert(tmp_path / "in", tmp_path / "lists", qid="q", label="y")
    assert list(data.qids) == ["a", "b", "c"]
    assert data[0]["features"].tolist() == [[0.5, 1], [3, 4]]
    assert data[0]["labels"].tolist() == [1, 1]
    assert data[2]["features"].tolist() == [[2, 3.5]]


def test_an_embedding_and_no_label(tmp_path: Path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0)), 2)
    table = pa.table({"q": ["a", "b", "a", "b"], "v": vectors})
    pq.write_table(table, tmp_path / "t.parquet")
    data = convert(tmp_path / "t.parquet", tmp_path / "lists", qid="q")
    assert data[0]["features"].tolist() == [[0, 1], [4, 5]]
    assert not data.has_labels
    with pytest.raises(ValueError, match="the lists must"):
        _ = data.labels


def test_errors_name_the_place(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(table_files, "ROWS", 50)
    table = frame(200)
    table.loc[170, "price"] = np.inf
    for name in ("t.parquet", "t.csv"):
        (table.to_parquet if name[2:] == "parquet" else table.to_csv)(tmp_path / name, index=False)
        for _ in range(2):  # also where a conversion starts again
            with pytest.raises(ValueError, match=rf"{name}: row 170, column 'price': must be fin"):
                convert(tmp_path / name, tmp_path / name[2:], **USES)
        with pytest.raises(ValueError, match=r"\(no schema.json\)"):
            open_lists(tmp_path / name[2:])
    table["price"] = table["price"].replace(np.inf, 0).astype(object)
    table.loc[120, "price"] = "cheap"
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="price .*: numbers written as text, except 'cheap'"):
        convert(tmp_path / "t.csv", tmp_path / "text", **USES)
    frame(20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"label.*'grad'"):
        convert(tmp_path / "t.csv", tmp_path / "x", **{**USES, "label": "grad"})
    with pytest.raises(ValueError, match=r"qid.*None"):
        convert(tmp_path / "t.csv", tmp_path / "x")


def test_what_out_must_be(tmp_path: Path):
    source = tmp_path / "train.txt"
    write_letor(source, 5)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("dear to me")
    with pytest.raises(ValueError, match=r"out.*holds 'mine\.txt'"):
        convert(source, tmp_path / "full")
    with pytest.raises(ValueError, match=r"out.*the file"):
        convert(source, source)
    convert(source, tmp_path / "lists")
    with pytest.raises(ValueError, match=r"out must be a new folder, got .*which holds 'doc_id"):
        convert(source, tmp_path / "lists")
    with pytest.raises(ValueError, match="must not be a folder of lists already"):
        convert(tmp_path / "lists", tmp_path / "other")
    with pytest.raises(ValueError, match=r"qid.*'q'"):
        convert(source, tmp_path / "other", qid="q")


CONVERT = """\
import sys
from ltr.datasets import convert, table_files
table_files.ROWS = 64
options = {} if sys.argv[1].endswith("txt") else dict(qid="query", label="grade")
convert(sys.argv[1], sys.argv[2], **options)
"""


def start(code: str, *args: Any, **options: Any) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, **{"stderr": subprocess.PIPE, "text": True, **options})


@pytest.mark.parametrize("kind", ["letor", "grouped", "ungrouped"])
def test_stopped_at_every_step_of_the_writing(tmp_path: Path, monkeypatch, kind: str):
    """An interrupt at any call of the system leaves nothing, and the next conversion runs."""
    source, options = tmp_path / "in" / "train.txt", {}
    source.parent.mkdir()
    if kind == "letor":
        write_letor(source, 80)
    else:
        monkeypatch.setattr(table_files, "ROWS", 64)
        source, options = source.with_suffix(".parquet"), {"qid": "query", "doc_id": "id"}
        frame(400, grouped=kind == "grouped").to_parquet(source)
    folder = tmp_path / "out" / "lists"
    folder.parent.mkdir()
    for step in range(200):
        steps = iter(range(step))

        def stepping(call, steps=steps):
            def run(*args, **more):
                if next(steps, None) is None:
                    raise KeyboardInterrupt
                return call(*args, **more)

            return run

        with monkeypatch.context() as patch:
            for owner, name in ((os, "fsync"), (Path, "open"), (Path, "rename"), (Path, "mkdir")):
                patch.setattr(owner, name, stepping(getattr(owner, name)))
            try:
                convert(source, folder, **options)
            except KeyboardInterrupt:
                if not folder.exists():
                    assert not [*folder.parent.iterdir()]
                    continue
        break
    else:
        pytest.fail("there are more steps")
    assert step > 15
    assert len(open_lists(folder)) > 10
    assert [path.name for path in folder.parent.iterdir()] == ["lists"]


@pytest.mark.slow  # starts ten processes
@pytest.mark.parametrize("kind", ["letor", "ungrouped"])
def test_killed_at_random_moments(tmp_path: Path, kind: str):
    source = tmp_path / ("train.txt" if kind == "letor" else "train.parquet")
    if kind == "letor":
        write_letor(source, 3000)
    else:
        frame(12000).to_parquet(source)
    quiet = {"stderr": subprocess.DEVNULL}
    assert start(CONVERT, source, tmp_path / "whole", **quiet).wait() == 0
    want = open_lists(tmp_path / "whole")
    draw, while_writing = random.Random(0), 0
    folder, partial = tmp_path / "lists", tmp_path / "lists.partial"
    for number in range(10):
        process = start(CONVERT, source, folder, **quiet)
        if number % 4:  # the imports take most of the time: kill what comes after them
            while process.poll() is None and not partial.exists():
                time.sleep(0.0005)
        time.sleep(draw.uniform(0, 0.2 if number % 4 else 2))
        process.kill()
        process.wait()
        if folder.exists():
            assert_same(open_lists(folder), want)
            shutil.rmtree(folder)
            continue
        if partial.exists():
            while_writing += 1
            with pytest.raises(ValueError, match=rf"{partial} is not complete"):
                open_lists(folder)
            with pytest.raises(ValueError, match=rf"{partial} exists .*delete that folder"):
                convert(source, folder, **({} if kind == "letor" else {"qid": "query"}))
            shutil.rmtree(partial)
    assert while_writing >= 3  # else nothing was tried
    assert start(CONVERT, source, folder, **quiet).wait() == 0
    assert_same(open_lists(folder), want)


@pytest.mark.parametrize("grouped", [True, False])
def test_the_bar_says_grouping(tmp_path: Path, monkeypatch, capsys, grouped: bool):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    frame(500, grouped=grouped).to_parquet(tmp_path / "t.parquet")
    told: list[tuple[int, int, int]] = []
    convert(
        tmp_path / "t.parquet",
        tmp_path / "lists",
        qid="query",
        doc_id="id",
        watch=lambda *numbers: told.append(numbers),
    )
    assert told.count((0, 1, 0)) == (not grouped)
    size = (tmp_path / "t.parquet").stat().st_size
    assert told[-1] == (size, size, 500)
    command = ["convert", tmp_path / "t.parquet", "--output", tmp_path / "again", "--qid", "query"]
    command += ["--doc-id", "id"]
    assert main([str(one) for one in command]) == 0
    err = capsys.readouterr().err
    assert "t.parquet" in err
    assert ("grouping" in err) == (not grouped)


@pytest.mark.parametrize("kind", ["letor", "ungrouped"])
def test_a_full_disk(tmp_path: Path, capsys, largest_file, kind: str):
    source, options = tmp_path / "train.txt", []
    if kind == "letor":
        write_letor(source, 300)
    else:
        source, options = tmp_path / "train.parquet", ["--qid", "query", "--doc-id", "id"]
        frame(2000).to_parquet(source)
    folder = tmp_path / "lists"
    command = ["convert", source, "--output", folder, *options]
    with largest_file(20_000):
        assert main([str(one) for one in command]) == 2
    errors = capsys.readouterr().err
    lines = errors.strip().splitlines()
    assert len(lines) == 1, errors
    assert lines[0].startswith(f"ltr convert: {folder}")
    assert "large" in lines[0] or "space" in lines[0]
    assert [*tmp_path.iterdir()] == [source]
    with pytest.raises(ValueError, match="path must"):
        open_lists(folder)
    options = dict(zip(("qid", "doc_id"), options[1::2], strict=False))
    assert len(convert(source, folder, **options)) > 100

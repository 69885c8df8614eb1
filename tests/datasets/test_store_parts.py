"""Conversion file by file, by tasks that are run anywhere, against conversion in one go."""

import os
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import StoredLists, conversion, convert, open_store, table_stream

from .test_convert import SMALL, USES, assert_same, frame, write_letor


def elsewhere(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks as other processes would: pickled, and the last one first."""
    for task in reversed(tasks):
        pickle.loads(pickle.dumps(task))()


def never(tasks: Sequence[Callable[[], None]]) -> None:
    pytest.fail("there is nothing to do")


def assert_joined(folder: Path, one: StoredLists) -> None:
    """Check that a store has the lists and the manifest of another one, but for the shards."""
    got = open_store(folder)
    got.store.check()
    assert_same(got, one.in_memory())
    assert got.summary() == one.summary()
    assert got.store.source == one.store.source
    assert got.store.schema == one.store.schema
    assert got.store.widths == one.store.widths
    np.testing.assert_array_equal(got.store.offsets, one.store.offsets)
    assert list(got.store.qids) == list(one.store.qids)
    if one.has_labels:
        np.testing.assert_array_equal(got.store.relevant(), one.store.relevant())
    assert {path.name for path in folder.iterdir()} - {".lock"} == {
        "manifest.json",
        *got.store.names,
    }


def three_frames(grouped: bool) -> list[pd.DataFrame]:
    """Tables without a common query, the second one without rows."""
    tables = [frame(300, 0, grouped), frame(0), frame(200, 1, grouped)]
    tables[1] = tables[1].astype(tables[0].dtypes)
    tables[2]["query"] += 1000
    tables[2]["shop"] = tables[2]["shop"].fillna("only here")
    return tables


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables(tmp_path: Path, monkeypatch, kind: str, grouped: bool):
    monkeypatch.setattr(table_stream, "ROWS", 64)
    (tmp_path / "in").mkdir()
    first, empty, last = three_frames(grouped)
    if kind == "parquet":  # the files' types differ, and a fraction's text is another one
        for table in (first, empty, last):
            table["id"] = 10**10 + np.arange(len(table))
        last = last.astype({"id": "float64", "query": "float64", "stock": "float32"})
        last["shop"] = None
    for name, table in zip("abc", (first, empty, last), strict=True):
        file = tmp_path / "in" / f"{name}.{kind}"
        table.to_parquet(file) if kind == "parquet" else table.to_csv(file, index=False)
    options: dict[str, Any] = {**USES, "shard_bytes": SMALL}
    one = convert(tmp_path / "in", tmp_path / "one", **options)
    convert(tmp_path / "in", tmp_path / "apart", **options, run_tasks=elsewhere)
    assert_joined(tmp_path / "apart", one)
    assert len(open_store(tmp_path / "apart").store.entries) > 3
    convert(tmp_path / "in", tmp_path / "apart", **options, run_tasks=never)
    convert(tmp_path / "in", tmp_path / "one", **options, run_tasks=never)


@pytest.mark.parametrize("sort_by_qid", [False, True])
def test_letor_text(tmp_path: Path, sort_by_qid: bool):
    write_letor(tmp_path / "a.txt", 40, back=sort_by_qid)
    (tmp_path / "b.txt").write_text("1 qid:a 3:1\n2 qid:b 14:2\n")
    options: dict[str, Any] = {"sort_by_qid": sort_by_qid, "shard_bytes": SMALL}
    one = convert(tmp_path / "*.txt", tmp_path / "one", **options)
    convert(tmp_path / "*.txt", tmp_path / "apart", **options, run_tasks=elsewhere)
    assert_joined(tmp_path / "apart", one)


def test_lists_of_group_sizes_are_counted_on_from_file_to_file(tmp_path: Path):
    files = [tmp_path / f"{name}.train" for name in "abc"]
    for file, sizes in zip(files, ([1, 2], [3], [2, 2]), strict=True):
        file.write_text("".join(f"{row % 2} 1:{row}\n" for row in range(sum(sizes))))
        file.with_name(f"{file.name}.query").write_text("\n".join(map(str, sizes)))
    pattern = tmp_path / "*.train"
    one = convert(pattern, tmp_path / "one")
    assert list(one.qids) == ["1", "2", "3", "4", "5"]
    assert one.lengths.tolist() == [1, 2, 3, 2, 2]
    convert(pattern, tmp_path / "apart", run_tasks=elsewhere)
    assert_joined(tmp_path / "apart", one)
    texts = [file.read_text() for file in files]
    files[1].write_text("1 qid:9 1:1\n")
    message = r"b\.train, line 1: this line has a qid, but earlier lines have none, got 'qid:9'"
    for number, run_tasks in enumerate((None, elsewhere)):
        with pytest.raises(ValueError, match=message):
            convert(pattern, tmp_path / f"mixed{number}", run_tasks=run_tasks)
    files[1].write_text(texts[1])
    files[1].with_name("b.train.query").unlink()
    message = r"b\.train.*: the qid is missing, and there is no file of group sizes b\.train"
    for number, run_tasks in enumerate((None, elsewhere)):
        with pytest.raises(ValueError, match=message):
            convert(pattern, tmp_path / f"missing{number}", run_tasks=run_tasks)


def test_group_sizes_beside_lines_with_a_qid_are_not_read(tmp_path: Path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"1 qid:{name} 1:1\n")
        (tmp_path / f"{name}.txt.query").write_text("no size\n")
    data = convert(tmp_path / "*.txt", tmp_path / "out", run_tasks=elsewhere)
    assert list(data.qids) == ["a", "b"]


def test_one_file(tmp_path: Path):
    write_letor(tmp_path / "a.txt", 10)
    frame(20).to_parquet(tmp_path / "a.parquet")
    convert(tmp_path / "a.txt", tmp_path / "text", run_tasks=never)
    convert(tmp_path / "a.parquet", tmp_path / "table", qid="query", run_tasks=never)


def test_a_query_in_two_files(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(conversion, "_QIDS", 7)
    for name, table in zip("abc", three_frames(True), strict=True):
        if name == "c":
            table.loc[150:, "query"] = 8
        table.to_parquet(tmp_path / f"{name}.parquet")
    pattern, out = tmp_path / "*.parquet", tmp_path / "out"
    message = (
        f"{tmp_path}/c.parquet: each query must be in one file if files are converted in parallel, "
        f"got '8', which is in {tmp_path}/a.parquet too: convert them in one process"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        convert(pattern, out, qid="query", doc_id="id", run_tasks=elsewhere)
    with pytest.raises(ValueError, match=r"\(its conversion has not ended\)"):
        open_store(out)
    data = convert(pattern, out, qid="query", doc_id="id")
    assert "8" in data.qids
    assert {*os.listdir(out)} - {".lock"} == {"manifest.json", *data.store.names}


def test_an_error_names_the_file(tmp_path: Path):
    first, _, last = three_frames(True)
    last.loc[170, "price"] = np.inf
    first.to_parquet(tmp_path / "a.parquet")
    last.to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"c.parquet: row 170, column 'price': must be finite"):
        convert(tmp_path / "*.parquet", tmp_path / "out", **USES, run_tasks=elsewhere)


class Killed(BaseException):
    """Stands for the end of a process."""


def test_stopped_at_every_step(tmp_path: Path, monkeypatch):
    write_letor(tmp_path / "a.txt", 30)
    (tmp_path / "b.txt").write_text("1 qid:a 3:1\n2 qid:b 14:2\n")
    one = convert(tmp_path / "*.txt", tmp_path / "one", shard_bytes=SMALL)
    replace, after_parts = os.replace, 0
    for step in range(100):
        out, done = tmp_path / f"out-{step}", 0

        def stopping(source: Any, target: Any, step: int = step) -> None:
            nonlocal done
            if done == step:
                raise Killed
            done += 1
            replace(source, target)

        stopped = False
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stopping)
            # what is left lies there, as after a kill
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            try:
                convert(tmp_path / "*.txt", out, shard_bytes=SMALL, run_tasks=elsewhere)
            except Killed:
                stopped = True
                assert not (out / "manifest.json").exists()
                moved = [*out.glob("*.arrow")]
                after_parts += bool(moved)
        convert(tmp_path / "*.txt", out, shard_bytes=SMALL, run_tasks=elsewhere)
        assert_joined(out, one)
        if not stopped:
            break
    else:
        pytest.fail("there are more steps")
    assert after_parts > 2

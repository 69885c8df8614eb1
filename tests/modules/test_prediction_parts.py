"""The parts of several processes, joined: all rows, in order, each once."""

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.modules import prediction_parts
from ltr.modules.prediction_files import POSITION, PredictionFile
from ltr.modules.prediction_parts import join_parts, merged


def write(path: Path, batches: list[list[int]], owner: int = 0) -> Path:
    """A part with a row for each position, numbered within the part."""
    path.touch()
    row = 0
    with PredictionFile(path, "part") as part:
        for positions in batches:
            rows = [1000 * owner + row + i for i in range(len(positions))]
            part.write(pa.table({POSITION: pa.array(positions, pa.int64()), "row": rows}))
            row += len(positions)
    return path


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 3), max_size=30),
    owners=st.lists(st.integers(0, 2), min_size=30, max_size=30),
    size=st.integers(1, 4),
)
def test_rows_come_in_the_order_of_their_positions(tmp_path_factory, lengths, owners, size):
    folder = tmp_path_factory.mktemp("parts")
    parts, expected = [], {}
    for owner in range(3):
        lists = [position for position in range(len(lengths)) if owners[position] == owner]
        batches, row = [], 0
        for start in range(0, len(lists), size):
            batches.append([p for p in lists[start : start + size] for _ in range(lengths[p])])
            for position in batches[-1]:
                expected.setdefault(position, []).append(1000 * owner + row)
                row += 1
        parts.append(write(folder / str(owner), batches, owner))
    found = [row for table in merged(parts) for row in table["row"].to_pylist()]
    assert found == [row for position in sorted(expected) for row in expected[position]]


def test_little_is_in_memory(tmp_path):
    # two processes that take lists in turn, as samplers share them
    parts = [write(tmp_path / str(r), [[r + 2 * i] for i in range(50)], r) for r in (0, 1)]
    assert max(map(len, merged(parts))) <= 3


def test_a_list_in_two_processes(tmp_path):
    parts = [write(tmp_path / "0", [[0, 2]]), write(tmp_path / "1", [[1, 2]])]
    with pytest.raises(ValueError, match=r"each list.*list 2 in two"):
        join_parts(parts, tmp_path / "p.csv", "csv")
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("batches", [[[2, 1]], [[3], [2]], [[3], [3]]])
def test_a_process_out_of_order(tmp_path, batches):
    with pytest.raises(ValueError, match="the lists of a process must come in order"):
        join_parts([write(tmp_path / "0", batches)], tmp_path / "p.csv", "csv")


def test_a_part_that_this_machine_does_not_see(tmp_path):
    parts = [write(tmp_path / "0", [[0]]), tmp_path / "elsewhere" / "1"]
    with pytest.raises(ValueError, match=r"got no file .*1 here: give an --output on a disk"):
        join_parts(parts, tmp_path / "p.csv", "csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [([3, 0, 2, 1], None), ([3, 0, 2, 2], "one process, got 4 rows"), ([3, 0, 2, 4], "got 4 rows")],
)
def test_rows_that_lists_have_scattered(tmp_path, rows, message):
    parts = [write(tmp_path / str(rank), [rows[2 * rank : 2 * rank + 2]]) for rank in (0, 1)]
    path = tmp_path / "p.parquet"
    if message:
        with pytest.raises(ValueError, match=message):
            join_parts(parts, path, "parquet", scattered=True)
        assert not path.exists()
        return
    assert join_parts(parts, path, "parquet", scattered=True) == 4
    assert pq.read_table(path)["row"].to_pylist() == [1, 1, 0, 0]  # both parts count from 0
    assert pq.read_schema(path).names == ["row"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    part, path = write(tmp_path / "0", [[0]]), tmp_path / "p.csv"
    path.write_text("old")

    def full(self, table):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(prediction_parts.PredictionFile, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*p\.csv'"):
        join_parts([part], path, "csv")
    assert path.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "p.csv"]

"""The memory and the disk that it takes to convert a table whose rows are in random order.

    python benchmarks/grouping.py --gigabytes 1 20 --folder BIG
    python benchmarks/grouping.py --gigabytes --wide 2 --folder BIG

For each size a Parquet file is written of documents in random order, of 136 float32 features and of
lists of 100 documents. Random numbers hardly compress, so that the file is as large as the rows. It
is converted in a process of its own, and deleted as soon as the lists are written.

`peak` is the most memory that this process holds in all, Python and torch included; `anonymous` is
without the pages of mapped files, which the system takes back when it needs them. The system counts
this program's own memory as the least of `peak`. `disk` is the most that the folder of the lists
takes while it is written, the lists and temporary files together. Sizes are in MiB, `wall` and
`cpu` in seconds. `in_order` says whether each query is one list, and lists and documents are in the
order of their first appearance.

With `--wide`, the rows have 400 columns of float32 in random order. `convert` is the conversion of
the file. `duckdb` is only what DuckDB takes to sort the same file by the first row of each query
and to hand the rows over, with a memory limit of 512 MB. Sizes that are not run keep the numbers
that the output has.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import RESULTS, environment, rounded, write

FEATURES, LENGTH, BLOCK = 136, 100, 50_000
CHECKED = 1000  # lists at a time
HIGH = 1 << 20
CONVERT = "import sys; from ltr.cli import main; sys.exit(main())"
WIDE = 400
SORT = """\
import sys, duckdb
table, folder = sys.argv[1:]
options = {"memory_limit": "512MB", "temp_directory": folder, "threads": "1"}
database = duckdb.connect(f"{folder}/sort.duckdb", config=options)
database.execute("SET enable_progress_bar = false")
rows = f"read_parquet('{table}', file_row_number=true)"
reader = database.sql(
    f"WITH firsts AS (SELECT qid, min(file_row_number) AS first FROM {rows} GROUP BY qid) "
    f"SELECT rows.* FROM {rows} AS rows JOIN firsts USING (qid) ORDER BY first, file_row_number"
).to_arrow_reader(1 << 14)
print(sum(batch.num_rows for batch in reader))
"""


def make_table(path: Path, size: int) -> int:
    """Write rows in random order up to a size in bytes; return how many.

    The first two features of a row are its number: how often `HIGH` goes into it, and the rest.
    """
    draw = np.random.default_rng(0)
    documents = size // (4 * FEATURES + 4)
    lists = max(1, documents // LENGTH)
    schema = pa.schema(
        [
            ("qid", pa.int32()),
            ("label", pa.float32()),
            ("features", pa.list_(pa.float32(), FEATURES)),
        ]
    )
    options: dict[str, Any] = {"compression": "none", "use_dictionary": ["qid", "label"]}
    row = 0
    with pq.ParquetWriter(path, schema, **options) as writer:
        while path.stat().st_size < size:
            values = draw.random((BLOCK, FEATURES), dtype=np.float32)
            values[:, 0], values[:, 1] = np.divmod(np.arange(row, row := row + BLOCK), HIGH)
            columns = [
                pa.array(draw.integers(0, lists, BLOCK, np.int32)),
                pa.array(draw.integers(0, 5, BLOCK).astype(np.float32)),
                pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), FEATURES),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema), row_group_size=BLOCK)
    return row


def make_wide(path: Path, size: int) -> int:
    """Write rows of 400 columns in random order up to a size in bytes; return how many."""
    draw, row = np.random.default_rng(0), 0
    lists = max(1, size // (4 * WIDE * LENGTH))
    names = [f"f{i}" for i in range(WIDE)]
    types = [("qid", pa.int32()), ("label", pa.float32()), *((x, pa.float32()) for x in names)]
    schema = pa.schema(types)
    options: dict[str, Any] = {"compression": "none", "use_dictionary": ["qid", "label"]}
    with pq.ParquetWriter(path, schema, **options) as writer:
        while path.stat().st_size < size:
            values = draw.random((WIDE, BLOCK), dtype=np.float32)
            qid = draw.integers(0, lists, BLOCK, np.int32)
            label = draw.integers(0, 5, BLOCK).astype(np.float32)
            batch = pa.record_batch([qid, label, *values], schema=schema)
            writer.write_batch(batch, row_group_size=BLOCK)
            row += BLOCK
    return row


def converted(table: Path, lists: Path) -> dict[str, float]:
    """Convert a table in a process of its own, and return what that took."""
    options = [str(table), "--output", str(lists), "--qid", "qid", "--label", "label", "--quiet"]
    partial = lists.with_name(lists.name + ".partial")
    found = measured(["-c", CONVERT, "convert", *options], partial)
    return {**found, "lists": size_of(lists) / 2**20}


def measured(arguments: list[str], partial: Path) -> dict[str, float]:
    """Run Python in a process of its own, and return what that and a folder took."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments])
    anonymous = disk = 0
    while True:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                anonymous = max(anonymous, int(line.split()[1]))
        disk = max(disk, size_of(partial))
        time.sleep(0.1)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
    if status:
        raise RuntimeError(f"the process failed with status {status}")
    return {
        "wall": time.perf_counter() - begin,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss / 1024,
        "anonymous": anonymous / 1024,
        "disk": disk / 2**20,
    }


def size_of(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # it was removed meanwhile
            continue
    return total


def in_order(folder: Path) -> bool:
    """Return whether each query is one list, and all is in the order of the first appearance."""
    from ltr.datasets import open_lists

    data, last = open_lists(folder), -1
    for start in range(0, len(data), CHECKED):
        some = data.read(np.arange(start, min(start + CHECKED, len(data))))
        high, low = some.features[:, :2].astype(np.int64).T
        rows, starts = high * HIGH + low, some.offsets[:-1]
        ascends = np.diff(rows) > 0
        ascends[starts[1:] - 1] = True  # from a list to the next one
        if not ascends.all() or (np.diff(rows[starts], prepend=last) <= 0).any():
            return False
        last = int(rows[starts[-1]])
    return len({*data.qids}) == len(data)


def wide(folder: Path, size: int) -> dict[str, Any]:
    """Convert a table of 400 columns, and sort it by DuckDB; return what both took."""
    table, lists, sort = folder / "wide.parquet", folder / "wide.lists", folder / "sort"
    shutil.rmtree(lists, ignore_errors=True)
    found: dict[str, Any] = {"features": WIDE, "documents": make_wide(table, size)}
    found["parquet"] = rounded(table.stat().st_size / 2**20)
    found["convert"] = {key: rounded(value) for key, value in converted(table, lists).items()}
    shutil.rmtree(lists)
    sort.mkdir()
    took = measured(["-c", SORT, str(table), str(sort)], sort)
    found["duckdb"] = {key: rounded(value) for key, value in took.items()}
    shutil.rmtree(sort)
    table.unlink()
    print(found, flush=True)
    return found


def main() -> None:
    """Measure all sizes and write the results."""
    parser = argparse.ArgumentParser(description="Memory and disk of a conversion that groups.")
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[1.0], help="GiB of Parquet")
    parser.add_argument("--wide", type=float, help="GiB of Parquet with 400 columns")
    parser.add_argument("--folder", type=Path, default=Path("grouping-benchmark"))
    parser.add_argument("--output", type=Path, default=RESULTS / "grouping.json")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    found: list[dict[str, Any]] = []
    result: dict[str, Any] = {**kept, "environment": environment(), "features": FEATURES}
    if given.wide is not None:
        result["wide"] = wide(given.folder, int(given.wide * 2**30))
        write(given.output, result)
    for gigabytes in given.gigabytes:
        table, lists = given.folder / "shuffled.parquet", given.folder / "grouped.lists"
        shutil.rmtree(lists, ignore_errors=True)
        documents = make_table(table, int(gigabytes * 2**30))
        size = table.stat().st_size / 2**20
        print(f"{documents:,} documents, {size:,.0f} MiB of Parquet", flush=True)
        one = converted(table, lists)
        table.unlink()
        values = {"documents": documents, "parquet": rounded(size)}
        values |= {key: rounded(value) for key, value in one.items()}
        found.append({**values, "in_order": in_order(lists)})
        print(found[-1], flush=True)
        shutil.rmtree(lists)
        write(given.output, {**result, "sizes": found})


if __name__ == "__main__":
    main()

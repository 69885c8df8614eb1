"""Time and memory of preparing tables, in another checkout and in this one, in turns.

    python benchmarks/tables.py OTHER

OTHER is a checkout of an earlier commit. A table of 1,000,000 rows with 20 columns of numbers, one
of text and one of booleans, and a CSV file of 500 rows with 4,000 columns, are read in a new
process for each case and turn, by the package of one of the two checkouts. Times are seconds of CPU
time of all threads, without the imports; the least of all turns counts. The memory is the largest
resident size of the process, torch included.

The cases of frames prepare a pandas frame of 1,000,000 rows with 100 columns of float32: the lists
that `NeuralRanker.fit` trains on, and `TableDataModule.setup("fit")`, which fits the transform too.
The rows of a query are together ("frame"), or everywhere ("mixed"). Their memory is the largest
resident size above the one before the call, when the frame is already in memory (400 MB).

The result is written to benchmarks/results/tables.json.
"""

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from measure import RESULTS, environment, write

HERE = Path(__file__).resolve().parent.parent
FILES = ("load csv", "load parquet", "convert csv", "convert parquet", "wide csv")
FRAMES = ("estimator frame", "estimator mixed", "module frame", "module mixed")
CASES = FILES + FRAMES


def make_tables(folder: Path, rows: int) -> None:
    """Write the files."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, 20)).astype(np.float32)
    columns = {"query": np.arange(rows) // 20, "id": [f"d{i}" for i in range(rows)]}
    columns |= {f"f{i}": features[:, i] for i in range(20)}
    columns |= {"shop": rng.choice(list("abcdef"), rows), "new": rng.random(rows) < 0.5}
    table = pa.table({**columns, "grade": (features[:, 0] > 1).astype(int)})
    pa_csv.write_csv(table, folder / "rows.csv")
    pq.write_table(table, folder / "rows.parquet")
    wide = {f"f{i}": rng.normal(size=500).round(3) for i in range(4000)}
    table = pa.table({"query": np.arange(500) // 10, "grade": np.arange(500) % 2, **wide})
    pa_csv.write_csv(table, folder / "wide.csv")


class Prepared(Exception):
    """The lists to train on are ready."""


def make_frame(rows: int, mixed: bool) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return the columns of features, the qid and the label of each row."""
    rng = np.random.default_rng(0)
    columns = [f"f{i}" for i in range(100)]
    frame = pd.DataFrame(rng.random((rows, 100), dtype=np.float32), columns=columns)
    qid = np.arange(rows) // 20
    return frame, rng.permutation(qid) if mixed else qid, rng.integers(0, 5, rows)


def measure_frame(case: str, rows: int) -> dict[str, float]:
    """Return the seconds and megabytes of preparing a frame in this process."""
    import ltr.estimators.training
    from ltr.datasets import TableDataModule
    from ltr.estimators import NeuralRanker

    kind, _, order = case.partition(" ")
    frame, qid, label = make_frame(rows, order == "mixed")
    if kind == "module":
        frame.insert(0, "qid", qid)
        frame.insert(1, "label", label)

    def stop(*_: object, **__: object) -> None:
        raise Prepared

    ltr.estimators.training.train = stop
    gc.collect()
    before, start = resident("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the largest size starts again
    if kind == "module":
        module = TableDataModule(frame, "qid", "label", validation=0.2, seed=0)
        module.setup("fit")
    else:
        with suppress(Prepared):
            NeuralRanker(columns="all", verbose=0).fit(frame, label, qid=qid)
    seconds = time.process_time() - start
    return {"seconds": seconds, "megabytes": resident("VmHWM") - before}


def resident(key: str) -> float:
    """Return the resident size of this process, or its peak, in megabytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{key}:")[2].split()[0]) / 1024


def measure(case: str, folder: Path) -> dict[str, float]:
    """Return the seconds and megabytes of a case in this process."""
    from ltr.datasets import Schema, TableDataModule, convert, load_table, read_table

    kind, _, ending = case.partition(" ")
    file = folder / f"rows.{ending}"
    small = load_table(pq.read_table(folder / "rows.parquet").slice(0, 1000))
    schema = Schema.infer(small, qid="query", label="grade", doc_id="id").fit_levels(small)
    start = time.process_time()
    if kind == "wide":
        module = TableDataModule(folder / "wide.csv", "query", "grade", validation=0.2)
        module.setup("fit")
    elif kind == "load":
        table = load_table(file, {"query", "id"})
        Schema.infer(table, qid="query", label="grade", doc_id="id").fit_levels(table)
        read_table(table, schema)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            convert(file, Path(out, "lists"), qid="query", label="grade", doc_id="id")
    seconds = time.process_time() - start
    return {
        "seconds": seconds,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def turn(checkout: Path, case: str, folder: Path, rows: int) -> dict[str, float]:
    """Return the numbers of a new process that imports the package of a checkout."""
    clean = {**os.environ, "PYTHONPATH": f"{checkout}:{HERE / 'benchmarks'}"}
    clean["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", case, str(folder)]
    command += ["--rows", str(rows)]
    done = subprocess.run(command, cwd=checkout, env=clean, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run the turns, print the table and write it."""
    parser = argparse.ArgumentParser(description="Reading tables before and after")
    parser.add_argument("other", type=Path)
    parser.add_argument("--measure", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--output", type=Path, default=RESULTS / "tables.json")
    options = parser.parse_args()
    if options.measure:
        if options.measure in FRAMES:
            print(json.dumps(measure_frame(options.measure, options.rows)))
        else:
            print(json.dumps(measure(options.measure, options.other)))
        return
    kept = options.output.exists() and options.cases != CASES  # other cases stay
    found = json.loads(options.output.read_text("utf-8"))["cases"] if kept else {}
    with tempfile.TemporaryDirectory() as name:
        if {*options.cases} & {*FILES}:
            make_tables(Path(name), options.rows)
        for case in options.cases:
            pairs = [
                [
                    turn(one.resolve(), case, Path(name), options.rows)
                    for one in (options.other, HERE)
                ]
                for _ in range(options.turns)
            ]
            before, after = (
                {key: min(pair[side][key] for pair in pairs) for key in pairs[0][side]}
                for side in (0, 1)
            )
            found[case] = {"before": before, "after": after}
            print(
                f"{case:16}{before['seconds']:8.2f}{after['seconds']:8.2f} s"
                f"{before['megabytes']:8.0f}{after['megabytes']:8.0f} MB",
                flush=True,
            )
            result = {"environment": environment(), "rows": options.rows, "turns": options.turns}
            write(options.output, {**result, "cases": found})


if __name__ == "__main__":
    main()

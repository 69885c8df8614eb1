"""The memory of `ltr predict` on tables and lists on disk of 100,000 and 1,000,000 rows.

    python benchmarks/predict.py

A model is trained on a table of 20 features, and scores two others, as Parquet, as CSV and as lists
on disk, each in a process of its own. The memory is the largest resident size of that process,
Python and torch included: an empty table would take most of it. `anonymous` is without the pages of
mapped files, such as those of the lists, which the system takes back when it needs them; it is read
from /proc (of Linux) every 10 ms. Beside it stands what `import torch` takes alone. The seconds are
CPU time.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from measure import RESULTS, environment, rounded, write

FEATURES, LENGTH = 20, 20
LTR = [sys.executable, "-c", "import sys; from ltr.cli import main; sys.exit(main())"]


def make_table(rows: int) -> pa.Table:
    """Return a table of queries of 20 rows."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    columns = {"query": np.arange(rows) // LENGTH, "id": [f"d{i}" for i in range(rows)]}
    columns |= {f"f{i}": features[:, i] for i in range(FEATURES)}
    return pa.table({**columns, "grade": (features[:, 0] + features[:, 1] > 1).astype(int)})


def measured(command: list[str], folder: Path) -> dict[str, float]:
    """Return the largest sizes of a process in MB, and its seconds of CPU time."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    anonymous = ended = 0
    while not ended:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                anonymous = max(anonymous, int(line.split()[1]))
        time.sleep(0.01)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if status:
            raise RuntimeError(f"{command} failed with status {status}")
    sizes = {"megabytes": usage.ru_maxrss / 1024, "anonymous": anonymous / 1024}
    return {**sizes, "seconds": usage.ru_utime + usage.ru_stime}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Memory of ltr predict")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--output", type=Path, default=RESULTS / "predict.json")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        imports = [sys.executable, "-c", "import torch"]
        alone = measured(imports, folder)["megabytes"]
        print(f"{alone:6.0f} MB  torch alone")
        pq.write_table(make_table(min(20_000, *given.rows)), folder / "train.parquet")
        options = ["--data.path", "train.parquet", "--data.qid", "query", "--data.label", "grade"]
        options += ["--data.doc_id", "id", "--data.validation", "0.2", "--trainer.max_epochs", "1"]
        measured([*LTR, "fit", "--config", "table", *options], folder)
        for rows in given.rows:
            table = make_table(rows)
            pq.write_table(table, folder / "new.parquet")
            pa_csv.write_csv(table, folder / "new.csv")
            shutil.rmtree(folder / "new.lists", ignore_errors=True)
            options = ["--qid", "query", "--label", "grade", "--doc-id", "id"]
            measured([*LTR, "convert", "new.parquet", "--output", "new.lists", *options], folder)
            for kind in ("parquet", "csv", "lists"):
                output = "scores.parquet" if kind == "parquet" else "scores.csv"
                options = ["runs/table", f"new.{kind}", "--output", output]
                one = measured([*LTR, "predict", *options], folder)
                said = (
                    "{megabytes:6.0f} MB, {anonymous:4.0f} without mapped files, {seconds:3.0f} s"
                )
                print(f"{said.format(**one)}  {rows:,} rows, {kind}")
                values = {name: rounded(value) for name, value in one.items()}
                found.append({"rows": rows, "kind": kind, **values})
    result = {"environment": environment(), "alone": rounded(alone), "tables": found}
    write(given.output, result)


if __name__ == "__main__":
    main()

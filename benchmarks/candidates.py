"""`ltr lists` on long runs: CPU seconds and peak memory by the number of the run's rows.

    python benchmarks/candidates.py

A run has `DEEP` documents for each query, drawn from `DOCUMENTS` texts of `LENGTH` characters; one
document of a query is judged relevant and ten are judged irrelevant. Each command is a process of
its own, with the options of docs/text-rerankers.md, and its memory is the process's largest.
`import ltr.rerank` alone is the row of 0.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import RESULTS, environment, rounded, write

LTR = "import sys; from ltr.cli import main; sys.exit(main())"
RESULT = RESULTS / "candidates.json"
ROWS = (125_000, 250_000, 500_000, 1_000_000)
DEEP, DOCUMENTS, LENGTH, JUDGED = 100, 200_000, 300, 10


def files(folder: Path, rows: int) -> list[str]:
    """Write a run, judgements, queries and documents, and return the arguments that name them."""
    draw = random.Random(rows)
    with (
        (folder / "first.run").open("w") as run,
        (folder / "qrels.txt").open("w") as qrels,
        (folder / "queries.tsv").open("w") as queries,
    ):
        for query in range(rows // DEEP):
            queries.write(f"q{query}\tquery number {query}\n")
            names = draw.sample(range(DOCUMENTS), DEEP)
            for position, name in enumerate(names, start=1):
                run.write(f"q{query} Q0 d{name} {position} {DEEP - position} first\n")
            for number, name in enumerate(draw.sample(names, JUDGED + 1)):
                qrels.write(f"q{query} 0 d{name} {int(number == 0)}\n")
    with (folder / "documents.tsv").open("w") as documents:
        for name in range(DOCUMENTS):
            documents.write(f"d{name}\t{f'text {name} '.ljust(LENGTH, 'x')}\n")
    texts = ["--queries", "queries.tsv", "--documents", "documents.tsv"]
    return ["first.run", "qrels.txt", *texts, "--depth", str(DEEP), "--output", "lists.jsonl"]


def measured(folder: Path, command: list[str]) -> dict[str, Any]:
    """Run a command in a folder, and return its CPU seconds and peak memory in MiB."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds = used.ru_utime + used.ru_stime
    return {"seconds": rounded(seconds), "peak_mib": rounded(used.ru_maxrss / 1024)}


def main() -> None:
    """Measure each number of rows, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    sizes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = measured(folder, [sys.executable, "-c", "import ltr.rerank"])
        sizes.append({"rows": 0} | start)
        for rows in options.rows:
            arguments = files(folder, rows)
            row = measured(folder, [sys.executable, "-c", LTR, "lists", *arguments])
            sizes.append({"rows": rows} | row | {"lists": rows // DEEP})
            print(sizes[-1], flush=True)
    setting = {"documents": DOCUMENTS, "characters": LENGTH, "depth": DEEP}
    write(options.output, {"environment": environment()} | setting | {"sizes": sizes})


if __name__ == "__main__":
    main()

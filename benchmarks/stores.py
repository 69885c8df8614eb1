"""Convert, open, train on lists on disk, predict and draw, in another checkout and here, in turns.

    python benchmarks/stores.py OTHER --folder BIG

OTHER is a checkout of an earlier commit. For each number of documents a Parquet file is made whose
queries stand together, one whose rows are in random order, and, for up to 1,000,000 documents, a
file of LETOR text: see `data.py`. In each turn, both checkouts run each stage in a process of its
own, each with lists of its own:

- text, table, shuffled: `ltr convert` of each file.
- open: open the lists of `table`; the median of 20 times.
- fit: `ltr fit` with the recipe `table`, one epoch on these lists.
- predict: `ltr predict` of the same lists.
- random: batches of 64 lists drawn at random from them, by `__getitems__`.

`cpu` is the least CPU time of all turns, in seconds, and `documents_per_second` is by it. `peak` is
the most memory that a process holds in all, and `anonymous` is without the pages of mapped files,
in MiB: the most of all turns. The system counts this program's own memory as the least of `peak`,
530 to 690 MiB. `ratio` is the speed here beside the speed of OTHER. Sizes and stages that are not
run keep the numbers that the output has.
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
import pyarrow.parquet as pq
from data import BLOCK, make_rows, make_table, make_text
from measure import RESULTS, environment, rounded, write

HERE = Path(__file__).resolve().parent.parent
MOST_TEXT = 1_000_000
BATCHES = 1000
LTR = "import sys; from ltr.cli import main; sys.exit(main())"
OPEN_LISTS = """\
import statistics, sys, time
import numpy as np
from ltr import datasets
open_lists = getattr(datasets, "open_lists", None) or datasets.open_store
"""
OPEN = (
    OPEN_LISTS
    + """\
times = []
for _ in range(20):
    begin = time.process_time()
    len(open_lists(sys.argv[1]))
    times.append(time.process_time() - begin)
print(statistics.median(times))
"""
)
RANDOM = (
    OPEN_LISTS
    + """\
data, draw = open_lists(sys.argv[1]), np.random.default_rng(0)
if hasattr(data, "store"):
    data.store.check()  # its checksums, compared once
batches = draw.integers(0, len(data), (int(sys.argv[2]), 64))
begin, documents = time.process_time(), 0
for batch in batches:
    documents += int(data.__getitems__(batch.tolist())["lengths"].sum())
print(time.process_time() - begin, documents)
"""
)


def make_grouped(path: Path, documents: int) -> None:
    """Write a Parquet file of documents whose queries stand together."""
    draw = np.random.default_rng(0)
    with pq.ParquetWriter(path, make_rows(draw, 1, documents).schema) as writer:
        for start in range(0, documents, BLOCK):
            rows = make_rows(draw, min(BLOCK, documents - start), documents)
            qids = np.arange(start, start + rows.num_rows) // 100
            writer.write_table(rows.set_column(0, "qid", [qids]))


def run(checkout: Path, folder: Path, code: str, *args: Any) -> tuple[dict[str, float], str]:
    """Run code in a new process that imports the package of a checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *map(str, args)]
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
        anonymous = 0
        while True:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    anonymous = max(anonymous, int(line.split()[1]))
            time.sleep(0.02)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
        output.seek(0)
        said = output.read()
    if status:
        raise RuntimeError(f"{command} failed: {said[-2000:]}")
    found = {"cpu": usage.ru_utime + usage.ru_stime}
    return {**found, "peak": usage.ru_maxrss / 1024, "anonymous": anonymous / 1024}, said


def stage(name: str, checkout: Path, folder: Path, sources: Path, documents: int) -> dict[str, Any]:
    """Run a stage for a checkout, whose lists lie in a folder of its own."""
    table = folder / "table.lists"
    if name == "open":
        found, said = run(checkout, folder, OPEN, table)
        cpu = float(said)
        return {**found, "cpu": cpu, "documents_per_second": documents / cpu}
    if name == "random":
        found, said = run(checkout, folder, RANDOM, table, BATCHES)
        cpu, drawn = map(float, said.split())
        return {**found, "cpu": cpu, "documents_per_second": drawn / cpu}
    if name == "fit":
        shutil.rmtree(folder / "runs", ignore_errors=True)
        options = ["--data.path", table, "--data.validation", 0.1, "--trainer.max_epochs", 1]
        found, _ = run(checkout, folder, LTR, "fit", "--config", "table", *options)
    elif name == "predict":
        options = ["runs/table", table]
        if not (checkout / "ltr/models/ranking_model.py").exists():  # it scored by a checkpoint
            options = ["--config", "table", "--ckpt_path", "best", "--data.path", table]
        found, _ = run(checkout, folder, LTR, "predict", *options, "--output", "scores.parquet")
    else:
        source = sources / ("text.txt" if name == "text" else f"{name}.parquet")
        lists = folder / f"{name}.lists"
        shutil.rmtree(lists, ignore_errors=True)
        columns = [] if name == "text" else ["--qid", "qid", "--label", "label"]
        command = (checkout / "ltr/cli/convert.py").read_text("utf-8")
        output = "--output" if '"--output"' in command else "--out"  # the option of ltr 0.2
        found, _ = run(checkout, folder, LTR, "convert", source, output, lists, *columns)
        if name != "table":
            shutil.rmtree(lists)
    return {**found, "documents_per_second": documents / found["cpu"]}


STAGES = ("text", "table", "shuffled", "open", "fit", "predict", "random")


def size_of(documents: int, other: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run all turns with so many documents."""
    folder = given.folder / str(documents)
    folder.mkdir(parents=True, exist_ok=True)
    stages = [name for name in STAGES if name in given.stages]
    if documents > MOST_TEXT and "text" in stages:
        stages.remove("text")
    for name, make in (("table", make_grouped), ("shuffled", make_table)):
        if name in stages:
            make(folder / f"{name}.parquet", documents)
    if "text" in stages:
        make_text(folder / "text.txt", documents)
    turns: dict[str, dict[str, list[dict[str, float]]]] = {}
    for _ in range(given.turns):
        for name in stages:
            for side, checkout in (("before", other), ("after", HERE)):
                one = stage(name, checkout, folder / side, folder, documents)
                turns.setdefault(name, {}).setdefault(side, []).append(one)
    found: dict[str, Any] = {"documents": documents}
    for name, sides in turns.items():
        found[name] = {"turns": given.turns}
        for side, ones in sides.items():
            best = min(ones, key=lambda one: one["cpu"])
            most = {key: max(one[key] for one in ones) for key in ("peak", "anonymous")}
            found[name][side] = {key: rounded(value) for key, value in {**best, **most}.items()}
        speeds = [found[name][side]["documents_per_second"] for side in ("before", "after")]
        found[name]["ratio"] = rounded(speeds[1] / speeds[0])
        print(f"{documents:,} documents, {name}: {json.dumps(found[name])}", flush=True)
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Measure all sizes and write the results."""
    parser = argparse.ArgumentParser(description="Lists on disk in another checkout and here.")
    parser.add_argument("other", type=Path)
    parser.add_argument("--documents", type=int, nargs="+", default=[10**6])
    parser.add_argument("--stages", choices=STAGES, nargs="+", default=[*STAGES])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("stores-benchmark"))
    parser.add_argument("--output", type=Path, default=RESULTS / "stores.json")
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    kept = json.loads(given.output.read_text())["sizes"] if given.output.exists() else []
    sizes = {size["documents"]: size for size in kept}
    for documents in given.documents:
        found = size_of(documents, given.other.resolve(), given)
        sizes[documents] = {**sizes.get(documents, {}), **found}
        result = {"environment": environment(), "sizes": [sizes[one] for one in sorted(sizes)]}
        write(given.output, result)


if __name__ == "__main__":
    main()

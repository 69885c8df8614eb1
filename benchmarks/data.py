"""Reading, storing and batching lists of 136 features, by their number of documents.

    python benchmarks/data.py --folder BIG

For each number of documents a file of LETOR text is made, shaped like MSLR-WEB30K: 1 kB per line,
features that are whole numbers, zeros and decimals, lists of 40 to 199 documents. Then, each in a
process of its own:

- parse: read the text into float32 and drop it. The reader's compiled code is in numba's cache.
- sklearn: the same by scikit-learn's `load_svmlight_file`, on at most 1,000,000 documents, which
  is 1 GB of text; `differences` counts the values in which its result and the reader's differ in
  any bit: features, labels and qids.
- sklearn_without: the same without the qids, whose array scikit-learn grows line by line, so that
  its time grows with the square of the documents.
- convert: to a store, as `ltr convert` does.
- group: the same of a Parquet file of the documents in random order.
- open: the store, in milliseconds by the clock: the median of five.
- epoch: the batches of a shuffled pass of a `DataLoader`, 64 lists each, ragged; `padded` ones too.

`cpu` is in seconds of CPU time, which other programs do not change, and `wall` by the clock;
`documents_per_second` is of CPU time. `peak` is the most memory that the process holds in all,
Python and torch included; `anonymous` is without the pages of mapped files, which the system takes
back when it needs them. MB are 10^6 bytes. `base` is what the imports alone take.

`--stages` names those to run; the file keeps what it has of the others.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import RESULTS, environment, rounded, write

FEATURES, BATCH, BLOCK = 136, 64, 100_000
SKLEARN_LARGEST = 1_000_000


def make_lines(documents: int) -> tuple[list[bytes], list[bytes], np.ndarray]:
    """Return labels, the text of the features, and the list of each document, from 0."""
    draw = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < documents:
        lengths.append(int(draw.integers(40, 200)))
    lists = np.repeat(np.arange(len(lengths)), lengths)[:documents]
    texts = []
    for start in range(0, documents, 10_000):
        rows = min(10_000, documents - start)
        whole = draw.geometric(0.05, (rows, FEATURES)) * (draw.random((rows, FEATURES)) < 0.5)
        decimal = draw.lognormal(0, 2, (rows, FEATURES))
        for one, other in zip(whole.tolist(), decimal.tolist(), strict=True):
            pairs = (
                f"{i}:{other[i - 1]:.6f}" if i % 3 == 0 else f"{i}:{one[i - 1]}"
                for i in range(1, FEATURES + 1)
            )
            texts.append((" ".join(pairs) + " \n").encode())
    labels = [b"%d qid:" % label for label in draw.integers(0, 5, documents)]
    return labels, texts, lists


def make_text(path: Path, documents: int) -> None:
    """Write a file of LETOR text; beyond 100,000 documents the features repeat, in new lists."""
    labels, texts, lists = make_lines(min(documents, BLOCK))
    with path.open("wb") as file:
        first = 0
        for start in range(0, documents, BLOCK):
            count = min(BLOCK, documents - start)
            qids = [b"%d " % qid for qid in (lists[:count] + first).tolist()]
            parts = zip(labels, qids, texts, strict=False)
            file.write(b"".join([x for line in parts for x in line]))
            first += int(lists[-1]) + 1


def make_table(path: Path, documents: int) -> None:
    """Write a Parquet file of documents in random order."""
    draw = np.random.default_rng(0)
    with pq.ParquetWriter(path, make_rows(draw, 1, documents).schema) as writer:
        for start in range(0, documents, BLOCK):
            writer.write_table(make_rows(draw, min(BLOCK, documents - start), documents))


def make_rows(draw: np.random.Generator, rows: int, documents: int) -> pa.Table:
    """Return rows of queries drawn from as many as make lists of 100 documents."""
    features = pa.array(draw.random(rows * FEATURES, dtype=np.float32))
    columns: dict[str, Any] = {"qid": draw.integers(0, max(1, documents // 100), rows)}
    columns["label"] = draw.integers(0, 5, rows)
    columns["features"] = pa.FixedSizeListArray.from_arrays(features, FEATURES)
    return pa.table(columns)


def measured(call: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds of a call, and the memory of this process up to its end."""
    base, wall, cpu = peak(), time.perf_counter(), time.process_time()
    call()
    seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**seconds, "peak_mb": peak(), "base_mb": base, "anonymous_mb": anonymous()}


def peak() -> float:
    """Return the largest resident size so far, in MB."""
    return _status("VmHWM")


def anonymous() -> float:
    """Return the resident memory that is not of files, in MB."""
    return _status("RssAnon")


def _status(key: str) -> float:
    # getrusage would count the parent's memory before the program was loaded
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024 / 1e6


def parse(source: Path, store: Path) -> dict[str, float]:
    """Read the text chunk by chunk."""
    from ltr.datasets.letor import LetorReader

    tiny = source.with_suffix(".tiny")
    tiny.write_text("1 qid:1 1:1\n1 qid:1 1:2 # x\n")
    list(LetorReader([tiny]).chunks())  # loads the compiled code
    tiny.unlink()
    return measured(lambda: [None for _ in LetorReader([source]).chunks()])


def sklearn(source: Path, store: Path) -> dict[str, float]:
    """Read the text by scikit-learn, and compare the values."""
    from sklearn.datasets import load_svmlight_file

    from ltr.datasets.letor import LetorReader

    found: list[Any] = []
    # its annotation knows float64 alone
    options: dict[str, Any] = {"dtype": np.float32, "query_id": True}
    result = measured(lambda: found.extend(load_svmlight_file(str(source), **options)))
    features, labels, qids = found
    start = differences = 0
    for chunk in LetorReader([source]).chunks():
        rows = slice(start, start := start + len(chunk.features))
        names = np.repeat(np.array(chunk.qids).astype(np.int64), chunk.lengths)
        theirs = features[rows].toarray()
        differences += (chunk.features.view(np.int32) != theirs.view(np.int32)).sum()
        differences += (chunk.labels != labels[rows]).sum() + (names != qids[rows]).sum()
    assert start == len(labels), start
    return {**result, "differences": int(differences)}


def sklearn_without(source: Path, store: Path) -> dict[str, float]:
    """Read the text by scikit-learn, without the qids."""
    from sklearn.datasets import load_svmlight_file

    options: dict[str, Any] = {"dtype": np.float32}
    return measured(lambda: load_svmlight_file(str(source), **options))


def convert(source: Path, store: Path) -> dict[str, float]:
    """Convert the text to a store."""
    from ltr.datasets import convert

    return measured(lambda: convert(source, store))


def group(source: Path, store: Path) -> dict[str, float]:
    """Convert a table of rows in random order to a store."""
    from ltr.datasets import convert

    return measured(lambda: convert(source, store, qid="qid", label="label"))


def opening(source: Path, store: Path) -> dict[str, float]:
    """Open the store."""
    from ltr.datasets import open_lists

    before, times = anonymous(), []
    for _ in range(5):
        start = time.perf_counter()
        open_lists(store)
        times.append(time.perf_counter() - start)
    data = open_lists(store)
    lists, size = len(data), sum(path.stat().st_size for path in store.iterdir())
    return {
        "milliseconds": statistics.median(times) * 1e3,
        "anonymous_mb": anonymous() - before,
        "lists": lists,
        "bytes_per_document": size / data.summary().documents,
    }


def epoch(source: Path, store: Path, padded: bool = False) -> dict[str, float]:
    """Make the batches of a shuffled pass."""
    from torch.utils.data import DataLoader

    from ltr.datasets import ListSampler, collate_lists, collate_ragged, open_lists

    most = 0.0

    def go() -> None:
        nonlocal most
        data = open_lists(store)
        collate = collate_lists if padded else collate_ragged
        for number, _ in enumerate(
            DataLoader(data, BATCH, sampler=ListSampler(data), collate_fn=collate)
        ):
            if number % 64 == 0:
                most = max(most, anonymous())

    return {**measured(go), "anonymous_mb": most}


def padded(source: Path, store: Path) -> dict[str, float]:
    """Make padded batches."""
    return epoch(source, store, padded=True)


STAGES: dict[str, Callable[[Path, Path], dict[str, float]]] = {
    "parse": parse,
    "sklearn": sklearn,
    "sklearn_without": sklearn_without,
    "convert": convert,
    "open": opening,
    "epoch": epoch,
    "padded": padded,
    "group": group,
}


def run(stage: str, source: Path, store: Path) -> dict[str, float]:
    """Run a stage in a process of its own."""
    command = [sys.executable, __file__, "--stage", stage, str(source), str(store)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {key: rounded(value) for key, value in json.loads(result.stdout).items()}


def size_of(documents: int, folder: Path, stages: Collection[str]) -> dict[str, Any]:
    """Measure stages with so many documents."""
    text, table, store = (folder / f"{documents}.{end}" for end in ("txt", "parquet", "store"))
    found: dict[str, Any] = {"documents": documents}
    if {*stages} != {"group"}:
        make_text(text, documents)
        found["text_mb"] = rounded(text.stat().st_size / 1e6)
    for stage in STAGES:
        if stage not in stages or (stage.startswith("sklearn") and documents > SKLEARN_LARGEST):
            continue
        source = table if stage == "group" else text
        if stage == "group":
            text.unlink(missing_ok=True)
            shutil.rmtree(store, ignore_errors=True)
            make_table(table, documents)
        elif stage in ("open", "epoch", "padded") and not store.is_dir():
            run("convert", text, store)
        result = found[stage] = run(stage, source, store)
        if "cpu" in result:
            result["documents_per_second"] = rounded(documents / result["cpu"])
        print(f"{documents:,} documents, {stage}: {result}", flush=True)
    for path in (text, table, store):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return found


def main() -> None:
    """Measure all sizes and write the results."""
    parser = argparse.ArgumentParser(description="Time reading, storing and batching.")
    parser.add_argument("--documents", type=int, nargs="+", default=[10**5, 10**6])
    parser.add_argument("--stages", choices=[*STAGES], nargs="+", default=[*STAGES])
    parser.add_argument("--folder", type=Path, default=Path("data-benchmark"))
    parser.add_argument("--output", type=Path, default=RESULTS / "data.json")
    parser.add_argument("--stage", nargs=3, metavar=("NAME", "SOURCE", "STORE"))
    given = parser.parse_args()
    if given.stage:
        name, *paths = given.stage
        print(json.dumps(STAGES[name](*map(Path, paths))))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    for documents in given.documents:
        found = size_of(documents, given.folder, given.stages)
        sizes: dict[int, dict[str, Any]] = {}
        if given.output.is_file():  # what was measured before
            sizes = {one["documents"]: one for one in json.loads(given.output.read_text())["sizes"]}
        sizes[documents] = {**sizes.get(documents, {}), **found}
        kept = [sizes[key] for key in sorted(sizes)]
        result = {"environment": environment(), "features": FEATURES, "batch": BATCH}
        write(given.output, {**result, "sizes": kept})


if __name__ == "__main__":
    main()

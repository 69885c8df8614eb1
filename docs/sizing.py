"""Write docs/sizing.md's tables: `python docs/sizing.py`.

The text between `<!-- table NAME -->` and `<!-- end -->` comes from data.json and stores.json in
benchmarks/results. A test checks that the page and the files agree.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tables import filled, number, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sizing.md"
RESULTS = ROOT / "benchmarks" / "results"
STAGES = {
    "sklearn": "`load_svmlight_file` of scikit-learn",
    "sklearn_without": "`load_svmlight_file` without qids",
    "parse": "the parser of LETOR text alone",
    "convert": "`ltr convert` of LETOR text",
    "group": "`ltr convert` of Parquet, rows not grouped by query",
    "epoch": "reading the batches of an epoch",
    "padded": "reading them as padded batches",
}
COMMANDS = {
    "fit": "`ltr fit` on lists on disk, one epoch",
    "predict": "`ltr predict` of lists on disk",
    "random": "batches of lists drawn at random",
}
GOAL = 10**9  # documents

Result = Mapping[str, Any]


def speed(result: Result) -> str:
    """Return documents a second of CPU time, by the stage and the number of documents."""
    return _by_stage(result, "documents_per_second", "documents per second of CPU time")


def memory(result: Result) -> str:
    """Return the peak of memory in MB, by the stage and the number of documents."""
    return _by_stage(result, "peak_mb", "peak memory, MB")


def disk(result: Result) -> str:
    """Return what opening lists takes, and their bytes."""
    rows = []
    for size in result["sizes"]:
        opened = size["open"]
        row = [f"{size['documents']:,}", number(size["text_mb"] * 1e6 / size["documents"])]
        row += [number(opened["bytes_per_document"]), number(opened["milliseconds"])]
        rows.append([*row, number(max(0.0, opened["anonymous_mb"]))])
    head = ["documents", "bytes of text per document", "bytes on disk per document"]
    return table([*head, "ms to open", "MB of memory"], rows)


def beyond(result: Result) -> str:
    """Return the arithmetic to a thousand million documents, from the largest size measured."""
    size = result["sizes"][-1]
    per_list = size["documents"] / size["open"]["lists"]
    hours = {
        name: GOAL / size[name]["documents_per_second"] / 3600 for name in ("convert", "epoch")
    }
    rows = [
        ["text", f"{number(size['text_mb'] * GOAL / size['documents'] / 1e3)} GB"],
        ["lists on disk", f"{number(size['open']['bytes_per_document'] * GOAL / 1e9)} GB"],
        ["lists", f"{number(GOAL / per_list / 1e6)} million"],
        ["the offsets of the lists, mapped", f"{number(8 * GOAL / per_list / 1e6)} MB"],
        ["converting, on one core", f"{number(hours['convert'])} hours"],
        ["reading the batches of an epoch, on one core", f"{number(hours['epoch'])} hours"],
    ]
    return table(["", "1,000,000,000 documents"], rows)


def ratio(result: Result) -> str:
    """Return how many times scikit-learn's speed the parser has, in CPU time."""
    rows = []
    for size in result["sizes"]:
        if "sklearn" in size:
            row = [f"{size['documents']:,}", number(size["text_mb"])]
            for stage in ("sklearn", "sklearn_without"):
                row.append(number(size[stage]["cpu"] / size["parse"]["cpu"]))
            rows.append([*row, number(size["sklearn"]["differences"])])
    head = ["documents", "MB of text", "times as fast as scikit-learn"]
    return table([*head, "as scikit-learn without qids", "values that differ"], rows)


def commands(stores: Result) -> str:
    """Return documents a second and memory of what reads a store, by the number of documents."""
    rows = [
        [f"{size['documents']:,}", name]
        + [number(size[stage]["after"][key]) for key in ("documents_per_second", "anonymous")]
        for size in stores["sizes"]
        for stage, name in COMMANDS.items()
        if stage in size
    ]
    return table(["documents", "command", "documents per second", "MiB of memory"], rows)


def tables(data: Result, stores: Result) -> dict[str, str]:
    """Return the tables of the page by their names."""
    made = (speed, memory, disk, beyond, ratio)
    return {one.__name__: one(data) for one in made} | {"commands": commands(stores)}


def _by_stage(result: Result, key: str, title: str) -> str:
    sizes = result["sizes"]
    rows = [
        [name, *(number(size[stage][key]) if stage in size else "-" for size in sizes)]
        for stage, name in STAGES.items()
    ]
    return table([title, *(f"{size['documents']:,} documents" for size in sizes)], rows)


def results() -> tuple[Result, Result]:
    """Return what the two benchmarks have written."""
    data, stores = (RESULTS / name for name in ("data.json", "stores.json"))
    return json.loads(data.read_text()), json.loads(stores.read_text())


def main() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(), tables(*results())))


if __name__ == "__main__":
    main()

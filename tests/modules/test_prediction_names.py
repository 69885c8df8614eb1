"""Names in written CSV files are those of the input, whatever a spreadsheet makes of them."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa

from ltr.datasets import load_table
from ltr.datasets.prepare import add_scores
from ltr.modules.prediction_files import LISTS, PredictionFile

NAMES = ["=1+1", "+5", "-3", "@SUM(A1)", "=HYPERLINK(\"x\",'y')", "\t=1", "a,b", 'q"', "007"]


def test_names_are_written_as_they_are(tmp_path: Path):
    rows = np.arange(len(NAMES))
    lists = [rows, NAMES, NAMES, rows / 2, np.ones(len(NAMES))]
    tables = {
        "lists": pa.table(lists, schema=LISTS),
        "rows": add_scores(pa.table({"qid": NAMES, "doc_id": NAMES}), rows, rows / 2),
    }
    for name, table in tables.items():
        with PredictionFile(tmp_path / f"{name}.csv", "csv") as file:
            file.write(table)
        with (tmp_path / f"{name}.csv").open(newline="") as text:
            found = [*csv.DictReader(text)]
        assert [one["qid"] for one in found] == NAMES
        assert [one["doc_id"] for one in found] == NAMES
        again = load_table(tmp_path / f"{name}.csv", {"qid", "doc_id"})
        assert again.column("qid").to_pylist() == NAMES

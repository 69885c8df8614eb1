"""The benchmark of the metrics runs, on a tiny size, and the page shows its results."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shape(x):
    if isinstance(x, dict):
        return {key: shape(value) for key, value in x.items()}
    if isinstance(x, list):
        return [shape(x[0])]
    return float if isinstance(x, int | float) else type(x)


@pytest.mark.slow  # starts a process for the memory of each library
def test_the_benchmark_runs_and_the_values_agree(tmp_path):
    output = tmp_path / "metrics.json"
    sizes = ["--lists", "30", "40", "--items", "1000", "--rounds", "1"]
    command = [sys.executable, ROOT / "benchmarks" / "metrics.py", *sizes, "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads(output.read_text())
    committed = json.loads((ROOT / "benchmarks" / "results" / "metrics.json").read_text())
    assert shape(result) == shape(committed)
    for found in (result, committed):
        for row in found["ragged"]:
            assert max(row["largest_difference"].values()) < 1e-6
    assert [row["lists"] for row in result["ragged"]] == [30, 40]


def test_the_page_shows_the_results():
    path = ROOT / "docs" / "metric_tables.py"
    spec = importlib.util.spec_from_file_location("metric_tables", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text()
    tables = module.tables()
    assert module.filled(page, tables) == page
    assert all(f"<!-- table {name} -->" in page for name in tables)

"""The benchmarks run, on tiny sizes, and the docs' tables are those of their results."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(script, output, *arguments):
    subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, "--output", output, *arguments],
        check=True,
        capture_output=True,
    )
    return json.loads(output.read_text())


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(x):
    """The keys and types of a JSON value; of a list those of its first item."""
    if isinstance(x, dict):
        return {key: shape(value) for key, value in x.items()}
    if isinstance(x, list):
        return [shape(x[0])]
    return float if isinstance(x, int | float) else type(x)


def committed(name):
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def test_compare_operators_at_equal_sharpness(tmp_path):
    sizes = ["--sizes", "12", "--lists", "2", "--rounds", "1"]
    result = run("compare_operators.py", tmp_path / "result.json", *sizes)
    assert shape(result) == shape(committed("compare_operators.json"))
    (size,) = result["sizes"]
    for kind, extra in (("ranks", ("HardRank", "Stochastic", "StraightThrough")), ("values", ())):
        rows = [row for row in size[kind] if not row["operator"].startswith(extra or ("-",))]
        means = [row["mean"] for row in rows]
        assert max(means) == pytest.approx(min(means), rel=0.01)
        assert all(row["largest"] >= row["mean"] > 0 for row in rows)
        assert all(row["gradient"] > 0 for row in rows)
        assert all(row["bytes"] > 0 for row in size[kind])


def test_compare_operators_has_every_operator():
    import ltr.operators
    from ltr.operators import IsotonicSort, RankOperator

    rows = [row["operator"] for row in committed("compare_operators.json")["sizes"][0]["ranks"]]
    for name in ltr.operators.__all__:
        kind = getattr(ltr.operators, name)
        if isinstance(kind, type) and issubclass(kind, RankOperator):
            if name in ("RankOperator", "SortOperator"):
                continue
            assert any(row.startswith(name) for row in rows), name
    values = [row["operator"] for row in committed("compare_operators.json")["sizes"][0]["values"]]
    assert {IsotonicSort.__name__, "GumbelSinkhorn"} <= set(values)


def test_neuralsort_as_published_is_ours(tmp_path):
    sizes = ["--sizes", "7", "30", "--lists", "2", "--rounds", "1"]
    result = run("neuralsort_cubed.py", tmp_path / "result.json", *sizes)
    assert shape(result) == shape(committed("neuralsort_cubed.json"))
    for size in result["sizes"] + committed("neuralsort_cubed.json")["sizes"]:
        assert size["difference_float64"] < 1e-12
        assert math.isfinite(size["ratio"])


def test_the_comparison_page_shows_the_results():
    tables = load(ROOT / "docs" / "tables.py")
    page = tables.PAGE.read_text()
    assert tables.filled(page, tables.tables()) == page
    assert all(f"<!-- table {name} -->" in page for name in tables.tables())

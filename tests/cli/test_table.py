"""The numbers of a bench's table, on results made up by hand."""

from pathlib import Path

import pytest

from ltr.cli.plan import Plan, make_plan
from ltr.cli.table import Result, make_tables, number, summaries

BENCH = """\
variants: {A: {}, B: {fit: false}}
grid: {data.fold: [1, 2], seed_everything: [7, 8]}
metrics: {test_x: X, seconds: seconds}
"""


def plan_with(folder: Path, table: str) -> Plan:
    (folder / "config.yaml").write_text("{}")
    (folder / "bench.yaml").write_text(BENCH + f"table: {table}\n")
    return make_plan(str(folder), [])


# test_x of variant A by fold and seed
X = {(1, 7): 0.1, (1, 8): 0.3, (2, 7): 0.5, (2, 8): 0.9}


@pytest.fixture
def results() -> dict[str, Result]:
    return {
        f"a-fold-{fold}-seed-{seed}": {"metrics": {"test_x": x}, "seconds": 100.0 + fold}
        for (fold, seed), x in X.items()
    }


def test_mean_and_deviation_over_what_the_table_does_not_show(tmp_path, results):
    (table,) = make_tables(plan_with(tmp_path, "{rows: variant, columns: metric}"), results)
    assert table.head == ["", "X", "seconds"]
    # mean 0.45; squares (0.35, 0.15, 0.05, 0.45)^2 sum to 0.35, over 3: sd = 0.34157
    assert table.rows == [["A", "0.4500 ± 0.3416", "101.5 ± 0.6"], ["B", "not run", "not run"]]
    assert table.title == ""


def test_columns_of_a_grid_option_have_their_mean(tmp_path, results):
    tables = make_tables(plan_with(tmp_path, "{rows: metric, columns: data.fold}"), results)
    assert [table.title for table in tables] == ["A", "B"]
    assert tables[0].head == ["", "fold 1", "fold 2", "mean"]
    assert tables[0].rows == [
        ["X", "0.2000 ± 0.1414", "0.7000 ± 0.2828", "0.4500 ± 0.3416"],
        ["seconds", "101.0 ± 0.0", "102.0 ± 0.0", "101.5 ± 0.6"],
    ]


def test_rows_of_a_grid_option(tmp_path, results):
    tables = make_tables(plan_with(tmp_path, "{rows: data.fold, columns: variant}"), results)
    assert [table.title for table in tables] == ["X", "seconds"]
    assert [row[0] for row in tables[0].rows] == ["fold 1", "fold 2", "mean"]
    assert [row[1] for row in tables[0].rows] == [
        "0.2000 ± 0.1414",
        "0.7000 ± 0.2828",
        "0.4500 ± 0.3416",
    ]


def test_runs_that_are_not_finished_are_counted(tmp_path, results):
    del results["a-fold-1-seed-8"]
    results["b-fold-1-seed-7"] = {"metrics": {"test_x": 0.25}}  # not trained: no seconds
    (table,) = make_tables(plan_with(tmp_path, "{rows: variant, columns: metric}"), results)
    assert table.rows[0][1] == "0.5000 ± 0.4000 (3 of 4)"
    assert table.rows[1] == ["B", "0.2500 (1 of 4)", "-"]


def test_summaries(tmp_path, results):
    first, *_, last = summaries(plan_with(tmp_path, "{}"), results)
    assert first["variant"] == "A"
    assert first["metric"] == "test_x"
    assert first["name"] == "X"
    assert first["mean"] == pytest.approx(0.45)
    assert first["sd"] == pytest.approx((0.35 / 3) ** 0.5)
    assert first["values"] == list(X.values())
    assert (first["finished"], first["planned"]) == (4, 4)
    assert last["variant"] == "B"
    assert last["mean"] is last["sd"] is None


def test_markdown(tmp_path, results):
    (table,) = make_tables(plan_with(tmp_path, "{}"), results)
    assert table.markdown().splitlines() == [
        "|  | X | seconds |",
        "|:--|--:|--:|",
        "| A | 0.4500 ± 0.3416 | 101.5 ± 0.6 |",
        "| B | not run | not run |",
    ]


def test_numbers():
    assert number(-0.00004) == "-0.0000"
    assert number(9.99996) == "10.0000"
    assert number(10) == "10.0"

"""The numbers of a bench's table, on results made up by hand."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ltr.cli.chosen import Result
from ltr.cli.plan import Plan, make_plan
from ltr.cli.table import make_tables, number, summaries, summary

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
    assert table.rows == [["A", "0.4500 ± 0.3416", "101.5 ± 0.6"]]
    assert table.title == ""


def test_columns_of_a_grid_option_have_their_mean(tmp_path, results):
    tables = make_tables(plan_with(tmp_path, "{rows: metric, columns: data.fold}"), results)
    assert [table.title for table in tables] == ["A"]  # nothing of B was run
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


def test_a_cell_that_is_not_planned_is_empty(tmp_path, results):
    (tmp_path / "config.yaml").write_text("{}")
    text = BENCH.replace("fit: false", "where: {data.fold: 1}")
    table = "table: {rows: variant, columns: data.fold, mean: false}\n"
    (tmp_path / "bench.yaml").write_text(text + table)
    x, _ = make_tables(make_plan(str(tmp_path), []), results)
    assert x.rows == [["A", "0.2000 ± 0.1414", "0.7000 ± 0.2828"]]

    results["b-fold-1-seed-7"] = {"metrics": {"test_x": 0.25}}
    x, _ = make_tables(make_plan(str(tmp_path), []), results)
    assert x.rows[1:] == [["B", "0.2500 (1 of 2)", ""]]


PUBLISHED = """\
published:
  - {source: P, where: {variant: A}, metric: test_x, along: data.fold, values: {1: 0.2, 2: 0.25}}
  - {source: Q, where: {variant: A, data.fold: 2}, metric: test_x, value: 0.3}
  - {source: Q, where: {variant: B}, metric: test_x, along: data.fold, values: {1: 12}}
"""


def published_plan(folder: Path, table: str) -> Plan:
    plan_with(folder, table)
    with (folder / "bench.yaml").open("a") as file:
        file.write(PUBLISHED)
    return make_plan(str(folder), [])


def test_published_numbers_are_below_ours(tmp_path, results):
    plan = published_plan(tmp_path, "{rows: variant, columns: data.fold, mean: false}")
    x, seconds = make_tables(plan, results)
    assert x.head == ["", "fold 1", "fold 2"]
    assert x.rows == [
        ["A", "0.2000 ± 0.1414", "0.7000 ± 0.2828"],
        ["A, published [1]", "0.20", "0.25"],
        ["A, published [2]", "", "0.3"],
    ]
    assert [row[0] for row in seconds.rows] == ["A"]


def test_published_numbers_of_a_mean_there_are_none(tmp_path, results):
    x, _ = make_tables(published_plan(tmp_path, "{rows: variant, columns: data.fold}"), results)
    assert x.head == ["", "fold 1", "fold 2", "mean"]
    assert [row[-1] for row in x.rows] == ["0.4500 ± 0.3416", "", ""]


def test_published_numbers_are_beside_columns_of_variants(tmp_path, results):
    x, seconds = make_tables(
        published_plan(tmp_path, "{rows: data.fold, columns: variant}"), results
    )
    assert x.head == ["", "A", "A, published [1]", "A, published [2]"]
    assert x.rows == [
        ["fold 1", "0.2000 ± 0.1414", "0.20", ""],
        ["fold 2", "0.7000 ± 0.2828", "0.25", "0.3"],
        ["mean", "0.4500 ± 0.3416", "", ""],
    ]
    assert seconds.head == ["", "A"]


def test_published_numbers_of_metrics_in_columns(tmp_path, results):
    plan_with(tmp_path, "{rows: variant, columns: metric}")
    with (tmp_path / "bench.yaml").open("a") as file:
        file.write("published: [{source: P, where: {variant: B}, metric: test_x, value: 0.125}]")
    results["b-fold-1-seed-7"] = {"metrics": {"test_x": 0.25}}
    (table,) = make_tables(make_plan(str(tmp_path), []), results)
    assert table.rows == [
        ["A", "0.4500 ± 0.3416", "101.5 ± 0.6"],
        ["B", "0.2500 (1 of 4)", "-"],
        ["B, published [1]", "0.125", ""],
    ]


def test_published_numbers_of_tables_by_variant(tmp_path, results):
    results["b-fold-1-seed-7"] = {"metrics": {"test_x": 0.25}}
    a, b = make_tables(published_plan(tmp_path, "{rows: metric, columns: data.fold}"), results)
    assert [row[0] for row in a.rows] == ["X", "X, published [1]", "X, published [2]", "seconds"]
    assert b.rows[1] == ["X, published [2]", "12", ""]


def test_whole_numbers():
    def text(values: list, planned: int) -> str:
        rest = planned - len(values)
        finished = [True] * len(values) + [False] * rest
        values = [*values, *[None] * rest]
        return summary(pd.DataFrame({"finished": finished, "value": values}, dtype=object))

    assert text([3, 3], 2) == "3"
    assert text([3, 3], 4) == "3 (2 of 4)"
    assert text([3, 5], 2) == "4.0000 ± 1.4142"
    assert text([float("nan")], 1) == "nan"


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


def test_summaries_are_of_what_the_table_shows(tmp_path, results):
    plan = plan_with(tmp_path, "{rows: variant, columns: data.fold, mean: false}")
    found = {
        (one["variant"], one["metric"], one["point"]["data.fold"]): one["values"]
        for one in summaries(plan, results)
    }
    assert found["A", "test_x", 1] == [0.1, 0.3]
    assert found["A", "test_x", 2] == [0.5, 0.9]
    assert found["B", "seconds", 2] == []
    assert len(found) == 8
    with_mean = plan_with(tmp_path, "{rows: variant, columns: data.fold}")
    (both,) = [
        one["values"]
        for one in summaries(with_mean, results)
        if (one["variant"], one["metric"], one["point"]) == ("A", "test_x", {})
    ]
    assert both == list(X.values())


def test_markdown(tmp_path, results):
    (table,) = make_tables(plan_with(tmp_path, "{}"), results)
    assert table.markdown().splitlines() == [
        "|  | X | seconds |",
        "|:--|--:|--:|",
        "| A | 0.4500 ± 0.3416 | 101.5 ± 0.6 |",
    ]


def test_numbers():
    assert number(-0.00004) == "-0.0000"
    assert number(9.99996) == "10.0000"
    assert number(10) == "10.0"


def test_a_column_that_was_not_run_is_left_out(tmp_path, results):
    short = {name: one for name, one in results.items() if "fold-2" not in name}
    layout = "{rows: variant, columns: data.fold, mean: false}"
    x, _ = make_tables(plan_with(tmp_path, layout), short)
    assert x.head == ["", "fold 1"]
    assert x.rows == [["A", "0.2000 ± 0.1414"]]
    assert make_tables(plan_with(tmp_path, layout), {}) == []


def test_titles_say_whether_the_runs_have_the_published_length(tmp_path, results):
    plan = replace(plan_with(tmp_path, "{}"), epochs=10)
    trained = {name: {**one, "epochs": 10, "seed": 7} for name, one in results.items()}
    assert [table.title for table in make_tables(plan, trained)] == [
        "full length: 10 epochs, 1 seed"
    ]
    trained["a-fold-1-seed-8"] |= {"epochs": 2, "seed": 8}
    (table,) = make_tables(plan, trained)
    assert table.title == "shortened: 2 to 10 of 10 epochs, 2 seeds"

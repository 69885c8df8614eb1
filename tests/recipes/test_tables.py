"""The numbers of a sweep's table, on results made up by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recipes.results import Result
from recipes.sweep import Run, Sweep
from recipes.tables import number, render, summary

# test_x of variant A by fold and seed
X = {(1, 7): 0.1, (1, 8): 0.3, (2, 7): 0.5, (2, 8): 0.9}
RUNS = [Run(v, {"fold": f, "seed": s}, {"data.seed": s}) for v in "AB" for f, s in X]
METRICS = {"test_x": "X", "seconds": "seconds"}
SWEEP = Sweep(Path(), lambda overlays: RUNS, METRICS, "fold")
MACHINE = {"python": "3.12", "device": "cpu (x86)", "threads": "1"}


@pytest.fixture
def results() -> dict[str, Result]:
    return {
        f"a-fold-{fold}-seed-{seed}": {
            "metrics": {"test_x": x},
            "seconds": 100.0 + fold,
            "seed": 1,
            "environment": MACHINE,
        }
        for (fold, seed), x in X.items()
    }


def text_of(
    results: dict[str, Result], sweep: Sweep = SWEEP, runs: list[Run] = RUNS, **about: Any
) -> str:
    states = [{"name": name, **one} for name, one in results.items()]
    return render(sweep, runs, {"config": {}, "overrides": [], **about, "runs": states})


def test_mean_and_deviation_over_what_the_table_does_not_show(results):
    assert text_of(results) == (
        "### X\n\n"
        "|  | fold 1 | fold 2 |\n"
        "|:--|--:|--:|\n"
        "| A | 0.2000 ± 0.1414 | 0.7000 ± 0.2828 |\n\n"
        "### seconds\n\n"
        "|  | fold 1 | fold 2 |\n"
        "|:--|--:|--:|\n"
        "| A | 101.0 ± 0.0 | 102.0 ± 0.0 |\n\n"
        "4 of 8 runs finished; seed 1; data.seed 7, 8; cpu (x86), 1 thread; python 3.12. "
        "± is the standard deviation over the runs of a cell.\n"
    )


def test_rows_of_metrics(results):
    text = text_of(results, replace(SWEEP, rows="metric"), RUNS[:4])
    assert text.startswith(
        "|  | fold 1 | fold 2 |\n"
        "|:--|--:|--:|\n"
        "| X | 0.2000 ± 0.1414 | 0.7000 ± 0.2828 |\n"
        "| seconds | 101.0 ± 0.0 | 102.0 ± 0.0 |\n\n"
        "All 4 runs finished"
    )


def test_runs_that_are_not_finished_are_counted(results):
    del results["a-fold-1-seed-8"]
    results["b-fold-1-seed-7"] = {**results["a-fold-1-seed-7"], "metrics": {"test_x": 0.25}}
    del results["b-fold-1-seed-7"]["seconds"]  # not trained
    text = text_of(results)
    assert "| A | 0.1000 (1 of 2) | 0.7000 ± 0.2828 |\n| B | 0.2500 (1 of 2) | not run |\n" in text
    assert "| B | - | not run |\n" in text


def test_a_cell_that_is_not_planned_is_empty(results):
    few = [run for run in RUNS if run.variant == "A" or run.point["fold"] == 1]
    assert "| B |" not in text_of(results, runs=few)
    results["b-fold-1-seed-7"] = {**results["a-fold-1-seed-7"], "metrics": {"test_x": 0.25}}
    assert "| B | 0.2500 (1 of 2) |  |\n" in text_of(results, runs=few)


def test_a_column_that_was_not_run_is_left_out(results):
    short = {name: one for name, one in results.items() if "fold-2" not in name}
    assert "|  | fold 1 |\n|:--|--:|\n| A | 0.2000 ± 0.1414 |\n" in text_of(short)
    assert text_of({}) == "0 of 8 runs finished.\n"


PUBLISHED = {
    "P": {("A", "test_x"): {1: 0.2, 2: 0.25}},
    "Q": {("A", "test_x"): {2: 0.3}, ("B", "test_x"): {1: 12}},
}


def test_published_numbers_are_below_ours(results):
    text = text_of(results, replace(SWEEP, published=PUBLISHED))
    assert (
        "| A | 0.2000 ± 0.1414 | 0.7000 ± 0.2828 |\n"
        "| A, published [1] | 0.20 | 0.25 |\n"
        "| A, published [2] |  | 0.3 |\n\n"
    ) in text
    assert text.endswith("\n\nPublished: [1] P; [2] Q.\n")
    text = text_of(results, replace(SWEEP, published=PUBLISHED, rows="metric"))
    assert "| X, published [2] |  | 0.3 |\n| seconds |" in text
    only_one = {name: one for name, one in results.items() if "fold-1" in name}
    assert "published [2] |" not in text_of(only_one, replace(SWEEP, published=PUBLISHED))


def test_titles_say_whether_the_runs_have_the_published_length(results):
    sweep = replace(SWEEP, epochs=10)
    trained = {name: {**one, "epochs": 10, "steps": 1000} for name, one in results.items()}
    text = text_of(trained, sweep)
    assert "### X (full length: 10 epochs, 1 seed)\n" in text
    assert "; trained 10 epochs, 1,000 steps; " in text
    trained["a-fold-1-seed-8"] |= {"epochs": 2, "seed": 8, "steps": 200}
    text = text_of(trained, sweep)
    assert "### X (shortened: 2 to 10 of 10 epochs, 2 seeds)\n" in text
    assert "trained 2 to 10 epochs, 200 to 1,000 steps; seeds 1, 8; data.seed 7, 8; " in text


def test_the_sentence_names_the_precision_and_the_seed_of_the_data(results):
    runs = [replace(run, options={}) for run in RUNS]
    config = {"trainer": {"precision": "bf16-mixed"}}
    given = ["--data.seed", "3"]
    text = text_of(results, runs=runs, config=config, overrides=given)
    assert "seed 1; data.seed 3; precision bf16-mixed; cpu" in text
    given += ["--trainer.precision=32-true"]
    assert "; precision 32-true; cpu" in text_of(results, config=config, overrides=given)


def test_two_machines(results):
    other = {"python": "3.13", "device": "cuda (H100)", "threads": "2"}
    results["a-fold-1-seed-8"]["environment"] = other
    said = "cpu (x86), 1 thread; cuda (H100), 2 threads; python 3.12; python 3.13."
    assert said in text_of(results)


def test_text_below_the_table(results):
    sweep = replace(SWEEP, below=lambda runs, found: f"{len(found)} of {len(runs)}")
    assert text_of(results, sweep).endswith("cell.\n\n4 of 8\n")


def test_a_value_that_is_nan():
    values = pd.DataFrame({"finished": [True, True], "value": [float("nan"), 1.0]}, dtype=object)
    assert summary(values[:1]) == "nan"
    assert summary(values) == "nan ± nan"


def test_numbers():
    assert number(-0.00004) == "-0.0000"
    assert number(9.99996) == "10.0000"
    assert number(10) == "10.0"

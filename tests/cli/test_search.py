"""A bench that tries several values and shows the best in validation."""

import json
import math
from pathlib import Path

import pytest

from ltr.cli.caption import render
from ltr.cli.chosen import chosen_runs
from ltr.cli.errors import CommandError
from ltr.cli.plan import Plan, make_plan
from ltr.cli.table import make_tables

BENCH = """\
variants: {A: {}, B: {}}
grid: {seed_everything: [7, 8]}
search:
  - where: {variant: A}
    options: {trainer.max_epochs: [1, 2, 3], model.init_args.loss.temperature: [0.5]}
metrics: {test_x: X}
"""


def plan_of(folder: Path, text: str, *overrides: str) -> Plan:
    (folder / "config.yaml").write_text("{}")
    (folder / "bench.yaml").write_text(text)
    return make_plan(str(folder), list(overrides))


def result(val: float, test: float) -> dict:
    return {"metrics": {"test_x": test}, "monitor": "val_x", "mode": "max", "val_x": val}


# the best in validation is not the best in the test
RESULTS = {
    "a-seed-7-max-epochs-1-temperature-0.5": result(0.2, 0.9),
    "a-seed-7-max-epochs-2-temperature-0.5": result(0.4, 0.1),
    "a-seed-7-max-epochs-3-temperature-0.5": result(math.nan, 0.8),
    "a-seed-8-max-epochs-1-temperature-0.5": result(0.3, 0.3),
    "a-seed-8-max-epochs-2-temperature-0.5": result(0.3, 0.5),
    "a-seed-8-max-epochs-3-temperature-0.5": result(0.1, 0.7),
    "b-seed-7": result(0.0, 0.25),
}


def test_a_run_for_each_combination(tmp_path):
    plan = plan_of(tmp_path, BENCH)
    assert [run.name for run in plan.runs] == [*RESULTS, "b-seed-8"]
    run = plan.runs[1]
    assert run.title == "A, seed 7, max_epochs 2, temperature 0.5"
    assert run.tried == {"trainer.max_epochs": 2, "model.loss.temperature": 0.5}
    assert run.point == {"seed_everything": 7}
    assert run.config == {
        "seed_everything": 7,
        "trainer": {"max_epochs": 2},
        "model": {"init_args": {"loss": {"init_args": {"temperature": 0.5}}}},
    }
    assert plan.runs[-1].config == {"seed_everything": 8}


def test_the_command_line_has_other_values(tmp_path):
    plan = plan_of(tmp_path, BENCH, "--trainer.max_epochs", "[4, 5]", "--data.n", "3")
    assert [run.tried.get("trainer.max_epochs") for run in plan.runs] == [4, 5, 4, 5, None, None]
    assert plan.overrides == ["--data.n", "3"]
    assert plan.args[-2:] == ["--data.n", "3"]
    (one, *_) = plan_of(tmp_path, BENCH, "--model.loss.init_args.temperature=2").runs
    assert one.tried["model.loss.temperature"] == 2


def test_a_value_is_needed(tmp_path):
    with pytest.raises(CommandError, match=r"--trainer\.max_epochs must have a value to run, got"):
        plan_of(tmp_path, BENCH, "--trainer.max_epochs", "[]")
    with pytest.raises(CommandError, match=r"--seed_everything must have a value to run, got \[\]"):
        plan_of(tmp_path, BENCH, "--seed_everything=[]")


def test_the_best_in_validation_is_shown(tmp_path):
    plan = plan_of(tmp_path, BENCH)
    (table,) = make_tables(plan, RESULTS)
    # of equal ones the first: 0.1 for seed 7, 0.3 for seed 8
    assert table.rows == [["A", "0.2000 ± 0.1414"], ["B", "0.2500 (1 of 2)"]]


def test_what_was_tried_is_below_the_table(tmp_path):
    text = render(
        plan_of(tmp_path, BENCH),
        {**RESULTS, "a-seed-8-max-epochs-1-temperature-0.5": {**result(0.3, 0.3), "val_x": None}},
    )
    assert text.endswith("""\
### A, seed 7: tried

| max_epochs | temperature | val_x |
|:--|--:|--:|
| 2 | 0.5 | 0.4000 |
| 1 | 0.5 | 0.2000 |
| 3 | 0.5 | nan |

### A, seed 8: tried

| max_epochs | temperature | val_x |
|:--|--:|--:|
| 2 | 0.5 | 0.3000 |
| 3 | 0.5 | 0.1000 |
| 1 | 0.5 | - |
""")
    part = {name: one for name, one in RESULTS.items() if name != list(RESULTS)[2]}
    assert "### A, seed 7: tried (2 of 3)\n" in render(plan_of(tmp_path, BENCH), part)


def test_the_least_value(tmp_path):
    plan = plan_of(tmp_path, BENCH)
    results = {name: {**one, "mode": "min"} for name, one in RESULTS.items()}
    assert [run.name for run, _ in chosen_runs(plan, results)][:2] == [
        "a-seed-7-max-epochs-1-temperature-0.5",
        "a-seed-8-max-epochs-3-temperature-0.5",
    ]


def test_nothing_is_chosen_before_all_runs_are_finished(tmp_path):
    plan = plan_of(tmp_path, BENCH)
    part = {name: one for name, one in RESULTS.items() if name != list(RESULTS)[2]}
    (table,) = make_tables(plan, part)
    assert table.rows[0] == ["A", "0.3000 (1 of 2)"]


def test_a_search_of_an_overlay(tmp_path):
    text = BENCH.replace("{variant: A}", "{variant: A, overlay: wide}")
    with pytest.raises(CommandError, match=r"search 1\.where\.overlay has no 'wide'"):
        plan_of(tmp_path, text)
    (tmp_path / "wide.yaml").write_text("trainer: {min_epochs: 1}\n")
    assert len(plan_of(tmp_path, text).runs) == 4
    assert len(plan_of(tmp_path, text, "--config", str(tmp_path / "wide.yaml")).runs) == 8


def test_two_searches_for_the_same_runs(tmp_path):
    more = "  - {options: {trainer.min_epochs: [1]}}\nmetrics:"
    with pytest.raises(CommandError, match="search has 2 entries for the same runs: A, 7"):
        plan_of(tmp_path, BENCH.replace("metrics:", more))


def test_a_whole_search(ltr):
    Path("own").mkdir()
    Path("own/config.yaml").write_text(Path("tiny.yaml").read_text())
    Path("own/bench.yaml").write_text(
        "variants: {own: {config: {model: {init_args: {optimizer: {class_path: Adam}}}}}}\n"
        "search: [{options: {model.optimizer.lr: [0.0, 0.05], "
        "model.loss.operator.temperature: [0.3, 3.0]}}]\n"
        "metrics: {test_mrr: MRR}\nfigure: ltr.papers.figures.curves\n"
    )
    answer = ltr("bench", "own", "--out", "out")
    assert answer.code == 0, answer.err
    assert "run 4 of 4: own, lr 0.05, temperature 3.0" in answer.out
    runs = json.loads(Path("out/results.json").read_text())["runs"]
    best = max(runs, key=lambda run: run["val_ndcg_10"])
    assert [run["chosen"] for run in runs] == [run is best for run in runs]
    assert best["tried"]["model.optimizer.lr"] == 0.05
    table = Path("out/table.md").read_text()
    assert f"| own | {best['metrics']['test_mrr']:.4f} |" in table
    first = f"| 0.05 | {best['tried']['model.loss.operator.temperature']} |"
    assert f"### own: tried\n\n| lr | temperature | val_ndcg_10 |\n|:--|--:|--:|\n{first}" in table
    assert "chosen" not in json.loads(Path(f"out/runs/{best['name']}/result.json").read_text())

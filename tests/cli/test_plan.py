"""What a bench is to run."""

from pathlib import Path

import pytest

from ltr.cli.errors import CommandError
from ltr.cli.plan import Plan, make_plan, merged

BENCH = """\
variants:
  before: {fit: false}
  Soft NDCG: {}
  MSE: {config: {model: {init_args: {loss: {class_path: PointwiseMSE}}}}}
grid: {data.fold: [1, 2], seed_everything: [7, 8, 9]}
metrics: {test_ndcg_10: NDCG@10, seconds: seconds}
table: {rows: variant, columns: metric}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text("trainer: {max_epochs: 3}\n")
    (tmp_path / "bench.yaml").write_text(BENCH)
    return tmp_path


def test_a_run_for_each_combination(recipe):
    plan = make_plan(str(recipe), [])
    assert len(plan.runs) == len({run.name for run in plan.runs}) == 3 * 2 * 3
    run = next(run for run in plan.runs if run.name == "mse-fold-2-seed-9")
    assert run.title == "MSE, fold 2, seed 9"
    assert run.fit
    assert run.point == {"data.fold": 2, "seed_everything": 9}
    assert run.config == {
        "model": {"init_args": {"loss": {"class_path": "PointwiseMSE"}}},
        "data": {"init_args": {"fold": 2}},
        "seed_everything": 9,
    }
    assert [run.fit for run in plan.runs] == [False] * 6 + [True] * 12


@pytest.mark.parametrize(
    "given", [["--data.fold", "2"], ["--data.init_args.fold=2"], ["--data.fold", "[2]"]]
)
def test_an_option_of_the_grid_replaces_its_values(recipe, given):
    plan = make_plan(str(recipe), [*given, "--trainer.max_epochs", "1"])
    assert plan.grid == {"data.fold": [2], "seed_everything": [7, 8, 9]}
    assert plan.overrides == ["--trainer.max_epochs", "1"]
    assert plan.args[-2:] == plan.overrides


def test_layers_are_merged(recipe, tmp_path):
    (tmp_path / "more.yaml").write_text("trainer: {min_epochs: 2}\n")
    plan = make_plan(str(recipe), ["--config", str(tmp_path / "more.yaml")])
    assert plan.config == {"trainer": {"max_epochs": 3, "min_epochs": 2}}


def test_another_class_takes_no_arguments_over():
    below = {"class_path": "A", "init_args": {"x": 1}}
    assert merged(below, {"class_path": "B"}) == {"class_path": "B"}
    assert merged(below, {"init_args": {"y": 2}}) == {
        "class_path": "A",
        "init_args": {"x": 1, "y": 2},
    }


def digest(recipe: Path, *overrides: str) -> str:
    return make_plan(str(recipe), list(overrides)).digest


def test_what_the_digest_depends_on(recipe):
    before = digest(recipe)
    assert digest(recipe) == before
    assert digest(recipe, "--trainer.enable_progress_bar", "false") == before
    assert digest(recipe, "--trainer.max_epochs", "1") != before
    assert digest(recipe, "--data.fold", "1") != before
    assert digest(recipe, "--data.root=a") == digest(recipe, "--data.init_args.root", "a")
    (recipe / "bench.yaml").write_text("# a comment\n" + BENCH.replace("NDCG@10", "at ten"))
    assert digest(recipe) == before
    (recipe / "config.yaml").write_text("trainer: {max_epochs: 4}\n")
    assert digest(recipe) != before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("variants:", "varants:", "unknown option varants: did you mean variants?"),
        ("fit: false", "fti: false", "unknown option variants.before.fti: did you mean fit?"),
        ("rows: variant", "rows: varant", "table has no 'varant': did you mean variant?"),
        ("rows: variant", "rows: metric", "table.rows and table.columns must differ"),
        ("[1, 2]", "1", "grid.data.fold must be a list of values, got 1"),
        ("config: {model", "config: [model", "line 4: "),
        ("{test_ndcg_10: NDCG@10, seconds: seconds}", "{}", "metrics must name"),
    ],
)
def test_mistakes_in_bench_yaml(recipe, old, new, message):
    (recipe / "bench.yaml").write_text(BENCH.replace(old, new))
    with pytest.raises(CommandError) as error:
        make_plan(str(recipe), [])
    assert message in str(error.value)
    assert "bench.yaml" in str(error.value)


def test_a_recipe_without_a_bench(recipe):
    (recipe / "bench.yaml").unlink()
    with pytest.raises(CommandError, match=r"has no bench\.yaml"):
        make_plan(str(recipe), [])


@pytest.mark.parametrize("name", ["digits", "digits/smoke", "letor", "letor/smoke"])
def test_shipped_benches_can_be_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = make_plan(name, [])
    assert isinstance(plan, Plan)
    assert plan.runs
    logged = {f"test_{metric}" for metric in plan.config["model"]["init_args"]["metrics"]}
    assert {metric for metric in plan.metrics if metric.startswith("test_")} == logged

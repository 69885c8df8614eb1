"""What a bench is to run."""

from pathlib import Path

import pytest

from ltr.cli.errors import CommandError
from ltr.cli.layers import merged, nested
from ltr.cli.plan import Plan, make_plan, short_name
from ltr.cli.recipes import find_recipes

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


def test_an_option_that_chooses_a_class():
    assert nested("data.images.class_path", "MNIST") == {
        "data": {"init_args": {"images": {"class_path": "MNIST"}}}
    }
    assert nested("data.init_args.images.init_args.x", 1) == nested("data.images.x", 1)
    assert short_name("data.images.class_path") == "images"


def test_a_variant_of_a_part_of_the_grid(recipe):
    bench = recipe / "bench.yaml"
    bench.write_text(BENCH.replace("{fit: false}", "{fit: false, where: {data.fold: 2}}"))
    plan = make_plan(str(recipe), [])
    assert [run.point["data.fold"] for run in plan.runs if run.variant == "before"] == [2, 2, 2]
    assert len(plan.runs) == 3 + 6 + 6
    bench.write_text(BENCH.replace("{fit: false}", "{fit: false, where: {data.fold: 3}}"))
    with pytest.raises(
        CommandError, match=r"variants\.before\.where\.data\.fold has no 3: choose from 1, 2"
    ):
        make_plan(str(recipe), [])


def temperature(value: float) -> dict:
    operator = {"init_args": {"temperature": value}}
    return {"model": {"init_args": {"loss": {"init_args": {"operator": operator}}}}}


CELLS = f"""\
cells:
  - where: {{data.fold: 2}}
    config: {temperature(8.0)}
  - where: {{variant: [Soft NDCG, before], data.init_args.fold: [1, 2], seed_everything: 9}}
    config: {temperature(16.0)}
"""


def test_cells_are_laid_over_the_runs_that_match(recipe):
    without = {run.name: run.config for run in make_plan(str(recipe), []).runs}
    (recipe / "bench.yaml").write_text(BENCH + CELLS)
    for run in make_plan(str(recipe), []).runs:
        expected = without[run.name]
        if run.point["data.fold"] == 2:
            expected = merged(expected, temperature(8.0))
        if run.point["seed_everything"] == 9 and run.variant != "MSE":
            expected = merged(expected, temperature(16.0))
        assert run.config == expected, run.name
    # a value of the grid that the file does not have is no mistake: no cell is meant
    (run, *_) = make_plan(str(recipe), ["--data.fold", "5"]).runs
    assert run.config == {"data": {"init_args": {"fold": 5}}, "seed_everything": 7}


SEARCH = """\
search:
  - {where: {variant: MSE, data.fold: 2}, options: {trainer.max_epochs: [1, 2, 3]}}
"""


PUBLISHED = """\
published:
  - {source: A, where: {variant: MSE}, metric: test_ndcg_10, along: data.fold, values: {1: 0.5}}
  - {source: B, metric: seconds, value: 17}
"""


def test_results_depend_on_cells_but_not_on_what_is_published(recipe):
    before = digest(recipe)
    (recipe / "bench.yaml").write_text(BENCH + PUBLISHED)
    assert digest(recipe) == before
    first, second = make_plan(str(recipe), []).published
    assert first.at({"variant": "MSE", "metric": "test_ndcg_10", "data.fold": 1}) == "0.5"
    assert first.at({"variant": "MSE", "metric": "test_ndcg_10", "data.fold": 2}) is None
    assert first.at({"variant": "before", "metric": "test_ndcg_10", "data.fold": 1}) is None
    assert first.at({"variant": "MSE", "metric": "seconds", "data.fold": 1}) is None
    assert second.at({"variant": "MSE", "metric": "seconds"}) == "17"
    (recipe / "bench.yaml").write_text(BENCH + CELLS)
    assert digest(recipe) != before


def test_two_runs_of_one_name(recipe):
    (recipe / "bench.yaml").write_text(
        BENCH.replace("Soft NDCG: {}", "Soft-NDCG: {}\n  soft ndcg: {}")
    )
    with pytest.raises(CommandError, match="two runs would have the name soft-ndcg-fold-1-seed-7"):
        make_plan(str(recipe), [])


def digest(recipe: Path, *overrides: str) -> str:
    return make_plan(str(recipe), list(overrides)).digest


def test_cells_of_an_overlay(recipe):
    (recipe / "bench.yaml").write_text(
        BENCH + f"cells: [{{where: {{overlay: paper, variant: MSE}}, config: {temperature(8.0)}}}]"
    )
    with pytest.raises(CommandError, match=r"cells 1\.where\.overlay has no 'paper'"):
        make_plan(str(recipe), [])
    overlay = recipe / "paper.yaml"
    overlay.write_text("trainer: {max_epochs: 9}\n")
    without = make_plan(str(recipe), [])
    assert temperature(8.0) not in [run.config for run in without.runs]
    plan = make_plan(str(recipe), ["--config", str(overlay)])
    assert plan.config == {"trainer": {"max_epochs": 9}}
    for run, before in zip(plan.runs, without.runs, strict=True):
        own = temperature(8.0) if run.variant == "MSE" else {}
        assert run.config == merged(before.config, own)


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
        ("fit: false", "fti: false", "unknown option variants: fti: did you mean fit?"),
        ("rows: variant", "rows: varant", "table has no 'varant': did you mean variant?"),
        ("rows: variant", "rows: metric", "table.rows and table.columns must differ"),
        ("[1, 2]", "1", "grid: Expected a list. Got value: 1"),
        ("config: {model", "config: [model", "line 4: "),
        ("{test_ndcg_10: NDCG@10, seconds: seconds}", "{}", "metrics must name"),
        (
            "columns: metric",
            "columns: metric, mean: 1",
            "table.mean: Expected a bool. Got value: 1",
        ),
        ("cells:", "cell:", "unknown option cell: did you mean cells?"),
        ("- where: {data.fold", "- wher: {data.fold", "option cells: wher: did you mean where?"),
        (
            "{data.fold: 2}",
            "{data.fld: 2}",
            "cells 1.where has no 'data.fld': did you mean data.fold?",
        ),
        ("{data.fold: 2}", "{data.fold: 3}", "cells 1.where.data.fold has no 3: choose from 1, 2"),
        ("{variant: [Soft", "{variant: [Sft", "where.variant has no 'Sft NDCG': did you mean Soft"),
        (
            f"config: {temperature(16.0)}",
            "config: 3",
            "cells.config: Expected a dict. Got value: 3",
        ),
        ("  - {source: A, ", "  - {", "published: the following arguments are required: source"),
        (
            "metric: test_ndcg_10",
            "metric: test_ndcg",
            "published.metric has no 'test_ndcg': did you",
        ),
        ("{variant: MSE}", "{variant: MES}", "published 1.where.variant has no 'MES': did"),
        (
            "along: data.fold",
            "along: fold",
            "published.along has no 'fold': did you mean data.fold?",
        ),
        ("{1: 0.5}", "{4: 0.5}", "published.values has no 4: choose from 1, 2"),
        ("{1: 0.5}", "{1: half}", "published.values: Expected a"),
        ("{1: 0.5}", "{}", "published must have a value, or values along"),
        ("value: 17", "values: {1: 17}", "published must have a value, or values along"),
        ("along: data.fold, values", "along: data.fold, value", "published.value: "),
        ("published:", "published: 3\nx:", "unknown option x"),
        ("[1, 2, 3]", "2", "search.options: Expected a list. Got value: 2"),
        ("trainer.max_epochs", "seed_everything", "options must not be empty or in the grid"),
        ("{variant: MSE, data", "{variant: C, data", "search 1.where.variant has no 'C'"),
        ("options:", "option:", "unknown option search: option: did you mean options?"),
        ("MSE: {config", "MSE: {fit: false, config", "search has MSE, which is not trained"),
    ],
)
def test_mistakes_in_bench_yaml(recipe, old, new, message):
    text = BENCH + CELLS + PUBLISHED + SEARCH
    assert old in text
    (recipe / "bench.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(CommandError) as error:
        make_plan(str(recipe), [])
    assert message in str(error.value)
    assert "bench.yaml" in str(error.value)


def test_a_recipe_without_a_bench(recipe):
    (recipe / "bench.yaml").unlink()
    with pytest.raises(CommandError, match=r"has no bench\.yaml"):
        make_plan(str(recipe), [])


@pytest.mark.parametrize("part", ["cells", "published"])
def test_parts_that_must_be_lists(recipe, part):
    (recipe / "bench.yaml").write_text(BENCH + f"{part}: {{a: 1}}\n")
    with pytest.raises(CommandError, match=f"{part}: Expected a list. Got"):
        make_plan(str(recipe), [])


SHIPPED = [
    name
    for recipe in find_recipes().values()
    for name in [recipe.name, *(f"{recipe.name}/{overlay}" for overlay in recipe.overlays)]
]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_benches_can_be_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = make_plan(name, [])
    assert isinstance(plan, Plan)
    assert plan.runs
    model = plan.config["model"]
    if model["class_path"] == "Ranker":
        logged = {f"test_{metric}" for metric in model["init_args"]["metrics"]}
        assert {metric for metric in plan.metrics if metric.startswith("test_")} <= logged

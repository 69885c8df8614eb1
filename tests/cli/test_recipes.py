"""Finding, listing and copying recipes; what `--config` stands for."""

import json
from pathlib import Path

import pytest

from ltr.cli.caption import render
from ltr.cli.errors import CommandError
from ltr.cli.plan import make_plan
from ltr.cli.recipes import expand_configs, find_recipes, resolve
from ltr.cli.table import NOT_RUN


def test_recipes_are_listed_with_their_overlays(ltr):
    answer = ltr("recipes")
    assert answer.code == 0
    for name, recipe in find_recipes().items():
        assert f"{name} " in answer.out
        assert recipe.description in answer.out
        for overlay in recipe.overlays:
            assert f"{name}/{overlay}: " in answer.out


@pytest.mark.parametrize("name", sorted(find_recipes()))
def test_a_recipe_is_complete(name: str):
    recipe = find_recipes()[name]
    assert (recipe.folder / "README.md").is_file()
    assert recipe.bench.is_file()
    assert "smoke" in recipe.overlays
    for path in [recipe.config, *recipe.overlays.values(), recipe.bench]:
        text = path.read_text()
        assert text.startswith("# ")
        comments = [line for line in text.splitlines() if line.startswith("#")]
        assert any(f"ltr {verb} " in line for line in comments for verb in ("fit", "bench"))
        assert any("--data." in line or "--seed_" in line for line in comments), "an override"


def names(args: list[str]) -> list[str]:
    return ["/".join(Path(arg).parts[-2:]) if "yaml" in arg else arg for arg in args]


def test_a_recipe_name_stands_for_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args, name = expand_configs(["-c", "digits", "--trainer.max_epochs", "3"])
    assert names(args) == ["--config", "digits/config.yaml", "--trainer.max_epochs", "3"]
    assert name == "digits"


def test_an_overlay_brings_its_recipe_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = ["--config", "digits/config.yaml", "--config", "digits/smoke.yaml"]
    for given in (["--config=digits/smoke"], ["--config", "digits", "--config", "digits/smoke"]):
        args, name = expand_configs(given)
        assert names(args) == expected
        assert name == "digits-smoke"


def test_a_file_is_itself_and_wins_over_a_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits").write_text("data: {}")
    Path("digits.yaml").write_text("data: {}")
    assert resolve("digits") == ("digits", [Path("digits")])
    assert resolve("./digits.yaml") == ("digits", [Path("digits.yaml")])


def test_a_folder_is_its_config(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.yaml").write_text("data: {}")
    assert resolve(str(tmp_path / "own")) == ("own", [tmp_path / "own" / "config.yaml"])


def test_a_layer_of_ones_own_keeps_the_recipes_name(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("data: {}")
    assert expand_configs(["--config", "digits", "--config", str(own)])[1] == "digits"
    assert expand_configs(["--config", str(own)])[1] == "own"
    assert expand_configs([])[1] is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("digts", "no configuration 'digts': did you mean digits?"),
        ("leto/smoke", "did you mean letor/smoke?"),
        ("digits/smke", "recipe digits has no overlay 'smke': did you mean digits/smoke?"),
        ("xyzzy", f"choose from {', '.join(sorted(find_recipes()))}"),
        ("mind.yaml", "did you mean mine.yaml?"),
        ("digits.yaml", "did you mean digits"),
        ("zzz.yaml", "no such file, and no recipe"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(tmp_path, monkeypatch, value, message):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("data: {}")
    with pytest.raises(CommandError) as error:
        resolve(value)
    assert message in str(error.value)


def test_config_without_a_value():
    with pytest.raises(CommandError, match="--config needs a value"):
        expand_configs(["--config"])


@pytest.mark.parametrize(
    ("name", "dest", "written", "command"),
    [
        ("digits", "mine.yaml", "mine.yaml", "ltr fit --config mine.yaml"),
        ("digits", "there", "there/digits.yaml", "ltr fit --config there/digits.yaml"),
        ("letor", "new/", "new/letor.yaml", "ltr fit --config new/letor.yaml"),
        (
            "digits/smoke",
            "there",
            "there/digits-smoke.yaml",
            "ltr fit --config digits --config there/digits-smoke.yaml",
        ),
        ("digits", "a b.yaml", "a b.yaml", "ltr fit --config 'a b.yaml'"),
    ],
)
def test_copy(ltr, name, dest, written, command):
    Path("there").mkdir()
    answer = ltr("copy", name, dest)
    assert answer.code == 0
    _, (*_, source) = resolve(name)
    assert Path(written).read_text() == source.read_text()
    assert answer.out == f"wrote {written}\nrun it: {command}\n"


def test_copy_overwrites_nothing(ltr):
    Path("mine.yaml").write_text("mine")
    answer = ltr("copy", "digits", "mine.yaml")
    assert answer.code == 2
    assert answer.err == "ltr copy: mine.yaml exists already: choose another name, or delete it\n"
    assert Path("mine.yaml").read_text() == "mine"


def test_the_papers_experiments_are_there():
    papers = {"knn", "quantile", "regression", "sort", "speed", "topk"}
    assert papers | {"digits", "letor"} <= set(find_recipes())


@pytest.mark.parametrize("name", find_recipes())
def test_the_committed_results_are_of_the_committed_configuration(name):
    folder = find_recipes()[name].folder
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    plan = make_plan(name, results["overrides"])
    assert results["digest"] == plan.digest
    assert [run["name"] for run in results["runs"]] == [run.name for run in plan.runs]
    finished = {run["name"]: run for run in results["runs"] if "metrics" in run}
    assert finished
    for run in plan.runs:
        assert finished.get(run.name, {"overrides": run.config})["overrides"] == run.config
    assert all(finished.get(run["name"]) or run["status"] == NOT_RUN for run in results["runs"])
    assert (folder / "table.md").read_text(encoding="utf-8") == render(plan, finished)

"""Finding, listing and copying recipes; what `--config` stands for."""

import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from ltr.cli.errors import CommandError
from ltr.cli.recipes import find_configs, find_recipes, names_own_code, resolve

RECIPES = [name for name in find_recipes() if "/" not in name]


def test_recipes_are_listed_with_their_overlays(ltr):
    answer = ltr("recipes")
    assert answer.code == 0
    for name, (*_, path) in find_recipes().items():
        about = path.read_text().splitlines()[0].removeprefix("# ")
        assert (f"{name}: {about}" if "/" in name else f"\n{name} ") in f"\n{answer.out}"
        assert about in answer.out


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete(name: str):
    (config,) = find_recipes()[name]
    assert (config.parent / "README.md").is_file()
    assert find_recipes()[f"{name}/smoke"] == [config, config.with_name("smoke.yaml")]
    for path in config.parent.glob("*.yaml"):
        text = path.read_text()
        assert text.startswith("# ")
        comments = [line for line in text.splitlines() if line.startswith("#")]
        assert any("ltr fit " in line for line in comments)
        assert any("--data." in line for line in comments), "an override"


def names(files: list[Path]) -> list[str]:
    return ["/".join(file.parts[-2:]) for file in files]


def test_a_recipe_name_stands_for_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, name = find_configs(["digits"])
    assert names(files) == ["digits/config.yaml"]
    assert name == "digits"


def test_an_overlay_brings_its_recipe_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (["digits/smoke"], ["digits", "digits/smoke"]):
        files, name = find_configs(given)
        assert names(files) == ["digits/config.yaml", "digits/smoke.yaml"]
        assert name == "digits-smoke"


def test_an_option_overrides_a_configuration_wherever_it_stands(ltr):
    options = ["--trainer.max_epochs", 7, "-c", "digits", "--config=digits/smoke"]
    answer = ltr("fit", *options, "--print_config")
    assert answer.code == 0, answer.err
    assert "max_epochs: 7\n" in answer.out


def test_a_path_is_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits.yaml").write_text("data: {}")
    Path("letor").mkdir()
    Path("letor/config.yaml").write_text("data: {}")
    Path("letor/more.yaml").write_text("data: {}")
    assert resolve("./digits.yaml") == ("digits", [Path("digits.yaml")])
    assert resolve("digits.yaml") == ("digits", [Path("digits.yaml")])
    assert resolve("letor/more.yaml") == ("more", [Path("letor/more.yaml")])
    assert resolve("./letor") == ("letor", [Path("letor/config.yaml")])
    assert resolve(str(tmp_path / "letor")) == ("letor", [tmp_path / "letor" / "config.yaml"])


OWN = """\
# Mine.
model: {class_path: Ranker, init_args: {scorer: {class_path: NETWORK}}}
data:
  class_path: DigitsDataModule
  init_args: {list_size: 4, train_lists: 4, val_lists: 2, test_lists: 2, batch_size: 2}
trainer: {max_epochs: 1, accelerator: cpu, enable_model_summary: false}
"""
NETWORK = """\
from pathlib import Path

from ltr.models import MLPScorer

Path(__file__).with_suffix(".hit").touch()


class Network(MLPScorer):
    pass
"""


@pytest.fixture
def own(ltr):
    """`ltr(...)` beside a folder `recipes`, whose `mine` has a class of its own."""
    folder = Path("recipes/mine")
    folder.mkdir(parents=True)
    module = f"network_{uuid4().hex}"  # a module is imported once in a process
    own_class = f"recipes.mine.{module}.Network"
    (folder / "config.yaml").write_text(OWN.replace("NETWORK", own_class))
    (folder / "odd.yaml").write_text("# Odd\x1b[31m.\n")
    (folder / "small.yaml").write_text("# Small.\ndata: {init_args: {list_size: 2}}\n")
    (folder / f"{module}.py").write_text(NETWORK)
    ltr.own_class = own_class
    return ltr


def hits() -> list[Path]:
    """The files that the modules leave where they are imported."""
    return list(Path().rglob("*.hit"))


def test_a_project_has_recipes_of_its_own(own):
    answer = own("recipes")
    assert (
        "\nIn recipes:\nmine    Mine.\n        mine/odd: Odd\\x1b[31m.\n"
        "        mine/small: Small.\n" in answer.out
    )
    answer = own("fit", "--config", "mine/small")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("mine/small: recipes/mine/small.yaml\n")
    assert hits()
    assert Path("runs/mine-small/1/checkpoints/best.ckpt").is_file()
    assert own("copy", "mine", "other.yaml").code == 0
    assert Path("other.yaml").read_text() == OWN.replace("NETWORK", own.own_class)
    assert "did you mean mine/small?" in own("fit", "--config", "mine/smal").err
    assert "did you mean mine?" in own("fit", "--config", "mnie").err


def test_a_strangers_folder_does_not_hide_a_recipe_and_nothing_in_it_acts(own, monkeypatch):
    hostile = ["recipes/table", "recipes/digits", "table", "digits"]
    for name in hostile:
        Path(name).mkdir()
        for file in ("config.yaml", "smoke.yaml"):
            Path(name, file).write_text(OWN.replace("NETWORK", own.own_class))
    # what the toolkit's libraries try to import, where it is installed
    for name in ("ipywidgets", "litlogger", "hydra", "omegaconf"):
        Path(f"{name}.py").write_text("open(__file__ + '.hit', 'w').close()\n")
    for name in ("table", "digits"):
        ours = str(find_recipes()[name][0])
        answer = own("fit", "--config", name, "--print_config")
        assert answer.code == 0, answer.err
        assert "Network" not in answer.out
        files, _ = find_configs([name, f"{name}/smoke"])
        assert str(files[0]) == ours
        assert files[1].parent == Path(ours).parent
    answer = own("fit", "--config", "digits/smoke")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"digits/smoke: {find_recipes()['digits/smoke'][1]}\n")
    assert own("test", "--config", "digits/smoke", "--ckpt_path", "best").code == 0
    said = "table   is hidden by ltr's own table: give --config ./recipes/table"
    assert said in own("recipes").out
    assert str(Path.cwd()) not in sys.path
    assert not hits()


def test_a_file_named_as_a_recipe_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits").write_text("data: {}")
    assert resolve("digits") == ("digits", find_recipes()["digits"])
    assert resolve("./digits") == ("digits", [Path("digits")])


def test_a_class_that_the_command_names_is_found(own):
    config = ["--config", "digits/smoke", "--data.batch_size", 80]
    answer = own("fit", *config, "--model.scorer", own.own_class)
    assert answer.code == 0, answer.err
    assert hits()


def test_a_layer_of_ones_own_keeps_the_recipes_name(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("data: {}")
    assert find_configs(["digits", str(own)])[1] == "digits"
    assert find_configs([str(own)])[1] == "own"
    assert find_configs([])[1] is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("digts", "no configuration 'digts': did you mean digits?"),
        ("leto/smoke", "did you mean letor/smoke?"),
        ("digits/smke", "no configuration 'digits/smke': did you mean digits/smoke?"),
        ("xyzzy", f"choose from {', '.join(sorted(find_recipes()))}"),
        ("mind.yaml", "did you mean mine.yaml?"),
        ("digits.yaml", "did you mean digits"),
        ("zzz.yaml", "no configuration 'zzz.yaml': choose from digits, "),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(tmp_path, monkeypatch, value, message):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("data: {}")
    with pytest.raises(CommandError) as error:
        resolve(value)
    assert message in str(error.value)


def test_config_without_a_value(ltr):
    answer = ltr("fit", "--config")
    assert answer.code == 2
    assert answer.err == (
        "ltr fit: argument -c/--config: expected one argument (see `ltr fit --help`)\n"
    )


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


def test_copy_of_an_overlay_names_its_recipe(ltr):
    Path("recipes/my-sort").mkdir(parents=True)
    Path("recipes/my-sort/config.yaml").write_text("# mine\n")
    Path("recipes/my-sort/smoke.yaml").write_text("# small\n")
    answer = ltr("copy", "my-sort/smoke", "there.yaml")
    assert answer.out.endswith("run it: ltr fit --config my-sort --config there.yaml\n")


def test_copy_overwrites_nothing(ltr):
    Path("mine.yaml").write_text("mine")
    answer = ltr("copy", "digits", "mine.yaml")
    assert answer.code == 2
    assert answer.err == "ltr copy: mine.yaml exists already: choose another name, or delete it\n"
    assert Path("mine.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", RECIPES)
def test_the_committed_table_has_the_committed_values(name):
    folder = find_recipes()[name][0].parent
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    table = (folder / "table.md").read_text(encoding="utf-8")
    cells: dict[tuple[str, ...], list[float]] = {}
    for run in results["runs"]:
        point = [str(value) for name, value in run["point"].items() if "seed" not in name]
        for metric, value in run["metrics"].items():
            cells.setdefault((run["variant"], *point, metric), []).append(value)
    means = {cell: f"{sum(values) / len(values):.4f}" for cell, values in cells.items()}
    shown = {cell for cell, mean in means.items() if mean in table}
    assert len(shown) >= 8
    assert {cell for cell in means if cell[-1] == "test_ndcg_10"} <= shown
    for one in results.get("summaries", []):
        values = one["values"]
        if one["mean"] is not None:
            assert one["mean"] == pytest.approx(sum(values) / len(values))
            if one["metric"] != "seconds" and one["finished"] == one["planned"]:
                assert f"{one['mean']:.4f}" in table


@pytest.mark.parametrize(
    ("configs", "options", "named"),
    [
        (["digits"], [], False),
        (["digits/smoke"], ["--model.loss", "SoftNDCG"], False),
        (["table"], ["--data.path", "own.parquet"], False),  # an existing file
        (["table"], ["--data.path", "new.parquet"], False),
        (["mine.yaml"], [], True),
        (["./mine.yaml"], [], True),
        (["digits"], ["--model.loss", "own.Loss"], True),
        (["digits"], ['--model.loss={"class_path": "own.Loss"}'], True),
        (["digits"], ["--model", "mine.yaml"], True),
    ],
)
def test_which_commands_name_code_of_the_working_folder(
    tmp_path, monkeypatch, configs, options, named
):
    monkeypatch.chdir(tmp_path)
    for name in ("own.py", "own.parquet", "mine.yaml"):
        Path(name).touch()
    assert names_own_code(configs, options) is named

"""What commands write: the option `--output`, and files that are never those that are read."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ltr.datasets import Standardize, TableTransform, convert
from ltr.estimators import NeuralRanker
from ltr.models import LinearScorer


@pytest.mark.parametrize(
    "args",
    [
        ("train", "t.csv", "--out", "model"),
        ("convert", "t.csv", "--out=lists"),
        ("evaluate", "t.csv", "--out", "m.json"),
        ("test", "model", "t.csv", "--out", "m.json"),
        ("fuse", "a.run", "--out", "b.run"),
        ("predict", "model", "t.csv", "--out", "s.csv"),
    ],
)
def test_the_old_option_names_the_new(ltr, args):
    answer = ltr(*args)
    assert answer.code == 2
    name = f"ltr {args[0]}"
    assert answer.err == f"{name}: --out is now --output (see `{name} --help`)\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, write_table):
    """A model, its ONNX file, a table of one file and of several, lists, runs and judgements."""
    folder = tmp_path_factory.mktemp("inputs")
    train = write_table(folder / "new.csv", 60)
    for part in range(2):
        write_table(folder / "data" / f"part-{part}.parquet", 60, seed=part)
    small: dict[str, Any] = {"members": 1, "max_epochs": 1, "verbose": 0, "random_state": 0}
    small["transform"] = TableTransform(Standardize())  # quick to export
    ranker = NeuralRanker(scorer=LinearScorer(), **small)
    ranker.fit(train[["price", "stock", "shop"]], train["grade"], qid=train["query"])
    ranker.save(folder / "model")
    ranker.export(folder / "model.onnx")
    roles: dict[str, Any] = {"qid": "query", "label": "grade", "doc_id": "sku"}
    convert(folder / "new.csv", folder / "lists", **roles)
    scored = pd.DataFrame({"qid": [1, 1], "label": [1, 0], "score": [0.2, 0.1]})
    scored.to_parquet(folder / "scored.parquet")
    for name in ("a.run", "b.run"):
        (folder / name).write_text("1 Q0 d1 1 0.5 x\n1 Q0 d2 2 0.4 x\n")
    (folder / "qrels.txt").write_text("1 0 d1 1\n1 0 d2 0\n")
    for name in ("link.csv", "link.html", "link.md"):
        (folder / name).symlink_to("new.csv")
    (folder / "link.parquet").symlink_to("data/part-1.parquet")
    (folder / "hard.svg").hardlink_to(folder / "scored.parquet")
    (folder / "hard.csv").hardlink_to(folder / "new.csv")
    return folder


@pytest.fixture
def here(ltr, inputs, tmp_path):
    """`ltr`, in a folder with the inputs."""
    shutil.copytree(inputs, tmp_path, symlinks=True, dirs_exist_ok=True)
    for name, other in (("hard.svg", "scored.parquet"), ("hard.csv", "new.csv")):
        Path(name).unlink()
        Path(name).hardlink_to(other)
    return ltr


def contents() -> dict[Path, str]:
    """The digest of each file of the working folder."""
    files = (path for path in Path().rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


OF_LISTS = ("--qid", "query", "--label", "grade")
LOGGER = ("--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", ".")
LOGGER += ("--trainer.logger.name", "", "--trainer.logger.version", "")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("predict model new.csv", "--output ./new.csv"),
        ("predict model new.csv", "--output link.csv"),
        ("predict model new.csv", "--output hard.csv"),
        ("predict model link.csv", "--output hard.csv"),
        ("predict model data", "--output data/part-0.parquet"),
        ("predict model data", "--output link.parquet"),
        ("predict model data/*.parquet", "--output data/part-1.parquet"),
        ("predict model data/**/*.parquet", "--output data/part-1.parquet"),
        ("test model new.csv", "--output new.csv"),
        ("test model new.csv", "--output model/config.json"),
        ("test model.onnx new.csv", "--output model.onnx"),
        ("test model new.csv", "--html link.html"),
        ("test model data", "--output data/part-1.parquet"),
        ("test model lists", "--output lists/qids.arrow"),
        ("test model new.csv --qrels qrels.txt", "--output qrels.txt"),
        ("evaluate scored.parquet", "--output scored.parquet"),
        ("evaluate scored.parquet", "--plot hard.svg"),
        ("evaluate scored.parquet new.csv", "--html link.html"),
        ("evaluate a.run b.run --qrels qrels.txt", "--output b.run"),
        ("evaluate a.run --qrels qrels.txt", "--output qrels.txt"),
        ("fuse a.run b.run", "--output b.run"),
        ("fuse a.run b.run --qrels qrels.txt", "--output qrels.txt"),
        ("convert data --qid query --label grade", "--output data"),
        ("train lists", "--output lists"),
        ("train data --qid query --label grade --val new.csv", "--output data"),
        ("export model", "model"),
        ("export model --test new.csv", "link.onnx"),
    ],
)
def test_no_output_replaces_what_is_read(here, command, output):
    before = contents()
    answer = here(*command.split(), *output.split())
    assert answer.code == 2
    name = output.split()[0] if output.startswith("--") else "OUTPUT"
    message = (
        f"ltr {command.split()[0]}: {name} must not be the (file|folder) that is read, got .+\n"
    )
    assert re.fullmatch(message, answer.err)
    assert contents() == before


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
def test_a_configuration_is_not_replaced_by_that_of_the_run(ltr):
    Path("tiny.yaml").rename("config.yaml")
    before = Path("config.yaml").read_bytes()
    answer = ltr("fit", "--config", "config.yaml", *LOGGER)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert line == "ltr fit: trainer.logger must not log beside config.yaml: it is replaced"
    assert Path("config.yaml").read_bytes() == before


def test_a_recipe_is_not_copied_over_a_file(ltr):
    answer = ltr("copy", "digits", "tiny.yaml")
    assert answer.code == 2
    assert answer.err.startswith("ltr copy: tiny.yaml exists already")


def test_two_outputs_are_two_files(here):
    answer = here("evaluate", "scored.parquet", "--html", "m.html", "--output", "./m.html")
    assert answer.code == 2
    assert answer.err.startswith("ltr evaluate: --output must not be the file of --html, got /")


def test_a_file_beside_the_inputs_is_replaced(here):
    """It is not one of the files that are read, so the command can be repeated."""
    for folder in ("data", "model"):
        for _ in range(2):
            answer = here("test", "model", "data", "--output", f"{folder}/metrics.json")
            assert answer.code == 0, answer.err

"""A full disk, and a device that takes nothing, are one line that names the file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LTR = (sys.executable, "-c", "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where `model` keeps what it has made."""
    return tmp_path_factory.mktemp("kept") / "folder"


@pytest.fixture
def model(ltr, write_table, kept):
    """`ltr`, in a folder with a model, a table, scores and runs."""
    if kept.exists():
        shutil.copytree(kept, ".", dirs_exist_ok=True)
        return ltr
    write_table(Path("t.csv"), 3000)
    options = ("--qid", "query", "--label", "grade", "--doc-id", "sku", "--features", "price")
    answer = ltr("train", "t.csv", *options, "--effort", "fast", "--quiet", "--output", "model")
    assert answer.code == 0, answer.err
    assert ltr("predict", "model", "t.csv", "--output", "s.csv").code == 0
    assert ltr("predict", "model", "t.csv", "--output", "s.run").code == 0
    shutil.copytree(".", kept)
    return ltr


@pytest.mark.parametrize(
    "command",
    [
        "predict model t.csv --output new.parquet",
        "predict model t.csv --output new.csv",
        "predict model t.csv --output new.run",
        "evaluate s.csv --qid query --label grade --output new.json",
        "evaluate s.csv --qid query --label grade --plot new.png",
        "evaluate s.csv --qid query --label grade --html new.html",
        "fuse s.run --output new.run",
        "convert t.csv --doc-id sku --qid query --label grade --output new",
        "train t.csv --doc-id sku --qid query --label grade --effort fast --quiet --output new",
        "export model new.pt2",
        "copy digits new.yaml",
    ],
)
def test_a_full_disk(model, largest_file, command):
    before = {*Path().iterdir()}
    with largest_file(200):
        answer = model(*command.split())
    assert answer.code == 2, answer.err
    line = answer.err.splitlines()[-1]
    assert line.startswith(f"ltr {command.split()[0]}: ")
    assert "new" in line
    assert re.search("File too large|cannot be grouped", line)
    assert {*Path().iterdir()} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_stdout_that_takes_nothing(ltr, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*LTR, "recipes"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 2
    stdout = "" if unbuffered else "stdout: "
    assert done.stderr == f"ltr recipes: {stdout}No space left on device\n"


def test_a_tilde_without_a_user_is_a_name(model):
    answer = model("predict", "model", "t.csv", "--output=~.csv")
    assert answer.code == 0, answer.err
    assert Path("~.csv").is_file()
    for command in ("test ~no/m t.csv", "serve ~no/m", "copy digits ~.csv"):
        answer = model(*command.split())
        assert answer.code == 2
        assert answer.err.count("\n") == 1

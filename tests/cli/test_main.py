"""The dispatcher: what it loads, what it says, how it ends."""

import runpy
import subprocess
import sys
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import validate_data

import ltr as package
from ltr.cli import main
from ltr.cli.errors import CommandError
from ltr.cli.recipes import find_recipes
from ltr.datasets.table_files import naming
from ltr.shapes import check_whole

HEAVY = {"torch", "lightning", "jsonargparse", "numpy", "yaml", "rich", "pandas", "sklearn"}


@pytest.mark.parametrize(
    "args",
    [
        *(["--help"], ["--version"], ["recipes"], ["copy", "digits", "mine.yaml"], []),
        *(["train", "--help"], ["fit", "--help"], ["predict", "--help"], ["explain", "--help"]),
    ],
)
def test_what_needs_no_torch_loads_none(args: list[str], tmp_path):
    code = (
        "import sys; from ltr.cli import main\n"
        f"main({args!r})\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert not HEAVY & set(done.stderr.split())


def test_help_names_every_command(ltr):
    answer = ltr("--help")
    assert answer.code == 0
    for command in ("train", "fit", "test", "predict", "explain", "evaluate", "copy"):
        assert f"\n  {command}" in answer.out


@pytest.mark.parametrize("odd", ["\x1b[2J", "\x07", "\u202e", "\udcff"])
def test_control_characters_of_a_name_do_not_reach_the_terminal(ltr, odd):
    answer = ltr("evaluate", f"no{odd}such.csv")
    assert answer.code == 2
    escaped = odd.encode("unicode_escape").decode()
    assert answer.err == f"ltr evaluate: no{escaped}such.csv: no such file\n"


def test_version(ltr):
    assert ltr("--version").out == f"ltr {package.__version__}\n"


def test_python_runs_the_package(monkeypatch, capsys):
    for args, code in (["--version"], 0), (["nonsense"], 2):
        monkeypatch.setattr(sys, "argv", ["ltr", *args])
        with pytest.raises(SystemExit) as end:
            runpy.run_module("ltr", run_name="__main__")
        assert end.value.code == code
    out, err = capsys.readouterr()
    assert out == f"ltr {package.__version__}\n"
    assert "nonsense" in err


def test_no_command_is_help_and_an_error(ltr):
    answer = ltr()
    assert answer.code == 2
    assert answer.err.startswith("usage: ltr COMMAND")


@pytest.mark.parametrize(
    ("args", "named", "near"),
    [
        (["fti"], "'fti'", "did you mean fit?"),
        (["frobnicate"], "'frobnicate'", "choose from convert, copy"),
        (["--verison"], "'--verison'", "unknown option"),
        (["recipes", "--al"], "--al", "ltr recipes --help"),
        (["copy", "digits"], "DEST", "ltr copy --help"),
        (["copy", "digit", "x.yaml"], "'digit'", "did you mean digits"),
        (["copy", "digits/smok", "x.yaml"], "'digits/smok'", "did you mean digits/smoke?"),
    ],
)
def test_mistakes_are_one_line(ltr, args, named, near):
    answer = ltr(*args)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert named in answer.err
    assert near in answer.err


BUGS = {
    "a key": lambda: {}["a bug"],
    "numpy": lambda: np.concatenate([]),  # in C, without a frame
    "pyarrow": lambda: pa.array(["a"]).cast(pa.int64()),  # in Cython
    "scikit-learn": lambda: validate_data(LinearRegression(), [[np.nan]]),  # in Python
    "torch": lambda: torch.optim.AdamW([torch.ones(1)], lr=-1.0),
}


@pytest.mark.parametrize("source", [None, "t.csv"])
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_keeps_its_traceback(monkeypatch, bug, source):
    """Also where an error gets the name of the file that is read."""

    def broken(parser, args):
        with naming(source):
            BUGS[bug]()

    monkeypatch.setattr(import_module("ltr.cli.recipes"), "list_recipes", broken)
    with pytest.raises((ValueError, KeyError)) as caught:
        main(["recipes"])
    [note] = caught.value.__notes__
    assert note.endswith("it is a bug: please report the command with this text.")


def test_a_mistake_that_ltr_or_the_users_code_finds(ltr, monkeypatch):
    def refused(parser, args):
        raise ValueError("labels must be >= 0")

    monkeypatch.setattr(import_module("ltr.cli.recipes"), "list_recipes", refused)
    assert ltr("recipes").err == "ltr recipes: labels must be >= 0\n"
    monkeypatch.setattr(
        import_module("ltr.cli.recipes"), "list_recipes", lambda *_: check_whole("members", 0)
    )
    answer = ltr("recipes")
    assert answer.code == 2
    assert answer.err == "ltr recipes: members must be a whole number >= 1, got 0\n"


def test_a_mistake_has_no_note(ltr, monkeypatch):
    monkeypatch.setenv("LTR_TRACEBACK", "1")
    with pytest.raises(CommandError) as caught:
        main(["evaluate", "no.csv"])
    assert not hasattr(caught.value, "__notes__")


def test_a_user_error_shows_its_traceback_on_demand(ltr, monkeypatch):
    def broken(parser, args):
        raise ValueError("root must be\n  a folder")

    monkeypatch.setattr(import_module("ltr.cli.recipes"), "list_recipes", broken)
    assert ltr("recipes").err == "ltr recipes: root must be a folder\n"
    monkeypatch.setenv("LTR_TRACEBACK", "1")
    with pytest.raises(ValueError, match="root must"):
        main(["recipes"])


@pytest.mark.parametrize(
    ("args", "again"),
    [
        (["fit", "--config", "a b.yaml"], "ltr fit --config 'a b.yaml' --ckpt_path last"),
        (["fit", "-c", "d", "--ckpt_path", "last"], "ltr fit -c d --ckpt_path last"),
        (["recipes"], None),
    ],
)
def test_an_interrupt_says_how_to_go_on(ltr, monkeypatch, args, again):
    def interrupted(*args):
        raise KeyboardInterrupt

    module, run = ("training", "fit") if args[0] == "fit" else ("recipes", "list_recipes")
    monkeypatch.setattr(import_module(f"ltr.cli.{module}"), run, interrupted)
    answer = ltr(*args)
    assert answer.code == 130
    end = "" if again is None else f"; resume it with: {again}"
    assert answer.err == f"ltr: interrupted{end}\n"


LTR = [sys.executable, "-c", "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"]


def test_a_reader_that_leaves_ends_the_command_without_a_traceback(tmp_path):
    with subprocess.Popen(
        [*LTR, "recipes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("args", [["recipes"], ["fit", "--help"]])
def test_a_closed_stdout_is_no_error(args, tmp_path):
    command = " ".join(f"'{word}'" for word in [*LTR, *args])
    done = subprocess.run(
        ["bash", "-c", f"{command} >&-"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stdout_leaves_a_file_whole(tmp_path):
    """No other file takes the number of stdout, to which the command prints."""
    command = " ".join(f"'{word}'" for word in [*LTR, "copy", "digits", "mine.yaml"])
    subprocess.run(["bash", "-c", f"{command} >&-"], check=True, cwd=tmp_path)
    assert (tmp_path / "mine.yaml").read_text() == find_recipes()["digits"][0].read_text()


def test_the_help_is_short_and_true(ltr):
    """The options of the data come first."""
    shown = ltr("fit", "--help").out
    assert shown == ltr("fit", "-h").out
    assert len(shown.splitlines()) <= 60
    assert max(map(len, shown.splitlines())) <= 100
    options = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    assert options[:2] == ["--data.path", "--data.qid"]
    assert "--trainer.max_epochs" in options


def test_the_options_of_the_help_exist(ltr):
    shown = ltr("fit", "--help").out
    found = ltr("fit", "--config", "table", "--data.path", "t.csv", "--print_config").out
    known = {name.replace("init_args.", "") for name in flat(yaml.safe_load(found))}
    known |= {"ray", "ray-workers", "print_config", "help-all"}
    options = {line.split()[0][2:] for line in shown.splitlines() if line.startswith("  --")}
    assert options - known == set()


def flat(tree: dict, above: str = "") -> list[str]:
    """The names of all values, and of what contains them."""
    names = []
    for key, value in tree.items():
        names += [above + key, *(flat(value, f"{above}{key}.") if isinstance(value, dict) else [])]
    return names


def test_all_options_are_listed_on_demand(ltr):
    answer = ltr("fit", "--help-all")
    assert answer.code == 0
    assert "--trainer.gradient_clip_val" in answer.out
    assert "--best_checkpoint.monitor" in answer.out

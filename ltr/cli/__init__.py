"""The `ltr` command: train from one YAML file, score tables by the model's folder.

    ltr recipes                                list the recipes
    ltr fit --config digits                    train one of them
    ltr test --config digits --ckpt_path best  test the best weights
    ltr copy digits mine.yaml                  take a recipe's file, to change it
    ltr evaluate my.run --qrels qrels.txt      metrics of scores in a file, without any model
    ltr test runs/table test.parquet           metrics of a model on a table
    ltr predict runs/table new.parquet --output scores.parquet     score a table
    ltr export runs/table --out model.onnx     write a model that onnxruntime runs
    ltr serve model/                           rank over HTTP with an exported model
    ltr convert train.parquet --out train.lists --qid query --label grade     beyond memory

`fit`, `validate` and `test` take `--config` any number of times. Its value is a recipe
(`digits`), an overlay of a recipe (`digits/smoke`, laid over `digits`) or a file. Later
configurations override earlier ones. Recipes come with ltr or are in the folder `recipes`: there,
`sort` is `recipes/sort/config.yaml`. A name of ltr's own recipes always means that recipe. The
command prints the file that it reads. Any option of the model, the data or the trainer may follow,
such as `--model.loss.operator.temperature 0.2`. `--print_config` prints the result.

Name a class of your own with its module: `own.MyLoss` for `MyLoss` in `own.py` in the working
folder. Code in this folder is imported only if a command refers to it: by such a class, by a
configuration that does not come with ltr, or by `--trust`.

Each `fit` writes to a folder of its own: `runs/NAME/1` and so on, with its best model in `model`.
`predict`, `test` and `export` take a folder that `fit`, `NeuralRanker.save`, `Blend.save` or an
export wrote, the folder of a run or of a recipe's runs, or an ONNX file. `fit --ckpt_path last`
resumes the newest run, and `test --config NAME --ckpt_path best` tests it on the recipe's data.

A wrong option, class, value or file gives one line on stderr and exit code 2. So does a failed
training. An interrupted run exits with code 130, a terminated one with 143. `last.ckpt` is that of
the last whole epoch.
Set `LTR_TRACEBACK=1` in the environment to see where an error came from.

This module imports neither torch nor lightning; only the commands that need them do.
"""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module

from ltr import __version__
from ltr.cli.errors import CommandError, as_user_error
from ltr.cli.on_ray import take_workers
from ltr.cli.recipes import LineParser, names_own_code
from ltr.names import nearest, printable

_COMMANDS = {
    "fit": ("ltr.cli.training", "train a model"),
    "validate": ("ltr.cli.training", "evaluate it on the validation lists"),
    "test": ("ltr.cli.training", "evaluate it on the test lists"),
    "predict": ("ltr.cli.predict", "write scores and ranks: CSV, Parquet or a TREC run"),
    "evaluate": ("ltr.cli.evaluate", "metrics of a TREC run or a table of scores"),
    "convert": ("ltr.cli.convert", "files of any size into lists on disk"),
    "export": ("ltr.cli.export", "write a model for other programs: ONNX, torch.export"),
    "serve": ("ltr.cli.serve", "rank over HTTP with an exported model"),
    "recipes": ("ltr.cli.recipes", "list the recipes"),
    "copy": ("ltr.cli.recipes", "copy a recipe's file, to change it"),
    "datasets": ("ltr.cli.datasets", "list published data sets: layout, size, source, terms"),
}
_ON_RAY = ("fit", "predict")
"""The commands that take `--ray` and `--ray-workers`."""

_HELP = "\n".join(
    [
        "usage: ltr COMMAND [options]",
        "",
        "Learning to rank on PyTorch and Lightning.",
        "",
        *(f"  {name:<10}{text}" for name, (_, text) in _COMMANDS.items()),
        "",
        "Begin with `ltr recipes` and `ltr fit --config digits`.",
        "`ltr COMMAND --help` lists the options; `ltr --version` prints the version.",
    ]
)

__all__ = ["guarded", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ltr` with these arguments.

    Args:
        argv: the arguments after `ltr` on the command line. Default: this process's arguments.

    Returns:
        The exit code: 0; 2 for a mistake in the command, the configuration or the data, reported
        in one line on stderr; 130 if interrupted; 141 if the reader of stdout is gone. A bug in
        `ltr` raises an exception.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    ltr ...
    0
    """
    _open_streams()
    args = list(sys.argv[1:] if argv is None else argv)
    name = " ".join(["ltr", *args[:1]]) if args[:1] and args[0] in _COMMANDS else "ltr"
    again = None
    if args[:1] == ["fit"]:
        parser = LineParser("ltr", add_help=False, allow_abbrev=False)
        parser.add_argument("--ckpt_path", nargs="?")
        rest = parser.parse_known_args(args)[1]
        again = shlex.join(["ltr", *rest, "--ckpt_path", "last"])
    return guarded(partial(_run, args), name, again)


def guarded(run: Callable[[], int], name: str, again: str | None = None) -> int:
    """Run a program, and report the user's mistakes and interrupts in one line on stderr.

    Args:
        run: the program; it returns the exit code.
        name: printed before the message of a mistake.
        again: the command that resumes the program after an interrupt, if there is one.

    Returns:
        The exit code; see `main`.

    >>> guarded(lambda: 0, "ltr")
    0
    """
    with _interrupts_restored():
        try:
            code = run()
            sys.stdout.flush()  # a reader that is gone, as of `ltr recipes | head -1`, shows here
            return code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141  # as of a program that SIGPIPE ends
        except KeyboardInterrupt:
            return _interrupted(again)
        except SystemExit as stop:
            # Lightning turns an interrupt into exit code 1 once it has shut down
            if isinstance(stop.__context__, KeyboardInterrupt):
                return _interrupted(again)
            if type(stop) is not SystemExit:  # Lightning's SIGTERMException
                return _interrupted(again, "terminated", signal.SIGTERM)
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except Exception as error:
            told = as_user_error(error)
            if told is None or os.environ.get("LTR_TRACEBACK"):
                raise
            print(f"{name}: {printable(told)}", file=sys.stderr)
            return 2


def _open_streams() -> None:
    """Open streams that are closed, as stdout by `>&-`: a file would get their numbers."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _run(args: list[str]) -> int:
    if not args:
        print(_HELP, file=sys.stderr)
        return 2
    command, rest = args[0], args[1:]
    if command in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if command == "--version":
        print(f"ltr {__version__}")
        return 0
    if command not in _COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        raise CommandError(f"unknown {kind} {command!r}: {nearest(command, _COMMANDS)}")
    if (here := os.getcwd()) not in sys.path and names_own_code(rest):
        sys.path.append(here)
    rest, workers = take_workers(rest)
    if workers is not None and command not in _ON_RAY:
        raise CommandError(f"only {', '.join(_ON_RAY)} take --ray and --ray-workers")
    run: Callable[..., int]
    if command == "test" and rest and not rest[0].startswith("-"):  # a model, not a recipe
        from ltr.cli.predict import run_test as run
    else:
        run = import_module(_COMMANDS[command][0]).run
    return run(command, rest, workers) if command in _ON_RAY else run(command, rest)


def _interrupted(
    again: str | None, how: str = "interrupted", number: signal.Signals = signal.SIGINT
) -> int:
    end = "" if again is None else f"; resume it with: {again}"
    print(f"ltr: {how}{end}", file=sys.stderr)
    return 128 + number


@contextmanager
def _interrupts_restored() -> Iterator[None]:
    """Restore the handler of Ctrl+C, which Lightning replaces after the first one."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)

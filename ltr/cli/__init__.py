"""The `ltr` command: train on a table, score tables with a saved model, run recipes.

    ltr train train.parquet --qid query --label grade --output model     train on a table
    ltr test model test.parquet                                       metrics on another table
    ltr predict model new.parquet --output scores.parquet             score a table
    ltr explain model test.parquet --query 17                         explain a ranking
    ltr export model model.onnx                                       for onnxruntime
    ltr export trees.txt solr/ --to solr                              for a search engine
    ltr serve model                                                   rank over HTTP
    ltr evaluate my.run --qrels qrels.txt      metrics of scores in a file, without any model
    ltr convert train.parquet --output train.lists --qid query --label grade     for large files
    ltr recipes                                list the recipes
    ltr fit --config digits                    train a recipe
    ltr test --config digits --ckpt_path best  test the best weights
    ltr copy digits mine.yaml                  copy a recipe's file, to change it

`train` is for tables. `fit` is for recipes and for classes of your own.

`fit` and `test` take `--config` any number of times. Its value is a recipe (`digits`),
an overlay of a recipe (`digits/smoke`, laid over `digits`) or a file. Later configurations override
earlier ones. Recipes come with ltr, or are in the folder `recipes`, where `sort` means
`recipes/sort/config.yaml`. If a recipe of ltr has the same name, the name means ltr's recipe. The
command prints the path of the file that it reads. Any option of the model, the data or the trainer,
such as `--model.loss.operator.temperature 0.2`, overrides the configurations. `--print_config`
prints the result.

Name a class of your own with its module: `own.MyLoss` for `MyLoss` in `own.py` in the working
folder. Code in this folder is imported only if a command refers to it: by such a class, by a
configuration that does not come with ltr, or by `--trust`.

Each `fit` writes to a folder of its own: `runs/NAME/1` and so on, with its best model in `model`.
`predict`, `test`, `explain`, `export` and `serve` take a folder that `train`, `fit`,
`NeuralRanker.save`, `Blend.save` or an export wrote, or the folder of a run or of a recipe's runs.
All of these but `export` also take an ONNX file. `fit --ckpt_path last` resumes the newest run.

A command makes the folder of what it writes, if there is none. A wrong option, class, value or file
gives one line on stderr and exit code 2. So does training that fails. A bug ends with its
traceback, a line that asks for a report, and exit code 1. An interrupted run exits with code 130, a
terminated run with 143. `last.ckpt` then has the state after the last whole epoch. Set
`LTR_TRACEBACK=1` in the environment to see where an error came from.

This module imports neither torch nor lightning; only the commands that need them do.
"""

import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ltr import __version__
from ltr.cli.errors import CommandError, as_user_error
from ltr.names import nearest, package_names, printable

if TYPE_CHECKING:
    from ltr.cli.lightning_cli import RankingCLI
    from ltr.cli.options import given_options, load_options
    from ltr.cli.quiet import quiet_lightning
    from ltr.cli.recipes import find_configs

_LAZY = {
    "RankingCLI": "ltr.cli.lightning_cli",
    "find_configs": "ltr.cli.recipes",
    "given_options": "ltr.cli.options",
    "load_options": "ltr.cli.options",
    "quiet_lightning": "ltr.cli.quiet",
}
"""The files of the names that a program of one's own around `ltr fit` imports."""

_COMMANDS = {
    "train": ("train:train", "train a model on a table"),
    "test": ("predict:test", "metrics of a model on a table, or of a recipe on its test lists"),
    "predict": ("predict:predict", "write scores and ranks: CSV, Parquet or a TREC run"),
    "explain": ("explain:explain", "why the documents of a query rank as they do"),
    "export": ("export:export", "write a model for other programs: ONNX, search engines"),
    "serve": ("serve:serve", "rank over HTTP"),
    "evaluate": ("evaluate:evaluate", "metrics of a TREC run or a table of scores"),
    "fuse": ("fuse:fuse", "combine the TREC runs of several rankers into one"),
    "lists": ("lists:lists", "training lists for text models from what a first stage found"),
    "convert": ("convert:convert", "files of any size into lists on disk"),
    "fit": ("training:fit", "train a recipe, or classes of your own"),
    "recipes": ("recipes:list_recipes", "list the recipes"),
    "copy": ("recipes:copy", "copy a recipe's file, to change it"),
}
"""The function of each command in `ltr.cli`, and what the command does.

The function gets a parser, to which it adds the command's options, and the words after the command.
The docstring of the function is the command's help.
"""

_HELP = "\n".join(
    [
        "usage: ltr COMMAND [options]",
        "",
        "Learning to rank on PyTorch and Lightning.",
        "",
        *(f"  {name:<10}{text}" for name, (_, text) in _COMMANDS.items()),
        "",
        "Begin with `ltr train TABLE --qid COLUMN --label COLUMN --output model`.",
        "A command makes the folder of what it writes, if there is none.",
        "`ltr COMMAND --help` lists the options; `ltr --version` prints the version.",
    ]
)

__all__ = [
    "CommandError",
    "RankingCLI",
    "find_configs",
    "given_options",
    "guarded",
    "load_options",
    "main",
    "quiet_lightning",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `ltr` command.

    Args:
        argv: the arguments after `ltr` on the command line. Default: this process's arguments.

    Returns:
        The exit code: 0; 2 for a mistake in the command, the configuration or the data, reported
        in one line on stderr; 130 if interrupted; 141 if the reader of stdout is gone; 143 if
        terminated while Lightning trains. A bug in `ltr` raises an exception
        with a note that asks for a report.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    ltr ...
    0
    """
    # Replace a closed stream (`>&-`), or the next opened file would get the stream's descriptor.
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    args = list(sys.argv[1:] if argv is None else argv)
    name = " ".join(["ltr", *args[:1]]) if args[:1] and args[0] in _COMMANDS else "ltr"
    last = [] if args[-2:] == ["--ckpt_path", "last"] else ["--ckpt_path", "last"]
    again = shlex.join(["ltr", *args, *last]) if args[:1] == ["fit"] else None
    return guarded(partial(_run, args), name, again)


def guarded(run: Callable[[], int], name: str, again: str | None = None) -> int:
    """Run a program, and report the user's mistakes and interrupts in one line on stderr.

    Args:
        run: the program: a function that returns the exit code.
        name: the name that is printed before the message of a mistake.
        again: the command that resumes the program after an interrupt, if there is one.

    Returns:
        The exit code; see `main`.

    >>> guarded(lambda: 0, "ltr")
    0
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        code = run()
        sys.stdout.flush()  # this fails if the reader is gone, as in `ltr recipes | head -1`
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # this is the exit code of a program that SIGPIPE ends
    except KeyboardInterrupt:
        return _stopped(signal.SIGINT, again)
    except SystemExit as stop:
        # Lightning turns an interrupt into exit code 1 once it has shut down.
        if isinstance(stop.__context__, KeyboardInterrupt):
            return _stopped(signal.SIGINT, again)
        if type(stop) is not SystemExit:  # this is Lightning's SIGTERMException
            return _stopped(signal.SIGTERM, again)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:
        message = as_user_error(error)
        if isinstance(error, OSError) and error.filename is None and _stdout_fails():
            message = f"stdout: {error.strerror}"
        if message is None:
            error.add_note(
                "ltr does not know this error. If it is not of your own code, it is a bug: please "
                "report the command with this text."
            )
        if message is None or os.environ.get("LTR_TRACEBACK"):
            raise
        print(f"{name}: {printable(message)}", file=sys.stderr)
        return 2
    finally:  # Lightning replaces the handler of Ctrl+C after the first Ctrl+C
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _stdout_fails() -> bool:
    """Return whether stdout cannot be written, as on a full disk, and then close it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _stopped(by: signal.Signals, again: str | None) -> int:
    """Print how to resume the program, and return the exit code of the signal."""
    how = "interrupted" if by is signal.SIGINT else "terminated"
    end = "" if again is None else f"; resume it with: {again}"
    print(f"ltr: {how}{end}", file=sys.stderr)
    return 128 + by


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
    # These imports are not at the top, since the help of `ltr` does not need them.
    from pkgutil import resolve_name
    from textwrap import dedent

    from ltr.cli.arguments import LineParser

    run = resolve_name(f"ltr.cli.{_COMMANDS[command][0]}")
    # By default, a warning shows its line of code, which does not help the user.
    before, name = warnings.formatwarning, f"ltr {command}"
    warnings.formatwarning = lambda message, *_, **__: f"{name}: {printable(str(message))}\n"
    try:
        run(LineParser(name, description=dedent(f"    {run.__doc__ or ''}").strip()), rest)
    finally:
        warnings.formatwarning = before
    return 0

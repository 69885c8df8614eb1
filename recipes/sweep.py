"""Train and test the runs of a sweep, each once, and write their results and their table.

A recipe's `run.py` says in plain loops which runs there are; recipes/sort/run.py is an example.
Each run goes through the code of `ltr fit` and `ltr test`, in a folder of its own. The same command
again skips what is finished, and resumes what was stopped from its last whole epoch, also after a
kill. `--results FILE` adds the finished runs to a file of earlier ones, and `--status` says how
many core hours are left.
"""

import argparse
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial, reduce
from pathlib import Path
from typing import Any, NoReturn

from ltr.cli import (
    CommandError,
    RankingCLI,
    find_configs,
    given_options,
    guarded,
    load_options,
    quiet_lightning,
)
from recipes.progress import CountCoreSeconds, Progress, hours_left, read_progress
from recipes.results import (
    Result,
    environment,
    fit_result,
    merged,
    read_curves,
    read_json,
    settings,
    write_json,
    write_text,
)
from recipes.tables import render

_OPTIONS = ("config", "output", "only", "overlay", "results", "status")
"""The options of every sweep; the others are those of its runs."""

_PLACES = ("data.root",)
"""The options that say where something is, on which no result depends."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which `guarded` prints."""

    def error(self, message: str) -> NoReturn:
        """Raise a `CommandError` with the message."""
        raise CommandError(f"{message} (see `{self.prog} --help`)")


def of(class_path: str, **init_args: Any) -> dict[str, Any]:
    """Return an object as a configuration writes it.

    >>> of("SoftSort", temperature=2.0)
    {'class_path': 'SoftSort', 'init_args': {'temperature': 2.0}}
    """
    return {"class_path": class_path, "init_args": init_args}


@dataclass(frozen=True)
class Run:
    """A run: a variant at a point such as `{"n": 5, "seed": 1}`, and its options of `ltr fit`.

    >>> Run("SoftSort, stochastic", {"n": 5}, {"data.n": 5, "model.loss": of("KNNLoss")}).name
    'softsort-stochastic-n-5'
    """

    variant: str
    point: dict[str, Any]
    options: dict[str, Any]
    fit: bool = True  # otherwise it is tested without training

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        parts = [self.variant, *(f"{key}-{value}" for key, value in self.point.items())]
        return re.sub(r"[^a-z0-9.]+", "-", " ".join(parts).lower()).strip("-")

    @property
    def args(self) -> list[str]:
        """The options as `ltr fit` takes them."""
        said = {k: v if isinstance(v, str) else json.dumps(v) for k, v in self.options.items()}
        return [f"--{key}={value}" for key, value in said.items()]


@dataclass(frozen=True)
class Sweep:
    """All runs of a recipe, and what their tables show.

    Attributes:
        folder: the recipe's folder, which has config.yaml and the overlays.
        runs: returns the runs. Its first argument is the names given as --overlay; each other one,
            such as `n`, is a list of values with a default, for which there is an option, --n 3 5.
        metrics: logged names, or "seconds", and their headings.
        columns: the part of `Run.point` that makes the columns; a cell is the mean over the rest.
        rows: "variant", with a table for each metric, or "metric".
        published: source -> {(variant, metric): {column: number}}.
        epochs: the published length of a run.
        figure: draws the finished runs, a matplotlib Figure; None if there is nothing to draw.
        below: returns more text below the table, from all runs and those that are finished.
        cost: returns how much an epoch of a run costs beside those of the others, such as the
            length of its lists; `--status` needs it.
    """

    folder: Path
    runs: Callable[..., Iterable[Run]]
    metrics: dict[str, str]
    columns: str
    rows: str = "variant"
    published: Mapping[str, Mapping[tuple[str, str], Any]] = field(default_factory=dict)
    epochs: int | None = None
    figure: Callable[[list[Result]], Any] = lambda results: None
    below: Callable[[list[Run], dict[str, Result]], str] = lambda runs, results: ""
    cost: Callable[[Run], float] = lambda run: 1.0

    def main(self, module: str, argv: Sequence[str] | None = None) -> int:
        """Run the program `python -m module`, and return its exit code, as `ltr.cli.main` does."""
        args = list(sys.argv[1:] if argv is None else argv)
        again = shlex.join(["python", "-m", module, *args])
        return guarded(partial(self._main, module, args), module, again)

    def _main(self, module: str, args: list[str]) -> int:
        epilog = "Other options are those of `ltr fit`, for every run that does not set them."
        parser = _Parser(f"python -m {module}", epilog=epilog, allow_abbrev=False)
        parser.add_argument("-c", "--config", action="append", default=[], help="of `ltr fit`")
        parser.add_argument("--output", type=Path, help="folder of the results")
        parser.add_argument(
            "--only", action="append", help="run this variant or run; repeatable, in this order"
        )
        parser.add_argument(
            "--results",
            type=Path,
            help="a results.json: its runs are finished, and it gets the new ones, with its table",
        )
        parser.add_argument(
            "--status", action="store_true", help="train nothing; print what is left in core hours"
        )
        overlays = sorted({path.stem for path in self.folder.glob("*.yaml")} - {"config"})
        parser.add_argument("--overlay", action="append", default=[], choices=overlays)
        for name, parameter in [*inspect.signature(self.runs).parameters.items()][1:]:
            default = list(parameter.default)
            parser.add_argument(f"--{name}", nargs="+", type=type(default[0]), default=default)
        given, overrides = parser.parse_known_args(args)
        recipe = "-".join([self.folder.name, *given.overlay])
        lists = {k: v for k, v in vars(given).items() if k not in _OPTIONS}
        runs = list(self.runs(given.overlay, **lists))
        own = [str(self.folder / f"{stem}.yaml") for stem in ("config", *given.overlay)]
        files, _ = find_configs([*own, *given.config])
        options = [*(f"--config={file}" for file in files), *overrides]
        config = reduce(merged, map(load_options, files), {})
        about = {"recipe": recipe, "config": config, "overrides": overrides}
        for name in given_options(overrides):
            if all(name in run.options for run in runs):
                raise CommandError(f"--{name} is set by each run: see python -m {module} --help")
        if given.results is not None:
            _check_same_settings(given.results, overrides)
        out = given.output or Path("runs", f"sweep-{recipe}")
        chosen = _chosen(runs, given.only)
        if given.status:
            epochs = config.get("trainer", {}).get("max_epochs", 1)
            print(self.status(runs, chosen, epochs, out, given.results))
        else:
            self.run(runs, chosen, options, about, out, given.results)
        return 0

    def run(
        self,
        runs: list[Run],
        chosen: list[Run],
        options: list[str],
        about: Result,
        out: Path,
        results: Path | None = None,
    ) -> None:
        """Run what is not finished; write `results.json`, `table.md` and the picture into `out`.

        Args:
            runs: all runs.
            chosen: those to run now, in this order.
            options: of `ltr fit`, for all runs.
            about: the first entries of `results.json`: `recipe`, `config` and `overrides`.
            out: the folder; its runs with other settings are an error.
            results: a file such as results.json. The runs in it are finished, wherever they were
                made. Each run that ends is added to it at once, and its table is drawn beside it.
        """
        earlier = _finished_in(results)
        left = [
            run for run in chosen if run.name not in earlier and not _is_finished(out, run, options)
        ]
        for number, run in enumerate(left, start=1):
            print(f"run {number} of {len(left)}: {run.name}", flush=True)
            result = _perform(run, options, about["recipe"], out / "runs" / run.name)
            write_json(out / "runs" / run.name / "result.json", result)
            self.write(out, runs, about, results)
        finished = self.write(out, runs, about, results)
        print((out / "table.md").read_text(encoding="utf-8"))
        print(f"wrote {out / 'results.json'} and {out / 'table.md'}")
        if (figure := self.figure(finished)) is not None:
            figure.savefig(out / f"{about['recipe']}.png", dpi=110)
            print(f"drew {out / about['recipe']}.png")

    def write(
        self, out: Path, runs: list[Run], about: Result, results: Path | None = None
    ) -> list[Result]:
        """Write `results.json` and `table.md`; return the finished results, the earlier ones too.

        With `results`, write that file and its table too: "results-paper.json" has its table in
        "table-paper.md".
        """
        finished = _finished_in(results) | _finished_in_folder(out, runs)
        for run in runs:
            if run.name in finished:  # earlier files name the parts of a point otherwise
                finished[run.name] |= {"variant": run.variant, "point": run.point}
        states = [finished.get(run.name, {"name": run.name, "status": "not run"}) for run in runs]
        contents = {out / "results.json": {**about, "runs": states}}
        if results is not None:
            known = read_json(results) if results.is_file() else about
            contents[results] = {**known, "runs": states}
        for file, content in contents.items():
            write_json(file, content)
            table = file.with_name(f"{file.stem.replace('results', 'table')}.md")
            write_text(table, render(self, runs, content))
        return [*finished.values()]

    def status(
        self, runs: list[Run], chosen: list[Run], epochs: int, out: Path, results: Path | None
    ) -> str:
        """Return a line for each chosen run, and the core hours that are left.

        The hours are those of the epochs that are left, at the speed of those that were trained.

        Args:
            runs: all runs.
            chosen: those to tell of.
            epochs: the epochs of a run that does not set them.
            out: the folder of the runs.
            results: see `run`.
        """
        finished = _finished_in(results) | _finished_in_folder(out, runs)
        told: list[Progress] = []
        for run in chosen:
            planned = int(run.options.get("trainer.max_epochs", epochs)) if run.fit else 0
            done, seconds = read_progress(out / "runs" / run.name)
            if run.name in finished:
                done = planned
                seconds = finished[run.name].get("core_seconds") or 0.0
            told.append(Progress(run.name, done, planned, seconds, self.cost(run)))
        lines = [f"{run.name}: {run.epochs} of {run.planned} epochs" for run in told]
        hours = hours_left(told)
        left = "unknown, as no epoch was trained here" if hours is None else f"{hours:.1f}"
        return "\n".join([*lines, f"core hours left: {left}"])


def _check_same_settings(results: Path, overrides: list[str]) -> None:
    """Raise `CommandError` if a file of results has runs with other options for all runs."""
    if not results.is_file():
        return
    before, now = given_options(read_json(results)["overrides"]), given_options(overrides)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names := [name for name in names if name not in _PLACES]:
        raise CommandError(
            f"{results} has results of other settings, with another {', '.join(names)}: "
            "give another --results"
        )


def _finished_in(results: Path | None) -> dict[str, Result]:
    """Return the finished runs of a file of results, by name; none if there is no such file."""
    if results is None or not results.is_file():
        return {}
    return {run["name"]: run for run in read_json(results)["runs"] if "metrics" in run}


def _finished_in_folder(out: Path, runs: list[Run]) -> dict[str, Result]:
    """Return the finished runs of a folder, by name."""
    paths = {run.name: out / "runs" / run.name / "result.json" for run in runs}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def _chosen(runs: list[Run], only: list[str] | None) -> list[Run]:
    if not only:
        return runs
    names = {name for run in runs for name in (run.variant, run.name)}
    chosen: dict[str, Run] = {}
    for name in only:
        if name not in names:
            near = " or ".join(get_close_matches(name, names) or sorted(names))
            raise CommandError(f"--only has no variant or run {name!r}: did you mean {near}?")
        chosen |= {run.name: run for run in runs if name in (run.variant, run.name)}
    return [*chosen.values()]


def _is_finished(out: Path, run: Run, options: list[str]) -> bool:
    """Return whether a run is finished; raise `CommandError` if it has other settings."""
    folder = out / "runs" / run.name
    begun = (folder / "checkpoints").is_dir() or (folder / "result.json").is_file()
    if begun and (folder / "settings.json").is_file():
        before, now = read_json(folder / "settings.json"), settings([*options, *run.args], run.fit)
        if names := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
            raise CommandError(
                f"{out} has results of other settings, with another {', '.join(names[:3])}: "
                f"give another --output, or delete {out}"
            )
    return (folder / "result.json").is_file()


def _perform(run: Run, options: list[str], recipe: str, folder: Path) -> Result:
    """Train a run, or resume it, and test its best weights once."""
    best, last = (folder / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))
    fitted, resumed = folder / "fit.json", last.is_file()
    args = [*options, *run.args, "--trainer.default_root_dir", str(folder)]
    args += ["--ckpt_path", "last"] if resumed else []
    with quiet_lightning():
        cli = RankingCLI("fit", args, recipe, numbered=False)
        write_json(folder / "settings.json", settings([*options, *run.args], run.fit))
        fit: dict[str, Any] = {}
        if run.fit:
            if not fitted.is_file():
                counter = CountCoreSeconds(folder)
                cli.trainer.callbacks.append(counter)  # pyright: ignore[reportAttributeAccessIssue]
                cli.execute()
                seconds = {"core_seconds": round(counter.seconds, 2)}
                write_json(fitted, fit_result(cli, resumed) | seconds)
            fit = {**read_json(fitted), "curves": read_curves(folder)}
        weights = str(best if best.is_file() else last) if run.fit else None
        tested = cli.trainer.test(
            cli.model,
            datamodule=cli.datamodule,
            ckpt_path=weights,
            weights_only=True,
            verbose=False,
        )
    return {
        "name": run.name,
        "variant": run.variant,
        "point": run.point,
        "options": run.options,
        "fit": run.fit,
        "seed": cli.config.seed_everything,
        **fit,
        "metrics": {name: value for loader in tested for name, value in loader.items()},
        "environment": environment(cli.trainer.strategy.root_device),
    }

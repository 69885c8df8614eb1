"""`ltr bench`: train and test every run of a recipe's table once."""

import argparse
import json
import platform
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from ltr import __version__
from ltr.cli.caption import render
from ltr.cli.chosen import FIT, Result, chosen_runs, read_json, read_result
from ltr.cli.curves import read_curves
from ltr.cli.errors import CommandError
from ltr.cli.layers import differences
from ltr.cli.plan import Plan, Run, make_plan
from ltr.cli.recipes import LineParser
from ltr.cli.table import NOT_RUN, Table, make_tables, summaries
from ltr.files import atomic_write, remove_leftovers
from ltr.names import close_matches, nearest

_EPILOG = """\
All other options are those of `ltr fit` and apply to every run: --trainer.max_epochs 5,
--data.root FOLDER, --config FILE. An option of the grid or of a search replaces the values there:
--data.fold 1, or --seed_everything "[1, 2, 3]". The same command resumes a bench that was stopped:
it skips finished runs and resumes unfinished ones. --only takes a variant, or the name of a run's
folder in DIR/runs. Results: DIR/results.json, DIR/table.md.
"""


def run(command: str, args: list[str]) -> int:
    """Run the command `bench`."""
    parser = LineParser(
        "ltr bench",
        usage="ltr bench RECIPE [--out DIR] [--only NAME] [--trust PACKAGE] [options of ltr fit]",
        description="Run a recipe's whole table, as its bench.yaml says: folds, seeds, variants.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--out", help="folder of the results; default: runs/bench-RECIPE")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="run this variant or run alone; repeatable"
    )
    parser.add_argument(
        "--trust",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="packages whose classes the runs' checkpoints may name, besides ltr's",
    )
    options, rest = parser.parse_known_args(args)
    if not rest or rest[0].startswith("-"):
        raise CommandError("RECIPE is required, first: ltr bench RECIPE (`ltr recipes` lists them)")
    for arg in rest[1:]:
        if close_matches(arg.partition("=")[0], ["--out", "--only", "--trust"], at_least=0.75):
            raise CommandError(
                f"unknown option {arg}: {nearest(arg, ['--out', '--only', '--trust'])}"
            )
    plan = make_plan(rest[0], rest[1:])
    out = Path(options.out or f"runs/bench-{plan.recipe}").expanduser()
    run_bench(plan, out, _choose(plan, options.only), options.trust)
    return 0


def _choose(plan: Plan, only: list[str] | None) -> list[Run]:
    """Return the runs with these names or variants; all runs if `only` is None."""
    if only is None:
        return plan.runs
    names = {name for run in plan.runs for name in (run.variant, run.name)}
    for name in only:
        if name not in names:
            raise CommandError(f"no variant or run {name!r}: {nearest(name, names)}")
    return [run for run in plan.runs if run.variant in only or run.name in only]


def run_bench(plan: Plan, out: Path, chosen: list[Run], trust: Sequence[str] = ()) -> None:
    """Run all unfinished runs, then write and print the results.

    Args:
        plan: the plan of the bench.
        out: folder of the results.
        chosen: the runs to run, out of the plan's.
        trust: packages whose classes the runs' checkpoints may name.

    Raises:
        CommandError: the folder holds results of another configuration.
    """
    for folder in (out, *out.glob("runs/*")):
        remove_leftovers(folder)
    _check(out, plan)
    left = [one for one in chosen if not (out / "runs" / one.name / "result.json").is_file()]
    _check_files(plan, left)
    for number, one in enumerate(chosen, start=1):
        folder = out / "runs" / one.name
        if not (folder / "result.json").is_file():
            print(f"run {number} of {len(chosen)}: {one.title}", flush=True)
            write_json(folder / "result.json", _perform(plan, one, folder, trust))
            write_results(plan, out)
    tables = write_results(plan, out)
    _print_tables(tables)
    print(f"wrote {out / 'results.json'} and {out / 'table.md'}")
    if plan.figure is not None:
        _draw(plan.figure, out, trust)


def _check(out: Path, plan: Plan) -> None:
    """Raise `CommandError` if `out` holds results of another configuration."""
    path = out / "bench.json"
    begun = [*out.glob("runs/*/result.json"), *out.glob("runs/*/checkpoints")]
    if not path.is_file() or not begun:
        return
    before = read_json(path, {"digest": str, "identity": dict})
    if before["digest"] == plan.digest:
        return
    names = differences(before["identity"], json.loads(json.dumps(plan.identity)))
    names = [name.removeprefix("config.").removeprefix("overrides.") for name in names]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    raise CommandError(
        f"{out} has results of another configuration, with other {', '.join(names[:3])}{more}: "
        f"give another --out, or delete {out}"
    )


def _check_files(plan: Plan, left: list[Run]) -> None:
    """Raise `ValueError` if the files of any run are missing, before the first is trained."""
    from ltr.cli.lightning_cli import make_cli
    from ltr.cli.quiet import quiet
    from ltr.datasets.loaders import SplitDataModule

    points = [{k: v for k, v in one.point.items() if k.startswith("data.")} for one in left]
    for point in (one for place, one in enumerate(points) if one not in points[:place]):
        options = [f"--{key}={json.dumps(value)}" for key, value in point.items()]
        with quiet(brief=True):
            data = make_cli("test", [*plan.args, *options]).datamodule
        if isinstance(data, SplitDataModule):
            data.check_files()


def _perform(plan: Plan, one: Run, folder: Path, trust: Sequence[str]) -> Result:
    """Train a run, or resume it, and test its best weights once."""
    # all runs share this process, since these imports take longer than a small run
    from ltr.cli.lightning_cli import make_cli
    from ltr.cli.quiet import quiet

    folder.mkdir(parents=True, exist_ok=True)
    layer = folder / "overrides.yaml"
    layer.write_text(yaml.safe_dump(one.config, sort_keys=False), encoding="utf-8")
    args = ["--trainer.enable_model_summary", "false", *plan.args, "--config", str(layer)]
    args += ["--trainer.default_root_dir", str(folder)]
    args += ["--trust", *trust] if trust else []
    checkpoints, fitted = folder / "checkpoints", folder / "fit.json"
    resumed = (checkpoints / "last.ckpt").is_file()
    with quiet(brief=True):
        if resumed:
            args += ["--ckpt_path", "last"]
        cli = make_cli("fit", args, name=plan.recipe, numbered=False)
        write_json(
            folder.parents[1] / "bench.json", {"digest": plan.digest, "identity": plan.identity}
        )
        fit: dict[str, Any] = {}
        if one.fit:
            if not fitted.is_file():
                cli.execute()
                write_json(fitted, _fit_result(cli, resumed))
            fit = read_json(fitted, FIT)
        best = checkpoints / "best.ckpt"
        weights = best if best.is_file() else checkpoints / "last.ckpt"
        scores = cli.trainer.test(
            cli.model,
            datamodule=cli.datamodule,
            ckpt_path=str(weights) if one.fit else None,
            weights_only=True,
            verbose=False,
        )
        return {
            "name": one.name,
            "variant": one.variant,
            "point": one.point,
            "overrides": one.config,
            **({"tried": one.tried} if one.search else {}),
            "fit": one.fit,
            "seed": cli.config.seed_everything,
            **fit,
            **({"curves": read_curves(folder)} if one.fit else {}),
            "metrics": {name: value for loader in scores for name, value in loader.items()},
            "environment": environment(cli.trainer.strategy.root_device),
        }


def _fit_result(cli: Any, resumed: bool) -> dict[str, Any]:
    from ltr.modules.checkpoints import train_steps

    best = cli.config_init.best_checkpoint
    score = best.best_model_score
    return {
        "seconds": round(cli.config_init.last_checkpoint.seconds, 2),
        "resumed": resumed,
        "epochs": cli.trainer.current_epoch,
        "steps": train_steps(cli.trainer),
        "parameters": sum(p.numel() for p in cli.model.parameters()),
        "monitor": best.monitor,
        "mode": best.mode,
        best.monitor: None if score is None else float(score),
    }


def environment(device: Any) -> dict[str, str]:
    """Return the versions of the libraries, and the device."""
    import torch

    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "python": platform.python_version(),
        "ltr": __version__,
        **{name: version(name) for name in ("torch", "lightning", "torchmetrics", "numpy")},
        "device": f"{device.type} ({kind})",
        "threads": str(torch.get_num_threads()),
    }


def write_results(plan: Plan, out: Path) -> list[Table]:
    """Write `results.json` and `table.md` of the finished runs.

    Returns:
        The tables.
    """
    results: dict[str, Result] = {}
    for one in plan.runs:
        path = out / "runs" / one.name / "result.json"
        if path.is_file():
            results[one.name] = read_result(path, one)
    shown = {run.name for run, result in chosen_runs(plan, results) if result is not None}
    for one in plan.runs:
        if one.search and one.name in results:
            results[one.name]["chosen"] = one.name in shown
    environments = [result["environment"] for result in results.values()]
    content = {
        "recipe": plan.recipe,
        "digest": plan.digest,
        "config": plan.config,
        "overrides": plan.overrides,
        "grid": plan.grid,
        **({"search": plan.searched} if plan.searched else {}),
        "table": {"rows": plan.table.rows, "columns": plan.table.columns},
        "environments": [e for i, e in enumerate(environments) if e not in environments[:i]],
        "summaries": summaries(plan, results),
        "runs": [results.get(one.name, {"name": one.name, "status": NOT_RUN}) for one in plan.runs],
    }
    write_json(out / "results.json", content)
    _replace(out / "table.md", render(plan, results))
    return make_tables(plan, results)


def _print_tables(tables: list[Table]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    # a file or a pipe has no width: leave room, so that nothing is cut off
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    for table in tables:
        grid = RichTable(title=table.title or None, box=box.SIMPLE_HEAD)
        for number, name in enumerate(table.head):
            grid.add_column(name, justify="right" if number else "left")
        for row in table.rows:
            grid.add_row(*row)
        console.print(grid)


def _draw(figure: str, out: Path, trust: Sequence[str]) -> None:
    module, _, name = figure.rpartition(".")
    try:
        draw: Callable[..., Path | None] = getattr(import_module(module), name)
        loads = "trust" in signature(draw).parameters  # it reads the runs' checkpoints
        path = draw(out, trust=trust) if loads else draw(out)
        print("no picture: no run has anything to draw" if path is None else f"drew {path}")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print("no picture: matplotlib is not installed (it comes with the extra `plots`)")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of results, with each list of numbers on one line."""
    text = json.dumps(content, indent=2, default=str)
    # curves would take thousands of lines otherwise
    text = re.sub(r"\[\n[-+.,\w\s]*\]", _on_one_line, text)
    _replace(path, text + "\n")


def _on_one_line(found: re.Match[str]) -> str:
    return f"[{', '.join(found[0][1:-1].replace(',', ' ').split())}]"


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")

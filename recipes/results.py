"""The files of a sweep: results as JSON, learning curves from the logs."""

import json
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import ltr
from ltr.cli import CommandError, RankingCLI, given_options

Result = dict[str, Any]
"""A finished run in `results.json`: `name`, `variant`, `point`, `metrics`, `seconds` and more."""


def settings(args: list[str], fit: bool) -> dict[str, Any]:
    """Return all that a run's result depends on, by the options' names, as JSON gives it back.

    >>> options = settings(["--data.n=5", "--trainer.enable_progress_bar", "false"], fit=True)
    >>> list(options), options["data.n"]
    (['ltr', 'fit', 'data.n'], 5)
    """
    options = {name: option.value for name, option in given_options(args).items()}
    options = {"ltr": ltr.__version__, "fit": fit, **options}
    lasting = {k: value for k, value in options.items() if not k.startswith("trainer.enable_")}
    return json.loads(json.dumps(lasting, default=str))


def fit_result(cli: RankingCLI, resumed: bool) -> dict[str, Any]:
    """Return what is known of a training: its length, time and best value."""
    best = cli.config_init.best_checkpoint
    score = best.best_model_score
    return {
        "seconds": round(cli.timer.time_elapsed(), 2),
        "resumed": resumed,
        "epochs": cli.trainer.current_epoch,
        "steps": cli.trainer.fit_loop.epoch_loop.total_batch_idx + 1,
        "parameters": sum(p.numel() for p in cli.model.parameters()),
        "monitor": best.monitor,
        "mode": best.mode,
        best.monitor: None if score is None else float(score),
    }


def environment(device: torch.device) -> dict[str, str]:
    """Return the versions of the libraries, the commit, the device, the processor and the threads.

    The commit ends in "+" if files that git knows are changed. Outside a clone there is none.
    """
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "python": platform.python_version(),
        "ltr": ltr.__version__,
        **{name: version(name) for name in ("torch", "lightning", "torchmetrics", "numpy")},
        "device": f"{device.type} ({kind})",
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        **({"commit": commit} if (commit := _commit()) else {}),
    }


def _processor() -> str:
    """Return the name of the processor."""
    cpus = Path("/proc/cpuinfo")
    if cpus.is_file():  # Linux, where the standard library does not know the name
        for line in cpus.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Return the commit of the clone that this file is in; "" if there is none."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        said = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


def read_curves(folder: Path) -> dict[str, list[Any]]:
    """Return the values that a run logged, by name, and `epoch`, from 1; None where there is none.

    The parts of a resumed run are joined.
    An epoch's value is the last one that was logged in it, to six digits. Tests are left out.

    Args:
        folder: the run's folder; its logs are in `logs/version_0` and so on.
    """
    files = [path for path in folder.glob("logs/version_*/metrics.csv") if path.stat().st_size]
    files.sort(key=lambda path: int(path.parent.name.partition("_")[2]))
    if not files:
        return {}
    rows = pd.concat(pd.read_csv(path) for path in files)
    rows = rows.drop(columns=rows.filter(regex="^(step$|test_)").columns)
    epochs = rows.groupby("epoch").last().dropna(how="all").dropna(how="all", axis=1)
    curves = {
        str(name): [None if pd.isna(x) else float(f"{x:.6g}") for x in values]
        for name, values in epochs.items()
    }
    return {"epoch": [int(number) + 1 for number in epochs.index], **curves} if curves else {}


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that a sweep wrote; raise `CommandError` if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("no options and values")
        return content
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"{path} is damaged ({reason}): delete its folder") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of results, with each list of numbers on one line."""
    text = json.dumps(content, indent=2)
    numbers = r"\[\n[-+.,\w\s]*\]"  # curves would take thousands of lines otherwise
    text = re.sub(numbers, lambda one: " ".join(one[0].split()).replace("[ ", "[")[:-2] + "]", text)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def merged(below: Any, above: Any) -> Any:
    """Return a configuration laid over another. An object of another class replaces the old one.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if above.get("class_path", below.get("class_path")) != below.get("class_path"):
        return above
    keys = dict.fromkeys([*below, *above])
    return {key: merged(below.get(key), above[key]) if key in above else below[key] for key in keys}

"""`ltr test` and `ltr predict` from a checkpoint alone, which knows model, schema and transform."""

from pathlib import Path

from ltr.cli.errors import CommandError
from ltr.cli.runs import find_checkpoint
from ltr.modules import Ranker
from ltr.modules.checkpoint_file import read_checkpoint

_ROOT = "--trainer.default_root_dir"


def in_newest_run(args: list[str]) -> list[str]:
    """Return the arguments with the folder of the newest run, if nothing else says whose it is.

    That is where they give `best` or `last`, and neither a configuration nor a folder.

    Raises:
        CommandError: there is no run.
    """
    value = _value(args, "--ckpt_path")
    if not _says_no_model(args) or value not in ("best", "last") or _value(args, _ROOT):
        return args
    roots = [folder for folder in Path("runs").glob("*") if folder.is_dir()]
    found = [(root, find_checkpoint(root, value)) for root in roots]
    times = {root: file.stat().st_mtime_ns for root, file in found if file is not None}
    if not times:
        raise CommandError(f"no checkpoint {value!r} in the folder runs: give a file, or --config")
    return [*args, _ROOT, str(max(times, key=times.__getitem__))]


def is_alone(args: list[str]) -> bool:
    """Whether arguments give no configuration and no model, but a checkpoint's file.

    >>> is_alone(["--config", "table", "--ckpt_path", "best"])
    False
    """
    return _says_no_model(args) and checkpoint_of(args) is not None


def checkpoint_of(args: list[str]) -> Path | None:
    """Return the file that `--ckpt_path` names, or None where there is none."""
    value = _value(args, "--ckpt_path")
    if value in ("best", "last"):
        root = _value(args, _ROOT)
        return None if root is None else find_checkpoint(Path(root), value)
    path = Path(value or "").expanduser()
    return path if path.is_file() else None


def with_data(args: list[str]) -> list[str]:
    """Return the arguments with the class of the data module, if the checkpoint is of a table."""
    if _value(args, "--data") is not None:
        return args
    path = checkpoint_of(args)
    of_table = path is not None and read_checkpoint(path).get("schema") is not None
    return ["--data", "TableDataModule", *args] if of_table else args


def load(path: str, trust: list[str]) -> Ranker:
    """Return the Ranker of a checkpoint."""
    return Ranker.load_from_checkpoint(path, map_location="cpu", trust=trust)


def _says_no_model(args: list[str]) -> bool:
    return not any(arg.startswith(("--config", "-c", "--model")) for arg in args)


def _value(args: list[str], option: str) -> str | None:
    """What stands after an option, or None where it is not given."""
    for arg, after in zip(args, [*args[1:], ""], strict=True):
        name, _, value = arg.partition("=")
        if name == option:
            return value or after
    return None

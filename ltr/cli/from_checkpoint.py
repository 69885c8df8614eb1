"""`ltr test` and `ltr predict` from a checkpoint alone, which knows model, schema and transform."""

from pathlib import Path

import torch

from ltr.modules import Ranker


def is_alone(args: list[str]) -> bool:
    """Whether arguments give no configuration and no model, but a checkpoint's file.

    >>> is_alone(["--config", "table", "--ckpt_path", "best"])
    False
    """
    options = [arg.partition("=")[0] for arg in args]
    given = {"--config", "-c"} & {*options} or any(one.startswith("--model") for one in options)
    return not given and checkpoint_of(args) is not None


def checkpoint_of(args: list[str]) -> Path | None:
    """Return the file after `--ckpt_path`, or None where there is none."""
    for arg, after in zip(args, [*args[1:], ""], strict=True):
        option, _, value = arg.partition("=")
        if option == "--ckpt_path":
            path = Path(value or after).expanduser()
            return path if path.is_file() else None
    return None


def with_data(args: list[str]) -> list[str]:
    """Return the arguments with the class of the data module, if the checkpoint is of a table."""
    if any(arg.partition("=")[0] == "--data" for arg in args):
        return args
    try:
        content = torch.load(checkpoint_of(args) or "", map_location="cpu", weights_only=True)
    # torch's reader raises errors of any kind for a file that is no checkpoint; the command then
    # says what is wrong, in its own words
    except Exception:
        return args
    of_table = isinstance(content, dict) and content.get("schema") is not None
    return ["--data", "TableDataModule", *args] if of_table else args


def load(path: str, trust: list[str]) -> Ranker:
    """Return the Ranker of a checkpoint."""
    return Ranker.load_from_checkpoint(path, map_location="cpu", trust=trust)

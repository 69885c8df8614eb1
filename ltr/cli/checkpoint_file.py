"""The file that `--ckpt_path` names: what is wrong with it, in one line."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ltr.cli.errors import CommandError
from ltr.names import one_line


@contextmanager
def checkpoint_errors(path: str | None) -> Iterator[None]:
    """Report a checkpoint of another model, or a file that is no checkpoint, in one line."""
    try:
        yield
    except RuntimeError as error:
        if path is None or "loading state_dict" not in str(error):
            raise
        raise CommandError(
            f"{path} is of another model than the configuration: use the configuration that it was "
            "trained with, config.yaml in the run's logs"
        ) from error
    except (pickle.UnpicklingError, EOFError) as error:
        if path is None:
            raise
        raise CommandError(f"{path} is not a checkpoint: {error}") from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a file, before the data are read, if it is a whole checkpoint."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, OSError, RuntimeError, KeyError) as error:
        cause = one_line(error).partition(". ")[0] or "it is empty"
        raise CommandError(f"{path} is not a checkpoint, or a damaged one: {cause}") from error
    if not isinstance(content, dict) or not {"state_dict", "pytorch-lightning_version"} <= {
        *content
    }:
        raise CommandError(f"{path} is not a checkpoint of ltr fit")
    return content

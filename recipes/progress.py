"""How far the runs of a sweep are, and what is left of them in core hours."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from recipes.results import read_json, write_json

FILE = "progress.json"
"""The file in a run's folder that has its epochs and the seconds of CPU time that they took."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        name: the run's name.
        epochs: the epochs that were trained.
        planned: the epochs of the whole run.
        seconds: the CPU seconds of the epochs that were trained; 0 if they are not known.
        cost: what an epoch costs, in a unit that all runs of a sweep share.
    """

    name: str
    epochs: int
    planned: int
    seconds: float
    cost: float


def hours_left(runs: Sequence[Progress]) -> float | None:
    """Return the core hours of the epochs that are left, at the speed of those that were trained.

    A run without known seconds gets the mean speed of the others, by `cost`. The result is None if
    no speed is known.

    >>> hours_left([Progress("a", 10, 20, 36_000.0, 1.0), Progress("b", 0, 20, 0.0, 2.0)])
    50.0
    """
    timed = [run for run in runs if run.seconds and run.epochs]
    if not timed:
        return None if any(run.epochs < run.planned for run in runs) else 0.0
    speed = sum(run.seconds for run in timed) / sum(run.epochs * run.cost for run in timed)
    seconds = 0.0
    for run in runs:
        own = run.seconds / run.epochs if run in timed else speed * run.cost
        seconds += (run.planned - run.epochs) * own
    return seconds / 3600


def read_progress(folder: Path) -> tuple[int, float]:
    """Return the epochs of a run and their CPU seconds; 0 and 0 if it has not begun."""
    path = folder / FILE
    if not path.is_file():
        return 0, 0.0
    content = read_json(path)
    return content["epochs"], content["core_seconds"]


class CountCoreSeconds(Callback):
    """Counts the seconds of CPU time of a training, and writes them after each epoch.

    A resumed run continues the count. The seconds of an epoch that was cut off by a kill are lost.

    Args:
        folder: the run's folder, which gets the file.

    Attributes:
        seconds: the CPU seconds up to the last epoch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds = read_progress(folder)[1]
        self._since = time.process_time()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Add the CPU time since the last call."""
        now = time.process_time()
        self.seconds, self._since = self.seconds + now - self._since, now
        content = {"epochs": trainer.current_epoch + 1, "core_seconds": round(self.seconds, 2)}
        write_json(self.folder / FILE, content)

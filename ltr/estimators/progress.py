"""The line or bar that shows the progress of training."""

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Self, TypeVar

Batch = TypeVar("Batch")


class Progress:
    """Writes to stderr the epoch, the validation metric, the time so far and the longest time left.

    Args:
        verbose: 0: nothing; 1: one line, which each epoch overwrites on a terminal; 2: a progress
            bar on a terminal and in a notebook, and elsewhere a line after each epoch.
        max_epochs: the largest possible number of epochs.
        metric: the name of the metric, as the user wrote it.
        note: text for the end of the line.
    """

    def __init__(self, verbose: int, max_epochs: int, metric: str, note: str = "") -> None:
        self.verbose, self.max_epochs, self.metric, self.note = verbose, max_epochs, metric, note
        self._start, self._done = time.monotonic(), 0
        self._terminal = sys.stderr.isatty()
        self._bar = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self.verbose > 1:
            self._draw_bar()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def steps(self, batches: Iterable[Batch], count: int) -> Iterator[Batch]:
        """Yield the `count` batches of an epoch, and advance the bar after each batch."""
        for batch in batches:
            yield batch
            if self._bar is not None:
                self._bar.update(self._task, advance=1, total=count * self.max_epochs)

    def epoch(self, value: float | None, last: bool) -> None:
        """Report the end of an epoch.

        Args:
            value: the mean metric of the members, each at its best epoch so far; None without
                validation.
            last: whether no other epoch follows.
        """
        self._done += 1
        text = self._text(value, last)
        if self._bar is not None:
            self._bar.update(self._task, description=text, refresh=True)
        elif self.verbose == 1 and self._terminal:  # the text overwrites the previous line
            _write("\r\x1b[K" + text + "\n" * last)
        elif self.verbose > 1 or (self.verbose == 1 and last):
            _write(text + "\n")

    def _text(self, value: float | None, last: bool) -> str:
        spent = time.monotonic() - self._start
        parts = [f"NeuralRanker: epoch {self._done} of at most {self.max_epochs}"]
        if value is not None:
            parts.append(f"validation {self.metric} {value:.4f}")
        parts.append(f"{spent:.0f} s")
        if not last:
            left = spent / self._done * (self.max_epochs - self._done)
            parts.append(f"at most {math.ceil(left)} s left")
        return ", ".join(parts) + (f"; {self.note}" if self.note else "")

    def _draw_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        if console.is_terminal or console.is_jupyter:
            columns = BarColumn(), TextColumn("{task.description}")
            self._bar = self._open.enter_context(Bar(*columns, console=console))
            self._task = self._bar.add_task("NeuralRanker: epoch 1", total=None)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()

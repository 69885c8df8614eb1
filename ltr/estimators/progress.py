"""The line that tells how far a training is."""

import math
import sys
import time
from typing import TextIO

from lightning.pytorch import Callback, LightningModule, Trainer


class Progress(Callback):
    """Writes one line to stderr: epoch, NDCG@10 in validation, seconds, and at most how many more.

    On a terminal the line is renewed after each epoch; elsewhere it is written once, at the end.

    Args:
        verbose: 0: nothing; 1: one line; 2: a line after each epoch.
        max_epochs: the most epochs that there will be.
        note: what stands at the end of the line.
    """

    def __init__(self, verbose: int, max_epochs: int, note: str = "") -> None:
        self.verbose = verbose
        self.max_epochs = max_epochs
        self.note = note
        self._start = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._start = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the line, or renew it."""
        done = trainer.current_epoch + 1
        last = trainer.should_stop or done >= self.max_epochs
        renewed = sys.stderr.isatty() and self.verbose == 1
        if self.verbose and (last or renewed or self.verbose > 1):
            text = self._text(trainer, done, last)
            _write(sys.stderr, text, renewed, last)

    def _text(self, trainer: Trainer, done: int, last: bool) -> str:
        spent = time.monotonic() - self._start
        value = trainer.callback_metrics.get("val_ndcg_10")
        parts = [f"NeuralRanker: epoch {done} of at most {self.max_epochs}"]
        if value is not None:
            parts.append(f"validation NDCG@10 {float(value):.4f}")
        parts.append(f"{spent:.0f} s")
        if not last:
            left = spent / done * (self.max_epochs - done)
            parts.append(f"at most {math.ceil(left)} s left")
        return ", ".join(parts) + (f"; {self.note}" if self.note else "")


def _write(stream: TextIO, text: str, renewed: bool, last: bool) -> None:
    start = "\r\x1b[K" if renewed else ""  # over the line before
    end = "\n" if last or not renewed else ""
    print(start + text, end=end, file=stream, flush=True)

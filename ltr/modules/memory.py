"""Errors for lack of memory in one line, with the batch and a batch size to try."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from ltr.names import one_line


class BatchInMemory(Callback):
    """Keeps the current batch, to describe it if it does not fit into memory."""

    batch: Any = None

    def on_train_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the batch."""
        self.batch = batch

    on_validation_batch_start = on_test_batch_start = on_predict_batch_start = on_train_batch_start

    @contextmanager
    def explained(self, data: Any) -> Iterator[None]:
        """Turn an error for lack of memory into one line, with a batch size to try.

        Args:
            data: the data module, which may have a `batch_size`.

        Raises:
            ValueError: there was not enough memory.
        """
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            told = self._describe(getattr(data, "batch_size", None))
            raise ValueError(f"out of memory{told} ({_first_sentence(error)})") from error

    def _describe(self, batch_size: int | None) -> str:
        batch = self.batch if isinstance(self.batch, dict) else {}
        mask, lengths = batch.get("mask"), batch.get("lengths")
        if mask is not None:
            lengths = mask.flatten(1).sum(1)
        if lengths is None:
            if batch_size is None or batch_size == 1:
                return ""
            return f": try --data.batch_size {batch_size // 2}"
        longest, qids = int(lengths.argmax()), batch.get("qid")
        name = "" if qids is None else f" (qid {qids[longest]})"
        length = int(lengths[longest])
        told = (
            f" at a batch of {int((lengths > 0).sum())} lists, the longest of {length} items{name}"
        )
        size = len(lengths) if batch_size is None else batch_size
        if size > 1:
            return f"{told}: try --data.batch_size {size // 2}"
        return f"{told}: batch_size is 1 already, so shorten the lists"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the CPU or a device ran out of memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error).lower()
    return "can't allocate memory" in said or "out of memory" in said


def _first_sentence(error: BaseException) -> str:
    return one_line(error).partition(". ")[0] or type(error).__name__

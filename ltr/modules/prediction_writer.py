"""Predictions on disk: one row per document, with its score and rank."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

from ltr.datasets.collate import pad_batch
from ltr.datasets.prepare import add_scores
from ltr.datasets.table_data import TableDataModule
from ltr.files import atomic_write, temporary_beside
from ltr.modules.checks import check_scores
from ltr.modules.prediction_files import LISTS, POSITION, Format, PredictionFile, hard_ranks
from ltr.modules.prediction_parts import join_parts

_EXTENSIONS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".run": "trec",
    ".trec": "trec",
    ".txt": "trec",
}


class PredictionWriter(BasePredictionWriter):
    """Writes one row per document (`qid`, `doc_id`, `score`, `rank`) while the lists are scored.

    Rows of CSV (with a header) and Parquet are in the data's order. Lines of a TREC run (`qid Q0
    doc_id rank score tag`) are in the order of ranks, with strictly descending scores. If the data
    has no document ids, the id is the position in the list, from 0. For a table, CSV and Parquet
    have the columns of `TableDataModule.scored`, in the table's order. If the model scores each row
    alone, rows are written while they are read, and memory does not grow with the table. The file
    appears under its name only when it is complete, and replaces an older one.

    Names are written unchanged, so that they can be joined with the input. A spreadsheet may read a
    name that begins with `=`, `+`, `-` or `@` as a formula: import the columns of names as text.

    With several processes, each writes a part beside the file. When all are done, the first one
    joins the parts in the data's order. All must see the folder of the file.

    Args:
        output: the file.
        format: "csv", "parquet" or "trec". Default: by the file's extension: .csv, .parquet, .run,
            .trec or .txt.

    Attributes:
        rows: how many rows the file has, once it is written.
        part: None, or a file for the rows of this process. `join_parts` joins several such files;
            then `output` is not written.
        scattered: whether the rows of `part` are not in the order of their positions.

    Raises:
        ValueError: there is no output, or its extension is unknown; in prediction, a score is NaN
            or infinite, or a name for a TREC run holds a blank.

    >>> PredictionWriter("scores.xlsx")
    Traceback (most recent call last):
    ValueError: --output must end in .csv, .parquet, .run, .trec or .txt, got \
scores.xlsx; or give --format csv, parquet or trec
    """

    def __init__(self, output: str | None, format: Format | None = None) -> None:
        super().__init__("batch")
        if output is None:
            raise ValueError("--output is required: a file .csv, .parquet, .run, .trec or .txt")
        self.path = Path(output).expanduser()
        found = format or _EXTENSIONS.get(self.path.suffix.lower())
        if found is None:
            raise ValueError(
                f"--output must end in .csv, .parquet, .run, .trec or .txt, got {output}; "
                "or give --format csv, parquet or trec"
            )
        if self.path.exists() and not self.path.is_file():
            kind = "folder" if self.path.is_dir() else "device"
            raise ValueError(f"--output must be a file, got the {kind} {output}")
        self.format: Format = found
        self.rows = 0
        self._open = ExitStack()
        self._file: PredictionFile
        self.part: Path | None = None
        self.scattered = False
        self._together = False
        self._lists = 0
        # of a table: rows and scores, put in the table's order at the end
        self._table: TableDataModule | None = None
        self._scored: list[tuple[np.ndarray, np.ndarray]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Allow scoring a table while it is read: its rows have no ranks in CSV and Parquet."""
        super().setup(trainer, pl_module, stage)
        data = getattr(trainer, "datamodule", None)
        if stage == "predict" and isinstance(data, TableDataModule):
            data.stream = self.format != "trec"

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the file, or this process's part."""
        path = self.path if self.part is None else self.part
        path.parent.mkdir(parents=True, exist_ok=True)
        self._together = trainer.world_size > 1 or self.part is not None
        self._scored, self._lists = [], 0
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, TableDataModule) and self.format != "trec":
            self._table = data
        beside = temporary_beside if self._together and self.part is None else atomic_write
        self._partial = self._open.enter_context(beside(path))
        self._file = PredictionFile(self._partial, "part" if self._together else self.format)
        self._open.push(self._file)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write a batch; `outputs` is its scores, (N,) or (B, n), or a dict with `scores`."""
        scores = outputs["scores"] if isinstance(outputs, dict) else outputs
        if scores.dim() > 1:
            batch = pad_batch(batch)  # the module pads ragged lists itself
        check_scores(scores, batch, finite=True)
        scores, rows, ids = scores.detach().double(), batch.get("rows"), batch.get("doc_id")
        if (mask := batch.get("mask")) is not None:  # a padded batch
            lengths, scores = mask.sum(-1), scores[mask]
            rows = None if rows is None else rows[mask]
            ids = None if ids is None else [name for names in ids for name in names]
        else:
            lengths = batch["lengths"]
        values = scores.cpu().numpy()
        if "keys" in batch:
            assert rows is not None  # every batch of a table has them
            table = add_scores(batch["keys"], rows.cpu().numpy(), values)
            position = np.full(len(values), batch["chunk"])
            self._file.write(table.append_column(POSITION, pa.array(position)))
            return
        if self._table is not None:
            assert rows is not None
            self._scored.append((rows.cpu().numpy(), values))
            return
        positions = self._positions(trainer, len(lengths))
        self._file.write(self._ranked(positions, batch["qid"], lengths.cpu().numpy(), ids, values))

    def _positions(self, trainer: Trainer, lists: int) -> np.ndarray:
        """Return the positions of a batch's lists in the data; it may be -1 for an empty list."""
        if self._together:
            positions = np.asarray(trainer.predict_loop.current_batch_indices, dtype=np.int64)
            if len(positions) != lists:
                raise ValueError(
                    "predict_dataloader must return a DataLoader with a sampler, so that "
                    "several processes can share its lists: otherwise, give "
                    "--trainer.devices 1"
                )
            return positions
        self._lists += lists
        return np.arange(self._lists - lists, self._lists)

    def _ranked(
        self,
        positions: np.ndarray,
        qids: list[str],
        lengths: np.ndarray,
        ids: list[str] | None,
        scores: np.ndarray,
    ) -> pa.Table:
        """Return scored lists in the columns of `LISTS`."""
        ends = np.cumsum(lengths)
        bounds = [*zip((ends - lengths).tolist(), ends.tolist(), strict=True)]
        ranks = [hard_ranks(scores[start:end]) for start, end in bounds]
        if ids is None:
            ids = [str(position) for start, end in bounds for position in range(end - start)]
        names = np.repeat(np.asarray(qids, dtype=object), lengths)
        if self.format == "trec":
            _check_names(names, ids)
        every = np.concatenate([np.empty(0, np.int32), *ranks])
        columns = [np.repeat(positions, lengths), names, ids, scores.astype(np.float32), every]
        return pa.table(columns, schema=LISTS)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the file and give it its name; the first process joins the parts."""
        self.scattered = bool(self._scored)
        if self._scored and self._table is not None:
            rows, scores = (np.concatenate(one) for one in zip(*self._scored, strict=True))
            if self._together:
                table = add_scores(self._table.keys(rows), np.arange(len(rows)), scores)
                self._file.write(table.append_column(POSITION, pa.array(rows)))
            else:
                self._file.write(self._table.scored(rows, scores))
        if trainer.world_size > 1:
            self._join(trainer)
        else:
            self._open.close()
            self.rows = self._file.rows

    def _join(self, trainer: Trainer) -> None:
        self._file.__exit__(None, None, None)
        parts: list[Any] = [None] * trainer.world_size
        own = (str(self._partial.absolute()), self.scattered)
        torch.distributed.all_gather_object(parts, own)
        failure: Exception | None = None
        if trainer.is_global_zero:
            scattered = any(scattered for _, scattered in parts)
            try:
                paths = [Path(path) for path, _ in parts]
                self.rows = join_parts(paths, self.path, self.format, scattered)
            except (ValueError, OSError) as error:
                failure = error
        said = trainer.strategy.broadcast(None if failure is None else str(failure))
        self._open.close()
        if failure is not None:
            raise failure
        if said is not None:  # the processes end together, each with the cause
            raise ValueError(said)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the incomplete file."""
        with suppress(OSError):  # a full disk, which `exception` reports already
            self._open.__exit__(type(exception), exception, exception.__traceback__)


def _check_names(qids: np.ndarray, ids: list[str]) -> None:
    for qid, doc_id in zip(qids.tolist(), ids, strict=True):
        for name in (qid, doc_id):
            if not name or len(name.split()) != 1:
                raise ValueError(
                    f"names in a TREC run must be one word, got {name!r} in qid {qid!r}: "
                    "write CSV or Parquet"
                )

"""Predictions on disk: one row a document, with its score and rank."""

import csv
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from lightning.pytorch import Callback, LightningModule, Trainer

from ltr._files import atomic_write, remove_leftovers
from ltr.datasets.collate import pad_batch
from ltr.datasets.table_data import TableDataModule
from ltr.datasets.tables import add_scores
from ltr.modules.scores import check_scores

_EXTENSIONS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".run": "trec",
    ".trec": "trec",
    ".txt": "trec",
}

_SCHEMA = pa.schema(
    [
        ("qid", pa.string()),
        ("doc_id", pa.string()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
    ]
)

_TAG = "ltr"


def hard_ranks(scores: np.ndarray) -> np.ndarray:
    """Return ranks 1..n of one list's scores (n,), 1 = highest; equal scores rank in list order.

    >>> hard_ranks(np.array([0.5, 2.0, 0.5])).tolist()
    [2, 1, 3]
    """
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores), dtype=np.int32)
    ranks[order] = np.arange(1, len(scores) + 1, dtype=np.int32)
    return ranks


def falling(scores: np.ndarray) -> np.ndarray:
    """Return scores (n,), given in falling order, with ties broken in the last digit.

    Evaluation tools read the scores of a TREC run as float32, sort by them and break ties in their
    own way. So each score that is not below the one before becomes the next smaller float32.

    >>> falling(np.array([2.0, 2.0, 1.0], dtype=np.float32)).tolist()
    [2.0, 1.9999998807907104, 1.0]
    """
    apart = scores.astype(np.float32)
    for i in range(1, len(apart)):
        if apart[i] >= apart[i - 1]:
            apart[i] = np.nextafter(apart[i - 1], np.float32(-np.inf), dtype=np.float32)
    return apart


class PredictionWriter(Callback):
    """Writes one row a document (`qid`, `doc_id`, `score`, `rank`) as the lists are scored.

    Rows of CSV (with a header) and Parquet are in the data's order. Lines of a TREC run (`qid Q0
    doc_id rank score tag`) are in the order of ranks, with strictly falling scores. If the data has
    no document ids, the id is the position in the list, from 0. Of a table, CSV and Parquet have
    the columns that `TableDataModule.scored` gives, in the table's order. Its rows are written as
    they are read, in memory that does not grow with the table, where the model looks at each row
    alone. The file appears under its name when it is complete, and then replaces an older one.

    Args:
        output: the file.
        format: "csv", "parquet" or "trec". Default: by the file's extension: .csv, .parquet, .run,
            .trec or .txt.

    Raises:
        ValueError: there is no output, or its extension is unknown; in prediction, a score is NaN
            or infinite, or a name for a TREC run holds a blank.

    >>> PredictionWriter("scores.xlsx")
    Traceback (most recent call last):
    ValueError: --output must end in .csv, .parquet, .run, .trec or .txt, got \
scores.xlsx; or say --format csv, parquet or trec
    """

    def __init__(self, output: str | None, format: str | None = None) -> None:
        if output is None:
            raise ValueError("--output is required: a file .csv, .parquet, .run, .trec or .txt")
        self.path = Path(output).expanduser()
        found = format or _EXTENSIONS.get(self.path.suffix.lower())
        if found is None:
            raise ValueError(
                "--output must end in .csv, .parquet, .run, .trec or .txt, got "
                f"{output}; or say --format csv, parquet or trec"
            )
        if self.path.exists() and not self.path.is_file():
            kind = "folder" if self.path.is_dir() else "device"
            raise ValueError(f"--output must be a file, got the {kind} {output}")
        self.format = found
        self.rows = 0
        self._open = ExitStack()
        self._text: IO[str] | None = None
        self._parquet: pq.ParquetWriter | None = None
        # of a table: rows and scores, put in the table's order at the end
        self._table: TableDataModule | None = None
        self._scored: list[tuple[np.ndarray, np.ndarray]] = []
        # of a table whose rows come in order
        self._rows: pq.ParquetWriter | pa_csv.CSVWriter | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let a table be scored as it is read: its rows have no ranks in CSV and Parquet."""
        data = getattr(trainer, "datamodule", None)
        if stage == "predict" and isinstance(data, TableDataModule):
            data.stream = self.format != "trec"

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the file."""
        if trainer.world_size > 1:
            raise ValueError("ltr predict writes from one process: give --trainer.devices 1")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path.parent)
        part = self._open.enter_context(atomic_write(self.path))
        self._table = getattr(trainer, "datamodule", None)
        if isinstance(self._table, TableDataModule) and self.format != "trec":
            self._part = part
            return
        self._table = None
        if self.format == "parquet":
            self._parquet = self._open.enter_context(pq.ParquetWriter(part, _SCHEMA))
            return
        self._text = self._open.enter_context(part.open("w", encoding="utf-8", newline=""))
        if self.format == "csv":
            csv.writer(self._text, lineterminator="\n").writerow(_SCHEMA.names)

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
        scores, rows, ids = scores.detach().double(), batch.get("rows"), batch.get("doc_ids")
        if (mask := batch.get("mask")) is not None:  # a padded batch
            lengths, scores = mask.sum(-1), scores[mask]
            rows = None if rows is None else rows[mask]
            ids = None if ids is None else [name for names in ids for name in names]
        else:
            lengths = batch["lengths"]
        values = scores.cpu().numpy()
        if "keys" in batch:
            assert rows is not None  # every batch of a table has them
            self._write_rows(add_scores(batch["keys"], rows.cpu().numpy(), values))
            return
        if self._table is not None:
            assert rows is not None
            self._scored.append((rows.cpu().numpy(), values))
            return
        start = 0
        for qid, length in zip(batch["qid"], lengths.tolist(), strict=True):
            if length:
                own = slice(start, start + length)
                known = [str(p) for p in range(length)] if ids is None else ids[own]
                self._write_list(qid, known, values[own])
            start += length

    def _write_list(self, qid: str, ids: list[str], scores: np.ndarray) -> None:
        ranks = hard_ranks(scores)
        self.rows += len(ids)
        if self._parquet is not None:
            columns = [[qid] * len(ids), ids, scores.astype(np.float32), ranks]
            self._parquet.write_table(pa.table(columns, schema=_SCHEMA))
        elif self._text is not None and self.format == "csv":
            lines = zip([qid] * len(ids), ids, map(_digits, scores), ranks, strict=True)
            csv.writer(self._text, lineterminator="\n").writerows(lines)
        elif self._text is not None:
            self._text.writelines(_trec_lines(qid, ids, scores, ranks))

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the file and give it its name."""
        if self._scored and self._table is not None:
            rows, scores = (np.concatenate(one) for one in zip(*self._scored, strict=True))
            self._write_rows(self._table.scored(rows, scores))
        self._open.close()

    def _write_rows(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        if self._rows is None:
            if self.format == "parquet":
                file = pq.ParquetWriter(self._part, table.schema)
            else:
                options = pa_csv.WriteOptions(quoting_style="needed")
                file = pa_csv.CSVWriter(self._part, table.schema, write_options=options)
            self._rows = self._open.enter_context(file)
        self._rows.write_table(table)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the incomplete file."""
        with suppress(OSError):  # a full disk, which `exception` reports already
            self._open.__exit__(type(exception), exception, exception.__traceback__)


def _digits(score: float) -> str:
    return f"{np.float32(score):.9g}"  # enough digits to read back any float32 exactly


def _trec_lines(qid: str, ids: list[str], scores: np.ndarray, ranks: np.ndarray) -> Iterator[str]:
    for name in (qid, *ids):
        if not name or len(name.split()) != 1:
            raise ValueError(
                f"names in a TREC run must be one word, got {name!r} in qid {qid!r}: "
                "write CSV or Parquet"
            )
    order = np.argsort(ranks)
    for rank, (i, score) in enumerate(zip(order, falling(scores[order]), strict=True), start=1):
        yield f"{qid} Q0 {ids[i]} {rank} {_digits(score)} {_TAG}\n"

"""The values of each list of a file: of a TREC run with judgements, or of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ltr.metrics.batches import Batch
from ltr.metrics.named import Measure
from ltr.metrics.trec import Qrels, Run, join, read_run
from ltr.reports.documents import Documents, run_documents
from ltr.reports.scored_tables import Columns, Scored, is_computed, is_table, read_table_run

_POSITIONS_PER_CHUNK = 1 << 22
"""A padded chunk of several lists has at most this many positions, to limit memory."""


@dataclass(frozen=True)
class Evaluated:
    """One model's per-list values.

    Attributes:
        name: the model's name.
        qids: the query ids of the lists.
        values: for each measure's title, its values, float64 (lists,); NaN for a list that is left
            out.
        empty: how many lists have no relevant document.
        missing: for a run, how many judged queries it lacks; for a table, how many lists of the
            other tables it lacks.
        unjudged: how many queries of a run have no judgements.
        documents: the ranked documents; None unless they were requested.
        by: for each column of slices, its value of each list (lists,); null for a missing one.
    """

    name: str
    qids: list[Any]
    values: dict[str, np.ndarray]
    empty: int
    missing: int = 0
    unjudged: int = 0
    documents: Documents | None = None
    by: dict[str, pa.Array] = field(default_factory=dict)


def evaluate_run(
    path: str,
    name: str,
    qrels: Qrels,
    measures: Sequence[Measure],
    options: dict[str, Any],
    *,
    skip_missing: bool,
    columns: Columns,
    keep_documents: bool = False,
    by: Sequence[str] = (),
) -> Evaluated:
    """Return the per-list values of a TREC run, or of a table with a column of document ids."""
    computed = [name for name in by if is_computed(path, name)]
    read = [name for name in by if name not in computed]
    if read and not is_table(path):
        raise ValueError(f"{path}: a run has no column {read[0]!r}: --by takes length or relevant")
    run, found_by = read_table_run(path, columns, read) if is_table(path) else (read_run(path), {})
    if not run.keys() & qrels.keys():
        raise ValueError(f"{path}: none of its queries is in the qrels")
    options = _with_scale(options, max(max(x.values(), default=0) for x in qrels.values()))
    deepest = max([1, *(m.top_k for m in measures if m.top_k is not None)])
    chunks: dict[str, list[Tensor]] = {measure.title: [] for measure in measures}
    empty = 0
    for part in _parts(qrels, run, deepest):
        lists = join(run, part, depth=deepest, skip_missing=skip_missing, allow_disjoint=True)
        counted = lists.mask.any(-1)
        empty += int((counted & ~((lists.labels > 0) & lists.mask).any(-1)).sum())
        metrics = [measure.make(options).of_run(lists.depth) for measure in measures]
        batch = Batch(lists.scores, lists.labels, lists.mask, judged=lists.judged)
        for measure, measured in zip(measures, batch.values(metrics), strict=True):
            chunks[measure.title].append(measured.values)
    missing, unjudged = len(qrels.keys() - run.keys()), len(run.keys() - qrels.keys())
    values = {title: torch.cat(parts).numpy() for title, parts in chunks.items()}
    documents = run_documents(run, qrels) if keep_documents else None
    counts = {
        "length": [len(run.get(qid, ())) for qid in qrels],
        "relevant": [sum(label > 0 for label in x.values()) for x in qrels.values()],
    }
    for column in by:
        if column in computed:
            found_by[column] = pa.array(counts[column])
        else:
            value_of = found_by[column]
            found_by[column] = pa.array([value_of.get(qid) for qid in qrels])
    return Evaluated(name, list(qrels), values, empty, missing, unjudged, documents, found_by)


def evaluate_table(
    table: Scored,
    names: Sequence[str],
    measures: Sequence[Measure],
    options: dict[str, Any],
    largest: float,
    *,
    keep_documents: bool = False,
) -> list[Evaluated]:
    """Return the per-list values of each model of a table, one model per column of scores."""
    relevant = np.bincount(table.lists, weights=table.labels > 0, minlength=len(table.qids))
    options = _with_scale(options, largest)
    ids, grades = torch.from_numpy(table.lists), torch.from_numpy(table.labels)
    metrics = [measure.make(options) for measure in measures]
    titles, empty = [measure.title for measure in measures], int((relevant == 0).sum())
    models = []
    for name, column in zip(names, table.scores, strict=True):
        of_metrics = Batch(torch.from_numpy(column), grades, qid=ids).values(metrics)
        values = {title: x.values.numpy() for title, x in zip(titles, of_metrics, strict=True)}
        documents = table.documents(column) if keep_documents else None
        models.append(Evaluated(name, table.qids, values, empty, documents=documents, by=table.by))
    return models


def _with_scale(options: dict[str, Any], largest: float) -> dict[str, Any]:
    """Return the options, and add the largest grade if it is above 0: ERR needs it."""
    return {**options, "max_label": largest} if largest > 0 else options


def _parts(qrels: Qrels, run: Run, depth: int) -> Iterator[Qrels]:
    """Yield the judgements of a few queries at a time, so that the padded lists stay small."""
    part: Qrels = {}
    width = 0
    for qid, labels in qrels.items():
        widest = max(width, depth + len(labels), len(run.get(qid, ())) + len(labels))
        if part and widest * (len(part) + 1) > _POSITIONS_PER_CHUNK:
            yield part
            part, widest = {}, max(depth + len(labels), len(run.get(qid, ())) + len(labels))
        part[qid], width = labels, widest
    yield part

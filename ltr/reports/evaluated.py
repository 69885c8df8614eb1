"""The values of each list of a file: of a TREC run with judgements, or of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ltr.arrays import name_texts
from ltr.metrics.batches import Batch
from ltr.metrics.named import AnyMeasure, Measure, OwnMeasure, with_scale
from ltr.metrics.trec import Qrels, Run, join, read_run
from ltr.reports.documents import Documents, run_documents
from ltr.reports.scored_tables import Columns, Scored, is_computed, is_table, read_table_run
from ltr.reports.slices import COMPUTED

_POSITIONS_PER_CHUNK = 1 << 22
"""A padded chunk of several lists has at most this many positions, to limit memory."""


@dataclass(frozen=True)
class Evaluated:
    """One model's per-list values.

    Attributes:
        name: the model's name.
        qids: the query ids of the lists.
        measures: the metrics, by title.
        values: for each metric's title, its values, float64 (lists,); NaN for a list that is left
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
    measures: dict[str, AnyMeasure]
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
    options = with_scale(options, max(max(x.values(), default=0) for x in qrels.values()))
    deepest = max([1, *(measure.metric.arguments.get("top_k") or 1 for measure in measures)])
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
    if by:  # `pa.array` of a list imports pandas, which takes a while
        position = {qid: number for number, qid in enumerate(run)}
        positions = pa.array([position.get(qid) for qid in qrels], pa.int64())
        found_by = {
            x: pa.array(counts[x]) if x in computed else found_by[x].take(positions) for x in by
        }
    named: dict[str, AnyMeasure] = {measure.title: measure for measure in measures}
    counted = empty, missing, unjudged
    return Evaluated(name, list(qrels), named, values, *counted, documents, found_by)


def evaluate_table(
    table: Scored,
    names: Sequence[str],
    measures: Sequence[AnyMeasure],
    options: dict[str, Any],
    largest: float,
    *,
    keep_documents: bool = False,
) -> list[Evaluated]:
    """Return the per-list values of each model of a table, one model per column of scores."""
    relevant = np.bincount(table.lists, weights=table.labels > 0, minlength=len(table.qids))
    options = with_scale(options, largest)
    ids, grades = torch.from_numpy(table.lists), torch.from_numpy(table.labels)
    order, lengths = ids.argsort(stable=True), ids.bincount(minlength=len(table.qids))
    named: dict[str, AnyMeasure] = {measure.title: measure for measure in measures}
    metrics = {x.title: x.make(options) for x in measures if not isinstance(x, OwnMeasure)}
    models = []
    for name, column in zip(names, table.scores, strict=True):
        scores = torch.from_numpy(column)
        of_metrics = Batch(scores, grades, qid=ids).values([*metrics.values()])
        found = dict(zip(metrics, (x.values for x in of_metrics), strict=True))
        for title, measure in named.items():
            if title not in found:
                in_lists = scores[order], grades[order], lengths
                found[title] = measure.per_list(*in_lists, largest=largest)
        models.append(
            Evaluated(
                name,
                table.qids,
                named,
                {title: found[title].double().numpy() for title in named},
                empty=int((relevant == 0).sum()),
                documents=table.documents(column) if keep_documents else None,
                by=table.by,
            )
        )
    return models


def aligned(models: Sequence[Evaluated]) -> list[Evaluated]:
    """Return the models with values for the same lists, NaN for a list that a table lacks.

    Raises:
        ValueError: a query has two values in a column of slices.
    """
    qids = list(dict.fromkeys(qid for model in models for qid in model.qids))
    by = {column: _joined(models, qids, column) for column in models[0].by}
    of_qid = {qid: position for position, qid in enumerate(qids)}
    results = []
    for model in models:
        positions = [of_qid[qid] for qid in model.qids]
        values = {title: np.full(len(qids), np.nan) for title in model.values}
        for title, of_lists in model.values.items():
            values[title][positions] = of_lists
        missing = len(qids) - len(model.qids)
        results.append(replace(model, qids=qids, values=values, missing=missing, by=by))
    return results


def joined_slices(models: Sequence[Evaluated]) -> list[Evaluated]:
    """Return models of the same judged queries, each with the slices that any of the files has.

    Raises:
        ValueError: a query has two values in a column of slices.
    """
    qids = models[0].qids
    by = {column: _joined(models, qids, column, skip_null=True) for column in models[0].by}
    return [replace(model, by=by) for model in models]


def _joined(
    models: Sequence[Evaluated], qids: Sequence[Any], column: str, *, skip_null: bool = False
) -> pa.Array:
    """Return each list's value of a column of slices, from the first file with the list.

    Args:
        models: the models, one or several for each file.
        qids: the lists.
        column: the column.
        skip_null: whether null means that a file lacks the list.
    """
    parts = [model.by[column] for model in models]
    try:
        tables = [pa.table({column: part}) for part in parts]
        whole = pa.concat_tables(tables, promote_options="permissive").column(0).combine_chunks()
    except pa.ArrowException:  # numbers and text are mixed
        whole = pa.concat_arrays([name_texts(part, f"column {column!r}") for part in parts])
    values = whole.to_pylist()
    row_of: dict[Any, int] = {}
    for row, qid in enumerate(qid for model in models for qid in model.qids):
        if skip_null and values[row] is None:
            continue
        known = values[row_of.setdefault(qid, row)]
        if known != values[row] and column not in COMPUTED:
            raise ValueError(
                f"column {column!r} must have one value for a query in all files, got "
                f"{known!r} and {values[row]!r} for {qid!r}"
            )
    return whole.take(pa.array([row_of.get(qid) for qid in qids], pa.int64()))


def empty_text(empty: float | str) -> str:
    """Return what happens to a list without a relevant item.

    >>> empty_text(0.0), empty_text("skip")
    ('counted 0', 'left out')
    """
    if isinstance(empty, str):
        return {"skip": "left out", "error": "an error"}[empty]
    return f"counted {empty:g}"


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

"""The values of `ltr evaluate`: of all lists at once, or by parts of them on a Ray cluster."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ltr.cli.on_ray import connect, map_items
from ltr.metrics.ranked_files import (
    Columns,
    Evaluated,
    Measure,
    Scored,
    evaluate_run,
    evaluate_table,
    read_scored,
)
from ltr.metrics.trec import read_qrels


@dataclass(frozen=True)
class Task:
    """What is to be evaluated.

    Attributes:
        paths: the files.
        columns: the names of a table's columns.
        names: the models' names, one a column of scores, for each file.
        measures: the metrics.
        options: the metrics' options.
        qrels: the file of judgements, or None for tables with labels.
        skip_missing: whether queries that a run lacks are left out.
    """

    paths: Sequence[str]
    columns: Columns
    names: Sequence[Sequence[str]]
    measures: Sequence[Measure]
    options: dict[str, Any]
    qrels: str | None
    skip_missing: bool

    def tables(self, share: tuple[int, int] | None = None) -> list[Scored]:
        """Read the tables, or a share of their lists."""
        return [read_scored(path, self.columns, share) for path in self.paths]

    def of_tables(self, tables: Sequence[Scored], largest: float) -> list[Evaluated]:
        """Return the values of each model of tables, with the highest label of all of them."""
        found: list[Evaluated] = []
        for table, several in zip(tables, self.names, strict=True):
            found += evaluate_table(table, several, self.measures, self.options, largest)
        return found

    def of_runs(self, share: tuple[int, int] | None = None) -> list[Evaluated]:
        """Return the values of each run, for the lists of a share or for all."""
        assert self.qrels is not None
        judged = read_qrels(self.qrels)
        given: dict[str, Any] = {"skip_missing": self.skip_missing, "columns": self.columns}
        return [
            evaluate_run(path, name, judged, self.measures, self.options, share=share, **given)
            for path, (name, *_) in zip(self.paths, self.names, strict=True)
        ]


def largest_label(tables: Sequence[Scored]) -> float:
    """Return the highest label, which is one scale for all tables."""
    return max(float(table.labels.max(initial=0)) for table in tables)


def evaluate(task: Task, workers: int | None) -> list[Evaluated]:
    """Return the values of each model.

    Args:
        task: what is to be evaluated.
        workers: None for this process; else the parts, on a Ray cluster, 0 for as many as it has
            CPUs. A hash of the qid decides on the part. No list is in two, so the values, and all
            that follows from them, are those of one process.

    Raises:
        ValueError: a mistake in the files.
        CommandError: the same, of a worker.
    """
    if workers is not None:
        found = _by_parts(task, connect(workers))
    elif task.qrels is None:
        tables = task.tables()
        found = task.of_tables(tables, largest_label(tables))
    else:
        found = task.of_runs()
    return [_with_notes(model, task.skip_missing) for model in found]


def joined(parts: Sequence[Evaluated]) -> Evaluated:
    """Return the values of all lists, in the order of the file, from those of its shares.

    >>> def part(place, value):
    ...     values = {"mrr": np.array([value])}
    ...     return Evaluated("run", [f"q{place}"], values, 0, places=np.array([place]))
    >>> joined([part(1, 0.5), part(0, 1.0)]).values["mrr"].tolist()
    [1.0, 0.5]
    """
    places = [part.places for part in parts if part.places is not None]
    order = np.argsort(np.concatenate(places))
    qids = [qid for part in parts for qid in part.qids]
    full = [part.values for part in parts if part.qids]
    return Evaluated(
        parts[0].name,
        [qids[i] for i in order.tolist()],
        {title: np.concatenate([one[title] for one in full])[order] for title in full[0]},
        empty=sum(part.empty for part in parts),
        missing=sum(part.missing for part in parts),
        unjudged=sum(part.unjudged for part in parts),
    )


def _with_notes(model: Evaluated, skip_missing: bool) -> Evaluated:
    """Add notes on the queries that a run or the judgements lack."""
    notes = list(model.notes)
    if model.missing:
        how = "left out" if skip_missing else "counted as empty lists (--skip-missing: left out)"
        judged = f"{model.missing:,} of {len(model.qids):,} judged queries"
        notes.append(f"{model.name}: {judged} are missing: {how}")
    if model.unjudged:
        notes.append(f"{model.name}: {model.unjudged:,} queries have no judgements: left out")
    return replace(model, notes=notes)


def _by_parts(task: Task, parts: int) -> list[Evaluated]:
    numbers = [{"number": i} for i in range(parts)]
    given = {"task": task, "parts": parts}
    largest = 0.0
    if task.qrels is None:
        largest = max(one["largest"] for one in map_items(_find_largest, numbers, given))
    found = map_items(_evaluate, numbers, {**given, "largest": largest})
    models = [pickle.loads(one["models"]) for one in found]
    return [joined(several) for several in zip(*models, strict=True)]


def _find_largest(item: dict[str, Any], task: Task, parts: int) -> dict[str, Any]:
    """Find the highest label of a part of the lists, in a worker."""
    return {**item, "largest": largest_label(task.tables((int(item["number"]), parts)))}


def _evaluate(item: dict[str, Any], task: Task, parts: int, largest: float) -> dict[str, Any]:
    """Evaluate a part of the lists, in a worker."""
    share = (int(item["number"]), parts)
    if task.qrels is None:
        found = task.of_tables(task.tables(share), largest)
    else:
        found = task.of_runs(share)
    return {**item, "models": pickle.dumps(found)}

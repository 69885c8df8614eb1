"""`ltr evaluate`: metrics of TREC runs or of tables of labels and scores, without a model."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser, at_least_one, existing_file, new_file
from ltr.cli.errors import CommandError
from ltr.files import atomic_write

if TYPE_CHECKING:
    import numpy as np

    from ltr.metrics.comparison import Comparison, Interval
    from ltr.reports.evaluated import Evaluated
    from ltr.reports.scored_tables import Columns
    from ltr.reports.slices import Slices

_DEFAULT = ["ndcg@10", "map", "mrr"]
_TIES = "order of equal scores; default: stable, which is trec_eval's order, or a table's row order"


def evaluate(parser: LineParser, args: list[str]) -> None:
    """Print metrics with bootstrap intervals, and compare several models with the first.

    A run has lines `qid Q0 docno rank score tag`, the qrels `qid 0 docno rel`; both may be gzipped.
    A table, .csv or .parquet, has one row per document, in any order. With --qrels, the labels of a
    table come from the qrels, matched by query and document name. `ltr predict` keeps both columns.

      ltr evaluate bm25.run --qrels qrels.txt --metrics ndcg@10 map recall@100
      ltr evaluate bm25.run mine.run --qrels qrels.txt         the second against the first
      ltr evaluate scored.parquet --score before --score after --by category length
      ltr evaluate bm25.run mine.run --qrels qrels.txt --html report.html
    """
    add, table = parser.add_argument, "TREC runs, or tables .csv, .csv.gz, .parquet"
    parser.reads(add("files", nargs="+", type=existing_file, metavar="FILE", help=table))
    known = "default: {}, or that of `ltr predict`"
    add("--qid", metavar="COLUMN", help=f"column of the query ids; {known.format('qid')}")
    add("--label", metavar="COLUMN", help=f"column of the labels; {known.format('label')}")
    add("--score", action="append", metavar="COLUMN", help="of the scores; repeat it to compare")
    add("--doc-id", metavar="COLUMN", help="of the documents, for --qrels, --html; default: doc_id")
    slices = "one value a query: each value is a slice; or length, relevant: counts of documents"
    add("--by", nargs="+", default=[], metavar="COLUMN", help=slices)
    add_options(parser)
    given = parser.parse_args(args)
    report(given, given.files)


def add_options(parser: LineParser) -> None:
    """Add the options that `ltr evaluate` shares with `ltr test`."""
    add = parser.add_argument
    needed = "judgements, instead of labels; required for a TREC run"
    parser.reads(add("--qrels", type=existing_file, metavar="FILE", help=needed))
    add("--metrics", nargs="+", metavar="NAME", help=f"default: {' '.join(_DEFAULT)}")
    add("--at", nargs="+", type=at_least_one, metavar="K", help="cutoffs of metrics without @K")
    add("--gain", choices=["linear", "exp2"], help="default: linear with --qrels, else exp2")
    add("--ties", choices=["stable", "expected", "worst"], default="stable", help=_TIES)
    nothing = "value if nothing is relevant: a number, skip or error; default: 0"
    add("--empty", default="0", help=nothing)
    add("--skip-missing", action="store_true", help="leave out queries that a run lacks")
    add("--test", choices=["randomization", "bootstrap"], default="randomization", help="paired")
    add("--confidence", type=float, default=0.95, help="level of the intervals; default: 0.95")
    add("--resamples", type=int, default=10_000, help="default: 10000")
    add("--seed", type=int, default=0, help="seed of the resampling; default: 0")
    drawn = "draw the means or differences with intervals"
    parser.writes(add("--plot", type=new_file(".png", ".svg", ".pdf"), metavar="FILE", help=drawn))
    page = "write a report: one page, for any browser"
    parser.writes(add("--html", type=new_file(".html", ".htm"), metavar="FILE", help=page))
    values = "write the numbers, and every list's values"
    parser.writes(add("--output", type=new_file(), metavar="FILE.json", help=values))


def report(given: Namespace, shown: Sequence[str]) -> None:
    """Evaluate files, and print, draw and write what the options ask for.

    Args:
        given: the arguments of `ltr evaluate`.
        shown: the names of the files, as reports show them.
    """
    from ltr.metrics.comparison import compare, mean_interval
    from ltr.reports.slices import segments, slice_models

    given.gain = given.gain or ("exp2" if given.qrels is None else "linear")
    draws = {name: getattr(given, name) for name in ("confidence", "resamples", "seed")}
    counted = {name: getattr(given, name) for name in ("gain", "empty", "ties")}
    models = _models(given)
    results: dict[str, Any] = {}
    for title, values in models[0].values.items():
        if len(models) == 1:
            results[title] = mean_interval(values, **draws)
        else:
            of_models = {model.name: model.values[title] for model in models}
            results[title] = compare(of_models, test=given.test, **draws)
    notes = [note for model in models for note in _notes(model, given)]
    gain = [f"gain: {given.gain}"] if any("cg" in title for title in results) else []
    columns = {name: segments(f"column {name!r}", x) for name, x in models[0].by.items()}
    by_model = {model.name: model.values for model in models}
    slices = slice_models(columns, by_model, test=given.test, **draws) if columns else None
    _print(models, results, given.confidence, slices)
    for note in [*notes, *gain]:
        print(note)
    if given.plot is not None:
        from ltr.reports.drawing import draw

        draw(results, models[0].name, given.confidence, given.plot)
        print(f"wrote {given.plot}")
    if given.html is not None:
        from ltr.reports.report import write_report

        sources = {"Files": ", ".join(shown)}
        if given.qrels is not None:
            sources["Judgements"] = given.qrels
        write_report(
            given.html,
            models,
            results,
            **draws,
            options=counted,
            sources=sources,
            notes=notes,
            slices=slices,
        )
        print(f"wrote {given.html}")
    if given.output is not None:
        about = {"files": shown, "qrels": given.qrels, **counted, "notes": [*notes, *gain], **draws}
        with atomic_write(given.output) as part:
            content = about | _content(models, results)
            if slices is not None:
                names = {name: [x.names[i] for i in x.codes] for name, x in columns.items()}
                content |= {"slices": slices.to_dict(), "by": names}
            content = json.dumps(content, indent=1, allow_nan=False)
            part.write_text(f"{content}\n", encoding="utf-8")
        print(f"wrote {given.output}")


def _models(given: Namespace) -> "list[Evaluated]":
    """Return the evaluated models, with the metrics of each list."""
    from ltr.metrics.comparison import check_draws
    from ltr.metrics.named import parse_measures
    from ltr.metrics.trec import read_qrels
    from ltr.reports import scored_tables
    from ltr.reports.evaluated import evaluate_run, evaluate_table

    check_draws(given.confidence, given.resamples, given.seed)
    if given.html is not None:
        from ltr.reports.report import load_template

        load_template()  # this reports a missing package before the evaluation
    chosen = given.metrics or [x.partition("@")[0] if given.at else x for x in _DEFAULT]
    measures = parse_measures(chosen, given.at or (), of_runs=given.qrels is not None)
    counted = {"gain": given.gain, "empty": empty_value(given.empty), "ties": given.ties}
    columns, of_documents = _columns(given), given.html is not None
    names = _names(given.files, columns.score)
    if given.qrels is not None:
        judged = read_qrels(given.qrels)
        return [
            evaluate_run(
                path,
                name,
                judged,
                measures,
                counted,
                skip_missing=given.skip_missing,
                columns=columns,
                keep_documents=of_documents,
                by=given.by,
            )
            for path, (name, *_) in zip(given.files, names, strict=True)
        ]
    tables = []
    for path in given.files:
        if not scored_tables.is_table(path):
            raise CommandError(
                f"{path}: --qrels is required for a TREC run; a table ends in .csv or .parquet"
            )
        named = of_documents and (given.doc_id or scored_tables.has_column(path, columns.doc_id))
        tables.append(scored_tables.read_scored(path, columns, with_names=bool(named), by=given.by))
    # The largest label of all tables puts their gains on one scale.
    largest = max(float(table.labels.max()) for table in tables)
    models = [
        evaluate_table(table, table_names, measures, counted, largest, keep_documents=of_documents)
        for table, table_names in zip(tables, names, strict=True)
    ]
    return _align([model for of_table in models for model in of_table])


def _columns(given: Namespace) -> "Columns":
    """Return the columns that the options name, or else those that `ltr predict` wrote."""
    from ltr.reports import scored_tables

    first, needed = given.files[0], "label" if given.qrels is None else "doc_id"
    named = {role: getattr(given, role) for role in ("qid", "label", "doc_id")}
    named = {role: name for role, name in named.items() if name is not None}
    usual = scored_tables.is_table(first) and all(
        role in named or scored_tables.has_column(first, role) for role in ("qid", needed)
    )
    if scored_tables.is_table(first) and not usual:
        named = scored_tables.predicted_roles(first) | named
    return scored_tables.Columns(**named, score=given.score or ["score"])


def _notes(model: "Evaluated", given: Namespace) -> Iterator[str]:
    """Yield notes on lists that are missing, not judged or without a relevant item."""
    lists, total = "lists" if given.qrels is None else "judged queries", len(model.qids)
    if model.missing:
        how = ": counted as empty lists (--skip-missing: left out)"
        how = "" if given.qrels is None else ": left out" if given.skip_missing else how
        yield f"{model.name}: {model.missing:,} of {total:,} {lists} are missing{how}"
    if model.unjudged:
        yield f"{model.name}: {model.unjudged:,} queries have no judgements: left out"
    if model.empty:
        how = "left out" if given.empty == "skip" else f"counted {given.empty}"
        yield f"{model.name}: {model.empty:,} of {total:,} lists have no relevant item: {how}"


def empty_value(text: str) -> str | float:
    """Return the number in a text, or the text if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return text


def _names(files: Sequence[str], columns: Sequence[str]) -> list[list[str]]:
    """Return a name for each model: the file's stem (its path if stems are equal) or the column."""
    stems = [Path(Path(path).name.removesuffix(".gz")).stem for path in files]
    stems = stems if len({*stems}) == len(files) else files
    if len(columns) == 1:
        names = [[stem] for stem in stems]
    elif len(files) == 1:
        names = [[*columns]]
    else:
        names = [[f"{stem}:{column}" for column in columns] for stem in stems]
    flat = [name for of_file in names for name in of_file]
    for name in flat:
        if flat.count(name) > 1:
            raise CommandError(f"{name} is given twice")
    return names


def _align(models: "list[Evaluated]") -> "list[Evaluated]":
    """Return the models with values for the same lists, NaN for a list that a table lacks."""
    import pandas as pd

    qids = list(dict.fromkeys(qid for model in models for qid in model.qids))
    by = _merged(models, qids)
    aligned = []
    for model in models:
        values = pd.DataFrame(model.values, index=model.qids).reindex(qids)
        by_title = {str(title): x.to_numpy() for title, x in values.items()}
        missing = len(qids) - len(model.qids)
        aligned.append(replace(model, qids=qids, values=by_title, missing=missing, by=by))
    return aligned


def _merged(models: "list[Evaluated]", qids: Sequence[Any]) -> dict[str, Any]:
    """Return each list's values of the columns of slices, from the first table with the list."""
    import pyarrow as pa

    from ltr.reports.slices import COMPUTED

    by_column = {}
    for column, of_first in models[0].by.items():
        values: dict[Any, Any] = {}
        for model in models:
            for qid, value in zip(model.qids, model.by[column].to_pylist(), strict=True):
                known = values.setdefault(qid, value)
                if known != value and column not in COMPUTED:
                    raise CommandError(
                        f"column {column!r} must have one value for a query in all files, got "
                        f"{known!r} and {value!r} for {qid!r}"
                    )
        by_column[column] = pa.array([values[qid] for qid in qids], of_first.type)
    return by_column


def _print(
    models: "list[Evaluated]",
    results: "Mapping[str, Interval | Comparison]",
    confidence: float,
    slices: "Slices | None",
) -> None:
    """Print one model's means, or the comparison of several models, and those of the slices."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A file or a pipe has no width: use a large one, so that nothing is cut off.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    if len(models) == 1:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("")
        for heading in (f"{models[0].name} [{100 * confidence:g}%]", "lists"):
            table.add_column(heading, justify="right")
        for title, mean in results.items():
            table.add_row(title, str(mean), f"{_counted(models[0], title):,}")
        console.print(table)
    else:
        for title, comparison in results.items():
            console.print(title, style="bold")
            console.print(comparison)
    for title, head, rows in slices.tables() if slices is not None else ():
        table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
        for number, heading in enumerate(head):
            table.add_column(heading, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _content(
    models: "list[Evaluated]", results: "Mapping[str, Interval | Comparison]"
) -> dict[str, Any]:
    """Return the metrics and the values of each list, as plain data for JSON."""
    from ltr.metrics.comparison import Comparison

    return {
        "metrics": {
            title: result.to_dict()
            if isinstance(result, Comparison)
            else {
                "lists": _counted(models[0], title),
                "mean": dict(zip(result._fields, _plain(result), strict=True)),
            }
            for title, result in results.items()
        },
        "qids": models[0].qids,
        "values": {
            model.name: {title: _plain(x) for title, x in model.values.items()} for model in models
        },
    }


def _counted(model: "Evaluated", title: str) -> int:
    return len(model.qids) - _plain(model.values[title]).count(None)


def _plain(values: "Sequence[float] | np.ndarray") -> list[float | None]:
    """Return the values, with None for NaN, which JSON lacks."""
    return [None if math.isnan(value) else float(value) for value in values]

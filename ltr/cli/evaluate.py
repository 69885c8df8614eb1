"""`ltr evaluate`: metrics of TREC runs or of tables of labels and scores, without a model."""

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser, at_least_one, existing_file, new_file
from ltr.cli.errors import CommandError
from ltr.files import write_files
from ltr.names import plural

if TYPE_CHECKING:
    from ltr.metrics.named import Measure
    from ltr.reports.evaluated import Evaluated
    from ltr.reports.scored_tables import Columns

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
    from ltr.reports.results import Results
    from ltr.reports.slices import segments

    draws = {name: getattr(given, name) for name in ("confidence", "resamples", "seed")}
    options = options_of(given)
    models = _models(given, options)
    columns = {name: segments(f"column {name!r}", x) for name, x in models[0].by.items()}
    notes = [note for model in models for note in _notes(model, given, options)]
    results = Results.of(models, columns, draws, options, test=given.test, notes=notes)
    print(results)
    if given.plot is not None:
        results.plot(given.plot)
        print(f"wrote {given.plot}")
    if given.html is not None:
        sources = {"Files": ", ".join(shown)}
        if given.qrels is not None:
            sources["Judgements"] = given.qrels
        results.write_page(given.html, sources)
        print(f"wrote {given.html}")
    if given.output is not None:
        about = {"files": shown, "qrels": given.qrels, **options, "empty": given.empty, **draws}
        content = {**about, "notes": [*results.notes, *results.gains], **results.to_dict()}
        text = json.dumps(content, indent=1, allow_nan=False)
        write_files({given.output: f"{text}\n".encode()})
        print(f"wrote {given.output}")


def options_of(given: Namespace) -> dict[str, Any]:
    """Return the options of the metrics: `gain`, `empty` and `ties`."""
    from ltr.metrics.ranked import check_empty

    gain, empty = given.gain or ("exp2" if given.qrels is None else "linear"), given.empty
    with suppress(ValueError):
        empty = float(empty)
    return {"gain": gain, "empty": check_empty(empty), "ties": given.ties}


def measures_of(given: Namespace) -> "list[Measure]":
    """Return the metrics that the options name."""
    from ltr.metrics.named import parse_measures

    names = given.metrics or [x.partition("@")[0] if given.at else x for x in _DEFAULT]
    return parse_measures(names, given.at or (), of_runs=given.qrels is not None)


def _models(given: Namespace, options: dict[str, Any]) -> "list[Evaluated]":
    """Return the evaluated models, with the metrics of each list."""
    from ltr.metrics.comparison import check_draws
    from ltr.metrics.trec import read_qrels
    from ltr.reports import scored_tables
    from ltr.reports.evaluated import aligned, evaluate_run, evaluate_table, joined_slices

    check_draws(given.confidence, given.resamples, given.seed)
    if given.html is not None:
        from ltr.reports.report import load_template

        load_template()  # this reports a missing package before the evaluation
    measures = measures_of(given)
    columns, of_documents = _columns(given), given.html is not None
    names = _names(given.files, columns.score)
    if given.qrels is not None:
        if not any(map(scored_tables.is_table, given.files)):
            _refuse_columns(given)
        judged = read_qrels(given.qrels)
        models = [
            evaluate_run(
                path,
                name,
                judged,
                measures,
                options,
                skip_missing=given.skip_missing,
                columns=columns,
                keep_documents=of_documents,
                by=given.by,
            )
            for path, (name, *_) in zip(given.files, names, strict=True)
        ]
        return joined_slices(models)
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
        evaluate_table(table, table_names, measures, options, largest, keep_documents=of_documents)
        for table, table_names in zip(tables, names, strict=True)
    ]
    return aligned([model for of_table in models for model in of_table])


def _refuse_columns(given: Namespace) -> None:
    """Raise a `CommandError` if an option names a column, since a run has none."""
    for role in ("qid", "label", "score", "doc_id"):
        if getattr(given, role):
            option = f"--{role.replace('_', '-')}"
            raise CommandError(f"{option} names a column of a table, and a TREC run has none")


def _columns(given: Namespace) -> "Columns":
    """Return the columns that the options name, or else those that `ltr predict` wrote."""
    from ltr.reports import scored_tables

    first, needed = given.files[0], "label" if given.qrels is None else "doc_id"
    named = {role: getattr(given, role) for role in ("qid", "label", "doc_id")}
    named = {role: name for role, name in named.items() if name is not None}
    missing = {"qid", needed} - {*named} if scored_tables.is_table(first) else set()
    if not all(scored_tables.has_column(first, role) for role in missing):
        named = scored_tables.predicted_roles(first) | named
    return scored_tables.Columns(**named, score=given.score or ["score"])


def _notes(model: "Evaluated", given: Namespace, options: dict[str, Any]) -> Iterator[str]:
    """Yield notes on lists that are missing, not judged or without a relevant item."""
    from ltr.reports.results import empty_notes

    lists, total = "lists" if given.qrels is None else "judged queries", len(model.qids)
    if model.missing:
        how = ": counted as empty lists (--skip-missing: left out)"
        how = "" if given.qrels is None else ": left out" if given.skip_missing else how
        yield f"{model.name}: {model.missing:,} of {total:,} {lists} are missing{how}"
    if model.unjudged:
        have = plural(model.unjudged, "query has", "queries have")
        yield f"{model.name}: {model.unjudged:,} {have} no judgements: left out"
    yield from empty_notes(model, options)


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

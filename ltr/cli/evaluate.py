"""`ltr evaluate`: metrics of TREC runs or of tables of labels and scores, without a model."""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser
from ltr.cli.errors import CommandError
from ltr.files import atomic_write

if TYPE_CHECKING:
    from ltr.metrics.compare import Comparison, Interval
    from ltr.metrics.named import Measure
    from ltr.reports.ranked_files import Columns, Evaluated

_EPILOG = """\
A run has lines `qid Q0 docno rank score tag`, the qrels `qid 0 docno rel`; both may be gzipped.
A table, .csv or .parquet, has one row per document, in any order. With --qrels its labels come from
the qrels, matched by the column doc_id, which `ltr predict` writes.

  ltr evaluate bm25.run --qrels qrels.txt --metrics ndcg@10 map recall@100
  ltr evaluate bm25.run mine.run --qrels qrels.txt         the second against the first
  ltr evaluate scored.parquet --score before --score after
  ltr evaluate bm25.run mine.run --qrels qrels.txt --html report.html
"""

_PICTURES = (".png", ".svg", ".pdf")
_PAGES = (".html", ".htm")
_DEFAULT = ["ndcg@10", "map", "mrr"]
_TIES = "order of equal scores; default: stable, which is trec_eval's order, or a table's row order"


def run(command: str, args: list[str], shown: Sequence[str] | None = None) -> int:
    """Run the command `evaluate`.

    Args:
        command: its name.
        args: the arguments after it on the command line.
        shown: the names of the files in reports. Default: as they are given.
    """
    options = _parser().parse_args(args)
    options.shown = options.files if shown is None else [*shown]
    out, plot, html = (
        None if path is None else Path(path).expanduser()
        for path in (options.out, options.plot, options.html)
    )
    for name, path in (("--out", out), ("--plot", plot), ("--html", html)):
        if path is not None and path.is_dir():
            raise CommandError(f"{name} must be a file, got the folder {path}")
    for name, path, endings in (("--plot", plot, _PICTURES), ("--html", html, _PAGES)):
        if path is not None and path.suffix.lower() not in endings:
            raise CommandError(f"{name} must end in {', '.join(endings)}, got {path}")
    options.gain = options.gain or ("exp2" if options.qrels is None else "linear")

    # the rest imports torch, which takes a while; the mistakes above are reported at once
    models = _evaluate(options)
    results = _results(options, models)
    notes = [note for model in models for note in _notes(model, options)]
    gain = [f"gain: {options.gain}"] if any("cg" in title for title in results) else []
    _print(options, models, results, [*notes, *gain])
    if plot is not None:
        from ltr.metrics.compare import draw

        draw(results, models[0].name, options.confidence, plot)
        print(f"wrote {plot}")
    if html is not None:
        from ltr.reports.report import write_report

        sources = {"Files": ", ".join(options.shown)}
        if options.qrels is not None:
            sources["Judgements"] = options.qrels
        counted = {name: getattr(options, name) for name in ("gain", "ties", "empty")}
        write_report(
            html,
            models,
            results,
            **_draws(options),
            options=counted,
            sources=sources,
            notes=notes,
        )
        print(f"wrote {html}")
    if out is not None:
        content = _content(options, models, results, [*notes, *gain])
        out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        with atomic_write(out) as part:
            part.write_text(text, encoding="utf-8")
        print(f"wrote {out}")
    return 0


def _parser() -> LineParser:
    parser = LineParser(
        "ltr evaluate",
        usage="ltr evaluate FILE [FILE ...] [--qrels FILE] [--metrics NAME ...] [--at K ...] ...",
        description="Metrics with bootstrap intervals; several models are compared with the first.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="TREC runs, or tables .csv, .csv.gz, .parquet")
    add("--qrels", metavar="FILE", help="judgements; required for a TREC run")
    add("--metrics", nargs="+", metavar="NAME", help=f"default: {' '.join(_DEFAULT)}")
    add("--at", nargs="+", type=int, metavar="K", help="cutoffs of metrics without @K")
    add("--gain", choices=["linear", "exp2"], help="default: linear with --qrels, else exp2")
    add("--ties", choices=["stable", "expected", "worst"], default="stable", help=_TIES)
    add("--empty", default="0", help="value if nothing is relevant: a number, skip or error")
    add("--skip-missing", action="store_true", help="leave out queries that a run lacks")
    add("--qid", default="qid", metavar="COLUMN", help="column of the query ids; default: qid")
    add("--label", default="label", metavar="COLUMN", help="column of the labels; default: label")
    add("--score", action="append", metavar="COLUMN", help="of the scores; repeat it to compare")
    add("--doc-id", metavar="COLUMN", help="of the documents, with --qrels or --html: doc_id")
    add("--test", choices=["randomization", "bootstrap"], default="randomization", help="paired")
    add("--confidence", type=float, default=0.95, help="level of the intervals; default: 0.95")
    add("--resamples", type=int, default=10_000, help="default: 10000")
    add("--seed", type=int, default=0, help="seed of the resampling; default: 0")
    add("--plot", metavar="FILE", help="draw the means or differences with intervals")
    add("--html", metavar="FILE", help="write a report: one page, for any browser")
    add("--out", metavar="FILE.json", help="write the numbers, and every list's values")
    return parser


def _evaluate(options: argparse.Namespace) -> "list[Evaluated]":
    """Return the values of each model."""
    from ltr.metrics.compare import check_draws
    from ltr.metrics.trec import read_qrels
    from ltr.reports import ranked_files as files

    check_draws(options.confidence, options.resamples, options.seed)
    if options.html is not None:
        from ltr.reports.report import load_template

        load_template()  # what is missing for it is said before the work
    doc_id = options.doc_id or "doc_id"
    columns = files.Columns(options.qid, options.label, options.score or ["score"], doc_id)
    measures = _measures(options.metrics, options.at, of_runs=options.qrels is not None)
    chosen = {"gain": options.gain, "empty": _empty(options.empty), "ties": options.ties}
    for path in [*options.files, *([] if options.qrels is None else [options.qrels])]:
        if not Path(path).is_file():
            raise CommandError(f"{path}: no such file")
        if options.qrels is None and not files.is_table(path):
            raise CommandError(
                f"{path}: --qrels is required for a TREC run; a table ends in .csv or .parquet"
            )
    names = _names(options.files, columns)
    found: list[Evaluated] = []
    if options.qrels is None:
        named = [
            options.html is not None and (options.doc_id or files.has_column(path, doc_id))
            for path in options.files
        ]
        tables = [
            files.read_scored(path, columns, with_names=bool(with_names))
            for path, with_names in zip(options.files, named, strict=True)
        ]
        largest = max(float(table.labels.max()) for table in tables)  # one scale for all of them
        for table, several in zip(tables, names, strict=True):
            models = files.evaluate_table(table, several, measures, chosen, largest)
            if options.html is not None:
                ranked = map(table.documents, table.scores)
                models = [replace(m, documents=d) for m, d in zip(models, ranked, strict=True)]
            found += models
        return _align(found)
    judged = read_qrels(options.qrels)
    for path, (name, *_) in zip(options.files, names, strict=True):
        model = files.evaluate_run(
            path,
            name,
            judged,
            measures,
            chosen,
            skip_missing=options.skip_missing,
            columns=columns,
            keep_documents=options.html is not None,
        )
        found.append(model)
    return found


def _notes(model: "Evaluated", options: argparse.Namespace) -> Iterator[str]:
    """Yield notes on lists that are missing, not judged or empty."""
    lists = f"of {len(model.qids):,} lists"
    if model.missing and options.qrels is None:
        yield f"{model.name}: {model.missing:,} {lists} are missing"
    elif model.missing:
        how = "counted as empty lists (--skip-missing: left out)"
        how = "left out" if options.skip_missing else how
        judged = f"{model.missing:,} of {len(model.qids):,} judged queries"
        yield f"{model.name}: {judged} are missing: {how}"
    if model.unjudged:
        yield f"{model.name}: {model.unjudged:,} queries have no judgements: left out"
    if model.empty:
        how = "left out" if options.empty == "skip" else f"counted {options.empty}"
        yield f"{model.name}: {model.empty:,} {lists} have no relevant item: {how}"


def _measures(
    names: Sequence[str] | None, cutoffs: Sequence[int] | None, *, of_runs: bool
) -> "list[Measure]":
    """Return the chosen metrics: `ndcg@10` has one cutoff, `ndcg` each of `--at`."""
    from ltr.metrics.named import parse_measures

    for cutoff in cutoffs or []:
        if cutoff < 1:
            raise CommandError(f"--at must be >= 1, got {cutoff}")
    if names is None:
        names = [name.partition("@")[0] for name in _DEFAULT] if cutoffs else _DEFAULT
    try:
        return parse_measures(names, cutoffs or (), of_runs=of_runs)
    except ValueError as error:
        raise CommandError(f"--{error}") from None


def _empty(text: str) -> str | float:
    if text in ("skip", "error"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CommandError(f"--empty must be a number, skip or error, got {text}")
    return value


def _names(files: Sequence[str], columns: "Columns") -> list[list[str]]:
    """Return a name for each model: the file's stem (its path if stems are equal) or the column."""
    stems = [_stem(path) for path in files]
    if len(set(stems)) < len(stems):
        stems = list(files)
    if len(set(stems)) < len(stems):
        twice = next(path for path in files if files.count(path) > 1)
        raise CommandError(f"{twice} is given twice")
    if len(set(columns.score)) < len(columns.score):
        raise CommandError(f"--score must be different columns, got {' '.join(columns.score)}")
    if len(columns.score) == 1:
        return [[stem] for stem in stems]
    if len(files) == 1:
        return [list(columns.score)]
    return [[f"{stem}:{column}" for column in columns.score] for stem in stems]


def _stem(path: str) -> str:
    name = Path(path).name
    return Path(name.removesuffix(".gz")).stem or name


def _align(models: "list[Evaluated]") -> "list[Evaluated]":
    """Return the models with values for the same lists, NaN for a list that a table lacks."""
    import pandas as pd

    qids = list(dict.fromkeys(qid for model in models for qid in model.qids))
    if all(model.qids == qids for model in models):
        return models
    aligned = []
    for model in models:
        values = pd.DataFrame(model.values, index=model.qids).reindex(qids)
        by_title = {str(title): x.to_numpy() for title, x in values.items()}
        missing = len(qids) - len(model.qids)
        aligned.append(replace(model, qids=qids, values=by_title, missing=missing))
    return aligned


def _draws(options: argparse.Namespace) -> dict[str, Any]:
    return {key: getattr(options, key) for key in ("confidence", "resamples", "seed")}


def _results(
    options: argparse.Namespace, models: "list[Evaluated]"
) -> "dict[str, Interval | Comparison]":
    """Return, by title, the mean of each metric or the comparison of several models."""
    from ltr.metrics.compare import compare, mean_interval

    draws = _draws(options)
    if len(models) == 1:
        return {title: mean_interval(x, **draws) for title, x in models[0].values.items()}
    return {
        title: compare({m.name: m.values[title] for m in models}, test=options.test, **draws)
        for title in models[0].values
    }


def _print(
    options: argparse.Namespace,
    models: "list[Evaluated]",
    results: "Mapping[str, Interval | Comparison]",
    notes: Sequence[str],
) -> None:
    """Print the tables and the notes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # a file or a pipe has no width: leave room, so that nothing is cut off
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    if len(models) == 1:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("")
        for heading in (f"{models[0].name} [{100 * options.confidence:g}%]", "lists"):
            table.add_column(heading, justify="right")
        for title, found in results.items():
            table.add_row(title, str(found), f"{_counted(models[0], title):,}")
        console.print(table)
    else:
        for title, comparison in results.items():
            console.print(title, style="bold")
            console.print(comparison)
    for note in notes:
        print(note)


def _content(
    options: argparse.Namespace,
    models: "list[Evaluated]",
    results: "Mapping[str, Interval | Comparison]",
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the content of the file `--out`."""
    from ltr.metrics.compare import Comparison

    return {
        "files": options.shown,
        "qrels": options.qrels,
        "gain": options.gain,
        "empty": options.empty,
        "ties": options.ties,
        "notes": notes,
        **_draws(options),
        "metrics": {
            title: found.to_dict()
            if isinstance(found, Comparison)
            else {"lists": _counted(models[0], title), "mean": _finite(found)}
            for title, found in results.items()
        },
        "qids": models[0].qids,
        "values": {
            model.name: {
                title: [None if math.isnan(v) else v for v in x.tolist()]
                for title, x in model.values.items()
            }
            for model in models
        },
    }


def _counted(model: "Evaluated", title: str) -> int:
    return sum(not math.isnan(value) for value in model.values[title].tolist())


def _finite(interval: "Interval") -> dict[str, float | None]:
    return {k: None if math.isnan(v) else v for k, v in interval._asdict().items()}

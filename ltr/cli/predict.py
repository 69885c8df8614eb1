"""`ltr predict` and `ltr test`: the scores of a table, and their metrics."""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser, new_file, table_files
from ltr.cli.errors import CommandError
from ltr.cli.models import add_model, load_calibration, load_model
from ltr.cli.on_ray import add_workers, connect, on_worker
from ltr.files import atomic_write, made_folder, name_full_disk, temporary_beside
from ltr.names import nearest, plural

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def predict(parser: LineParser, args: list[str]) -> None:
    """Score the rows of a table, in its order.

    CSV and Parquet files keep the table's columns of the query, the document's name and the label,
    if it has them. The `score` is added; the `probability`, if the model's folder has a calibration
    (`Calibrated.save`); and the `rank` within the query, from 1, if the table has queries. Lines of
    a TREC run are in the order of ranks. The file appears when it is complete.
    """
    _add_table(parser)
    endings = (".csv", ".parquet", ".run", ".trec", ".txt")
    about = f"a file: {', '.join(endings)}"
    add = parser.add_argument
    parser.writes(add("--output", required=True, type=new_file(*endings), help=about))
    add_workers(parser)
    given = parser.parse_args(args)
    rows = write_scores(given, given.output, given.workers)
    print(f"wrote {given.output}: {rows} {plural(rows, 'row')}")


_OF_RECIPES = {"-c", "--config", "--help-all", "--data", "--model", "--trainer", "--ckpt_path"}
_OF_RECIPES |= {"--seed_everything", "--print_config", "--best_checkpoint", "--early_stopping"}
"""The options of `ltr test` for a recipe, without the part after a dot."""


def test(parser: LineParser, args: list[str]) -> None:
    """Evaluate a model on a table with labels, or a recipe's checkpoint on its test lists.

      ltr test model test.parquet --metrics ndcg@10 map
      ltr test --config RECIPE --ckpt_path CHECKPOINT

    With one of these options, it is a recipe that is tested, and the others are those of `ltr fit`:
      --config RECIPE              a recipe (`ltr recipes`) or a YAML file; repeat it to overlay
      --ckpt_path CHECKPOINT       a checkpoint, or `best` or `last` of the newest run
      --data.path TABLE            CSV, Parquet, LETOR text or its folds, or lists on disk
      --trainer.accelerator NAME   cpu, cuda or mps; default: what exists
      --print_config               print all options with their values, as YAML
    """
    from ltr.cli.evaluate import add_options, report

    _add_table(parser)
    add_options(parser)
    parser.usage = (
        f"{parser.prog} MODEL TABLE [options]\n       {parser.prog} --config RECIPE [options]"
    )
    asks_help = not {"-h", "--help"}.isdisjoint(args)
    if not asks_help and any(re.split("[=.]", arg)[0] in _OF_RECIPES for arg in args):
        from ltr.cli.training import run_recipe

        run_recipe("test", LineParser(parser.prog), args)
        return
    given = parser.parse_args(args)
    with TemporaryDirectory() as folder:
        # `abspath` gives the folder "." its name; without one, the file would have no ending.
        scores = Path(folder, f"{os.path.basename(os.path.abspath(given.model))}.parquet")
        needed = ["qid", "label"] if given.qrels is None else ["qid"]
        write_scores(given, scores, needed=needed)
        wanted = [x for x in ("qrels", "plot", "html", "output") if getattr(given, x) is not None]
        if isinstance(given.label, tuple):  # the model has several labels
            if not wanted:
                _report_labels(given, scores)
                return
            if len(given.label) > 1:
                raise CommandError(f"--{wanted[0]} needs one label: name it by --label")
            given.label = next(iter(given.label))
        given.files, given.score, given.by = [str(scores)], None, []
        report(given, [given.table])


def _report_labels(given: Namespace, scores: Path) -> None:
    """Print the metrics of several labels, a column for each."""
    import pandas as pd

    from ltr.cli.evaluate import measures_of, options_of
    from ltr.reports import evaluate_labels

    draws = {name: getattr(given, name) for name in ("confidence", "resamples", "seed")}
    table = pd.read_parquet(scores)
    columns = table[[*given.label]], table["score"], table[given.qid]
    print(evaluate_labels(*columns, measures_of(given), **options_of(given), **draws))


def _add_table(parser: LineParser) -> None:
    """Add the arguments for the model, the table and the columns that are not features."""
    add_model(parser)
    add = parser.add_argument
    about = "CSV, Parquet or LETOR text: a file, a folder or a pattern; or lists on disk"
    parser.reads(add("table", metavar="TABLE", help=about), table_files)
    add("--qid", metavar="COLUMN", help="of the queries; default: as in training")
    add("--label", metavar="COLUMN", help="of the relevance; default: as in training")
    add("--doc-id", metavar="COLUMN", help="of the documents' names; default: as in training")


def write_scores(
    given: Namespace, output: Path, workers: int | None = None, *, needed: Sequence[str] = ()
) -> int:
    """Write the scores of a table, and return the number of rows.

    Args:
        given: the options; a column name that is None is set to the name used, if there is one.
        output: the file; its ending chooses the format.
        workers: the number of workers of a Ray cluster; None: score in this process.
        needed: what the table must have: "qid", "label".
    """
    import numpy as np
    import pyarrow as pa

    from ltr.arrays import rank
    from ltr.datasets.reading import group_rows

    model = load_model(given)
    keys = _keys(given, model, needed)
    tables = _scored(given, model, keys) if workers is None else _on_ray(workers, given, keys)
    first = next(tables)
    with made_folder(output.parent), temporary_beside(output) as waiting, name_full_disk(output):
        with pa.ipc.new_file(waiting, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
        # A rank needs all scores of its query, so the rows are first kept in a memory-mapped file.
        with pa.memory_map(str(waiting)) as source, atomic_write(output) as part:
            table = pa.ipc.open_file(source).read_all()
            scores = table.column("score").to_numpy()
            for row in np.flatnonzero(~np.isfinite(scores))[:1]:
                raise CommandError(f"scores must be finite, got {scores[row]} in row {row}")
            if given.qid is not None:
                lists, _ = group_rows(table.column(given.qid), given.qid)
                table = table.append_column("rank", pa.array(rank(scores, lists)))
            ending = output.suffix.lower()
            is_run = ending not in (".csv", ".parquet")
            if (needed or is_run) and _has_remarks(table, given, words=is_run):
                print(
                    "comments of the table are not used as ids of documents: two documents of a "
                    "query have the same comment, or a comment is not one word"
                )
                table, given.doc_id = table.drop_columns([given.doc_id]), None
            _write(part, ending, table, given)
            return table.num_rows


def _has_remarks(table: "pa.Table", given: Namespace, *, words: bool) -> bool:
    """Return whether comments of LETOR text, which serve as documents' ids, cannot be ids.

    Args:
        table: the table with the comments.
        given: the options.
        words: whether an id must be one word.
    """
    from ltr.datasets.list_tables import is_letor

    if given.doc_id is None or given.qid is None or not is_letor(given.table):
        return False
    names = table.select([given.qid, given.doc_id]).to_pandas()
    if words and not names[given.doc_id].str.fullmatch(r"\S+").all():
        return True
    return bool(names.duplicated().any())


def descending(scores: "np.ndarray") -> "np.ndarray":
    """Return scores (n,), given in descending order, with ties broken in the last digit.

    Evaluation tools read the scores of a TREC run as float32, sort by them and break ties in their
    own way. So each score that is not below the previous score becomes the next float32 below that
    score.

    >>> import numpy as np
    >>> descending(np.array([2.0, 2.0, 1.0], dtype=np.float32)).tolist()
    [2.0, 1.9999998807907104, 1.0]
    """
    import numpy as np

    apart = scores.astype(np.float32)
    for i in range(1, len(apart)):
        if apart[i] >= apart[i - 1]:
            apart[i] = np.nextafter(apart[i - 1], np.float32(-np.inf), dtype=np.float32)
    return apart


def _keys(given: Namespace, model: Any, needed: Sequence[str]) -> list[str]:
    """Set the names of key columns that are not given, and return those that the table has."""
    from ltr.datasets.list_tables import holds_lists
    from ltr.datasets.table_files import column_names

    lists, uses = holds_lists(given.table), ("qid", "doc_id", "label")
    present = uses if lists else column_names(given.table)
    for use in uses:
        name, known = getattr(given, use), getattr(model.schema, use, None)
        if isinstance(known, tuple) and name in (None, *known):  # one or all of several labels
            labels = known if name is None else (name,)
            missing = () if lists else [x for x in labels if x not in present]
            if missing and use in needed:
                raise CommandError(f"--label is required: the table has no column {missing[0]!r}")
            given.label = tuple(x for x in labels if x not in missing) or None
            continue
        known = use if lists else known
        if name is not None and name not in present:
            option, near = use.replace("_", "-"), nearest(name, present)
            raise CommandError(f"--{option} {name}: the table has no such column: {near}")
        name = known if name is None and known in present else name
        if name is None and use in needed:
            raise CommandError(f"--{use} is required: the table has no column {known or use!r}")
        if name in ("score", "probability", "rank"):
            raise CommandError(f"{name!r} is a column of the output, so no key may have this name")
        setattr(given, use, name)
    labels = given.label if isinstance(given.label, tuple) else [given.label]
    names = given.qid, given.doc_id, *labels
    return list(dict.fromkeys(name for name in names if name is not None))


def _scored(
    given: Namespace, model: Any, keys: list[str], share: tuple[int, int] = (0, 1)
) -> "Iterator[pa.Table]":
    """Yield chunks of rows: the columns `keys`, with categories as values, and what is added."""
    import numpy as np
    import pyarrow as pa

    from ltr.datasets.column_steps import without_codes
    from ltr.models.predictor import score_table

    options: dict[str, Any] = {"keys": keys, "label": given.label, "share": share}
    calibration = load_calibration(given)
    for table, scores in score_table(model, given.table, given.qid, **options):
        columns = {name: without_codes(table.column(name)) for name in table.column_names}
        columns["score"] = scores.astype(np.float32)
        if calibration is not None:
            columns["probability"] = calibration.of_scores(scores)
        yield pa.table(columns)


def _on_ray(workers: int, given: Namespace, keys: list[str]) -> "Iterator[pa.Table]":
    """Do the work of `_scored` in processes of a Ray cluster, which take the chunks in turn."""
    workers = connect(workers)
    import ray
    from ray.exceptions import RayTaskError

    task, here = ray.remote(_share), (os.getcwd(), [*sys.path])
    started = [task.remote(*here, given, keys, (number, workers)) for number in range(workers)]
    try:
        shares = ray.get(started)
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, CommandError) else error) from None
    for chunks in zip_longest(*shares):
        yield from (chunk for chunk in chunks if chunk is not None)


def _share(
    folder: str, path: list[str], given: Namespace, keys: list[str], share: tuple[int, int]
) -> "list[pa.Table]":
    with on_worker(folder, path):
        return [*_scored(given, load_model(given), keys, share)]


def _write(path: Path, ending: str, table: "pa.Table", given: Namespace) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    if ending == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif ending == ".csv":
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        pyarrow.csv.write_csv(table, path, options)
    else:
        from ltr.metrics.trec import write_run

        write_run(path, _run_of(table, given))


def _run_of(table: "pa.Table", given: Namespace) -> dict[str, dict[str, float]]:
    """Return a TREC run; documents without names are numbered from 0 within each list.

    The run's scores have no ties, so all tools rank as the table does.
    """
    import numpy as np
    import pandas as pd

    from ltr.arrays import name_texts
    from ltr.datasets.reading import group_rows

    if given.qid is None:
        raise CommandError("--qid is required: a TREC run names the query of each document")
    lists, qids = group_rows(table.column(given.qid), given.qid)
    if given.doc_id in table.column_names:
        ids = name_texts(table.column(given.doc_id), f"column {given.doc_id!r}")
        names = np.array(ids.to_pylist(), dtype=object)
    else:
        names = pd.Series(lists).groupby(lists).cumcount().astype(str).to_numpy()
    frame = table.select(["score", "rank"]).to_pandas().set_index(names)
    run = {}
    order = np.lexsort((frame["rank"], lists))
    for number, documents in frame.iloc[order].groupby(lists[order]):
        qid = qids[int(number)]
        if documents.index.has_duplicates:
            raise CommandError(f"a TREC run names a document once, got two in query {qid!r}")
        scores = descending(documents["score"].to_numpy()).tolist()
        run[qid] = dict(zip(documents.index, scores, strict=True))
    return run

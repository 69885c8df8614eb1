"""`ltr datasets`: layout, size, source and terms of published data sets. Nothing is downloaded."""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from textwrap import fill

from ltr.cli.errors import CommandError
from ltr.cli.recipes import LineParser
from ltr.names import nearest

_UNKNOWN = "not known"


@dataclass(frozen=True)
class PublishedSet:
    """A published data set in the form of LETOR text.

    Attributes:
        name: its name in papers.
        about: a description in one line.
        layout: the files of its publisher, by their paths in the folder `root`.
        features: the number of features of a document.
        labels: the smallest and the largest grade.
        folds: the number of folds; 1 is a single split.
        source: the page of its publisher.
        terms: what the publisher allows, and how certain that is.
        queries: the number of queries; None if unknown.
        documents: the number of documents; None if unknown.
        splits: the split in words, if it differs from that of the folds.
        notes: what a reader of the files must know.
        sets: the number of sets of files in the folder; `fold` chooses one.
    """

    name: str
    about: str
    layout: tuple[str, ...]
    features: int
    labels: tuple[int, int]
    folds: int
    source: str
    terms: str
    queries: int | None = None
    documents: int | None = None
    splits: str = ""
    notes: str = ""
    sets: int = 1


def _read() -> Iterator[PublishedSet]:
    for facts in tomllib.loads((files("ltr.cli") / "published.toml").read_text("utf-8"))["sets"]:
        pairs = {name: tuple(facts[name]) for name in ("layout", "labels")}
        yield PublishedSet(**{**facts, **pairs})


PUBLISHED = tuple(_read())
"""The data sets of `published.toml`, in the order in which `ltr datasets` lists them."""


def run(command: str, args: list[str]) -> int:
    """Run the command `datasets`."""
    parser = LineParser(
        "ltr datasets",
        description="List published data sets, or describe one. Nothing is downloaded.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a data set, such as MSLR-WEB30K")
    name = parser.parse_args(args).name
    if name is None:
        _list()
        return 0
    known = {one.name.lower(): one for one in PUBLISHED}
    if name.lower() not in known:
        names = [one.name for one in PUBLISHED]
        raise CommandError(f"no data set {name!r}: {nearest(name, names)}")
    print(_described(known[name.lower()]))
    return 0


def _list() -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("", "queries", "documents", "features", "labels", "folds"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in PUBLISHED:
        labels = f"{one.labels[0]} to {one.labels[1]}"
        sizes = (_count(one.queries), _count(one.documents), str(one.features))
        table.add_row(one.name, *sizes, labels, str(one.folds))
    Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(table)
    print("Layout, source and terms of one: ltr datasets NAME. Nothing is downloaded.")


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _described(one: PublishedSet) -> str:
    """Return what is known of a data set, and the command that trains on it."""
    folds = f"{one.folds}, --data.fold 1 to {one.folds}" if one.folds > 1 else "none: one split"
    if one.sets > 1:
        folds = f"none: {one.sets} sets, --data.fold 1 to {one.sets}"
    rows = {
        "what": one.about,
        "files": ", ".join(one.layout) + (" (and so on for each fold)" if one.folds > 1 else ""),
        "queries": _count(one.queries),
        "documents": _count(one.documents),
        "features": str(one.features),
        "labels": f"{one.labels[0]} to {one.labels[1]}",
        "folds": folds,
        "split": one.splits,
        "source": one.source,
        "terms": one.terms,
        "notes": one.notes,
    }
    lines = [one.name, ""]
    for key, text in rows.items():
        if text:
            lines.append(
                fill(
                    f"  {key:<11}{text}",
                    width=100,
                    subsequent_indent=" " * 13,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    lines += ["", f"  ltr fit --config letor --data.path {one.name}"]
    return "\n".join(lines)

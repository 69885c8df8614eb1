"""What is known of published data sets: their layout, size, source and terms. Nothing is read."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PublishedSet:
    """A published data set in the form of LETOR text.

    Attributes:
        name: its name in papers.
        about: what it is, in a line.
        layout: the files that its publisher ships, by their paths in the folder to give as `root`.
        features: how many a document has.
        labels: the smallest and the largest grade.
        folds: how many folds it comes with; 1 is a single split.
        source: where its publisher gives the files.
        terms: what the publisher allows, and how sure that is.
        queries: the number of queries; None if unknown.
        documents: the number of documents; None if unknown.
        splits: the split in words, where it is not that of the folds.
        notes: what a reader of the files must know.
        sets: how many sets of files there are in the folder; `fold` chooses one.
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


def _read(facts: dict[str, Any]) -> PublishedSet:
    pairs = {name: tuple(facts[name]) for name in ("layout", "labels")}
    return PublishedSet(**{**facts, **pairs})


PUBLISHED = tuple(
    map(_read, tomllib.loads((files("ltr.cli") / "published.toml").read_text("utf-8"))["sets"])
)
"""The data sets of `published.toml`, in the order in which `ltr datasets` lists them."""

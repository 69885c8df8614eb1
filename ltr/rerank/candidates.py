"""Training lists for rerankers and retrievers: what a first stage found, with its judgements."""

import json
import random
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ltr.compressed import open_text, write_text
from ltr.files import check_path
from ltr.metrics.joined import trec_order
from ltr.metrics.trec import Qrels, Run, read_qrels, read_run
from ltr.names import plural
from ltr.shapes import check_at_least, check_choice, check_flag, check_number, check_whole

Unjudged = Literal["irrelevant", "drop"]

_IDS = ("_id", "id", "qid", "doc_id", "docid", "docno")
"""The keys of a text's name in a line of JSON; the first key in the line counts."""


@dataclass(frozen=True)
class CandidateLists:
    """The result of `lists_from_run`.

    Attributes:
        rows: the lists, each a dict with `qid`, `query`, `doc_ids`, `documents` and `labels`. The
            adapters take `query`, `documents` and `labels`.
        dropped: for each reason, how many documents (or queries, if the reason begins with "query")
            are in no list.
        found: the number of documents in the first `depth` of all queries of the run.
    """

    rows: list[dict[str, Any]]
    dropped: dict[str, int]
    found: int

    def columns(self) -> dict[str, list[Any]]:
        """Return `query`, `documents` and `labels` of all lists, for `Dataset.from_dict`."""
        names = ("query", "documents", "labels")
        return {name: [row[name] for row in self.rows] for name in names}

    def write(self, path: str | PathLike[str]) -> None:
        """Write the lists as lines of JSON, compressed by gzip if the name ends in `.gz`.

        A missing folder is created.
        """
        lines = (f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in self.rows)
        write_text(check_path("path", path), lines)

    def __str__(self) -> str:
        documents = sum(len(row["documents"]) for row in self.rows)
        relevant = sum(label > 0 for row in self.rows for label in row["labels"])
        lines = [
            f"{len(self.rows):,} {plural(len(self.rows), 'list')}, {documents:,} "
            f"{plural(documents, 'document')}, {relevant:,} of them relevant"
        ]
        width = max((len(f"{count:,}") for count in self.dropped.values()), default=0)
        lines += [f"  {count:>{width},}  {reason}" for reason, count in self.dropped.items()]
        return "\n".join(lines)


def lists_from_run(
    run: Run | str | PathLike[str],
    qrels: Qrels | str | PathLike[str],
    queries: Mapping[str, str] | str | PathLike[str],
    documents: Mapping[str, str] | str | PathLike[str],
    depth: int = 50,
    *,
    negatives: int | None = None,
    unjudged: Unjudged = "irrelevant",
    skip: float | None = None,
    add_relevant: bool = False,
    seed: int = 0,
) -> CandidateLists:
    """Make training lists from a first stage's results, for `CrossEncoderLoss` and `EncoderLoss`.

    A model should learn from the documents that it will see. Each query's list has the first
    `depth` documents of the run, in trec_eval's order, with their judgements as labels. A
    judgement below 0 means not judged, as in trec_eval. A query without a relevant document in its
    list is left out, since its loss would be 0. The result counts what is left out, by reason.

    Args:
        run: what the first stage found: for each query the score of each document, or a TREC file
            (see `ltr.metrics.read_run`).
        qrels: for each query the judgement of each document, or a TREC file.
        queries: the text of each query, or a file of texts (see `read_texts`).
        documents: the text of each document, or a file of texts, of which only the needed texts
            are kept in memory.
        depth: how many documents of a query are candidates, >= 1.
        negatives: the number of documents with label 0 in a list, >= 1: if there are more, that
            many are drawn at random, each as likely, and keep their order. Default: all.
        unjudged: "irrelevant" (default) gives documents without a judgement the label 0; "drop"
            leaves them out.
        skip: >= 0, in units of the run's scores: documents without a judgement are left out if
            their score is above that of the best relevant document of the query minus `skip`. They
            may be relevant ones that nobody judged. Default: none is left out.
        add_relevant: whether relevant documents that are not among the first `depth` are added at
            the end of the list. Default: False, since the model will not see them later.
        seed: the seed of `negatives`. The draw of a query does not depend on other queries.

    Returns:
        The lists, in the order of the run's queries.

    Raises:
        ValueError: an argument is invalid, no query of the run has judgements, a file is damaged,
            or no list is left; the message then says what was left out.

    Cost: a sort of each query's documents; memory for the run, the judgements and the texts of the
    lists.

    >>> run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    >>> texts = {"a": "red cat", "b": "blue cat", "c": "dog"}
    >>> lists = lists_from_run(run, {"q": {"b": 2}}, {"q": "cat"}, texts)
    >>> lists.rows[0]["documents"], lists.rows[0]["labels"]
    (['red cat', 'blue cat', 'dog'], [0, 2, 0])
    >>> print(lists_from_run(run, {"q": {"b": 2}}, {"q": "cat"}, texts, skip=0.5))
    1 list, 2 documents, 1 of them relevant
      1  not judged, and as good as a relevant one
    """
    check_at_least("depth", depth, 1)
    if negatives is not None:
        check_whole("negatives", negatives, "a whole number >= 1, or None")
    check_choice("unjudged", unjudged, "irrelevant", "drop")
    margin = None if skip is None else check_number("skip", skip, minimum=0.0)
    check_flag("add_relevant", add_relevant)
    check_at_least("seed", seed, 0)
    given = {"run": run, "qrels": qrels, "queries": queries, "documents": documents}
    for name, value in given.items():
        if not isinstance(value, Mapping | str | PathLike):
            raise ValueError(f"{name} must be a dict or the name of a file, got {value!r}")
    run = run if isinstance(run, Mapping) else read_run(run)
    qrels = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    if not any(qid in qrels for qid in run):
        raise ValueError("qrels must judge a query of the run, got none")
    dropped: Counter[str] = Counter()
    chosen: dict[str, dict[str, int]] = {}
    found = 0
    for qid, scores in run.items():
        names = trec_order(scores)[:depth]
        found += len(names)
        if qid not in qrels:
            dropped["query without judgements"] += 1
            continue
        chosen[qid] = _labels(names, scores, qrels[qid], unjudged, margin, dropped)
        if add_relevant:
            chosen[qid] |= {n: x for n, x in qrels[qid].items() if x > 0 and n not in chosen[qid]}
        else:
            lost = sum(x > 0 and name not in chosen[qid] for name, x in qrels[qid].items())
            dropped["relevant, but no candidate"] += lost
    if not isinstance(queries, Mapping):
        queries = dict(read_texts(queries, chosen))
    if not isinstance(documents, Mapping):
        needed = {name for labels in chosen.values() for name in labels}
        documents = dict(read_texts(documents, needed))
    rows = []
    for qid, labels in chosen.items():
        if not queries.get(qid):
            dropped["query without text"] += 1
            continue
        empty = [name for name in labels if not documents.get(name)]
        dropped["without text"] += len(empty)
        kept = {name: label for name, label in labels.items() if name not in {*empty}}
        if not any(label > 0 for label in kept.values()):
            dropped["query without a relevant document"] += 1
            continue
        kept = _sampled(kept, negatives, f"{seed} {qid}", dropped)
        texts = [(qid, queries[qid]), *((name, documents[name]) for name in kept)]
        for name, text in texts:
            if not isinstance(text, str):
                raise ValueError(f"queries and documents must be text, got {text!r} for {name!r}")
            if not (_is_unicode(str(name)) and _is_unicode(text)):
                raise ValueError(
                    f"queries and documents must be UTF-8 text, got {text[:80]!r} for {name!r}"
                )
        rows.append(
            {
                "qid": qid,
                "query": queries[qid],
                "doc_ids": [*kept],
                "documents": [documents[name] for name in kept],
                "labels": [*kept.values()],
            }
        )
    reasons = {reason: count for reason, count in dropped.items() if count}
    if not rows:
        told = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        raise ValueError(f"run must give a list with a relevant document and texts, got {told}")
    return CandidateLists(rows, reasons, found)


def _is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8: bytes that are not become surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _labels(
    names: list[str],
    scores: Mapping[str, float],
    judged: Mapping[str, int],
    unjudged: Unjudged,
    margin: float | None,
    dropped: Counter[str],
) -> dict[str, int]:
    """Return the labels of a query's candidates, in their order; count what is left out."""
    relevant = [scores[name] for name in names if judged.get(name, 0) > 0]
    limit = max(relevant) - margin if margin is not None and relevant else None
    labels: dict[str, int] = {}
    for name in names:
        label = judged.get(name, -1)
        if label >= 0:
            labels[name] = label
        elif unjudged == "drop":
            dropped["not judged"] += 1
        elif limit is not None and scores[name] > limit:
            dropped["not judged, and as good as a relevant one"] += 1
        else:
            labels[name] = 0
    return labels


def _sampled(
    labels: dict[str, int], negatives: int | None, seed: str, dropped: Counter[str]
) -> dict[str, int]:
    """Return the labels with at most `negatives` labels of 0, in their order."""
    zeros = [name for name, label in labels.items() if label == 0]
    if negatives is None or len(zeros) <= negatives:
        return labels
    kept = {*random.Random(seed).sample(zeros, negatives)}
    dropped["irrelevant, not drawn"] += len(zeros) - negatives
    return {name: label for name, label in labels.items() if label > 0 or name in kept}


def read_texts(
    path: str | PathLike[str], only: Container[str] | None = None
) -> Iterator[tuple[str, str]]:
    r"""Yield the name and the text of each line of a file of queries or documents.

    A line is either `name<TAB>text`, as in MS MARCO, or JSON with the name in `_id`, `id`, `qid`,
    `doc_id`, `docid` or `docno` and the text in `text`, before which `title` is put, as in BEIR.
    The file may be plain, gzip or zstd. One line is in memory at a time.

    Args:
        path: the file.
        only: the names whose texts are needed. Default: all.

    Raises:
        ValueError: a line has neither form, or a name stands twice; the message names the file and
            the line.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "queries.tsv")
    ...     _ = file.write_text("q1\tred cat\n")
    ...     print(*read_texts(file))
    ('q1', 'red cat')
    """
    path = check_path("path", path)
    seen: set[str] = set()
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            name, text = _named_text(path, number, line)
            if only is not None and name not in only:
                continue
            if name in seen:
                raise ValueError(
                    f"{path}:{number}: the name {name!r} must stand once, got it twice"
                )
            seen.add(name)
            yield name, text


def _named_text(path: Path, number: int, line: bytes) -> tuple[str, str]:
    decoded = line.decode("utf-8", "surrogateescape").strip("\r\n")
    if not decoded.lstrip().startswith("{"):
        name, tab, text = decoded.partition("\t")
        if not tab or not name:
            raise ValueError(
                f"{path}:{number}: a line must be name<TAB>text or JSON, got {decoded[:80]!r}"
            )
        return name, text.strip()
    try:
        row = json.loads(decoded)
    except ValueError as error:
        raise ValueError(f"{path}:{number}: the line must be JSON, got {error}") from None
    key = next((key for key in _IDS if key in row), None)
    if key is None or not isinstance(row.get("text"), str):
        raise ValueError(
            f"{path}:{number}: JSON must have text and a name ({', '.join(_IDS)}), got "
            f"{', '.join(row) or 'nothing'}"
        )
    title = row.get("title") or ""
    return str(row[key]), f"{title} {row['text']}".strip()

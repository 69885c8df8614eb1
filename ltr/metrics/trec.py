"""Read and write TREC runs and qrels, and join them into lists for the metrics."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.compressed import open_text, write_text
from ltr.files import check_path
from ltr.metrics.joined import JoinedRun, join, raw_bytes, trec_order

__all__ = [
    "JoinedRun",
    "Qrels",
    "Run",
    "join",
    "read_qrels",
    "read_run",
    "write_qrels",
    "write_run",
]

Run = dict[str, dict[str, float]]
"""For each query, the score of each document: `run["301"]["FT911-3"]`, as in pytrec_eval."""

Qrels = dict[str, dict[str, int]]
"""For each query, the judgement of each document: > 0 means relevant, < 0 means not judged."""

_RUN = {6: "qid Q0 docno rank score tag", 3: "qid docno score"}
_QRELS = {4: "qid 0 docno rel", 3: "qid docno rel"}
"""The fields of a line, by their number. In each form the query comes first."""

_DOCNO, _SCORE = {3: 1, 4: 2, 6: 2}, {3: 2, 6: 4}
"""The positions of the document and of the score, by the number of fields."""

# The first and the last words of a header, without - and _; BEIR has query-id, corpus-id, score.
_QUERY = (b"qid", b"query", b"queryid", b"topic")
_VALUE = (b"score", b"rel", b"relevance", b"label", b"judgement", b"judgment", b"grade")


def read_run(path: str | PathLike[str]) -> Run:
    r"""Read a run: `qid Q0 docno rank score tag`, one retrieved document per line.

    The file may be plain, gzip or zstd. Blanks or tabs separate the fields, and blank lines are
    skipped. Query and document names are kept unchanged; bytes that are not UTF-8 become
    surrogates. Only the score orders the documents, as in trec_eval: the rank and the order of the
    lines are ignored.

    Two other forms are recognized. All lines may have three fields, `qid docno score`, after a
    header such as BEIR's `query-id corpus-id score` or without one. If the third field of each
    query is 1, 2, 3 and so on, as in MS MARCO's `qid docno rank`, it is a rank, and the score is
    minus this rank. A file that begins with a brace is JSON, as ranx writes it, with the mapping
    that is returned.

    Args:
        path: the file.

    Returns:
        For each query, the score of each document, in the order of the file.

    Raises:
        ValueError: a line does not have the fields of the first line, which are six or three; a
            score is not a finite number; a query has a document twice; the third field may be a
            rank as well as a score; the JSON is not such a mapping; or the file is empty or
            damaged. The message names the file, the line and the text.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "my.run")
    ...     _ = file.write_text("301 Q0 FT911-3 1 2.5 me\n301 Q0 LA-7 2 1.25 me\n")
    ...     read_run(file)
    {'301': {'FT911-3': 2.5, 'LA-7': 1.25}}
    """
    path = check_path("path", path)
    if _is_json(path):
        return _read_json(path, _is_score, float, "a score must be a finite number")
    run: Run = {}
    may_be_ranks = True
    for number, fields in _lines(path, _RUN):
        text = fields[_SCORE[len(fields)]]
        try:
            score = float(text)
        except ValueError:
            score = np.nan
        if not isfinite(score) or b"_" in text:
            raise _error(path, number, "the score must be a finite number", text)
        may_be_ranks = may_be_ranks and len(fields) == 3 and text.isdigit()
        _add(run, fields, score, path, number)
    return _by_rank(run, path) if may_be_ranks else run


def read_qrels(path: str | PathLike[str]) -> Qrels:
    r"""Read judgements: `qid 0 docno rel`, one document per line.

    Compression, separators and names are as in `read_run`, and so are the other two forms: lines
    `qid docno rel`, after a header or without one, and JSON.

    Args:
        path: the file.

    Returns:
        For each query, the judgement of each document, in the order of the file.

    Raises:
        ValueError: as in `read_run`, but a line must have four fields or three, and a judgement
            must be a whole number of at most 18 digits, such as 2 or 2.0.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "qrels.txt")
    ...     _ = file.write_text("301 0 FT911-3 2\n301 0 LA-7 0\n")
    ...     read_qrels(file)
    {'301': {'FT911-3': 2, 'LA-7': 0}}
    """
    path = check_path("path", path)
    problem = "the judgement must be a whole number of at most 18 digits"
    if _is_json(path):
        return _read_json(path, _is_judgement, int, problem)
    qrels: Qrels = {}
    for number, fields in _lines(path, _QRELS):
        text = fields[-1]
        if re.fullmatch(rb"[+-]?[0-9]{1,18}(\.0*)?", text) is None:
            raise _error(path, number, problem, text)
        _add(qrels, fields, int(text.partition(b".")[0]), path, number)
    return qrels


def write_run(
    path: str | PathLike[str], run: Mapping[str, Mapping[str, float]], tag: str = "ltr"
) -> None:
    """Write a run, with the documents of each query in trec_eval's order of descending score.

    trec_eval orders documents with equal scores by descending name. `read_run` reads back exactly
    the same scores.

    Args:
        path: the file; compressed by gzip if the name ends in `.gz`. A missing folder is created.
        run: for each query, the score of each document.
        tag: the run's name, one word.

    Raises:
        ValueError: a name is empty or contains a blank, or a score is not finite.
    """
    _check_word("tag", tag)

    def lines() -> Iterator[str]:
        for qid, scores in run.items():
            _check_word("query", qid)
            for name in scores:
                _check_word("document", name)
            for rank, name in enumerate(trec_order(scores), start=1):
                score = float(scores[name])
                if not isfinite(score):
                    raise ValueError(f"scores must be finite, got {score} for {name!r} of {qid!r}")
                yield f"{qid} Q0 {name} {rank} {score!r} {tag}\n"

    write_text(check_path("path", path), map(raw_bytes, lines()))


def write_qrels(path: str | PathLike[str], qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Write judgements in the given order, compressed by gzip if the file's name ends in `.gz`.

    Raises:
        ValueError: a name is empty or contains a blank, or a judgement is not a whole number of at
            most 18 digits.
    """

    def lines() -> Iterator[str]:
        for qid, labels in qrels.items():
            _check_word("query", qid)
            for name, label in labels.items():
                _check_word("document", name)
                if not _is_judgement(label):
                    raise ValueError(
                        "judgements must have at most 18 digits and be whole numbers, "
                        f"got {label!r}"
                    )
                yield f"{qid} 0 {name} {int(label)}\n"

    write_text(check_path("path", path), map(raw_bytes, lines()))


def _add(
    table: dict[str, dict[str, Any]], fields: list[bytes], value: Any, path: Path, number: int
) -> None:
    docno = fields[_DOCNO[len(fields)]]
    qid, name = (field.decode("utf-8", "surrogateescape") for field in (fields[0], docno))
    documents = table.setdefault(qid, {})
    if name in documents:
        raise _error(path, number, f"query {qid!r} has the document twice", docno)
    documents[name] = value


def _by_rank(run: Run, path: Path) -> Run:
    """Return a run of whole numbers >= 0 with minus these numbers as scores, if they are ranks.

    They are ranks if they are 1, 2, 3 and so on in each query, in the order of the file; numbers
    that descend are scores.

    Raises:
        ValueError: the numbers of each query are those of its ranks, but in another order.
    """
    lists = [[*scores.values()] for scores in run.values()]
    if max(map(len, lists)) == 1:
        return run
    if all(numbers == [*range(1, len(numbers) + 1)] for numbers in lists):
        return {qid: {name: -rank for name, rank in ranks.items()} for qid, ranks in run.items()}
    descend = all(numbers == sorted(numbers, reverse=True) for numbers in lists)
    if not descend and all(sorted(numbers) == [*range(1, len(numbers) + 1)] for numbers in lists):
        raise ValueError(
            f"{path}: the third field may be a rank or a score: it is a whole number from 1 to the "
            f"length of each list. Write scores with six fields ({_RUN[6]}), or sort by the rank"
        )
    return run


def _lines(path: Path, forms: Mapping[int, str]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number and the fields of each line that is neither blank nor a header.

    Args:
        path: the file.
        forms: the fields of a line, by their number. All lines have the number of the first line.
    """
    count, any_line = 0, False
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            fields = line.split()
            if not fields:
                continue
            if count:
                if len(fields) != count:
                    problem = f"a line must have {count} fields ({forms[count]}), as the first line"
                    raise _error(path, number, problem, line)
            elif len(fields) not in forms:
                usual, few = max(forms), min(forms)
                problem = f"a line must have {usual} fields ({forms[usual]})"
                hint = f" (or {few} fields, {forms[few]})"
                raise _error(path, number, problem, line, hint)
            else:
                count = len(fields)
                if _is_header(fields):
                    continue
            any_line = True
            yield number, fields
    if not any_line:
        raise ValueError(f"{path}: the file must have at least one line, got none")


def _is_header(fields: list[bytes]) -> bool:
    first, *_, last = (field.lower().replace(b"-", b"").replace(b"_", b"") for field in fields)
    return first in _QUERY and last in _VALUE


def _is_json(path: Path) -> bool:
    """Return whether a file begins with a JSON object: a brace, and a quote or a brace."""
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    with open_text(path) as file:
        return re.match(rb'(\xef\xbb\xbf)?\s*\{\s*["}]', file.read(1 << 12)) is not None


def _read_json(
    path: Path, holds: Callable[[Any], bool], kind: Callable[[Any], Any], problem: str
) -> dict[str, dict[str, Any]]:
    """Return a mapping of queries to mappings of documents to numbers, from JSON.

    Args:
        path: the file.
        holds: returns whether a value is allowed.
        kind: the type of the values.
        problem: what a value must be, for errors.
    """
    with open_text(path) as file:
        text = file.read()
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON with one value for each name: {error}") from None
    if not content:
        raise ValueError(f"{path}: the file must have at least one query, got none")
    for qid, values in content.items():
        if not isinstance(values, dict):
            wanted = "a query must have a mapping of its documents to numbers"
            raise ValueError(f"{path}, query {qid!r}: {wanted}, got {values!r:.80}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
                where = f"{path}, query {qid!r}, document {name!r}"
                raise ValueError(f"{where}: {problem}, got {value!r:.80}")
    return {q: {name: kind(x) for name, x in values.items()} for q, values in content.items()}


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        name = next(name for name, count in Counter(x for x, _ in pairs).items() if count > 1)
        raise ValueError(f"{name!r} occurs twice")
    return mapping


def _error(path: Path, number: int, problem: str, text: bytes, hint: str = "") -> ValueError:
    shown = text.strip().decode("utf-8", "backslashreplace")
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ValueError(f"{path}, line {number}: {problem}, got {shown!r}{hint}")


def _check_word(kind: str, name: str) -> None:
    if not isinstance(name, str) or raw_bytes(name).split() != [raw_bytes(name)]:
        raise ValueError(f"names must be one word, got {name!r} for a {kind}")


def _is_score(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def _is_judgement(label: Any) -> bool:
    try:
        return label == int(label) and abs(label) < 10**18
    except (TypeError, ValueError, OverflowError):
        return False

"""Read and write TREC runs and qrels, and join them into lists for the metrics."""

import gzip
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.compressed import open_text
from ltr.files import atomic_write
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

_RUN = "qid Q0 docno rank score tag"
_QRELS = "qid 0 docno rel"


def read_run(path: str | PathLike[str]) -> Run:
    r"""Read a run: `qid Q0 docno rank score tag`, one retrieved document per line.

    The file may be plain, gzip or zstd. Blanks or tabs separate the fields, and blank lines are
    skipped. Query and document names are kept unchanged; bytes that are not UTF-8 become
    surrogates. Only the score orders the documents, as in trec_eval: the rank and the order of the
    lines are ignored.

    Args:
        path: the file.

    Returns:
        For each query, the score of each document, in the order of the file.

    Raises:
        ValueError: a line does not have six fields or has more than 64 MiB, a score is not a finite
            number, a query has a document twice, or the file is empty or damaged. The message names
            the file, the line and the text.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "my.run")
    ...     _ = file.write_text("301 Q0 FT911-3 1 2.5 me\n301 Q0 LA-7 2 1.25 me\n")
    ...     read_run(file)
    {'301': {'FT911-3': 2.5, 'LA-7': 1.25}}
    """
    run: Run = {}
    for number, fields in _lines(Path(path), _RUN):
        try:
            score = float(fields[4])
        except ValueError:
            score = np.nan
        if not isfinite(score) or b"_" in fields[4]:
            raise _error(Path(path), number, "the score must be a finite number", fields[4])
        _add(run, fields, score, Path(path), number)
    return run


def read_qrels(path: str | PathLike[str]) -> Qrels:
    r"""Read judgements: `qid 0 docno rel`, one document per line.

    Compression, separators and names are as in `read_run`.

    Args:
        path: the file.

    Returns:
        For each query, the judgement of each document, in the order of the file.

    Raises:
        ValueError: as in `read_run`, but a line must have four fields, and a judgement must be a
            whole number of at most 18 digits.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "qrels.txt")
    ...     _ = file.write_text("301 0 FT911-3 2\n301 0 LA-7 0\n")
    ...     read_qrels(file)
    {'301': {'FT911-3': 2, 'LA-7': 0}}
    """
    qrels: Qrels = {}
    for number, fields in _lines(Path(path), _QRELS):
        text = fields[3]
        if re.fullmatch(rb"[+-]?[0-9]{1,18}", text) is None:
            problem = "the judgement must be a whole number of at most 18 digits"
            raise _error(Path(path), number, problem, text)
        _add(qrels, fields, int(text), Path(path), number)
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

    _write(Path(path), lines())


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

    _write(Path(path), lines())


def _add(
    table: dict[str, dict[str, Any]], fields: list[bytes], value: Any, path: Path, number: int
) -> None:
    qid, name = (field.decode("utf-8", "surrogateescape") for field in (fields[0], fields[2]))
    found = table.setdefault(qid, {})
    if name in found:
        raise _error(path, number, f"query {qid!r} has the document twice", fields[2])
    found[name] = value


def _lines(path: Path, form: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number and the fields of each line that is not blank."""
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    count, any_line = len(form.split()), False
    with open_text(path) as file:
        for number, line in enumerate(file.lines(), start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            fields = line.split()
            if fields and len(fields) != count:
                problem = f"a line must have {count} fields ({form})"
                raise _error(path, number, problem, line)
            if fields:
                any_line = True
                yield number, fields
    if not any_line:
        raise ValueError(f"{path}: the file must have at least one line, got none")


def _error(path: Path, number: int, problem: str, text: bytes) -> ValueError:
    shown = text.strip().decode("utf-8", "backslashreplace")
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ValueError(f"{path}, line {number}: {problem}, got {shown!r}")


def _check_word(kind: str, name: str) -> None:
    if not isinstance(name, str) or raw_bytes(name).split() != [raw_bytes(name)]:
        raise ValueError(f"names must be one word, got {name!r} for a {kind}")


def _is_judgement(label: Any) -> bool:
    try:
        return label == int(label) and abs(label) < 10**18
    except (TypeError, ValueError, OverflowError):
        return False


def _write(path: Path, lines: Iterator[str]) -> None:
    """Write the lines to a file that appears under its name only when it is complete."""
    with (
        atomic_write(path) as partial,
        gzip.open(partial, "wb") if path.suffix == ".gz" else partial.open("wb") as file,
    ):
        file.writelines(map(raw_bytes, lines))

"""Read lists from LETOR / svmlight text, in the form in which data sets are published."""

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from ltr._compressed import SUFFIXES, open_text
from ltr.datasets._svmlight import (
    NUMBER,
    MalformedError,
    Pairs,
    parse_number,
    quick_pairs,
    strict_pairs,
)
from ltr.datasets.lists import ListDataset, find_return, gather_runs

_BLOCK = 1 << 23  # bytes of text at a time
_DOC_ID = re.compile(rb"docid\s*=\s*(\S+)")
_WHOLE = re.compile(rb"[+]?(-?)0*([0-9]+)(?:\.0*)?")
_FUSED = re.compile(rb".*[0-9]:" + NUMBER.pattern)  # a qid, and a feature `1:0.7`
_GROUP_SUFFIXES = (".query", ".group")


def read_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    missing: Literal["keep", "error"] = "keep",
) -> ListDataset:
    r"""Read learning-to-rank text: `label qid:Q 1:v 2:v ... # comment`, one document a line.

    The file may be plain, gzip, bzip2, xz, zstd or a zip of one file; its first bytes decide. Lines
    end in LF or CRLF. Blank lines, lines with only a comment, and blanks at the end of a line are
    allowed. A feature that a line leaves out is 0. If any line has a comment, the comments become
    document ids: `#docid = GX004-93-7097963 inc = 1` gives `GX004-93-7097963`, any other comment
    gives its text, and a line without a comment gives the empty string. LightGBM's files have no
    qid. They have a file of group sizes beside them (`rank.train.query` or `rank.train.group` for
    `rank.train`), and their lists are named "1", "2", ...

    Args:
        path: the file.
        num_features: the number of features; a larger index is an error. Default: the largest
            index in the file (at most 1,048,576).
        sort_by_qid: gather the lines of a qid that comes back after another qid. Lists and
            documents are in the order of their first appearance. By default such a qid is an error.
        group_file: the file of group sizes. Default: the one beside `path`, if there is one.
        missing: "keep" reads the values `NULL`, `NaN` and `nan` as NaN; "error" refuses them.

    Returns:
        The lists: features float32 (documents, num_features), NaN where missing. Where lines were
        gathered, `rows` says where each document stood, from 0.

    Raises:
        ValueError: the file is missing, empty, damaged or in another format; a label is missing,
            negative or not a finite number; a qid is missing, comes back, is written in two ways
            (`qid:5` and `qid:05`), or runs into a feature because a blank is missing; an
            `index:value` is malformed; an index is 0, negative, too large or comes twice in a line;
            a value is not a finite number; or the group sizes do not fit. The message names the
            file, the line and the text.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5 3:1 #docid = A1\n0 qid:7 2:0.25 #docid = B2\n")
    ...     data = read_letor(file)
    >>> data[0]["features"]
    tensor([[0.5000, 0.0000, 1.0000],
            [0.0000, 0.2500, 0.0000]])
    >>> data[0]["labels"], data[0]["doc_ids"]
    (tensor([2., 0.]), ['A1', 'B2'])
    """
    if num_features is not None and num_features < 1:
        raise ValueError(f"num_features must be >= 1, got {num_features}")
    if missing not in ("keep", "error"):
        raise ValueError(f'missing must be "keep" or "error", got {missing!r}')
    sizes = find_group_file(path, group_file)
    reader = _Reader(Path(path), num_features, sizes, missing == "keep")
    for number, lines in _blocks(reader.path):
        reader.take(number, lines)
    if group_file is not None and reader.has_qid:
        raise ValueError(f"group_file must be None where lines have a qid, got {group_file}")
    return reader.finish(sort_by_qid)


def find_group_file(
    path: str | PathLike[str], group_file: str | PathLike[str] | None = None
) -> Path | None:
    """Return the file of group sizes of `path`: `group_file`, or one beside it, or None.

    Raises:
        ValueError: there is no such `group_file`.

    >>> find_group_file("no/such/rank.train") is None
    True
    """
    if group_file is not None:
        if not Path(group_file).is_file():
            raise ValueError(f"group_file must be a file, got {group_file}")
        return Path(group_file)
    stem = str(path)
    packed = Path(stem).suffix in SUFFIXES
    for base in (stem, *([stem.rpartition(".")[0]] if packed else [])):
        for suffix in _GROUP_SUFFIXES:
            for candidate in (Path(base + suffix + ending) for ending in ("", *SUFFIXES)):
                if candidate.is_file():
                    return candidate
    return None


class _Reader:
    """Reads a file block by block: labels, qids and comments here, features in `_svmlight`."""

    def __init__(
        self, path: Path, num_features: int | None, group_file: Path | None, keep_missing: bool
    ) -> None:
        self.keep_missing = keep_missing
        self.path = path
        self.num_features = num_features
        self.group_file = group_file
        self.has_qid: bool | None = None
        self.labels: list[float] = []
        self.label_of: dict[bytes, float] = {}  # there are few labels, so each is parsed once
        self.doc_ids: list[str] = []
        self.runs: list[list[int]] = []  # for a run of one qid: first line, last line, documents
        self.run_qids: list[bytes] = []
        self.pairs: list[Pairs] = []

    def take(self, number: int, lines: list[bytes]) -> None:
        """Read `lines`; the first of them is line `number` of the file."""
        texts: list[bytes] = []
        numbers: list[int] = []
        for line_number, line in enumerate(lines, start=number):
            text, _, comment = line.partition(b"#")
            tokens = text.split(None, 2)
            if not tokens:
                continue
            try:
                texts.append(self._head(tokens, line_number))
            except MalformedError as error:
                raise self._located(line_number, error) from None
            self.doc_ids.append(_doc_id(comment))
            numbers.append(line_number)
        if not texts:
            return
        try:
            options = (texts, self.num_features, self.keep_missing)
            pairs = quick_pairs(*options) or strict_pairs(*options)
        except MalformedError as error:
            raise self._located(numbers[error.row], error) from None
        self.pairs.append(pairs)

    def _head(self, tokens: list[bytes], number: int) -> bytes:
        """Read the label and the qid, and return the text of the features."""
        label = tokens[0]
        if label not in self.label_of:
            if b":" in label:
                raise MalformedError("the label is missing", b" ".join(tokens))
            grade = parse_number(label)
            if grade is not None and grade < 0:
                problem = (
                    "the label must be >= 0 (leave out lines of padding or without a judgement)"
                )
                raise MalformedError(problem, label)
            if grade is None:
                raise MalformedError("the label must be a finite number >= 0", label)
            self.label_of[label] = grade
        self.labels.append(self.label_of[label])

        has_qid = len(tokens) > 1 and tokens[1].startswith(b"qid:")
        if has_qid != self.has_qid:
            if self.has_qid is not None and has_qid:
                raise MalformedError("a qid comes after lines without one", tokens[1])
            if not has_qid and (self.has_qid or self.group_file is None):
                raise MalformedError(self._qid_is_missing(), b" ".join(tokens))
            self.has_qid = has_qid
        if not has_qid:
            return b" ".join(tokens[1:])
        qid = tokens[1][4:]
        if not qid:
            raise MalformedError("the qid is empty", b" ".join(tokens))
        if b":" in qid and _FUSED.fullmatch(qid):
            problem = "a blank must stand between the qid and the first feature"
            raise MalformedError(problem, tokens[1])
        if not self.run_qids or self.run_qids[-1] != qid:
            self.run_qids.append(qid)
            self.runs.append([number, number, 0])
        self.runs[-1][1] = number
        self.runs[-1][2] += 1
        return tokens[2] if len(tokens) > 2 else b""

    def _qid_is_missing(self) -> str:
        if self.has_qid:
            return "the qid is missing"
        return (
            "the qid is missing, and there is no file of group sizes "
            f"{self.path.name}.query or {self.path.name}.group"
        )

    def _located(self, number: int, error: MalformedError) -> ValueError:
        return _error(self.path, number, error.problem, error.text)

    def finish(self, sort_by_qid: bool) -> ListDataset:
        """Return the lists, once the whole file is read."""
        documents = len(self.labels)
        if not documents:
            raise ValueError(f"{self.path}: the file must have at least one document, got none")
        width = self.num_features or max(pairs.width for pairs in self.pairs)
        if not width:
            raise ValueError(f"{self.path}: at least one line must have a feature, got none")
        if self.has_qid:
            self._check_spelling()
            qids = [_decode(qid) for qid in self.run_qids]
            sizes = [size for _, _, size in self.runs]
            back = None if sort_by_qid else find_return(self.run_qids)
            if back is not None:
                (first, last, _), (again, _, _) = self.runs[back[0]], self.runs[back[1]]
                problem = (
                    f"a qid must not come back (its list stood at lines {first} to {last}; "
                    "sort_by_qid=True gathers it)"
                )
                raise _error(self.path, again, problem, b"qid:" + self.run_qids[back[1]])
        else:
            assert self.group_file is not None  # else `_head` has raised
            sizes = _read_sizes(self.group_file, self.path, documents)
            qids = [str(i) for i in range(1, len(sizes) + 1)]

        return self._gathered(width, sizes, qids)

    def _check_spelling(self) -> None:
        """Refuse a number that is written in two ways, since a cache would hide a warning."""
        first: dict[bytes, int] = {}
        for place, qid in enumerate(self.run_qids):
            number = _WHOLE.fullmatch(qid)
            if number is None:
                continue
            other = first.setdefault(number[1] + number[2], place)
            if self.run_qids[other] != qid:
                problem = (
                    "a qid must be written in one way (qid:"
                    f"{_decode(self.run_qids[other])} stands at line {self.runs[other][0]}; write "
                    "both alike if they are one list, else give them different numbers)"
                )
                raise _error(self.path, self.runs[place][0], problem, b"qid:" + qid)

    def _gathered(self, width: int, sizes: list[int], qids: list[str]) -> ListDataset:
        documents = len(self.labels)
        features = np.zeros((documents, width), dtype=np.float32)
        start = 0
        self.pairs.reverse()
        while self.pairs:  # each block is freed once it is written
            pairs = self.pairs.pop()
            end = start + len(pairs.counts)
            pairs.write_to(features[start:end])
            start = end
        data = ListDataset(
            features,
            np.array(self.labels, dtype=np.float32),
            np.cumsum([0, *sizes], dtype=np.int64),
            qids,
            pa.array(self.doc_ids, pa.string()) if any(self.doc_ids) else None,
            rows=np.arange(documents) if len({*qids}) < len(qids) else None,
        )
        return gather_runs(data)


def _blocks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines of a file in blocks, with the number of the first line of each block."""
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    number, rest = 1, b""
    with open_text(path) as file:
        while True:
            chunk = file.read(_BLOCK)
            lines = (rest + chunk).split(b"\n")
            if number == 1 and chunk:
                lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            rest = lines.pop() if chunk else b""
            yield number, lines
            number += len(lines)
            if not chunk:
                return


def _read_sizes(group_file: Path, path: Path, documents: int) -> list[int]:
    sizes: list[int] = []
    for first, lines in _blocks(group_file):
        for number, line in enumerate(lines, start=first):
            text = line.strip()
            if text and (not re.fullmatch(rb"[0-9]{1,18}", text) or int(text) < 1):
                raise _error(group_file, number, "a group size must be a whole number >= 1", text)
            if text:
                sizes.append(int(text))
    if sum(sizes) != documents:
        raise ValueError(
            f"{group_file}: the group sizes must sum to the {documents} documents of {path}, "
            f"got {sum(sizes)}"
        )
    return sizes


def _error(path: Path, number: int, problem: str, text: bytes) -> ValueError:
    shown = _decode(text.strip())
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ValueError(f"{path}, line {number}: {problem}, got {shown!r}")


def _doc_id(comment: bytes) -> str:
    found = _DOC_ID.match(comment.strip())
    return _decode(found.group(1) if found else comment.strip())


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")

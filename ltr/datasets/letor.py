"""Read lists from LETOR / svmlight text, the usual format of published data sets.

The compiled parser (`ltr.datasets.svmlight_jit`) reads the usual lines, block by block. It leaves
any other line to the strict parser, which reads the line or reports its error.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.compressed import SUFFIXES, open_text
from ltr.datasets.lists import ListDataset, gather_runs, join_lists
from ltr.files import check_path
from ltr.shapes import check_at_least

BLOCK = 1 << 22
"""The bytes of text that are read at a time."""

MAX_INDEX = 2**20
"""A feature index above this is treated as a typo, unless `num_features` allows it."""

FLOAT32_OVERFLOW = 3.4028235677973366e38
"""The least number that float32 rounds to infinity."""

_GROUP_SUFFIXES = (".query", ".group")
_ROOM = 1 << 23  # the features of a chunk have at most this many bytes
# The `+` after a quantifier prevents backtracking, so the match takes linear time.
_NUMBER = re.compile(rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INDEX = re.compile(rb"-?[0-9]{1,18}")
_MISSING = (b"NULL", b"NaN", b"nan")
# Istella's files have the largest float64 for a missing value; see `svmlight_jit`.
_LARGEST = re.compile(rb"[+-]?1\.797[0-9]*+[eE]\+?308")
_DOC_ID = re.compile(rb"\s*docid\s*=\s*(\S+)")
# This matches a qid without a blank before the first feature, as in 71:0.7.
_FUSED = re.compile(rb".*[0-9]:" + _NUMBER.pattern)

Watch = Callable[[int, int, int], object]
"""A function that is called with the progress of a reader: bytes read, bytes in all, documents."""


def read_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    group_file: str | PathLike[str] | None = None,
    zero_based: bool | None = None,
) -> ListDataset:
    r"""Read learning-to-rank text: `label qid:Q 1:v 2:v ... # comment`, one document per line.

    The file may be plain text, gzip or zstd; its first bytes tell which. Lines end with LF or CRLF.
    Blank lines, lines with only a comment, and blanks at the end of a line are allowed. A feature
    that a line omits is 0. The values `NULL`, `NaN`, `nan` and 1.797...e308, the largest float64,
    which Istella's files have, are missing: NaN. The lines of a qid need not be together: they are
    gathered. Lists are in the order of their first lines, and the documents of a list in the order
    of their lines. If any line has a comment, the comments
    become document ids: `#docid = GX004-93-7097963 inc = 1` gives `GX004-93-7097963`, any other
    comment gives its text, and a line without a comment gives the empty string. LightGBM's files
    have no qids: a file of group sizes beside the data has the length of each list
    (`rank.train.query` or `rank.train.group` for `rank.train`). The qids are then "1", "2", ...

    Args:
        path: the file.
        num_features: the number of features; a larger index is an error. Default: as many as the
            largest index in the file (at most 1,048,576) needs.
        group_file: the file of group sizes. Default: the file beside `path`, if it exists.
        zero_based: whether the first feature has the index 0, as scikit-learn's
            `dump_svmlight_file` writes by default, or 1. Default: 0 if any line has this index.

    Returns:
        The lists: features float32 (documents, num_features), NaN if missing; the first column has
        the feature with the index 0 or 1, which is `first_feature` of the lists. If lines were
        gathered, `rows` has the original row of each document, from 0.

    Raises:
        ValueError: the file is missing, empty, damaged or in another format; a label is missing,
            negative or not a finite number; a qid is missing, or is joined to a feature or to a
            comment because a blank is missing; an `index:value` is malformed; an index is negative,
            too large or repeated in a line, or 0 although `zero_based` is False; a value is not a
            finite number; or the group sizes do not fit. The message names the file, the line and
            the text.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5 3:1 #docid = A1\n0 qid:7 2:0.25 #docid = B2\n")
    ...     data = read_letor(file)
    >>> data[0]["features"]
    tensor([[0.5000, 0.0000, 1.0000],
            [0.0000, 0.2500, 0.0000]])
    >>> data[0]["labels"], data[0]["doc_id"]
    (tensor([2., 0.]), ['A1', 'B2'])
    """
    return read_letor_files(
        [check_path("path", path)],
        num_features=num_features,
        group_file=group_file,
        zero_based=zero_based,
    )


def read_letor_files(
    files: Sequence[Path], zero_based: bool | None = None, **options: Any
) -> ListDataset:
    """Read several files as one; the options are those of `read_letor`.

    A list may continue in the next file.

    Raises:
        ValueError: see `read_letor`.
    """
    if zero_based is None:
        with suppress(ZeroIndexError):
            return read_letor_files(files, False, **options)
        return read_letor_files(files, True, **options)
    reader = LetorReader(files, zero_based=zero_based, **options)
    data = join_lists(reader.chunks(), across=True).widen(reader.width)
    returns = len({*data.qids}) < len(data.qids)
    return gather_runs(data.numbered() if returns else data)


class LetorReader:
    """A reader that yields the documents of LETOR text in chunks, each a `ListDataset`.

    The first list of a chunk continues the last list of the previous chunk if both have the same
    qid. A chunk has `width` features, and document ids if one of its lines has a comment.

    Args:
        files: the files, at least one.
        num_features: see `read_letor`.
        group_file: see `read_letor`.
        zero_based: whether the first feature has the index 0; otherwise it has the index 1.

    Attributes:
        files: the files that are read.
        group_files: for each file, its file of group sizes, or None.
        width: `num_features`; if it is None, the number of features so far.

    Raises:
        ValueError: an argument is out of range, or `group_file` does not exist.
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        num_features: int | None = None,
        group_file: str | PathLike[str] | None = None,
        zero_based: bool = False,
    ) -> None:
        if num_features is not None:
            check_at_least("num_features", num_features, 1)
        self.files = [*files]
        self.num_features = num_features
        self.group_file = group_file
        self.group_files = [find_group_file(file, group_file) for file in files]
        self.first_feature = 0 if zero_based else 1
        self._restart()

    def _restart(self) -> None:
        self.width = self.num_features or 0
        # This says whether lines have a qid, and is None before the first line.
        self._has_qid: bool | None = None
        self._groups = 0  # this is the number of groups in the files before this one
        self._file = Path()
        self._group_file: Path | None = None
        self._ends: np.ndarray | None = None  # the ends of this file's groups are read when needed
        self._documents = 0  # this counts the documents of this file so far

    def chunks(self, watch: Watch | None = None) -> Iterator[ListDataset]:
        """Yield the documents in chunks.

        Args:
            watch: called with the progress.

        Raises:
            ValueError: a line is malformed; see `read_letor`.
        """
        from ltr.datasets import svmlight_jit as compiled

        self._restart()
        sizes = [file.stat().st_size if file.is_file() else 0 for file in self.files]
        before = documents = 0
        for file, group_file, size in zip(self.files, self.group_files, sizes, strict=True):
            self._file, self._group_file = file, group_file
            self._ends, self._documents = None, 0
            for number, at, block in read_blocks(file):
                text = np.frombuffer(block, np.uint8)
                position, lines = 0, number - 1
                while position < len(text):
                    chunk = _Chunk(block, text, position, lines, self.width, self.first_feature)
                    self._fill(chunk, compiled)
                    position, lines, count = chunk.state[:3].tolist()
                    self._documents += count
                    lists = self._lists(chunk) if count else None
                    if lists is not None:
                        yield lists
                    if watch is not None:
                        watch(before + at, sum(sizes), documents + self._documents)
            self._finish_file()
            documents += self._documents
            before += size

    def _fill(self, chunk: "_Chunk", compiled: Any) -> None:
        """Read documents into a chunk until the text ends or the arrays are full."""
        while True:
            has_qid = self._has_qid is not False  # if this is not known yet, assume a qid
            options = (chunk.text, chunk.state, has_qid)
            arrays = (chunk.rows, chunk.labels, chunk.comments, chunk.runs, chunk.seen)
            why = compiled.parse(*options, *arrays)
            position, _, count, _, self.width, _ = chunk.state.tolist()
            if count:
                self._has_qid = has_qid
            if why != compiled.ODD or position >= len(chunk.text):
                return
            self._read_odd(chunk)

    def _read_odd(self, chunk: "_Chunk") -> None:
        """Read one line with the strict parser."""
        begin, lines = chunk.state[:2].tolist()
        number = lines + 1
        end = chunk.block.index(b"\n", begin)
        text, hash_sign, _ = chunk.block[begin:end].partition(b"#")
        if tokens := text.split(None, 2):
            try:
                label, qid, pairs = self._head(tokens)
                if hash_sign and qid is not None and text.endswith(b"qid:" + qid):
                    problem = "a blank must stand between the qid and a comment: a qid has no #"
                    raise MalformedError(problem, chunk.block[begin:end])
                indices, values = parse_pairs(pairs, self.num_features, self.first_feature)
            except MalformedError as error:
                bad = bad_line(self._file, number, error.problem, error.text)
                raise (ZeroIndexError(bad) if error.is_zero else bad) from None
            widest = max(self.width, *indices, 0)
            limit = MAX_INDEX if self.num_features is None else self.num_features
            span = (begin + len(text) + len(hash_sign), end)
            first = 0 if qid is None else begin + text.index(b"qid:" + qid) + 4
            qid_span = (first, first + len(qid or b""))
            chunk.add(label, qid_span, indices, values, span, widest, limit)
            self.width = widest
        chunk.state[:2] = end + 1, number

    def _head(self, tokens: list[bytes]) -> tuple[float, bytes | None, bytes]:
        """Return the label, the qid, and the text of the features."""
        label = parse_number(tokens[0])
        if b":" in tokens[0]:
            raise MalformedError("the label is missing", b" ".join(tokens))
        if label is not None and label < 0:
            problem = "the label must be >= 0 (leave out lines of padding or without a judgement)"
            raise MalformedError(problem, tokens[0])
        if label is None:
            raise MalformedError("the label must be a finite number >= 0", tokens[0])
        has_qid = len(tokens) > 1 and tokens[1].startswith(b"qid:")
        if self._has_qid is False and has_qid:
            raise MalformedError("this line has a qid, but earlier lines have none", tokens[1])
        if not has_qid and (self._has_qid or self._group_file is None):
            raise MalformedError(self._qid_is_missing(), b" ".join(tokens))
        self._has_qid = has_qid
        if not has_qid:
            return label, None, b" ".join(tokens[1:])
        qid = tokens[1][4:]
        if not qid:
            raise MalformedError("the qid is empty", b" ".join(tokens))
        if b":" in qid and _FUSED.fullmatch(qid):
            problem = "a blank must stand between the qid and the first feature"
            raise MalformedError(problem, tokens[1])
        return label, qid, tokens[2] if len(tokens) > 2 else b""

    def _qid_is_missing(self) -> str:
        if self._has_qid:
            return "the qid is missing"
        return (
            "the qid is missing, and there is no file of group sizes "
            f"{self._file.name}.query or {self._file.name}.group"
        )

    def _lists(self, chunk: "_Chunk") -> ListDataset | None:
        """Return a chunk as lists; None if the sum of the group sizes is too small for the file."""
        count, runs = chunk.state[2:4].tolist()
        if self._has_qid:
            starts = chunk.runs[:runs, 0]
            qids = [decode(chunk.text[a:b].tobytes()) for _, a, b in chunk.runs[:runs]]
        else:
            first, ends = self._documents - count, self._group_ends()
            if self._documents > ends[-1]:
                return None  # `_finish_file` reports the error, with the count of all documents
            begin, end = np.searchsorted(ends, [first, self._documents - 1], side="right")
            starts = np.r_[0, ends[begin:end] - first]
            qids = [str(self._groups + position + 1) for position in range(begin, end + 1)]
        spans, doc_id = chunk.comments[:count], []
        if (spans[:, 0] < spans[:, 1]).any():
            doc_id = [find_doc_id(chunk.block[a:b]) for a, b in spans.tolist()]
        lists = ListDataset(
            np.ascontiguousarray(chunk.rows[:count, : self.width]),
            chunk.labels[:count],
            np.r_[starts, count].astype(np.int64),
            qids,
            doc_id if any(doc_id) else None,
        )
        lists.first_feature = self.first_feature
        return lists

    def _group_ends(self) -> np.ndarray:
        if self._ends is None:
            if self._group_file is None:  # an earlier file had group sizes, but this one has none
                raise ValueError(f"{self._file}: {self._qid_is_missing()}")
            sizes = read_sizes(self._group_file)
            self._ends = np.cumsum(sizes) if len(sizes) else np.zeros(1, np.int64)
        return self._ends

    def _finish_file(self) -> None:
        """Check what can be checked only after the whole file has been read."""
        if not self._documents:
            raise ValueError(f"{self._file}: the file must have at least one document, got none")
        if not self.width:
            raise ValueError(f"{self._file}: at least one line must have a feature, got none")
        if self._has_qid and self.group_file is not None:
            raise ValueError(f"group_file must be None if lines have a qid, got {self.group_file}")
        if not self._has_qid:
            ends = self._group_ends()
            if self._documents != ends[-1]:
                raise ValueError(
                    f"{self._group_file}: the group sizes must sum to the {self._documents} "
                    f"documents of {self._file}, got {ends[-1]}"
                )
            self._groups += len(ends)


class _Chunk:
    """The arrays into which a chunk of the file is read; see `svmlight_jit.parse`.

    `state` has the position in the text, the number of lines before this position, the number of
    documents so far, the number of runs of documents with the same qid so far, the number of
    features so far, and the index of the first feature. `rows` may have more columns than features.
    """

    def __init__(
        self, block: bytes, text: np.ndarray, position: int, lines: int, width: int, first: int
    ) -> None:
        room = max(1, min(_ROOM // (4 * max(width, 1)), block.count(b"\n", position)))
        self.block = block
        self.text = text
        self.state = np.array([position, lines, 0, 0, width, first])
        self.rows = np.empty((room, width), np.float32)
        self.labels = np.empty(room, np.float32)
        self.comments = np.empty((room, 2), np.int64)
        self.runs = np.empty((room, 3), np.int64)
        self.seen = np.zeros(width, np.int64)

    def add(
        self,
        label: float,
        qid: tuple[int, int],
        indices: list[int],
        values: list[float],
        span: tuple[int, int],
        width: int,
        limit: int,
    ) -> None:
        """Add a document; if `rows` is too narrow, at least double its width, up to `limit`."""
        position, runs = self.state[2:4].tolist()
        if width > self.rows.shape[1]:
            before = self.rows
            wide = min(max(width, 2 * before.shape[1]), limit)
            room = min(len(before), max(position + 1, _ROOM // (4 * wide)))
            self.rows = np.zeros((room, wide), np.float32)
            self.rows[:position, : before.shape[1]] = before[:position]
            self.seen = np.zeros(wide, np.int64)
        self.rows[position] = 0
        self.rows[position, np.array(indices, np.int64) - 1] = values
        self.labels[position] = label
        self.comments[position] = span
        known = runs and self._name(*self.runs[runs - 1, 1:])
        if qid[1] and known != self._name(*qid):
            self.runs[runs] = position, *qid
            self.state[3] += 1
        self.state[2] += 1
        self.state[4] = width

    def _name(self, begin: int, end: int) -> bytes:
        return self.text[begin:end].tobytes()


def find_group_file(
    path: str | PathLike[str], group_file: str | PathLike[str] | None = None
) -> Path | None:
    """Return the file of group sizes for `path`: `group_file`, or a file beside `path`, or None.

    Raises:
        ValueError: `group_file` does not exist.

    >>> find_group_file("no/such/rank.train") is None
    True
    """
    if group_file is not None:
        file = check_path("group_file", group_file)
        if not file.is_file():
            raise ValueError(f"group_file must be a file, got {group_file}")
        return file
    stem = str(path)
    packed = Path(stem).suffix in SUFFIXES
    bases = (stem, stem.rpartition(".")[0]) if packed else (stem,)
    names = (x + y + z for x, y, z in product(bases, _GROUP_SUFFIXES, ("", *SUFFIXES)))
    return next((file for file in map(Path, names) if file.is_file()), None)


def read_blocks(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield a file in blocks of whole lines.

    Returns:
        For each block: the number of its first line, how many bytes of the (compressed) file have
        been read, and its text.

    Raises:
        ValueError: `path` is not a file.
    """
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    number, rest = 1, bytearray()
    with open_text(path) as file:
        while chunk := file.read(BLOCK):
            if number == 1 and not rest:
                chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                continue
            yield number, file.position(), (block := bytes(rest) + chunk[:end])
            number += block.count(b"\n")
            rest = bytearray(chunk[end:])
        if rest:
            yield number, file.position(), bytes(rest) + b"\n"


def read_sizes(group_file: Path) -> np.ndarray:
    """Return the group sizes in a file, int64 (groups,).

    Raises:
        ValueError: a line is not a whole number >= 1.
    """
    sizes: list[int] = []
    for number, line in _lines(group_file):
        text = line.strip()
        if text and (not re.fullmatch(rb"[0-9]{1,18}", text) or int(text) < 1):
            problem = "a group size must be a whole number >= 1"
            raise bad_line(group_file, number, problem, text)
        if text:
            sizes.append(int(text))
    return np.array(sizes, np.int64)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers."""
    for first, _, block in read_blocks(path):
        yield from enumerate(block.split(b"\n"), start=first)


def bad_line(path: Path, number: int, problem: str, text: bytes) -> ValueError:
    """Return an error that names a file, a line, the problem and the text."""
    shown = decode(text.strip())
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ValueError(f"{path}, line {number}: {problem}, got {shown!r}")


def decode(text: bytes) -> str:
    """Decode text as UTF-8, or as Latin-1 if it is not valid UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def find_doc_id(comment: bytes) -> str:
    """Return the document id of a comment: the name after `docid =`, or else the whole text.

    >>> find_doc_id(b"docid = A1 inc = 1"), find_doc_id(b" page 7 ")
    ('A1', 'page 7')
    """
    match = _DOC_ID.match(comment)
    return decode(match[1] if match else comment.strip())


class MalformedError(Exception):
    """A problem in a text; the reader adds the file and the line."""

    def __init__(self, problem: str, text: bytes, *, is_zero: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.text = text
        self.is_zero = is_zero


class ZeroIndexError(ValueError):
    """The index of a feature is 0, although the first one should be 1."""


def parse_number(text: bytes) -> float | None:
    """Return the number in `text`, or None if the text is not a number that float32 can hold."""
    if _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if abs(value) < FLOAT32_OVERFLOW else None


def parse_pairs(
    text: bytes, num_features: int | None, first: int = 1
) -> tuple[list[int], list[float]]:
    """Return the indices and values in a line's `index:value` text; refuse any other text.

    Args:
        text: the text.
        num_features: the number of features, if it is known.
        first: the index of the first feature, 0 or 1. The indices that are returned begin with 1.
    """
    limit = (MAX_INDEX if num_features is None else num_features) - 1 + first
    seen: dict[int, float] = {}
    # A line may be long, so it is read one token at a time.
    for match in re.finditer(rb"\S+", text):
        token = match[0]
        key, colon, value = token.partition(b":")
        if not colon or _INDEX.fullmatch(key) is None:
            raise MalformedError("a feature must be written index:value", token)
        index = int(key)
        if index < first or key.startswith(b"-"):
            is_zero = key.strip(b"0") == b""
            raise MalformedError(f"a feature index must be >= {first}", token, is_zero=is_zero)
        if index > limit:
            declared = "declare num_features for more" if num_features is None else "num_features"
            raise MalformedError(f"a feature index must be <= {limit} ({declared})", token)
        if index + 1 - first in seen:
            raise MalformedError("a line must not repeat a feature index", token)
        parsed = parse_number(value)
        if value in _MISSING or _LARGEST.fullmatch(value):
            parsed = math.nan
        if parsed is None:
            raise MalformedError("a feature value must be a finite number", token)
        seen[index + 1 - first] = parsed
    return list(seen), list(seen.values())

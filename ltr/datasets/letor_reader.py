"""Read LETOR text block by block: the usual lines compiled, any other by the strict parser."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ltr.datasets.letor_text import (
    as_strings,
    bad_line,
    decode,
    encode,
    read_blocks,
    read_sizes,
    refuse_return,
)
from ltr.datasets.lists import ListDataset
from ltr.datasets.seen_qids import SeenQids
from ltr.datasets.svmlight import MAX_INDEX, NUMBER, MalformedError, parse_number, parse_pairs

_ROOM = 1 << 23  # bytes of features at a time
_FUSED = re.compile(rb".*[0-9]:" + NUMBER.pattern)  # a qid, and a feature `1:0.7`


class LetorReader:
    """The documents of a file in pieces, each a `ListDataset`.

    The first list of a piece goes on with the last one of the piece before where both have the same
    qid. A piece is as wide as the largest index so far; it has document ids where a line of it has
    a comment.

    Args:
        path: the file.
        num_features: the largest index allowed, or None.
        group_file: the file of group sizes, for lines without a qid; None where there is none.
        keep_missing: whether NULL and NaN are missing values, or errors.
        gather: whether a qid may come back after another one.
        skipped: the qids of documents that are skipped.

    Attributes:
        has_qid: whether the lines have a qid; None before the first document.
        documents: how many there were so far, those that are skipped among them.
        width: the largest index so far.
    """

    def __init__(
        self,
        path: Path,
        num_features: int | None,
        group_file: Path | None,
        keep_missing: bool,
        gather: bool,
        skipped: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.num_features = num_features
        self.group_file = group_file
        self.keep_missing = keep_missing
        self.gather = gather
        self._ends: np.ndarray | None = None  # of the groups, read when they are needed
        self._alike, self._written = SeenQids(), SeenQids(spelling=True)
        self.has_qid: bool | None = None
        self.documents = 0
        self.width = num_features or 0
        self._last: bytes | None = None  # the qid of the last document
        self._skipped = 0
        names = map(encode, skipped)
        while chunk := list(islice(names, 1 << 16)):
            self._check(chunk)

    def pieces(
        self, skip: int = 0, watch: Callable[[int], object] | None = None
    ) -> Iterator[ListDataset]:
        """Yield the documents, without the first `skip` of them.

        Args:
            skip: how many documents to leave out.
            watch: called with the place in the file, in bytes of the file as it is.

        Raises:
            ValueError: a line is not as it should be; see `read_letor`.
        """
        from ltr.datasets import svmlight_jit as compiled

        self.documents = self._skipped = skip
        for number, block in read_blocks(self.path, watch):
            text = np.frombuffer(block, np.uint8)
            state = np.array([0, number - 1, skip])
            if skip:
                compiled.skip(text, state, skip)
                skip = int(state[2])
            place, lines = int(state[0]), int(state[1])
            while place < len(text):
                piece = _Piece(block, text, place, lines, self.width)
                self._fill(piece, compiled)
                place, lines = piece.place, piece.lines
                if piece.documents:
                    self.documents += piece.documents
                    if (lists := self._lists(piece, compiled)) is not None:
                        yield lists

    def _fill(self, piece: "_Piece", compiled: Any) -> None:
        """Read documents until the text or the room ends."""
        while True:
            has_qid = self.has_qid is not False  # or the first line is left to the strict parser
            options = (piece.text, piece.state, has_qid, self.keep_missing)
            arrays = (piece.rows, piece.labels, piece.ids, piece.runs, piece.seen)
            why = compiled.parse(*options, *arrays)
            self.width = piece.width
            if piece.documents:
                self.has_qid = has_qid
            if why != compiled.ODD or piece.place >= len(piece.text):
                return
            self._read_odd(piece, compiled)

    def _read_odd(self, piece: "_Piece", compiled: Any) -> None:
        """Read one line by the strict parser."""
        begin, number = piece.place, piece.lines + 1
        end = piece.block.index(b"\n", begin)
        text, hash_sign, _ = piece.block[begin:end].partition(b"#")
        if tokens := text.split(None, 2):
            try:
                label, qid, pairs = self._head(tokens)
                indices, values = parse_pairs(pairs, self.num_features, self.keep_missing)
            except MalformedError as error:
                raise bad_line(self.path, number, error.problem, error.text) from None
            widest = max(self.width, *indices, 0)
            limit = MAX_INDEX if self.num_features is None else self.num_features
            span = (end, end)
            if hash_sign:
                span = compiled.comment(piece.text, begin + len(text) + 1)[:2]
            first = 0 if qid is None else begin + text.index(b"qid:" + qid) + 4
            qid_span = (first, first + len(qid or b""))
            piece.add(label, qid_span, indices, values, span, widest, limit)
            self.width = widest
        piece.state[:2] = end + 1, number

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
        if self.has_qid is False and has_qid:
            raise MalformedError("a qid comes after lines without one", tokens[1])
        if not has_qid and (self.has_qid or self.group_file is None):
            raise MalformedError(self._qid_is_missing(), b" ".join(tokens))
        self.has_qid = has_qid
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
        if self.has_qid:
            return "the qid is missing"
        return (
            "the qid is missing, and there is no file of group sizes "
            f"{self.path.name}.query or {self.path.name}.group"
        )

    def _lists(self, piece: "_Piece", compiled: Any) -> ListDataset | None:
        """Return the documents of a piece as lists; None past the last group size."""
        count = piece.documents
        if self.has_qid:
            starts = piece.runs[: piece.state[3], 0]
            names = [piece.text[a:b].tobytes() for _, a, b in piece.runs[: piece.state[3]]]
            self._check(names)
            qids = [decode(name) for name in names]
        else:
            first, ends = self.documents - count, self._group_ends()
            if self.documents > ends[-1]:
                return None  # an error, but of all documents together
            begin, end = np.searchsorted(ends, [first, self.documents - 1], side="right")
            starts = np.r_[0, ends[begin:end] - first]
            qids = [str(place + 1) for place in range(begin, end + 1)]
        spans = piece.ids[:count]
        doc_ids = None
        if size := int((spans[:, 1] - spans[:, 0]).sum()):
            offsets, joined = np.zeros(count + 1, np.int32), np.empty(size, np.uint8)
            compiled.join(piece.text, spans, offsets, joined)
            doc_ids = as_strings(offsets, joined)
        return ListDataset(
            np.ascontiguousarray(piece.rows[:count, : self.width]),
            piece.labels[:count],
            np.r_[starts, count].astype(np.int64),
            qids,
            doc_ids,
        )

    def _group_ends(self) -> np.ndarray:
        if self._ends is None:
            assert self.group_file is not None  # else `_head` has raised
            sizes = read_sizes(self.group_file)
            self._ends = np.cumsum(sizes) if len(sizes) else np.zeros(1, np.int64)
        return self._ends

    def _check(self, names: list[bytes]) -> None:
        """Refuse a qid that comes back, and a number that is written in two ways."""
        fresh = names[1:] if names[0] == self._last else names
        self._last = names[-1]
        returns = self._alike.add(fresh)
        if self.gather:
            self._written.add(fresh)
        elif returns:
            refuse_return(self.path, self.gather)

    def finish(self) -> None:
        """Check what only the whole file shows.

        Raises:
            ValueError: there is no document or no feature, or the group sizes do not fit.
        """
        if not self.documents:
            raise ValueError(f"{self.path}: the file must have at least one document, got none")
        if not self.width and not self._skipped:
            raise ValueError(f"{self.path}: at least one line must have a feature, got none")
        if self.has_qid is False and self.documents != (total := int(self._group_ends()[-1])):
            raise ValueError(
                f"{self.group_file}: the group sizes must sum to the {self.documents} documents of "
                f"{self.path}, got {total}"
            )
        if self.gather and len(self._written) != len(self._alike):
            refuse_return(self.path, self.gather)


class _Piece:
    """The arrays that a piece of the file is read into."""

    def __init__(self, block: bytes, text: np.ndarray, place: int, lines: int, width: int) -> None:
        room = max(1, min(_ROOM // (4 * max(width, 1)), block.count(b"\n", place)))
        self.block = block
        self.text = text
        self.state = np.array([place, lines, 0, 0, width])
        self.rows = np.empty((room, width), np.float32)
        self.labels = np.empty(room, np.float32)
        self.ids = np.empty((room, 2), np.int64)
        self.runs = np.empty((room, 3), np.int64)
        self.seen = np.zeros(width, np.int64)

    @property
    def place(self) -> int:
        """Where the text goes on."""
        return int(self.state[0])

    @property
    def lines(self) -> int:
        """How many lines stand before."""
        return int(self.state[1])

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return int(self.state[2])

    @property
    def width(self) -> int:
        """The largest index so far; the rows may be wider."""
        return int(self.state[4])

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
        """Add a document; the rows at least double where they are too narrow, up to a limit."""
        place, runs = int(self.state[2]), int(self.state[3])
        if width > self.rows.shape[1]:
            before = self.rows
            wide = min(max(width, 2 * before.shape[1]), limit)
            room = min(len(before), max(place + 1, _ROOM // (4 * wide)))
            self.rows = np.zeros((room, wide), np.float32)
            self.rows[:place, : before.shape[1]] = before[:place]
            self.seen = np.zeros(wide, np.int64)
        self.rows[place] = 0
        self.rows[place, np.array(indices, np.int64) - 1] = values
        self.labels[place] = label
        self.ids[place] = span
        known = runs and self._name(*self.runs[runs - 1, 1:])
        if qid[1] and known != self._name(*qid):
            self.runs[runs] = place, *qid
            self.state[3] += 1
        self.state[2] += 1
        self.state[4] = width

    def _name(self, begin: int, end: int) -> bytes:
        return self.text[begin:end].tobytes()

"""Find qids that return in a stream, and qids that spell one number in two ways.

Examples are 5, 05 and 5.0. pandas writes 5.0 if a column of numbers has a missing value. Without a
check one query would become two lists.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.table_errors import RowError

_WHOLE = re.compile(rb"[+]?(-?)(?=[0-9])0*+([0-9]*+)(?:\.0*+)?")
_NUMBER = r"^[+]?(-?)0*([0-9]+?)(?:\.0*)?$"  # the same for Arrow
_RECENT = 16


class SeenQids:
    """The qids of a stream's lists, as hashes of 8 bytes: did one occur before?

    Two qids may have the same hash, about once in 2^64 pairs, so a match is only a suspicion.

    Args:
        spelling: whether 5, 05 and 5.0 are different qids.

    >>> seen = SeenQids()
    >>> seen.add([b"5", b"6"]), seen.add([b"7", b"05"]), len(seen)
    (False, True, 3)
    """

    def __init__(self, spelling: bool = False) -> None:
        self._spelling = spelling
        self._known = np.empty(0, np.int64)  # sorted, and so are the next ones
        self._recent: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self._merged())

    def add(self, qids: Sequence[bytes]) -> bool:
        """Add the qids of the next lists; return whether one of them occurred before."""
        names = qids if self._spelling else [spelled_alike(qid) for qid in qids]
        return self.add_numbers(np.fromiter(map(hash, names), np.int64, len(names)))

    def add_numbers(self, numbers: np.ndarray) -> bool:
        """Do the same with whole numbers, int64 (n,), instead of names and their hashes."""
        hashes = np.unique(numbers)
        again = len(hashes) < len(numbers) or any(
            (known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes).any()
            for known in (self._known, *self._recent)
            if len(known)
        )
        if len(hashes):
            self._recent.append(hashes)
        if len(self._recent) > _RECENT:
            self._known, self._recent = self._merged(), []
        return again

    def _merged(self) -> np.ndarray:
        return np.unique(np.concatenate([self._known, *self._recent]))


def spelled_alike(qid: bytes) -> bytes:
    """Return a qid in its plain spelling: without a plus, leading zeros or a zero fraction.

    >>> spelled_alike(b"05.0"), spelled_alike(b"00"), spelled_alike(b"a05")
    (b'5', b'0', b'a05')
    """
    number = _WHOLE.fullmatch(qid)
    return qid if number is None else number[1] + (number[2] or b"0")


def has_other_spelling(qids: pa.ChunkedArray) -> bool:
    """Return whether a number among the qids is not in its plain spelling.

    >>> has_other_spelling(pa.chunked_array([["5", "-1.5", "a05"], ["5.0"]]))
    True
    """
    distinct = pc.unique(qids)
    plain = pc.replace_substring_regex(distinct, _NUMBER, r"\1\2")
    return bool(pc.any(pc.not_equal(distinct, plain)).as_py())


def check_spelling(read: Callable[[], Iterable[pa.ChunkedArray]], column: str) -> None:
    """Raise an error if the qids have a number in two spellings.

    Only if a number is not in its plain spelling, all qids are read again and kept in 16 bytes
    each.

    Args:
        read: yields the column of the qids as text, chunk by chunk.
        column: its name, for the error.

    Raises:
        RowError: there are two such qids.
    """
    if not any(map(has_other_spelling, read())):
        return
    alike, written = SeenQids(), SeenQids(spelling=True)
    for chunk in read():
        names = [qid.encode() for qid in pc.unique(chunk.drop_null()).to_pylist()]
        alike.add(names)
        written.add(names)
    if len(alike) < len(written):
        _refuse_spelling(read(), column)


def _refuse_spelling(chunks: Iterable[pa.ChunkedArray], column: str) -> None:
    """Raise the error that names the first two rows."""
    first: dict[bytes, tuple[str, int]] = {}
    qids = (qid for chunk in chunks for qid in chunk.to_pylist())
    for row, qid in enumerate(qids):
        other, position = first.setdefault(spelled_alike((qid or "").encode()), (qid, row))
        if qid != other:
            problem = (
                f"a qid must be written in one way, got {qid!r} (write both alike if they are one "
                f"list, else give them different names) and {other!r}"
            )
            raise RowError(row, column, problem, position)

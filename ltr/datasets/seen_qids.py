"""Remember the qids of a stream, in 8 bytes each."""

import re
from collections.abc import Sequence

import numpy as np

_WHOLE = re.compile(rb"[+]?(-?)(?=[0-9])0*+([0-9]*+)(?:\.0*+)?")
_RECENT = 16


class SeenQids:
    """The qids of a stream's lists by their hashes: was one there before?

    Two qids may share a hash, about once in 2^64 pairs: so a return is a suspicion.

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
        """Add the qids of the next lists; return whether one was there before."""
        names = qids if self._spelling else [spelled_alike(qid) for qid in qids]
        hashes = np.unique(np.fromiter(map(hash, names), np.int64, len(names)))
        again = len(hashes) < len(names) or any(
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
    """Return a qid, a whole number without zeros in front or behind the point.

    >>> spelled_alike(b"05.0"), spelled_alike(b"00"), spelled_alike(b"a05")
    (b'5', b'0', b'a05')
    """
    number = _WHOLE.fullmatch(qid)
    return qid if number is None else number[1] + (number[2] or b"0")

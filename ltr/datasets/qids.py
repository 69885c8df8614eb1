"""Find qids that return in a stream."""

from collections.abc import Sequence

import numpy as np

_RECENT = 16


class SeenQids:
    """The qids of a stream's lists, as hashes of 8 bytes: did one occur before?

    Two qids may have the same hash, about once in 2^64 pairs, so a match is only a suspicion.

    >>> seen = SeenQids()
    >>> seen.add([b"5", b"6"]), seen.add([b"05"]), seen.add([b"7", b"5"])
    (False, False, True)
    """

    def __init__(self) -> None:
        self._known = np.empty(0, np.int64)  # sorted, and so are the next ones
        self._recent: list[np.ndarray] = []

    def add(self, qids: Sequence[bytes]) -> bool:
        """Add the qids of the next lists; return whether one of them occurred before."""
        return self.add_numbers(np.fromiter(map(hash, qids), np.int64, len(qids)))

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

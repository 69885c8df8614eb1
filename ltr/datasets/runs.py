"""Runs of one qid: find those that come back, and join them."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ltr.datasets.lists import ListDataset


def find_return(runs: Sequence[Hashable]) -> tuple[int, int] | None:
    """The first run whose name came before: (where it was last, where it comes back), or None.

    >>> find_return(["a", "b", "a"])
    (0, 2)
    """
    last: dict[Hashable, int] = {}
    for place, name in enumerate(runs):
        if name in last:
            return last[name], place
        last[name] = place
    return None


def gather_runs(data: "ListDataset") -> "ListDataset":
    """Join runs of the same qid into one list each, in the order of first appearance, stably.

    >>> from ltr.datasets.lists import ListDataset
    >>> rows = np.ones((3, 1), dtype=np.float32)
    >>> runs = ListDataset(rows, np.arange(3.0), np.arange(4), ["a", "b", "a"])
    >>> joined = gather_runs(runs)
    >>> joined.qids, joined.labels.tolist()
    (['a', 'b'], [0.0, 2.0, 1.0])
    """
    names = list(dict.fromkeys(data.qids))
    if len(names) == len(data):
        return data
    place = {name: i for i, name in enumerate(names)}
    groups = np.array([place[name] for name in data.qids])
    order = np.argsort(groups, kind="stable")
    ordered = data.select(order)
    lengths = np.bincount(groups, weights=data.lengths, minlength=len(names)).astype(np.int64)
    offsets = np.r_[0, np.cumsum(lengths)]
    ordered.offsets, ordered.qids = offsets, names
    return ordered

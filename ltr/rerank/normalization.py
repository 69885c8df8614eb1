"""Bring the scores of a ranker to one scale, list by list."""

from typing import Any, Literal

import numpy as np

from ltr.arrays import as_scores, list_numbers, rank
from ltr.shapes import check_choice

Normalization = Literal["min_max", "z", "rank", "none"]
NORMALIZATIONS = ("min_max", "z", "rank", "none")


def normalize_scores(scores: Any, qid: Any = None, method: Normalization = "min_max") -> np.ndarray:
    """Return the scores of each list on one scale, float64 (rows,), in the same ranking.

    By rounding, scores that are nearly equal can become equal.

    Args:
        scores: (rows,), finite. Without rows, the result is empty.
        qid: (rows,), the query of each row, in any order. Default: all rows are one list.
        method: for a score s in a list of n items, "min_max" gives (s - min) / (max - min), in
            [0, 1]; "z" gives (s - mean) / (standard deviation with the divisor n); "rank" gives
            1 - (position - 1) / n, in (0, 1], with ties in the order of the rows; "none" gives s.

    Returns:
        The scores. With "min_max" and "z", the scores of a list with one item, or with only equal
        scores, become 0.

    Raises:
        ValueError: a score is not finite, `qid` does not have one name for each row, or the method
            is unknown.

    Cost: one pass; "rank" needs one sort.

    >>> normalize_scores([1.0, 3.0, 2.0, 7.0], ["a", "a", "a", "b"]).tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    check_choice("method", method, *NORMALIZATIONS)
    values = as_scores(scores).astype(np.float64)
    if (bad := np.flatnonzero(np.isinf(values))).size:
        raise ValueError(f"scores must be finite, got {values[bad[0]]} in row {bad[0]}")
    lists = list_numbers(qid, len(values))
    if method == "none" or not len(values):
        return values
    sizes = np.bincount(lists)
    if method == "rank":
        return 1 - (rank(values, lists) - 1) / sizes[lists]
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, lists, np.abs(values))
    # A division by a power of two rounds only values that become subnormal. After it, no
    # difference or square overflows.
    values = np.ldexp(values, -np.frexp(largest)[1][lists])
    low, high = np.full(len(sizes), np.inf), np.full(len(sizes), -np.inf)
    np.minimum.at(low, lists, values)
    np.maximum.at(high, lists, values)
    varies = high > low
    if method == "min_max":
        return (values - low[lists]) / np.where(varies, high - low, 1)[lists]
    centered = values - (np.bincount(lists, values) / sizes)[lists]
    deviation = np.sqrt(np.bincount(lists, centered**2) / sizes)
    return np.where(varies[lists], centered / np.where(deviation > 0, deviation, 1)[lists], 0.0)

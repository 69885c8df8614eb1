"""The scores of several rankers as one array, from arrays with `qid`, dicts or TREC files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from typing import Any, Protocol, Self

import numpy as np

from ltr.arrays import as_array, as_numbers, list_numbers
from ltr.metrics.joined import raw_bytes
from ltr.metrics.trec import read_run

AnyRun = Mapping[str, Mapping[str, float]] | str | PathLike[str]
"""A run: for each query, the score of each document; or the path of a TREC file."""


class Array(Protocol):
    """An array of numpy, pandas, polars or torch."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the values as an array of numpy."""
        ...


@dataclass(frozen=True)
class Rankers:
    """The scores that rankers gave to rows.

    Attributes:
        scores: (rankers, rows) float64; NaN if the ranker did not retrieve the document.
        lists: (rows,), the number of each row's list.
        names: (rows,), the documents of runs, in descending order within a list; empty for arrays.
        qids: the queries of runs, by the number of the list; empty for arrays.
    """

    scores: np.ndarray
    lists: np.ndarray
    names: Sequence[str] = ()
    qids: Sequence[str] = ()

    @classmethod
    def of_arrays(cls, arrays: Any, qid: Any) -> Self:
        """Return the scores of several arrays (rows,), or of one array (rankers, rows).

        >>> Rankers.of_arrays([[1, 2], [3, np.nan]], None).scores
        array([[ 1.,  2.],
               [ 3., nan]])
        """
        each = [as_numbers("rankers", array).astype(np.float64) for array in _rows(arrays)]
        if any(array.ndim != 1 or array.shape != each[0].shape for array in each):
            shapes = " and ".join(str(array.shape) for array in each)
            raise ValueError(f"rankers must have one shape (rows,), got {shapes}")
        scores = np.stack(each)
        for ranker, row in np.argwhere(np.isinf(scores))[:1]:
            raise ValueError(
                f"rankers must have finite scores, got {scores[ranker, row]} in row {row} of "
                f"ranker {ranker}"
            )
        return cls(scores, list_numbers(qid, scores.shape[1]))

    @classmethod
    def of_runs(cls, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> Self:
        """Return the scores of runs, with a row for each document that any run has for a query.

        >>> Rankers.of_runs([{"q": {"a": 2.0}}, {"q": {"b": 1.0}}]).names
        ['b', 'a']
        """
        qids = list(dict.fromkeys(qid for run in runs for qid in run))
        lists: list[int] = []
        names: list[str] = []
        columns: list[list[float]] = [[] for _ in runs]
        for number, qid in enumerate(qids):
            each = [run.get(qid, {}) for run in runs]
            if wrong := [run for run in each if not isinstance(run, Mapping)]:
                raise ValueError(
                    f"rankers must have scores by document by query, got {wrong[0]!r} for {qid!r}"
                )
            documents = {name for run in each for name in run}
            if wrong := [name for name in (qid, *documents) if not isinstance(name, str)]:
                raise ValueError(f"rankers must name queries and documents, got {wrong[0]!r}")
            # trec_eval ranks equal scores by descending name.
            known = sorted(documents, key=raw_bytes, reverse=True)
            lists += [number] * len(known)
            names += known
            for column, run in zip(columns, each, strict=True):
                column += [
                    _finite(run[name], name, qid) if name in run else np.nan for name in known
                ]
        scores = np.array(columns, np.float64).reshape(len(runs), len(names))
        return cls(scores, np.array(lists, np.int64), names, qids)


def are_runs(rankers: Any) -> bool:
    """Return True if the rankers are runs, and False if they are arrays.

    Raises:
        ValueError: the rankers are not a list, are an empty list, or mix runs and arrays.

    >>> are_runs(["a.run", {"q": {"a": 1.0}}]), are_runs([[1.0, 2.0]])
    (True, False)
    """
    sized = hasattr(rankers, "__len__") and getattr(rankers, "ndim", 1) > 0
    if _is_run(rankers) or not sized or not len(rankers):
        raise ValueError(f"rankers must be a list of at least one ranker, got {rankers!r}")
    kinds = {_is_run(ranker) for ranker in _rows(rankers)}
    if len(kinds) > 1:
        raise ValueError("rankers must be all runs or all arrays, got both")
    return kinds.pop()


def read_runs(rankers: Sequence[AnyRun]) -> list[Mapping[str, Mapping[str, float]]]:
    """Return the runs, after reading those that are given as files.

    Raises:
        ValueError: a file is invalid; a run shares no query with the others.

    >>> read_runs([{"1": {"a": 1.0}}, {"2": {"a": 1.0}}])
    Traceback (most recent call last):
    ValueError: rankers must have queries in common, got run 0 with none of the others'
    """
    runs = [ranker if isinstance(ranker, Mapping) else read_run(ranker) for ranker in rankers]
    for number, run in enumerate(runs):
        others = {qid for other in (*runs[:number], *runs[number + 1 :]) for qid in other}
        if len(runs) > 1 and not others & run.keys():
            name = f"run {number}" if isinstance(rankers[number], Mapping) else rankers[number]
            raise ValueError(
                f"rankers must have queries in common, got {name} with none of the others'"
            )
    return runs


def _rows(rankers: Any) -> Any:
    """Return the rankers one by one: the rows of a table, whose iterator would give columns."""
    return as_array(rankers) if hasattr(rankers, "__array__") else rankers


def _is_run(ranker: Any) -> bool:
    return isinstance(ranker, (Mapping, str, PathLike))


def _finite(score: Any, name: str, qid: str) -> float:
    try:
        good = isfinite(score)
    except (TypeError, OverflowError):  # the score is not a number, or too large for a float
        good = False
    if not good:
        raise ValueError(f"rankers must have finite scores, got {score!r} for {name!r} of {qid!r}")
    return float(score)

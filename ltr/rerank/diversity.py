"""Diversify ranked lists: by the similarity of documents, or by their topics."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ltr.arrays import as_numbers, as_scores, list_numbers, rank, rows_by_list
from ltr.gains import greedy_topics
from ltr.shapes import check_number, check_top_k


def mmr(
    scores: Any,
    qid: Any = None,
    *,
    vectors: Any = None,
    similarity: Any = None,
    trade_off: float = 0.5,
    top_k: int | None = None,
) -> np.ndarray:
    """Return positions by maximal marginal relevance: high scores, few similar rows.

    The row with the highest score is first. Each further position, up to k, gets the row with the
    largest trade_off * score - (1 - trade_off) * (the largest similarity to a row that is ranked
    higher). Rows with equal values are taken in the order of the rows. The remaining rows follow by
    score.

    Args:
        scores: (rows,), finite. They are compared with similarities, so bring scores and
            similarities to one scale: see `normalize_scores`.
        qid: (rows,), the query of each row, in any order. Default: all rows are one list.
        vectors: (rows, dimensions), finite. The similarity of two rows is the cosine of their
            vectors, 0 for a vector of zeros.
        similarity: (rows, rows), finite, instead of vectors. Only pairs within a list are used.
        trade_off: the weight of the scores, in [0, 1]. With 1, only scores matter. With 0, only
            similarities matter, except at the first position.
        top_k: k, how many positions to fill in this way. Default: all.

    Returns:
        The position of each row within its list, from 1, int32 (rows,); empty if there are no rows.

    Raises:
        ValueError: neither or both of vectors and similarity are given, a shape does not fit, a
            value is not finite, or an option is out of range.

    Cost: O(n k) for a list of n rows, times the number of dimensions if vectors are given. A matrix
    of similarities is read once more.

    Reference: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering
    documents and producing summaries", SIGIR 1998.

    >>> mmr([0.9, 0.8, 0.5], vectors=[[1, 0], [1, 0], [0, 1]]).tolist()
    [1, 3, 2]
    """
    values = _finite("scores", as_scores(scores))
    lists, share = list_numbers(qid, len(values)), _unit("trade_off", trade_off)
    if (vectors is None) == (similarity is None):
        given = "neither" if vectors is None else "both"
        raise ValueError(f"vectors or similarity must be given, got {given}")
    if vectors is not None:
        table = _matrix("vectors", vectors, len(values))
        # Each row is divided by a power of two, which rounds only values that become subnormal.
        # After it, no square overflows, and the square of the largest value does not underflow.
        largest = np.abs(table).max(1, initial=0, keepdims=True)
        table = np.ldexp(table, -np.frexp(largest)[1])
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
        table = table / np.where(lengths > 0, lengths, 1)
    else:
        table = _matrix("similarity", similarity, len(values), len(values))

    def choose(rows: np.ndarray, count: int) -> Sequence[int]:
        own, near = values[rows], table[rows]
        free, closest = np.ones(len(rows), bool), np.full(len(rows), -np.inf)
        chosen = [int(own.argmax())]
        while len(chosen) < count:
            last = chosen[-1]
            free[last] = False
            to_last = near[:, rows[last]] if vectors is None else near @ near[last]
            closest = np.maximum(closest, to_last)
            gains = share * own - (1 - share) * closest
            chosen.append(int(np.where(free, gains, -np.inf).argmax()))
        return chosen

    return _positions(values, lists, top_k, choose)


def diversify(
    scores: Any,
    topics: Any,
    qid: Any = None,
    *,
    alpha: float = 0.5,
    top_k: int | None = None,
) -> np.ndarray:
    """Return positions by greedy alpha-NDCG: each position gets the row with the most new topics.

    A row gains the sum over topics of t * (the product over the rows above of 1 - alpha * s), where
    t is the degree of the topic in the row, and s is its degree in a row above. Rows with equal
    gains are taken by descending score, then in the order of the rows. The remaining rows follow by
    score. With equal scores, this is the ideal order of the metric `AlphaNDCG`.

    Args:
        scores: (rows,), finite.
        topics: (rows, topics), in [0, 1]: the degree to which each row is about each topic. If you
            know the probability that a row is relevant, multiply its degrees by this probability.
        qid: (rows,), the query of each row, in any order. Default: all rows are one list.
        alpha: the fraction of the gain that a topic loses each time it is seen, in [0, 1].
        top_k: k, how many positions to fill in this way. Default: all.

    Returns:
        The position of each row within its list, from 1, int32 (rows,); empty if there are no rows.

    Raises:
        ValueError: a shape does not fit, a score is not finite, the degree of a topic is outside
            [0, 1], or an option is out of range.

    Cost: O(n k topics) for a list of n rows.

    Reference: Clarke et al., "Novelty and diversity in information retrieval evaluation", SIGIR
    2008; Agrawal et al., "Diversifying search results", WSDM 2009.

    >>> diversify([0.9, 0.8, 0.5], [[1, 0], [1, 0], [0, 1]]).tolist()
    [1, 3, 2]
    """
    values = _finite("scores", as_scores(scores))
    lists, alpha = list_numbers(qid, len(values)), _unit("alpha", alpha)
    table = _matrix("topics", topics, len(values))
    if (outside := np.argwhere((table < 0) | (table > 1))).size:
        row, topic = outside[0]
        raise ValueError(f"topics must lie in [0, 1], got {table[row, topic]:g} in row {row}")

    def choose(rows: np.ndarray, count: int) -> Sequence[int]:
        order = np.argsort(-values[rows], kind="stable")
        _, items = greedy_topics(torch.from_numpy(table[rows[order]]), alpha, count)
        return order[items.numpy()].tolist()

    return _positions(values, lists, top_k, choose)


def _positions(
    scores: np.ndarray,
    lists: np.ndarray,
    top_k: int | None,
    choose: Callable[[np.ndarray, int], Sequence[int]],
) -> np.ndarray:
    """Return positions (rows,): in each list first the chosen rows, then the others by score."""
    check_top_k(top_k)
    positions = np.empty(len(scores), np.int32)
    for rows in rows_by_list(lists):
        count = len(rows) if top_k is None else min(top_k, len(rows))
        chosen = rows[choose(rows, count)]
        rest = np.setdiff1d(rows, chosen)
        positions[chosen] = np.arange(count) + 1
        positions[rest] = count + rank(scores[rest])
    return positions


def _matrix(name: str, values: Any, rows: int, columns: int | None = None) -> np.ndarray:
    table = as_numbers(name, values).astype(np.float64)
    wanted = "columns" if columns is None else columns
    if table.ndim != 2 or len(table) != rows or columns not in (None, table.shape[1]):
        raise ValueError(f"{name} must have the shape ({rows}, {wanted}), got {table.shape}")
    return _finite(name, table)


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    if (bad := np.argwhere(~np.isfinite(values))).size:
        raise ValueError(f"{name} must be finite, got {values[tuple(bad[0])]} in row {bad[0][0]}")
    return values.astype(np.float64)


def _unit(name: str, value: float) -> float:
    """Return `value` as a float, or raise an error if it is not in [0, 1]."""
    if check_number(name, value, minimum=0) > 1:
        raise ValueError(f"{name} must be <= 1, got {value!r}")
    return float(value)

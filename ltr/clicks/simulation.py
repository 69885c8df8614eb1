"""Simulated clicks: user models, and their sessions over lists with known labels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ltr.arrays import as_names, as_numbers, list_numbers, rank
from ltr.clicks.position_bias import PositionBias
from ltr.shapes import check_at_least, check_flag, check_top_k, check_whole

_CHUNK = 1 << 16
"""The number of sessions that are drawn at a time: their arrays fit into the CPU's caches."""


class _User(ABC):
    """A user who sees a list from the top, and clicks on attractive documents."""

    attraction: Sequence[float]

    def click_probabilities(self, labels: Any) -> np.ndarray:
        """Return the probability of a click on each document, float64 (..., n), in closed form.

        Args:
            labels: (..., n), the grades of documents, in the order in which a list shows them.

        Raises:
            ValueError: a label is not a grade for which `attraction` has a probability, or labels
                have no dimension.
        """
        return self._probabilities(self._attracts(labels))

    def _attracts(self, labels: Any) -> np.ndarray:
        """Return the probability of a click after a look (..., n), from grades (..., n)."""
        grades, table = as_numbers("labels", labels), np.array(self.attraction)
        if not grades.ndim:
            raise ValueError(f"labels must have at least one dimension, got {labels!r}")
        good = (grades >= 0) & (grades < len(table)) & (grades == np.floor(grades))
        if len(bad := np.argwhere(~good)):
            where = bad[0].tolist()
            raise ValueError(
                f"labels must be whole numbers from 0 to {len(table) - 1}, for which attraction "
                f"has probabilities, got {grades[tuple(where)]} in row {where[-1]}"
            )
        return table[grades.astype(np.int64)]

    @abstractmethod
    def _probabilities(self, attracts: np.ndarray) -> np.ndarray:
        """Return the probabilities of clicks (..., n)."""

    @abstractmethod
    def _clicks(self, attracts: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Return whether each document is clicked in one session of each list, (..., n)."""


@dataclass(frozen=True)
class PositionBased(_User):
    """A user who looks at each position independently, with a probability for each position.

    The probability of a click is the propensity of the position times the attraction of the
    document. This is the model that `ltr.losses.Unbiased` assumes.

    Args:
        attraction: the probability, in [0, 1], of a click on a document that the user looks at, for
            grades 0, 1 and so on.
        bias: the propensities. Default: `PositionBias()`, 1 / position.

    Raises:
        ValueError: a probability is outside [0, 1], no probability is given, or `bias` is not a
            `PositionBias`.

    Reference: Craswell, Zoeter, Taylor and Ramsey, "An experimental comparison of click
    position-bias models", WSDM 2008.

    >>> PositionBased([0.1, 0.8]).click_probabilities([1, 0, 1, 0]).round(3).tolist()
    [0.8, 0.05, 0.267, 0.025]
    """

    attraction: Sequence[float]
    bias: PositionBias = field(default_factory=PositionBias)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attraction", _checked("attraction", self.attraction))
        if not isinstance(self.bias, PositionBias):
            raise ValueError(f"bias must be a PositionBias, got {self.bias!r}")

    def _probabilities(self, attracts: np.ndarray) -> np.ndarray:
        position = torch.arange(1, attracts.shape[-1] + 1, dtype=torch.float64)
        return attracts * self.bias(position).numpy()

    def _clicks(self, attracts: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        return draw.random(attracts.shape, np.float32) < self._probabilities(attracts)


@dataclass(frozen=True)
class DependentClick(_User):
    """A user who reads from the top, and after a click continues with some probability.

    The user looks at one document after the other, until the end of the list or until a click after
    which the user stops. The probability of a click at position k is a_k times the product of
    1 - a_j (1 - lambda_j) over the positions j above k. Here a_k is the attraction of the document
    at position k, and lambda_j is the probability of continuing after a click at position j.

    Args:
        attraction: the probability, in [0, 1], of a click on a document that the user looks at, for
            grades 0, 1 and so on.
        continuation: lambda, the probability, in [0, 1], that the user continues after a click; or
            a probability for each of the positions 1, 2 and so on. Later positions have the last
            probability. With 0 this is `Cascade`; with 1 there is no position bias.

    Raises:
        ValueError: a probability is outside [0, 1], or no probability is given.

    Reference: Guo, Liu and Wang, "Efficient multiple-click models in web search", WSDM 2009.

    >>> DependentClick([0.1, 0.8], 0.5).click_probabilities([1, 0, 1, 0]).round(3).tolist()
    [0.8, 0.06, 0.456, 0.034]
    """

    attraction: Sequence[float]
    continuation: float | Sequence[float] = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "attraction", _checked("attraction", self.attraction))
        several = np.ndim(self.continuation) > 0
        checked = _checked("continuation", np.atleast_1d(self.continuation))
        object.__setattr__(self, "continuation", checked if several else checked[0])

    def _leaves(self, length: int) -> np.ndarray:
        """Return the probability (n,) that the user stops after a click at each position."""
        table = np.atleast_1d(self.continuation)
        return 1 - table[np.minimum(np.arange(length), len(table) - 1)]

    def _probabilities(self, attracts: np.ndarray) -> np.ndarray:
        stays = np.cumprod(1 - attracts * self._leaves(attracts.shape[-1]), axis=-1)
        return attracts * _shifted(stays, 1.0)

    def _clicks(self, attracts: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        chance = draw.random(attracts.shape, np.float32)
        # One random number decides the click and the stop: given a click, chance / attracts is
        # uniform in [0, 1).
        leaves = chance < attracts * self._leaves(attracts.shape[-1])
        gone = np.logical_or.accumulate(leaves, axis=-1)
        return (chance < attracts) & ~_shifted(gone, False)


@dataclass(frozen=True)
class Cascade(_User):
    """A user who reads from the top, clicks on the first attractive document, and stops.

    The probability of a click at position k is a_k times the product of 1 - a_j over the positions
    j above k, where a_k is the attraction of the document at position k. A session has at most one
    click.

    Args:
        attraction: the probability, in [0, 1], of a click on a document that the user looks at, for
            grades 0, 1 and so on.

    Raises:
        ValueError: a probability is outside [0, 1], or no probability is given.

    Reference: Craswell, Zoeter, Taylor and Ramsey, "An experimental comparison of click
    position-bias models", WSDM 2008.

    >>> Cascade([0.1, 0.8]).click_probabilities([1, 0, 1, 0]).round(3).tolist()
    [0.8, 0.02, 0.144, 0.004]
    """

    attraction: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attraction", _checked("attraction", self.attraction))

    def _probabilities(self, attracts: np.ndarray) -> np.ndarray:
        return DependentClick(self.attraction, 0.0)._probabilities(attracts)

    def _clicks(self, attracts: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        return DependentClick(self.attraction, 0.0)._clicks(attracts, draw)


def simulate_clicks(
    user: PositionBased | Cascade | DependentClick,
    labels: Any,
    scores: Any,
    qid: Any = None,
    *,
    sessions: int,
    top_k: int | None = None,
    swaps: bool = False,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return the log of simulated sessions: which documents were shown where, and the clicks.

    Each session has a query that is drawn at random, and shows the documents of the query by
    descending score; documents with equal scores are in the order of the rows. The log is a dict of
    columns, for `pandas.DataFrame`, `polars.DataFrame` or `pyarrow.table`. A row is one document of
    one session; rows are in the order of sessions, then of positions. Sessions without a click are
    kept.

    | column | |
    | --- | --- |
    | `session` | the number of the session, from 0; the `qid` for training |
    | `qid` | the query, as given; the `qid` for `PositionBias.estimate` |
    | `row` | the document, as a row of `labels`; the `doc_id` for `PositionBias.estimate` |
    | `position` | where the document was shown, from 1 |
    | `click` | 1 for a click, otherwise 0 |
    | `swap` | only with `swaps`: the position k of the experiment, see below |

    Args:
        user: `PositionBased`, `Cascade` or `DependentClick`.
        labels: (rows,), the grades, whole numbers for which `user.attraction` has a probability.
        scores: (rows,), the scores of the production ranker, not NaN; or (rankers, rows), the
            scores of several rankers, of which one is drawn for each session, as in an A/B test.
            The position bias can be estimated if documents are shown at several positions.
        qid: (rows,), the query of each row, in any order. Default: all rows are one list.
        sessions: the number of sessions, >= 1.
        top_k: the largest number of documents in a session. Default: all documents are shown.
        swaps: whether each session is part of an experiment: a position k >= 2 is drawn, and the
            documents at positions 1 and k are exchanged with probability 1/2. The column `swap` is
            k, or 0 in a list of one document.
        seed: the seed of the random numbers, >= 0.

    Raises:
        ValueError: `user` is no such user, there are no rows, a label has no probability, a score
            is NaN, a shape does not fit, or an option is out of range.

    Cost: one second for 1,000,000 sessions of ten documents. The log takes 300 MB, 29 bytes per
    row (33 with `swaps`), and the peak memory is 900 MB.

    >>> log = simulate_clicks(Cascade([0.0, 1.0]), [0, 1, 1], [3.0, 2.0, 1.0], sessions=2)
    >>> {name: column.tolist() for name, column in log.items() if name != "qid"}
    {'session': [0, 0, 0, 1, 1, 1], 'row': [0, 1, 2, 0, 1, 2], 'position': [1, 2, 3, 1, 2, 3], \
'click': [0, 1, 0, 0, 1, 0]}
    """
    if not isinstance(user, _User):
        raise ValueError(f"user must be a PositionBased, Cascade or DependentClick, got {user!r}")
    attracts = user._attracts(labels)
    if attracts.ndim != 1 or not len(attracts):
        raise ValueError(f"labels must have the shape (rows,), with rows, got {attracts.shape}")
    lists, count = list_numbers(qid, len(attracts)), check_whole("sessions", sessions)
    check_flag("swaps", swaps)
    shown = _shown(scores, lists, check_top_k(top_k))
    names = lists if qid is None else as_names("qid", qid)
    draw = np.random.default_rng(check_at_least("seed", seed, 0))
    rankers, queries, longest = shown.shape
    sizes = (shown[0] >= 0).sum(-1)
    position = np.arange(1, longest + 1, dtype=np.int32)
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, count, _CHUNK):
        session = np.arange(start, min(start + _CHUNK, count))
        query = draw.integers(queries, size=len(session))
        rows = shown[draw.integers(rankers, size=len(session)), query]
        swap = np.zeros(len(session), np.int32)
        if swaps:
            swap = (draw.random(len(session)) * (sizes[query] - 1)).astype(np.int32)
            swap += 2 * (sizes[query] > 1)  # it is 0 in a list of one document, otherwise 2, 3, ...
            moved = np.flatnonzero((draw.random(len(session)) < 0.5) & (swap > 0))
            other = swap[moved] - 1
            rows[moved, 0], rows[moved, other] = rows[moved, other], rows[moved, 0]
        real = rows >= 0
        clicks = user._clicks(np.where(real, attracts[rows], 0.0), draw).astype(np.int8)
        columns = (session[:, None], rows, position, clicks, swap[:, None])
        parts.append(tuple(np.broadcast_to(column, real.shape)[real] for column in columns))
    session, rows, shown_at, clicks, swap = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    log = {"session": session, "qid": names[rows], "row": rows}
    log |= {"position": shown_at, "click": clicks}
    return {**log, "swap": swap} if swaps else log


def _shown(scores: Any, lists: np.ndarray, top_k: int | None) -> np.ndarray:
    """Return the row that each ranker shows at each position, (rankers, lists, k); -1 for none."""
    table = np.atleast_2d(as_numbers("scores", scores))
    if table.ndim != 2 or not len(table) or table.shape[1] != len(lists):
        raise ValueError(
            f"scores must have the shape (rows,) or (rankers, rows) for {len(lists)} rows, got "
            f"{np.shape(scores)}"
        )
    longest = int(np.bincount(lists).max())
    longest = longest if top_k is None else min(longest, top_k)
    shown = np.full((len(table), lists.max() + 1, longest), -1)
    for ranker, values in enumerate(table):
        position = rank(values, lists)
        seen = np.flatnonzero(position <= longest)
        shown[ranker, lists[seen], position[seen] - 1] = seen
    return shown


def _shifted(values: np.ndarray, first: Any) -> np.ndarray:
    """Return the values (..., n) shifted by one position, with `first` at the first position."""
    start = np.full((*values.shape[:-1], 1), first)
    return np.concatenate([start, values[..., :-1]], axis=-1)


def _checked(name: str, values: Any) -> tuple[float, ...]:
    """Return probabilities as a tuple, or raise an error that names the argument."""
    table = as_numbers(name, values)
    if table.ndim != 1 or not len(table) or not ((table >= 0) & (table <= 1)).all():
        raise ValueError(f"{name} must be probabilities in [0, 1], got {values!r}")
    return tuple(table.astype(float).tolist())

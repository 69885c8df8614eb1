"""Where to cut lists off so that few of them lose what is relevant, by conformal risk control."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ltr.arrays import as_numbers, as_scores, check_labels, list_numbers, rank
from ltr.names import plural
from ltr.shapes import check_choice, check_fraction

Risk = Literal["none", "recall"]
Of = Literal["scores", "documents"]


@dataclass(frozen=True)
class Cutoff:
    """The result of `cutoff`: `print` it, or call `keep` for new lists.

    Attributes:
        value: the least score that is kept, or the number of documents of a list that are kept.
        of: "scores" or "documents": what `value` is.
        loss: "none" or "recall": what `risk` limits.
        risk: the limit on the expected loss of a new list.
        observed: the mean loss on the lists that chose the cutoff.
        kept: the mean fraction of a list's documents that the cutoff keeps, on these lists.
        lists: how many lists chose the cutoff.
        left_out: how many lists have no relevant document, and do not count.
    """

    value: float
    of: Of
    loss: Risk
    risk: float
    observed: float
    kept: float
    lists: int
    left_out: int

    def keep(self, scores: Any, qid: Any = None) -> np.ndarray:
        """Return whether each row is kept, bool (rows,).

        Args:
            scores: (rows,), not NaN, of the ranker that chose the cutoff.
            qid: (rows,), the query of each row, in any order. Default: all rows are one list.
        """
        values = as_scores(scores)
        if self.of == "scores":
            list_numbers(qid, len(values))  # checks qid
            return values >= self.value
        return rank(values, qid) <= self.value

    def __str__(self) -> str:
        what = {
            "none": "of new lists keep no relevant document",
            "recall": "of a new list's relevant documents are lost on average",
        }[self.loss]
        value = f"scores >= {self.value:.6g}" if self.of == "scores" else f"{self.value:.0f} first"
        left_out = f"; {self.left_out:,} without a relevant document" if self.left_out else ""
        return (
            f"keep {value}: at most {100 * self.risk:g} % {what}\n"
            f"on {self.lists:,} {plural(self.lists, 'list')}: {100 * self.observed:.2f} %, and "
            f"{100 * self.kept:.1f} % of the documents are kept{left_out}"
        )


def cutoff(
    scores: Any,
    labels: Any,
    qid: Any,
    risk: float = 0.05,
    *,
    loss: Risk = "none",
    of: Of = "scores",
) -> Cutoff:
    """Return the highest cutoff that guarantees that few new lists lose relevant documents.

    A list's loss is 1 if it keeps no relevant document (`loss="none"`), or the fraction of its
    relevant documents that it loses, 1 - recall (`loss="recall"`). The cutoff is the highest at
    which (lists * mean loss + 1) / (lists + 1) <= `risk`. Then the expected loss of a new list is
    at most `risk`, for any ranker and any distribution of lists. The condition is that the new list
    and the given lists are exchangeable, for example drawn from the same queries and not used to
    train the ranker. The expectation is also over the given lists, so one set of lists may choose a
    cutoff that is somewhat too high. The guarantee holds for lists with a relevant document.

    Args:
        scores: (rows,), the scores of validation lists, not NaN.
        labels: (rows,), numbers >= 0; above 0 is relevant.
        qid: (rows,), the query of each row, in any order.
        risk: the limit on the expected loss, in (0, 1).
        loss: "none" or "recall".
        of: "scores" for a threshold on scores, the same for all lists, which keeps many documents
            of some lists and few of others; "documents" for a number of documents per list. Equal
            scores are kept together by a threshold, and in the order of the rows by a number.

    Returns:
        A `Cutoff`. Cost: two sorts.

    Raises:
        ValueError: shapes or values are wrong, or fewer than 1 / risk - 1 lists have a relevant
            document: so few lists cannot show such a small risk.

    Reference: Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024
    (arXiv 2208.02814), theorem 1.

    >>> rng = np.random.default_rng(0)
    >>> qid = np.repeat(np.arange(200), 10)
    >>> labels = rng.random(2000) < 0.3
    >>> scores = labels + rng.normal(size=2000)
    >>> found = cutoff(scores, labels, qid, risk=0.05)
    >>> print(found)
    keep scores >= 0.0958967: at most 5 % of new lists keep no relevant document
    on 194 lists: 4.12 %, and 56.1 % of the documents are kept; 6 without a relevant document
    >>> found.keep([2.0, 0.05, 0.9])
    array([ True, False,  True])
    """
    values = as_scores(scores)
    grades = as_numbers("labels", labels).astype(np.float64)
    if grades.shape != values.shape:
        raise ValueError(f"labels must have the shape of scores {values.shape}, got {grades.shape}")
    check_labels("labels", grades)
    check_fraction("risk", risk)
    check_choice("loss", loss, "none", "recall")
    check_choice("of", of, "scores", "documents")
    if qid is None:
        raise ValueError("qid must be the query of each row, got None")
    lists = list_numbers(qid, len(values))
    number = int(lists.max(initial=-1)) + 1
    relevant = np.bincount(lists, grades > 0, number)
    counted = int((relevant > 0).sum())
    # Of `counted` + 1 losses, the unknown one may be 1.
    spare = risk * (counted + 1) - 1
    if spare < -1e-9:
        raise ValueError(
            f"at least {math.ceil(1 / risk - 1 - 1e-9)} lists with a relevant document are needed "
            f"for risk {risk:g}, got {counted}"
        )
    rows = np.flatnonzero(grades > 0)
    # A row with a higher height is kept longer as the cutoff rises.
    height = values.astype(np.float64)
    if of == "documents":
        height = -rank(values, lists).astype(np.float64)
    rows = rows[np.lexsort((height[rows], lists[rows]))]
    weights = 1 / relevant[lists[rows]]
    if loss == "none":  # the best relevant document of a list alone decides
        rows = rows[np.r_[lists[rows[1:]] != lists[rows[:-1]], True]]
        weights = np.ones(len(rows))
    order = np.argsort(height[rows], kind="stable")
    ends, weights = height[rows][order], weights[order]
    below = np.r_[0.0, np.cumsum(weights)][np.searchsorted(ends, ends)]  # the loss of each cutoff
    best = np.flatnonzero(below <= spare + 1e-9)[-1]
    kept = height >= ends[best]
    fractions = np.bincount(lists, kept, number) / np.bincount(lists, minlength=number)
    return Cutoff(
        value=float(ends[best]) if of == "scores" else float(-ends[best]),
        of=of,
        loss=loss,
        risk=float(risk),
        observed=float(below[best] / counted),
        kept=float(fractions.mean()),
        lists=counted,
        left_out=number - counted,
    )

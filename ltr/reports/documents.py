"""The ranked documents of each model's lists, and how far two models agree."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ltr.metrics.functional import kendall_tau
from ltr.metrics.joined import trec_order
from ltr.metrics.trec import Qrels, Run


class Document(NamedTuple):
    """A document at a position of a list; the label is NaN if the document is not judged."""

    position: int
    name: str
    score: float
    label: float


@dataclass(frozen=True)
class Documents:
    """The documents of one model's lists, list after list, each list with the best document first.

    Attributes:
        lists: the rows of each list in the arrays below, by the list's qid.
        names: (rows,) the documents' ids; if `has_ids` is False, the numbers of their rows in the
            table, from 1.
        scores: (rows,) float64.
        labels: (rows,) float64; NaN for a document that is not judged.
        relevant: how many relevant documents each list has, by the list's qid, including documents
            that are not retrieved.
        has_ids: whether the names are document ids, which mean the same document for all models.
    """

    lists: dict[Any, slice]
    names: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    relevant: dict[Any, int]
    has_ids: bool

    def of(self, qid: Hashable) -> list[Document]:
        """Return the documents of a list, the best first; [] if the qid is unknown."""
        rows = self.lists.get(qid, slice(0))
        names = self.names[rows].tolist()
        shown = names if self.has_ids else [f"row {number:,}" for number in names]
        columns = (shown, self.scores[rows].tolist(), self.labels[rows].tolist())
        return [Document(i, *row) for i, row in enumerate(zip(*columns, strict=True), 1)]

    def has_the_documents_of(self, other: "Documents") -> bool:
        """Return whether equal names mean the same document in both objects.

        This is True if both objects have ids, and False if only one has ids. Without ids, it is
        True if both objects come from the same rows: from one table, or from two tables with equal
        qids and labels in each row.
        """
        if self.has_ids or other.has_ids:
            return self.has_ids and other.has_ids
        if len(self.names) != len(other.names) or [*self.lists] != [*other.lists]:
            return False
        return all(
            np.array_equal(own, others)
            for own, others in zip(self._by_row(), other._by_row(), strict=True)
        )

    def _by_row(self) -> tuple[np.ndarray, np.ndarray]:
        # Return the number of each row's list, and each row's label, in the order of the table.
        order = np.argsort(self.names)
        return self.list_numbers()[order], self.labels[order]

    def list_numbers(self) -> np.ndarray:
        """Return the number of each row's list, (rows,)."""
        return np.repeat(np.arange(len(self.lists)), self.lengths())

    def lengths(self) -> np.ndarray:
        """Return how many documents each list has, (lists,)."""
        return np.array([rows.stop - rows.start for rows in self.lists.values()], np.int64)


def run_documents(run: Run, qrels: Qrels) -> Documents:
    """Return the documents of a run for each judged query, in the order of trec_eval.

    >>> documents = run_documents({"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 1, "c": 1}})
    >>> documents.of("q")[1], documents.relevant["q"]
    (Document(position=2, name='a', score=1.0, label=1.0), 2)
    """
    lists: dict[Any, slice] = {}
    relevant: dict[Any, int] = {}
    names: list[str] = []
    scores: list[float] = []
    labels: list[float] = []
    for qid, judged in qrels.items():
        retrieved = run.get(qid, {})
        order = trec_order(retrieved)
        lists[qid] = slice(len(names), len(names) + len(order))
        relevant[qid] = sum(label > 0 for label in judged.values())
        names += order
        scores += [retrieved[name] for name in order]
        grades = [judged.get(name, -1) for name in order]
        labels += [grade if grade >= 0 else np.nan for grade in grades]
    ids = np.empty(len(names), object)
    ids[:] = names
    return Documents(lists, ids, np.array(scores), np.array(labels), relevant, has_ids=True)


def table_documents(
    qids: Sequence[Any],
    numbers: np.ndarray,
    labels: np.ndarray,
    scores: np.ndarray,
    names: np.ndarray | None = None,
) -> Documents:
    """Return the documents of a table; those with equal scores keep the order of the rows.

    Args:
        qids: the qid of each list.
        numbers: (rows,) int64, the number of each row's list.
        labels: (rows,) float64.
        scores: (rows,) float64.
        names: (rows,) the documents' ids. Default: the numbers of the rows, from 1.

    >>> lists = np.array([0, 1, 0])
    >>> table = table_documents(["x", "y"], lists, np.array([1.0, 0, 0]), np.array([1.0, 2, 3]))
    >>> [document.name for document in table.of("x")]
    ['row 3', 'row 1']
    """
    order = np.lexsort((-scores, numbers))
    ends = np.cumsum(np.bincount(numbers, minlength=len(qids)))
    starts = [0, *ends[:-1].tolist()]
    lists = {q: slice(*ends) for q, *ends in zip(qids, starts, ends.tolist(), strict=True)}
    relevant = np.bincount(numbers, weights=labels > 0, minlength=len(qids)).astype(int)
    return Documents(
        lists=lists,
        names=order + 1 if names is None else names[order],
        scores=scores[order],
        labels=labels[order],
        relevant=dict(zip(qids, relevant.tolist(), strict=True)),
        has_ids=names is not None,
    )


def repeated_name(lists: np.ndarray, names: np.ndarray) -> int | None:
    """Return the first row whose document occurs in an earlier row of the same list, or None.

    >>> repeated_name(np.array([0, 0, 1, 0]), np.array(["a", "b", "a", "a"]))
    3
    """
    import pandas as pd

    again = pd.DataFrame({"list": lists, "name": names}).duplicated().to_numpy()
    return int(again.argmax()) if again.any() else None


class RankingAgreement(NamedTuple):
    """How far two models agree, as means over lists.

    Attributes:
        lists: the number of lists in which both models ranked documents.
        overlap: the fraction of a model's first k documents that the other one also has among its
            first k.
        same_first: the fraction of the lists in which both models have the same first document.
        tau: Kendall's tau between the two orders of the documents that both models ranked; NaN if
            no list has two such documents.
    """

    lists: int
    overlap: float
    same_first: float
    tau: float


def ranking_agreement(a: Documents, b: Documents, k: int) -> RankingAgreement | None:
    """Return how far two models agree; None if there is no list in which both rank documents.

    The overlap of a list is the number of documents that both models have among their first k,
    divided by k, or by the length of the longer ranking if both are shorter than k.

    >>> qrels = {"q": {"d": 1}}
    >>> a = run_documents({"q": {"d": 4.0, "e": 3.0, "f": 2.0}}, qrels)
    >>> b = run_documents({"q": {"d": 2.0, "e": 1.0, "f": 1.5}}, qrels)
    >>> both = ranking_agreement(a, b, k=2)
    >>> both.overlap, both.same_first, round(both.tau, 4)
    (0.5, 1.0, 0.3333)
    """
    import pandas as pd

    number = {qid: i for i, qid in enumerate(a.lists)}
    lengths = np.zeros((len(number), 2), np.int64)
    frames = []
    for side, model in enumerate((a, b)):
        numbers = np.array([number.get(qid, -1) for qid in model.lists], np.int64)
        lengths[numbers[numbers >= 0], side] = model.lengths()[numbers >= 0]
        starts = np.array([rows.start for rows in model.lists.values()], np.int64)
        row_lists = model.list_numbers()
        columns = {
            "list": numbers[row_lists],
            "name": model.names,
            "position": np.arange(1, len(model.names) + 1) - starts[row_lists],
        }
        frames.append(pd.DataFrame(columns))
    counted = lengths.min(1) > 0
    if not counted.any():
        return None
    both = frames[0].merge(frames[1], on=["list", "name"])
    both = both[both["list"] >= 0]
    positions = both[["position_x", "position_y"]].to_numpy()
    lists = both["list"].to_numpy()
    shared = np.bincount(lists[(positions <= k).all(1)], minlength=len(number))
    first = np.bincount(lists[(positions == 1).all(1)], minlength=len(number))
    overlap = shared[counted] / np.minimum(lengths[counted].max(1), k)
    tau = np.nan
    if np.bincount(lists).max(initial=0) > 1:
        best = torch.tensor(
            positions.max() - positions
        ).double()  # a document that is ranked higher has a higher value
        tau = kendall_tau(best[:, 0], best[:, 1], qid=torch.tensor(lists), empty="skip").item()
    return RankingAgreement(
        lists=int(counted.sum()),
        overlap=float(overlap.mean()),
        same_first=float(first[counted].mean()),
        tau=tau,
    )

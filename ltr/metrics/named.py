"""Find metrics by name, such as `ndcg@10`; the names of ir_measures and trec_eval also work."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import ltr.metrics
from ltr.config import parameters
from ltr.metrics import RankingMetric, functional
from ltr.metrics.base import CutoffMetric
from ltr.names import nearest

_SHORT = {"average_precision": "map"}
_OTHERS = {"alpha_ndcg"}  # its labels have an axis of subtopics

ELSEWHERE = {
    "ap": "map",
    "p": "precision",
    "r": "recall",
    "recip_rank": "mrr",
    "rprec": "r_precision",
    "rr": "mrr",
    "success": "hit_rate",
}
"""Names of ir_measures and trec_eval, in lower case, and the names of these metrics here."""


@dataclass(frozen=True)
class Measure:
    """A metric and its cutoff, such as `ndcg@10`.

    >>> Measure("ndcg", 10).title
    'ndcg@10'
    """

    name: str
    top_k: int | None = None

    @property
    def title(self) -> str:
        """The metric's name, `@` and the cutoff."""
        return self.name if self.top_k is None else f"{self.name}@{self.top_k}"

    @property
    def takes_cutoff(self) -> bool:
        """Whether the metric takes a cutoff."""
        return "top_k" in parameters(self.kind)

    @property
    def kind(self) -> type[RankingMetric]:
        """The class, whose name has the same letters: `hit_rate` means `HitRate`."""
        letters = self.name.replace("_", "")
        return next(
            getattr(ltr.metrics, name) for name in ltr.metrics.__all__ if name.lower() == letters
        )

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, (lists,).

        Args:
            scores: (items,), one list after the other.
            labels: (items,).
            lengths: (lists,).
            largest: the highest possible label, for ERR and graded RBP.
            weights: (items,); only some metrics take them.

        Raises:
            ValueError: weights are given, and the metric takes none.
        """
        if weights is not None and not self.kind.takes_weights:
            raise ValueError(f"metric must support item weights, got {self.title!r}")
        metric = self.make({"max_label": largest} if largest > 0 else {})
        return metric.measure(scores, labels, lengths=lengths, weights=weights, reduction="none")

    def make(self, given: Mapping[str, Any]) -> RankingMetric:
        """Return the metric with its cutoff and those of the given options that it takes."""
        known = parameters(self.kind)
        options = {name: value for name, value in given.items() if name in known}
        if self.top_k is not None:
            options["top_k"] = self.top_k
        return self.kind(running=False, **options)


def metric_names() -> list[str]:
    """Return the names of the metrics in `ltr.metrics.functional` that need only scores and labels.

    >>> {"ndcg", "map", "mrr"} <= set(metric_names())
    True
    """
    return sorted(_SHORT.get(name, name) for name in set(functional.__all__) - _OTHERS)


def parse_measures(
    names: Sequence[str], cutoffs: Sequence[int] = (), *, of_runs: bool = False
) -> list[Measure]:
    """Return the metrics of these names.

    Upper and lower case are equivalent. The names of ir_measures and trec_eval also work, and mean
    the metrics of this library: the gain and the divisor of MAP are options.

    Args:
        names: names with or without a cutoff: `ndcg@10`, `map`; `nDCG@10`, `RR`, `P@5`;
            `ndcg_cut_10`, `recip_rank`, `P_5`.
        cutoffs: the cutoffs of each metric without one.
        of_runs: whether the lists are truncated, so that metrics of whole lists are refused.

    Raises:
        ValueError: a metric is unknown, takes no cutoff, or needs one.

    >>> [measure.title for measure in parse_measures(["nDCG@10", "RR", "P_5", "AP"])]
    ['ndcg@10', 'mrr', 'precision@5', 'map']
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"metrics must be a list of names, got {names!r}")
    known = metric_names()
    found: list[Measure] = []
    for text in names:
        name, at, cutoff = _parts(text, known)
        if name not in known:
            raise ValueError(f"metrics: no metric {name!r}: {nearest(name, known)}")
        kind, takes_cutoff = Measure(name).kind, Measure(name).takes_cutoff
        if at and not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) >= 1):
            raise ValueError(f"metrics: {name}@K must have a K >= 1, got {text!r}")
        if at and not takes_cutoff:
            raise ValueError(f"metrics: {name} takes no cutoff, got {text!r}")
        if of_runs and not issubclass(kind, CutoffMetric):
            raise ValueError(f"metrics: {name} needs whole lists, which a run does not have")
        if of_runs and kind.divides_by_k and not at and not cutoffs:
            raise ValueError(f"metrics: {name} of a run needs a cutoff, such as {name}@10")
        whole = [Measure(name)]
        each = [Measure(name, k) for k in cutoffs] if takes_cutoff else []
        found += [Measure(name, int(cutoff))] if at else each or whole
    return list(dict.fromkeys(found))


def ranking_measure(name: str) -> Measure:
    """Return the metric by which rankers are chosen; higher must be better.

    Raises:
        ValueError: the metric is unknown, or lower is better.

    >>> ranking_measure("MRR@10").title
    'mrr@10'
    """
    if not isinstance(name, str):
        raise ValueError(f"metric must be the name of a metric, got {name!r}")
    try:
        (measure,) = parse_measures([name])
    except ValueError as error:
        raise ValueError(f"metric must be a metric's name: {error}") from None
    if not measure.kind.higher_is_better:
        raise ValueError(f"metric must be higher for better rankings, got {name!r}")
    return measure


def _parts(text: str, known: Sequence[str]) -> tuple[str, str, str]:
    # the name, "@" if there is a cutoff, and the cutoff; trec_eval writes ndcg_cut_10, P_5 and P.5
    name, at, cutoff = text.partition("@")
    name = name.lower()
    if not at and name not in known:
        trec = re.fullmatch(r"(.+?)(?:_cut)?[_.](\d+)", name)
        name, at, cutoff = (trec[1], "@", trec[2]) if trec else (name, "", "")
    return ELSEWHERE.get(name, name), at, cutoff

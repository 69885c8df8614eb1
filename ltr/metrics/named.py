"""Find metrics by name, such as `ndcg@10`; the names of ir_measures and trec_eval also work."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from torch import Tensor

import ltr.metrics
from ltr.metrics import RankingMetric, functional
from ltr.metrics.joined import divided_by_k
from ltr.names import nearest

Metric = Callable[..., Tensor]

_LONG = {"map": "average_precision"}
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
        return "top_k" in signature(self.metric).parameters

    @property
    def metric(self) -> Metric:
        """The function."""
        return getattr(functional, _LONG.get(self.name, self.name))

    @property
    def kind(self) -> type[RankingMetric]:
        """The class."""
        named = (getattr(ltr.metrics, name) for name in ltr.metrics.__all__)
        return next(x for x in named if getattr(x, "function", None) is self.metric)

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
        known = signature(self.metric).parameters
        options: dict[str, Any] = {"lengths": lengths, "reduction": "none"}
        if self.top_k is not None:
            options["top_k"] = self.top_k
        if "max_label" in known and largest > 0:
            options["max_label"] = largest
        if weights is not None:
            if "weights" not in known:
                raise ValueError(f"metric must support item weights, got {self.title!r}")
            options["weights"] = weights
        return self.metric(scores, labels, **options)

    def make(self, given: dict[str, Any], depth: int | None = None) -> RankingMetric:
        """Return the metric with its cutoff and the options that it takes.

        Args:
            given: options by name.
            depth: the cutoff of a metric without its own cutoff. Default: none.
        """
        known = signature(self.metric).parameters
        options = {name: value for name, value in given.items() if name in known}
        if self.top_k is not None:
            options["top_k"] = self.top_k
        elif depth is not None and known["top_k"].default is None:
            options["top_k"] = depth
        return self.kind(keep_values=True, **options)


def metric_names() -> list[str]:
    """Return the names of the metrics in `ltr.metrics.functional` that need only scores and labels.

    >>> {"ndcg", "map", "mrr"} <= set(metric_names())
    True
    """
    found = []
    for name in set(functional.__all__) - _OTHERS:
        known = signature(getattr(functional, name)).parameters
        needed = [p for p, spec in known.items() if spec.default is Parameter.empty]
        if "reduction" in known and needed == ["scores", "labels"]:
            found.append(next((short for short, long in _LONG.items() if long == name), name))
    return sorted(found)


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
        takes_cutoff = Measure(name).takes_cutoff
        if at and not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) >= 1):
            raise ValueError(f"metrics: {name}@K must have a K >= 1, got {text!r}")
        if at and not takes_cutoff:
            raise ValueError(f"metrics: {name} takes no cutoff, got {text!r}")
        # rbo compares two orders of the same items
        if of_runs and (not takes_cutoff or name == "rbo"):
            raise ValueError(f"metrics: {name} needs whole lists, which a run does not have")
        if of_runs and not at and not cutoffs and divided_by_k(Measure(name).metric):
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

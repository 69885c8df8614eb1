"""Find metrics by name, such as `ndcg@10`; the names of ir_measures and trec_eval also work."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ltr.config import parameters
from ltr.metrics import functional
from ltr.metrics.core import MetricCore
from ltr.names import nearest

_FUNCTIONS = {"map": "average_precision"}
"""The functions of metrics whose names differ."""

_OTHERS = {
    "alpha_ndcg": "its labels have an axis of topics",
    "gmap": "it is no mean over lists, which intervals and tests need",
}

ELSEWHERE = {
    "11pt_avg": "interpolated_precision",
    "ap": "map",
    "gm_map": "gmap",
    "iprec": "interpolated_precision",
    "iprec_at_recall": "interpolated_precision",
    "p": "precision",
    "r": "recall",
    "recip_rank": "mrr",
    "rprec": "r_precision",
    "rr": "mrr",
    "set_f": "set_f_beta",
    "set_p": "set_precision",
    "setf": "set_f_beta",
    "setp": "set_precision",
    "setr": "set_recall",
    "success": "hit_rate",
}
"""Maps names in ir_measures and trec_eval, in lower case, to the names of the metrics here."""

_OPTIONS = {"cutoff": "top_k", "rel": "relevant_from"}
"""Maps names of parameters in ir_measures to the names of the options here."""


@dataclass(frozen=True)
class Measure:
    """A metric of an evaluation: a named one, such as `map(relevant_from=2)@10`, or an object.

    Attributes:
        title: the name with its options and its cutoff; for an object, the class and its arguments,
            such as `MRR(top_k=5)`.
        metric: the metric's arithmetic.
        given: the names of the arguments that the user chose; all of them for an object.

    >>> (measure,) = parse_measures(["mrr@3"])
    >>> measure.make({"ties": "worst"})
    MRRCore(top_k=3, ties='worst')
    >>> values = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([2.0, 0.0, 3.0])
    >>> measure.per_list(*values, torch.tensor([2, 1]), largest=3.0)
    tensor([0.5000, 1.0000])
    """

    title: str
    metric: MetricCore = field(compare=False)
    given: Collection[str] = field(compare=False)

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        return bool(self.metric.higher_is_better)

    def gain(self, options: Mapping[str, Any]) -> Any:
        """Return the metric's gain; None if it has none, or if the title shows it."""
        return None if "gain=" in self.title else self.make(options).arguments.get("gain")

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, (lists,); NaN for an empty list.

        Args:
            scores: (items,), one list after the other.
            labels: (items,).
            lengths: (lists,), the number of items of each list.
            largest: the highest possible label, for ERR and graded RBP.
            weights: (items,); only some metrics take them.

        Raises:
            ValueError: weights are given, but the metric takes none; or the metric leaves out a
                list that has items.
        """
        if weights is not None and not self.metric.takes_weights:
            raise ValueError(f"metric must support item weights, got {self.title!r}")
        metric = self.make(with_scale({}, largest))
        lists = {"lengths": lengths, "weights": weights}
        values = metric.measure(scores, labels, reduction="none", **lists)
        if (values.isnan() & (lengths > 0)).any():
            raise ValueError(
                f"metric must have a value for each list, but {self.title} leaves some out: give "
                "a number for empty"
            )
        return values

    def make(self, options: Mapping[str, Any]) -> MetricCore:
        """Return the metric with those options that it takes and that the user did not choose."""
        known = self.metric.own_parameters()
        own = {name: x for name, x in options.items() if name in {*known} - {*self.given}}
        if "ties" in own and known["ties"].default != "stable":
            del own["ties"]  # the definition of Kendall's tau covers ties
        try:
            return type(self.metric)(**self.metric.arguments | own) if own else self.metric
        except ValueError as error:
            raise ValueError(f"{re.split('[(@]', self.title)[0]}: {error}") from None


def with_scale(options: Mapping[str, Any], largest: float) -> dict[str, Any]:
    """Return the options of metrics, and add the largest grade if it is above 0: ERR needs it.

    >>> with_scale({"ties": "worst"}, 3.0)
    {'ties': 'worst', 'max_label': 3.0}
    """
    return {**options, "max_label": largest} if largest > 0 else {**options}


def metric_names() -> list[str]:
    """Return the names that `parse_measures` takes; `map` is the name of `average_precision`.

    They are the functions in `ltr.metrics.functional`, except `alpha_ndcg` and `gmap`.

    >>> {"ndcg", "map", "mrr"} <= set(metric_names())
    True
    """
    other = {name for name in functional.__all__ if name not in {*_OTHERS, *_FUNCTIONS.values()}}
    return sorted(other | _FUNCTIONS.keys())


def parse_measures(
    names: Sequence[str], cutoffs: Sequence[int] = (), *, of_runs: bool = False
) -> list[Measure]:
    """Return the metrics with these names.

    Upper and lower case are equivalent. The names of ir_measures and trec_eval also work. They mean
    the metrics of this library, with its options and defaults, such as the beta of F-beta.

    Args:
        names: names with or without a cutoff: `ndcg@10`, `map`; `nDCG@10`, `RR`, `P@5`;
            `ndcg_cut_10`, `recip_rank`, `P_5`. Options are in parentheses: `AP(rel=2)@10` and
            `map(relevant_from=2)@10`, `rbp(p=0.5)`. `IPrec@0.5` means recall 0.5.
        cutoffs: the cutoffs for each metric that takes a cutoff, but whose name has none.
        of_runs: whether the lists are runs, which are truncated. If True, a metric that needs whole
            lists is an error.

    Raises:
        ValueError: a metric or an option is unknown; a metric has a cutoff but takes none, or lacks
            a cutoff that it needs; or a metric needs whole lists, and `of_runs` is True.

    >>> [measure.title for measure in parse_measures(["nDCG@10", "RR", "P_5", "AP(rel=2)"])]
    ['ndcg@10', 'mrr', 'precision@5', 'map(relevant_from=2)']
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"metrics must be a list of names, got {names!r}")
    known = metric_names()
    measures: dict[str, Measure] = {}
    for text in names:
        name, options, cutoff = _parts(text, known)
        if name in _OTHERS:
            raise ValueError(f"metrics: {name} is not possible here: {_OTHERS[name]}")
        if name not in known:
            raise ValueError(f"metrics: no metric {name!r}: {nearest(name, known)}")
        kind = getattr(functional, _FUNCTIONS.get(name, name)).core
        takes = parameters(kind)
        if cutoff is not None:
            if not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) >= 1):
                raise ValueError(f"metrics: {name}@K must have a K >= 1, got {text!r}")
            if "top_k" not in takes:
                raise ValueError(f"metrics: {name} takes no cutoff, got {text!r}")
        if of_runs and kind.of_run is MetricCore.of_run:
            raise ValueError(f"metrics: {name} needs whole lists, which a run does not have")
        if of_runs and kind.divides_by_k and cutoff is None and not cutoffs:
            raise ValueError(f"metrics: {name} of a run needs a cutoff, such as {name}@10")
        if unknown := [option for option in options if option not in takes]:
            raise ValueError(f"metrics: {text!r} has the unknown option {unknown[0]!r}")
        several = cutoffs if "top_k" in takes else ()
        for top_k in [int(cutoff)] if cutoff is not None else several or [None]:
            try:
                metric = kind(**options if top_k is None else {**options, "top_k": top_k})
            except ValueError as error:
                raise ValueError(f"metrics: {text!r}: {error}") from None
            shown = ",".join(f"{option}={value}" for option, value in options.items())
            title = f"{name}({shown})" if options else name
            title = title if top_k is None else f"{title}@{top_k}"
            measures[title] = Measure(title, metric, options)
    return [*measures.values()]


@dataclass(frozen=True)
class OwnMeasure:
    """A metric of the user's own, in the form of a `Measure`.

    Args:
        function: called with the labels, the scores and the qids of one list, float64 (items,) each
            but the qids, int64; returns the value of the list. Higher must be better.

    >>> def first(labels, scores, qid):
    ...     return labels[scores.argmax()]
    >>> values = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([2.0, 1.0, 3.0])
    >>> OwnMeasure(first).per_list(*values, torch.tensor([2, 1]), largest=3.0)
    tensor([1., 3.], dtype=torch.float64)
    """

    function: Callable[..., Any]

    higher_is_better: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def gain(self, given: Mapping[str, Any]) -> None:
        """Return None: the function has its own gain, if it has one."""

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, float64 (lists,); NaN for an empty list.

        Raises:
            ValueError: weights are given, or the function returns no finite number.
        """
        if weights is not None:
            raise ValueError(f"metric must support item weights, got the function {self.title}")
        parts = (x.detach().double().split(lengths.tolist()) for x in (labels, scores))
        values = torch.full((len(lengths),), torch.nan, dtype=torch.float64)
        for position, (grades, own) in enumerate(zip(*parts, strict=True)):
            if not len(own):
                continue
            qid = torch.full((len(own),), position)
            value = self.function(grades.numpy(), own.numpy(), qid.numpy())
            if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
                value = value.item()
            if not isinstance(value, Real) or not isfinite(value):
                raise ValueError(
                    f"metric must return a finite number for each list, got {value!r} from "
                    f"{self.title}"
                )
            values[position] = float(value)
        return values


Metric = str | Callable[..., Any] | MetricCore
"""A metric as users give it: its name, a function (see `OwnMeasure`), or an object of its class."""

AnyMeasure = Measure | OwnMeasure


def as_measures(metrics: "Sequence[Metric | Measure]") -> list[AnyMeasure]:
    """Return the metrics of an evaluation, each of them once.

    Raises:
        ValueError: a metric is unknown, or is no mean over lists of items with one label each; or
            two functions have the same name.

    >>> from ltr.metrics import MRR
    >>> [measure.title for measure in as_measures(["nDCG@10", MRR(top_k=3)])]
    ['ndcg@10', 'MRR(top_k=3)']
    """
    # torchmetrics' metrics have an `__iter__` that raises an error.
    if not isinstance(metrics, Iterable) or isinstance(metrics, str | MetricCore):
        raise ValueError(f"metrics must be a list, got {metrics!r}")
    measures: dict[str, AnyMeasure] = {}
    for metric in metrics:
        measure = metric if isinstance(metric, Measure) else _measure("metrics", metric)
        known = measures.setdefault(measure.title, measure)
        if isinstance(measure, OwnMeasure) and known != measure:
            raise ValueError(f"metrics must have different names, got {measure.title!r} twice")
    return [*measures.values()]


def ranking_measure(metric: Metric) -> AnyMeasure:
    """Return the metric for choosing between rankers: higher must be better.

    Raises:
        ValueError: the metric is unknown, lower is better, or it is no mean over lists of items
            with one label each.

    >>> ranking_measure("MRR@10").title
    'mrr@10'
    """
    try:
        measure = _measure("metric", metric)
    except ValueError as error:
        if not isinstance(metric, str):
            raise
        raise ValueError(f"metric must be a metric's name: {error}") from None
    if not measure.higher_is_better:
        raise ValueError(f"metric must be higher for better rankings, got {metric!r}")
    return measure


def _measure(argument: str, metric: Any) -> AnyMeasure:
    """Return a metric in the form of a `Measure`; errors name the argument."""
    if isinstance(metric, str):
        (measure,) = parse_measures([metric])
        return measure
    if isinstance(metric, MetricCore):
        if metric.is_geometric or metric.takes_topics:
            raise ValueError(f"{argument} must be a mean over lists without topics, got {metric!r}")
        return Measure(repr(metric), metric, metric.own_parameters())
    if callable(metric) and not isinstance(metric, type):
        return OwnMeasure(metric)
    call = f": give {metric.__name__}(...)" if isinstance(metric, type) else ""
    wanted = "the name of a metric, a function or a metric object"
    raise ValueError(f"{argument} must be {wanted}, got {metric!r}{call}")


def _parts(text: str, known: Sequence[str]) -> tuple[str, dict[str, Any], str | None]:
    """Return the name, the options, and the cutoff if there is one."""
    front, at, end = text.partition("@")
    name, parenthesis, inside = front.partition("(")
    name, cutoff = name.lower().strip(), end if at else None
    if parenthesis and not inside.endswith(")"):
        raise ValueError(f"metrics: options must be in parentheses, got {text!r}")
    pairs = [pair.partition("=") for pair in inside.removesuffix(")").split(",") if pair.strip()]
    options = {_OPTIONS.get(key.strip(), key.strip()): _value(value) for key, _, value in pairs}
    if cutoff is None and name not in known:  # trec_eval writes ndcg_cut_10, P_5 and P.5
        trec = re.fullmatch(r"(iprec_at_recall)_(\d\.\d+)|(.+?)(?:_cut)?[_.](\d+)", name)
        if trec:
            name, cutoff = trec[1] or trec[3], trec[2] or trec[4]
    name = ELSEWHERE.get(name, name)
    if name == "interpolated_precision" and cutoff is not None:
        options["recall"], cutoff = _value(cutoff), None
    if "top_k" in options:
        if cutoff is not None:
            raise ValueError(f"metrics: {name} must have only one cutoff, got {text!r}")
        cutoff = str(options.pop("top_k"))
    return name, options, cutoff


def _value(text: str) -> Any:
    """Return the text as a number if possible, otherwise as a word without quotes."""
    text = text.strip().strip("'\"")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

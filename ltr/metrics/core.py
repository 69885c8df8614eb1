"""The arithmetic of the metrics, for which torch alone is needed: a value for each list.

The arithmetic of a metric is a class like a dataclass, such as `MRRCore`: its attributes are the
metric's arguments, and its method `per_list` returns the value of each list. `measured_by` makes a
function of it, and `ltr.metrics.classes` a class of torchmetrics, which keeps running sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Real
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack, dataclass_transform

import torch
from torch import Tensor

from ltr.config import parameters
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Empty, ListValues, Ranked, Reduction, check_empty
from ltr.metrics.ties import Ties, check_ties
from ltr.ragged import Lengths
from ltr.shapes import check_positive, check_top_k


class ListArguments(TypedDict, total=False):
    """The arguments that all functions share: `ltr.metrics.functional` describes them."""

    mask: Tensor | None
    weights: Tensor | None
    lengths: Lengths | None
    qid: Tensor | None
    reduction: Reduction


class EmptyArguments(ListArguments, total=False):
    """The arguments of the functions with the argument `empty`."""

    empty: Empty


class TiesArguments(EmptyArguments, total=False):
    """The arguments of the functions with `empty` and `ties`."""

    ties: Ties


class CutoffArguments(TiesArguments, total=False):
    """The arguments of the functions with `empty`, `ties` and `top_k`."""

    top_k: int | None


class RelevantArguments(EmptyArguments, total=False):
    """The arguments of the functions with `empty` and `relevant_from`."""

    relevant_from: float | None


class SetArguments(RelevantArguments, total=False):
    """The arguments of the functions with `empty`, `relevant_from` and `threshold`."""

    threshold: float | None


class BinaryArguments(CutoffArguments, RelevantArguments, total=False):
    """The arguments of the functions with `empty`, `ties`, `top_k` and `relevant_from`."""


_LIST_ARGUMENTS = {"judged", *ListArguments.__annotations__}


def metric_name(kind: "type[MetricCore]") -> str:
    """Return the name of a metric's class in `ltr.metrics`.

    >>> from ltr.metrics.mrr import MRRCore
    >>> metric_name(MRRCore)
    'MRR'
    """
    return kind.__name__.removesuffix("Core")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class MetricCore(ABC):
    """Base class of the metrics' arithmetic: arguments, and the value of each list.

    The annotated attributes of a subclass are the metric's arguments. Its constructor takes them as
    that of a dataclass does, unless it has a constructor of its own. It defines `per_list`, and
    checks its arguments in `__post_init__`, which then calls that of the base class.

    >>> from ltr.metrics.mrr import MRRCore
    >>> class ScaledMRRCore(MRRCore):
    ...     factor: float = 1.0
    >>> ScaledMRRCore(top_k=3, factor=2.0)
    ScaledMRRCore(top_k=3, factor=2.0)
    """

    higher_is_better: ClassVar[bool | None] = True

    takes_weights: ClassVar[bool] = False
    """Whether the metric takes item weights."""

    takes_topics: ClassVar[bool] = False
    """Whether labels may be (..., n, topics)."""

    divides_by_k: ClassVar[bool] = False
    """Whether the metric divides by `top_k` (by the length of the list if `top_k` is None)."""

    is_geometric: ClassVar[bool] = False
    """Whether the mean over the lists is geometric: exp of the mean of the values' logarithms."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give the class its constructor.

        The class is no dataclass afterwards: if an object of a dataclass is logged, Lightning logs
        a copy of it, which gets no update. The fields are kept as `argument_fields`, in which a
        subclass finds those of its bases.
        """
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            return
        kind: Any = cls
        bases = [base for base in kind.__mro__[1:] if "argument_fields" in vars(base)]
        for base in bases:
            base.__dataclass_fields__ = base.argument_fields
        dataclass(eq=False, repr=False)(kind)
        for each in (kind, *bases):
            each.argument_fields = each.__dataclass_fields__
            del each.__dataclass_fields__

    def __post_init__(self) -> None:  # noqa: B027 - a metric may have nothing to check
        """Check the arguments."""

    @classmethod
    def own_parameters(cls) -> dict[str, Parameter]:
        """Return the metric's own arguments, by name, with their defaults."""
        return parameters(cls)

    @property
    def arguments(self) -> dict[str, Any]:
        """The values of the metric's own arguments, by name."""
        return {name: getattr(self, name) for name in self.own_parameters()}

    def __repr__(self) -> str:
        """Return the class with the arguments that differ from their defaults."""
        defaults = {name: parameter.default for name, parameter in self.own_parameters().items()}
        # An argument may be a tensor, which has no single truth value if it is compared.
        changed = {name: x for name, x in self.arguments.items() if repr(x) != repr(defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={x!r}' for name, x in changed.items())})"

    @abstractmethod
    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list, as `list_values` returns it."""

    def measure(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        judged: Tensor | None = None,
        lengths: Lengths | None = None,
        qid: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Return the mean, the sum or the values for these lists, without changing the state.

        `ltr.metrics.functional` describes the arguments, except `judged`: see `bpref`.

        >>> from ltr.metrics import MRR
        >>> MRR().measure(torch.tensor([0.1, 0.3]), torch.tensor([1, 0]))
        tensor(0.5000)
        """
        columns = scores, labels, mask, weights, judged, lengths, qid
        (of_lists,) = Batch(*columns, topics=self.takes_topics).values([self])
        if reduction == "mean" and self.is_geometric:
            return of_lists._replace(values=of_lists.values.log()).reduce("mean").exp()
        return of_lists.reduce(reduction)

    def check_weights(self) -> None:
        """Raise `ValueError` unless the metric takes item weights."""
        if not self.takes_weights:
            raise ValueError(f"weights must be None: {metric_name(type(self))} has no item weights")

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for a run's lists, whose order below rank `depth` is unknown.

        Raises:
            ValueError: the metric needs whole lists. It does unless its class overrides `of_run`.
        """
        raise ValueError(f"metric must not need whole lists, got {metric_name(type(self))}")


Function = TypeVar("Function", bound=Callable[..., Tensor])


def measured_by(core: type[MetricCore]) -> Callable[[Function], Function]:
    """Return a decorator that gives a metric's function its body.

    The function itself has only a signature, a docstring and `...`. A call makes `core` with the
    metric's own arguments, and measures the lists: `core(top_k=10).measure(scores, labels,
    mask=mask)`. The attribute `core` of the function is the class. `inspect.signature` and `help`
    show each argument of the class, also those that the function takes as `Unpack[...]`.
    """

    def with_body(function: Function) -> Function:
        @wraps(function)
        def measured(scores: Tensor, labels: Tensor, **arguments: Any) -> Tensor:
            lists = {name: arguments.pop(name) for name in _LIST_ARGUMENTS & arguments.keys()}
            return core(**arguments).measure(scores, labels, **lists)

        *first, _ = signature(function).parameters.values()
        own, arguments = {x.name for x in first}, parameters(core)

        def is_shared(name: str) -> bool:
            return arguments[name].kind is Parameter.KEYWORD_ONLY and name not in own

        shown = {x.name: x for x in first if x.name not in arguments}
        for name in sorted(arguments, key=is_shared):
            shown[name] = arguments[name].replace(kind=Parameter.KEYWORD_ONLY)
        lists = Parameter("lists", Parameter.VAR_KEYWORD, annotation=Unpack[ListArguments])
        body: Any = measured
        body.__signature__ = Signature([*shown.values(), lists])
        body.core = core
        return body

    return with_body


class EmptyCore(MetricCore):
    """Base class of the metrics that are not defined on every list.

    Args:
        empty: the value of a list on which the metric is not defined: a number, "skip" or "error".
    """

    _: KW_ONLY
    empty: Empty = 0

    def __post_init__(self) -> None:
        check_empty(self.empty)
        super().__post_init__()


class TiesCore(MetricCore):
    """Base class of the metrics that depend on the order of tied items.

    Args:
        ties: how tied items count: "stable", "worst" or "expected".
    """

    _: KW_ONLY
    ties: Ties = "stable"

    def __post_init__(self) -> None:
        check_ties(self.ties)
        super().__post_init__()


class CutoffCore(TiesCore):
    """Base class of the metrics in which only the items at the first `top_k` positions count.

    Args:
        top_k: the number of positions that count. Default: the whole list.
    """

    top_k: int | None = None

    def __post_init__(self) -> None:
        self.top_k = check_top_k(self.top_k)
        super().__post_init__()

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for the lists of a run; a `top_k` of None becomes `depth`.

        Raises:
            ValueError: `top_k` is above `depth`, or `top_k` is None and the metric divides by it.
        """
        if self.top_k is None and self.divides_by_k:
            name = metric_name(type(self))
            raise ValueError(f"top_k must be given for {name}, which divides by it, got None")
        if self.top_k is not None and self.top_k > depth:
            raise ValueError(f"top_k must be <= depth {depth} of the join, got {self.top_k}")
        arguments = self.arguments
        arguments["top_k"] = self.top_k or depth
        return type(self)(**arguments)


class RelevantCore(EmptyCore):
    """Base class of the metrics in which an item is either relevant or not.

    Args:
        relevant_from: the least label of a relevant item, > 0. Default: any label above 0.
    """

    _: KW_ONLY
    relevant_from: float | None = None

    def __post_init__(self) -> None:
        self.relevant_from = check_positive("relevant_from", self.relevant_from)
        super().__post_init__()

    def hits(self, lists: Ranked) -> Tensor:
        """Return 1 (or the weight) for each relevant item and 0 for all others, (..., n)."""
        hits = lists.relevant(self.relevant_from).to(lists.scores.dtype)
        return hits if lists.weights is None else hits * lists.weights


class BinaryCore(RelevantCore, CutoffCore):
    """Base class of the cutoff metrics in which an item is either relevant or not."""


class RetrievedCore(EmptyCore):
    """Base class of the metrics that depend on which items were retrieved.

    Args:
        threshold: items with a score above it are retrieved. Default: all items.
    """

    _: KW_ONLY
    threshold: float | None = None

    def __post_init__(self) -> None:
        threshold = self.threshold
        is_number = isinstance(threshold, Real) and not isinstance(threshold, bool)
        if threshold is not None and not (is_number and threshold == threshold):
            raise ValueError(f"threshold must be None or a number, got {threshold!r}")
        self.threshold = None if threshold is None else float(threshold)
        super().__post_init__()

    def retrieved(self, lists: Ranked) -> Tensor:
        """Return 1 for each retrieved item and 0 for all others, (..., n)."""
        real = torch.ones_like(lists.scores)
        if lists.mask is not None:
            real = lists.mask.to(real.dtype)
        return real if self.threshold is None else real * (lists.scores > self.threshold)

    def of_run(self, depth: int) -> Self:
        """Return a copy of the metric for the lists of `join`, with the threshold -depth.

        In these lists, only the retrieved items have scores above -depth.

        Raises:
            ValueError: the metric has a threshold.
        """
        if self.threshold is not None:
            raise ValueError(f"threshold must be None for a run, got {self.threshold}")
        return type(self)(**self.arguments | {"threshold": -float(depth)})

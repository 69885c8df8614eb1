"""The base of the metric classes: running sums over lists."""

import re
import sys
from collections.abc import Callable
from inspect import Parameter, Signature, cleandoc, getdoc, signature
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from ltr.kernels import Lengths
from ltr.metrics.batches import BatchValues, measure_lists
from ltr.metrics.ranked import rank
from ltr.metrics.ties import places_in_order
from ltr.metrics.values import ListValues

_OPTIONS = {"keep_values": False, "deduplicate": False}
_OPTIONS_TEXT = """\
    keep_values: keep the per-list values, for `per_list_values`. Memory then grows with the number
        of lists.
    deduplicate: count a list id once, whichever update or process it comes in, for samplers that
        repeat lists; needs `indexes`, and keeps values and ids. By default an id in another
        update or process is another list.
    compute_on_cpu: as in `torchmetrics.Metric`, like the next three.
"""
_TORCHMETRICS = {
    "compute_on_cpu": False,
    "dist_sync_on_step": False,
    "sync_on_compute": True,
    "compute_with_cache": True,
}
"""The arguments of `torchmetrics.Metric` that a configuration can have, and their defaults."""

_COMMON = ("lengths", "reduction")
"""The keyword-only parameters of the functions that are no argument of the class."""

_RENAMED = {"keep": "keep_values", "once": "deduplicate", "short": "short_list_value"}


class RankingMetric(Metric):
    """Mean of a per-list number over all lists that count; the state is a few sums.

    A new metric is one subclass with two attributes:

    - `function`, the public function. Its keyword-only parameters, except `lengths` and
      `reduction`, are the arguments of the class, with their defaults and their documentation. The
      object keeps each argument under its name.
    - `core`, which takes a `Ranked` and these arguments by name, and returns `ListValues`.

    `update` takes padded batches (..., n) with a mask, ragged lists (N,) with their `lengths`, or
    flat values (items,) with `indexes`, one list id an item, in any order. One `update` must hold
    all of a list. A list without a real item does not count, so padding a shard with such lists
    changes nothing. A `RankingMetrics` sorts the lists once for several metrics.

    Two metrics share a compute group of torchmetrics' `MetricCollection` only if they are of one
    class and have equal arguments, since the name of the state contains both.

    Args:
        args: arguments of the metric, in the order of its function.
        kwargs: arguments of the metric; those of `torchmetrics.Metric`; and these two.
            keep_values: keep the per-list values, for `per_list_values`. Memory then grows with
            the number of lists. deduplicate: count a list id once, even if it comes in several
            updates or processes, for samplers that repeat lists; needs `indexes`, and keeps values
            and ids. By default an id in another update or process is another list.

    Raises:
        ValueError: the function refuses the value of an argument.
        TypeError: the metric does not have an argument.

    >>> from ltr.metrics import NDCG
    >>> metric = NDCG(top_k=10)
    >>> metric.update(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]]))
    >>> metric.update(torch.tensor([0.3, 0.1]), torch.tensor([1, 0]), indexes=torch.tensor([5, 5]))
    >>> metric.compute()
    tensor(0.8155)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    function: ClassVar[Callable[..., Tensor]]
    core: ClassVar[Callable[..., ListValues]]

    first_only: ClassVar[bool] = False
    """Whether a metric at `top_k`, with stable `ties`, needs only the first k items in order.

    The places after them then hold the other items in any order. A subclass with its own `core`
    must set it itself.
    """

    takes_topics: ClassVar[bool] = False
    """Whether labels may be (..., n, topics)."""

    values: Any
    ids: Any

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "core" in vars(cls) and "first_only" not in vars(cls):
            cls.first_only = False
        if "__init__" in vars(cls):
            # the name of the state would not contain arguments of another constructor
            raise TypeError(f"{cls.__name__} must take its arguments from `function`")
        if "function" in vars(cls):
            _take_arguments(cls, cls.function)

    def __init__(self, *args: Any, **kwargs: Any):
        if not hasattr(self, "core"):
            raise TypeError(f"{type(self).__name__} must define function and core")
        given = _bound(type(self), args, kwargs)
        options = {name: given.pop(name) for name in _OPTIONS}
        torchmetrics = {name: given.pop(name) for name in _TORCHMETRICS}
        super().__init__(**torchmetrics, **given.pop("kwargs"))
        self._names = tuple(given)
        for name, value in (given | options).items():
            setattr(self, name, value)
        nothing = torch.zeros(0, 1)
        self.core(rank(nothing, nothing), **self.arguments)  # checks the values of the arguments
        # the sums of values and of lists: those that count, are left out and are empty
        self._sums = f"sums of {_described(type(self))}({_described(given | options)})"
        zeros = torch.zeros(4, dtype=torch.float64)
        self.add_state(self._sums, default=zeros, dist_reduce_fx="sum")
        if self.keep_values or self.deduplicate:
            self.add_state("values", default=[], dist_reduce_fx="cat")
        if self.deduplicate:
            self.add_state("ids", default=[], dist_reduce_fx="cat")
        self._start_lists()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `core`, by name."""
        return {name: getattr(self, name) for name in self._names}

    @property
    def places(self) -> int | None:
        """How many first places the metric needs in order; None for all."""
        given = self.arguments
        return places_in_order(given["top_k"], given["ties"]) if self.first_only else None

    @property
    def takes_weights(self) -> bool:
        """Whether the metric has item weights."""
        return "weights" in signature(self.function).parameters

    def update(
        self,
        preds: Tensor | BatchValues,
        target: Tensor | None = None,
        indexes: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        judged: Tensor | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """Add lists.

        Args:
            preds: scores, (..., n), or (items,) with `indexes`. A collection, which has ranked the
                lists, passes the metric's values instead, and nothing else.
            target: labels of the same shape.
            indexes: a list id an item, of the shape of `preds`, in any order; or a list id a list,
                (...), for `preds` (..., n), or (R,) with `lengths`. Default: the last axis is the
                list.
            mask: bool, of the shape of `preds`, True = a real item; with `indexes` too.
            weights: item weights of the shape of `preds`, for a metric that has them.
            judged: bool, of the shape of `preds`, True = a judged item, for `BPref`; other metrics
                ignore it.
            lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after
                the other: `preds` (N,), and all else but `indexes` likewise.
        """
        if not isinstance(preds, BatchValues):
            [preds] = measure_lists([self], preds, target, indexes, mask, weights, judged, lengths)
        self._add(preds)

    def _add(self, found: BatchValues) -> None:
        counted = (~found.values.isnan()).sum()
        more = [found.values.nansum(), counted, found.lists - counted, found.empty]
        setattr(self, self._sums, self.sums + torch.stack(more))
        if self.keep_values or self.deduplicate:
            self.values.append(found.values)
        if self.deduplicate:
            assert found.ids is not None
            self.ids.append(found.ids)

    @property
    def sums(self) -> Tensor:
        """The sums (4,) float64 of the values and of lists: counted, left out, empty."""
        return getattr(self, self._sums)

    @property
    def total(self) -> Tensor:
        """The sum of the values, float64."""
        return self.sums[0]

    @property
    def lists(self) -> Tensor:
        """How many lists count, float64; `deduplicate` does not merge repeated lists here."""
        return self.sums[1]

    @property
    def left_out(self) -> Tensor:
        """How many lists are left out, counted as in `lists`."""
        return self.sums[2]

    @property
    def empty_lists(self) -> Tensor:
        """How many lists have no relevant item, or no value of their own."""
        return self.sums[3]

    def compute(self) -> Tensor:
        """Return the mean over the lists that count, float32; NaN if there is none."""
        if self.deduplicate:
            return self.per_list_values.nanmean().float()
        return (self.total / self.lists).float()

    @property
    def per_list_values(self) -> Tensor:
        """Return one number a list, float64, NaN for a list that is left out.

        Needs `keep_values` or `deduplicate`. The values are in the order of the updates, and those
        of flat values by rising id within each update. With `deduplicate` all are by rising id.
        With several processes they are those of this process, and within `sync_context` of all.

        Raises:
            ValueError: the metric does not keep them.
        """
        if not (self.keep_values or self.deduplicate):
            raise ValueError("keep_values must be True for per_list_values, got False")
        values = _joined(self.values)
        if not self.deduplicate:
            return values
        ordered, order = _joined(self.ids).sort(stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        return values[order[first]]

    def reset(self) -> None:
        """Forget all lists."""
        super().reset()
        self._start_lists()

    def _start_lists(self) -> None:
        # a process without an update must be able to take part when the values are gathered
        if self.keep_values or self.deduplicate:
            self.values.append(self.sums.new_zeros(0))
        if self.deduplicate:
            self.ids.append(self.sums.new_zeros(0, dtype=torch.int64))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the value, or several computed ones, as torchmetrics' metrics do."""
        return self._plot(val, ax)


def _take_arguments(cls: type[RankingMetric], function: Callable[..., Tensor]) -> None:
    """Give the class the documented arguments of its function, for IDEs, help and YAML."""
    known = signature(function, eval_str=True).parameters.values()
    own = [p for p in known if p.kind is Parameter.KEYWORD_ONLY and p.name not in _COMMON]
    core = list(signature(cls.core).parameters)[1:]
    if [p.name for p in own] != core:
        raise TypeError(f"core of {cls.__name__} must take {[p.name for p in own]}, takes {core}")

    def init(self: RankingMetric, *args: Any, **kwargs: Any) -> None:
        RankingMetric.__init__(self, *args, **kwargs)

    either = Parameter.POSITIONAL_OR_KEYWORD
    switches = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=bool)
        for name, default in (_OPTIONS | _TORCHMETRICS).items()
    ]
    parameters = [
        Parameter("self", either),
        *(p.replace(kind=either) for p in own),
        *switches,
    ]
    init.__name__, init.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
    init.__signature__ = Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    init.__annotations__ = {p.name: p.annotation for p in parameters[1:]}
    cls.__init__ = init
    described = _argument_texts(function, [p.name for p in own])
    cls.__doc__ = cleandoc(cls.__doc__ or "") + "\n\nArgs:\n" + described + _OPTIONS_TEXT


def _argument_texts(function: Callable[..., Tensor], names: list[str]) -> str:
    """Return the lines of the function's documentation that describe these arguments."""
    section = (getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^    (?=\w+: )", section, flags=re.MULTILINE)
    return "".join(f"    {x.rstrip()}\n" for x in entries if x.partition(":")[0] in names)


def _bound(cls: type[RankingMetric], args: tuple[Any, ...], kwargs: Any) -> dict[str, Any]:
    """Return the arguments by name, with the defaults; "kwargs" holds those that are unknown."""
    for name in kwargs:
        if name in _RENAMED:
            raise TypeError(f"{cls.__name__} has no {name!r}: it is {_RENAMED[name]!r} now")
    known = signature(cls.__init__)
    rest = {name: value for name, value in kwargs.items() if name not in known.parameters}
    own = {name: value for name, value in kwargs.items() if name in known.parameters}
    try:
        bound = known.bind(None, *args, **own)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}") from None
    bound.apply_defaults()
    given = dict(bound.arguments)
    given.pop("self")
    return {**given, "kwargs": rest}


def _described(value: Any) -> str:
    """Return a text that is equal only for equal arguments."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_described(x)}" for name, x in value.items())
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if getattr(home, name, None) is value:
            return f"{value.__module__}.{name}"
        return f"{name} at {id(value)}"  # two lambdas have one name
    return repr(value)


def _joined(parts: Any) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(list(parts))

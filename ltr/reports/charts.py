"""Axes and histograms of the report, in percent of a chart's width and height."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """A linear axis that begins and ends at a tick.

    Attributes:
        ticks: multiples of `step`, ascending.
        step: the distance between neighboring ticks.
    """

    ticks: tuple[float, ...]
    step: float

    def at(self, value: float) -> float:
        """Return a value's position in percent of the axis; values outside get the nearest end.

        >>> axis_of([0, 8]).at(2)
        25.0
        """
        low, high = self.ticks[0], self.ticks[-1]
        return round(100 * (min(max(value, low), high) - low) / (high - low), 2)

    def text(self, tick: float) -> str:
        """Return a tick's text, with as many decimals as the step needs.

        >>> axis = axis_of([0, 0.1])
        >>> [axis.text(tick) for tick in axis.ticks]
        ['0', '0.02', '0.04', '0.06', '0.08', '0.10']
        """
        if tick == 0:
            return "0"
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        digits += round(self.step * 10**digits, 6) != round(self.step * 10**digits)
        return f"{tick:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def axis_of(values: Iterable[float], parts: int = 5, *, whole: bool = False) -> Axis:
    """Return an axis whose ticks enclose the values.

    Args:
        values: finite numbers.
        parts: the approximate number of intervals between ticks.
        whole: whether the values are counts. If so, all ticks are whole numbers.

    >>> axis_of([-0.03, 0.11]).ticks
    (-0.05, 0.0, 0.05, 0.1, 0.15)
    >>> axis_of([0, 3], whole=True).ticks
    (0.0, 1.0, 2.0, 3.0)
    """
    numbers = [*values]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if high - low < 1e-9 * max(1.0, abs(low), abs(high)):  # all values are equal, up to rounding
        spare = 0.05 * max(1.0, abs(low))
        low, high = low - spare, high + spare
    rough = (high - low) / parts
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Rounded to 12 digits, a tick is 0.15 and not 0.15000000000000002.
    return Axis(tuple(float(f"{i * step:.12g}") for i in range(first, last + 1)), step)


class Bar(NamedTuple):
    """A bar of a histogram: the number of lists with a value from `low` to `high`."""

    low: float
    high: float
    lists: int


@dataclass(frozen=True)
class Histogram:
    """The bars of one chart, on axes that several charts share.

    Attributes:
        bars: the bars that are not empty, from left to right.
        values: the axis of the values.
        counts: the axis of the counts.
    """

    bars: tuple[Bar, ...]
    values: Axis
    counts: Axis


def histograms(columns: Sequence[np.ndarray], *, bars: int = 40) -> list[Histogram]:
    """Return a histogram of each column, all with the same bar edges and axes.

    A bar begins at 0 if the range of the values contains 0, so no bar has values of both signs.

    Args:
        columns: finite values; a column may be empty.
        bars: the largest number of bars, if it is at least the number of intervals between ticks.

    >>> first, second = histograms([np.array([-0.1, 0.2, 0.2]), np.array([0.4])], bars=10)
    >>> [(round(bar.low, 2), bar.lists) for bar in first.bars], second.counts.ticks
    ([(-0.1, 1), (0.2, 2)], (0.0, 1.0, 2.0))
    """
    ends = [float(end) for column in columns if len(column) for end in (column.min(), column.max())]
    axis = axis_of(ends)
    parts = len(axis.ticks) - 1
    each = max(1, bars // parts)
    first = round(axis.ticks[0] / axis.step) * each
    edges = np.arange(first, first + parts * each + 1) * (axis.step / each)
    # Because of rounding, the smallest or the largest value may lie just outside the edges.
    clipped = [np.clip(column, edges[0], edges[-1]) for column in columns]
    heights = [np.histogram(column, edges)[0].tolist() for column in clipped]
    counts = axis_of([0, *(max(column) for column in heights)], 4, whole=True)
    limits = [*zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    return [
        Histogram(
            tuple(Bar(*end, n) for end, n in zip(limits, column, strict=True) if n), axis, counts
        )
        for column in heights
    ]

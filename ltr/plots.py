"""Figures, for which matplotlib must be installed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(what: str, width: float, height: float) -> "Figure":
    """Return a new figure of the given width and height in inches.

    Raises:
        ValueError: matplotlib is not installed. The message says that `what` needs it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"{what} needs matplotlib: pip install 'ltr-torch[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def bar_axes(
    axes: "Axes | None",
    names: Sequence[str],
    label: str,
    what: str,
    height: float,
    *,
    zero: bool = True,
) -> "Axes":
    """Return axes for horizontal bars or intervals, at 0, 1, 2 and so on from the top.

    Args:
        axes: the axes that the user gave, or None for those of a new figure.
        names: the names of the bars.
        label: the label of the horizontal axis.
        what: see `new_figure`.
        height: see `new_figure`.
        zero: whether to draw a line at 0.
    """
    if axes is None:
        axes = new_figure(what, 6.4, height).subplots()
    if zero:
        axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.grid(axis="x", alpha=0.3)
    return axes


def draw_interval(
    axes: "Axes", position: int, interval: tuple[float, float, float], color: str
) -> None:
    """Draw a mean and its interval (mean, low, high) on axes of `bar_axes`."""
    mean, low, high = interval
    axes.plot([low, high], [position, position], color=color, linewidth=2)
    axes.plot([mean], [position], "o", color=color)

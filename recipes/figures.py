"""Learning curves of a sweep."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recipes.results import Result
from recipes.tables import label


def curves(results: list[Result], by: str) -> Figure | None:
    """Draw validation by epoch, one panel for each value of a part of `point`, one line a variant.

    The metric is the one that chooses the best epoch. A line is the mean over the runs of a
    variant, at the epochs that all of them have. The band around it is their standard deviation.

    Args:
        results: finished runs.
        by: the part, such as "n".

    Returns:
        The picture; None if no run has the curve.
    """
    trained = [one for one in results if one.get("monitor") in one.get("curves", {})]
    if not trained:
        return None
    values = list(dict.fromkeys(one["point"][by] for one in trained))
    across = min(len(values), 3)
    down = -(-len(values) // across)
    figure = Figure(figsize=(4.2 * across + 0.6, 3.2 * down + 0.3), layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False, sharex=False).flat)
    variants = list(dict.fromkeys(one["variant"] for one in trained))
    for panel, value in zip(panels, values, strict=False):
        here = [one for one in trained if one["point"][by] == value]
        metric = here[0]["monitor"]
        _draw_variants(panel, here, metric, variants)
        panel.set(xlabel="epoch", ylabel=metric)
        panel.set_title(label(by, value), fontsize="medium")
    for panel in panels[len(values) :]:
        panel.set_axis_off()
    return figure


def _draw_variants(
    axes: Axes, results: list[dict[str, Any]], metric: str, variants: list[str]
) -> None:
    for number, variant in enumerate(variants):
        lines = [
            dict(zip(*curve(r, metric), strict=True)) for r in results if r["variant"] == variant
        ]
        if not lines:
            continue
        epochs = sorted(set(lines[0]).intersection(*lines))
        mean = np.array([np.mean([line[epoch] for line in lines]) for epoch in epochs])
        marker = "." if len(epochs) < 10 else ""  # a line of one epoch would be invisible
        axes.plot(epochs, mean, color=f"C{number}", marker=marker, label=variant)
        if len(lines) > 1:
            sd = np.array([np.std([line[epoch] for line in lines], ddof=1) for epoch in epochs])
            axes.fill_between(epochs, mean - sd, mean + sd, color=f"C{number}", alpha=0.2, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def curve(result: dict[str, Any], name: str) -> tuple[list[int], list[float]]:
    """Return the epochs of a run, from 1, at which it logged a value, and the values.

    >>> curve({"curves": {"epoch": [1, 2, 3], "val_x": [0.5, None, 0.7]}}, "val_x")
    ([1, 3], [0.5, 0.7])
    """
    pairs = zip(result["curves"]["epoch"], result["curves"][name], strict=True)
    there = [(epoch, value) for epoch, value in pairs if value is not None]
    return [epoch for epoch, _ in there], [value for _, value in there]

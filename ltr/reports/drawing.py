"""Pictures of means and of comparisons, with matplotlib (the extra `plots`)."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.files import atomic_write
from ltr.metrics.comparison import Comparison, Interval
from ltr.plots import bar_axes, draw_interval, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ltr.reports.results import Results


def draw_means(
    intervals: Mapping[str, Interval], label: str, what: str, axes: "Axes | None" = None
) -> "Axes":
    """Draw means with their intervals, one metric below the other.

    Args:
        intervals: the interval of each metric, by the metric's title.
        label: the label of the horizontal axis.
        what: see `new_figure`.
        axes: the axes to draw in. Default: the axes of a new figure.
    """
    height = 1.2 + 0.4 * len(intervals)
    axes = bar_axes(axes, [*intervals], label, what, height, zero=False)
    for position, interval in enumerate(intervals.values()):
        draw_interval(axes, position, interval, "tab:blue")
    return axes


def draw(results: "Results", path: Path) -> None:
    """Draw one model's means, or a panel for each metric's comparison, and write the file.

    Args:
        results: the results of the model or the models.
        path: the file to write; its extension determines the format.
    """
    metrics = results.metrics
    intervals = {title: x for title, x in metrics.items() if isinstance(x, Interval)}
    comparisons = {title: x for title, x in metrics.items() if isinstance(x, Comparison)}
    if intervals:
        level = 100 * results.draws["confidence"]
        label = f"{results.models[0].name}: mean, {level:g}% interval"
        figure: Any = draw_means(intervals, label, "--plot").figure
    else:
        models = max(len(x.models) for x in comparisons.values()) - 1
        height = (1.2 + 0.5 * models) * len(comparisons)
        figure = new_figure("--plot", 6.4, height)
        panels = figure.subplots(len(comparisons), squeeze=False)[:, 0]
        for axes, (title, comparison) in zip(panels, comparisons.items(), strict=True):
            comparison.plot(axes).set_title(title, fontsize="medium")
    # The figure is saved in memory first: on a full disk, matplotlib's PDF writer would raise an
    # AttributeError.
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    with atomic_write(path) as part:
        part.write_bytes(picture.getvalue())

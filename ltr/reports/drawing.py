"""Pictures of means and of comparisons, with matplotlib (the extra `plots`)."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ltr.files import atomic_write
from ltr.metrics.comparison import Comparison, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_means(intervals: Mapping[str, Interval], label: str, axes: "Axes") -> None:
    """Draw means with their intervals, one metric below the other."""
    for position, (mean, low, high) in enumerate(intervals.values()):
        axes.plot([low, high], [position, position], color="tab:blue", linewidth=2)
        axes.plot([mean], [position], "o", color="tab:blue")
    axes.set_yticks(range(len(intervals)), list(intervals))
    axes.set_ylim(len(intervals) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.grid(axis="x", alpha=0.3)


def draw(
    results: Mapping[str, Interval | Comparison], name: str, confidence: float, path: Path
) -> None:
    """Draw one model's means, or a panel for each metric's comparison, and write the file.

    Args:
        results: the interval or the comparison of each metric, by the metric's title.
        name: the name of the model, if there is only one.
        confidence: the level of the intervals, in (0, 1).
        path: the file to write; its extension determines the format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'ltr-torch[plots]'") from None
    intervals = {title: x for title, x in results.items() if isinstance(x, Interval)}
    comparisons = {title: x for title, x in results.items() if isinstance(x, Comparison)}
    if intervals:
        figure = Figure(figsize=(6.4, 1.2 + 0.4 * len(intervals)), layout="constrained")
        draw_means(intervals, f"{name}: mean, {100 * confidence:g}% interval", figure.subplots())
    else:
        models = max(len(x.models) for x in comparisons.values()) - 1
        height = (1.2 + 0.5 * models) * len(comparisons)
        figure = Figure(figsize=(6.4, height), layout="constrained")
        several = figure.subplots(len(comparisons), squeeze=False)[:, 0]
        for axes, (title, comparison) in zip(several, comparisons.items(), strict=True):
            comparison.plot(axes).set_title(title, fontsize="medium")
    # The figure is saved in memory first: on a full disk, matplotlib's PDF writer would raise an
    # AttributeError.
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    with atomic_write(path) as part:
        part.write_bytes(picture.getvalue())

"""The plot of `ltr evaluate`: means, or differences from the first model, with intervals."""

from collections.abc import Mapping
from pathlib import Path

from ltr.metrics.compare import Comparison, Interval


def draw(
    found: Mapping[str, Interval | Comparison], name: str, confidence: float, path: Path
) -> None:
    """Draw one model's means, or a panel for each metric's comparison, and write the file.

    Args:
        found: intervals or comparisons by the metric's title.
        name: name of the first model.
        confidence: level of the intervals.
        path: the picture; its extension chooses the format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'ltr-torch[plots]'") from None
    intervals = {title: x for title, x in found.items() if isinstance(x, Interval)}
    comparisons = {title: x for title, x in found.items() if isinstance(x, Comparison)}
    if intervals:
        figure = Figure(figsize=(6.4, 1.2 + 0.4 * len(intervals)), layout="constrained")
        axes = figure.subplots()
        for place, (mean, low, high) in enumerate(intervals.values()):
            axes.plot([low, high], [place, place], color="tab:blue", linewidth=2)
            axes.plot([mean], [place], "o", color="tab:blue")
        axes.set_yticks(range(len(intervals)), list(intervals))
        axes.set_ylim(len(intervals) - 0.4, -0.6)
        axes.set_xlabel(f"{name}: mean, {100 * confidence:g}% interval")
        axes.grid(axis="x", alpha=0.3)
    else:
        models = max(len(x.models) for x in comparisons.values()) - 1
        height = (1.2 + 0.5 * models) * len(comparisons)
        figure = Figure(figsize=(6.4, height), layout="constrained")
        several = figure.subplots(len(comparisons), squeeze=False)[:, 0]
        for axes, (title, comparison) in zip(several, comparisons.items(), strict=True):
            comparison.plot(axes).set_title(title, fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)

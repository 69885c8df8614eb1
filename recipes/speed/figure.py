"""The picture of the recipe `speed`: cost of a step by list length, and progress by step."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recipes.results import Result

_KEY = "test_cpu_ms_"


def speed(results: list[Result]) -> Figure | None:
    """Draw time and memory of a step by n, and Spearman and loss by epoch.

    The curves by epoch are of the longest lists for which every operator took every step. Dashed
    curves are of the longest lists of all, for the operators that took every step there.

    Args:
        results: finished runs.

    Returns:
        The picture; None if no run is finished.
    """
    runs = sorted(results, key=lambda run: run["point"]["n"])
    if not runs:
        return None
    names = list(dict.fromkeys(name for run in runs for name in _names(run)))
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2)
    _by_length(axes[0, 0], runs, names, _KEY, "ms a step (processor's time)")
    _by_length(axes[0, 1], runs, names, "test_mb_", "peak memory of a step, MB")
    whole = [run for run in runs if len(_complete(run)) == len(names)]
    shown = {run["name"]: run for run in [*whole[-1:], runs[-1]]}
    for number, run in enumerate(shown.values()):
        style = "--" if number or not whole else "-"
        _by_epoch(axes[1, 0], run, names, "val_spearman_", style)
        _by_epoch(axes[1, 1], run, names, "train_loss_", style)
    axes[1, 0].set(xlabel="step", ylabel="Spearman to the order")
    axes[1, 1].set(xlabel="step", ylabel="loss")
    for panel in axes.flat:
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend(fontsize="x-small")
    return figure


def _by_length(axes: Axes, runs: list[Any], names: list[str], key: str, label: str) -> None:
    for number, name in enumerate(names):
        points = [(run["point"]["n"], run["metrics"].get(key + name)) for run in runs]
        points = [(n, value) for n, value in points if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", ms=3, color=f"C{number}", label=name)
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel=label)


def _by_epoch(axes: Axes, run: Any, names: list[str], key: str, style: str) -> None:
    curves, n = run.get("curves", {}), run["point"]["n"]
    for name in sorted(_complete(run), key=names.index):
        if key + name in curves:
            label = f"{name}, n = {n}"
            position = names.index(name)
            width = 1 + 0.8 * (len(names) - 1 - position)  # so that overlapping curves are visible
            look: Any = {"color": f"C{position}", "linewidth": width, "label": label}
            axes.plot(curves["epoch"], curves[key + name], style, **look)


def _names(run: Any) -> list[str]:
    return [name.removeprefix(_KEY) for name in run["metrics"] if name.startswith(_KEY)]


def _complete(run: Any) -> list[str]:
    """Return the operators that took all steps of a run."""
    metrics = run["metrics"]
    steps = {name: metrics.get(f"test_steps_{name}", 0) for name in _names(run)}
    return [name for name, number in steps.items() if number == run.get("epochs")]

"""The pictures that `ltr bench` draws of its results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ltr.operators import descending_order

SHOWN_LISTS = 4


def learning_curves(axes: Axes, out: Path, metric: str) -> None:
    """Draw a validation metric by epoch, one line a trained run.

    Args:
        axes: the axes to draw on.
        out: folder of a bench.
        metric: the metric's logged name, such as "val_ndcg_10".
    """
    for result in finished(out):
        if metric in result.get("curves", {}):
            axes.plot(*curve(result, metric), label=result["name"])
    axes.set(xlabel="epoch", ylabel=metric, title="learning curves")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize="small")


def curves(out: Path) -> Path | None:
    """Draw a bench's learning curves, one panel for each value of an option, one line a variant.

    The metric is the one that chooses the best epoch. The panels are the columns (or rows) of the
    table, or the values of the grid's first option.

    Args:
        out: folder of a bench; only its `results.json` is read.

    Returns:
        The picture, `out/<recipe>.png`; None if no run has curves.
    """
    return draw_panels(out)


def draw_panels(out: Path, metric: str | None = None, label: str | None = None) -> Path | None:
    """Draw a bench's learning curves as `curves` does, of any metric.

    A line is the mean over the runs of a variant, at the epochs that all of them have. The band
    around it is their standard deviation.

    Args:
        out: folder of a bench.
        metric: the metric's logged name. Default: the one that chooses the best epoch.
        label: label of the vertical axes. Default: the metric's name.

    Returns:
        The picture, `out/<recipe>.png`; None if no run has that curve.
    """
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    trained = [result for result in finished(out) if result.get("curves")]
    chosen = metric or _monitored(content, trained)
    trained = [result for result in trained if chosen in result["curves"]]
    if chosen is None or not trained:
        return None
    option = _panel_option(content)
    values = [None] if option is None else content["grid"][option]
    values = [v for v in values if any(_is_in_panel(result, option, v) for result in trained)]
    across = min(len(values), 3)
    down = -(-len(values) // across)
    figure = Figure(figsize=(4.2 * across + 0.6, 3.2 * down + 0.3), layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False, sharex=False).flat)
    variants = list(dict.fromkeys(result["variant"] for result in trained))
    for panel, value in zip(panels, values, strict=False):
        here = [result for result in trained if _is_in_panel(result, option, value)]
        _draw_variants(panel, here, chosen, variants)
        panel.set(xlabel="epoch", ylabel=label or chosen)
        if option is not None:
            panel.set_title(_title(option, value), fontsize="medium")
    for panel in panels[len(values) :]:
        panel.set_axis_off()
    path = out / f"{content['recipe']}.png"
    figure.savefig(path, dpi=110)
    return path


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


def _title(option: str, value: Any) -> str:
    """Return an option's short name and value in words; for a class, its name alone."""
    return str(value) if option.endswith(".class_path") else f"{option.rpartition('.')[2]} {value}"


def _monitored(content: dict[str, Any], trained: list[dict[str, Any]]) -> str | None:
    names = list(dict.fromkeys(name for result in trained for name in result["curves"]))
    best = content["config"].get("best_checkpoint", {}).get("monitor", "val_ndcg_10")
    metrics = [name for name in names if name.startswith("val_") and name != "val_loss"]
    return next((name for name in [best, *metrics, "val_loss"] if name in names), None)


def _panel_option(content: dict[str, Any]) -> str | None:
    grid = content["grid"]
    shown = [content.get("table", {}).get(part) for part in ("columns", "rows")]
    others = [option for option in grid if option != "seed_everything"]
    return next((option for option in [*shown, *others] if option in grid), None)


def _is_in_panel(result: dict[str, Any], option: str | None, value: Any) -> bool:
    return option is None or result["point"].get(option) == value


def digits(out: Path, trust: Sequence[str] = ()) -> Path:
    """Draw ranked lists of images beside the learning curves: the picture of the recipe `digits`.

    Args:
        out: folder of a bench of `digits`.
        trust: packages whose classes the checkpoint may name.

    Returns:
        The picture, `out/digits.png`.
    """
    from ltr.datasets import DigitsDataModule
    from ltr.modules import Ranker

    trained = [result for result in finished(out) if result["fit"]]
    figure = Figure(figsize=(13, 1.1 + 1.25 * SHOWN_LISTS), layout="constrained")
    left, right = cast(Any, figure.subfigures(1, 2, width_ratios=[1, 2]))
    learning_curves(left.subplots(), out, "val_ndcg_10")
    checkpoint = out / "runs" / trained[0]["name"] / "checkpoints" / "best.ckpt"
    ranker = Ranker.load_from_checkpoint(checkpoint, trust=trust).eval()
    data = DigitsDataModule(**_data_options(out, trained[0]))
    data.setup("test")
    lists = [data.splits["test"][i] for i in range(SHOWN_LISTS)]
    grid = right.subplots(2 * SHOWN_LISTS, len(lists[0]["mask"]), squeeze=False)
    for number, one in enumerate(lists):
        with torch.no_grad():
            order = descending_order(ranker(one["features"]))
        as_dealt = torch.arange(len(order))
        for row, places in ((2 * number, as_dealt), (2 * number + 1, order)):
            _draw_list(grid[row], one, places)
    right.suptitle(
        f"test lists: unranked, and below ranked by {trained[0]['variant']}, best epoch "
        "(red: a higher digit stands further right)",
        fontsize="medium",
    )
    path = out / "digits.png"
    figure.savefig(path, dpi=110)
    return path


def _draw_list(row: Any, one: dict[str, Any], places: torch.Tensor) -> None:
    labels = one["labels"][places]
    for place, axes in enumerate(row):
        axes.imshow(one["features"][places[place]].view(8, 8).numpy(), cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
        wrong = bool((labels[place + 1 :] > labels[place]).any())
        axes.set_xlabel(f"{labels[place]:.0f}", color="red" if wrong else "black", labelpad=1)


def finished(out: Path) -> list[dict[str, Any]]:
    """Return the finished runs in `out/results.json`; of a search only the chosen ones."""
    runs = json.loads((out / "results.json").read_text(encoding="utf-8"))["runs"]
    return [run for run in runs if "metrics" in run and run.get("chosen", True)]


def curve(result: dict[str, Any], name: str) -> tuple[list[int], list[float]]:
    """Return the epochs of a run, from 1, at which it logged a value, and the values.

    >>> curve({"curves": {"epoch": [1, 2, 3], "val_x": [0.5, None, 0.7]}}, "val_x")
    ([1, 3], [0.5, 0.7])
    """
    pairs = zip(result["curves"]["epoch"], result["curves"][name], strict=True)
    there = [(epoch, value) for epoch, value in pairs if value is not None]
    return [epoch for epoch, _ in there], [value for _, value in there]


def _logs(out: Path, result: dict[str, Any]) -> list[Path]:
    # a resumed run has a log for each part, numbered in order
    folders = (out / "runs" / result["name"]).glob("logs/version_*")
    return sorted(folders, key=lambda folder: int(folder.name.partition("_")[2]))


def _data_options(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    import yaml

    config = _logs(out, result)[-1] / "config.yaml"
    return yaml.safe_load(config.read_text(encoding="utf-8"))["data"]["init_args"]

"""The pictures that `ltr bench` draws of its results."""

import csv
import json
from pathlib import Path
from typing import Any, cast

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ltr.operators import descending_order

SHOWN_LISTS = 4


def learning_curves(axes: Axes, out: Path, metric: str) -> None:
    """Draw a validation metric by epoch, one line a trained run.

    Args:
        axes: where to draw.
        out: folder of a bench.
        metric: its logged name, such as "val_ndcg_10".
    """
    for result in _results(out):
        if not result["fit"]:
            continue
        by_epoch: dict[int, float] = {}
        for folder in _logs(out, result):
            if not (folder / "metrics.csv").is_file():
                continue
            with (folder / "metrics.csv").open(newline="", encoding="utf-8") as lines:
                rows = [row for row in csv.DictReader(lines) if row.get(metric)]
            by_epoch |= {int(row["epoch"]): float(row[metric]) for row in rows}
        axes.plot([epoch + 1 for epoch in by_epoch], list(by_epoch.values()), label=result["name"])
    axes.set(xlabel="epoch", ylabel=metric, title="learning curves")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def digits(out: Path) -> Path:
    """Draw ranked lists of images beside the learning curves: the picture of the recipe `digits`.

    Args:
        out: folder of a bench of `digits`.

    Returns:
        The picture, `out/digits.png`.
    """
    from ltr.datasets import DigitsDataModule
    from ltr.modules import Ranker

    trained = [result for result in _results(out) if result["fit"]]
    figure = Figure(figsize=(13, 1.1 + 1.25 * SHOWN_LISTS), layout="constrained")
    left, right = cast(Any, figure.subfigures(1, 2, width_ratios=[1, 2]))
    learning_curves(left.subplots(), out, "val_ndcg_10")
    checkpoint = out / "runs" / trained[0]["name"] / "checkpoints" / "best.ckpt"
    ranker = Ranker.load_from_checkpoint(checkpoint).eval()
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
        f"test lists: as dealt, and below ranked by {trained[0]['variant']}, best epoch "
        "(red: a higher digit stands further right)",
        fontsize="medium",
    )
    path = out / "digits.png"
    figure.savefig(path, dpi=110)
    return path


def _draw_list(row: Any, one: dict[str, Any], places: torch.Tensor) -> None:
    labels = one["labels"][places]
    for place, axes in enumerate(row):
        axes.imshow(one["features"][places[place]].view(8, 8), cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
        wrong = bool((labels[place + 1 :] > labels[place]).any())
        axes.set_xlabel(f"{labels[place]:.0f}", color="red" if wrong else "black", labelpad=1)


def _results(out: Path) -> list[dict[str, Any]]:
    runs = json.loads((out / "results.json").read_text(encoding="utf-8"))["runs"]
    return [run for run in runs if "metrics" in run]


def _logs(out: Path, result: dict[str, Any]) -> list[Path]:
    # a run that was resumed has a log for each part, in the order of their numbers
    folders = (out / "runs" / result["name"]).glob("logs/version_*")
    return sorted(folders, key=lambda folder: int(folder.name.partition("_")[2]))


def _data_options(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    import yaml

    config = _logs(out, result)[-1] / "config.yaml"
    return yaml.safe_load(config.read_text(encoding="utf-8"))["data"]["init_args"]

"""Draw the plots of docs/losses/training.md: `python docs/soft_ndcg.py`."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULT = HERE.parent / "benchmarks" / "results" / "soft_ndcg_training.json"
PLOT = HERE / "losses" / "img" / "training.png"
PANELS = {
    "val": "NDCG@10 of validation lists",
    "spread": "standard deviation of the scores in a list",
    "pairs": "share of pairs within reach of a gradient",
    "norm": "length of a list's gradient",
    "behind": "its share on relevant documents far down",
    "turned": "share of the pairs that one step turns around",
}
LOGARITHMIC = ("spread", "norm")


def main() -> None:
    """Draw a panel for each quantity, with a line for each loss."""
    losses = json.loads(RESULT.read_text())["losses"]
    figure, grid = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    for axes, (name, title) in zip(grid.flat, PANELS.items(), strict=True):
        for number, (label, rows) in enumerate(losses.items()):
            points = [(row["epoch"], row[name]) for row in rows if name in row]
            style = "-" if label.startswith("harmonic, s") else "--"
            if points:
                axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=label)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("epoch", fontsize=8)
        axes.tick_params(labelsize=8)
        if name == "val":
            axes.set_ylim(0.68, 0.85)
        if name in LOGARITHMIC:
            axes.set_yscale("log")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=110)


if __name__ == "__main__":
    main()

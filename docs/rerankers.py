"""Draw the picture of docs/text-rerankers.md: `python docs/rerankers.py`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULT = HERE.parent / "benchmarks" / "results" / "rerankers.json"
PLOT = HERE / "img" / "rerankers.svg"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw MRR of each loss with its 95 % interval over the test lists, the best one on top.

    It shows the number of training lists that has the most trials.
    """
    rows = max(result["summary"].values(), key=lambda rows: sum(len(row["seeds"]) for row in rows))
    rows = sorted(rows, key=lambda row: row["mrr"])
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.32 * len(rows)), layout="constrained")
    for height, row in enumerate(rows):
        library = row["loss"].partition(" ")[0]
        color = {"ltr": "C0", "library": "C1"}.get(library, "0.5")
        error = 1.96 * row["standard_error"]
        axes.errorbar(row["mrr"], height, xerr=error, fmt="o", color=color, capsize=3)
    names = [
        "before training"
        if row["loss"] == "none"
        else row["loss"].partition(" ")[2].replace(", gain=", ",\ngain=")
        for row in rows
    ]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    figure.supxlabel("MRR on test lists: ltr in blue, sentence-transformers in orange", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    with matplotlib.rc_context({"svg.hashsalt": "ltr"}):
        figure.savefig(path, metadata={"Date": None})  # the same file each time
    plt.close(figure)


def main() -> None:
    """Draw the picture from the committed results."""
    draw(json.loads(RESULT.read_text()), PLOT)


if __name__ == "__main__":
    main()

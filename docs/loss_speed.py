"""Write docs/losses/speed.md's tables and draw its plot: `python docs/loss_speed.py`.

The text between `<!-- table NAME -->` and `<!-- end -->` comes from benchmarks/results/losses.json
and losses_kept.json. A test checks that the page and the files agree. The plot is
docs/losses/img/speed.svg.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import filled, number, table
from tables import setting as versions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "losses" / "speed.md"
RESULT = ROOT / "benchmarks" / "results" / "losses.json"
KEPT = RESULT.with_name("losses_kept.json")
GOALS = ROOT / "benchmarks" / "goals_losses.md"
PLOT = ROOT / "docs" / "losses" / "img" / "speed.svg"

FLOOR, DENSE = "all-pairs RankNet", "SoftNDCG dense"

ASKED = [
    ("RankNet", FLOOR, (64, 120), "below", 1.0),
    ("RankNet", FLOOR, (16, 500), "at most", 1 / 5),
    ("SoftNDCG", DENSE, (64, 120), "at most", 1 / 3),
    ("SoftNDCG", DENSE, (16, 500), "at most", 1 / 20),
    *(("LambdaRank", FLOOR, batch, "below", 1.0) for batch in ((64, 40), (64, 120), (16, 500))),
    *(("LambdaLoss(", FLOOR, batch, "at most", 2.0) for batch in ((64, 40), (64, 120), (16, 500))),
    ("NeuralNDCG", FLOOR, (64, 120), "at most", 6.5),
]
"""The start of a loss's name (the slowest of those counts); over what; the batch; the goal."""

Result = Mapping[str, Any]


def seconds(result: Result) -> dict[tuple[int, int], dict[str, float]]:
    """Return the seconds by batch (lists, n) and by loss."""
    return {
        (batch["lists"], batch["n"]): {row["loss"]: row["seconds"] for row in batch["losses"]}
        for batch in result["batches"]
    }


def goals(result: Result, kept: Result) -> str:
    """Return the table of what was asked and what was measured, also with memory kept."""
    rows = []
    for goal in ASKED:
        (what, found, met), (_, again, met_again) = outcome(result, *goal), outcome(kept, *goal)
        asked = f"{goal[3]} {number(goal[4])}"
        rows.append([what, asked, number(found), met, number(again), met_again])
    return table(["", "asked", "measured", "met", "memory kept", "met"], rows)


def outcome(
    result: Result, loss: str, over: str, batch: tuple[int, int], how: str, limit: float
) -> tuple[str, float, str]:
    """Return what was measured for one of `ASKED`: in words, the ratio, and whether it is met."""
    found = seconds(result)[batch]
    what = loss
    if loss.endswith("("):
        named = {name: taken for name, taken in found.items() if name.startswith(loss)}
        loss, what = max(named, key=named.__getitem__), "LambdaLoss, its slowest"
    ratio = found[loss] / found[over]
    met = ratio < limit if how == "below" else ratio <= limit
    return f"{what}, {size(batch)}: time / {over}", ratio, "yes" if met else "no"


def size(batch: Sequence[int]) -> str:
    """Return a batch as text for a header.

    >>> size((64, 40))
    '64 × 40'
    """
    return f"{batch[0]} × {batch[1]}"


def times(result: Result) -> str:
    """Return the table of CPU milliseconds, with their ratio to the baseline's in parentheses."""
    measured = seconds(result)
    names = dict.fromkeys(name for found in measured.values() for name in found)
    rows = [
        [name]
        + [
            f"{number(1e3 * found[name])} ({number(found[name] / found[FLOOR])})"
            if name in found
            else "-"
            for found in measured.values()
        ]
        for name in names
    ]
    return table(["loss", *map(size, measured)], rows)


def memory(result: Result) -> str:
    """Return the table of the most bytes of tensors that one call holds, in MB."""
    batches = result["batches"]
    held = [{row["loss"]: row["bytes"] for row in batch["losses"]} for batch in batches]
    names = dict.fromkeys(name for found in held for name in found)
    rows = [
        [name, *(number(found[name] / 1e6) if name in found else "-" for found in held)]
        for name in names
    ]
    return table(["loss", *(size((batch["lists"], batch["n"])) for batch in batches)], rows)


def setting(result: Result) -> str:
    """Return the versions, the processor and the number of rounds as text."""
    return f"{versions(result).removesuffix('.')}, {result['rounds']} rounds."


def scaled(kept: Result) -> str:
    """Return a sentence that says what Sinkhorn scaling costs."""
    # The baseline of its own run counts: these rows may be measured by themselves, with --only.
    name = "NeuralNDCG(scaling=50)"
    first, *others = [
        (number(row["ratio"]), size((batch["lists"], batch["n"])), batch)
        for batch in kept["batches"]
        for row in batch["losses"]
        if row["loss"] == name
    ]
    ratio, _, batch = first
    lists = f"for {batch['lists']} lists of {batch['n']} items"
    process = "In a process [that keeps freed memory](../recipes.md#training-on-a-cpu)"
    start = f"{process}, `{name}` takes {ratio} times as long as the baseline {lists}"
    rest = " and ".join(f"{ratio} times for {shape}" for ratio, shape, _ in others)
    return f"{start}, {rest}."


def tables(result: Result, kept: Result) -> dict[str, str]:
    """Return every table by its name."""
    return {
        "scaled": scaled(kept),
        "times": times(result),
        "memory": memory(result),
        "setting": setting(result),
    }


def draw(result: Result, path: Path) -> None:
    """Draw a row for each loss: the ratio of its time to the baseline's, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    measured = seconds(result)
    longest = measured[max(measured, key=lambda batch: batch[1])]
    names = sorted((name for name in longest if name != FLOOR), key=longest.__getitem__)
    figure, axis = plt.subplots(figsize=(8, 0.19 * len(names) + 1), layout="constrained")
    for (batch, found), marker in zip(measured.items(), "o^sDv", strict=False):
        known = [(found[name] / found[FLOOR], i) for i, name in enumerate(names) if name in found]
        axis.plot(*zip(*known, strict=True), marker, markersize=4, alpha=0.8, label=size(batch))
    axis.axvline(1, color="0.6", linewidth=0.9, zorder=0)
    axis.set(xscale="log", xlabel=f"CPU time / that of {FLOOR}", ylim=(-0.7, len(names) - 0.3))
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8, frameon=False, title="lists × items")
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "ltr"}):
        figure.savefig(path, metadata={"Date": None})  # the same file each time
    plt.close(figure)


if __name__ == "__main__":
    measured, kept = (json.loads(path.read_text()) for path in (RESULT, KEPT))
    PAGE.write_text(filled(PAGE.read_text(), tables(measured, kept)))
    GOALS.write_text(filled(GOALS.read_text(), {"goals": goals(measured, kept)}))
    draw(measured, PLOT)

"""Write docs/operators/speed.md's tables and draw its plot: `python docs/speed.py`.

The text between `<!-- table NAME -->` and `<!-- end -->` comes from
benchmarks/results/operators.json. A test checks that the page and the file agree. The plots are
docs/operators/speed.svg, and docs/img/sort_time.svg, which the README shows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import filled, number, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators" / "speed.md"
RESULT = ROOT / "benchmarks" / "results" / "operators.json"
GOALS = ROOT / "benchmarks" / "goals_operators.md"
PLOT = ROOT / "docs" / "operators" / "speed.svg"
PICTURE = ROOT / "docs" / "img" / "sort_time.svg"
ORDERS = ["random", "sorted", "reversed", "tied"]

Result = Mapping[str, Any]


def size(lists: int, n: int) -> str:
    """Return a batch as text for a header.

    >>> size(1, 100), size(20, 4000)
    ('100', '20 × 4,000')
    """
    return f"{n:,}" if lists == 1 else f"{lists} × {n:,}"


def chosen(result: Result, **where: Any) -> list[Mapping[str, Any]]:
    """Return the points that have these values."""
    return [
        point
        for point in result["points"]
        if all(point[key] in value for key, value in where.items())
    ]


def by_point(
    points: Sequence[Mapping[str, Any]],
    heads: Sequence[str],
    cell: Callable[[Mapping[str, Any]], str],
) -> str:
    """Return a table with a row for each contestant and a column for each point."""
    names = dict.fromkeys(_key(row) for point in points for row in point["rows"])
    columns = [{_key(row): cell(row) for row in point["rows"]} for point in points]
    rows = [
        [name, group, *(column.get((name, group), "-") for column in columns)]
        for name, group in names
    ]
    return table(["operator", "implementation", *heads], rows)


def times(result: Result, lists: Sequence[int]) -> str:
    """Return CPU milliseconds, with their ratio to torch.sort's, in one thread on random scores."""
    points = chosen(result, lists=lists, threads=[1], scores=["random"])
    heads = [size(point["lists"], point["n"]) for point in points]
    return by_point(
        points, heads, lambda row: f"{number(1e3 * row['cpu'])} ({number(row['ratio'])})"
    )


def threads(result: Result) -> str:
    """Return wall-clock milliseconds with all threads and with one, at the larger points."""
    points = [
        point
        for point in chosen(result, scores=["random"])
        if (point["lists"], point["n"]) in ((1, 1_000_000), (20, 4000), (64, 128))
    ]
    points = sorted(points, key=lambda point: (point["lists"], point["threads"]))
    heads = [
        f"{size(point['lists'], point['n'])}, {_threads(point['threads'])}" for point in points
    ]
    return by_point(points, heads, lambda row: number(1e3 * row["wall"]))


def orders(result: Result, n: int) -> str:
    """Return CPU milliseconds of one list of n by the order of its scores, in one thread."""
    points = chosen(result, lists=[1], n=[n], threads=[1], scores=ORDERS)
    some = {_key(row) for point in points if point["scores"] != "random" for row in point["rows"]}
    kept = [
        {**point, "rows": [row for row in point["rows"] if _key(row) in some]} for point in points
    ]
    heads = [point["scores"] for point in kept]
    return by_point(kept, heads, lambda row: number(1e3 * row["cpu"]))


def memory(result: Result) -> str:
    """Return the table of the memory peaks."""
    rows = [
        [
            row["name"],
            size(row["lists"], row["n"]),
            number(row["bytes"] / 2**20),
            number(row["tensors"]),
            number(row["seconds"]),
        ]
        for row in result["memory"]
    ]
    return table(["operator", "scores", "MiB", "multiple of the scores' size", "seconds"], rows)


def accuracy(result: Result) -> str:
    """Return the table of the errors of float32 against float64."""
    rows = [
        [row["name"], row["group"], f"{row['n']:,}"]
        + [number(row[key]) for key in ("values", "relative", "gradient")]
        for row in result["accuracy"]
    ]
    header = ["operator", "implementation", "n", "largest error of a rank", "that error / n"]
    return table([*header, "relative error of the gradient"], rows)


def goals(result: Result) -> str:
    """Return the table of what was asked and what was measured."""
    words = {True: "yes", False: "no", None: "not measured"}
    rows = [
        [row["goal"], row["asked"], number(row["measured"]), words[row["met"]]]
        for row in result["goals"]
    ]
    return table(["", "asked", "measured", "met"], rows)


def setting(result: Result) -> str:
    """Return the versions and the processor as text."""
    where = result["environment"]
    versions = [f"{name} {where[name]}" for name in ("torch", "numpy", "numba")]
    peers = [f"{name} {message}" for name, message in result["peers"].items()]
    packages = ", ".join([*versions, f"Python {where['python']}", *peers])
    return f"{packages}; {where['processor']}, {_threads(where['threads'])} in all."


def tables(result: Result) -> dict[str, str]:
    """Return every table by its name."""
    return {
        "times 1": times(result, [1]),
        "times more": times(result, [20, 64, 256]),
        "threads": threads(result),
        "orders 100000": orders(result, 100_000),
        "orders 1000000": orders(result, 1_000_000),
        "memory": memory(result),
        "accuracy": accuracy(result),
        "setting": setting(result),
    }


STYLES = {"sort": "-", "compiled": "-", "plain": "--", "naive": ":", "peer": "-."}
DRAWN = [
    "torch.sort",
    "torchsort.soft_rank, l2",
    "SoftSort, power 1",
    "SoftSort, power 2",
    "SigmoidRank",
    "NeuralSort",
]


def draw(result: Result, path: Path) -> None:
    """Draw the times by n on logarithmic axes, for one list and for twenty, to an SVG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
    batches = sorted({point["lists"] for point in result["points"]})[:2]
    for axis, lists in zip(axes, batches, strict=True):
        lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for point in chosen(result, lists=[lists], threads=[1], scores=["random"]):
            for row in point["rows"]:
                if row["name"] in DRAWN:
                    lines.setdefault(_key(row), []).append((point["n"], 1e3 * row["cpu"]))
        for (name, group), line in lines.items():
            color = "black" if group in ("sort", "peer") else f"C{DRAWN.index(name) - 2}"
            label = name if group in ("sort", "peer") else f"{name}, {group}"
            axis.plot(
                *zip(*line, strict=True),
                STYLES[group],
                color=color,
                marker=".",
                linewidth=1.2,
                label=label,
            )
        axis.set(xscale="log", yscale="log", xlabel="n", title=f"batch {lists}")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="ms of CPU, one thread, forward + backward")
    axes[1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    with matplotlib.rc_context({"svg.hashsalt": "ltr", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})  # the same file each time
    plt.close(figure)


OVERVIEW = {
    ("SigmoidRank", "naive"): ("soft ranks by the n × n matrix", "C3", ":"),
    ("SigmoidRank", "compiled"): ("soft ranks of ltr (SigmoidRank)", "C0", "-"),
    ("SoftSort, power 1", "compiled"): ("soft ranks of ltr (SoftSort)", "C2", "-"),
    ("torch.sort", "sort"): ("torch.sort", "0.4", "--"),
}


def overview(result: Result, path: Path) -> None:
    """Draw a few of the times of one list, for readers who do not know the operators."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    lines: dict[tuple[str, str], list[tuple[int, float]]] = {key: [] for key in OVERVIEW}
    for point in chosen(result, lists=[1], threads=[1], scores=["random"]):
        for row in point["rows"]:
            if _key(row) in lines:
                lines[_key(row)].append((point["n"], 1e3 * row["cpu"]))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axis = figure.subplots()
    for key, (label, color, style) in OVERVIEW.items():
        axis.plot(*zip(*lines[key], strict=True), style, color=color, marker=".", label=label)
    axis.set(xscale="log", yscale="log", xlabel="items in the list")
    axis.set_ylabel("milliseconds of one CPU thread,\nforward and backward")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    with matplotlib.rc_context({"svg.hashsalt": "ltr"}):
        figure.savefig(path, metadata={"Date": None})


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["name"], row["group"]


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


if __name__ == "__main__":
    measured = json.loads(RESULT.read_text())
    PAGE.write_text(filled(PAGE.read_text(), tables(measured)))
    GOALS.write_text(filled(GOALS.read_text(), {"goals": goals(measured)}))
    draw(measured, PLOT)
    overview(measured, PICTURE)

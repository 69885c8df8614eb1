"""Write docs/metrics/speed.md's tables and draw its plot: `python docs/metric_tables.py`."""

import json
from pathlib import Path
from typing import Any

from tables import RESULTS, filled, number, setting, table

HERE = Path(__file__).parent
PAGE = HERE / "metrics" / "speed.md"
PLOT = HERE / "metrics" / "img" / "speed.svg"


NAMES = {
    "ours": "`ltr.metrics`",
    "pytrec_eval": "pytrec_eval, with prebuilt dictionaries",
    "pytrec_eval_with_dictionaries": "pytrec_eval, building its dictionaries",
    "torchmetrics": "torchmetrics",
}


def result() -> dict[str, Any]:
    """Return the numbers of the benchmark."""
    return json.loads((RESULTS / "metrics.json").read_text())


def tables() -> dict[str, str]:
    """Return every table by its name."""
    found = result()
    ragged, flat = found["ragged"], found["flat"]
    rows = [
        [
            f"{row['lists']:,}",
            title,
            number(row["microseconds_a_list"][name]),
            number(row["ratios"][name]),
            number(row["largest_difference"][name], 1),
        ]
        for row in ragged
        for name, title in NAMES.items()
    ]
    most = max(ragged, key=lambda row: row["lists"])
    head = (
        f"For {most['lists']:,} lists with {most['items']:,} items, `ltr.metrics` uses at most "
        f"{found['extra_bytes'] / 2**20:.0f} MiB beyond the input.\n\n"
    )
    seconds = [
        ["NDCG@10", number(flat["seconds"]["ndcg"]), "1"],
        *(
            [title, number(flat["seconds"][name]), number(flat["ratios"][name])]
            for name, title in (("sort", "`scores.sort()`"), ("sort_ids", "`ids.sort()`"))
        ),
    ]
    header = ["lists", "library", "microseconds per list", "time / ours", "largest difference"]
    return {
        "setting": setting(found),
        "ragged": head + table(header, rows),
        "flat": f"{flat['items']:,} items:\n\n"
        + table(["what", "seconds", "NDCG@10 / this"], seconds),
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the time per list by the number of lists, on logarithmic axes, to an SVG file."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, title in NAMES.items():
        lists = [row["lists"] for row in found["ragged"]]
        each = [row["microseconds_a_list"][name] for row in found["ragged"]]
        axes.plot(lists, each, "o-", label=title.replace("`", ""))
    axes.set(
        xscale="log", yscale="log", xlabel="lists in one update", ylabel="microseconds per list"
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    with matplotlib.rc_context({"svg.hashsalt": "ltr"}):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables()))
    draw(result(), PLOT)
    print(f"wrote {PAGE} and {PLOT}")  # noqa: T201

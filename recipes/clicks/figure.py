"""The picture of the recipe `clicks`: NDCG on grades against the number of sessions."""

import numpy as np
from matplotlib.figure import Figure

from recipes.results import Result


def by_sessions(runs: list[Result]) -> Figure | None:
    """Draw NDCG@10 by the number of sessions, one panel a set and one line a way to learn.

    A line is the mean over the seeds, and the band around it the standard deviation. What uses no
    log is a horizontal line.

    Args:
        runs: finished runs.

    Returns:
        The picture; None if no run is finished.
    """
    if not runs:
        return None
    sets = list(dict.fromkeys(run["options"]["data.source"] for run in runs))
    figure = Figure(figsize=(5 * len(sets), 4), layout="constrained")
    panels = np.ravel(np.asarray(figure.subplots(1, len(sets), squeeze=False)))
    for axes, name in zip(panels, sets, strict=True):
        own = [run for run in runs if run["options"]["data.source"] == name]
        for number, variant in enumerate(dict.fromkeys(run["variant"] for run in own)):
            found: dict[int | None, list[float]] = {}
            for run in own:
                if run["variant"] == variant:
                    value = run["metrics"]["test_ndcg_10"]
                    found.setdefault(run["options"].get("data.sessions"), []).append(value)
            label, color = variant.removeprefix(f"{name}, "), f"C{number}"
            if None in found:
                axes.axhline(float(np.mean(found[None])), color=color, ls="--", label=label)
                continue
            counts = sorted(count for count in found if count is not None)
            mean = np.array([np.mean(found[count]) for count in counts])
            spread = np.array([np.std(found[count]) for count in counts])
            axes.plot(counts, mean, ".-", color=color, label=label)
            axes.fill_between(counts, mean - spread, mean + spread, color=color, alpha=0.15, lw=0)
        axes.set(xlabel="sessions", ylabel="NDCG@10 on grades", title=name)
        if any("data.sessions" in run["options"] for run in own):
            axes.set_xscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure

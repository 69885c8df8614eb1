"""The picture of the recipe `regression`: errors against the share of outliers."""

import numpy as np
from matplotlib.figure import Figure

from recipes.results import Result

_METRICS = {
    "test_mae": "mean absolute error",
    "test_median_absolute_error": "median absolute error",
}
_SHARE = "outliers"


def errors_by_share(runs: list[Result]) -> Figure | None:
    """Draw the test errors by the share of outliers, one line a variant.

    A line is the mean over the splits of the data, and the band around it the standard deviation.
    The axis is logarithmic, since a few outliers change least squares a lot.

    Args:
        runs: finished runs.

    Returns:
        The picture; None if no run is finished.
    """
    if not runs:
        return None
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, len(_METRICS), sharey=True)
    for axes, (metric, title) in zip(panels, _METRICS.items(), strict=True):
        for number, variant in enumerate(dict.fromkeys(run["variant"] for run in runs)):
            errors: dict[float, list[float]] = {}
            for run in runs:
                if run["variant"] == variant:
                    errors.setdefault(run["point"][_SHARE], []).append(run["metrics"][metric])
            shares = sorted(errors)
            mean = np.array([np.mean(errors[share]) for share in shares])
            axes.plot(shares, mean, ".-", color=f"C{number}", label=variant)
            if all(len(errors[share]) > 1 for share in shares):
                sd = np.array([np.std(errors[share], ddof=1) for share in shares])
                axes.fill_between(shares, mean - sd, mean + sd, color=f"C{number}", alpha=0.15)
        axes.set(xlabel="share of outliers among the training labels", title=title, yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("error on clean test labels")
    panels[0].legend(fontsize="small")
    return figure

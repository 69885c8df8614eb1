"""How well predicted probabilities agree with the observed relevance."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ltr.arrays import as_numbers
from ltr.plots import new_figure
from ltr.shapes import check_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Reliability:
    """How well predicted probabilities agree with the observed relevance; see `reliability`.

    Attributes:
        predicted: (bins,), the mean probability of the rows in each bin; NaN for an empty bin.
        observed: (bins,), the fraction of relevant rows in each bin; NaN for an empty bin.
        counts: (bins,), the number of rows in each bin.
        brier: the Brier score, the mean of (probability - relevant)^2; 0 is best.
        ece: the expected calibration error, the mean over the rows of |predicted - observed| in the
            row's bin; 0 is best.
    """

    predicted: np.ndarray
    observed: np.ndarray
    counts: np.ndarray
    brier: float
    ece: float

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the observed fraction against the predicted probability, and the ideal diagonal.

        This needs matplotlib (the extra `plots`).

        Args:
            axes: the axes to draw on. Default: those of a new figure, `plot().figure`.

        Returns:
            The axes.
        """
        if axes is None:
            axes = new_figure("Reliability.plot", 4.8, 4.8).subplots()
        known = self.counts > 0
        axes.plot([0, 1], [0, 1], color="black", linewidth=1)
        axes.plot(self.predicted[known], self.observed[known], marker="o")
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("fraction that is relevant")
        axes.set_title(f"Brier score {self.brier:.4f}, calibration error {self.ece:.4f}")
        axes.grid(alpha=0.3)
        return axes


def reliability(probabilities: Any, relevant: Any, *, bins: int = 10) -> Reliability:
    """Compare predicted probabilities with the observed relevance, in bins of equal width.

    Args:
        probabilities: (rows,), in [0, 1]. The last bin contains 1.
        relevant: (rows,), True or 1 for a relevant row, False or 0 for any other row.
        bins: the number of bins. A probability at an edge belongs to the bin above the edge.

    Raises:
        ValueError: an argument has a wrong shape or an invalid value, or there are no rows.

    Reference: Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML
    2017, for the expected calibration error.

    >>> found = reliability([0.1, 0.1, 0.9, 0.8], [0, 1, 1, 1], bins=2)
    >>> found.predicted, found.observed, found.counts
    (array([0.1 , 0.85]), array([0.5, 1. ]), array([2, 2]))
    >>> round(found.brier, 4), round(found.ece, 4)  # (0.01 + 0.81 + 0.01 + 0.04) / 4
    (0.2175, 0.275)
    """
    check_whole("bins", bins)
    given = {"probabilities": probabilities, "relevant": relevant}
    p, y = (as_numbers(name, x) for name, x in given.items())
    kind = p.dtype if p.dtype.kind == "f" else np.float64
    p, y = p.astype(np.float64), y.astype(np.float64)
    if p.ndim != 1 or not len(p):
        raise ValueError(f"probabilities must be (rows,) in [0, 1], got shape {p.shape}")
    for row in np.flatnonzero(~((p >= 0) & (p <= 1)))[:1]:
        raise ValueError(f"probabilities must be in [0, 1], got {p[row]} in row {row}")
    if y.shape != p.shape:
        raise ValueError(f"relevant must be 0 or 1 for each of {len(p)} rows, got shape {y.shape}")
    for row in np.flatnonzero(~np.isin(y, (0, 1)))[:1]:
        raise ValueError(f"relevant must be 0 or 1, got {y[row]} in row {row}")
    # Multiplied by `bins`, 0.29 would fall below 29. An edge is rounded as the probabilities are.
    edges = (np.arange(1, bins) / bins).astype(kind)
    which = np.searchsorted(edges, p, side="right")
    counts = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted, observed = (np.bincount(which, x, bins) / counts for x in (p, y))
    error = float(np.nansum(abs(predicted - observed) * counts) / len(p))
    return Reliability(predicted, observed, counts, float(np.mean((p - y) ** 2)), error)

"""Figures, where matplotlib is installed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(what: str, width: float, height: float) -> "Figure":
    """Return a figure of a size in inches.

    Raises:
        ValueError: matplotlib is not installed; the message names what needs it, and the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"{what} needs matplotlib: pip install 'ltr-torch[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")

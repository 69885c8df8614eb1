"""Plots of each column's effect on the score."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.utils.validation import check_is_fitted

from ltr.datasets import read_table
from ltr.estimators import tables as tables
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.plots import new_figure
from ltr.estimators.scoring import needs_lists

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 4  # plots in a row
_BARS = 12  # of a category


def plot_effects(ranker: NeuralRanker, X: Any, *, rows: int = 1000) -> "Figure":
    """Draw the effect of each column on the score, one plot per column.

    The model must be additive; the plots then show the whole model. `AdditiveScorer` and
    `LinearScorer` are additive if the transform handles each column by itself, as the default one
    does. An effect is the difference from the column's mean effect over the rows. All plots have
    the same scale. A dashed line is the effect of a missing value. In a category it also stands for
    unseen values.

    Args:
        ranker: fitted.
        X: rows of the training's columns, such as those of the training.
        rows: how many of them are drawn, evenly spaced, >= 2. Each column takes a prediction of
            that many rows.

    Returns:
        The figure; `figure.savefig("effects.png")` writes it. Needs matplotlib (the extra `plots`).

    Raises:
        ValueError: the model is not additive, or looks at the whole list; X does not fit; or
            matplotlib is not installed.

    >>> from ltr.models import AdditiveScorer
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> ranker = NeuralRanker(scorer=AdditiveScorer(hidden=(4,)), max_epochs=2, verbose=0)
    >>> ranker = ranker.fit(X, X[:, 0] > 0, qid=np.arange(200) // 10)
    >>> [axes.get_title() for axes in plot_effects(ranker, X).axes]
    ['x0', 'x1', 'x2']
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 2:
        raise ValueError(f"rows must be a whole number >= 2, got {rows!r}")
    panels = _panels(ranker, X, rows)
    down = -(-len(panels) // _ACROSS)
    figure = new_figure("plot_effects", 2.6 * _ACROSS, 2.2 * down)
    several = [*figure.subplots(down, _ACROSS, squeeze=False, sharey=True).flat]
    for axes, panel in zip(several, panels, strict=False):
        _draw(axes, panel)
    for axes in several[len(panels) :]:
        axes.remove()
    return figure


@dataclass
class _Panel:
    """A column: its values in the rows, their effects on the score, and names of categories."""

    name: str
    values: np.ndarray
    effects: np.ndarray
    levels: tuple[str, ...] | None = None


def _panels(ranker: NeuralRanker, X: Any, rows: int) -> list[_Panel]:
    if not isinstance(ranker, NeuralRanker):
        raise ValueError(f"ranker must be a NeuralRanker, got {ranker!r}")
    check_is_fitted(ranker)
    if needs_lists(ranker.transform_, ranker.scorer_):
        raise ValueError(
            "ranker must be additive, got one whose transform or scorer looks at the whole list"
        )
    table, schema = tables.as_table(ranker, X).to_arrow(), ranker.schema_
    chosen = np.unique(np.linspace(0, max(0, table.num_rows - 1), rows).round().astype(int))
    table = table.append_column(schema.qid, pa.array(["0"] * table.num_rows))
    data = read_table(table.take(chosen[: table.num_rows]), schema, needs_label=False)
    columns: dict[str, np.ndarray] = {"features": data.features}
    if data.categories is not None:
        columns["categories"] = data.categories
    # only one column changes; the others stay as in the first row
    still = {key: np.repeat(x[:1], len(x), 0) for key, x in columns.items()}
    names: list[tuple[str, int, str, tuple[str, ...] | None]] = [
        ("features", i, name, None) for i, name in enumerate(schema.feature_names)
    ]
    for i, (name, category) in enumerate(schema.categories.items()):
        names.append(("categories", i, name, tuple(category.levels)))
    panels, total = [], 0.0
    for key, i, name, levels in names:
        moved = still[key].copy()
        moved[:, i] = columns[key][:, i]
        effects = _scores(ranker, {**still, key: moved})
        effects -= effects.mean()
        total = total + effects
        panels.append(_Panel(name, columns[key][:, i], effects, levels))
    scores = _scores(ranker, columns)
    error = np.abs(scores - scores.mean() - total).max()
    if error > 1e-3 * max(scores.std(), 1e-6):
        raise ValueError(
            "ranker must be additive, such as NeuralRanker(scorer=AdditiveScorer()): its "
            f"scores differ by up to {error:.2g} from the sum of the columns' contributions"
        )
    return panels


def _scores(ranker: NeuralRanker, columns: dict[str, np.ndarray]) -> np.ndarray:
    given = {key: torch.from_numpy(x) for key, x in columns.items()}
    with torch.inference_mode():
        return ranker.scorer_(ranker.transform_(**given)).double().numpy()


def _draw(axes: "Axes", panel: _Panel) -> None:
    axes.set_title(panel.name, fontsize="medium")
    axes.grid(axis="y", alpha=0.3)
    values, effects = panel.values, panel.effects
    missing = np.isnan(values) if panel.levels is None else values == 0
    if missing.any():
        axes.axhline(effects[missing][0], color="0.5", linestyle="--", linewidth=1)
    values, effects = values[~missing], effects[~missing]
    if panel.levels is None:
        order = values.argsort(kind="stable")
        axes.plot(values[order], effects[order])
        axes.plot(values, np.zeros(len(values)), "k|", transform=axes.get_xaxis_transform())
        return
    found, first, times = np.unique(values, return_index=True, return_counts=True)
    most = np.sort(np.argsort(-times, kind="stable")[:_BARS])
    axes.bar(range(len(most)), effects[first[most]])
    names = [panel.levels[code - 1] for code in found[most]]
    axes.set_xticks(range(len(most)), names, rotation=90 if len(most) > 3 else 0)

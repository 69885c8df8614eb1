"""How much a ranking depends on a column: the decrease of a metric if the column is shuffled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from ltr.estimators import tables as tables
from ltr.estimators.scoring import values_of_lists
from ltr.metrics.comparison import Interval, text_table
from ltr.metrics.named import ranking_measure
from ltr.models.trees import scores_of
from ltr.names import nearest
from ltr.plots import bar_axes
from ltr.shapes import check_at_least, check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Importance:
    """The result of `importance`: `print` it, or use `table` or `plot()`.

    Attributes:
        metric: the metric's name.
        score: the mean metric of the unchanged lists.
        columns: the names of the columns that were shuffled, in the order of X.
        among: (repeats, columns), the decrease of the mean metric if a column is shuffled among all
            documents; negative if the metric rises.
        within: (repeats, columns), the same for a column that is shuffled within each list.
        confidence: the confidence level of the intervals, in (0, 1).
    """

    metric: str
    score: float
    columns: list[Any]
    among: np.ndarray
    within: np.ndarray
    confidence: float

    @property
    def table(self) -> pd.DataFrame:
        """A table with one row per shuffled column, the largest mean of `among` first.

        `among` and `within` are the means over the repeats. `among_low`, `among_high`, `within_low`
        and `within_high` are the bounds of their confidence intervals, from Student's t
        distribution. The intervals show how much the means vary with the random shuffles, not with
        the lists.
        """
        columns: dict[str, np.ndarray] = {}
        for name, losses in (("among", self.among), ("within", self.within)):
            mean, error = losses.mean(0), stats.sem(losses, axis=0)
            half = error * stats.t.ppf((1 + self.confidence) / 2, len(losses) - 1)
            columns |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
        frame = pd.DataFrame(columns, index=pd.Index(self.columns, name="column"))
        return frame.iloc[np.lexsort((-frame["within"], -frame["among"]))]

    def __repr__(self) -> str:
        level = f"[{100 * self.confidence:g}%]"
        rows = []
        for name, row in zip(self.table.index, self.table.to_numpy(), strict=True):
            rows.append([str(name), str(Interval(*row[:3])), str(Interval(*row[3:]))])
        lines = text_table(["", f"among all {level}", f"within lists {level}"], rows)
        caption = (
            f"{self.metric} is {self.score:.4f}; its loss if a column is shuffled, "
            f"mean of {len(self.among)} shuffles"
        )
        return "\n".join([*lines, caption])

    def plot(self, axes: "Axes | None" = None, *, most: int = 20) -> "Axes":
        """Draw a bar for each mean decrease of the metric, with its confidence interval.

        This needs matplotlib (the extra `plots`).

        Args:
            axes: the axes to draw on. Default: those of a new figure, `plot().figure`.
            most: the largest number of columns to draw; these are the first rows of `table`.

        Returns:
            The axes.
        """
        check_at_least("most", most, 1)
        table = self.table.head(most)
        label = f"loss of {self.metric}, {100 * self.confidence:g}% interval"
        names, height = [*map(str, table.index)], 1.4 + 0.4 * len(table)
        axes = bar_axes(axes, names, label, "Importance.plot", height)
        positions = np.arange(len(table))
        for name, label, shift in (
            ("among", "among all documents", -0.2),
            ("within", "within lists", 0.2),
        ):
            half = table[f"{name}_high"] - table[name]
            axes.barh(positions + shift, table[name], 0.38, xerr=half, label=label)
        axes.legend()
        return axes


def importance(
    ranker: Any,
    X: Any,
    y: Any,
    qid: Any = None,
    *,
    group: Any = None,
    metric: str = "ndcg@10",
    columns: Sequence[Any] | None = None,
    repeats: int = 10,
    confidence: float = 0.95,
    seed: int = 0,
) -> Importance:
    """Return, for each column, how much a metric decreases if the column's values are shuffled.

    A column is shuffled in two ways. Shuffling among all documents removes all information that the
    column has about the document and the query. Shuffling within each list keeps the values of the
    list, and changes only which document has which value. So the decrease within lists is exactly 0
    for a column that is constant within each list, such as the length of the query. The ranker is
    not fitted again. Use lists that the ranker was not trained on: on its training lists, columns
    whose values it has memorized look important.

    If two columns have the same information, each may look unimportant, because the ranker still
    has the other column.

    Args:
        ranker: a fitted ranker whose `predict` returns a score for each row, such as a
            `NeuralRanker`, a `Blend`, a ranker of LightGBM or XGBoost, or a pipeline of
            scikit-learn. If `predict` takes `qid`, it gets the index of each row's list.
        X: (rows, columns): a pandas or polars data frame, an Arrow table, or an array. The ranker
            gets an array or a pandas data frame, with text and categories unchanged.
        y: (rows,), graded relevance >= 0.
        qid: (rows,), the query of each row, in any order.
        group: instead of `qid`, the sizes of the lists, in the order of the rows.
        metric: a name, such as "mrr@10", a function or an object; see `NeuralRanker`.
        columns: the names of the columns to shuffle. Columns of an array are called x0, x1 and so
            on. Default: the columns that the ranker was trained on, if it knows their names
            (`feature_names_in_`); otherwise all columns.
        repeats: how many times each column is shuffled in each way, >= 2. All columns are shuffled
            by the same permutations, so the result of a column does not depend on which other
            columns are requested.
        confidence: the confidence level of the intervals, in (0, 1).
        seed: the seed of the permutations.

    Returns:
        The decreases of the metric in each repeat, and a table of their means.

    Cost: 2 * repeats predictions of X for each column.

    Raises:
        ValueError: an argument is out of range or has the wrong length, a column or a metric is
            unknown, or the ranker does not predict a finite number for each row.

    Reference: Fisher, Rudin and Dominici, "All models are wrong, but many are useful", JMLR 2019,
    here with a ranking metric.

    >>> from ltr.estimators import NeuralRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 2)), np.arange(400) // 10
    >>> y = (X[:, 0] > 1).astype(int)
    >>> ranker = NeuralRanker(members=1, max_epochs=10, random_state=0, verbose=0)
    >>> ranker = ranker.fit(X, y, qid=qid)
    >>> result = importance(ranker, X, y, qid, repeats=3)
    >>> [*result.table.index]
    ['x0', 'x1']
    >>> bool(result.table.loc["x0", "within_low"] > 0.2)
    True
    """
    X = as_columns(X)
    labels = tables.as_labels(y, len(X))
    groups, _ = tables.list_groups(tables.query_names(len(X), qid, group))
    measure = ranking_measure(metric)
    check_at_least("repeats", repeats, 2)
    check_at_least("seed", seed, 0)
    check_fraction("confidence", confidence)
    names = column_names(X)
    positions = _positions(X, columns, ranker)

    def measured(X: Any) -> float:
        scores = predicted(ranker, X, groups)
        return float(values_of_lists(scores, labels, groups, metric=metric).mean())

    score = measured(X)
    losses = np.empty((2, repeats, len(positions)))
    rng = np.random.default_rng(seed)
    for repeat in range(repeats):
        for way, order in enumerate((rng.permutation(len(X)), _within(groups, rng))):
            for i, position in enumerate(positions):
                rows = [order if j == position else None for j in range(len(names))]
                losses[way, repeat, i] = score - measured(take_by_column(X, rows))
    among, within = losses
    return Importance(
        measure.title, score, [names[i] for i in positions], among, within, confidence
    )


def as_columns(X: Any, name: str = "X") -> np.ndarray | pd.DataFrame:
    """Return a table as a pandas data frame, and anything else as an array.

    Raises:
        ValueError: X is sparse, or has no rows or no columns.
    """
    X = tables.with_rows(X, name)
    X = tables.as_pandas(X) if tables.is_frame(X) else np.asarray(X)
    if 0 in X.shape:
        raise ValueError(f"{name} must have rows and columns, got shape {X.shape}")
    return X


def column_names(X: np.ndarray | pd.DataFrame) -> list[Any]:
    """Return the names of the columns; columns of an array are called x0, x1 and so on."""
    return [f"x{i}" for i in range(X.shape[1])] if isinstance(X, np.ndarray) else [*X.columns]


def trained_positions(ranker: Any, X: np.ndarray | pd.DataFrame) -> list[int]:
    """Return the indices of the columns that a ranker was trained on; all if they are unknown."""
    names = column_names(X)
    # A `RankingModel` has no `feature_names_in_`, but it has a schema.
    steps = getattr(getattr(ranker, "schema", None), "steps", names)
    trained = [*getattr(ranker, "feature_names_in_", steps)]
    return [i for i, name in enumerate(names) if name in trained] or [*range(len(names))]


def take_by_column(
    X: np.ndarray | pd.DataFrame, rows: Sequence[np.ndarray | None]
) -> np.ndarray | pd.DataFrame:
    """Return a table whose column j has the values of column j of X in the rows `rows[j]`.

    Args:
        X: see `as_columns`. Types are kept: categories, text, dates, lists.
        rows: an array of row indices for each column, all of the same length; None keeps the column
            as it is.

    >>> take_by_column(np.array([[1, 10], [2, 20]]), [None, np.array([1, 0])])
    array([[ 1, 20],
           [ 2, 10]])
    """
    columns = X.T if isinstance(X, np.ndarray) else [X.iloc[:, j].array for j in range(X.shape[1])]
    taken = [x if r is None else x.take(r) for x, r in zip(columns, rows, strict=True)]
    if isinstance(X, np.ndarray):
        return np.stack(taken, axis=1)
    return pd.DataFrame(dict(enumerate(taken))).set_axis(X.columns, axis=1)


def predicted(ranker: Any, X: Any, groups: np.ndarray | None = None) -> np.ndarray:
    """Return the predictions of a ranker, float64 (rows,), all of them finite.

    Args:
        ranker: see `importance`.
        X: the columns.
        groups: (rows,), the index of each row's list; None if the lists are unknown.

    Raises:
        ValueError: the ranker has no `predict`, or does not predict one finite number for each row.
    """
    if not hasattr(ranker, "predict"):
        raise ValueError(f"ranker must have `predict`, got {ranker!r}")
    scores = scores_of(ranker, X, groups)
    if (bad := np.flatnonzero(~np.isfinite(scores))).size:
        raise ValueError(f"ranker must predict finite numbers, got {scores[bad[0]]}")
    return scores


def _positions(X: Any, columns: Sequence[Any] | None, ranker: Any) -> list[int]:
    """Return the indices of the columns to shuffle."""
    if columns is None:
        return trained_positions(ranker, X)
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns must be a list of names, got {columns!r}")
    names = column_names(X)
    for name in columns:
        if name not in names:
            raise ValueError(f"columns: no column {name!r}: {nearest(str(name), map(str, names))}")
    return [i for i, name in enumerate(names) if name in columns]


def _within(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation of the rows (rows,) that keeps each row in its list."""
    order = np.empty(len(groups), dtype=np.int64)
    order[np.argsort(groups, kind="stable")] = np.lexsort((rng.random(len(groups)), groups))
    return order

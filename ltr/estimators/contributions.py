"""What each column adds to a document's score: why one document is ranked above another."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from ltr.estimators import tables as tables
from ltr.estimators.importance import (
    as_columns,
    column_names,
    predicted,
    take_by_column,
    trained_positions,
)
from ltr.estimators.mixed_rows import Mixed, has_relative, mixed_scores
from ltr.models.trees import library_of
from ltr.names import plural
from ltr.plots import bar_axes
from ltr.shapes import check_at_least
from ltr.training.seeds import own_random_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Method = Literal["trees", "shap"]

_CHUNK = 1 << 14
"""At most this many rows, with values from X and the background, are scored at a time."""


@dataclass(frozen=True, repr=False)
class Contributions:
    """The result of `contributions`: use `between(a, b)`, `of(row)`, `table` or `plot()`.

    Attributes:
        columns: the names of the columns.
        values: (rows, columns), what each column adds to each row's score.
        base: the mean score of the background. A row of `values` sums to the row's score minus
            `base`.
        scores: (rows,), the predictions of the ranker.
        data: the columns of X, as a pandas data frame.
        method: "trees" for exact contributions, "shap" for those from random orders of the columns.
    """

    columns: list[Any]
    values: np.ndarray
    base: float
    scores: np.ndarray
    data: pd.DataFrame
    method: Method

    @property
    def table(self) -> pd.DataFrame:
        """The contributions, with a row for each row of X and a column for each column of X."""
        return pd.DataFrame(self.values, columns=pd.Index(self.columns))

    def of(self, row: int) -> pd.DataFrame:
        """Return the value and the contribution of each column in a row.

        The largest absolute contribution comes first.

        Args:
            row: the index of the row in X, from 0.
        """
        row = self._position("row", row)
        content = {"value": self._held(row), "contribution": self.values[row]}
        return self._sorted(content, self.values[row])

    def between(self, a: int, b: int) -> pd.DataFrame:
        """Return why rows a and b have different scores: the differences of their contributions.

        Args:
            a: the index of a row in X, from 0.
            b: the index of another row.

        Returns:
            A row for each column: its values in a and b, and the difference of the contributions.
            The differences sum to the score of a minus the score of b. The largest absolute
            difference comes first. A positive difference favors a.
        """
        a, b = self._position("a", a), self._position("b", b)
        difference = self.values[a] - self.values[b]
        content = {"a": self._held(a), "b": self._held(b), "difference": difference}
        return self._sorted(content, difference)

    def plot(
        self, row: int = 0, other: int | None = None, axes: "Axes | None" = None, *, most: int = 15
    ) -> "Axes":
        """Draw a bar for each column's contribution to a row's score.

        This needs matplotlib (the extra `plots`).

        Args:
            row: the index of the row in X, from 0.
            other: the index of another row. If it is given, the bars are the differences of
                `between(row, other)`. Default: None; the bars are the contributions of `of(row)`.
            axes: the axes to draw on. Default: those of a new figure, `plot().figure`.
            most: the largest number of columns that get a bar of their own: those with the largest
                absolute contributions. One more bar shows the sum of all other contributions.

        Returns:
            The axes.
        """
        check_at_least("most", most, 1)
        if other is None:
            table, length = self.of(row), self.scores[row] - self.base
            label = f"row {row}: score {self.scores[row]:.3f}, base value {self.base:.3f}"
            names = [f"{name} = {_text(held)}" for name, held in table["value"].items()]
        else:
            row, other = self._position("row", row), self._position("other", other)
            table, length = self.between(row, other), self.scores[row] - self.scores[other]
            label = f"score of row {row} minus that of row {other}: {length:.3f}"
            pairs = zip(table.index, table["a"], table["b"], strict=True)
            names = [f"{name}: {_text(a)}, {_text(b)}" for name, a, b in pairs]
        sizes = table.iloc[:, -1].to_numpy()
        names, left = names[:most], sizes[most:]
        sizes = sizes[:most]
        if len(left):
            others = f"{len(left)} {plural(len(left), 'other')}"
            names, sizes = [*names, others], np.r_[sizes, left.sum()]
        axes = bar_axes(axes, names, label, "Contributions.plot", 1.2 + 0.3 * len(names))
        colors = ["tab:green" if size > 0 else "tab:red" for size in sizes]
        axes.barh(range(len(names)), sizes, color=colors)
        return axes

    def __repr__(self) -> str:
        sizes = pd.Series(abs(self.values).mean(0), pd.Index(self.columns))
        largest = sizes.sort_values(ascending=False, kind="stable").head(10)
        exact = "drawn orders of the columns" if self.method == "shap" else "exact"
        head = (
            f"{len(self.scores)} {plural(len(self.scores), 'row')}, {len(self.columns)} "
            f"{plural(len(self.columns), 'column')}, base value {self.base:.4f}; "
            f"{self.method} ({exact})\nmean size of a contribution:"
        )
        return "\n".join([head, largest.map("{:.4f}".format).to_string()])

    def _position(self, name: str, row: int) -> int:
        check_at_least(name, row, 0)
        if row >= len(self.scores):
            raise ValueError(
                f"{name} must be below {len(self.scores)}, the number of rows of X, got {row}"
            )
        return int(row)

    def _held(self, row: int) -> np.ndarray:
        shown = np.empty(len(self.columns), dtype=object)
        for j in range(len(shown)):
            shown[j] = self.data.iloc[row, j]
        return shown

    def _sorted(self, content: dict[str, Any], sizes: np.ndarray) -> pd.DataFrame:
        frame = pd.DataFrame(content, index=pd.Index(self.columns))
        return frame.iloc[np.argsort(-abs(sizes), kind="stable")]


def contributions(
    ranker: Any,
    X: Any,
    *,
    qid: Any = None,
    background: Any = None,
    background_qid: Any = None,
    samples: int = 25,
    permutations: int = 1,
    seed: int = 0,
) -> Contributions:
    """Return what each column adds to the score of each document.

    A contribution is a Shapley value. The values of a background row are replaced by those of the
    document, one column after the other. The contribution of a column is the change of the score
    when its value is replaced, on average over all orders of the columns and over the background.
    The contributions of a row sum to its score minus the mean score of the background. A column of
    text or categories has one contribution, even if the model turns it into many features.

    - For LightGBM's models without a `background`, the contributions are exact. LightGBM computes
      them (`pred_contrib`). The background is then the training rows, as counted in the trees.
    - In all other cases, `shap` (the extra `explain`) draws orders of the columns. One order and
      its reverse are enough if columns matter only alone or in pairs. So the contributions are
      exact for an additive model, such as a linear regression.

    What a column is relative to its list (see `NeuralRanker(relative=True)`) belongs to the column.
    So a value is replaced together with its rank and its difference in the list of its row, and the
    base value is the mean score of the background rows in their own lists.

    Args:
        ranker: a fitted ranker whose `predict` returns a score for each row. A score must depend on
            its row alone, or on columns relative to the list too.
        X: (rows, columns), the documents: a pandas or polars data frame, an Arrow table, or an
            array, in a form that the ranker takes. A few hundred rows are practical.
        qid: (rows,), the query of each row, for a ranker with columns relative to the list. Give
            whole lists.
        background: rows that represent usual documents, with the columns of X. If they are the
            other documents of a list, the contributions tell what sets a document apart in this
            list. If they are a single row b, the contributions tell why a row's score differs from
            the score of b. Default: X, except for LightGBM's models (see above).
        background_qid: the query of each background row, for such a ranker.
        samples: the largest number of background rows to use; they are evenly spaced.
        permutations: how many orders `shap` draws for each row; it uses the reverse of each too.
        seed: the seed of the random orders.

    Returns:
        The contributions, with the base value and the scores.

    Cost: about 2 * columns * samples * permutations predictions for each row, and fewer if a row
    and the background have equal values.

    Raises:
        ValueError: X or the background has a wrong shape, they differ in their columns or types, an
            argument is out of range, the ranker looks at whole lists other than by columns relative
            to them, `qid` or `background_qid` is missing but needed, `background_qid` is given
            without a background, the ranker does not predict one finite number per row, or `shap`
            is needed and not installed.

    Reference: Lundberg and Lee, "A unified approach to interpreting model predictions", 2017;
    Lundberg et al., "From local explanations to global understanding with explainable AI for
    trees", 2020.

    >>> from sklearn.linear_model import LinearRegression
    >>> X = pd.DataFrame({"price": [1.0, 2.0, 3.0, 6.0], "stock": [5.0, 0.0, 5.0, 2.0]})
    >>> ranker = LinearRegression().fit(X, -X["price"] + 0.1 * X["stock"])
    >>> found = contributions(ranker, X)
    >>> found.between(0, 1).round(6)
             a    b  difference
    price  1.0  2.0         1.0
    stock  5.0  0.0         0.5
    >>> bool(np.allclose(found.base + found.values.sum(1), found.scores))
    True
    """
    X = as_columns(X)
    X = _select(X, trained_positions(ranker, X))
    check_at_least("samples", samples, 1)
    check_at_least("permutations", permutations, 1)
    check_at_least("seed", seed, 0)
    if background is None and background_qid is not None:
        raise ValueError(
            "background_qid must be None without a background, got "
            f"{type(background_qid).__name__}; qid holds the queries of X"
        )
    table, first = X, 0
    if background is not None:
        rows = as_columns(background, "background")
        table, first = _concatenate(X, _select(rows, trained_positions(ranker, rows))), len(X)
    groups, mixed = None, partial(_mixed_scores, ranker, table)
    if has_relative(ranker):
        groups = _groups(len(X), qid, len(table) - first if first else None, background_qid)
        mixed = mixed_scores(ranker, table, groups)
    scores = predicted(ranker, X, None if groups is None else groups[: len(X)])
    computed = _of_trees(ranker, X, scores) if background is None else None
    method: Method = "trees"
    if computed is None:
        method = "shap"
        last = len(table) - 1
        usual = np.linspace(first, last, min(samples, last + 1 - first)).round().astype(int)
        # Equal values of different lists need not be equal relative to their lists.
        rows = np.arange(len(table))[:, None] + np.zeros(X.shape[1], np.int64)
        values = _first_rows(table) if groups is None else rows
        computed = _by_shap(mixed, values, len(X), np.unique(usual), permutations, seed)
    values, base = computed
    data = pd.DataFrame(X).reset_index(drop=True)
    return Contributions(column_names(X), values, base, scores, data, method)


def _groups(rows: int, qid: Any, others: int | None, background_qid: Any) -> np.ndarray:
    """Return the index of the list of each row of X, and then of each row of the background.

    Args:
        rows: the number of rows of X.
        qid: the query of each row of X.
        others: the number of rows of the background; None if there is none.
        background_qid: the query of each row of the background.

    Raises:
        ValueError: a qid is missing, or does not fit the rows.
    """
    given = [("", rows, qid), ("background_", others, background_qid)]
    numbers: list[np.ndarray] = []
    for prefix, count, names in given[: 1 if others is None else 2]:
        if names is None:
            raise ValueError(
                f"{prefix}qid must be given: the ranker has columns relative to the list (one with "
                "relative=False needs none)"
            )
        groups, _ = tables.list_groups(tables.query_names(count or 0, names, None, prefix))
        numbers.append(groups + (numbers[0].max() + 1 if numbers else 0))
    return np.concatenate(numbers)


def _mixed_scores(ranker: Any, table: Any, rows: np.ndarray) -> np.ndarray:
    """Return the scores of rows that take each column from a row of the table."""
    return predicted(ranker, take_by_column(table, [*rows.T]))


def _by_shap(
    mixed: Mixed,
    values: np.ndarray,
    explained: int,
    usual: np.ndarray,
    permutations: int,
    seed: int,
) -> tuple[np.ndarray, float]:
    """Return the contributions (rows, columns) and the base value, from random orders.

    Args:
        mixed: scores rows whose values come from several rows of a table: the rows of X, followed
            by those of the background if there is one.
        values: (rows of the table, columns), for each value the first row that has the same one.
        explained: the number of rows of X.
        usual: the indices of the rows that represent the background.
        permutations: see `contributions`.
        seed: see `contributions`.
    """
    try:
        from shap import Explanation
        from shap.explainers import Permutation
        from shap.maskers import Independent
    except ImportError:
        raise ValueError(
            "contributions need shap (only those of LightGBM without a background do not): "
            "pip install 'ltr-torch[explain]'"
        ) from None

    def scores(codes: np.ndarray) -> np.ndarray:
        rows = np.asarray(codes).astype(np.int64)
        parts = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        return np.concatenate([mixed(part) for part in parts])

    codes = values.astype(np.float64)
    orders = 2 * codes.shape[1] + 1
    with own_random_numbers():  # shap seeds numpy's global generator
        masker = Independent(codes[usual], max_samples=len(usual))
        explainer = Permutation(scores, masker, seed=seed)
        most = permutations * orders
        explanation = explainer(codes[:explained], max_evals=most, batch_size=orders, silent=True)
    assert isinstance(explanation, Explanation)  # shap returns a list only for several outputs
    return np.asarray(explanation.values), float(np.ravel(explanation.base_values)[0])


def _select(X: Any, positions: list[int]) -> Any:
    """Return the columns of X with the given indices."""
    return X.iloc[:, positions] if isinstance(X, pd.DataFrame) else X[:, positions]


def _concatenate(X: Any, background: Any) -> Any:
    """Return the rows of X, followed by those of the background, which must have the same columns.

    Raises:
        ValueError: X and the background differ in their kind (array or table), or in the name or
            the type of a column.
    """
    if type(X) is not type(background):
        names = type(X).__name__, type(background).__name__
        raise ValueError(f"background must be of the type of X, {names[0]}, got {names[1]}")
    if column_names(X) != column_names(background):
        raise ValueError(
            f"background must have the columns of X, {column_names(X)}, got "
            f"{column_names(background)}"
        )
    if isinstance(X, np.ndarray):
        return np.concatenate([X, background])
    columns: dict[int, Any] = {}
    for j, name in enumerate(X.columns):
        parts = [table.iloc[:, j] for table in (X, background)]
        kinds = [part.dtype for part in parts]
        if all(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
            columns[j] = union_categoricals(parts)  # pd.concat may lose the categorical type
            continue
        columns[j] = pd.concat(parts, ignore_index=True)
        if columns[j].dtype == object and object not in kinds:
            raise ValueError(
                f"background must have the types of X: column {name!r} has {kinds[0]} in X, and "
                f"{kinds[1]} in the background"
            )
    return pd.DataFrame(columns).set_axis(X.columns, axis=1)


def _first_rows(X: Any) -> np.ndarray:
    """Return, for each value of a table, the first row that has this value in the same column.

    The result has the shape (rows, columns).

    >>> _first_rows(np.array([[1, 5], [2, 5], [1, 6]]))
    array([[0, 0],
           [1, 0],
           [0, 2]])
    """
    rows = np.empty(X.shape, dtype=np.int64)
    for j in range(X.shape[1]):
        try:
            codes, _ = pd.factorize(_select(X, [j]).squeeze(axis=1), use_na_sentinel=False)
        except TypeError:  # values such as lists cannot be hashed: each counts as new
            codes = np.arange(len(X))
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        rows[:, j] = first[which]
    return rows


def _of_trees(ranker: Any, X: Any, scores: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Return LightGBM's contributions; None for other models, or if the score is not their sum."""
    if library_of(ranker) != "lightgbm":
        return None
    shares = np.asarray(ranker.predict(X, pred_contrib=True))
    sums = shares.sum(1) if shares.shape == (len(X), X.shape[1] + 1) else None
    if sums is None or abs(sums - scores).max() > 1e-6 * max(abs(scores).max(), 1):
        return None  # the score is a function of the sum, as for some objectives
    return shares[:, :-1], float(shares[0, -1])


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

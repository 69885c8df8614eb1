"""Generated tables of lists: columns that say something, in several ways, among those that do not.

Each table has lists of 25 rows, graded 0 to 3 by the rank of a target within the list: the top 40,
20 and 7 % have at least 1, 2 and 3. The target has normal noise, and beside it

- "noise": of 100 normal columns, 10 of them with missing values, a sum of 30, a sine, a product and
  a threshold; a category of 30 levels says nothing;
- "levels": of 20 normal columns a sum of 10, and effects of the levels of two categories, of 500
  and 30 levels, of which the second one changes the slope of a column too;
- "tails": as "levels", but the categories have 5,000 and 300 levels, whose frequencies are in
  proportion to 1 / (rank + 10);
- "pairs": eight products of two of 60 normal columns, which say nothing alone;
- "steps": 30 thresholds of 60 normal columns, 10 of them with missing values; half of the
  thresholds hold only where another column is above one of its own;
- "relative": as in a shop, where prices have another scale in each query: of 40 columns, 20 have a
  mean and a spread of their own in each list. Of these, three say something by their difference
  from the list's mean, in its standard deviations, two by their rank, and one by whether the row is
  among the three lowest of its list. Ten other columns are summed; 24 say nothing.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from quality_sets import Fold, Lists

DOCUMENTS = 25
TEST_QUERIES = 2000
HELD = 0.15
"""The share of the other queries that is validated on."""


def grades(target: np.ndarray) -> np.ndarray:
    """Return the grades 0 to 3 of rows whose lists stand one after another, (rows,) float32."""
    ranks = (-target.reshape(-1, DOCUMENTS)).argsort(1).argsort(1) / DOCUMENTS
    found = (ranks < 0.4).astype(int) + (ranks < 0.2) + (ranks < 0.07)
    return found.ravel().astype(np.float32)


def _normal(draw: np.random.Generator, rows: int, columns: int) -> pd.DataFrame:
    X = draw.normal(size=(rows, columns)).astype(np.float32)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(columns)])


def _lose(draw: np.random.Generator, X: pd.DataFrame) -> None:
    """Take away a fifth of the values of ten columns."""
    for name in draw.choice([name for name in X if name.startswith("x")], 10, replace=False):
        X[name] = X[name].mask(draw.random(len(X)) < 0.2)


def _category(codes: np.ndarray) -> pd.Categorical:
    return pd.Categorical([f"v{code}" for code in codes])


def _codes(draw: np.random.Generator, rows: int, levels: int, tail: bool) -> np.ndarray:
    """Return the levels of rows, all as frequent, or with a long tail of rare ones."""
    if not tail:
        return draw.integers(0, levels, rows)
    frequency = 1 / (np.arange(levels) + 10)
    return draw.choice(levels, rows, p=frequency / frequency.sum())


def _noise(draw: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    w = np.where(np.arange(100) < 30, draw.normal(size=100), 0)
    X = _normal(draw, rows, 100)
    x = X.to_numpy()
    target = x @ w * 0.4 + 1.5 * np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]
    target = target + 2 * (x[:, 3] > 0.5) * x[:, 4] + draw.normal(0, 1.5, rows)
    _lose(draw, X)
    X["shop"] = _category(draw.integers(0, 30, rows))
    return X, target


def _levels(
    draw: np.random.Generator, rows: int, sizes: tuple[int, int] = (500, 30), tail: bool = False
) -> tuple[pd.DataFrame, np.ndarray]:
    w = np.where(np.arange(20) < 10, draw.normal(size=20), 0)
    many, few, slopes = (draw.normal(size=size) for size in (*sizes, sizes[1]))
    X = _normal(draw, rows, 20)
    x = X.to_numpy()
    brand, shop = (_codes(draw, rows, size, tail) for size in sizes)
    target = x @ w * 0.4 + many[brand] + few[shop] + slopes[shop] * x[:, 0]
    X["brand"], X["shop"] = _category(brand), _category(shop)
    return X, target + draw.normal(0, 1.5, rows)


def _pairs(draw: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    X = _normal(draw, rows, 60)
    x = X.to_numpy()
    return X, (x[:, :8] * x[:, 8:16]).sum(1) + draw.normal(0, 1, rows)


def _steps(draw: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    at, size = draw.normal(size=30), draw.normal(size=30)
    X = _normal(draw, rows, 60)
    x = X.to_numpy()
    above = x[:, :30] > at
    above[:, :15] &= x[:, 15:30] > -at[:15]
    target = above @ size + draw.normal(0, 0.7, rows)
    _lose(draw, X)
    return X, target


def _relative(draw: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    X = _normal(draw, rows, 40)
    lists = X.to_numpy()[:, :20].reshape(-1, DOCUMENTS, 20)
    z = (lists - lists.mean(1, keepdims=True)) / lists.std(1, keepdims=True)
    ranks = lists.argsort(1).argsort(1)
    relative = z[..., :3] @ draw.normal(size=3) + (ranks[..., 3:5] / DOCUMENTS).sum(-1)
    relative = relative + 1.5 * (ranks[..., 5] < 3)
    target = relative.ravel() + X.to_numpy()[:, 20:30] @ draw.normal(size=10) * 0.4
    spread = np.exp(draw.normal(0, 0.7, size=(len(lists), 1, 20)))
    shifted = lists * spread + draw.normal(0, 2, size=(len(lists), 1, 20))
    X.iloc[:, :20] = shifted.reshape(rows, 20).astype(np.float32)
    return X, target + draw.normal(0, 1, rows)


TABLES: dict[str, Callable[[np.random.Generator, int], tuple[pd.DataFrame, np.ndarray]]] = {
    "noise": _noise,
    "levels": _levels,
    "tails": partial(_levels, sizes=(5000, 300), tail=True),
    "pairs": _pairs,
    "steps": _steps,
    "relative": _relative,
}


def generated_table(name: str, rows: int, seed: int) -> Fold:
    """Return lists to train and validate on, `rows` of them together, and 2,000 test lists.

    Args:
        name: see `TABLES`.
        rows: a whole number of lists.
        seed: of the weights, the columns and the noise.
    """
    X, target = TABLES[name](np.random.default_rng(seed), rows + TEST_QUERIES * DOCUMENTS)
    y = grades(target)
    first = int(rows // DOCUMENTS * (1 - HELD)) * DOCUMENTS

    def part(start: int, stop: int) -> Lists:
        qid = np.arange(stop - start) // DOCUMENTS
        return Lists(X.iloc[start:stop], y[start:stop], qid)

    return Fold(part(0, first), part(first, rows), part(rows, len(X)))

"""Plots of what each column adds to a score."""

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import Standardize, TableTransform
from ltr.estimators import NeuralRanker, plot_effects
from ltr.models import AdditiveScorer, AttentionScorer, LinearScorer, MLPScorer


def table(rows: int = 200) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(np.array(["a", "b", None]), rows),
        }
    )
    y = (frame["price"] > 0).to_numpy().astype(int) + (frame["shop"] == "b").to_numpy()
    return frame, y, np.arange(rows) // 10


def fitted(scorer, **options) -> NeuralRanker:
    X, y, qid = table()
    ranker = NeuralRanker(
        scorer=scorer, members=2, max_epochs=3, verbose=0, random_state=0, **options
    )
    return ranker.fit(X, y, qid=qid)


def test_each_plot_is_what_its_column_changes():
    X, _, _ = table()
    ranker = fitted(AdditiveScorer(hidden=(4,)))
    price, stock, shop = plot_effects(ranker, X).axes
    assert [axes.get_title() for axes in (price, stock, shop)] == ["price", "stock", "shop"]
    # the slope of the line is the change of the score if only the price changes
    x, y = (np.asarray(part, dtype=float) for part in price.lines[0].get_data())
    assert (np.diff(x) >= 0).all()
    assert y.mean() == pytest.approx(0, abs=1e-6)
    moved = pd.concat([X.iloc[[7]]] * len(x)).assign(price=x)
    scores = ranker.predict(moved)
    np.testing.assert_allclose(y - y[0], scores - scores[0], atol=1e-5)
    # the dashed line is a missing value
    missing, three = ranker.predict(pd.concat([X.iloc[[0]]] * 2).assign(stock=[np.nan, 3]))
    at = {line.get_linestyle(): np.asarray(line.get_data(), dtype=float) for line in stock.lines}
    known = at["-"][1][at["-"][0] == 3][0]
    assert at["--"][1][0] - known == pytest.approx(missing - three, abs=1e-5)
    # a bar for each level
    assert [one.get_text() for one in shop.get_xticklabels()] == ["a", "b"]
    a, b = ranker.predict(pd.concat([X.iloc[[0]]] * 2).assign(shop=["a", "b"]))
    heights = [bar.get_height() for bar in shop.patches]  # pyright: ignore
    assert heights[1] - heights[0] == pytest.approx(b - a, abs=1e-5)


def test_arrays_and_other_additive_models():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    ranker = NeuralRanker(
        scorer=LinearScorer(), transform=TableTransform(Standardize()), max_epochs=1, verbose=0
    ).fit(X, X[:, 0] > 0, qid=np.arange(60) // 6)
    figure = plot_effects(ranker, X, rows=10)
    assert [axes.get_title() for axes in figure.axes] == [f"x{i}" for i in range(6)]
    assert len(np.asarray(figure.axes[0].lines[0].get_data()[0])) == 10


def test_errors():
    X, _, _ = table()
    with pytest.raises(ValueError, match=r"ranker.*None"):
        plot_effects(None, X)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"ranker.*differ by up to"):
        plot_effects(fitted(MLPScorer(hidden=(8,)), learning_rate=0.1), X)
    whole = fitted(AttentionScorer(hidden=(4,), heads=1))
    with pytest.raises(ValueError, match=r"ranker.*one whose transform or"):
        plot_effects(whole, X)
    ranker = fitted(LinearScorer())
    with pytest.raises(ValueError, match=r"rows.*1"):
        plot_effects(ranker, X, rows=1)

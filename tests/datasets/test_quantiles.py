"""The transforms that are fitted by quantiles, against their definitions in numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import norm, rankdata
from sklearn.preprocessing import QuantileTransformer
from sklearn.tree import DecisionTreeRegressor

from ltr.datasets import (
    Join,
    ListDataset,
    PiecewiseLinearBins,
    Quantile,
    Standardize,
    TableTransform,
)
from ltr.datasets.transforms import fit_documents


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 6)).astype(np.float32)
    rows[:, 1] = rng.poisson(1, 200)  # few values
    rows[:, 2] = 1e9 + 1e3 * rows[:, 2]  # far from 0
    rows[:, 3] = np.where(rng.random(200) < 0.7, 0, np.exp(3 * rows[:, 3]))
    rows[:, 4] = 0.1  # constant
    rows[:, 5] = np.where(rng.random(200) < 0.5, np.nan, rows[:, 5])
    return rows


def encoded(column: np.ndarray, values: np.ndarray, bins: int) -> np.ndarray:
    """The definition of the paper, with its ends clipped, for one feature."""
    there = column[~np.isnan(column)]
    edges = np.unique(
        np.quantile(there.astype(np.float64), np.arange(bins + 1) / bins).astype("f4")
    )
    if len(edges) == 1:
        return np.zeros((len(values), 1))
    found = np.zeros((len(values), len(edges) - 1))
    for t, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        for i, x in enumerate(values.tolist()):
            found[i, t] = 0 if x < low else 1 if x >= high else (x - low) / (high - low)
    return found


@pytest.mark.parametrize("bins", [1, 2, 8, 300])
def test_bins_are_the_papers(rows, bins: int):
    fitted = PiecewiseLinearBins(bins).fit(rows)
    new = np.concatenate([rows[:50], 3 * rows[50:90]])
    new[np.isnan(new)] = 0.25
    expected = np.hstack([encoded(rows[:, j], new[:, j], bins) for j in range(6)])
    got = fitted(torch.from_numpy(new))
    assert got.shape[1] == fitted.out_features == expected.shape[1] <= bins * 6
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-5)


def test_bins_do_not_depend_on_how_the_columns_are_read(rows, monkeypatch):
    whole = PiecewiseLinearBins().fit(rows)
    monkeypatch.setattr("ltr.datasets.transforms._VALUES", 401)  # two columns at a time
    chunks = PiecewiseLinearBins().fit(torch.from_numpy(rows))
    for one, two in zip(whole.buffers(), chunks.buffers(), strict=True):
        assert torch.equal(one, two)


def test_bins_of_constant_and_missing_columns_are_0():
    nan = np.nan
    fitted = PiecewiseLinearBins().fit(np.array([[3, nan, 0], [3, nan, 2]], np.float32))
    assert fitted.columns.tolist() == [0, 1] + [2] * 8
    got = fitted(torch.tensor([[9.0, 9.0, 0.25], [-torch.inf, torch.inf, torch.inf]]))
    assert got.tolist() == [[0, 0, 1] + [0] * 7, [0, 0] + [1] * 8]


@given(
    arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(width=32, allow_nan=False) | st.sampled_from([0, 1e-37, 3e38, -3e38]),
    ),
    st.integers(1, 4),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_bins_are_shares_that_rise_whatever_the_values(values, bins: int, dtype):
    fitted = PiecewiseLinearBins(bins).fit(values)
    for transform in (fitted, PiecewiseLinearBins(bins).fit(values).to(dtype)):
        got = transform(torch.from_numpy(values).to(dtype))
        assert got.dtype == dtype
        assert ((got >= 0) & (got <= 1)).all()
        for j in range(values.shape[1]):
            order = np.argsort(values[:, j])
            assert (got[:, transform.columns == j][order].diff(dim=0) >= 0).all()


def test_bins_take_their_number():
    for bins in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=r"bins must"):
            PiecewiseLinearBins(bins)


def stepped(rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Three columns and labels: two jumps of the first, one of the second, which has whole numbers
    and missing values, and none of the third.
    """
    draw = np.random.default_rng(3)
    X = draw.normal(size=(rows, 3)).astype(np.float32)
    X[:, 1] = draw.integers(0, 6, rows)
    y = (X[:, 0] > -0.5) + 2.0 * (X[:, 0] > 1) + (X[:, 1] >= 4)
    X[::7, 1] = np.nan
    return X, y + draw.normal(0, 0.5, rows)


def test_thresholds_get_narrow_bins_where_the_labels_jump():
    X, y = stepped()
    fitted = PiecewiseLinearBins(1, thresholds=3).fit(X, labels=y)
    first, second, third = (
        [*zip(fitted.low[here].tolist(), fitted.high[here].tolist(), strict=True)]
        for here in (fitted.columns == j for j in range(3))
    )
    assert [i for i, (low, high) in enumerate(first) if low <= -0.5 <= high] == [1]
    assert [i for i, (low, high) in enumerate(first) if low <= 1 <= high] == [3]
    ordered = np.sort(X[:, 0])
    for low, high in (first[1], first[3]):  # 10 documents on either side
        assert np.searchsorted(ordered, high) - np.searchsorted(ordered, low) == 19
    assert second == [(0, 3), (3, 4), (4, 5)]
    assert third == [(X[:, 2].min(), X[:, 2].max())]
    new = torch.tensor([[-0.6, 3.0, 0.0], [-0.4, 4.0, 0.0]])
    # the numbers that the jumps lie between differ by 1: a linear layer makes a step
    assert (fitted(new)[1] - fitted(new)[0])[[1, 6]].tolist() == [1, 1]


def test_thresholds_are_those_of_a_tree():
    X, y = stepped()
    tree = DecisionTreeRegressor(max_leaf_nodes=3, min_samples_leaf=50).fit(X[:, :1], y).tree_
    best = np.sort(tree.threshold[tree.children_left >= 0])
    fitted = PiecewiseLinearBins(1, thresholds=2).fit(X[:, :1], labels=y)
    assert (fitted.low[[1, 3]].numpy() < best).all()
    assert (fitted.high[[1, 3]].numpy() > best).all()


@pytest.mark.parametrize("labels", [np.zeros(4000), np.random.default_rng(0).normal(size=4000)])
def test_there_are_no_thresholds_where_labels_say_nothing(labels):
    X, _ = stepped()
    fitted = PiecewiseLinearBins(4, thresholds=8).fit(X, labels=labels)
    for one, two in zip(fitted.buffers(), PiecewiseLinearBins(4).fit(X).buffers(), strict=True):
        assert torch.equal(one, two)


def test_thresholds_need_labels():
    X, y = stepped(200)
    bins = PiecewiseLinearBins(thresholds=2)
    with pytest.raises(ValueError, match=r"labels must be given.*thresholds=2"):
        bins.fit(X)
    with pytest.raises(ValueError, match=r"labels must be \(200,\).*\(199,\)"):
        bins.fit(X, labels=y[1:])
    with pytest.raises(ValueError, match=r"labels must be .*finite"):
        bins.fit(X, labels=np.where(y > 0, np.nan, y))
    for thresholds in (-1, 2.5, True):
        with pytest.raises(ValueError, match=r"thresholds must"):
            PiecewiseLinearBins(thresholds=thresholds)  # pyright: ignore[reportArgumentType]


def test_labels_reach_the_bins_less_the_mean_of_their_lists():
    X, y = stepped()
    X = np.nan_to_num(X)
    lists = np.repeat(np.arange(100), 40)
    y = y + lists  # what differs between lists says nothing
    data = ListDataset.from_arrays(X, labels=y - y.min(), qid=lists)
    parts = PiecewiseLinearBins(2, thresholds=3), Standardize()
    transform = TableTransform(Join([*parts]))
    assert transform.fits_labels
    fit_documents(transform, data)
    means = np.bincount(lists, data.labels) / 40
    alone = PiecewiseLinearBins(2, thresholds=3).fit(X, labels=data.labels - means[lists])
    for one, two in zip(parts[0].buffers(), alone.buffers(), strict=True):
        assert torch.equal(one, two)
    assert len(alone.columns) > 6


def test_quantiles_of_few_documents_are_mean_ranks(rows):
    rows = np.nan_to_num(rows)
    shares = (rankdata(rows, axis=0) - 0.5) / len(rows)
    got = Quantile("uniform").fit(rows)(torch.from_numpy(rows))
    np.testing.assert_allclose(got, shares, atol=1e-5)
    np.testing.assert_allclose(
        Quantile().fit(rows)(torch.from_numpy(rows)), norm.ppf(shares), atol=1e-4
    )


@pytest.mark.parametrize("quantiles", [2, 10, 1000])
def test_quantiles_are_interpolated(rows, quantiles: int):
    fitted = Quantile("uniform", quantiles).fit(rows)
    new = np.concatenate([rows[:50], 1.5 * rows[50:90]])
    new[np.isnan(new)] = 0.25
    got = fitted(torch.from_numpy(new)).numpy()
    for j in range(6):
        there = rows[:, j][~np.isnan(rows[:, j])].astype(np.float64)
        shares = (np.arange(min(quantiles, len(there))) + 0.5) / min(quantiles, len(there))
        found = np.quantile(there, shares, method="hazen").astype(np.float32)
        points = np.unique(found)
        means = [shares[found == one].mean() for one in points]
        np.testing.assert_allclose(got[:, j], np.interp(new[:, j], points, means), atol=1e-4)


def test_quantiles_are_near_sklearns():
    rows = np.exp(np.random.default_rng(0).normal(size=(5000, 2))).astype(np.float32)
    want = QuantileTransformer(n_quantiles=1000, output_distribution="normal").fit_transform(rows)
    got = Quantile().fit(rows)(torch.from_numpy(rows)).numpy()
    middle = np.abs(want) < 2
    np.testing.assert_allclose(got[middle], want[middle], atol=0.02)


def test_quantiles_of_constant_and_missing_columns():
    rows = np.array([[3, np.nan], [3, np.nan]], np.float32)
    odd = torch.tensor([[3.0, 0.0], [-torch.inf, torch.inf]])
    assert not Quantile().fit(rows)(odd).any()
    assert (Quantile("uniform").fit(rows)(odd) == 0.5).all()


def test_quantiles_check_their_arguments():
    with pytest.raises(ValueError, match=r"output.*'log'"):
        Quantile("log")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"quantiles.*1"):
        Quantile(quantiles=1)

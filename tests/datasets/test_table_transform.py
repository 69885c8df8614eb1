"""Missing values and categories become numbers, by what the training lists had."""

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ltr.config import from_config, to_config
from ltr.datasets import (
    FeatureTransform,
    Join,
    MinMaxPerList,
    NoTransform,
    PiecewiseLinearBins,
    RankPerList,
    Standardize,
    TableTransform,
)


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[:, 1] = 3  # one value
    return rows


def test_it_is_sklearns(rows):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 4, size=(50, 2))
    codes[:, 1] = codes[:, 1].clip(1)  # never missing
    got = TableTransform().fit(rows, codes)(torch.from_numpy(rows), None, torch.from_numpy(codes))
    imputer = SimpleImputer(strategy="median", add_indicator=True)
    filled = imputer.fit_transform(rows)
    hot = OneHotEncoder(categories=[range(4)] * 2, sparse_output=False).fit_transform(codes)
    # sklearn's scaler, like ours, is fitted on the values that exist
    scaled = StandardScaler().fit(rows).transform(filled[:, :4])
    expected = np.hstack([scaled, filled[:, 4:], hot])
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-5)
    assert filled.shape[1] == 7


def test_without_missing_values_it_is_the_transform_of_the_numbers():
    full = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for numbers in (Standardize(), NoTransform(), MinMaxPerList()):
        fitted = TableTransform(numbers).fit(full)
        assert fitted.out_features == 3
        torch.testing.assert_close(
            fitted(torch.from_numpy(full)), numbers.fit(full)(torch.from_numpy(full))
        )


def test_bins_are_of_the_values_that_are_there(rows):
    fitted = TableTransform(PiecewiseLinearBins()).fit(rows)
    for position in range(4):
        column = rows[:, position][~np.isnan(rows[:, position])]
        alone = PiecewiseLinearBins().fit(column[:, None])
        assert torch.equal(fitted.features.low[fitted.features.columns == position], alone.low)
    got = fitted(torch.full((1, 4), torch.nan))[0]
    medians = torch.from_numpy(np.nanmedian(rows, axis=0))
    width = fitted.features.out_features
    torch.testing.assert_close(got[:width], fitted.features(medians))
    assert got[width:].tolist() == [1] * 3  # no document lacks the column of one value


class Largest(FeatureTransform):
    """A user's own, which knows neither missing values nor lengths."""

    def fit(self, features, categories=None):
        super().fit(features, categories)
        self.register_buffer("largest", torch.as_tensor(features.max(axis=0)))
        return self

    def transform(self, features, mask):
        return features / self.largest


def test_a_transform_of_ones_own_is_fitted_on_what_is_filled_in():
    rows = np.array([[1, np.nan], [4, 8]], np.float32)
    got = TableTransform(Largest()).fit(rows)(torch.from_numpy(rows))
    assert got.tolist() == [[0.25, 1, 1], [1, 1, 0]]


def test_lists_by_lengths_and_by_mask(rows):
    transform = TableTransform(Join([RankPerList(), PiecewiseLinearBins(2), MinMaxPerList()]))
    codes = np.random.default_rng(1).integers(0, 3, size=(50, 2))
    features, categories = torch.from_numpy(rows), torch.from_numpy(codes)
    transform.fit(rows, codes)
    assert transform.within_list
    lengths = torch.tensor([20, 0, 30])
    packed = transform(features, None, categories, lengths)
    assert packed.shape == (50, transform.out_features)
    parts = [transform(features[:20], None, categories[:20])]
    parts.append(transform(features[20:], None, categories[20:]))
    torch.testing.assert_close(packed, torch.cat(parts))
    mask = torch.arange(30) < lengths[:, None]
    padded = torch.full((3, 30, 4), torch.nan)
    padded[mask] = features
    padded_codes = torch.zeros(3, 30, 2, dtype=torch.int64)
    padded_codes[mask] = categories
    torch.testing.assert_close(transform(padded, mask, padded_codes)[mask], packed)


def test_it_compiles_and_is_exported(rows):
    codes = torch.from_numpy(np.random.default_rng(1).integers(0, 3, size=(50, 2)))
    fitted = TableTransform(PiecewiseLinearBins()).fit(rows, codes)
    features = torch.from_numpy(rows)
    expected = fitted(features, None, codes)
    compiled = torch.compile(fitted, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features, None, codes), expected)
    documents = torch.export.Dim("documents", min=2)
    shapes = ({0: documents}, None, {0: documents})
    exported = torch.export.export(fitted, (features, None, codes), dynamic_shapes=shapes)
    torch.testing.assert_close(
        exported.module()(features[:9], None, codes[:9]), fitted(features[:9], None, codes[:9])
    )


def test_half_precision(rows):
    codes = torch.from_numpy(np.random.default_rng(1).integers(0, 3, size=(50, 2)))
    features = torch.from_numpy(rows)
    for dtype in (torch.float16, torch.bfloat16):
        fitted = TableTransform(PiecewiseLinearBins()).fit(rows, codes)
        expected = fitted(features, None, codes)
        for half in (
            fitted(features.to(dtype), None, codes),
            fitted.to(dtype)(features.to(dtype), None, codes),
        ):
            assert half.dtype == dtype
            torch.testing.assert_close(half.float(), expected, rtol=0, atol=0.1)


def test_all_missing_and_missing_later():
    nan = np.nan
    fitted = TableTransform(NoTransform()).fit(np.array([[nan, 1], [nan, 3]], np.float32))
    got = fitted(torch.tensor([[5.0, nan], [nan, 7.0]]))
    assert got.tolist() == [[5, 2, 0], [0, 7, 1]]


def test_unseen_codes_have_no_place_of_their_own():
    codes = np.array([[1, 0], [2, 1]])
    fitted = TableTransform().fit(np.zeros((2, 0), np.float32), codes)
    assert fitted.out_features == 3 + 2
    got = fitted(torch.zeros(3, 0), None, torch.tensor([[0, 0], [9, 9], [2, 1]]))
    # the first column had no code 0 in training, the second one had
    assert got.tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_masked_documents_are_0(rows):
    fitted = TableTransform().fit(rows, np.ones((50, 1), int))
    mask = torch.tensor([True] * 20 + [False] * 30)
    features = torch.from_numpy(rows).requires_grad_()
    got = fitted(features, mask, torch.ones(50, 1, dtype=torch.int64))
    assert not got[20:].any()
    got.sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert not features.grad[20:].any()


def test_it_is_made_again_by_its_configuration_and_state(rows):
    codes = np.ones((50, 1), int)
    fitted = TableTransform(MinMaxPerList()).fit(rows, codes)
    again = from_config(to_config(fitted))
    assert again.out_features is None
    with pytest.raises(ValueError, match="must first be fitted"):
        again(torch.from_numpy(rows), None, torch.from_numpy(codes))
    again.load_state_dict(fitted.state_dict())
    assert again.out_features == fitted.out_features
    inputs = (torch.from_numpy(rows), None, torch.from_numpy(codes))
    torch.testing.assert_close(again(*inputs), fitted(*inputs))
    alone = TableTransform().fit(rows[:, :0], codes)
    again = from_config(to_config(alone))
    again.load_state_dict(alone.state_dict())
    inputs = (torch.zeros(50, 0), None, torch.from_numpy(codes))
    torch.testing.assert_close(again(*inputs), alone(*inputs))
    standard = TableTransform().fit(rows)
    other = TableTransform()
    other.load_state_dict(standard.state_dict())
    torch.testing.assert_close(other(torch.from_numpy(rows)), standard(torch.from_numpy(rows)))


def test_what_does_not_fit_is_refused(rows):
    codes = np.ones((50, 1), int)
    fitted = TableTransform().fit(rows, codes)
    features = torch.from_numpy(rows)
    for call, message in (
        (lambda: TableTransform(num_features=-1), "num_features must be >= 0, got -1"),
        (lambda: fitted(features), "categories must have 1 columns, got 0"),
        (lambda: fitted(features[:, :3]), "features must have num_features=4, got 3"),
        (lambda: TableTransform().fit(rows[:0]), "features must be"),
        (lambda: TableTransform().fit(rows, codes[:3]), "categories must be"),
        (lambda: TableTransform().fit(rows, codes - 2), "categories must be .* >= 0, got -1"),
        (lambda: TableTransform().fit(rows, codes + 0.5), "categories must be .* got float64"),
        (
            lambda: fitted(features, categories=torch.ones(50, 1)),
            "categories must be a tensor of whole numbers, got torch.float32",
        ),
        (
            lambda: fitted(features, categories=codes.tolist()),
            "categories must be a tensor of whole numbers, got list",
        ),
        (
            lambda: fitted(features, categories=torch.ones(49, 1, dtype=torch.int64)),
            r"categories must have shape \(50,\) and an axis of columns, got \(49, 1\)",
        ),
        (lambda: TableTransform().fit(rows[:, :0]), "features must have a column if there are no"),
        (lambda: Standardize().fit(rows, codes), r"Standardize takes no categories: give Table"),
        (lambda: NoTransform()(features, None, features), "NoTransform takes no categories"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

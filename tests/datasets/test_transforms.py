import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler, minmax_scale
from torch import nn

from ltr.datasets import (
    FeatureTransform,
    MinMaxPerList,
    NoTransform,
    PiecewiseLinearBins,
    SignedLog1pStandardize,
    Standardize,
    transforms,
)

FITTED = [Standardize, SignedLog1pStandardize, PiecewiseLinearBins]
ALL = [NoTransform, *FITTED, MinMaxPerList]


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)) * [1, 1e-2, 1e4, 1, 1, 1] + [0, 5, 1e5, 0, -3, 0]
    rows[:, 4] = np.exp(rows[:, 4])
    rows[:, 5] = 0.1  # constant
    return rows.astype(np.float32)


def test_standardize_is_sklearns(rows):
    got = Standardize().fit(rows)(torch.from_numpy(rows))
    want = StandardScaler().fit_transform(rows.astype(np.float64))
    np.testing.assert_allclose(got[:, :5], want[:, :5], rtol=1e-3, atol=1e-4)
    assert (got[:, 5] == 0).all()


def test_signed_log1p_standardize_is_sklearns(rows):
    got = SignedLog1pStandardize().fit(rows)(torch.from_numpy(rows))
    logs = np.sign(rows) * np.log1p(np.abs(rows.astype(np.float64)))
    np.testing.assert_allclose(
        got[:, :5], StandardScaler().fit_transform(logs)[:, :5], rtol=1e-3, atol=1e-3
    )
    assert (got[:, 5] == 0).all()


def test_min_max_is_sklearns_list_by_list(rows):
    lists = torch.from_numpy(rows).reshape(20, 25, 6)
    got = MinMaxPerList()(lists)
    for scaled, raw in zip(got, lists, strict=True):
        np.testing.assert_allclose(scaled[:, :5], minmax_scale(raw)[:, :5], rtol=1e-4, atol=1e-5)
    assert (got[..., 5] == 0).all()
    assert got.amin() == 0
    assert got.amax() == 1


def test_statistics_are_taken_in_float64_over_pieces(monkeypatch):
    monkeypatch.setattr(transforms, "_CHUNK", 7)
    rows = (1e6 + np.arange(100.0))[:, None].astype(np.float32)
    fitted = Standardize().fit(rows)
    assert fitted.mean.item() == np.float32(rows.astype(np.float64).mean())
    assert fitted.scale.item() == pytest.approx(1 / rows.astype(np.float64).std(), rel=1e-6)


def test_fit_takes_a_tensor_or_a_read_only_array(rows):
    frozen = rows.copy()
    frozen.flags.writeable = False
    one, two = Standardize().fit(frozen), Standardize().fit(torch.from_numpy(rows))
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.scale, two.scale)


@pytest.mark.parametrize("kind", ALL)
def test_what_is_under_the_mask_never_gets_out(kind: type[FeatureTransform], rows):
    transform = kind(num_features=6).fit(rows)
    lists = torch.from_numpy(rows[:40]).reshape(2, 4, 5, 6)
    mask = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[0, 0] = False  # no document at all
    want = transform(lists, mask)
    for junk in (torch.nan, torch.inf, -1e30):
        dirty = lists.masked_fill(~mask.unsqueeze(-1), junk).requires_grad_()
        got = transform(dirty, mask)
        assert torch.equal(got, want)
        (gradient,) = torch.autograd.grad(got.sum(), dirty)
        assert gradient.isfinite().all()
        assert (gradient[~mask] == 0).all()
    assert (want[~mask] == 0).all()
    assert want.isfinite().all()
    # and the real documents get what they would with the others deleted
    torch.testing.assert_close(want[1, 2][mask[1, 2]], transform(lists[1, 2][mask[1, 2]]))


@pytest.mark.parametrize("kind", FITTED)
@pytest.mark.parametrize("known", [False, True])
def test_saved_with_the_model_and_loaded_before_fitting(kind, known: bool, rows):
    fitted = kind().fit(rows)
    features = torch.from_numpy(rows[:9])
    holder = nn.ModuleDict({"transform": kind(num_features=6 if known else None)})
    with pytest.raises(ValueError, match=f"{kind.__name__} must be fitted, or loaded"):
        holder["transform"](features)
    holder.load_state_dict({f"transform.{k}": v for k, v in fitted.state_dict().items()})
    assert torch.equal(holder["transform"](features), fitted(features))
    assert holder["transform"].num_features == 6


@pytest.mark.parametrize("kind", FITTED)
def test_loaded_after_fitting(kind, rows):
    fitted = kind().fit(rows)
    other = kind().fit(rows * 2)
    other.load_state_dict(fitted.state_dict())
    features = torch.from_numpy(rows[:9])
    assert torch.equal(other(features), fitted(features))
    with pytest.raises(RuntimeError, match=r"size mismatch for (mean|columns)"):
        kind().fit(rows[:, :3]).load_state_dict(fitted.state_dict())


@pytest.mark.parametrize("kind", ALL)
def test_any_batch_shape_and_dtype(kind, rows):
    transform = kind().fit(rows)
    width = transform.out_features
    assert width is not None
    assert transform(torch.zeros(6, 0, 6)).shape == (6, 0, width)
    assert transform(torch.zeros(2, 3, 4, 6)).shape == (2, 3, 4, width)
    assert transform.double()(torch.zeros(4, 6, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("kind", ALL)
def test_bad_shapes(kind, rows):
    transform = kind().fit(rows)
    with pytest.raises(ValueError, match="features must have num_features=6, got 5"):
        transform(torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 3\), got \(3,\)"):
        transform(torch.zeros(2, 3, 6), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="features must have num_features=4, got 6"):
        kind(num_features=4).fit(rows)
    with pytest.raises(ValueError, match=r"features must be \(documents, d\), not empty"):
        kind().fit(rows[:0])
    with pytest.raises(ValueError, match="num_features must be >= 1, got 0"):
        kind(num_features=0)

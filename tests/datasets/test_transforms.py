import copy
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from pairwise import covering, named
from scipy.stats import rankdata
from sklearn.preprocessing import StandardScaler, minmax_scale
from torch import nn

from ltr.datasets import (
    FeatureTransform,
    Join,
    MinMaxPerList,
    NoTransform,
    PeriodicEmbedding,
    PiecewiseLinearBins,
    Quantile,
    RankPerList,
    SignedLog1pStandardize,
    Standardize,
    StandardizePerList,
    TableTransform,
    transforms,
)

FITTED = [Standardize, SignedLog1pStandardize, PiecewiseLinearBins, Quantile, PeriodicEmbedding]
ALL = [NoTransform, *FITTED, MinMaxPerList, StandardizePerList, RankPerList]


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
    monkeypatch.setattr(transforms, "_VALUES", 7)  # of one column
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
        if kind is RankPerList:
            assert not got.requires_grad
            continue
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
    with pytest.raises(ValueError, match=f"{kind.__name__} must"):
        holder["transform"](features)
    holder.load_state_dict({f"transform.{k}": v for k, v in fitted.state_dict().items()})
    assert torch.equal(holder["transform"](features), fitted(features))
    assert holder["transform"].num_features == 6


@pytest.mark.parametrize("kind", FITTED)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_loads_into_itself(kind, copied, rows):
    fitted, original = kind().fit(rows), kind()
    other = copied(original)
    other.load_state_dict(fitted.state_dict())
    features = torch.from_numpy(rows[:9])
    assert torch.equal(other(features), fitted(features))
    assert original.num_features is None
    with pytest.raises(ValueError, match=f"{kind.__name__} must"):
        original(features)


@pytest.mark.parametrize("kind", FITTED)
def test_loaded_after_fitting(kind, rows):
    fitted = kind().fit(rows)
    other = kind().fit(rows * 2)
    other.load_state_dict(fitted.state_dict())
    features = torch.from_numpy(rows[:9])
    assert torch.equal(other(features), fitted(features))
    with pytest.raises(RuntimeError, match=r"size mismatch for (mean|columns|values)"):
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
    with pytest.raises(ValueError, match=r"features.*5"):
        transform(torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"mask.*.* \(3,\)"):
        transform(torch.zeros(2, 3, 6), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"features.*6"):
        kind(num_features=4).fit(rows)
    with pytest.raises(ValueError, match=r"features must"):
        kind().fit(rows[:0])
    for number in (0, "6", 6.0, True):
        with pytest.raises(ValueError, match=r"num_features must"):
            kind(num_features=number)


@pytest.mark.parametrize("kind", ALL)
def test_lists_one_after_another(kind, rows):
    transform = kind().fit(rows)
    assert transform.within_list == kind.__name__.endswith("PerList")
    lengths = torch.tensor([3, 0, 1, 16])
    features = torch.from_numpy(rows[:20])
    lists = [transform(one) for one in features.split(lengths.tolist()) if len(one)]
    torch.testing.assert_close(transform(features, lengths=lengths), torch.cat(lists))
    none = transform(features[:0], lengths=torch.zeros(2, dtype=torch.int64))
    assert none.shape == (0, transform.out_features)
    with pytest.raises(ValueError, match="mask must"):
        transform(features, torch.ones(20, dtype=torch.bool), lengths=lengths)
    with pytest.raises(ValueError, match=r"features must"):
        transform(features.unsqueeze(0), lengths=lengths)


@pytest.mark.parametrize(
    "kind", [PiecewiseLinearBins, Quantile, MinMaxPerList, StandardizePerList, RankPerList]
)
def test_a_constant_in_training_and_values_never_seen(kind, rows):
    transform = kind().fit(rows)
    odd = torch.tensor([[torch.inf] * 6, [-torch.inf] * 6, [3e38] * 6, [-3e38] * 6, [1e-45] * 6])
    assert transform(odd).isfinite().all()
    constant = transform(torch.full((4, 6), 0.1))
    assert (constant[..., -1].abs() < 1e-6).all()


@pytest.mark.parametrize("kind", ALL)
def test_half_precision(kind, rows):
    rows = rows[:64, [0, 3, 4]]
    features = torch.from_numpy(rows)
    for dtype in (torch.float16, torch.bfloat16):
        transform = kind().fit(rows)
        near = features.to(dtype)  # what is left to transform
        expected = transform(near.float())
        assert transform(near).dtype in (dtype, torch.float32)
        got = transform.to(dtype)(near)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.1)


# torch traces each kind for half a second, whether it compiles or exports it
@covering("kind, way", {kind.__name__: kind for kind in ALL}, named("compile", "export"))
def test_compiled_and_exported(kind, way, rows):
    transform = kind().fit(rows)
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    features = torch.from_numpy(rows[:20])
    padded = features.reshape(4, 5, 6)
    if way == "compile":
        lengths = torch.tensor([3, 1, 16])
        torch.compiler.reset()  # the classes share a `forward`, which is compiled a few times
        compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
        expected = transform(features, lengths=lengths)
        torch.testing.assert_close(compiled(features, lengths=lengths), expected)
        torch.testing.assert_close(compiled(padded, mask), transform(padded, mask))
        return
    sizes = {0: torch.export.Dim("lists", min=2), 1: torch.export.Dim("documents", min=2)}
    exported = torch.export.export(transform, (padded, mask), dynamic_shapes=(sizes, sizes))
    fewer = (padded[:2, :3], mask[:2, :3])
    torch.testing.assert_close(exported.module()(*fewer), transform(*fewer))


def test_standardize_list_by_list_is_sklearns(rows):
    lists = torch.from_numpy(rows).reshape(20, 25, 6)
    for scaled, raw in zip(StandardizePerList()(lists), lists.double(), strict=True):
        want = StandardScaler().fit_transform(raw[:, :5])
        np.testing.assert_allclose(scaled[:, :5], want, rtol=1e-3, atol=1e-3)
        assert not scaled[:, 5].any()


def test_rank_list_by_list_is_scipys():
    rng = np.random.default_rng(0)
    lengths = np.array([1, 7, 0, 40, 2])
    rows = rng.integers(0, 9, size=(50, 3)).astype(np.float32)  # many ties
    got = RankPerList()(torch.from_numpy(rows), lengths=torch.from_numpy(lengths)).numpy()
    for part, raw in zip(
        np.split(got, lengths.cumsum()[:-1]), np.split(rows, lengths.cumsum()[:-1]), strict=True
    ):
        if len(raw):
            ranks = rankdata(raw, axis=0)
            want = (2 * ranks - len(raw) - 1) / max(len(raw) - 1, 1)
            np.testing.assert_allclose(part, want, atol=1e-6)
    assert (got[0] == 0).all()


@pytest.mark.parametrize("kind", [MinMaxPerList, StandardizePerList, RankPerList])
def test_a_list_of_one_gives_0(kind):
    assert not kind()(torch.tensor([[5.0, -2.0]])).any()
    assert not kind()(torch.randn(3, 2), lengths=torch.tensor([1, 1, 1])).any()


@pytest.mark.parametrize("kind", [*ALL, TableTransform, Join])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([1, 3]), "lengths.*4"),
        (torch.tensor([4, -1]), "lengths.*-1"),
        (torch.tensor([1.0, 2.0]), "lengths must"),
        (torch.tensor([True, True]), "lengths must"),
        (torch.tensor([[1, 2]]), "lengths must"),
        ("12", "lengths must"),
    ],
)
def test_lengths_that_are_not_those_of_lists(kind, lengths, message, rows):
    transform = (Join([Standardize()]) if kind is Join else kind()).fit(rows[:, :2])
    with pytest.raises(ValueError, match=message):
        transform(torch.zeros(3, 2), lengths=lengths)


@pytest.mark.parametrize("kind", [*ALL, TableTransform, Join])
def test_features_and_masks_of_other_types(kind, rows):
    transform = (Join([Standardize()]) if kind is Join else kind()).fit(rows[:, :2])
    for features in (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2).bool(), rows[:3, :2]):
        with pytest.raises(ValueError, match=r"features must"):
            transform(features)
    with pytest.raises(ValueError, match=r"features.*a single number"):
        transform(torch.tensor(0.0))
    for mask in (torch.ones(3), torch.ones(3, dtype=torch.int64), [True] * 3):
        with pytest.raises(ValueError, match=r"mask must"):
            transform(torch.zeros(3, 2), mask)


@pytest.mark.parametrize("kind", [*ALL, TableTransform, Join])
@pytest.mark.parametrize(
    "features",
    [
        np.array([["a", "b"], ["c", "d"]]),
        np.array([[1j, 2], [3, 4]]),
        np.zeros((2, 2), dtype="datetime64[s]"),
        [[1.0, 2.0], [3.0]],
    ],
    ids=["text", "complex", "dates", "ragged"],
)
def test_fitting_wants_numbers(kind, features):
    transform = Join([Standardize()]) if kind is Join else kind()
    with pytest.raises(ValueError, match="features must"):
        transform.fit(features)


@pytest.mark.parametrize("kind", [*FITTED, TableTransform])
def test_fitting_on_half_precision(kind, rows):
    features = torch.from_numpy(rows[:20]).bfloat16()
    torch.manual_seed(0)  # of the weights that a PeriodicEmbedding draws
    want = kind().fit(features.float()).state_dict()
    torch.manual_seed(0)
    for name, value in kind().fit(features).state_dict().items():
        assert torch.equal(value, want[name])


@pytest.mark.parametrize("kind", [Standardize, SignedLog1pStandardize])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_value_is_no_mean(kind, value, rows):
    rows[7, 2] = value
    with pytest.raises(ValueError, match=rf"features.*{kind.__name__}.*column 2:"):
        kind().fit(rows)


@pytest.mark.parametrize("kind", FITTED)
def test_the_smallest_and_the_largest_numbers(kind):
    ends = np.array([[0.0, -3e38], [1e-45, 3e38], [0.0, 0.0]], dtype=np.float32)
    fitted = kind().fit(ends)
    assert fitted(torch.from_numpy(ends)).isfinite().all()


@pytest.mark.parametrize("kind", ALL)
def test_nan_gives_nan_in_its_own_place(kind, rows):
    transform = kind().fit(rows[:, :2])
    features = torch.from_numpy(rows[:5, :2])
    features[3, 1] = torch.nan
    got = transform(features)
    per_feature = got.unflatten(-1, (2, -1)).isnan()
    assert per_feature[3, 1].all()
    assert not per_feature[:, 0].any()
    if not transform.within_list:
        assert per_feature.sum() == per_feature.shape[-1]


def test_join_is_its_parts_side_by_side(rows):
    rows[::3, 1] = np.nan
    filled = torch.from_numpy(np.nan_to_num(rows)).reshape(20, 25, 6)
    parts = [RankPerList, PiecewiseLinearBins, Standardize]
    joined = Join([kind() for kind in parts]).fit(rows)
    apart = [kind().fit(rows) for kind in parts]
    mask = torch.rand(20, 25, generator=torch.Generator().manual_seed(0)) < 0.6
    torch.testing.assert_close(
        joined(filled, mask), torch.cat([one(filled, mask) for one in apart], dim=-1)
    )
    assert joined.out_features == sum(one.out_features or 0 for one in apart)
    assert joined.within_list
    assert not Join([Standardize()]).within_list
    assert Join([Standardize()]).out_features is None
    again = Join([kind() for kind in parts])
    again.load_state_dict(joined.state_dict())
    torch.testing.assert_close(again(filled, mask), joined(filled, mask))
    for one, two in zip(again.training_range(), joined.training_range(), strict=True):
        assert torch.equal(one, two)


def test_a_state_gives_all_transforms_the_number_of_features(rows):
    kinds = [
        lambda: TableTransform(NoTransform()),
        lambda: Join([RankPerList(), Standardize()]),
        lambda: TableTransform(Join([NoTransform(), RankPerList()])),
    ]
    for kind in kinds:
        fitted, loaded = kind().fit(rows), kind()
        loaded.load_state_dict(fitted.state_dict())
        assert (loaded.num_features, loaded.out_features) == (6, fitted.out_features)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "transforms.*none"),
        (None, "transforms.*None"),
        (Standardize(), "transforms.*Standardize"),
        ([TableTransform()], "put the Join into a TableTransform"),
        ([nn.ReLU()], r"transforms.*ReLU\(\)"),
    ],
)
def test_what_cannot_be_joined(parts, message):
    with pytest.raises(ValueError, match=message):
        Join(parts)


@pytest.mark.parametrize("transform", [MinMaxPerList(), StandardizePerList(), RankPerList()])
def test_a_missing_value_does_not_count_for_its_list(transform):
    features = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    features[[1, 7], 0] = torch.nan
    features[4:6] = torch.nan  # a list without any value
    lengths = torch.tensor([4, 2, 3])
    found = transform(features, lengths=lengths)
    assert bool((found.isnan() == features.isnan()).all())
    if isinstance(transform, RankPerList):  # which counts a missing value as the largest
        return
    there = ~features[:, 0].isnan()
    alone = transform(features[there][:, :1], lengths=torch.tensor([3, 0, 2]))
    torch.testing.assert_close(found[there][:, :1], alone)
    padded = transform(features[None, :4])
    torch.testing.assert_close(padded[0], found[:4], equal_nan=True)


def test_each_output_depends_on_its_source_column_alone(rows):
    draw = np.random.default_rng(0)
    categories, rows[:, 5] = draw.integers(0, 3, (len(rows), 2)), draw.normal(size=len(rows))
    rows[::9, 1] = np.nan
    parts: list[FeatureTransform] = [
        NoTransform(),
        Standardize(),
        SignedLog1pStandardize(),
        Quantile(),
        PiecewiseLinearBins(3),
        PeriodicEmbedding(size=2),
        Join([Standardize(), PiecewiseLinearBins(2)]),
    ]
    given = torch.from_numpy(rows), torch.from_numpy(categories)
    whole = Join(parts)
    table = TableTransform(whole).fit(rows, categories)
    for transform in (*parts, whole, table):
        inputs = given if transform is table else (torch.nan_to_num(given[0]),)
        before, sources = _call(transform, inputs), transform.source_columns()
        assert len(sources) == before.shape[1] == transform.out_features
        assert sources.unique().tolist() == list(range(8 if transform is table else 6))
        for column in range(8 if transform is table else 6):
            changed = [one.clone() for one in inputs]
            one = changed[column // 6][:, column % 6]
            one.copy_(one.roll(1))
            differ = (_call(transform, changed) != before).any(0)
            assert differ.any()
            assert (sources[differ] == column).all()


def _call(transform: FeatureTransform, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return transform(inputs[0], None, *inputs[1:]).detach()


def test_a_class_with_outputs_of_its_own_does_not_inherit_their_columns(rows):
    class Sums(Quantile):
        def transform(self, features, mask):
            return features.cumsum(-1)

    class Halves(Sums):
        def transform(self, features, mask):
            return features / 2

        source_columns = Standardize.source_columns

    class Named(Standardize):
        """The same outputs."""

    assert Sums().fit(rows).source_columns().tolist() == [-1] * 6
    assert Halves().fit(rows).source_columns().tolist() == [*range(6)]
    assert Named().fit(rows).source_columns().tolist() == [*range(6)]
    assert Join([Named(), Sums()]).fit(rows).source_columns().tolist() == [*range(6), *[-1] * 6]


@pytest.mark.parametrize("kind", [RankPerList, MinMaxPerList, StandardizePerList])
def test_outputs_relative_to_the_list_depend_on_their_column_alone(rows, kind):
    class Other(kind):
        def transform_lists(self, features, lists, num_lists):
            return features.cumsum(-1)

    transform, features = kind().fit(rows), torch.nan_to_num(torch.from_numpy(rows))
    assert transform.source_columns().tolist() == [*range(6)]
    assert Other().fit(rows).source_columns().tolist() == [-1] * 6
    before = transform(features)
    for column in range(6):
        changed = features.clone()
        changed[0, column] = features[:, column].max() + 1
        differ = (transform(changed) != before).any(0)
        assert differ.nonzero().flatten().tolist() == [column]

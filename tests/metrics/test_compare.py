"""Comparing models: against scipy, closed testing, and what the definitions demand."""

import json
import tracemalloc
from dataclasses import replace
from io import StringIO
from itertools import combinations, product

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import binom, bootstrap, ks_2samp, permutation_test

from ltr.metrics import compare, holm, mean_interval, resampling
from ltr.metrics.resampling import bca_interval, bootstrap_means, bootstrap_p, sign_flip_p

FAST = {"resamples": 500}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mean(x, axis):
    return x.mean(axis)


@pytest.mark.parametrize("method", ["BCa", "percentile"])
@pytest.mark.parametrize("lists", [13, 20, 200])
@pytest.mark.parametrize("law", ["normal", "exponential", "beta"])
def test_the_interval_is_scipys_on_its_own_bootstrap_means(method, lists, law):
    draw = rng(lists)
    values = draw.beta(0.2, 0.3, lists) if law == "beta" else getattr(draw, law)(size=lists)
    theirs = bootstrap((values,), mean, vectorized=True, n_resamples=999, method=method, rng=rng(1))
    means = theirs.bootstrap_distribution
    ours = bca_interval(values, means, 0.95, adjust=method == "BCa")
    assert ours == pytest.approx(tuple(theirs.confidence_interval), rel=1e-9, abs=1e-12)


def test_rounding_moves_no_interval():
    values = rng(30).integers(0, 4, 12) / 3
    means = bootstrap_means(values[:, None], 2000, rng())[:, 0]
    expected = bca_interval(values, means, 0.95)
    for shake in (1e-15, -1e-15):
        assert bca_interval(values, means + shake, 0.95) == pytest.approx(expected, abs=1e-12)


def test_a_high_confidence_of_skewed_values_ends_at_the_last_mean():
    values = np.array([0.0] * 9 + [1.0])
    means = bootstrap_means(values[:, None], 2000, rng())[:, 0]
    low, high = bca_interval(values, means, 1 - 1e-12)
    assert 0 <= low < 0.1 < high <= means.max()


def test_the_bootstrap_has_the_mean_and_spread_that_it_must_have():
    values = rng(2).exponential(size=(400, 1))
    means = bootstrap_means(values, 4000, rng(3))[:, 0]
    error = values.std() / 400**0.5
    assert means.mean() == pytest.approx(values.mean(), abs=4 * error / 4000**0.5)
    assert means.std() == pytest.approx(error, rel=4 / (2 * 4000) ** 0.5)


MANY = 5000
LAWS = {
    "exponential": rng(11).exponential(size=MANY),
    "beta": rng(12).beta(0.2, 0.3, MANY),
    "mostly 0": np.where(rng(13).random(MANY) < 0.98, 0.0, rng(14).random(MANY)),
    "far tail": np.exp(1.5 * rng(15).normal(size=MANY)),
    "few values": rng(16).integers(0, 4, MANY) / 3,
    "large": 1e9 + rng(17).normal(size=MANY),
}


@pytest.mark.parametrize("law", LAWS)
def test_means_of_many_lists_have_the_law_of_lists_drawn_one_by_one(law, monkeypatch):
    values, resamples = LAWS[law], 20_000
    blocks = bootstrap_means(values[:, None], resamples, rng(18))[:, 0]
    monkeypatch.setattr(resampling, "_LISTS_ONE_BY_ONE", MANY)
    one_by_one = bootstrap_means(values[:, None], 4000, rng(19))[:, 0]
    centered = values - values.mean()
    error = values.std() / MANY**0.5
    # These are the mean, the spread and the skewness of a mean of values drawn with replacement.
    skewness = (centered**3).mean() / values.std() ** 3 / MANY**0.5
    z = (blocks - values.mean()) / error
    assert z.mean() == pytest.approx(0, abs=4 / resamples**0.5)
    assert z.std() == pytest.approx(1, rel=5 / (2 * resamples) ** 0.5)
    assert (z**3).mean() == pytest.approx(skewness, abs=4 * (15 / resamples) ** 0.5)
    assert ks_2samp(blocks, one_by_one).pvalue > 1e-3


def test_values_of_a_few_lists_among_many_are_drawn_by_their_counts():
    values = np.zeros(MANY)
    values[:2] = 1.0
    sums = bootstrap_means(values[:, None], 20_000, rng(20))[:, 0] * MANY
    np.testing.assert_allclose(sums, sums.round(), rtol=0, atol=1e-9)
    for k in range(4):
        share = binom.pmf(k, MANY, 2 / MANY)
        assert (sums.round() == k).mean() == pytest.approx(share, abs=4 * (share / 20_000) ** 0.5)


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.04])
def test_p_of_many_differences_is_near_that_of_flips_drawn_one_by_one(shift, monkeypatch):
    d = rng(21).normal(shift, 1, MANY) * rng(22).exponential(size=MANY)
    blocks, _ = sign_flip_p(d, 20_000, rng(23))
    monkeypatch.setattr(resampling, "_LISTS_ONE_BY_ONE", MANY)
    one_by_one, _ = sign_flip_p(d, 4000, rng(24))
    error = (one_by_one * (1 - one_by_one) * (1 / 4000 + 1 / 20_000)) ** 0.5
    assert blocks == pytest.approx(one_by_one, abs=4 * error + 2 / 4000)


def test_ties_of_many_flips_count():
    # The sum of 2,049 signs is at least 1 in absolute value, so each flip is extreme.
    signs = np.where(np.arange(2049) % 2, -1.0, 1.0)
    assert sign_flip_p(0.1 * signs, 999, rng()) == (1.0, False)


def test_a_model_with_many_lists_does_not_depend_on_the_others():
    models = {name: LAWS[name] for name in ("exponential", "beta", "few values")}
    both = compare({name: models[name] for name in ("exponential", "few values")}, **FAST)
    three = compare(models, **FAST)
    assert three.models[2] == replace(both.models[1], p_holm=three.models[2].p_holm)
    assert three.models[1].mean == mean_interval(models["beta"], **FAST)


def test_all_columns_are_drawn_together():
    values = rng(4).random((30, 2))
    columns = np.column_stack([values, values[:, 1] - values[:, 0]])
    means = bootstrap_means(columns, 50, rng(5))
    np.testing.assert_allclose(means[:, 2], means[:, 1] - means[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("lists", [1, 2, 7, 12])
@pytest.mark.parametrize("kind", ["any", "with zeros", "tied"])
def test_few_lists_give_the_exact_p(lists, kind):
    d = rng(lists).normal(0.5, 1, lists)
    if kind == "with zeros":
        d[:: lists // 2 + 1] = 0
    if kind == "tied":
        d = np.round(d) / 10  # sums that tie but for rounding
    ours, exact = sign_flip_p(d, 5000, rng())
    assert exact
    if lists == 1:
        assert ours == 1
        return
    theirs = permutation_test(
        (d,), mean, permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    assert ours == pytest.approx(theirs.pvalue, abs=1e-12)


def test_the_exact_test_holds_its_level():
    size = rng(6).exponential(size=7)
    p = np.array([sign_flip_p(size * s, 200, rng())[0] for s in product([-1, 1], repeat=7)])
    for level in np.unique(p):
        assert (p <= level).mean() == pytest.approx(level)  # continuous sizes: exactly the level


def test_drawn_flips_come_near_the_exact_p():
    d = rng(7).normal(0.3, 1, 13)
    exact, known = sign_flip_p(d, 2**13, rng())
    drawn, not_known = sign_flip_p(d, 2**13 - 1, rng(8))
    assert known
    assert not not_known
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 2**13) ** 0.5)


def test_p_is_never_zero_and_one_without_a_difference():
    far = np.ones(50)
    assert sign_flip_p(far, 999, rng()) == (1 / 1000, False)
    assert bootstrap_p(1.0, np.full(999, 1.0)) == 1 / 1000
    assert sign_flip_p(np.zeros(50), 999, rng()) == (1.0, True)
    assert bootstrap_p(0.0, np.zeros(999)) == 1


def test_chunks_change_no_exact_p(monkeypatch):
    d = rng(9).normal(size=11)
    before = sign_flip_p(d, 4096, rng())
    monkeypatch.setattr(resampling, "_DRAWS_PER_CHUNK", 50)
    assert sign_flip_p(d, 4096, rng()) == before
    means = bootstrap_means(np.arange(11.0)[:, None], 1000, rng())
    assert means.mean() == pytest.approx(5, abs=4 * (10 / 11 / 1000) ** 0.5)


def test_memory_is_bounded_by_the_chunk():
    a, b = rng(10).random((2, 20_000))
    tracemalloc.start()
    compare(a, b, resamples=300)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 2**20  # all draws at once would be 300 * 20,000 * 12 bytes = 69 MiB


@pytest.mark.parametrize("seed", range(5))
def test_holm_is_the_closure_of_bonferroni(seed):
    p = rng(seed).random(5) ** 3
    p[seed] = p[0]
    expected = []
    for i in range(5):
        sets = [s for size in range(1, 6) for s in combinations(range(5), size) if i in s]
        expected.append(max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets))
    assert holm(p.tolist()) == pytest.approx(expected)


def test_holm_of_none_and_one():
    assert holm([]) == []
    assert holm([0.2]) == [0.2]


def test_positive_is_better_than_a():
    a = rng(11).random(40)
    found = compare(a, a + 0.1, **FAST)
    base, model = found.models
    assert (base.name, model.name) == ("a", "b")
    assert base.difference is None
    assert model.difference == pytest.approx((0.1, 0.1, 0.1))
    assert (model.better, model.equal, model.worse) == (40, 0, 0)
    assert model.p == 1 / 501


@pytest.mark.parametrize("test", ["randomization", "bootstrap"])
def test_the_other_way_round_turns_the_signs(test):
    a, b = rng(12).random((2, 30))
    there, back = (compare(*x, test=test, **FAST).models[1] for x in [(a, b), (b, a)])
    assert there.p == back.p
    assert there.difference.mean == pytest.approx(-back.difference.mean)
    assert (there.better, there.worse) == (back.worse, back.better)


def test_both_tests_and_the_interval_agree_on_many_lists():
    a = rng(13).normal(size=300)
    b = a + rng(14).normal(0.12, 1, 300)
    d = b - a
    flips = compare(a, b).models[1]
    shift = compare(a, b, test="bootstrap").models[1]
    error = d.std() / 300**0.5
    z = d.mean() / error
    normal = 2 * (1 - torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(abs(z))).item())
    assert flips.p == pytest.approx(normal, abs=0.02)
    assert shift.p == pytest.approx(normal, abs=0.02)
    assert flips.difference.low == pytest.approx(d.mean() - 1.96 * error, abs=0.25 * error)
    assert flips.difference.high == pytest.approx(d.mean() + 1.96 * error, abs=0.25 * error)


def test_a_list_left_out_of_one_is_left_out_of_all():
    a, b, c = rng(15).random((3, 20))
    holed = {"a": a.copy(), "b": b.copy(), "c": c.copy()}
    holed["a"][3] = holed["b"][3] = holed["c"][7] = np.nan
    keep = np.setdiff1d(np.arange(20), [3, 7])
    found = compare(holed, **FAST)
    whole = compare({"a": a[keep], "b": b[keep], "c": c[keep]}, **FAST)
    assert found.models == whole.models
    assert (found.lists, found.left_out) == (18, 2)
    assert "18 lists, 2 left out" in str(found)


def test_a_model_does_not_change_with_its_company():
    a, b, c = rng(16).random((3, 25))
    alone = compare({"a": a, "c": c}, **FAST).models[1]
    among = compare({"a": a, "b": b, "c": c}, **FAST).models[2]
    assert (alone.mean, alone.difference, alone.p) == (among.mean, among.difference, among.p)
    assert mean_interval(c, **FAST) == alone.mean


def test_the_baseline_may_be_any():
    values = dict(zip("xyz", rng(17).random((3, 20)), strict=True))
    found = compare(values, baseline="y", **FAST)
    assert [model.name for model in found.models] == ["y", "x", "z"]
    expected = values["x"].mean() - values["y"].mean()
    assert found.models[1].difference.mean == pytest.approx(expected)
    assert [m.p_holm for m in found.models[1:]] == holm([m.p for m in found.models[1:]])


def test_seeded():
    a, b = rng(18).random((2, 30))
    assert compare(a, b, **FAST) == compare(a, b, **FAST)
    assert compare(a, b, **FAST).models != compare(a, b, seed=1, **FAST).models


def test_tensors_arrays_and_sequences_of_any_shape_are_the_same():
    a, b = rng(19).random((2, 24))
    expected = compare(a, b, **FAST)
    assert compare(a.tolist(), b.tolist(), **FAST) == expected
    grad = torch.tensor(a, requires_grad=True)
    assert compare(grad, torch.tensor(b), **FAST) == expected
    assert compare(a.reshape(4, 6), b.reshape(4, 6), **FAST) == expected
    half = compare(torch.tensor(a).half(), torch.tensor(b).half(), **FAST)
    assert half.models[0].mean.mean == pytest.approx(a.mean(), abs=1e-3)


def test_models_that_are_equal():
    a = rng(20).random(10)
    model = compare(a, a, **FAST).models[1]
    assert model.difference == (0, 0, 0)
    assert (model.p, model.equal, model.exact) == (1.0, 10, True)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (([1.0, 2.0],), {}, "b must"),
        (([1.0, 2.0], [1.0]), {}, r"have one shape, .* got \(2,\) for 'a' and \(1,\) for 'b'"),
        (([1.0, 2.0], [1.0, np.inf]), {}, "finite or NaN, got an infinite one for 'b'"),
        (([1.0, np.nan], [np.nan, 1.0]), {}, "at least 2 lists .* got 0 of 2"),
        (({"x": [1.0, 2.0]},), {}, r"at least two models, got \['x'\]"),
        (({"x": [1.0], "y": [1.0]}, [1.0]), {}, "b must"),
        (({"x": [1.0], "y": [1.0]},), {"baseline": "z"}, "baseline.*'z'"),
        (([1.0], [1.0]), {"baseline": "a"}, "baseline must"),
        (([1.0], [1.0]), {"names": ("m", "m")}, "two different names"),
        (([1.0], [1.0]), {"names": None}, "two different names"),
        (([1.0], [1.0]), {"names": (1, 2)}, "names must be text, got 1"),
        (({"x": [1.0], 2: [1.0]},), {}, "names must be text, got 2"),
        (([1.0], [1.0]), {"test": "t"}, "test.*'t'"),
        (([1.0], [1.0]), {"interval": "t"}, "interval.*'t'"),
        (([1.0], [1.0]), {"confidence": 95}, r"confidence.*95"),
        (([1.0], [1.0]), {"confidence": "0.9"}, r"confidence.*'0\.9'"),
        (([1.0], [1.0]), {"resamples": 0}, "resamples.*0"),
        (([1.0], [1.0]), {"seed": -1}, "seed.*-1"),
    ],
)
def test_what_cannot_be_compared(args, options, message):
    with pytest.raises(ValueError, match=message):
        compare(*args, **options)


def test_the_mean_of_few_lists():
    assert mean_interval([0.5, np.nan], **FAST) == (0.5, 0.5, 0.5)
    assert np.isnan(mean_interval([np.nan], **FAST)).all()
    with pytest.raises(ValueError, match="interval must"):
        mean_interval([0.5], interval="x")


@pytest.fixture(scope="module")
def three():
    base = rng(21).random(60)
    models = {"base": base, "b|c": base + 0.2, "[red]d": base - rng(22).normal(0.05, 0.1, 60)}
    return compare(models, **FAST)


def test_the_tables_have_the_numbers(three):
    head, rule, *rows = three.markdown().splitlines()[:5]
    assert rule == "|:--|--:|--:|--:|--:|--:|"
    assert head.count("|") == rows[0].count("|") == 7
    assert "b\\|c" in rows[1]
    second = three.models[2]
    for text in (str(three), three.markdown()):
        assert str(second.mean) in text
        assert f"{second.difference.mean:+.4f}" in text
        assert f"{second.p_holm:.4f}" in text
        assert text.endswith(three.caption)
    console = Console(width=200, record=True, file=StringIO())
    console.print(three)
    printed = console.export_text()
    assert "[red]d" in printed
    assert f"{second.difference.mean:+.4f}" in printed


def test_a_star_marks_the_exact_among_others():
    a = np.zeros(40)
    few, many = a.copy(), rng(23).normal(size=40)
    few[:3] = 1.0
    found = compare({"a": a, "few": few, "many": many}, **FAST)
    assert "0.2500*" in str(found)
    assert "where p has a *" in found.caption
    assert "*" not in str(compare(a, few, **FAST))
    assert compare(a, few, **FAST).caption.endswith("all flips of signs")


def test_json(three):
    content = json.loads(json.dumps(three.to_dict()))
    assert content["lists"] == 60
    assert content["models"][0]["difference"] is None
    assert content["models"][1]["difference"]["mean"] == three.models[1].difference.mean
    options = {"confidence": np.float32(0.5), "resamples": np.int64(9), "seed": np.int64(1)}
    content = json.loads(json.dumps(compare([1.0, 2.0], [1.0, 4.0], **options).to_dict()))
    assert (content["confidence"], content["resamples"], content["seed"]) == (0.5, 9, 1)


def test_plot(three, tmp_path):
    axes = three.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b|c", "[red]d"]
    drawn = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2][1:]
    for line, model in zip(drawn, three.models[1:], strict=True):
        assert tuple(line) == (model.difference.low, model.difference.high)
    axes.figure.savefig(tmp_path / "plot.png")
    assert three.plot(axes) is axes

"""Judges: kappa of scikit-learn, alpha of `krippendorff` 0.9, tau of scipy, coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from ltr.metrics import MRR
from ltr.reports import agreement, evaluate, grades_needed

NAN = np.nan
# The example of Krippendorff, "Computing Krippendorff's alpha-reliability", 2011, page 6 and after.
OBSERVERS = {
    "A": [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    "B": [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    "C": [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    "D": [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
}


def judged(rows=400, kinds=4, noise=0.4, seed=0):
    """Two judges' grades: the second keeps the first one's grade with probability 1 - noise."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, kinds, rows)
    return a, np.where(rng.random(rows) < noise, rng.integers(0, kinds, rows), a)


@pytest.mark.parametrize("weights", ["quadratic", "linear", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_kappa_is_that_of_scikit_learn(weights, seed):
    a, b = judged(seed=seed)
    found = agreement(a, b, weights=weights, resamples=20)
    expected = cohen_kappa_score(a, b, weights=None if weights == "none" else weights)
    (pair,) = found.pairs
    assert pair.kappa.mean == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(pair.confusion, confusion_matrix(a, b))
    assert f"{expected:.4f}" in str(found)


@pytest.mark.parametrize(
    ("level", "published", "of_krippendorff"),
    [
        ("nominal", 0.743, 0.743421052631579),
        ("ordinal", 0.815, 0.8153875037548814),
        ("interval", 0.849, 0.8491071428571428),
    ],
)
def test_alpha_of_the_published_example(level, published, of_krippendorff):
    found = agreement(OBSERVERS, level=level, resamples=20)
    assert found.alpha.mean == pytest.approx(of_krippendorff, abs=1e-12)
    assert found.alpha.mean == pytest.approx(published, abs=6e-4)
    assert (found.rows, found.left_out) == (11, 1)
    assert len(found.pairs) == 6


def alpha_by_definition(columns, level):
    """One minus the mean distance within rows over the mean distance of any two grades."""
    table = np.array(columns, float)
    units = [u[~np.isnan(u)] for u in table.T]
    units = [u for u in units if len(u) > 1]
    every = np.concatenate(units)

    def distance(c, k):
        if level == "nominal":
            return float(c != k)
        if level == "interval":
            return (c - k) ** 2
        low, high = min(c, k), max(c, k)
        between = ((every >= low) & (every <= high)).sum()
        return (between - ((every == c).sum() + (every == k).sum()) / 2) ** 2 if c != k else 0.0

    observed = sum(sum(distance(c, k) for c in u for k in u) / (len(u) - 1) for u in units)
    expected = sum(distance(c, k) for c in every for k in every) / (len(every) - 1)
    return 1 - observed / expected if expected else NAN


grade = st.one_of(st.none(), st.sampled_from([0, 1, 2.5, 7]))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5).flatmap(
        lambda n: st.lists(st.lists(grade, min_size=n, max_size=n), min_size=2, max_size=4)
    ),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_is_its_definition(columns, level):
    table = np.array(columns, float)
    judges = {f"j{i}": column for i, column in enumerate(table)}
    if np.isnan(table).all(1).any() or not ((~np.isnan(table)).sum(0) > 1).any():
        with pytest.raises(ValueError, match=r"at least one grade|graded the same row"):
            agreement(judges)
        return
    found = agreement(judges, level=level, resamples=5).alpha.mean
    np.testing.assert_allclose(found, alpha_by_definition(table, level), atol=1e-12)


def test_tau_is_that_of_the_systems_means():
    rng = np.random.default_rng(3)
    qid = np.repeat(np.arange(60), 8)
    a, b = judged(len(qid), seed=4)
    systems = {f"s{i}": a + (0.5 + i) * rng.normal(size=len(qid)) for i in range(6)}
    systems["again"] = systems["s0"]
    means = [
        [evaluate(x, s, qid, ["map"], resamples=2)["map"].mean for s in systems.values()]
        for x in (a, b)
    ]
    order = rng.permutation(len(qid))
    found = agreement(
        a[order],
        b[order],
        qid[order],
        systems={name: s[order] for name, s in systems.items()},
        metric="map",
        resamples=300,
    )
    (pair,) = found.pairs
    assert pair.tau.mean == pytest.approx(kendalltau(*means).statistic, abs=1e-12)
    assert pair.tau.low <= pair.tau.mean <= pair.tau.high
    assert "tau of systems" in str(found)


def test_missing_grades_leave_out_their_rows_alone():
    a, b = (x.astype(float) for x in judged())
    a[::3], b[1::3] = NAN, NAN
    both = ~np.isnan(a) & ~np.isnan(b)
    found = agreement(a, b, resamples=20)
    assert found.pairs[0].rows == both.sum()
    assert found.left_out == (~both).sum()
    expected = cohen_kappa_score(a[both].astype(int), b[both].astype(int), weights="quadratic")
    assert found.pairs[0].kappa.mean == pytest.approx(expected, abs=1e-12)


def test_the_queries_with_most_disagreement():
    qid = ["x", "y", "x", "z", "y"]
    found = agreement([0, 3, 1, 2, 1], [1, 0, 1, 2, 1], qid, resamples=20)
    assert found.most_different() == [("y", 4.5), ("x", 0.5), ("z", 0.0)]
    assert found.most_different(1) == [("y", 4.5)]


@pytest.mark.slow
@pytest.mark.parametrize("queries", [50, 3000])
def test_intervals_hold_the_kappa_of_the_population(queries):
    """Rows of a query are alike: an interval over rows would be too short."""

    def draw(rng, n):
        easy = np.repeat(rng.random(n) < 0.5, 5)
        a = rng.integers(0, 3, 5 * n)
        other = rng.integers(0, 3, 5 * n)
        return a, np.where(easy | (rng.random(5 * n) < 0.3), a, other), np.repeat(np.arange(n), 5)

    a, b, _ = draw(np.random.default_rng(99), 400_000)
    kappa = cohen_kappa_score(a, b, weights="quadratic")
    inside = 0
    for seed in range(200):
        found = agreement(*draw(np.random.default_rng(seed), queries), resamples=400)
        low, high = found.pairs[0].kappa[1:]
        inside += low <= kappa <= high
    assert 0.9 <= inside / 200 <= 0.985


def test_equal_grades_alone_have_no_kappa():
    found = agreement([1, 1, 1], [1, 1, 1], resamples=10)
    assert np.isnan(found.alpha).all()
    assert np.isnan(found.pairs[0].kappa).all()
    assert agreement([1, 2, 1], [1, 2, 1], resamples=10).alpha.mean == 1


def test_fewer_queries_keep_the_order_less_often():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(300), 6)
    grades = rng.integers(0, 3, len(qid)).astype(float)
    systems = {n: grades + s * rng.normal(size=len(qid)) for n, s in (("c", 3), ("a", 1), ("b", 2))}
    grades[rng.random(len(qid)) < 0.2] = NAN
    found = grades_needed(grades, systems, qid, metric="map", probability=0.9)
    assert found.order == ("a", "b", "c")
    assert found.queries == (5, 10, 20, 50, 100, 200, 300)
    assert found.same_order[0] < 0.7 < found.same_order[-1]
    assert np.all(np.diff(found.tau) > -0.01)
    at = found.queries.index(found.needed)
    assert min(found.same_order[at:]) >= 0.9 > found.same_order[at - 1]
    rows = (~np.isnan(grades)).sum() / len({*qid[~np.isnan(grades)].tolist()})
    assert found.grades[0] == pytest.approx(5 * rows)
    equal = {"a": systems["a"], "b": systems["a"]}
    none = grades_needed(grades, equal, qid, metric="map", resamples=50)
    assert none.needed is None
    assert "not even all queries" in str(none)


def test_queries_without_a_value_keep_the_order_of_systems():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(80), 5)
    grades = (rng.random(len(qid)) < 0.2).astype(float)
    systems = {n: grades + s * rng.normal(size=len(qid)) for n, s in (("b", 3), ("a", 1))}
    counted, skipped = (
        grades_needed(grades, systems, qid, metric=MRR(empty=empty), resamples=50)
        for empty in (0, "skip")
    )
    assert skipped == counted
    assert skipped.order == ("a", "b")


GOOD = {"a": [1, 2, 3, 4], "b": [4, 3, 2, 1]}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1, 2],), {}, "b must be the grades of another judge"),
        (({"a": [1, 2]},), {}, r"at least two judges are needed, got \['a'\]"),
        (({"a": [1], "b": [1]}, [1]), {}, "b must be None"),
        (([1, 2], [1]), {}, r"grades of 'b' must have shape \(2,\) as the others, got \(1,\)"),
        (([1, np.inf], [1, 2]), {}, "grades of 'a' must be finite or NaN, got inf in row 1"),
        (([NAN, NAN], [1, 2]), {}, "grades of 'a' must have at least one grade"),
        (([NAN, 1], [1, NAN]), {}, "at least two judges must have graded the same row"),
        ((range(101), range(101)), {}, "at most 100 different values, got 101"),
        (([1, 2], ["x", 2]), {}, "grades of 'b' must be an array of numbers"),
        (([1, 2], [1, 2], [1]), {}, "qid must have one value for each of the 2 rows"),
        (([1, 2], [1, 2]), {"weights": "cubic"}, "weights must be"),
        (([1, 2], [1, 2]), {"level": "ratio"}, "level must be"),
        (([1, 2], [1, 2]), {"systems": {"a": [1, 2]}}, "at least two rankers"),
        (([1, 2, 1, 1], [1, 2, 0, 0]), {"systems": GOOD}, "qid must be the query of each row"),
        (([-1, 2], [1, 2], [1, 1]), {"systems": GOOD}, "grades must be >= 0 to evaluate systems"),
        (([1, 2], [1, 2], [1, 1]), {"systems": GOOD}, r"scores of 'a' must have shape \(2,\)"),
    ],
)
def test_wrong_input_is_one_line(arguments, options, message):
    with pytest.raises(ValueError, match=message) as error:
        agreement(*arguments, **options)
    assert "\n" not in str(error.value)


def test_wrong_input_of_grades_needed():
    for grades, systems, qid, message in [
        ([NAN] * 4, GOOD, [1, 1, 2, 2], "at least one grade"),
        ([1, 0, 1, 0], GOOD, [1, 1, 1, 1], "at least two queries"),
        ([1, 0, 1, np.inf], GOOD, [1, 1, 2, 2], "finite or NaN"),
        ([1, 0, 1, 0], {"a": [1, 2, 3, 4]}, [1, 1, 2, 2], "at least two rankers"),
        ([1, 0, 1, 0], GOOD, [1, 1], "qid must have one value"),
    ]:
        with pytest.raises(ValueError, match=message):
            grades_needed(grades, systems, qid)

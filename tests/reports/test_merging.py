"""`merge_grades`: the posterior of crowd-kit, the definition of EM, simulated judges, coverage."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.losses import SoftNDCG
from ltr.reports import evaluate, merge_grades

NAN = np.nan


def judged(rows, accuracies, seed=0, missing=0.0, kinds=3):
    """The true grades, and judges who know them with these probabilities, and else guess."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, kinds, rows)
    table = [np.where(rng.random(rows) < p, true, rng.integers(0, kinds, rows)) for p in accuracies]
    table = np.stack(table).astype(float)
    if missing:
        table[rng.random(table.shape) < missing] = NAN
    return true, {f"j{i}": x for i, x in enumerate(table)}


def test_the_posterior_is_that_of_crowd_kit():
    """crowd-kit 1.4.2: DawidSkene(n_iter=2000, tol=1e-14), priors and the first rows."""
    _, judges = judged(300, [0.9, 0.8, 0.7, 0.6, 0.5], seed=5, missing=0.2)
    found = merge_grades(judges, smoothing=0)
    assert found.frequencies == pytest.approx([0.35222, 0.30476, 0.34302], abs=1e-5)
    expected = [
        [0.0, 0.00025, 0.99975],
        [0.0, 4e-05, 0.99996],
        [1.0, 0.0, 0.0],
        [0.0, 4e-05, 0.99996],
        [7e-05, 0.99987, 6e-05],
    ]
    np.testing.assert_allclose(found.posterior[:5], expected, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_the_fit_is_a_fixed_point_of_its_definition(smoothing):
    _, judges = judged(200, [0.9, 0.7, 0.5], seed=1, missing=0.1)
    found = merge_grades(judges, smoothing=smoothing)
    graded = [r for r in range(200) if not all(np.isnan(x[r]) for x in judges.values())]
    kinds = [0, 1, 2]
    frequencies = np.array([sum(found.posterior[r, k] for r in graded) for k in kinds])
    frequencies = (frequencies + smoothing / 3) / (len(graded) + smoothing)
    np.testing.assert_allclose(found.frequencies, frequencies, atol=1e-5)
    for name, grades in judges.items():
        for true in kinds:
            row = [sum(found.posterior[r, true] for r in graded if grades[r] == k) for k in kinds]
            row = (np.array(row) + smoothing / 3) / (sum(row) + smoothing)
            np.testing.assert_allclose(found.confusion[name][true], row, atol=1e-5)
    for r in graded[:20]:
        p = [
            found.frequencies[k]
            * np.prod([found.confusion[n][k, int(x[r])] for n, x in judges.items() if x[r] == x[r]])
            for k in kinds
        ]
        np.testing.assert_allclose(found.posterior[r], np.array(p) / sum(p), atol=1e-5)
    np.testing.assert_allclose(found.labels, found.posterior @ kinds)


def test_one_good_judge_outvotes_poor_ones():
    true, judges = judged(1000, [0.95, 0.4, 0.4, 0.4], seed=2)
    found = merge_grades(judges)
    assert (found.best == true).mean() > (found.majority == true).mean() + 0.05
    assert found.accuracy["j0"].low > found.accuracy["j1"].high


def test_a_judge_who_is_one_too_high_still_counts():
    true, judges = judged(600, [0.9, 0.9], seed=3)
    judges["high"] = (true + 1.0) % 3  # always wrong, so it says everything
    found = merge_grades(judges)
    assert (found.best == true).mean() > 0.99
    assert found.accuracy["high"].mean < 0.05


def test_the_labels_are_taken_by_losses_and_metrics():
    _, judges = judged(60, [0.9, 0.7, 0.6], seed=4)
    found = merge_grades(judges, qid=np.repeat(np.arange(20), 3))
    scores = np.arange(60.0)
    value = evaluate(found.labels, scores, np.repeat(np.arange(20), 3), ["ndcg"], resamples=5)
    assert 0 < value["ndcg"].mean < 1
    loss = SoftNDCG()(torch.tensor(scores), torch.tensor(found.labels), lengths=torch.tensor([60]))
    assert loss > 0


def test_rows_that_nobody_graded_have_no_label():
    _, judges = judged(100, [0.9, 0.8, 0.7])
    judges = {name: np.r_[x, NAN] for name, x in judges.items()}
    found = merge_grades(judges)
    assert found.ungraded == 1
    assert np.isnan([found.labels[-1], found.best[-1], found.majority[-1]]).all()
    assert np.isnan(found.posterior[-1]).all()
    assert not np.isnan(found.labels[:-1]).any()
    assert "nobody graded 1 row" in str(found)


def test_the_majority_of_equal_votes_is_their_mean():
    found = merge_grades({"a": [0, 2, 1], "b": [1, 2, NAN], "c": [NAN, 0, NAN]})
    assert found.majority.tolist() == [0.5, 2.0, 1.0]
    assert np.isnan(found.accuracy["a"][1:]).all()  # fewer than 20 queries


def test_one_grade_alone():
    found = merge_grades({"a": [1, 1], "b": [1, NAN]})
    assert found.labels.tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_intervals_hold_the_accuracies():
    accuracies = np.array([0.8, 0.7, 0.6, 0.5])
    exact = accuracies + (1 - accuracies) / 3
    inside = []
    for seed in range(150):
        _, judges = judged(600, accuracies, seed=seed)
        found = merge_grades(judges, seed=seed)
        inside += [
            x.low <= p <= x.high for x, p in zip(found.accuracy.values(), exact, strict=True)
        ]
    assert 0.9 < np.mean(inside) < 0.985


@pytest.mark.parametrize(
    ("judges", "options", "message"),
    [
        ({"a": [1, 2]}, {}, "at least two judges"),
        ([[1, 2], [1, 2]], {}, "judges must be grades by name, got list"),
        ({"a": [1, 2], "b": [1]}, {}, r"grades of 'b' must have shape \(2,\)"),
        ({"a": [1, np.inf], "b": [1, 2]}, {}, "must be finite or NaN"),
        ({"a": [1, 2], "b": [1, 2]}, {"smoothing": -1}, "smoothing must be >= 0, got -1"),
        ({"a": [1, 2], "b": [1, 2]}, {"smoothing": NAN}, "smoothing must be >= 0, got nan"),
        ({"a": [1, 2], "b": [1, 2]}, {"qid": [1]}, "qid must have one value"),
        ({"a": [1, 2], "b": [1, 2]}, {"confidence": 1}, "confidence must lie"),
    ],
)
def test_wrong_input_is_one_line(judges, options, message):
    with pytest.raises(ValueError, match=message) as error:
        merge_grades(judges, **options)
    assert "\n" not in str(error.value)


def test_the_page_has_what_was_measured():
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "judges.json").read_text())
    page = (root / "docs" / "metrics" / "after-the-mean.md").read_text()
    for name, found in result["simulated"].items():
        assert f"| {name} | {' | '.join(f'{x:.3f}' for x in found.values())} |" in page
    seconds = result["large"]["seconds"]["merge_grades"]
    assert f"takes {seconds:.0f} CPU seconds" in " ".join(page.split())

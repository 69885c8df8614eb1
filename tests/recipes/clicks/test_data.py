"""The data of the recipe `clicks`: labels that estimate relevance, of what production showed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from recipes.clicks.data import ClickDataModule
from recipes.clicks.figure import by_sessions


def loaded(**given) -> ClickDataModule:
    data = ClickDataModule(**({"seed": 3, "sessions": 60_000} | given))
    data.setup("fit")
    return data


def test_labels_estimate_the_attraction_of_each_document_without_its_position():
    grades = loaded(learn="grades")
    gain = {
        tuple(features): label
        for features, label in zip(
            grades.splits["train"].features, grades.splits["train"].labels, strict=True
        )
    }
    # by learner, the mean label at positions 2 to 10 of documents of no gain and of all gain,
    # relative to the same at position 1
    found = {}
    for learn in ("naive", "true", "estimated"):
        lists = loaded(learn=learn).splits["train"]
        assert (lists.lengths == 10).all()
        position = np.arange(len(lists.labels)) % 10
        own = np.array([gain[tuple(features)] for features in lists.features])
        found[learn] = [
            lists.labels[(own == 1) & (position == k)].mean()
            / lists.labels[(own == 1) & (position == 0)].mean()
            for k in range(1, 6)
        ]
    np.testing.assert_allclose(found["naive"], 1 / np.arange(2, 7), atol=0.06)
    np.testing.assert_allclose(found["true"], 1, atol=0.2)
    np.testing.assert_allclose(found["estimated"], 1, atol=0.25)


def test_estimated_propensities_are_near_the_true_ones():
    bias = loaded(learn="estimated").bias
    found = bias(torch.arange(1, 11))
    np.testing.assert_allclose(found, 1 / np.arange(1, 11), atol=0.05)
    assert loaded(learn="true").bias(torch.tensor([4])).item() == 0.25


def test_test_lists_keep_their_grades_and_production_its_scores():
    plain, clicked = (loaded(learn=learn) for learn in ("grades", "naive"))
    production = loaded(learn="production")
    for data in (plain, clicked, production):
        assert {*data.splits["test"].labels} == {0, 1, 2, 3, 4}
    assert production.num_features == 1
    assert plain.num_features == clicked.num_features == 64
    # production rankers show in their order, which the lists have
    first = clicked.splits["train"]
    scores = {
        tuple(features): score
        for features, score in zip(
            plain.splits["train"].features, production.splits["train"].features[:, 0], strict=True
        )
    }
    shown = [scores[tuple(features)] for features in first.features[:10]]
    assert shown == sorted(shown, reverse=True)


def test_a_seed_draws_the_clicks_and_the_labelled_lists():
    one, same, other = (loaded(seed=seed, sessions=2000).splits["train"] for seed in (3, 3, 4))
    assert (one.labels == same.labels).all()
    assert one.labels.shape != other.labels.shape or (one.labels != other.labels).any()
    assert one.labels.sum() == pytest.approx(sum(one.lengths > 0), rel=0.1)


def test_bad_arguments_are_named():
    for given, message in [
        ({"learn": "magic"}, 'learn must be "production" or "naive" or "true" or'),
        ({"sessions": 0}, "sessions must be a whole number >= 1, got 0"),
        ({"sessions": 2}, "sessions must be at least the number of rankers, 3, got 2"),
        ({"rankers": 0}, "rankers must be a whole number >= 1, got 0"),
        ({"labelled": -1.0}, "labelled must be >= 0, got -1.0"),
        ({"top_k": 0}, "top_k must be a whole number >= 1, got 0"),
        ({"fold": 0}, "fold must be >= 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            ClickDataModule(**given)
    with pytest.raises(ValueError, match=r"path must be a folder, got .*no-such"):
        loaded(root="nowhere", source="no-such")


def test_the_picture_has_a_panel_a_set_and_a_line_a_variant(tmp_path: Path):
    assert by_sessions([]) is None
    runs = [
        {
            "variant": f"{name}, {variant}",
            "options": {"data.source": name} | ({"data.sessions": count} if count else {}),
            "metrics": {"test_ndcg_10": 0.5 + number / 10},
        }
        for number, (variant, count) in enumerate([("a", 100), ("a", 1000), ("b", None)])
        for name in ("one", "two")
    ]
    figure = by_sessions(runs)
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    line, level = figure.axes[0].lines
    assert line.get_xdata().tolist() == [100, 1000]
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.6])
    assert [*level.get_ydata()] == [0.7, 0.7]
    assert figure.axes[0].get_xscale() == "log"

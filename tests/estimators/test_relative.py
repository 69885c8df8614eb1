"""Columns relative to the list: found where they rank better, and said where they are used."""

import re

import numpy as np
import pytest
from lightgbm import LGBMRanker
from sklearn.base import clone

from ltr.datasets import Standardize, TableTransform
from ltr.estimators import Blend, NeuralRanker


def shop(lists: int, relative: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a shop's rows: prices with another scale in each query, and two other columns.

    With `relative`, the grade depends on how cheap a row is in its list; otherwise on the columns
    alone.
    """
    rng = np.random.default_rng(seed)
    cheap = rng.normal(size=(lists, 8))
    price = np.exp(rng.normal(0, 2, size=(lists, 1)) + 0.3 * cheap)
    others = rng.normal(size=(lists, 8, 2))
    target = (
        others[..., 0] - (2 * cheap if relative else np.log(price)) + rng.normal(size=(lists, 8))
    )
    y = (target > np.quantile(target, 0.7, axis=1, keepdims=True)).astype(float)
    X = np.concatenate([price[..., None], others], -1).reshape(-1, 3)
    return X, y.ravel(), np.repeat(np.arange(lists), 8)


def ranker(**given) -> NeuralRanker:
    return NeuralRanker(members=1, max_epochs=8, random_state=0, verbose=0, **given)


def test_relative_columns_are_found_where_they_rank_better():
    X, y, qid = shop(600, relative=True)
    test = shop(300, relative=True, seed=1)
    auto, plain = ranker().fit(X, y, qid=qid), ranker(relative=False).fit(X, y, qid=qid)
    assert auto.settings_["relative"]
    assert auto.model_.looks_at_list
    assert not plain.settings_["relative"]
    gain = auto.score(test[0], test[1], qid=test[2]) - plain.score(test[0], test[1], qid=test[2])
    assert gain > 0.02
    # a score depends on the list, so that predict needs it, and says the two ways out
    with pytest.raises(ValueError, match=r"qid or group must be given to predict.*relative=False"):
        auto.predict(X)
    scores = auto.predict(X[:8], qid[:8])
    assert not np.allclose(scores[:4], auto.predict(X[:4], qid[:4]))
    np.testing.assert_allclose(plain.predict(X[:8])[:4], plain.predict(X[:4]), rtol=1e-5)


def test_without_such_a_rule_predict_needs_no_lists():
    X, y, qid = shop(600, relative=False)
    auto = ranker().fit(X, y, qid=qid)
    assert not auto.settings_["relative"]
    assert auto.predict(X[:5]).shape == (5,)


def test_few_validation_lists_are_not_asked():
    X, y, qid = shop(60, relative=True)
    assert not ranker().fit(X, y, qid=qid).settings_["relative"]
    for asked in (True, np.True_):  # a flag of numpy is a flag
        assert ranker(relative=asked).fit(X, y, qid=qid).settings_["relative"]
    assert not ranker(relative=np.False_).fit(X, y, qid=qid).settings_["relative"]


def test_the_line_of_fit_says_that_predict_needs_qid(capsys):
    X, y, qid = shop(60, relative=True)
    NeuralRanker(members=1, max_epochs=1, relative=True, random_state=0).fit(X, y, qid=qid)
    assert "with columns relative to the list: predict needs qid" in capsys.readouterr().err


@pytest.mark.usefixtures("short_trials")
def test_the_line_of_fit_says_that_relative_columns_were_tried(capsys, monkeypatch):
    X, y, qid = shop(560, relative=False)
    tried = "columns relative to the list were tried and not kept: a "
    measured = r" gained [+-]\d\.\d{4} \(standard error \d\.\d{4}\)"
    quick = NeuralRanker(members=1, max_epochs=1, random_state=0)
    assert not quick.fit(X, y, qid=qid).settings_["relative"]
    assert re.search(f"; {tried}(network|linear model){measured}", capsys.readouterr().err)
    for name, model in [("_PROMISING", "linear model"), ("_CLEAR", "network")]:
        with monkeypatch.context() as patch:
            patch.setattr(f"ltr.estimators.screening.{name}", 1e9)
            assert not quick.fit(*shop(560, relative=True)[:2], qid=qid).settings_["relative"]
        assert re.search(f"; {tried}{model}{measured}", capsys.readouterr().err)
    quick.fit(*shop(60, relative=True)[:2], qid=qid[:480])  # too few lists to try
    clone(quick).set_params(relative=False).fit(X, y, qid=qid)
    assert "tried" not in capsys.readouterr().err


def test_more_training_keeps_relative_columns(tmp_path):
    X, y, qid = shop(60, relative=True)
    fitted = ranker(relative=True, warm_start=True).fit(X, y, qid=qid)
    fitted.partial_fit(X, y, qid=qid)
    assert fitted.settings_["relative"]
    fitted.fit(X, y, qid=qid)
    assert fitted.settings_["relative"]
    fitted.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X, qid), fitted.predict(X, qid))
    with pytest.raises(ValueError, match="relative=False"):
        again.predict(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"relative": np.array([True, False])},
            "relative must be True, False or 'auto', got array",
        ),
        ({"relative": "yes"}, "relative must be True, False or 'auto', got 'yes'"),
        (
            {"relative": True, "transform": TableTransform(Standardize())},
            "relative must be False or 'auto' if transform is given, got True: put RankPerList",
        ),
        ({"relative": True, "monotone": {"x0": 1}}, "'auto' if monotone is given, got True"),
    ],
)
def test_bad_arguments(given, message):
    X, y, qid = shop(10, relative=True)
    with pytest.raises(ValueError, match=message):
        ranker(**given).fit(X, y, qid=qid)


@pytest.mark.filterwarnings("ignore:The argument 'eval_")
def test_a_blend_gives_its_trees_the_columns_of_its_networks(tmp_path):
    X, y, qid = shop(300, relative=True)
    test = shop(300, relative=True, seed=1)
    trees = LGBMRanker(n_estimators=30, n_jobs=1, verbose=-1, random_state=0)
    constrained = clone(trees).set_params(monotone_constraints=[0, 1, 0])
    short_ranker = lambda relative: ranker(relative=relative).set_params(max_epochs=1)  # noqa: E731
    rankers = [trees, short_ranker(True), constrained]
    blend = Blend(rankers, verbose=0).fit(X, y, qid=qid)
    assert blend.relative_ == [True, False, False]
    plain = Blend([trees, short_ranker(False)], verbose=0).fit(X, y, qid=qid)
    assert plain.relative_ == [False, False]

    found = []
    for one in (blend, plain):
        one.weights_ = np.eye(len(one.rankers_))[0]  # the trees alone
        found.append(one.score(test[0], test[1], qid=test[2]))
    assert found[0] > found[1] + 0.02
    blend.weights_ = np.array([0.5, 0.3, 0.2])
    with pytest.raises(ValueError, match="qid"):
        blend.predict(X)
    blend.save(tmp_path / "model")
    want = blend.predict(X[:200], qid[:200])
    again = Blend.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X[:200], qid[:200]), want)
    blend.weights_ = np.eye(3)[0]  # the networks would take most of the time of the export
    written = blend.export(tmp_path / "model.onnx")
    assert written.difference < 1e-5

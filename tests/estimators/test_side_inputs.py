"""Position and protected reach the loss of a `NeuralRanker`."""

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import PiecewiseLinearBins, TableTransform
from ltr.datasets.prepare import prepare
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import (
    ExposureParity,
    Penalized,
    PositionBias,
    RankingLoss,
    SoftmaxLoss,
    Unbiased,
)
from ltr.models import LinearScorer


def clicks(lists: int = 300, size: int = 10, seed: int = 0) -> pd.DataFrame:
    """Lists that were shown by x0, which says nothing of relevance, with their rows shuffled."""
    rng = np.random.default_rng(seed)
    rows = lists * size
    table = pd.DataFrame(rng.normal(size=(rows, 4)), columns=[f"x{i}" for i in range(4)])
    table["qid"] = np.repeat(np.arange(lists), size)
    table["relevant"] = rng.random(rows) < 1 / (1 + np.exp(2 - 4 * table["x1"] - 2 * table["x2"]))
    shown = table.groupby("qid")["x0"].rank(ascending=False).astype(int)
    looked = rng.random(rows) < 1 / shown
    table = table.assign(shown=shown, click=table["relevant"] & looked)
    return table.sample(frac=1, random_state=seed)


FEATURES = ["x0", "x1", "x2", "x3"]


def quick(loss: RankingLoss, **parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 1, "max_epochs": 20, "verbose": 0, "random_state": 0}
    small |= {"scorer": LinearScorer(), "learning_rate": 0.05, "validation": 0}
    return NeuralRanker(loss=loss, **{**small, **parameters})


def test_positions_recover_what_clicks_hide():
    table, test = clicks(), clicks(seed=1)
    in_order = table.sort_values("qid", kind="stable")
    sizes = in_order.groupby("qid").size().to_numpy()

    def quality(loss: RankingLoss, table: pd.DataFrame, **given: Any) -> float:
        ranker = quick(loss).fit(table[FEATURES], table["click"], **given)
        return ranker.score(test[FEATURES], test["relevant"], qid=test["qid"])

    loss, of_rows = Unbiased(SoftmaxLoss()), {"qid": table["qid"]}
    at_the_top = quality(loss, table, position=np.ones(len(table)), **of_rows)
    assert at_the_top == quality(SoftmaxLoss(), table, **of_rows)
    assert quality(loss, table, position=table["shown"], **of_rows) > at_the_top + 0.01
    by_size = quality(loss, in_order, position=in_order["shown"], group=sizes)
    assert by_size > at_the_top + 0.01


def test_positions_gain_more_than_luck_with_early_stopping():
    """Over four logs, the gain is larger than four of its standard errors."""
    test, gains = clicks(seed=100), []
    for seed in range(4):
        table = clicks(200, seed=seed)
        lists = {"qid": table["qid"], "position": table["shown"]}
        quality = []
        for loss in (SoftmaxLoss(), Unbiased(SoftmaxLoss(), split=True)):
            ranker = quick(loss, max_epochs=8, validation=0.2, random_state=seed)
            ranker.fit(table[FEATURES], table["click"], **lists)
            quality.append(ranker.score(test[FEATURES], test["relevant"], qid=test["qid"]))
        gains.append(quality[1] - quality[0])
    assert np.mean(gains) > 4 * np.std(gains, ddof=1) / 4**0.5
    assert np.mean(gains) > 0.02


@pytest.mark.parametrize("penalized", [False, True])
def test_a_loss_on_clicks_is_validated_by_weighted_clicks(penalized: bool):
    roles = {"qid": "qid", "label": "click", "position": "shown"}
    table, val = (clicks(60, seed=seed).drop(columns="relevant") for seed in (0, 1))
    loss: RankingLoss = Unbiased(SoftmaxLoss(), PositionBias(examination=[1.0, 0.5, 0.2]), clip=4.0)
    if penalized:
        loss = Penalized(loss, SoftmaxLoss(), 0.1)
    train, held = prepare(table, roles), prepare(val, roles)
    ranker = quick(loss, max_epochs=1).fit(train, eval_set=[held])
    val["score"] = ranker.predict(val[FEATURES])
    val["rank"] = val.groupby("qid")["score"].rank(ascending=False)
    clicked = val[val["click"]]
    weight = clicked["shown"].map({1: 1.0, 2: 2.0}).fillna(4.0)
    expected = np.average(1 / np.log2(1 + clicked["rank"]), weights=weight)
    assert ranker.history_[0][0] == pytest.approx(expected, abs=1e-6)
    # without clicks all epochs are equally good
    held = prepare(val.drop(columns=["score", "rank"]).assign(click=0), roles)
    assert quick(loss, max_epochs=2).fit(train, eval_set=[held]).history_ == [[0.0], [0.0]]


def exposure(table: pd.DataFrame, scores: np.ndarray) -> float:
    """How much more exposure the rows with x3 > 0 have."""
    rank = pd.Series(scores, table.index).groupby(table["qid"]).rank(ascending=False)
    seen = rank.map(lambda r: 1 / np.log2(1 + r)).groupby(table["x3"] > 0).mean()
    return seen[True] - seen[False]


@pytest.mark.filterwarnings("ignore:SigmoidRank has the temperature")  # equal scores are the aim
def test_a_penalty_takes_protected_and_not_the_labels():
    table = clicks()
    table["label"] = table["x1"] + table["x3"] > 0.5
    loss = Penalized(SoftmaxLoss(), ExposureParity(), strength=200.0)
    bins = TableTransform(PiecewiseLinearBins(8))
    slowly = {"max_epochs": 40, "learning_rate": 0.02, "transform": bins}
    gaps = []
    for protected in (table["x3"] > 0, table["label"]):
        ranker = quick(loss, **slowly).fit(
            table[FEATURES], table["label"], qid=table["qid"], protected=protected
        )
        gaps.append(exposure(table, ranker.predict(table[FEATURES])))
    plain = quick(SoftmaxLoss(), **slowly).fit(table[FEATURES], table["label"], qid=table["qid"])
    gaps.append(exposure(table, plain.predict(table[FEATURES])))
    assert abs(gaps[0]) < 0.25 * gaps[2]
    assert gaps[1] > 0.5 * gaps[2]


def test_each_fit_takes_them():
    table = clicks(60)
    X, lists = table[FEATURES], {"qid": table["qid"], "position": table["shown"]}
    loss = Unbiased(SoftmaxLoss())
    ranker = quick(loss, max_epochs=1, warm_start=True, validation=0.2)
    ranker.fit(X, table["click"], **lists)
    first = ranker.predict(X)
    ranker.fit(X, table["click"], **lists).partial_fit(X, table["click"], **lists)
    assert not np.array_equal(ranker.predict(X), first)
    # The name of the first training's labels is not free for positions.
    later = table["click"].to_numpy(), table["shown"].rename("click")
    twice = [
        copy.copy(ranker).fit(X, y, qid=table["qid"], position=shown).predict(X)
        for y, shown in ((table["click"], table["shown"]), later)
    ]
    np.testing.assert_array_equal(*twice)
    ranker.fit(
        X, table["click"], eval_set=[(X, table["relevant"])], eval_qid=[table["qid"]], **lists
    )
    assert ranker.predict(X[["x3", "x2", "x1", "x0"]]).shape == (600,)
    # weights of lists, and members, keep a row's side inputs
    weights = np.ones(60)
    both = [
        quick(loss, max_epochs=2, batch_size=7, members=2).fit(X, table["click"], **lists, **more)
        for more in ({}, {"sample_weight": weights})
    ]
    np.testing.assert_allclose(both[0].predict(X), both[1].predict(X), rtol=0, atol=1e-5)


def test_a_blend_passes_them_on():
    table = clicks(60)
    X, y, qid = table[FEATURES], table["click"], table["qid"]
    loss = Unbiased(SoftmaxLoss())
    blend = Blend([quick(loss)], validation=0, verbose=0)
    blend.fit(X, y, qid=qid, position=table["shown"])
    order = np.argsort(qid.to_numpy(), kind="stable")
    with pytest.raises(ValueError, match=r"position .*Unbiased needs"):
        blend.fit(X, y, qid=qid)
    again = quick(loss).fit(X, y, qid=qid, position=table["shown"])
    scale = blend.scales_[0]
    np.testing.assert_allclose(
        blend.fit(X, y, qid=qid, position=table["shown"]).predict(X)[order],
        again.predict(X)[order] * scale,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("loss", "given", "message"),
    [
        (Unbiased(), {}, r"position .*None.*Unbiased needs"),
        (Penalized(), {}, r"protected .*None.*Penalized needs"),
        (Penalized(Unbiased()), {"protected": np.ones(600)}, r"position .*Penalized needs"),
        (Unbiased(), {"position": np.ones(5)}, r"position .*600 .*\(5,\)"),
        (Unbiased(), {"position": np.zeros(600)}, r"column 'position'.* 0"),
        (Unbiased(), {"position": np.full(600, 1.5)}, r"column 'position'.* 1\.5"),
        (Unbiased(), {"position": ["a"] * 600}, r"position .*'a'"),
        (Penalized(), {"protected": np.full(600, np.nan)}, "column 'protected'.*nan"),
    ],
)
def test_one_that_is_missing_or_wrong(loss, given, message):
    table = clicks(60)
    ranker = quick(loss)
    with pytest.raises(ValueError, match=message):
        ranker.fit(table[FEATURES], table["click"], qid=table["qid"], **given)
    assert not hasattr(ranker, "scorer_")


def test_a_side_input_that_fit_does_not_take():
    class Aged(SoftmaxLoss):
        side_inputs = ("age",)

    table = clicks(60)
    with pytest.raises(ValueError, match="'age'"):
        quick(Aged()).fit(table[FEATURES], table["click"], qid=table["qid"])

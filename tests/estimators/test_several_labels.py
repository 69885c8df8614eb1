"""Several labels, from the table to the ranker, its metrics and its trade-offs."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from ltr.config.folder import CONFIG
from ltr.datasets import ListDataset, Schema, Standardize, TableTransform, convert, read_table
from ltr.datasets.list_files import open_lists, write_lists
from ltr.estimators import Blend, NeuralRanker, trade_offs
from ltr.losses import SeveralLabels, SoftmaxLoss
from ltr.metrics.functional import ndcg
from ltr.reports import evaluate_labels

NAMES = ["click", "buy"]


@cache
def shop(lists: int = 120) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return columns, labels and queries: clicks follow column a, purchases column b."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(lists), 10)
    X = pd.DataFrame(rng.normal(size=(len(qid), 3)), columns=list("abc"))
    noise = 0.3 * rng.normal(size=(len(qid), 2))
    Y = pd.DataFrame((X[["a", "b"]].to_numpy() + noise > 1) * 1.0, columns=NAMES)
    Y.loc[::7, "buy"] = np.nan
    return X, Y, qid


def loss_of(click: float, buy: float, **options) -> SeveralLabels:
    return SeveralLabels({"click": (SoftmaxLoss(), click), "buy": (SoftmaxLoss(), buy)}, **options)


def ranker_of(click: float = 1.0, buy: float = 1.0, **options) -> NeuralRanker:
    given = {"members": 2, "max_epochs": 8, "random_state": 0, "verbose": 0, **options}
    return NeuralRanker(loss=given.pop("loss", loss_of(click, buy)), **given)


@cache
def fitted() -> NeuralRanker:
    X, Y, qid = shop()
    return ranker_of(1.0, 3.0).fit(X, Y, qid=qid)


@pytest.mark.parametrize("form", ["array", "swapped", "polars"])
def test_y_in_any_form_gives_the_same_ranker(form):
    X, Y, qid = shop()
    given = {"array": Y.to_numpy(), "swapped": Y[["buy", "click"]], "polars": None}[form]
    if form == "polars":
        given = pytest.importorskip("polars").from_pandas(Y)
    ranker = ranker_of(1.0, 3.0).fit(X, given, qid=qid)
    assert ranker.schema_.labels == ("click", "buy")
    np.testing.assert_array_equal(ranker.predict(X), fitted().predict(X))


def test_a_label_of_weight_0_changes_nothing():
    X, Y, qid = shop()
    transform = TableTransform(Standardize())  # it does not look at labels
    several = ranker_of(loss=loss_of(1.0, 0.0, scale=None), transform=transform, validation=0)
    one = ranker_of(loss=SoftmaxLoss(), transform=transform, validation=0)
    expected = one.fit(X, Y["click"], qid=qid).predict(X)
    np.testing.assert_allclose(several.fit(X, Y, qid=qid).predict(X), expected, atol=1e-5)


def test_weights_move_the_ranking_from_one_label_to_the_other():
    X, Y, qid = shop()
    values = []
    for weights in ((1, 0), (1, 1), (0, 1)):
        scores = ranker_of(*weights).fit(X, Y, qid=qid).predict(X)
        found = evaluate_labels(Y, scores, qid, ["ndcg@10"])
        values.append([found[name]["ndcg@10"].mean for name in NAMES])
    clicks, purchases = np.array(values).T
    assert clicks[0] > clicks[1] > clicks[2]
    assert purchases[0] < purchases[1] < purchases[2]


def test_a_floor_is_kept_on_the_validation_lists():
    X, Y, qid = shop(300)
    train, val = qid < 200, qid >= 200
    given = {"eval_set": [(X[val], Y[val])], "eval_qid": [qid[val]]}
    options = {"members": 1, "max_epochs": 10, "patience": 10, "learning_rate": 0.01}
    values = []
    for how in ({}, {"how": "floor", "floors": {"click": 0.75}}):
        ranker = ranker_of(loss=loss_of(0.0, 1.0, **how), **options)
        scores = ranker.fit(X[train], Y[train], qid=qid[train], **given).predict(X[val])
        evaluations = evaluate_labels(Y[val], scores, qid[val], ["ndcg@10"])
        values.append(evaluations["click"]["ndcg@10"].mean)
    free, held = values
    assert free < 0.75 <= held


def test_rows_without_a_label_do_not_count_for_it():
    X, Y, qid = shop()
    scores = np.random.default_rng(1).normal(size=len(X))
    found = evaluate_labels(Y, scores, qid, ["ndcg@10"])["buy"]
    known = Y["buy"].notna().to_numpy()
    values = []
    for query in np.unique(qid):
        rows = known & (qid == query)
        given = torch.from_numpy(scores[rows]), torch.from_numpy(Y["buy"].to_numpy()[rows])
        values.append(ndcg(*given, top_k=10))
    np.testing.assert_allclose(found.per_list["ndcg@10"], torch.stack(values).numpy(), atol=1e-7)


def test_score_is_the_weighted_mean_of_the_labels():
    X, Y, qid = shop()
    ranker = fitted()
    found = evaluate_labels(Y, ranker.predict(X), qid, ["ndcg@10"])
    click, buy = (found[name]["ndcg@10"].mean for name in NAMES)
    assert ranker.score(X, Y, qid=qid) == pytest.approx((click + 3 * buy) / 4, abs=1e-6)
    # A label that is known only in lists of weight 0 counts as one that is known nowhere.
    half = Y.assign(buy=Y["buy"].where(qid < 60))
    weights = (np.arange(120) >= 60) * 1.0
    found = ranker.score(X, half, qid=qid, sample_weight=weights)
    alone = ranker.score(X, Y.assign(buy=np.nan), qid=qid, sample_weight=weights)
    assert found == alone == pytest.approx(ranker.score(X[600:], half[600:], qid=qid[600:]))


def test_the_default_loss_takes_all_labels():
    X, Y, qid = shop()
    ranker = NeuralRanker(members=1, max_epochs=4, random_state=0, verbose=0).fit(X, Y, qid=qid)
    found = evaluate_labels(Y, ranker.predict(X), qid, ["ndcg@10"])
    chance = evaluate_labels(Y, np.zeros(len(X)), qid, ["ndcg@10"])
    for name in NAMES:
        assert found[name]["ndcg@10"].mean > chance[name]["ndcg@10"].mean + 0.1


def test_saved_rankers_keep_their_labels(tmp_path):
    X, ranker = shop()[0], fitted()
    ranker.save(tmp_path)
    loaded = NeuralRanker.load(tmp_path)
    assert loaded.schema_ == ranker.schema_
    assert isinstance(loaded.loss, SeveralLabels)
    assert loaded.loss.first_weights == (1.0, 3.0)
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert (tmp_path / CONFIG).exists()


def test_lists_on_disk_keep_several_labels(tmp_path):
    X, Y, qid = shop()
    table = pd.concat([X, Y], axis=1).assign(qid=qid)
    table.sample(frac=1, random_state=0).to_csv(tmp_path / "shop.csv", index=False)
    data = convert(tmp_path / "shop.csv", tmp_path / "lists", qid="qid", label=NAMES)
    assert data.schema is not None
    assert data.schema.label == ("click", "buy")
    expected = read_table(tmp_path / "shop.csv", data.schema)
    np.testing.assert_array_equal(data.labels, expected.labels)
    np.testing.assert_array_equal(np.isnan(data.labels).sum(0), [0, Y["buy"].isna().sum()])
    again = tmp_path / "again"
    write_lists(data, again, schema=data.schema)
    assert open_lists(again).schema == data.schema
    from_disk = ranker_of(members=1).fit(tmp_path / "lists")
    assert from_disk.score(tmp_path / "lists") > 0.4


def test_batches_have_an_axis_for_the_labels():
    labels = np.array([[1, np.nan], [0, 2], [1, 0]])
    data = ListDataset.from_arrays(np.ones((3, 1)), labels, ["q", "q", "r"])
    assert data.__getitems__([0, 1])["labels"].shape == (3, 2)
    assert data[0]["labels"].shape == (2, 2)
    assert data.relevance.tolist() == [1, 1, 1]
    assert data.varied().tolist() == [True, False]
    assert data.relevant().tolist() == [True, True]


def test_one_label_is_a_name_and_a_schema_reads_its_own_dict():
    assert Schema("q", label=["y"]) == Schema("q", label="y")
    schema = Schema("q", label=["y", "z"])
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.columns == ["q", "y", "z"]


def test_trade_offs_find_what_nobody_beats():
    X, Y, qid = shop()
    found = trade_offs(lambda weights: ranker_of(**weights, members=1), X, Y, qid=qid)
    assert [point.weights["click"] for point in found] == [1, 3, 1, 1, 0]
    means = np.stack([point.means for point in found])
    for point, own in zip(found, means, strict=True):
        beaten = any((own <= x).all() and (own < x).any() for x in means)
        assert point.unbeaten == (not beaten)
    assert means[0, 0] > means[-1, 0]
    assert means[0, 1] < means[-1, 1]
    assert "ndcg@10 of buy" in str(found)
    axes = found.plot()
    assert axes.get_ylabel() == "ndcg@10 of buy, validation lists"
    assert found[0].ranker.predict(X).shape == (len(X),)


def test_rankers_of_trade_offs_take_the_columns_as_those_of_fit():
    X, Y, qid = shop(20)
    # The schema has categories last. Without names of text, columns are found by their positions.
    X = X.assign(a=pd.Categorical(X["a"].round().astype(int))).set_axis([0, 1, 2], axis=1)

    def make(weights: dict[str, float]) -> NeuralRanker:
        return ranker_of(**weights, members=1, max_epochs=2)

    given = {"qid": qid, "weights": [{"click": 1, "buy": 2}, {"click": 0, "buy": 1}]}
    point, other = found = trade_offs(make, X, Y, metrics=["arp"], **given)
    for own, rival in (found, found[::-1]):  # a lower ARP is better
        lost = (rival.means <= own.means).all() and (rival.means < own.means).any()
        assert own.unbeaten == (not lost)
    assert not (point.unbeaten and other.unbeaten)
    ranker = make(point.weights).fit(X, Y, qid=qid)
    np.testing.assert_array_equal(point.ranker.predict(X), ranker.predict(X))
    assert point.ranker.n_features_in_ == 3


X, Y, QID = shop()
WRONG = {
    "negative": (Y.assign(buy=-1.0), {}, r"y\['buy'\] must be finite and >= 0, got -1 in row 0"),
    "infinite": (Y.assign(buy=np.inf), {}, r"y\['buy'\] must be finite and >= 0, got inf"),
    "unknown everywhere": (Y.assign(buy=np.nan), {}, "labels that vary, got no value of 'buy'"),
    "equal everywhere": (Y.assign(buy=2.0), {}, "labels that vary, got 2 of 'buy'"),
    "other names": (
        Y.rename(columns={"buy": "view"}),
        {},
        "labels of the loss, 'click', 'buy', got",
    ),
    "too many": (Y.assign(view=1.0), {}, "labels of the loss"),
    "a name twice": (Y.set_axis(["buy", "buy"], axis=1), {"loss": None}, "'buy' twice"),
    "text": (Y.assign(buy="x"), {}, r"y\['buy'\] must be an array of numbers, got 'x' in row 0"),
    "too short": (Y[:-1], {}, r"shape \(1200, 2\), got \(1199, 2\)"),
    "a feature's name": (
        Y.rename(columns={"buy": "a"}),
        {"loss": None},
        "names of features, got 'a'",
    ),
    "a loss of one label": (
        Y,
        {"loss": SoftmaxLoss()},
        "loss must be SeveralLabels for click, buy",
    ),
    "one label": (Y["click"], {}, "loss must have the labels click, got click, buy"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_labels_are_named(case):
    labels, options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        ranker_of(**options).fit(X, labels, qid=QID)


def test_a_label_may_have_the_name_of_the_queries():
    labels, short = Y.rename(columns={"buy": "qid"}), ranker_of(loss=None, members=1, max_epochs=2)
    ranker = clone(short).fit(X, labels, qid=QID)
    assert ranker.schema_.labels == ("click", "qid")
    np.testing.assert_array_equal(ranker.predict(X), short.fit(X, Y, qid=QID).predict(X))


def test_the_labels_of_later_training_and_of_validation_are_those_of_the_first():
    ranker = ranker_of(loss=None, warm_start=True, max_epochs=1).fit(X, Y, qid=QID)
    with pytest.raises(ValueError, match="labels of the training, click, buy, got one label"):
        ranker.fit(X, Y["click"], qid=QID)
    with pytest.raises(ValueError, match="labels of y, click, buy, got one label"):
        ranker_of().fit(X, Y, qid=QID, eval_set=[(X, Y["click"])], eval_qid=[QID])


def test_validation_lists_need_not_know_a_label_without_a_floor():
    unknown = {"eval_set": [(X, Y.assign(buy=np.nan))], "eval_qid": [QID]}
    ranker = ranker_of(1.0, 3.0, members=1).fit(X, Y, qid=QID, **unknown)
    found = evaluate_labels(Y[["click"]], ranker.predict(X), QID, ["ndcg@10"])
    assert max(ranker.history_)[0] == pytest.approx(found["click"]["ndcg@10"].mean, abs=1e-6)
    floor = loss_of(1.0, 1.0, how="floor", floors={"buy": 0.5})
    with pytest.raises(ValueError, match="known values of 'buy', which has a floor, got none"):
        ranker_of(loss=floor).fit(X, Y, qid=QID, **unknown)


def test_a_blend_takes_one_label():
    with pytest.raises(ValueError, match="y must be one label for a Blend, got click, buy"):
        Blend(verbose=0).fit(X, Y, qid=QID)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([{"click": 1}], "weights must name the labels click, buy"),
        ([{"click": -1, "buy": 1}], "weight of 'click' must be >= 0, got -1"),
        ([{"click": 0, "buy": 0}], "must have a weight above 0"),
        ([], "weights must have at least one entry"),
    ],
)
def test_wrong_weights_of_trade_offs(weights, message):
    with pytest.raises(ValueError, match=message):
        trade_offs(None, X, Y, qid=QID, weights=weights)
    with pytest.raises(ValueError, match="Y must have several labels"):
        trade_offs(None, X, Y["click"], qid=QID)

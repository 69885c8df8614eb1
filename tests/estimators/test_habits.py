"""The arguments and attributes of LightGBM's rankers, and a metric of the user's own."""

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from ltr.datasets import ListDataset
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import LambdaRank
from ltr.metrics import ARP, GMAP, MRR, AlphaNDCG, RankingMetric, mean_interval
from ltr.metrics import functional as F
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.models import LinearScorer, RankingModel
from ltr.reports import evaluate, evaluate_labels

ROWS = 120
X, QID = np.random.default_rng(0).normal(size=(ROWS, 3)), np.arange(ROWS) // 5
LABELS = (X[:, 0] > 0.3).astype(int)


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"scorer": LinearScorer(), "members": 2, "max_epochs": 4, "verbose": 0}
    return NeuralRanker(**{**small, "random_state": 0, **parameters})


def best_first(labels: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> float:
    """The label of the first document, below 0 for the worst."""
    assert len({len(labels), len(scores), len(qid)}) == len(set(qid.tolist())) == 1
    return float(labels[scores.argmax()]) - 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"early_stopping_rounds": 5}, r"give NeuralRanker\(patience=...\)"),
        ({"categorical_feature": "x0"}, "categorical_feature must be a list of names or indices"),
        ({"categorical_feature": 0}, "categorical_feature must be a list of names or indices"),
        ({"categorical_feature": [3]}, "categorical_feature must have indices from 0 to 2, got 3"),
        ({"categorical_feature": [-1]}, "categorical_feature must have indices from 0 to 2"),
        ({"categorical_feature": [True]}, "categorical_feature must name columns of X, got True"),
        ({"categorical_feature": ["x7"]}, "categorical_feature must name columns of X, got 'x7'"),
        ({"eval_at": [1, 5]}, "eval_at must be one value"),
        ({"eval_at": 5}, r"give NeuralRanker\(metric='ndcg@5'\)"),
        ({"eval_metric": "map"}, r"give NeuralRanker\(metric='map@10'\)"),
        ({"eval_metric": "ndcg@3"}, "eval_metric must name the metric 'ndcg@10'"),
        ({"eval_metric": best_first}, r"give NeuralRanker\(metric=function\)"),
        ({"feature_name": ["a"]}, "give a data frame"),
        ({"eval_X": [X], "eval_y": [LABELS]}, r"eval_X must be None: give eval_set=\[\(X, y\)\]"),
        ({"eval_y": LABELS}, r"eval_y must be None: give eval_set=\[\(X, y\)\].*, got ndarray$"),
        ({"query": QID}, "query must be None: give qid=, .* or group=, .*, got ndarray$"),
        ({"groups": [5, 5]}, r"groups must be None: give qid=, .* or group=, .*, got \[5, 5\]$"),
        ({"group_id": pd.Series(QID)}, "group_id must be None: give qid=, .*, got Series$"),
        ({"cat_features": ["a"]}, "cat_features must be None: give categorical_feature="),
        ({"init_model": "m.txt"}, "warm_start=True"),
        ({"callbacks": [lgb.early_stopping(5)]}, r"_EarlyStopping.*NeuralRanker\(patience=...\)"),
        ({"callbacks": [lgb.log_evaluation()]}, r"callbacks must be functions of the history"),
        ({"eval_set": [(X, LABELS)] * 2, "eval_qid": [QID] * 2}, "2 entries .* stops on"),
    ],
)
def test_what_means_something_else_here_names_our_argument(given, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, LABELS, qid=QID, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eval_at": [1, 5]}, r"^eval_at must name 'ndcg@10', .* weights, got \[1, 5\]: "),
        ({"eval_metric": "map"}, "^eval_metric must name 'ndcg@10'"),
        ({"eval_metric": best_first}, "^eval_metric must name 'ndcg@10'.*got function"),
        ({"callbacks": [lgb.early_stopping(5)]}, "^callbacks must be None: .*stop early"),
        ({"early_stopping_rounds": 5}, "^early_stopping_rounds must be None: the networks and"),
        ({"init_model": "m.txt"}, "^init_model must be None: give the trained Booster"),
        ({"verbose": 1}, r"^verbose must be None: give Blend\(verbose=...\), got 1$"),
        ({"eval_X": pd.DataFrame(X)}, r"^eval_X must be None: give eval_set=.*, got DataFrame$"),
        ({"groups": [5, 5]}, "^groups must be None: give qid="),
        ({"categorical_feature": ["x7"]}, "categorical_feature must name columns of X, got 'x7'"),
    ],
)
def test_a_blend_names_our_arguments_in_one_line(given, message):
    with pytest.raises(ValueError, match=message) as error:
        Blend([quick()], verbose=0).fit(X, LABELS, qid=QID, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ranker", [quick(), Blend([quick()], verbose=0)], ids=["network", "blend"])
def test_an_unknown_argument_is_a_type_error(ranker):
    with pytest.raises(TypeError, match="unexpected keyword argument 'eval_ats'"):
        ranker.fit(X, LABELS, qid=QID, eval_ats=[10])


def test_a_blend_takes_what_says_the_same_and_named_categories():
    codes = np.random.default_rng(1).integers(0, 4, ROWS)
    shop, labels = pd.DataFrame({"size": X[:, 0], "shop": codes}), (codes == 2).astype(int)
    trees = lgb.LGBMRanker(n_estimators=30, min_data_per_group=1, min_child_samples=2, verbose=-1)
    blend = Blend([quick(learning_rate=0.1, max_epochs=20), trees], verbose=0)
    same: dict[str, Any] = {"eval_metric": "ndcg", "eval_at": [10], "init_model": None}
    blend.fit(shop, labels, qid=QID, categorical_feature=["shop"], **same)
    assert [*blend.schema_.categories] == ["shop"]
    assert blend.rankers_[1].booster_.params["categorical_column"] == [1]
    np.testing.assert_array_equal(blend.predict(shop[::-1]), blend.predict(shop)[::-1])
    relevant = np.bincount(QID, labels) > 0  # the other lists count 0
    assert blend.score(shop, labels, qid=QID) > 0.99 * relevant.mean()


def test_what_says_the_same_is_taken():
    same = {"eval_metric": "ndcg", "eval_at": [10], "categorical_feature": "auto"}
    ranker = quick().fit(X, LABELS, qid=QID, **same)
    np.testing.assert_array_equal(ranker.predict(X), quick().fit(X, LABELS, qid=QID).predict(X))


def test_categories_that_are_named():
    codes = np.random.default_rng(1).integers(0, 4, ROWS)
    shop = pd.DataFrame({"size": X[:, 0], "shop": codes, "brand": np.where(codes > 1, "a", "b")})
    labels = (codes == 2).astype(int)
    ranker = quick().fit(shop, labels, qid=QID, categorical_feature=["shop"])
    assert {*ranker.schema_.categories} == {"shop", "brand"}
    typed = shop.astype({"shop": "category"})
    expected = quick().fit(typed, labels, qid=QID).predict(typed)
    np.testing.assert_array_equal(ranker.predict(shop), expected)
    val = {"eval_set": [(shop, labels)], "eval_qid": [QID], "categorical_feature": np.array([1])}
    assert "shop" in quick().fit(shop, labels, qid=QID, **val).schema_.categories
    table = shop[["size", "shop"]].to_numpy()
    by_index = quick(warm_start=True).fit(table, labels, qid=QID, categorical_feature=(1,))
    typed = pd.DataFrame(table, columns=["x0", "x1"]).astype({"x1": "category"})
    expected = quick().fit(typed, labels, qid=QID).predict(typed)
    np.testing.assert_array_equal(by_index.predict(table), expected)
    by_index.fit(table, labels, qid=QID, categorical_feature=[1])
    with pytest.raises(ValueError, match=r"that are categories already.*got 'x0'"):
        by_index.fit(table, labels, qid=QID, categorical_feature=[0])
    others = shop.assign(day=np.datetime64("2026-01-01"), vector=[[1.0, 2.0]] * ROWS)
    for name in ("day", "vector"):
        with pytest.raises(ValueError, match=f"categorical_feature must name.*got '{name}'"):
            quick().fit(others, labels, qid=QID, categorical_feature=[name])
    lists = ListDataset(X.astype(np.float32), LABELS, np.array([0, ROWS]), ["q"])
    with pytest.raises(ValueError, match="categorical_feature must be None if X is lists"):
        quick().fit(lists, categorical_feature=[0])


def test_the_scores_of_the_validation_lists():
    val = {"eval_set": [(X, LABELS)], "eval_qid": [QID]}
    ranker = quick().fit(X, LABELS, qid=QID, **val)
    [values] = [one["ndcg@10"] for one in ranker.evals_result_.values()]
    assert values == [pytest.approx(np.nanmean(row)) for row in ranker.history_]
    best = np.nanmax(np.array(ranker.history_), axis=0)
    assert ranker.best_score_ == {"valid_0": {"ndcg@10": pytest.approx(best.mean())}}
    without = quick(validation=0).fit(X, LABELS, qid=QID)
    assert (without.best_score_, without.evals_result_) == ({}, {})


@pytest.mark.usefixtures("short_trials")
def test_importances_come_from_the_choice_of_columns():
    ranker = quick(columns="useful", scorer=None, max_epochs=8).fit(X, LABELS, qid=QID)
    found = ranker.feature_importances_
    assert found.shape == (3,)
    assert found.argmax() == 0
    assert found[1] == ranker.selected_["x1"].cost
    with pytest.raises(AttributeError, match=r"call ltr.estimators.importance\(ranker"):
        _ = quick().fit(X, LABELS, qid=QID).feature_importances_


@pytest.mark.usefixtures("short_trials")
def test_a_metric_of_ones_own_stops_and_scores(tmp_path: Path):
    ranker = quick(metric=best_first, columns="useful", scorer=None, max_epochs=8)
    ranker.fit(X, LABELS, qid=QID)
    assert ranker.best_score_["valid_0"]["best_first"] < 0
    scores = ranker.predict(X).reshape(-1, 5)
    top = np.take_along_axis(LABELS.reshape(-1, 5), scores.argmax(1)[:, None], 1)
    assert ranker.score(X, LABELS, qid=QID) == pytest.approx(top.mean() - 5)
    assert ranker.score(X, LABELS, qid=QID, metric="hit_rate@1") == pytest.approx(top.mean())
    ranker.save(tmp_path)
    with pytest.raises(ValueError, match="is not named in trust"):
        NeuralRanker.load(tmp_path)
    again = NeuralRanker.load(tmp_path, metric="mrr")
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
    with pytest.raises(ValueError, match="must return a finite number for each list, got None"):
        quick(metric=lambda labels, scores, qid: None).fit(X, LABELS, qid=QID)


def test_a_function_may_return_a_number_of_torch_or_numpy():
    def in_torch(labels: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> Any:
        return torch.tensor(best_first(labels, scores, qid))

    def in_numpy(labels: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> Any:
        return np.array(best_first(labels, scores, qid))

    ranker = quick().fit(X, LABELS, qid=QID)
    expected = ranker.score(X, LABELS, qid=QID, metric=best_first)
    for function in (in_torch, in_numpy):
        assert ranker.score(X, LABELS, qid=QID, metric=function) == expected

    def own(labels: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> Any:
        return torch.tensor(torch.nan)

    with pytest.raises(ValueError, match="must return a finite number for each list, got nan from"):
        ranker.score(X, LABELS, qid=QID, metric=own)


class TopLabels(RankingMetric):
    """The sum of the labels at the first positions."""

    top: int = 1

    def per_list(self, lists: Ranked) -> ListValues:
        values = lists.labels[..., : self.top].sum(-1)
        return list_values(values, lists.lengths > 0, lists, "skip")


def test_a_metric_object_stops_and_scores():
    ranker = quick(metric=TopLabels(top=2)).fit(X, LABELS, qid=QID)
    assert ranker.best_score_["valid_0"].keys() == {"TopLabels(top=2)"}
    scores, labels = ranker.predict(X).reshape(-1, 5), LABELS.reshape(-1, 5)
    top = np.take_along_axis(labels, (-scores).argsort(1, kind="stable")[:, :2], 1).sum(1)
    assert ranker.score(X, LABELS, qid=QID) == pytest.approx(top.mean())
    copy: Any = clone(ranker)
    assert copy.metric.top == 2


def test_an_object_of_a_named_metric_is_as_its_name(tmp_path: Path):
    by_name = quick(metric="mrr@3").fit(X, LABELS, qid=QID)
    by_object = quick(metric=MRR(top_k=3)).fit(X, LABELS, qid=QID)
    assert by_object.history_ == by_name.history_
    by_object.save(tmp_path)
    assert NeuralRanker.load(tmp_path).metric.top_k == 3


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (MRR, r"metric must be .* or a metric object, got <class .*: give MRR\(\.\.\.\)"),
        (ARP(), "metric must be higher for better rankings, got ARP"),
        (GMAP(), "metric must be a mean over lists without topics, got GMAP"),
        (AlphaNDCG(), "metric must be a mean over lists without topics, got AlphaNDCG"),
        (MRR(empty="skip"), r"but MRR\(empty='skip'\) leaves some out: give a number for empty"),
    ],
)
def test_metric_objects_that_choose_no_epoch(metric: Any, message: str):
    labels = np.where(QID < 18, 0, LABELS)
    with pytest.raises(ValueError, match=message):
        quick(metric=metric).fit(X, labels, qid=QID)


def test_evaluate_takes_what_stops_a_training():
    scores = X[:, 0] + np.arange(len(X)) / 1000
    result = evaluate(LABELS, scores, QID, ["mrr", TopLabels(top=2), best_first])
    assert [*result.intervals] == ["mrr", "TopLabels(top=2)", "best_first"]
    lists = [np.flatnonzero(qid == QID) for qid in result.qids]
    tops = [LABELS[rows[np.argsort(-scores[rows])[:2]]].sum() for rows in lists]
    firsts = [LABELS[rows[scores[rows].argmax()]] - 5 for rows in lists]
    assert result.per_list["TopLabels(top=2)"].tolist() == tops
    assert result.per_list["best_first"].tolist() == firsts
    assert result[TopLabels(top=2)] == mean_interval(tops)
    assert result[best_first].mean == pytest.approx(np.mean(firsts))
    other = evaluate(LABELS, -scores, QID, [best_first, TopLabels(top=2)], name="other")
    compared = result.compare(other, TopLabels(top=2))
    assert compared.note == "TopLabels(top=2), other - scores"
    assert compared.models[0].mean.mean == pytest.approx(np.mean(tops))


def test_metric_objects_keep_their_options():
    labels = np.where(QID < 18, 0, LABELS)
    named = evaluate(labels, X[:, 0], QID, ["mrr"], empty=1)
    own = evaluate(labels, X[:, 0], QID, [MRR(empty="skip"), ARP()], empty=1)
    assert np.isnan(own.values["MRR(empty='skip')"]).sum() == named.empty > 0
    assert own["ARP()"] == evaluate(labels, X[:, 0], QID, ["arp"])["arp"]
    by_label = evaluate_labels({"y": labels}, X[:, 0], QID, [MRR(empty="skip")])
    assert by_label["y"].intervals == {"MRR(empty='skip')": own[MRR(empty="skip")]}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([3], "metrics must be the name of a metric, a function or a metric object, got 3"),
        ([MRR], r"metrics must be .*: give MRR\(\.\.\.\)"),
        ([GMAP()], "metrics must be a mean over lists without topics, got GMAP"),
        ("mrr", "metrics must be a list, got 'mrr'"),
        (MRR(), r"metrics must be a list, got MRR\(\)"),
        ([lambda y, s, q: 1.0, lambda y, s, q: 2.0], "must have different names, got '<lambda>'"),
        ([lambda y, s, q: None], "metric must return a finite number for each list, got None"),
    ],
)
def test_evaluate_says_what_a_metric_is(metrics: Any, message: str):
    with pytest.raises(ValueError, match=message):
        evaluate(LABELS, X[:, 0], QID, metrics)


def test_a_metric_of_ones_own_is_as_the_named_one():
    def ndcg(labels: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> float:
        import torch

        return float(F.ndcg(torch.tensor(scores)[None], torch.tensor(labels)[None], top_k=10))

    ranker, expected = (quick(metric=x).fit(X, LABELS, qid=QID) for x in (ndcg, "ndcg@10"))
    np.testing.assert_array_equal(ranker.predict(X), expected.predict(X))
    np.testing.assert_allclose(ranker.history_, expected.history_, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "lambdarank"}, r"got 'lambdarank': did you mean LambdaRank\(\)\?$"),
        ({"loss": "rank:pairwise"}, r"got 'rank:pairwise': did you mean RankNet\(\)\?$"),
        ({"loss": "rank_xendcg"}, r"did you mean XENDCG\(\)\?$"),
        ({"loss": LambdaRank}, r"LambdaRank'>: did you mean LambdaRank\(\)\?$"),
        ({"loss": 3}, "loss must be a RankingLoss or None, got 3$"),
        ({"loss": "zzz"}, "loss must be a RankingLoss or None, got 'zzz'$"),
        ({"scorer": "attention"}, r"got 'attention': did you mean AttentionScorer\(\)\?$"),
        ({"transform": "standard"}, r"got 'standard': did you mean Standardize\(\)\?$"),
    ],
)
def test_the_name_of_a_class_names_the_class(given, message):
    with pytest.raises(ValueError, match=message):
        NeuralRanker(**given, verbose=0).fit(X, LABELS, qid=QID)


def test_a_renamed_column_is_named():
    frame = pd.DataFrame(X, columns=["price", "stock", "size"])
    for ranker in quick(), Blend([quick()], verbose=0):
        ranker.fit(frame, LABELS, qid=QID)
        renamed = frame.rename(columns={"price": "prices", "size": "zzz"})
        message = r"got none called price \(did you mean prices\?\), size$"
        with pytest.raises(ValueError, match=message):
            ranker.predict(renamed)


def test_a_folder_that_does_not_exist_is_said_to_be_missing(tmp_path: Path):
    for kind in NeuralRanker, Blend, RankingModel:
        with pytest.raises(ValueError, match=r"got .*/none, which does not exist$"):
            kind.load(tmp_path / "none")
        with pytest.raises(ValueError, match=r"got one without .*/config\.json$"):
            kind.load(tmp_path)

"""The choice of columns by `NeuralRanker`, and what its effort sets."""

import json
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ltr.config.folder import with_digest
from ltr.datasets import (
    PiecewiseLinearBins,
    Standardize,
    TableTransform,
    read_table,
)
from ltr.estimators import Blend, NeuralRanker, parameters, screening
from ltr.estimators.columns import choose_columns
from ltr.estimators.parameters import LARGE, default_transform, kinds, max_levels, settings
from ltr.estimators.scoring import values_of_dataset, values_of_lists
from ltr.export.card import Difference
from ltr.losses import SoftmaxLoss
from ltr.metrics import MRR
from ltr.models import CrossScorer, LinearScorer, MLPScorer, RankingModel, Scorer

DOCUMENTS = 20


def draw(lists: int = 240, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A linear column, two that only matter as a product, a category, and what says nothing."""
    rng = np.random.default_rng(seed)
    rows = lists * DOCUMENTS
    X = pd.DataFrame({f"noise{i}": rng.normal(size=rows) for i in range(4)})
    X["linear"], X["left"], X["right"] = rng.normal(size=(3, rows))
    X["constant"] = 3.0
    X["shop"] = pd.Categorical(rng.choice(["a", "b", "c", "d"], rows))
    X["noise shop"] = pd.Categorical(rng.choice(["a", "b", "c", "d"], rows))
    target = X["linear"] + 1.5 * X["left"] * X["right"] + 1.5 * (X["shop"] == "b")
    y = (target + 0.3 * rng.normal(size=rows) > 1.5).astype(int)
    return X, y.to_numpy(), np.repeat(np.arange(lists), DOCUMENTS)


def quick(**parameters: Any) -> NeuralRanker:
    small = {"members": 1, "max_epochs": 3, "verbose": 0, "random_state": 0, "columns": "useful"}
    return NeuralRanker(**{**small, "scorer": MLPScorer(hidden=(32,)), **parameters})


@pytest.fixture(scope="module")
def fitted() -> NeuralRanker:
    X, y, qid = draw()
    return quick(max_epochs=20).fit(X, y, qid=qid)


def kept(ranker: NeuralRanker) -> set[str]:
    return {name for name, column in ranker.selected_.items() if column.kept}


def test_what_says_nothing_is_dropped_and_what_matters_together_is_kept(fitted: NeuralRanker):
    assert kept(fitted) >= {"linear", "left", "right", "shop"}
    assert len(kept(fitted) - {"linear", "left", "right", "shop"}) <= 1  # by chance
    assert not fitted.selected_["constant"].kept
    assert kept(fitted) == {*fitted.schema_.features, *fitted.schema_.categories}


def test_each_column_has_its_cost_and_a_reason(fitted: NeuralRanker):
    assert [*fitted.selected_] == [*draw()[0]]
    useful, constant = fitted.selected_["left"], fitted.selected_["constant"]
    assert useful.cost is not None
    assert useful.error is not None
    assert useful.cost > 2 * useful.error > 0
    assert useful.reason.startswith(f"kept: shuffling it costs {useful.cost:.4f} +- ")
    assert (constant.cost, constant.error) == (0, 0)
    assert constant.reason.startswith("dropped: shuffled with ")


def test_columns_that_are_dropped_do_not_change_a_score(fitted: NeuralRanker):
    X, y, qid = draw(seed=1)
    scores = fitted.predict(X)
    dropped = [name for name in X if name not in kept(fitted) and name != "noise shop"]
    changed = X.assign(**dict.fromkeys(dropped, 7.0))
    assert np.array_equal(fitted.predict(changed), scores)
    assert not np.array_equal(fitted.predict(X.assign(left=0.0)), scores)
    assert fitted.score(X, y, qid=qid) > 0.8


def test_the_choice_is_saved_loaded_and_exported(
    fitted: NeuralRanker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    X, _, _ = draw(seed=1)
    fitted.save(tmp_path)
    again = NeuralRanker.load(tmp_path)
    assert again.selected_ == fitted.selected_
    assert again.settings_ == fitted.settings_
    assert np.array_equal(again.predict(X), fitted.predict(X))
    # the program itself, which takes a second to make, does not tell the choice
    monkeypatch.setattr("ltr.export.write._checked", lambda *_: (b"", Difference(0, 1, 0)))
    fitted.export(tmp_path / "export", to="torch")
    schema = json.loads((tmp_path / "export" / "config.json").read_text())["schema"]
    assert {*schema["features"], *schema["categories"]} == kept(fitted)


def test_a_damaged_choice_is_refused(fitted: NeuralRanker, tmp_path: Any):
    fitted.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["selected"]["left"] = {"kept": True}
    (tmp_path / "config.json").write_text(json.dumps(with_digest(config)))
    with pytest.raises(ValueError, match=r"config\.json does not describe a model: TypeError"):
        NeuralRanker.load(tmp_path)


@pytest.mark.usefixtures("short_trials")
def test_a_warm_start_keeps_the_choice():
    X, y, qid = draw(60)
    ranker = quick(warm_start=True).fit(X, y, qid=qid)
    before = ranker.selected_
    ranker.fit(X, y, qid=qid).partial_fit(X, y, qid=qid)
    assert ranker.selected_ == before
    assert kept(ranker) == {*ranker.schema_.features, *ranker.schema_.categories}


@pytest.mark.usefixtures("short_trials")
def test_a_column_alone_is_kept():
    X, y, qid = draw(40)
    ranker = quick().fit(X[["noise0"]], y, qid=qid)
    assert ranker.selected_["noise0"].reason == "kept: it is the only column"


@pytest.mark.usefixtures("short_trials")
def test_columns_that_say_nothing_at_all_are_all_kept_with_a_warning():
    X, y, qid = draw(60)
    constant = pd.DataFrame({"a": np.zeros(len(X)), "b": np.ones(len(X))})
    with pytest.warns(UserWarning, match="none of them alone changes ndcg@10.*shuffling all 2 is"):
        ranker = quick().fit(constant, y, qid=qid)
    assert kept(ranker) == {"a", "b"}


def test_without_validation_lists_all_are_kept():
    X, y, qid = draw(20)
    ranker = quick(validation=0).fit(X, y, qid=qid)
    assert kept(ranker) == {*X}
    assert "no validation lists" in ranker.selected_["left"].reason


def test_with_one_validation_list_all_are_kept():
    X, y, qid = draw(20)
    ranker = quick().fit(
        X, y, qid=qid, eval_set=[(X[qid == 0], y[qid == 0])], eval_qid=[qid[qid == 0]]
    )
    assert kept(ranker) == {*X}
    assert "one validation list" in ranker.selected_["left"].reason


@pytest.mark.usefixtures("short_trials")
def test_columns_of_an_array_have_the_names_of_their_positions():
    X, y, qid = draw(100)
    numbers = X.select_dtypes("number").to_numpy()
    ranker = quick().fit(numbers, y, qid=qid)
    assert [*ranker.selected_] == [f"x{i}" for i in range(8)]
    assert not ranker.selected_["x7"].kept  # the constant
    assert ranker.predict(numbers).shape == (len(X),)


@pytest.mark.usefixtures("short_trials")
@pytest.mark.parametrize(
    ("metric", "title"),
    [
        ("mrr@5", "mrr@5"),
        (MRR(top_k=5), "MRR(top_k=5"),
        (lambda labels, scores, qid: float(labels[scores.argmax()]), "<lambda>"),
    ],
)
def test_columns_are_chosen_by_each_kind_of_metric(metric: Any, title: str):
    X, y, qid = draw(60)
    ranker = quick(metric=metric).fit(X, y, qid=qid)
    assert any(title in column.reason for column in ranker.selected_.values())


@pytest.mark.usefixtures("short_trials")
def test_an_embedding_is_one_column(fitted: NeuralRanker):
    import pyarrow as pa

    X, y, qid = draw(100)
    pair = pa.FixedSizeListArray.from_arrays(X[["left", "right"]].to_numpy().ravel(), 2)
    columns = {"noise": X["noise0"].to_numpy(), "pair": pair, "linear": X["linear"].to_numpy()}
    ranker = quick().fit(pa.table(columns), y, qid=qid)
    assert {"pair", "linear"} <= kept(ranker)
    assert ranker.selected_["pair"].cost > 0


def test_a_column_costs_what_the_metric_loses_if_it_is_shuffled():
    X, y, qid = draw(40)
    ranker = quick(columns="all").fit(X, y, qid=qid)
    data = read_table(X.assign(qid=qid, y=y), ranker.schema_)
    columns = choose_columns(ranker.model_, data, ranker.schema_, "ndcg@10", "cpu", seed=3)
    assert [*columns] == [*X]
    whole, rng = values_of_lists(ranker.predict(X), y, qid), np.random.default_rng(3)
    for name, column in columns.items():
        shuffled = X.assign(**{name: X[name].array[rng.permutation(len(X))]})
        lost = whole - values_of_lists(ranker.predict(shuffled), y, qid)
        assert column.cost == pytest.approx(lost.mean(), abs=1e-6)
        assert column.error == pytest.approx(lost.std(ddof=1) / len(lost) ** 0.5, abs=1e-6)


@pytest.mark.usefixtures("short_trials")
def test_a_blend_takes_a_ranker_with_fewer_columns():
    X, y, qid = draw(60)
    blend = Blend([quick(), quick(columns="all")], verbose=0).fit(X, y, qid=qid)
    assert len(blend.rankers_[0].schema_.columns) < len(blend.rankers_[1].schema_.columns)
    assert np.isfinite(blend.predict(X)).all()


def test_a_part_with_a_width_allows_no_choice():
    X, y, qid = draw(20)
    parts = {"scorer": LinearScorer(), "transform": TableTransform(num_features=8)}
    with pytest.raises(ValueError, match=r"columns must be 'all' if.*got 'useful'"):
        quick(**parts).fit(X, y, qid=qid)
    ranker = quick(columns=None, **parts).fit(X, y, qid=qid)
    assert kept(ranker) == {*X}


class Sum(Scorer):
    """The sum of the features, with one weight, so that there is something to train."""

    def forward(self, features: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return features.sum(-1)


def test_weak_columns_that_matter_together_are_kept():
    rng = np.random.default_rng(0)
    lists, weak = 60, 40
    x = rng.normal(size=(lists * 10, weak + 1)).astype(np.float32)
    y = (x[:, :weak].sum(1) > 5).astype(int)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(weak + 1)])
    ranker = quick(columns="all", transform=TableTransform(Standardize())).fit(
        frame, y, qid=np.arange(len(x)) // 10
    )
    data = read_table(frame.assign(qid=np.arange(len(x)) // 10, y=y), ranker.schema_)
    x[:, weak] = 0  # what the model does not look at
    data.features[:, weak] = 0
    model = RankingModel(Sum(), ranker.transform_)
    found = choose_columns(model, data, ranker.schema_, "ndcg@10", "cpu", seed=0)
    alone = [one for one in found.values() if one.cost <= 2 * one.error]
    assert len(alone) > 5
    assert sum(not one.kept for one in found.values()) < len(alone) / 2
    assert not found[f"x{weak}"].kept


def test_few_useless_columns_stay_whatever_the_shuffle():
    rng, useful = np.random.default_rng(0), [f"x{i}" for i in range(5)]
    x = rng.normal(size=(8000, 40)).astype(np.float32)
    y = (x[:, :5].sum(1) + rng.normal(size=8000) > 3).astype(int)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(40)])
    qid = np.arange(8000) // DOCUMENTS
    transform = TableTransform(Standardize())
    ranker = quick(columns="all", max_epochs=1, transform=transform).fit(frame, y, qid=qid)
    data = read_table(frame.assign(qid=qid, y=y), ranker.schema_)
    # a model that has overfitted: the useless columns have weights too
    scorer, weights = LinearScorer(num_features=40), np.r_[np.ones(5), 0.3 * rng.normal(size=35)]
    with torch.no_grad():
        for one in scorer.parameters():
            one.copy_(torch.from_numpy(weights).view_as(one) if one.numel() == 40 else 0 * one)
    for seed in range(6):
        model = RankingModel(scorer, ranker.transform_)
        found = choose_columns(model, data, ranker.schema_, "ndcg@10", "cpu", seed)
        names = [name for name, column in found.items() if column.kept]
        assert {*names} >= {*useful}
        assert len(names) <= 12


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"effort": "quick"}, "effort must be one of 'fast', 'default', 'best', got 'quick'"),
        ({"effort": None}, "effort must be one of .*None"),
        ({"columns": "some"}, "columns must be one of 'all', 'useful', got 'some'"),
        ({"schedule": "cosine"}, "schedule must be one of 'constant', 'cycle', got 'cosine'"),
    ],
)
def test_names_of_parameters_are_checked(parameters: dict[str, Any], match: str):
    X, y, qid = draw(20)
    with pytest.raises(ValueError, match=match):
        quick(**parameters).fit(X, y, qid=qid)


def test_an_effort_sets_by_size_what_is_not_given():
    small, large = (1000, 50), (LARGE, 1500)
    assert settings(NeuralRanker(), *small).resolved() == {
        "loss": "XENDCG",
        "members": 5,
        "learning_rate": 3e-3,
        "schedule": "constant",
        "max_epochs": 100,
        "patience": 40,
        "columns": "all",
        "kind": "bins",
        "relative": False,
    }
    assert settings(NeuralRanker(), *large).resolved() == {
        "loss": "XENDCG",
        "members": 5,
        "learning_rate": 3e-3,
        "schedule": "cycle",
        "max_epochs": 15,
        "patience": 5,
        "columns": "useful",
        "kind": "bins",
        "relative": False,
    }
    assert settings(NeuralRanker(), *large, "periodic").resolved() == {
        "loss": "XENDCG",
        "members": 3,
        "learning_rate": 6e-3,
        "schedule": "cycle",
        "max_epochs": 13,
        "patience": 5,
        "columns": "useful",
        "kind": "periodic",
        "relative": False,
    }
    fast = settings(NeuralRanker(effort="fast"), *small)
    assert fast.resolved() == settings(NeuralRanker(members=1), *small).resolved()
    longer = settings(NeuralRanker(effort="fast"), *large)
    assert (longer.members, longer.schedule, longer.columns) == (2, "cycle", "useful")
    assert (longer.max_epochs, longer.patience) == (13, 5)
    longest = settings(NeuralRanker(effort="fast"), 1_000_000, 40_000)
    assert (longest.members, longest.max_epochs, longest.patience) == (2, 5, 3)
    smooth = settings(NeuralRanker(effort="fast"), 1_000_000, 40_000, "periodic")
    assert (smooth.members, smooth.max_epochs) == (1, 5)
    best = settings(NeuralRanker(effort="best"), *large)
    assert best.members == 10
    assert isinstance(best.scorer, CrossScorer)
    assert settings(NeuralRanker(effort="best"), *large, "periodic").members == 6


def test_both_kinds_of_networks_are_tried_on_large_tables():
    assert kinds(NeuralRanker(), LARGE - 1) == ("bins",)
    assert kinds(NeuralRanker(), LARGE) == ("bins", "periodic")
    own: list[dict[str, Any]] = [{"scorer": MLPScorer()}, {"transform": TableTransform()}]
    for given in [*own, {"monotone": {"x0": 1}}]:
        assert kinds(NeuralRanker(**given), LARGE) == ("bins",)


@pytest.mark.usefixtures("short_trials")
@pytest.mark.parametrize(("bins", "periodic", "kind"), [(0.1, 0.2, "periodic"), (0.2, 0.1, "bins")])
def test_the_kind_that_ranks_the_validation_lists_better_is_trained(
    monkeypatch, bins: float, periodic: float, kind: str
):
    """The trials are measured in the order of the kinds; here they have given values."""
    X, y, qid = draw(60)
    means = iter((bins, periodic))

    def values(*given: Any, **more: Any) -> np.ndarray:
        return np.full_like(values_of_dataset(*given, **more), next(means))

    monkeypatch.setattr(parameters, "LARGE", 500)
    monkeypatch.setattr(screening, "values_of_dataset", values)
    ranker = NeuralRanker(members=1, max_epochs=2, columns="all", random_state=0, verbose=0)
    ranker.fit(X, y, qid=qid)
    for _ in range(2):
        assert ranker.settings_["kind"] == kind
        assert ranker.settings_["learning_rate"] == (6e-3 if kind == "periodic" else 3e-3)
        has_weights = any(True for _ in ranker.transform_.parameters())
        assert has_weights == (kind == "periodic")
        ranker.partial_fit(X, y, qid=qid)  # continues with the same kind


@pytest.mark.slow  # 45,000 rows, and several networks
def test_smooth_functions_of_many_columns_want_periodic_embeddings():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 60)).astype(np.float32)
    waves = np.sin(3 * X[:, :6]).sum(1)
    target = X[:, :20] @ rng.normal(size=20) * 0.4 + waves + X[:, 1] * X[:, 2]
    y = (target + rng.normal(size=len(X)) > 2).astype(float)
    qid = np.arange(len(X)) // 10
    train = qid < 4500
    found = {}
    for kind, transform in (("periodic", None), ("bins", default_transform("bins", False))):
        one = NeuralRanker(transform=transform, random_state=0, verbose=0)
        one.fit(X[train], y[train], qid=qid[train])
        if transform is None:
            assert one.settings_["kind"] == kind
        found[kind] = one.score(X[~train], y[~train], qid=qid[~train])
    assert found["periodic"] > found["bins"], found


@pytest.mark.parametrize(
    ("lists", "epochs"), [(64, 100), (640, 30), (6400, 15), (12_800, 10), (64_000, 5)]
)
def test_a_cycle_has_enough_steps_and_not_too_many(lists: int, epochs: int):
    """At least 300 steps of 64 lists or 100 epochs; near 2,000 steps, in 5 to 15 epochs."""
    found = settings(NeuralRanker(schedule="cycle"), 10 * lists, lists)
    assert found.max_epochs == epochs
    assert found.patience == max(3, ceil(epochs / 3), ceil(40 / ceil(lists / 64)))


def test_large_tables_have_codes_for_more_levels():
    assert max_levels(NeuralRanker(), LARGE - 1) == 256
    assert max_levels(NeuralRanker(), LARGE) == 1024
    assert max_levels(NeuralRanker(max_levels=7), LARGE) == 7


@pytest.mark.usefixtures("short_trials")
def test_a_column_of_dates_that_says_nothing_is_dropped():
    X, y, qid = draw(120)
    X["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(len(X)) % 7, "D")
    X["useful day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.round(9 * X["linear"]), "D")
    X = X.drop(columns="linear")
    ranker = quick(max_epochs=10).fit(X, y, qid=qid)
    assert not ranker.selected_["day"].kept
    assert {*ranker.schema_.dates} == {"useful day"} <= {*ranker.schema_.features}
    scores = ranker.predict(X)
    assert np.array_equal(scores, ranker.predict(X.assign(day=X["day"].to_numpy()[::-1])))


def test_every_argument_wins_over_the_effort():
    given: dict[str, Any] = {
        "members": 3,
        "learning_rate": 0.02,
        "schedule": "constant",
        "max_epochs": 7,
        "patience": 2,
        "columns": "all",
    }
    scorer, transform = MLPScorer(hidden=(4,)), TableTransform(PiecewiseLinearBins(3))
    for effort in ("fast", "default", "best"):
        ranker = NeuralRanker(effort=effort, scorer=scorer, transform=transform, **given)
        found = settings(ranker, 1_000_000, 40_000)
        assert found.resolved() == {"loss": "XENDCG", **given, "kind": None, "relative": False}
        assert found.scorer is scorer
        assert found.transform is transform


def test_a_cycle_ends_early():
    """Where labels say nothing, no later epoch is better."""
    X, y, qid = draw(30)
    y = np.random.default_rng(1).permutation(y)
    options: dict[str, Any] = {"members": 2, "batch_size": 4, "random_state": 0, "verbose": 0}
    options["scorer"] = MLPScorer(hidden=(16,))
    ranker = NeuralRanker(schedule="cycle", max_epochs=30, **options).fit(X, y, qid=qid)
    assert ranker.settings_["patience"] == 10
    assert ranker.n_iter_ == max(ranker.best_iterations_) + 10 < 30
    whole = NeuralRanker(schedule="cycle", max_epochs=30, patience=30, **options)
    whole.fit(X, y, qid=qid)
    assert whole.n_iter_ == 30
    stopped = np.array(ranker.history_)
    np.testing.assert_array_equal(stopped[:10], whole.history_[:10])


def test_fit_shows_what_it_was_set_to():
    X, y, qid = draw(20)
    ranker = NeuralRanker(effort="fast", max_epochs=2, random_state=0, verbose=0)
    assert ranker.fit(X, y, qid=qid).settings_ == {
        "loss": "XENDCG",
        "members": 1,
        "learning_rate": 3e-3,
        "schedule": "constant",
        "max_epochs": 2,
        "patience": 40,
        "columns": "all",
        "kind": "bins",
        "relative": False,
    }
    assert ranker.get_params()["members"] is None
    assert len(ranker.scorer_.copies) == 1
    ranker.set_params(loss=SoftmaxLoss()).fit(X, y, qid=qid)
    assert ranker.settings_["loss"] == "SoftmaxLoss"


def test_a_cycle_rises_and_descends(monkeypatch: pytest.MonkeyPatch):
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def noted(self: Any, *given: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    X, y, qid = draw(20)
    quick(columns="all", schedule="cycle", max_epochs=10, batch_size=4, validation=0).fit(
        X, y, qid=qid
    )
    assert len(rates) == 50
    top = int(np.argmax(rates))
    assert top in (4, 5)
    assert rates[top] == pytest.approx(3e-3, rel=0.02)
    assert rates == sorted(rates[: top + 1]) + sorted(rates[top + 1 :], reverse=True)
    assert rates[-1] < 1e-5
    rates.clear()
    quick(columns="all", max_epochs=2).fit(X, y, qid=qid)
    assert {*rates} == {3e-3}

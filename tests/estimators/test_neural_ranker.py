"""What `NeuralRanker` takes, what it gives, and what stays the same."""

import io
import os
import re
import signal
import sys
import threading
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import NotFittedError

from ltr.datasets import (
    ListDataset,
    PiecewiseLinearBins,
    RankPerList,
    Standardize,
    TableTransform,
)
from ltr.datasets.splits import query_shares
from ltr.estimators import NeuralRanker
from ltr.losses import SoftmaxLoss, SoftNDCG
from ltr.metrics import MRR
from ltr.metrics.functional import ndcg
from ltr.models import LinearScorer, MLPScorer, RankingModel, Scorer
from ltr.operators import SigmoidRank
from ltr.reports import evaluate
from ltr.training.seeds import own_random_numbers


def frame(rows: int = 160, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table with missing values and categories, its labels, and queries that are not sorted."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(3, rows)),
            "shop": pd.Categorical(rng.choice(["a", "b", "c"], rows)),
            "new": rng.random(rows) < 0.5,
        }
    )
    y = (table["price"] + (table["shop"] == "b") > 0.5).to_numpy().astype(int)
    return table, y, rng.integers(0, rows // 8, rows)


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 2, "max_epochs": 4, "verbose": 0, "random_state": 0}
    small |= {"batch_size": 4, "scorer": MLPScorer(hidden=(16,))}
    return NeuralRanker(**{**small, **parameters})


@pytest.fixture(scope="module")
def fitted() -> NeuralRanker:
    X, y, qid = frame()
    return quick(max_epochs=10).fit(X, y, qid=qid)


def test_it_learns(fitted: NeuralRanker):
    X, y, qid = frame(seed=1)
    assert fitted.score(X, y, qid=qid) > 0.85
    assert fitted.score(X, y, qid=qid) > NeuralRanker.score(
        quick(max_epochs=1, learning_rate=1e-9).fit(X, y, qid=qid), X, y, qid=qid
    )


def test_the_score_is_ndcg_at_10(fitted: NeuralRanker):
    X, y, qid = frame(seed=1)
    y = np.where(qid == qid[0], 0, y)  # a list without a relevant row counts 0
    scores = torch.from_numpy(fitted.predict(X))
    each = [
        ndcg(scores[torch.from_numpy(qid == q)], torch.from_numpy(y[qid == q]), top_k=10)
        for q in np.unique(qid)
    ]
    assert fitted.score(X, y, qid=qid) == pytest.approx(float(torch.stack(each).mean()), abs=1e-6)


@pytest.mark.parametrize(
    "convert", [pl.from_pandas, lambda x: pa.Table.from_pandas(x, preserve_index=False)]
)
def test_any_table(fitted: NeuralRanker, convert):
    X, y, qid = frame()
    table = convert(X)
    expected = fitted.predict(X)
    assert np.array_equal(fitted.predict(table), expected)
    again = quick(max_epochs=10).fit(table, y, qid=qid)
    assert np.array_equal(again.predict(X), expected)
    assert again.feature_names_in_.tolist() == ["price", "stock", "shop", "new"]


def test_arrays():
    X, y, qid = frame()
    values = X[["price", "stock"]].to_numpy()
    ranker = quick().fit(values, y, qid=qid)
    assert ranker.n_features_in_ == 2
    assert not hasattr(ranker, "feature_names_in_")
    assert np.array_equal(ranker.predict(values), ranker.predict(values.tolist()))
    named = quick().fit(X[["price", "stock"]], y, qid=qid)
    assert np.array_equal(ranker.predict(values), named.predict(X[["price", "stock"]]))


def test_groups_are_sorted_queries():
    X, y, qid = frame()
    order = np.argsort(qid, kind="stable")
    sizes = np.bincount(qid)
    X, y, qid = X.iloc[order], y[order], qid[order]
    both = [
        quick(validation=0).fit(X, y, qid=qid),
        quick(validation=0).fit(X, y, group=sizes),
    ]
    assert np.array_equal(both[0].predict(X), both[1].predict(X))
    assert both[0].score(X, y, qid=qid) == both[1].score(X, y, group=sizes)


def test_the_order_of_the_rows_does_not_matter_to_prediction(fitted: NeuralRanker):
    X, _, _ = frame(seed=2)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(
        fitted.predict(X.iloc[order]), fitted.predict(X)[order], rtol=0, atol=1e-5
    )


def test_ranks_are_those_of_the_scores(fitted: NeuralRanker):
    X, _, qid = frame(seed=1)
    expected = pd.Series(fitted.predict(X)).groupby(qid).rank(method="first", ascending=False)
    assert np.array_equal(fitted.rank(X, qid=qid), expected)
    assert np.array_equal(fitted.rank(X, qid=[f"query {q}" for q in qid]), expected)


def test_queries_of_any_type():
    X, y, qid = frame()
    expected = quick(validation=0).fit(X, y, qid=qid).predict(X)
    for names in (qid.astype(str), pd.Series(qid), pd.Categorical(qid), [f"q{i}" for i in qid]):
        ranker = quick(validation=0).fit(X, y, qid=names)
        assert np.array_equal(ranker.predict(X), expected)


def test_the_same_twice_and_nothing_else_changes():
    X, y, qid = frame()
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    handler = signal.getsignal(signal.SIGINT)
    one, two = (quick().fit(X, y, qid=qid) for _ in range(2))
    assert np.array_equal(one.predict(X), two.predict(X))
    assert one.history_ == two.history_
    other = quick(random_state=1).fit(X, y, qid=qid)
    assert not np.array_equal(one.predict(X), other.predict(X))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_member_of_several_is_as_it_would_be_alone_up_to_the_seed():
    X, y, qid = frame()
    ranker = quick(members=3, max_epochs=12, patience=2, learning_rate=0.02)
    ranker.fit(X, y, qid=qid, eval_set=[frame(seed=3)[:2]], eval_qid=[frame(seed=3)[2]])
    history = np.array(ranker.history_)
    assert history.shape == (ranker.n_iter_, 3)
    best = np.nanargmax(history, axis=0) + 1
    assert ranker.best_iterations_ == best.tolist()
    # each stops for itself, and has stopped for good
    for member, epoch in enumerate(best):
        trained = int((~np.isnan(history[:, member])).sum())
        assert trained == min(epoch + 2, 12)
        assert not np.isnan(history[:trained, member]).any()
    # and has the weights of its best epoch: the history is found again
    Xv, yv, qv = frame(seed=3)
    for member, epoch in enumerate(best):
        alone = quick(members=3).fit(X, y, qid=qid)
        own = ranker.scorer_.copies[member]
        alone.model_ = RankingModel(own, ranker.transform_, ranker.schema_)
        assert alone.score(Xv, yv, qid=qv) == pytest.approx(history[epoch - 1, member], abs=1e-6)


def test_the_scales_give_each_member_the_same_spread():
    X, y, qid = frame()
    ranker = quick(members=3, validation=0).fit(X, y, qid=qid)
    spreads = []
    for scale, member in zip(ranker.scorer_.scales, ranker.scorer_.copies, strict=True):
        alone = quick().fit(X, y, qid=qid)
        alone.model_ = RankingModel(member, ranker.transform_, ranker.schema_)
        scores = pd.Series(alone.predict(X) * float(scale))
        spreads.append(scores.groupby(qid).std(ddof=0).mean())
    np.testing.assert_allclose(spreads, 1, rtol=1e-4)


def test_a_share_of_the_queries_is_held_out_by_their_hash(capsys):
    X, y, qid = frame()
    ranker = quick(verbose=1).fit(X, y, qid=qid)
    queries = np.unique(qid)
    assert ranker.validation_queries_ == (query_shares([str(q) for q in queries]) < 0.2).sum()
    [line] = capsys.readouterr().err.splitlines()
    assert (
        f"{ranker.validation_queries_} of {len(queries)} queries held out for it, by a hash" in line
    )
    assert "validation ndcg@10 0." in line
    assert "epoch 4 of at most 4" in line


def test_without_a_validation_list_all_epochs_are_trained(capsys):
    X, y, qid = frame(40)
    ranker = quick(max_epochs=3, verbose=1).fit(X, y, qid=qid % 2)
    assert (ranker.n_iter_, ranker.validation_queries_, ranker.history_) == (3, 0, [])
    assert ranker.best_iterations_ == [3, 3]
    assert "no query held out" in capsys.readouterr().err


def test_weights_of_rows_and_of_lists():
    X, y, qid = frame()
    queries = pd.unique(qid)
    plain = quick(validation=0).fit(X, y, qid=qid).predict(X)
    same = [np.ones(len(X)), np.full(len(X), 3.0), np.ones(len(queries)), 2.0]
    for weights in same:
        ranker = quick(validation=0).fit(X, y, qid=qid, sample_weight=weights)
        np.testing.assert_allclose(ranker.predict(X), plain, rtol=0, atol=1e-4)
    # lists of weight 0 are as if they were not there: here as lists without a relevant row
    chosen = queries[: len(queries) // 2]
    weights = np.isin(queries, chosen).astype(float)
    batches = {"batch_size": 1000, "loss": SoftmaxLoss(), "scorer": LinearScorer()}
    one = quick(validation=0, transform=TableTransform(), **batches)
    one.fit(X, y, qid=qid, sample_weight=weights)
    two = quick(validation=0, transform=TableTransform(), **batches)
    two.fit(X, np.where(np.isin(qid, chosen), y, 0), qid=qid)
    difference = one.predict(X) - two.predict(X)  # the constant of a linear scorer is free
    np.testing.assert_allclose(difference, difference.mean(), rtol=0, atol=1e-3)
    # and of rows, as the loss has them
    half = np.where(X["price"] > 0, 0.1, 1.0)
    other = quick(validation=0).fit(X, y, qid=qid, sample_weight=half)
    assert not np.allclose(other.predict(X), plain, atol=1e-3)


def test_parts_of_ones_own():
    X, y, qid = frame()
    ranker = quick(
        scorer=MLPScorer(hidden=(8,), norm=True),
        loss=SoftNDCG(top_k=3, mean="arithmetic"),
        transform=TableTransform(Standardize()),
    ).fit(X, y, qid=qid)
    assert ranker.scorer_.copies[0].hidden == (8,)  # pyright: ignore
    assert ranker.predict(X).shape == (160,)


class MeanOfList(Scorer):
    """A score that depends on the list."""

    def build(self, num_features):
        self.layer = torch.nn.Linear(num_features, 1)

    def score(self, features, mask):
        real = torch.ones(features.shape[:-1], dtype=torch.bool) if mask is None else mask
        mean = (features * real.unsqueeze(-1)).sum(-2, keepdim=True) / real.sum(-1)[..., None, None]
        return self.layer(features - mean.nan_to_num()).squeeze(-1)


@pytest.mark.parametrize(
    "parts",
    [{"scorer": MeanOfList()}, {"transform": TableTransform(RankPerList())}],
    ids=["scorer", "transform"],
)
def test_what_looks_at_the_list_needs_it(parts):
    X, y, qid = frame()
    ranker = quick(**parts).fit(X, y, qid=qid)
    scores = ranker.predict(X, qid=qid)
    with pytest.raises(ValueError, match="qid or group must"):
        ranker.predict(X)
    for query in np.unique(qid)[:3]:  # a list gets the scores that it gets alone
        here = qid == query
        np.testing.assert_allclose(
            ranker.predict(X[here], group=[here.sum()]), scores[here], rtol=0, atol=1e-5
        )


def test_validation_of_what_looks_at_the_list():
    X, y, qid = frame()
    ranker = quick(scorer=MeanOfList(), members=1, batch_size=64)
    ranker.fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid])
    best = max(row[0] for row in ranker.history_)
    assert best == pytest.approx(ranker.score(X, y, qid=qid), abs=1e-6)


def test_warm_start_and_partial_fit():
    X, y, qid = frame()
    Xn, yn, qn = frame(seed=4)
    ranker = quick(max_epochs=2, warm_start=True).fit(X, y, qid=qid)
    median = ranker.transform_.state_dict()["median"]
    first = ranker.predict(X)
    ranker.fit(Xn, yn, qid=qn)
    assert torch.equal(ranker.transform_.state_dict()["median"], median)
    longer = quick(max_epochs=2).fit(Xn, yn, qid=qn)
    assert not torch.equal(longer.transform_.state_dict()["median"], median)
    assert not np.array_equal(ranker.predict(X), first)
    with pytest.raises(ValueError, match=r"X .* price$"):
        ranker.fit(X.rename(columns={"price": "cost"}), y, qid=qid)

    slow = quick()
    for seed in range(12):
        Xs, ys, qs = frame(seed=seed)
        slow.partial_fit(Xs, ys, qid=qs)
        assert slow.n_iter_ == 1
    assert slow.score(Xn, yn, qid=qn) > quick().partial_fit(X, y, qid=qid).score(Xn, yn, qid=qn)


def test_unused_columns_are_named():
    X, y, qid = frame()
    waited = X.assign(wait=pd.Timedelta("1h"))
    with pytest.warns(UserWarning, match="not used: wait"):
        ranker = quick().fit(waited, y, qid=qid)
    assert np.array_equal(ranker.predict(waited), quick().fit(X, y, qid=qid).predict(X))


def test_a_column_may_be_called_as_an_argument():
    X, y, qid = frame()
    X = X.rename(columns={"price": "qid", "stock": "y", "new": "sample_weight"})
    ranker = quick().fit(X, y, qid=qid, sample_weight=np.ones(len(X)))
    assert [*ranker.schema_.features, *ranker.schema_.categories] == [
        "qid",
        "y",
        "shop",
        "sample_weight",
    ]
    assert ranker.predict(X).shape == (160,)


def test_not_fitted():
    X, y, qid = frame()
    for call in (lambda: quick().predict(X), lambda: quick().score(X, y, qid=qid)):
        with pytest.raises(NotFittedError):
            call()


def test_predictions_in_threads(fitted: NeuralRanker):
    X, _, _ = frame(2000, seed=5)
    expected, found = fitted.predict(X), []
    threads = [threading.Thread(target=lambda: found.append(fitted.predict(X))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert all(np.array_equal(one, expected) for one in found)


def test_control_c_stops_the_training_and_nothing_else():
    X, y, qid = frame()

    class Interrupt(LinearScorer):
        def score(self, features, mask):
            raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        quick(scorer=Interrupt()).fit(X, y, qid=qid)
    assert signal.getsignal(signal.SIGINT) is handler


def test_nothing_is_written(tmp_path, monkeypatch):
    X, y, qid = frame()
    monkeypatch.chdir(tmp_path)
    quick().fit(X, y, qid=qid)
    assert os.listdir(tmp_path) == []


def test_callbacks_are_called_after_each_epoch_and_may_stop():
    X, y, qid = frame()
    seen, calls = [], []

    def stop(history):
        seen.append(history)
        return np.bool_(len(history) == 3)

    ranker = quick(max_epochs=9, members=3)
    ranker.fit(X, y, qid=qid, callbacks=[lambda history: calls.append(len(history)), stop])
    assert calls == [1, 2, 3]
    assert seen == [ranker.history_[:n] for n in (1, 2, 3)]
    assert ranker.n_iter_ == 3
    # as if three epochs were the most there can be
    whole = quick(max_epochs=3, members=3).fit(X, y, qid=qid)
    assert np.array_equal(ranker.predict(X), whole.predict(X))
    assert ranker.best_iterations_ == whole.best_iterations_


def test_callbacks_without_validation_and_with_an_error():
    X, y, qid = frame()
    ranker, before = quick(validation=0), []
    ranker.fit(X, y, qid=qid, callbacks=[before.append])
    assert np.isnan(before[-1]).all()
    assert np.shape(before[-1]) == (4, 2)
    scores = ranker.predict(X)

    def fail(history):
        history.clear()
        raise RuntimeError("pruned")

    with pytest.raises(RuntimeError, match="pruned"):
        ranker.fit(X, 1 - y, qid=qid, callbacks=[fail])
    assert np.array_equal(ranker.predict(X), scores)


def test_a_callback_may_fit_another_ranker():
    X, y, qid = frame()
    alone = quick().fit(X, y, qid=qid)
    inner = []

    def fit(history):
        inner.append(quick(random_state=7, max_epochs=1).fit(X, y, qid=qid).predict(X))

    outer = quick().fit(X, y, qid=qid, callbacks=[fit])
    assert np.array_equal(outer.predict(X), alone.predict(X))
    assert all(np.array_equal(one, inner[0]) for one in inner)


class Noisy(LinearScorer):
    """Draws from the generators of torch and numpy in training."""

    def score(self, features, mask):
        scores = super().score(features, mask)
        return scores * (torch.rand(()) + np.random.rand()) if self.training else scores  # noqa: NPY002


def test_random_state_holds_in_threads():
    X, y, qid = frame()
    expected = quick(scorer=Noisy()).fit(X, y, qid=qid).predict(X)
    found: list[np.ndarray] = []
    fit = lambda: found.append(quick(scorer=Noisy()).fit(X, y, qid=qid).predict(X))  # noqa: E731
    threads = [threading.Thread(target=fit) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [np.array_equal(one, expected) for one in found] == [True] * 4


def test_random_state_holds_beside_other_seeds_in_a_thread():
    """`contributions` and others take random numbers of their own while another thread fits."""
    X, y, qid = frame()
    expected = quick(scorer=Noisy()).fit(X, y, qid=qid).predict(X)
    over = threading.Event()

    def draw() -> None:
        while not over.is_set():
            with own_random_numbers():
                np.random.seed(0)  # noqa: NPY002
                torch.manual_seed(0)

    thread = threading.Thread(target=draw)
    thread.start()
    found = quick(scorer=Noisy()).fit(X, y, qid=qid).predict(X)
    over.set()
    thread.join()
    np.testing.assert_array_equal(found, expected)


def test_a_failed_training_says_where_and_gives_the_random_numbers_back():
    X, y, qid = frame()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="must be finite") as caught:
        quick(learning_rate=1e30, validation=0, batch_size=4).fit(X, y, qid=qid)
    assert torch.equal(torch.get_rng_state(), before)
    said = str(caught.value)
    assert re.match(r"(loss|gradients) must be finite, got .* in epoch 1, batch 2 \(qid ", said)


class Modes(SoftmaxLoss):
    """Notes in which mode it is called, with an operator whose temperature is checked."""

    seen: ClassVar[list[bool]] = []

    def __init__(self):
        super().__init__()
        self.operator = SigmoidRank(0.1)

    def per_list(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.seen.append(self.training)
        return super().per_list(*args, **kwargs)


@pytest.mark.filterwarnings("ignore:SigmoidRank has the temperature")
def test_the_loss_stays_in_its_mode():
    X, y, qid = frame()
    Modes.seen.clear()
    quick(loss=Modes(), max_epochs=9).fit(X, y, qid=qid)
    assert len(Modes.seen) > 30  # beyond the check of the temperature and some validations
    assert all(Modes.seen)


def test_grad_modes_of_the_caller_do_not_matter():
    X, y, qid = frame()
    expected = quick().fit(X, y, qid=qid).predict(X)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            ranker = quick().fit(X, y, qid=qid)
        assert np.array_equal(ranker.predict(X), expected)
        assert not any(x.is_inference() for x in ranker.scorer_.parameters())


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 1), (2, 4)])
def test_verbose_without_a_terminal(capsys, verbose: int, lines: int):
    X, y, qid = frame()
    quick(verbose=verbose).fit(X, y, qid=qid)
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == lines
    assert "\x1b" not in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("verbose", "sign"), [(0, ""), (1, "\r\x1b[K"), (2, "━")])
def test_verbose_on_a_terminal(monkeypatch, verbose: int, sign: str):
    X, y, qid = frame()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    quick(verbose=verbose).fit(X, y, qid=qid)
    said = terminal.getvalue()
    assert sign in said
    assert said.count("epoch 4 of at most 4") == min(verbose, 1) or verbose == 2
    assert bool(said) == bool(verbose)


def test_a_list_dataset_and_the_estimator_agree_on_the_lists():
    X, y, qid = frame()
    data = ListDataset.from_arrays(X[["price"]], y, qid)
    ranker = quick(transform=TableTransform(PiecewiseLinearBins(4))).fit(X[["price"]], y, qid=qid)
    held = (query_shares(data.qids) < 0.2).sum()
    assert ranker.validation_queries_ == held


def test_the_metric_chooses_the_epoch_and_is_the_score():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(600, 4)), np.arange(600) // 12
    y = np.clip((X[:, 0] + rng.normal(size=600)).round(), 0, 3)
    fits = {}
    for metric in ("ndcg@10", "RR@1", "err@5"):
        ranker = NeuralRanker(members=2, max_epochs=4, random_state=0, verbose=0, metric=metric)
        fits[metric] = ranker.fit(
            X[:480], y[:480], qid=qid[:480], eval_set=[(X[480:], y[480:])], eval_qid=[qid[480:]]
        )
    scores = fits["RR@1"].predict(X[480:])
    for name in ("mrr@1", "map", "precision@3", "err@5", "spearman"):
        expected = evaluate(y[480:], scores, qid[480:], [name])[name].mean
        got = fits["RR@1"].score(X[480:], y[480:], qid=qid[480:], metric=name)
        assert got == pytest.approx(expected, abs=1e-6)
    assert fits["RR@1"].score(X[480:], y[480:], qid=qid[480:]) == pytest.approx(
        evaluate(y[480:], scores, qid[480:], ["mrr@1"])["mrr@1"].mean
    )
    lists = len(np.unique(qid[480:]))
    for row in fits["RR@1"].history_:  # the share of the lists with a relevant row on top
        assert all(value * lists == pytest.approx(round(value * lists)) for value in row)
    assert fits["RR@1"].history_ != fits["ndcg@10"].history_ != fits["err@5"].history_


@pytest.mark.parametrize(
    ("metric", "written"),
    [
        ("map", "map"),
        ("nDCG@10", "nDCG@10"),
        ("kendall_tau", "kendall_tau"),
        (MRR(3), "MRR(top_k=3)"),
    ],
)
def test_the_line_names_the_metric_as_it_was_given(capsys, metric, written):
    X, y, qid = np.eye(20), np.arange(20) % 3, np.arange(20) // 4
    NeuralRanker(members=1, max_epochs=1, metric=metric, validation=0.4).fit(X, y, qid=qid)
    assert re.search(rf"validation {re.escape(written)} -?\d", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("metric", "given"),
    [("ncdg@10", "metric.* 'ncdg'.* ndcg"), ("arp", "metric.* 'arp'"), (3, "metric.* 3")],
)
def test_a_wrong_metric_is_named(metric, given):
    X, y, qid = np.eye(6), np.arange(6) % 3, np.arange(6) // 3
    with pytest.raises(ValueError, match=given):
        NeuralRanker(metric=metric).fit(X, y, qid=qid)
    ranker = NeuralRanker(members=1, max_epochs=1, validation=0, verbose=0).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match=given):
        ranker.score(X, y, qid=qid, metric=metric)
    with pytest.raises(ValueError, match=r"metric.* 'map'"):
        ranker.score(X, y, qid=qid, metric="map", sample_weight=np.ones(6))


@pytest.mark.parametrize("loss", [SoftNDCG(gain="linear"), SoftmaxLoss()], ids=["ndcg", "softmax"])
def test_labels_may_be_ranks_of_128_and_more(loss):
    X, _, _ = frame(560)
    prices = X["price"].to_numpy().reshape(4, 140)
    y, qid = prices.argsort().argsort().ravel(), np.repeat(np.arange(4), 140)
    ranker = quick(loss=loss, members=1, columns="all").fit(X, y, qid=qid)
    history = np.array(ranker.history_)
    assert ((history >= 0) & (history <= 1)).all()
    assert history[-1].item() > history[0].item()

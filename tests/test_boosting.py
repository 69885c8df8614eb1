"""Losses as objectives of boosted trees, and metrics as their evaluation."""

import copy
import itertools
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import lightgbm
import numpy as np
import pytest
import torch
from lightgbm import LGBMRanker
from sklearn.base import clone

import ltr.metrics.functional as F
from ltr.boosting import Objective, metric, objective, probe_signs, tiles
from ltr.losses import (
    XENDCG,
    ARPLoss1,
    ExposureParity,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    ListNet,
    NDCGLoss2,
    NeuralNDCG,
    PairwiseHinge,
    PairwiseMSE,
    RankNet,
    SeveralLabels,
    SoftERR,
    SoftmaxLoss,
    SoftNDCG,
)
from ltr.metrics import ARP, GMAP, MRR, NDCG
from ltr.operators import HardRank, SigmoidRank, SoftSort

xgboost = pytest.importorskip("xgboost")

LENGTHS = [3, 1, 7, 2, 5, 1, 4]

EXACT = {
    "softmax": SoftmaxLoss(),
    "softmax, sums": SoftmaxLoss(normalize=False),
    "ListNet": ListNet(temperature=2.0),
    "XENDCG": XENDCG(),
    "RankNet": RankNet(temperature=0.7),
    "RankNet, sums": RankNet(normalize=False),
    "LambdaRank": LambdaRank(top_k=3),
    "LambdaLoss": LambdaLoss(),
    "LambdaLoss, both orders": LambdaLoss(ARPLoss1()),
    "LambdaLoss, graded": LambdaLoss(LabelDifference(), temperature=2.0),
}

BOUNDED = {
    "SoftNDCG": SoftNDCG(SigmoidRank(1.0)),
    "SoftNDCG, standardized": SoftNDCG(),
    "SoftNDCG, arithmetic": SoftNDCG(SigmoidRank(1.0), mean="arithmetic"),
    "NeuralNDCG": NeuralNDCG(),
    "PairwiseMSE": PairwiseMSE(),
}


def lists(seed: int = 0, lengths=LENGTHS):
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    return rng.integers(0, 4, n).astype(np.float32), rng.normal(size=n), np.array(lengths)


def definition(loss, labels, scores, lengths, weights=None, factors=None):
    """Gradients (rows,) and matrices of second derivatives of each list, by torch's autograd."""
    gradients, matrices = [], []
    loss = copy.deepcopy(loss)
    loss.reduction = "sum"
    bounds = np.r_[0, np.cumsum(lengths)]
    for i, (first, last) in enumerate(itertools.pairwise(bounds)):
        y = torch.tensor(labels[first:last], dtype=torch.float64)
        s = torch.tensor(scores[first:last], dtype=torch.float64)
        w = None if weights is None else torch.tensor(weights[first:last], dtype=torch.float64)
        factor = 1.0 if factors is None else factors[i]

        def value(x, y=y, w=w, factor=factor):
            return factor * loss(x, y, weights=w)

        gradients.append(torch.autograd.functional.jacobian(value, s))
        matrices.append(torch.autograd.functional.hessian(value, s))
    return torch.cat(gradients).numpy(), matrices


def parts(loss, *data, **options):
    """Gradient and Hessian before the floor, without the common factor of one call."""
    y, s, w, lengths = data
    found = Objective(loss, **options)
    given = [torch.as_tensor(np.array(x), dtype=torch.float64) for x in (s, y)]
    weights = None if w is None else torch.as_tensor(w, dtype=torch.float64)
    _, g, h = found._derivatives(found.loss, *given, torch.as_tensor(lengths), weights)
    return g.numpy(), h.numpy()


@pytest.mark.parametrize("name", [*EXACT, *BOUNDED])
def test_gradients_are_autograds_of_the_definition(name: str):
    loss = {**EXACT, **BOUNDED}[name]
    y, s, lengths = lists()
    g, h = objective(loss)(y, s, None, lengths)
    expected, _ = definition(loss, y, s, lengths)
    factor = (g @ expected) / (expected @ expected)
    assert factor > 0
    np.testing.assert_allclose(g, factor * expected, rtol=1e-7, atol=1e-9 * factor)
    assert g.dtype == h.dtype == np.float64
    assert (h > 0).all()


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_hessian_is_autograds_diagonal(name: str, weighted: bool):
    y, s, lengths = lists(1)
    w = np.random.default_rng(2).uniform(0.5, 2, len(y)) if weighted else None
    g, h = parts(EXACT[name], y, s, w, lengths, max_step=1e9)
    gradient, matrices = definition(EXACT[name], y, s, lengths, w)
    np.testing.assert_allclose(g, gradient, atol=1e-9)
    np.testing.assert_allclose(h, np.concatenate([m.diagonal() for m in matrices]), atol=1e-9)


@pytest.mark.parametrize("name", BOUNDED)
def test_the_other_hessian_is_the_root_of_the_row_of_squares(name: str):
    y, s, lengths = lists(3)
    _, h = parts(BOUNDED[name], y, s, None, lengths, probes=8, max_step=1e9)
    _, matrices = definition(BOUNDED[name], y, s, lengths)
    rows = np.concatenate([m.square().sum(1).sqrt() for m in matrices])
    diagonal = np.concatenate([m.diagonal() for m in matrices])
    np.testing.assert_allclose(h, rows, rtol=1e-6, atol=1e-9)  # exact for up to 8 items
    assert (h >= np.abs(diagonal) - 1e-9).all()


def test_few_probes_estimate_the_row_of_squares_of_long_lists():
    y, s, lengths = lists(4, [40])
    loss = BOUNDED["SoftNDCG"]
    _, [matrix] = definition(loss, y, s, lengths)
    squares = []
    for seed in range(60):
        torch.manual_seed(seed)
        squares.append(parts(loss, y, s, None, lengths, max_step=1e9)[1] ** 2)
    expected = matrix.square().sum(1).numpy()
    assert np.mean(squares, 0).sum() == pytest.approx(expected.sum(), rel=0.2)


def test_no_step_of_a_row_is_above_max_step():
    y, s, lengths = lists(5, [30, 20])
    for loss, max_step in itertools.product((SoftmaxLoss(), *BOUNDED.values()), (0.5, 3.0)):
        g, h = objective(loss, max_step=max_step)(y, s, None, lengths)
        assert (np.abs(g) <= max_step * h * (1 + 1e-9)).all()


def test_the_mean_hessian_is_one_and_none_is_below_the_floor():
    y, s, lengths = lists()
    for loss in (*EXACT.values(), *BOUNDED.values()):
        g, h = objective(loss)(y, s, None, lengths)
        assert h.mean() == pytest.approx(1, rel=0.01)
        assert h.min() >= 1e-3
        assert np.isfinite(g).all()


def test_lists_of_one_item_and_of_equal_labels_have_no_gradient():
    s = np.random.default_rng(0).normal(size=7)
    y = np.array([2, 0, 0, 0, 1, 1, 1])
    for loss in (SoftmaxLoss(), RankNet(), SoftNDCG(SigmoidRank(1.0))):
        g, h = objective(loss)(y, s, None, [1, 3, 3])
        assert not g[:4].any()
        assert (h > 0).all()
    g, h = objective(RankNet())(y, s, None, [1, 3, 3])
    assert not g.any()
    assert (h == 1).all()


def test_a_list_has_the_same_gradient_alone_and_between_others():
    y, s, lengths = lists(6, [5, 90, 2, 17, 1])
    bounds = np.r_[0, np.cumsum(lengths)]
    for loss in (SoftmaxLoss(), LambdaLoss(), SoftNDCG(SigmoidRank(1.0))):
        together, _ = objective(loss)(y, s, None, lengths)
        for first, last in itertools.pairwise(bounds):
            g, _ = definition(loss, y[first:last], s[first:last], [last - first])
            own = together[first:last]
            np.testing.assert_allclose(own * np.abs(g).sum(), g * np.abs(own).sum(), atol=1e-8)


def test_tiles_hold_every_row_once_and_lists_of_similar_lengths():
    lengths = torch.from_numpy(np.random.default_rng(0).integers(1, 3000, 300))
    found = [*tiles(lengths)]
    assert torch.cat([rows for _, rows in found]).sort().values.equal(torch.arange(lengths.sum()))
    for own, rows in found:
        assert lengths[own].max() <= 1.5 * lengths[own].min()
        assert len(rows) <= 1 << 16
        starts = lengths.cumsum(0) - lengths
        expected = [torch.arange(starts[i], starts[i] + lengths[i]) for i in own]
        assert rows.equal(torch.cat(expected))


def test_probe_signs_are_orthogonal_in_short_lists():
    signs = torch.stack([*probe_signs(torch.tensor([4, 3]), 4)])
    assert (signs[:, :4].T @ signs[:, :4]).equal(4 * torch.eye(4, dtype=torch.float64))
    assert signs.abs().eq(1).all()


def test_a_weight_of_a_list_counts_the_list_so_many_times():
    y, s, _ = lists(7, [4, 6])
    twice = np.r_[0:4, 4:10, 4:10]
    w = np.r_[np.ones(4), np.full(6, 2.0)]
    for loss in (SoftmaxLoss(), LambdaRank(), SoftNDCG(SigmoidRank(1.0))):
        g, _ = definition(loss, y[twice], s[twice], [4, 6, 6])
        expected = np.r_[g[:4], 2 * g[4:10]]
        found, _ = objective(loss)(y, s, w, [4, 6])
        np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-7)
        same, _ = objective(loss)(y, s, 5 * w, [4, 6])
        np.testing.assert_allclose(same, found, rtol=1e-12)


def test_weights_within_a_list_are_item_weights():
    y, s, lengths = lists(8, [4, 6])
    w = np.random.default_rng(0).uniform(0.1, 3, 10)
    means = [w[:4].mean(), w[4:].mean()]
    for loss in (SoftmaxLoss(normalize=False), RankNet(), SoftNDCG(SigmoidRank(1.0))):
        expected, _ = definition(loss, y, s, lengths, w / np.repeat(means, lengths), means)
        found, _ = objective(loss)(y, s, w, lengths)
        np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-6)


def test_weights_of_zero_leave_a_list_out():
    y, s, lengths = lists(9, [4, 6])
    w = np.r_[np.zeros(4), np.ones(6)]
    g, h = objective(SoftmaxLoss())(y, s, w, lengths)
    assert not g[:4].any()
    alone, _ = objective(SoftmaxLoss())(y[4:], s[4:], None, [6])
    np.testing.assert_allclose(g[4:] / g[4], alone / alone[0], rtol=1e-9)
    assert (h > 0).all()


@pytest.mark.parametrize("loss", [SoftNDCG(SigmoidRank(1.0), dequantize=True), XENDCG("random")])
def test_the_same_scores_give_the_same_result_and_other_random_numbers_stay(loss):
    y, s, lengths = lists()
    one = objective(loss)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first, again = one(y, s, None, lengths), one(y, s, None, lengths)
    assert torch.random.get_rng_state().equal(before)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(one)))(y, s, None, lengths)
    for x, y_again, z in zip(first, again, copied, strict=True):
        assert (x == y_again).all()
        assert (x == z).all()
    assert (objective(loss, seed=1)(y, s, None, lengths)[0] != first[0]).any()
    assert (one(y, s + 1e-9, None, lengths)[0] != first[0]).any()


def test_the_loss_of_the_caller_stays_as_it_is():
    loss = SoftmaxLoss()
    objective(loss)
    assert loss.reduction == "mean"


def test_two_documents_are_logistic_regression_of_their_difference():
    d = np.random.default_rng(0).normal(size=50)
    scores = np.c_[d, np.zeros(50)].ravel()
    for loss in (SoftmaxLoss(), RankNet()):
        g, h = parts(loss, np.tile([1, 0], 50), scores, None, np.full(50, 2), max_step=1e9)
        p = 1 / (1 + np.exp(-d))
        np.testing.assert_allclose(g[::2], p - 1, atol=1e-12)
        np.testing.assert_allclose(h[::2], p * (1 - p), atol=1e-12)


def test_pairs_of_two_documents_train_the_trees_of_xgboosts_own_objective():
    # with one pair per list rank:pairwise is RankNet with twice the Hessian
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = np.repeat(X[::2, 0] > X[1::2, 0], 2)
    y[1::2] = ~y[::2]
    data = xgboost.DMatrix(X, y.astype(np.float32), qid=np.repeat(np.arange(200), 2))
    options = {"max_depth": 2, "lambda": 0, "min_child_weight": 0, "base_score": 0, "nthread": 1}
    own = {"objective": "rank:pairwise", "lambdarank_pair_method": "topk"}
    own |= {"lambdarank_normalization": False, "lambdarank_score_normalization": False}
    theirs = xgboost.train({**options, **own, "learning_rate": 0.6}, data, 5).predict(data)
    options["learning_rate"] = 0.3
    ours = xgboost.train(options, data, 5, obj=objective(RankNet(), max_step=1e9).xgboost).predict(
        data
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def table(lists_: int = 80, seed: int = 0):
    """Rows like MQ2008's: 5 to 20 documents per query, three grades, 20 columns, six that help."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 21, lists_)
    X = rng.normal(size=(lengths.sum(), 20))
    value = X[:, :6] @ [1, 0.8, 0.6, 0.4, 0.2, 0.1] + X[:, 0] * X[:, 1] + rng.normal(size=len(X))
    return X, np.digitize(value, [0.8, 2.2]).astype(float), lengths


def ranker(loss_or_name, **options) -> LGBMRanker:
    chosen = {"n_estimators": 30, "num_leaves": 7, "n_jobs": 1, "verbose": -1, **options}
    return LGBMRanker(objective=loss_or_name, **chosen)


def ndcg(scores, y, lengths) -> float:
    given = (torch.as_tensor(np.asarray(x, np.float64)) for x in (scores, y))
    return F.ndcg(*given, lengths=lengths.tolist(), top_k=10).item()


TRAINED = {
    "softmax": SoftmaxLoss(),
    "XENDCG": XENDCG(gamma="random"),
    "SoftNDCG": SoftNDCG(SigmoidRank(1.0)),
    "LambdaLoss": LambdaLoss(),
    "NeuralNDCG": NeuralNDCG(),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    "name",
    [  # half a second each; what differs is the derivatives, which other tests compare
        pytest.param(name, marks=[] if name in ("softmax", "SoftNDCG") else [pytest.mark.slow])
        for name in TRAINED
    ],
)
def test_training_raises_ndcg_on_new_lists(name: str):
    X, y, lengths = table()
    new, target, sizes = table(seed=1)
    start = ndcg(np.zeros(len(new)), target, sizes)
    trained = ranker(objective(TRAINED[name])).fit(X, y, group=lengths)
    # a small step is all that NeuralSort's large second derivatives allow
    gain = 0.03 if name == "NeuralNDCG" else 0.15
    assert ndcg(trained.predict(new), target, sizes) > start + gain
    again = pickle.loads(pickle.dumps(trained))
    assert (again.predict(new) == trained.predict(new)).all()
    repeated = clone(trained).fit(X, y, group=lengths)
    assert (repeated.predict(new) == trained.predict(new)).all()


def test_xgboost_trains_stops_early_and_evaluates():
    X, y, lengths = table()
    new, target, sizes = table(seed=1)
    data = xgboost.DMatrix(X, y, group=lengths)
    val = xgboost.DMatrix(new, target, group=sizes)
    history = {}
    model = xgboost.train(
        {"max_depth": 3, "learning_rate": 0.3, "nthread": 1, "disable_default_eval_metric": True},
        data,
        200,
        obj=objective(SoftmaxLoss()).xgboost,
        custom_metric=metric(NDCG(top_k=10)).xgboost,
        evals=[(val, "val")],
        early_stopping_rounds=5,
        evals_result=history,
        verbose_eval=False,
    )
    values = history["val"]["ndcg@10"]
    assert len(values) < 200
    assert model.best_iteration == np.argmax(values)
    predicted = model.predict(val, iteration_range=(0, model.best_iteration + 1))
    assert max(values) == pytest.approx(ndcg(predicted, target, sizes), abs=1e-4)
    assert max(values) > ndcg(np.zeros(len(new)), target, sizes) + 0.15


def test_xgboosts_weights_are_of_lists():
    y, s, lengths = lists(10, [4, 6])
    data = xgboost.DMatrix(np.zeros((10, 1)), y, group=lengths, weight=[1.0, 3.0])
    found = objective(SoftmaxLoss()).xgboost(s, data)
    expected = objective(SoftmaxLoss())(y, s, np.repeat([1.0, 3.0], lengths), lengths)
    np.testing.assert_allclose(found, expected)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_lightgbm_stops_early_by_the_metric():
    X, y, lengths = table()
    new, target, sizes = table(seed=1)
    model = ranker(
        objective(SoftmaxLoss()), n_estimators=300, metric="None", early_stopping_round=5
    )
    model.fit(
        X,
        y,
        group=lengths,
        eval_set=[(new, target)],
        eval_group=[sizes],
        eval_metric=metric(NDCG(top_k=10)),
    )
    [values] = model.evals_result_.values()
    assert [*values] == ["ndcg@10"]
    assert len(values["ndcg@10"]) < 300
    assert model.best_iteration_ == np.argmax(values["ndcg@10"]) + 1
    assert max(values["ndcg@10"]) == pytest.approx(ndcg(model.predict(new), target, sizes))


def test_every_way_to_train_takes_the_same_objective_and_metric():
    """`lightgbm.train` gives the trees of `LGBMRanker`; `xgboost.train` those of `.xgboost`."""
    (X, y, lengths), (new, target, sizes) = table(), table(seed=1)
    w = np.repeat(np.random.default_rng(0).uniform(0.5, 2, len(lengths)), lengths)
    chosen, measure = objective(SoftmaxLoss()), metric(NDCG(top_k=10))
    given = {"num_leaves": 7, "num_threads": 1, "verbose": -1, "metric": "None"}
    data = lightgbm.Dataset(X, y, weight=w, group=lengths)
    val = lightgbm.Dataset(new, target, group=sizes, reference=data)
    history: dict = {}
    booster = lightgbm.train(
        {**given, "objective": chosen},
        data,
        num_boost_round=30,
        valid_sets=[val],
        feval=measure,
        callbacks=[lightgbm.record_evaluation(history), lightgbm.early_stopping(3, verbose=False)],
    )
    alone = ranker(chosen, n_estimators=booster.current_iteration())
    alone.fit(X, y, group=lengths, sample_weight=w)
    scores = np.asarray(booster.predict(new, num_iteration=-1))
    np.testing.assert_allclose(scores, alone.booster_.predict(new), rtol=1e-12)
    best = np.asarray(booster.predict(new))
    assert max(history["valid_0"]["ndcg@10"]) == pytest.approx(ndcg(best, target, sizes))

    data, val = xgboost.DMatrix(X, y, group=lengths), xgboost.DMatrix(new, target, group=sizes)
    options = {"max_depth": 3, "nthread": 1, "disable_default_eval_metric": True}
    histories, found = [], []
    for obj, custom in ((chosen, measure), (chosen.xgboost, measure.xgboost)):
        histories.append({})
        more = {"evals": [(val, "val")], "evals_result": histories[-1], "verbose_eval": False}
        model = xgboost.train(options, data, 5, obj=obj, custom_metric=custom, **more)
        found.append(model.predict(val))
    assert histories[0] == histories[1]
    assert np.array_equal(*found)
    assert histories[0]["val"]["ndcg@10"][-1] == pytest.approx(ndcg(found[0], target, sizes))


def test_metrics_are_means_by_the_weights_of_lists():
    y, s, lengths = lists(11)
    given = (torch.tensor(s), torch.tensor(y))
    values = F.ndcg(*given, lengths=lengths.tolist(), top_k=3, reduction="none").numpy()
    w = np.random.default_rng(0).uniform(size=len(lengths))
    name, value, higher = metric(NDCG(top_k=3))(y, s, np.repeat(w, lengths), lengths)
    assert (name, higher) == ("ndcg@3", True)
    assert value == pytest.approx(np.average(values, weights=w))
    assert metric(ARP())(y, s, None, lengths)[2] is False
    assert metric(GMAP())(y, s, None, lengths)[1] == pytest.approx(
        F.gmap(*given, lengths=lengths.tolist()).item()
    )
    assert metric(MRR(), name="first")(y, s, None, lengths)[0] == "first"
    with pytest.raises(ValueError, match=r"weight.*mrr.*differ"):
        metric(MRR())(y, s, np.arange(len(y)), lengths)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_pred": [0.0, np.nan, 1.0]}, "y_pred.*nan"),
        ({"y_true": [1.0, np.nan, 1.0]}, "y_true.*nan"),
        ({"y_true": [1.0, -1.0, 1.0]}, "labels.*-1"),
        ({"y_true": [1.0, 1.0]}, "y_true.*3.*2"),
        ({"weight": [1.0, -2.0, 1.0]}, "weight.*-2"),
        ({"weight": [1.0, 1.0]}, "weight.*3.*2"),
        ({"weight": [1.0, np.inf, 1.0]}, "weight.*inf"),
        ({"group": None}, "group.*None"),
        ({"group": [2, 2]}, "group.*3.*4"),
        ({"y_pred": np.zeros((3, 2))}, r"y_pred.*\(3, 2\)"),
    ],
)
def test_bad_lists_are_errors(change: dict, message: str):
    given = {"y_true": [1.0, 0, 2], "y_pred": [0.1, 0.2, 0.3], "weight": None, "group": [3]}
    with pytest.raises(ValueError, match=message):
        objective(SoftmaxLoss())(**{**given, **change})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "softmax"}, "loss.*softmax"),
        ({"loss": ExposureParity()}, "loss.*ExposureParity.*protected"),
        ({"max_step": 0}, "max_step.*0"),
        ({"probes": 0}, "probes.*0"),
        ({"seed": -1}, "seed.*-1"),
    ],
)
def test_bad_arguments_are_errors(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        objective(**{"loss": SoftmaxLoss(), **options})
    with pytest.raises(ValueError, match=r"metric.*ndcg"):
        metric("ndcg")
    with pytest.raises(ValueError, match="name must be text or None, got 5"):
        metric(NDCG(), name=5)


def test_no_gradient_at_the_first_tree_is_an_error():
    y, s, lengths = lists()
    for loss in (SoftNDCG(SoftSort()), SoftNDCG(SoftSort(), mean="arithmetic")):
        with pytest.raises(ValueError, match=r"^loss must.*equal.*SoftSort: use.*SigmoidRank"):
            objective(loss)(y, np.zeros(len(y)), None, lengths)
        assert objective(loss)(y, s, None, lengths)[0].any()
    for loss in (SoftNDCG(SigmoidRank(1.0)), SoftNDCG(), LambdaLoss(NDCGLoss2()), PairwiseHinge()):
        assert objective(loss)(y, np.zeros(len(y)), None, lengths)[0].any()
    assert not objective(SoftmaxLoss())(np.ones(3), np.zeros(3), None, [3])[0].any()


def test_a_loss_without_a_gradient_at_any_scores_is_an_error():
    y, s, lengths = lists()
    for loss in (SoftNDCG(HardRank()), SoftERR(HardRank())):
        with pytest.raises(ValueError, match=r"^loss must have a gradient.*HardRank: use"):
            objective(loss)(y, s, None, lengths)


def test_missing_lists_are_errors_in_the_libraries():
    X, y, _ = table(5)
    data = xgboost.DMatrix(X, y)
    with pytest.raises(ValueError, match=r"dtrain.*none"):
        xgboost.train({"nthread": 1}, data, 1, obj=objective(SoftmaxLoss()).xgboost)
    own = {"objective": objective(SoftmaxLoss()), "num_threads": 1, "verbose": -1}
    with pytest.raises(ValueError, match=r"group.*None"):
        lightgbm.train(own, lightgbm.Dataset(X, y), 1)
    model = lightgbm.LGBMRegressor(objective=objective(SoftmaxLoss()), n_jobs=1, verbose=-1)
    with pytest.raises(ValueError, match=r"group.*None"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"objective.*CatBoost"):
        objective(SoftmaxLoss()).calc_ders_range(None, None, None)


def two_labels(seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return labels (rows, 2), some not known, scores and lengths."""
    rng = np.random.default_rng(seed)
    rows = sum(LENGTHS)
    labels = rng.integers(0, 3, (rows, 2)).astype(float)
    labels[rng.random(labels.shape) < 0.2] = np.nan
    return labels, rng.normal(size=rows), LENGTHS


@pytest.mark.parametrize("how", ["sum", "chebyshev", "floor"])
def test_several_labels_have_autograds_gradient_and_the_exact_hessian(how):
    labels, scores, lengths = two_labels()
    floors = {"purchase": 0.4} if how == "floor" else None
    pairs = {"click": (SoftmaxLoss(), 1.0), "purchase": (RankNet(), 3.0)}
    loss = SeveralLabels(pairs, how, floors=floors, scale=None)
    built = objective(loss, labels=labels, max_step=1e9)
    g, h = built(np.zeros(len(scores)), scores, None, lengths)
    s = torch.tensor(scores, requires_grad=True)
    lists = len(lengths)
    each = copy.deepcopy(loss)
    for part in each.parts:
        part.reduction = "sum"
    parts = each.each(s, torch.tensor(labels), lengths=lengths)
    weights = {"click": 1.0, "purchase": 3.0}
    total = sum(weights[name] * x for name, x in parts.items())
    if how == "chebyshev":  # of the means over the lists with a known label
        ids = np.repeat(np.arange(lists), lengths)
        counts = [len(np.unique(ids[~np.isnan(labels[:, k])])) for k in range(2)]
        means = [weights[n] * x.item() / c for (n, x), c in zip(parts.items(), counts, strict=True)]
        name = [*parts][int(np.argmax(means))]
        total = weights[name] * parts[name]
    (expected,) = torch.autograd.grad(total, s)
    factor = (g @ expected.numpy()) / (expected @ expected).item()
    np.testing.assert_allclose(g, factor * expected.numpy(), atol=1e-9)

    def summed(x):
        found = each.each(x, torch.tensor(labels), lengths=lengths)
        if how == "chebyshev":
            return weights[name] * found[name]
        return sum(weights[key] * value for key, value in found.items())

    diagonal = torch.autograd.functional.hessian(summed, s.detach()).diagonal().numpy()
    large = h > 1.1e-3  # the floor of h holds elsewhere
    np.testing.assert_allclose(h[large], factor * diagonal[large], rtol=1e-6)


def test_several_labels_start_with_losses_of_equal_size():
    class Thousandfold(XENDCG):
        def per_list(self, *given, **named):
            return 1000 * super().per_list(*given, **named)

    labels, scores, lengths = two_labels()
    found = []
    for loss in (XENDCG(), Thousandfold()):
        pairs = {"click": (RankNet(), 1.0), "purchase": (loss, 3.0)}
        built = objective(SeveralLabels(pairs), labels=labels)
        gradient, _ = built(np.zeros(len(scores)), scores, None, lengths)
        found.append(gradient / np.linalg.norm(gradient))  # without the common factor of one call
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_trees_trade_one_label_for_another():
    rng = np.random.default_rng(0)
    group = [20] * 60
    x = rng.normal(size=(1200, 2))
    labels = (x + rng.normal(size=x.shape) > 1).astype(float)
    correlations = []
    for weight in (0.1, 10.0):
        pairs = {"click": (XENDCG(), 1.0), "purchase": (XENDCG(), weight)}
        built = objective(SeveralLabels(pairs), labels=labels)
        model = LGBMRanker(objective=built, n_estimators=20, num_leaves=7, n_jobs=1, verbose=-1)
        scores = model.fit(x, labels[:, 0], group=group).predict(x)
        correlations.append([np.corrcoef(scores, x[:, k])[0, 1] for k in range(2)])
    (clicks, few), (less, purchases) = correlations
    assert clicks > 0.8 > few
    assert purchases > 0.8 > less


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (SoftmaxLoss(), [[1, 0]], "labels must be None with SoftmaxLoss"),
        ("several", None, "labels must be .rows, 2."),
        ("several", [1, 0], "labels must be .rows, 2."),
        ("several", [[1, np.inf]], "labels must be finite"),
        ("several", [[1, 0]], "labels must have the 2 rows"),
        ("running", [[1, 0], [0, 1]], "scale must be 'start' or None"),
    ],
)
def test_bad_labels_of_several(loss, labels, message):
    if isinstance(loss, str):
        scale = "running" if loss == "running" else "start"
        pairs = {"click": (XENDCG(), 1.0), "purchase": (XENDCG(), 1.0)}
        loss = SeveralLabels(pairs, scale=scale)
    with pytest.raises(ValueError, match=message):
        objective(loss, labels=labels)([0, 1], [0.0, 0.0], None, [2])


class Slow(SoftmaxLoss):
    """Draws a weight for each item, a while after its caller has seeded the generator."""

    def per_list(self, *given, **others):
        time.sleep(0.05)
        return super().per_list(*given, **others) * torch.rand(()).clamp(min=0.1)


def test_objectives_in_threads_do_not_share_random_numbers():
    """Each thread seeds the generator of all threads by its own scores."""
    rng = np.random.default_rng(0)
    labels, lengths = rng.integers(0, 3, sum(LENGTHS)), np.array(LENGTHS)
    several = rng.normal(size=(4, len(labels)))
    own = objective(Slow())

    def gradient(scores):
        return own(labels, scores, None, lengths)[0]

    expected = [gradient(scores) for scores in several]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(gradient, several)]
    np.testing.assert_array_equal(found, expected)

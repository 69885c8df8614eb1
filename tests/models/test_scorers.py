"""What every scorer keeps to, and the errors."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

import ltr.models
from ltr.config import from_config, to_config
from ltr.datasets import Standardize, TableTransform
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.export.program import ExportedRanker, describe
from ltr.models import (
    AdditiveScorer,
    AttentionScorer,
    CrossScorer,
    Ensemble,
    FeatureScorer,
    LinearScorer,
    MLPScorer,
    MonotoneScorer,
    RankingModel,
    Scorer,
)
from ltr.models.ragged import score_ragged

D = 5


class MeanImage(Scorer):
    """Two axes an item, and something taken from the whole list."""

    item_dims = 2

    def score(self, features, mask):
        return features.mean((-1, -2))


def _monotone(num_features: int | None = None) -> MonotoneScorer:
    scorer = MonotoneScorer([1, 0, 0, -1, 0])
    if num_features is not None:
        scorer.build(num_features)
    return scorer


SCORERS: list[Callable[..., FeatureScorer]] = [
    LinearScorer,
    MLPScorer,
    partial(MLPScorer, hidden=()),
    partial(MLPScorer, hidden=[7], activation=nn.GELU, norm=False, dropout=0.0),
    AdditiveScorer,
    partial(AdditiveScorer, hidden=(), dropout=0.5),
    CrossScorer,
    partial(CrossScorer, hidden=(), crosses=3, rank=2, dropout=0.0),
    _monotone,
    partial(AttentionScorer, hidden=(8,), heads=2),
    partial(AttentionScorer, hidden=(6, 4), heads=1, blocks=1, points=3),
]
NAMES = [
    *("linear", "mlp", "mlp-none", "mlp-gelu"),
    *(
        "additive",
        "additive-none",
        "cross",
        "cross-none",
        "monotone",
        "attention",
        "attention-points",
    ),
]


def made(make: Callable[..., FeatureScorer]) -> FeatureScorer:
    """A scorer none of whose weights is 0, since some parts begin without effect."""
    torch.manual_seed(0)
    scorer = make(num_features=D).double().eval()
    with torch.no_grad():
        for weight in scorer.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return scorer


@pytest.fixture(params=SCORERS, ids=NAMES)
def scorer(request: pytest.FixtureRequest) -> FeatureScorer:
    return made(request.param)


def test_every_scorer_is_here():
    listed = {getattr(ltr.models, name) for name in ltr.models.__all__}
    assert listed - {Scorer, FeatureScorer, Ensemble, RankingModel} == {
        type(make(None)) for make in SCORERS
    }


def batch(lists: int = 4, n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(lists, n, D, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([n, 1, 3, 0])[:lists]
    return features, torch.arange(n) < lengths.unsqueeze(-1)


def test_a_batch_is_its_lists_one_by_one(scorer: FeatureScorer):
    features, mask = batch()
    scores = scorer(features, mask)
    assert scores.shape == mask.shape
    for row, items, real in zip(scores, features, mask, strict=True):
        torch.testing.assert_close(row[real], scorer(items[real]), rtol=0, atol=1e-12)
        assert (row[~real] == 0).all()


def test_any_batch_shape(scorer: FeatureScorer):
    features, mask = batch()
    nested = scorer(features.reshape(2, 2, 6, D), mask.reshape(2, 2, 6))
    torch.testing.assert_close(nested.reshape(4, 6), scorer(features, mask), rtol=0, atol=1e-12)
    assert scorer(features[:, :0]).shape == (4, 0)


def test_padding_at_any_place_changes_nothing(scorer: FeatureScorer):
    features, _ = batch()
    real = torch.tensor([[False, True, True, False, True, False]]).expand(4, 6)
    scores = scorer(features, real)
    alone = scorer(features[real].reshape(4, 3, D))
    torch.testing.assert_close(scores[real].reshape(4, 3), alone, rtol=0, atol=1e-12)


def test_the_order_of_the_documents_does_not_count(scorer: FeatureScorer):
    features, mask = batch()
    order = torch.randperm(6, generator=torch.Generator().manual_seed(2))
    moved = scorer(features[:, order], mask[:, order])
    torch.testing.assert_close(moved, scorer(features, mask)[:, order], rtol=0, atol=1e-12)


def test_who_looks_at_the_list_says_so(scorer: FeatureScorer):
    features, _ = batch()
    other = features.clone()
    other[:, 0] += 1
    same = torch.equal(scorer(features)[:, 1:], scorer(other)[:, 1:])
    assert scorer.per_document == same
    assert describe(ExportedRanker(RankingModel(scorer)))["looks_at_list"] == (not same)


def test_ragged_is_padded(scorer: FeatureScorer):
    features, mask = batch()
    x = features.clone().requires_grad_()
    ragged = score_ragged(scorer, features[mask].requires_grad_(), mask.sum(-1))
    padded = scorer(x, mask)[mask]
    torch.testing.assert_close(ragged, padded, rtol=0, atol=1e-12)
    one, other = (
        torch.autograd.grad(scores.square().sum(), [*scorer.parameters()], allow_unused=True)
        for scores in (ragged, padded)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert score_ragged(scorer, features[:0, 0], torch.tensor([0, 0])).shape == (0,)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_what_lies_under_the_mask_does_not_get_out(scorer: FeatureScorer, bad: float):
    features, mask = batch()

    def scores_and_gradients(x: torch.Tensor) -> list[torch.Tensor]:
        model, x = copy.deepcopy(scorer), x.clone().requires_grad_()
        scores = model(x, mask)
        scores.square().sum().backward()
        assert x.grad is not None
        return [scores, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]

    clean = scores_and_gradients(features)
    dirty = scores_and_gradients(features.masked_fill(~mask.unsqueeze(-1), bad))
    for one, other in zip(clean, dirty, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert (clean[1][~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(scorer: FeatureScorer, dtype: torch.dtype):
    features, mask = batch()
    exact = scorer(features, mask)
    scores = scorer.to(dtype)(features.to(dtype), mask)
    assert scores.dtype == dtype
    # some dozens of roundings of numbers that are no larger than a few scores
    tolerance = 50 * torch.finfo(dtype).eps * exact.abs().max().item()
    torch.testing.assert_close(scores.double(), exact, rtol=0, atol=tolerance)


def test_autocast(scorer: FeatureScorer):
    features, mask = batch()
    exact = scorer.float()(features.float(), mask)
    with torch.autocast("cpu", torch.bfloat16):
        scores = scorer(features.float(), mask)
    assert (scores.float() - exact).abs().max() < 0.1 * exact.abs().max()


# what compiles is a layer of each kind: the rest of the scorers have fewer of them
@pytest.mark.parametrize(
    "name",
    [  # a second each to trace; that of attention has most kinds of layers
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("additive", "cross")),
        "attention-points",
    ],
)
def test_compiled(name: str):
    scorer = made(SCORERS[NAMES.index(name)])
    features, mask = batch()
    compiled = torch.compile(scorer, backend="aot_eager", fullgraph=True)
    results = [one(features, mask) for one in (compiled, scorer)]
    gradients = [
        torch.autograd.grad(scores.square().sum(), [*scorer.parameters()], materialize_grads=True)
        for scores in results
    ]
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        *(("additive-none", "torch"), ("cross-none", "torch"), ("attention-points", "torch")),
        # seconds each to translate; the tests of the exports have others to ONNX
        pytest.param("attention-points", "onnx", marks=pytest.mark.slow),
        pytest.param("additive", "onnx", marks=pytest.mark.slow),
        pytest.param("cross", "onnx", marks=pytest.mark.slow),
    ],
)
def test_export(name: str, to: Literal["onnx", "torch"], tmp_path: Path):
    transform = TableTransform(Standardize()).fit(np.random.default_rng(0).normal(size=(50, D)))
    model = RankingModel(made(SCORERS[NAMES.index(name)]).float(), transform)
    assert export_model(model, tmp_path / "model", to=to).difference < 1e-5


def test_configuration(scorer: FeatureScorer):
    again = from_config(to_config(scorer))
    assert to_config(again) == to_config(scorer)
    features, mask = batch()
    again.build(D)  # of one that has its width from `build`
    again.double().eval().load_state_dict(scorer.state_dict())
    assert torch.equal(again(features, mask), scorer(features, mask))


@pytest.mark.parametrize(
    "name",
    [  # the others of a class train as these do
        pytest.param(n, marks=[] if n in ("additive", "cross", "attention") else [pytest.mark.slow])
        for n in NAMES[4:]
        if n != "monotone"  # tests/estimators/test_monotone.py has it, as NeuralRanker makes it
    ],
)
def test_in_neural_ranker(name: str, tmp_path: Path):
    make = SCORERS[NAMES.index(name)]
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 3)), np.arange(300) // 10
    y = (X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0)
    ranker = NeuralRanker(
        scorer=make(), members=2, max_epochs=12, learning_rate=1e-2, verbose=0, random_state=0
    )
    ranker.fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid])
    assert ranker.score(X, y, qid=qid) > 0.8
    ranker.save(tmp_path)
    again = NeuralRanker.load(tmp_path).predict(X, qid=qid)
    np.testing.assert_array_equal(again, ranker.predict(X, qid=qid))


@pytest.mark.parametrize("make", SCORERS)
def test_the_width_can_come_later(make: Callable[..., FeatureScorer]):
    later = make()
    assert not list(later.parameters())
    with pytest.raises(ValueError, match="num_features must"):
        later(torch.zeros(2, 3, D))
    torch.manual_seed(3)
    later.build(D)
    torch.manual_seed(3)
    now = make(num_features=D)
    assert [k for k, _ in later.named_parameters()] == [k for k, _ in now.named_parameters()]
    torch.testing.assert_close(dict(later.state_dict()), dict(now.state_dict()), rtol=0, atol=0)
    parameters = list(later.parameters())
    later.build(D)  # weights stay
    assert all(a is b for a, b in zip(parameters, later.parameters(), strict=True))
    if isinstance(later, MonotoneScorer):  # its directions have this width
        return
    later.build(np.int64(D + 1))  # a checkpoint of another width
    assert later(torch.zeros(2, D + 1)).shape == (2,)
    assert type(later.num_features) is int  # a checkpoint must hold plain values


def test_cross_layers_are_those_of_the_paper():
    scorer = CrossScorer(D, hidden=(), crosses=2, rank=3)
    state = dict(scorer.layers.named_parameters()) if scorer.layers is not None else {}
    features = torch.randn(7, D)
    x = features
    for i in range(2):
        down, up, bias = (
            state[f"crosses.{i}.{n}"] for n in ("down.weight", "up.weight", "up.bias")
        )
        x = features * ((up @ down) @ x.T + bias[:, None]).T + x  # equations 1 and 3
    expected = x @ state["deep.0.weight"].T + state["deep.0.bias"]
    torch.testing.assert_close(scorer(features), expected.squeeze(-1))


@pytest.mark.parametrize("name", ["crosses", "rank"])
def test_cross_layers_need_whole_numbers(name: str):
    for value in (0, 1.5, True):
        with pytest.raises(ValueError, match=rf"{name} must be a whole number >= 1, got {value}"):
            CrossScorer(**{name: value})


def test_dropout_only_in_training():
    scorer = MLPScorer(D, dropout=0.5)
    x = torch.randn(4, 3, D)
    assert not torch.equal(scorer(x), scorer(x))
    scorer.eval()
    assert torch.equal(scorer(x), scorer(x))


def test_images():
    images = torch.arange(24.0).reshape(1, 3, 2, 4)
    mask = torch.tensor([[True, True, False]])
    assert MeanImage()(images, mask).tolist() == [[3.5, 11.5, 0.0]]
    MeanImage().build(64)  # does not depend on it


def test_errors():
    features, mask = batch()
    scorer = LinearScorer(D).double()
    with pytest.raises(ValueError, match=r"mask.*.* \(6,\)"):
        scorer(features, mask[0])
    with pytest.raises(ValueError, match="mask must"):
        scorer(features, mask.double())
    with pytest.raises(ValueError, match=r"features.*4"):
        scorer(features[..., :4])
    with pytest.raises(ValueError, match="features must"):
        scorer(features[0, 0])
    with pytest.raises(ValueError, match=r"features.*torch\.int64"):
        scorer(features.long())
    with pytest.raises(ValueError, match=r"features.*ndarray"):
        scorer(features.numpy())
    with pytest.raises(ValueError, match=r"num_features.*4"):
        scorer.build(4)
    with pytest.raises(ValueError, match=r"num_features.*0"):
        LinearScorer(0)
    for kind in (MLPScorer, AdditiveScorer, AttentionScorer):
        with pytest.raises(ValueError, match=r"hidden.*\(8, 0\)"):
            kind(hidden=(8, 0))
        with pytest.raises(ValueError, match=r"dropout.*1.0"):
            kind(dropout=1.0)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"heads": 0}, "heads must be >= 1, got 0"),
        ({"heads": 3}, r"hidden must end in a width that heads=3 divides, got \(128, 64\)"),
        ({"hidden": ()}, r"hidden must end in a width that heads=4 divides, got \(\)"),
        ({"blocks": 1.5}, "blocks must be a whole number >= 1, got 1.5"),
        ({"points": 0}, "points must be >= 1, got 0"),
    ]
    for wrong, message in bad:
        with pytest.raises(ValueError, match=message):
            AttentionScorer(**wrong)
    for number in ("3", 2.5, True):
        with pytest.raises(ValueError, match="num_features must"):
            LinearScorer(number)
    for hidden in ((8, 0), (8, None), 8, "8", (2.5,)):
        with pytest.raises(ValueError, match="hidden must"):
            MLPScorer(hidden=hidden)
    for dropout in (1.0, "0.1", None):
        with pytest.raises(ValueError, match=r"dropout must"):
            MLPScorer(dropout=dropout)
    for activation in ("relu", nn.ReLU(), int):
        with pytest.raises(ValueError, match=r"activation must"):
            MLPScorer(activation=activation)
    with pytest.raises(NotImplementedError, match="must define score"):
        Scorer()(features)

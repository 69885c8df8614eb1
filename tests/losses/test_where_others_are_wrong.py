"""Errors of other libraries' losses: a test for each row of the table in docs/from-lightgbm.md.

The tests of padding, of labels of 31 and more, and of long lists in p-ListMLE are in
test_properties.py and test_listwise.py.
"""

import re
from functools import partial
from itertools import chain, permutations
from math import exp, log2
from pathlib import Path

import pytest
import torch
from loss_variants import losses
from pairwise import named

from ltr.losses import (
    ARPLoss1,
    ARPLoss2,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    Distillation,
    KNNLoss,
    LambdaLoss,
    ListMLE,
    ListNet,
    NDCGLoss1,
    NDCGLoss2,
    NDCGLoss2PP,
    NeuralNDCG,
    PairwiseExponential,
    PairwiseHinge,
    PairwiseMSE,
    PermutationCrossEntropy,
    PiRank,
    PListMLE,
    PointwiseMSE,
    PointwiseOrdinal,
    PointwiseSigmoid,
    PolyOneSoftmax,
    RankNet,
    SoftmaxLoss,
    SoftNDCG,
    TopKCrossEntropy,
    UniqueSoftmax,
)
from ltr.operators import HardRank, SoftSort, Stochastic

GAINS = {"exp2": lambda y: 2**y - 1, "linear": lambda y: y, "square": lambda y: y**2}
BY_GAINS = {
    "SoftNDCG": lambda gain, top_k: SoftNDCG(HardRank(), top_k, gain, mean="arithmetic"),
    "NeuralNDCG": lambda gain, top_k: NeuralNDCG(SoftSort(0), top_k, gain=gain),
    "transposed": lambda gain, top_k: NeuralNDCG(SoftSort(0), top_k, True, gain=gain),
    "scaled": lambda gain, top_k: NeuralNDCG(SoftSort(0), top_k, True, 5, gain=gain),
    "PiRank": lambda gain, top_k: PiRank(SoftSort(0), top_k, gain),
}
# unbounded losses, by logarithms or powers: all but the metrics on soft ranks and the soft 0-1
WITHOUT_END = [
    RankNet(),
    PairwiseHinge(),
    PairwiseExponential(),
    PairwiseMSE(),
    *(
        LambdaLoss(weights)
        for weights in [
            DeltaNDCG(),
            NDCGLoss1(),
            NDCGLoss2(),
            NDCGLoss2PP(),
            ARPLoss1(),
            ARPLoss2(),
            DeltaMAP(),
            DeltaMRR(),
            DeltaPrecision(1),
        ]
    ),
    SoftmaxLoss(),
    ListNet(),
    PolyOneSoftmax(),
    UniqueSoftmax(),
    ListMLE(),
    PListMLE(),
    PointwiseMSE(),
    PointwiseSigmoid(),
    PointwiseOrdinal(),
    Distillation(),
    TopKCrossEntropy(distribution=[1.0]),
    PermutationCrossEntropy(),
    KNNLoss(top_k=1, form="log"),
]


def dcg(labels, gain, top_k):
    positions = enumerate(labels[:top_k], 1)
    return sum(gain(label) / log2(1 + position) for position, label in positions)


@pytest.mark.parametrize("name", BY_GAINS)
@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("top_k", [None, 2])
def test_ideal_and_actual_dcg_share_one_gain(name, gain, top_k):
    function = GAINS[gain]
    loss = BY_GAINS[name](function if gain == "square" else gain, top_k)
    labels = [1.0, 3.0, 0.0, 2.5]  # in the order of descending scores
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    best = dcg(sorted(labels, reverse=True), function, top_k)
    expected = 1 - dcg(labels, function, top_k) / best
    y = torch.tensor(labels, dtype=torch.float64)
    assert loss(scores, y).item() == pytest.approx(expected, abs=1e-12)
    assert loss(y, y).item() == pytest.approx(0, abs=1e-12)


@losses(named(0.0, 2.0), arguments="make, grade")
def test_a_batch_without_a_pair_or_a_relevant_item_has_a_graph_and_no_nan(make, grade):
    scores = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for options in ({}, {"mask": torch.arange(5).expand(2, 5) < 3}):
        loss = make()(scores, torch.full((2, 5), grade), **options)
        (grad,) = torch.autograd.grad(loss, scores)
        assert loss.isfinite()
        assert grad.isfinite().all()


@pytest.mark.parametrize("gap", [25.0, 60.0, 120.0])
@pytest.mark.parametrize("loss", WITHOUT_END, ids=lambda loss: type(loss).__name__)
def test_a_pair_that_is_wrong_by_much_has_a_gradient(loss, gap):
    scores = torch.tensor([0.0, gap], requires_grad=True)
    loss(scores, torch.tensor([1.0, 0.0])).backward()
    assert scores.grad[0] < 0
    assert 0.4 < scores.grad[1] < torch.inf  # a pointwise loss sees the error at the item itself


@losses(named(25.0, 60.0, 90.0, 120.0, -90.0, -120.0), arguments="make, gap")
def test_no_gap_makes_inf_or_nan(make, gap):
    scores = torch.tensor([0.0, gap, 2 * gap], requires_grad=True)
    loss = make()(scores, torch.tensor([2.0, 0.0, 1.0]))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


def expected_ndcg(scores, labels):
    """Return the mean NDCG over all orders, with their Plackett-Luce probabilities."""
    total, items = 0.0, range(len(scores))
    best = dcg(sorted(labels, reverse=True), GAINS["exp2"], None)
    for order in permutations(items):
        chance, left = 1.0, sum(exp(s) for s in scores)
        for i in order:
            chance, left = chance * exp(scores[i]) / left, left - exp(scores[i])
        total += chance * dcg([labels[i] for i in order], GAINS["exp2"], None) / best
    return total


@pytest.mark.parametrize("kind", [partial(SoftNDCG, mean="arithmetic"), NeuralNDCG])
def test_stochastic_losses_have_the_right_mean_on_ragged_lists(kind):
    scores = [[0.5, -0.3, 1.1, 0.0], [0.2, 0.9], [1.5, -0.5, 0.0]]
    labels = [[2.0, 1.0, 0.0, 3.0], [1.0, 0.0], [0.0, 1.0, 1.0]]
    wanted = [1 - expected_ndcg(s, y) for s, y in zip(scores, labels, strict=True)]
    samples = 20_000
    operator = Stochastic(SoftSort(0), samples, generator=torch.Generator().manual_seed(0))
    loss = kind(operator, reduction="none")
    lengths = torch.tensor([4, 2, 3])
    flat = [torch.tensor([*chain(*lists)]) for lists in (scores, labels)]
    mask = torch.arange(6) < lengths.unsqueeze(-1)  # with two columns of padding in all lists
    padded = [torch.full((3, 6), 99.0).masked_scatter(mask, x) for x in flat]
    error = 5 * 0.5 / samples**0.5  # five standard deviations; one draw has at most 1/2
    assert loss(*flat, lengths=lengths).tolist() == pytest.approx(wanted, abs=error)
    assert loss(*padded, mask).tolist() == pytest.approx(wanted, abs=error)


def test_labels_of_31_and_more_and_float_labels_by_the_formula():
    labels = [31.0, 40.5, 200.0, 0.0, 199.25]
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    best = dcg(sorted(labels, reverse=True), GAINS["exp2"], None)
    expected = 1 - dcg(labels, GAINS["exp2"], None) / best
    for name in BY_GAINS:
        found = BY_GAINS[name]("exp2", None)(scores, torch.tensor(labels))
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_the_page_names_existing_tests():
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "from-lightgbm.md").read_text()
    code = "".join(file.read_text() for file in here.glob("test_*.py"))
    names = set(re.findall(r"`(test_\w+)`", page))
    assert len(names) >= 10
    assert {name for name in names if f"def {name}(" not in code} == set()

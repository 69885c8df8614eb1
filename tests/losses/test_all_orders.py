"""Every loss with weights, over all orders of four items.

A new loss is found by its name. If some order is the best, a line in CASES says which.

Each kind of loss has properties in hard orders (hard ranks, and scores that are 200 apart):

- All losses are >= 0 in every order, and do not depend on the order of the items.
- `ideal`: the loss is 0 if the scores have the order of a key of labels and weights. If `strict`,
  it is above 0 in every other order. This holds for metrics on hard ranks, and for pairwise losses,
  which tend to 0 as the gaps of a right order grow.
- `least`: as `ideal`, but the least value is not 0. This holds for metrics without `normalize`, and
  for top-k losses with more relevant items than positions.
- `fitted`: the loss is 0 at certain scores, since it asks for numbers and not only for an order.
  This holds for softmax losses (the scores give the labels' shares), for pointwise losses, and for
  ListMLE, which asks for equal scores of equal labels.
- None of these, or no line in CASES: only the first property holds. Penalties on exposure have no
  ideal order. For `ARPLoss1`, `NDCGLoss1` (both orders of a pair count), `PolyOneSoftmax` and
  `PointwiseOrdinal` the least value belongs to no order.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from loss_table import LOSSES
from pairwise import together
from torch import Tensor

import ltr.losses
from ltr.losses import (
    XENDCG,
    ApproxNDCG,
    ARPLoss1,
    ARPLoss2,
    CalibratedSoftmax,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    Distillation,
    ExposureParity,
    KNNLoss,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    ListMLE,
    ListNet,
    NDCGLoss1,
    NDCGLoss2,
    NDCGLoss2PP,
    NeuralNDCG,
    PairwiseDCGHinge,
    PairwiseExponential,
    PairwiseHinge,
    PairwiseLoss,
    PairwiseMSE,
    PairwiseSoftZeroOne,
    Penalized,
    PermutationCrossEntropy,
    PiRank,
    PListMLE,
    PointwiseHuber,
    PointwiseMSE,
    PointwiseSigmoid,
    QuantileLoss,
    RankingLoss,
    RankNet,
    SoftERR,
    SoftMAP,
    SoftmaxLoss,
    SoftMRR,
    SoftNDCG,
    SoftPrecision,
    SoftRecall,
    SpearmanLoss,
    TopKCrossEntropy,
    TopKLoss,
    Unbiased,
    UniqueSoftmax,
)
from ltr.operators import HardRank, SoftSort

Key = Callable[[Tensor, Tensor], Tensor]
HARD = HardRank()
SORT = SoftSort(0)


class Case(NamedTuple):
    loss: RankingLoss
    ideal: Key | None = None  # the loss is 0 in the order of this key
    least: Key | None = None  # the loss is least in the order of this key
    fitted: Key | None = None  # the loss is 0 at these scores
    strict: bool = False  # the loss is larger in every other order


def by_label(y, w):
    return y


def relevant(y, w):
    return (y > 0).double()


def heavy(y, w):  # the relevant items, by weight
    return relevant(y, w) * w


def exp2(y, w):
    return (torch.exp2(y) - 1) * w


def linear(y, w):
    return y * w


def stops(y, w, top=None):
    top = y.amax(-1, keepdim=True) if top is None else top
    return 1 - (1 - (torch.exp2(y) - 1) / 2**top) ** w


def stops_of_5(y, w):
    return stops(y, w, 5.0)


def voters(y, w):  # all items of the class, then the others with the lightest first
    return torch.where(y > 0, 100 + w, -w)


def far_apart(y, w):  # labels first; equal labels by their shares of weight
    return 200 * y + w.log()


def shares(function):  # logarithms of shares, -1000 for a share of 0
    return lambda y, w: function(y, w).log().clamp(min=-1000)


def raised(y, w):
    return w * (torch.exp2(y) - 0.5)


CASES = {
    "SoftNDCG": Case(SoftNDCG(HARD, mean="arithmetic"), exp2, strict=True),
    "SoftNDCG-harmonic": Case(SoftNDCG(HARD, mean="harmonic"), exp2, strict=True),
    "SoftNDCG-regret": Case(SoftNDCG(HARD, mean="regret"), exp2, strict=True),
    "SoftNDCG-linear": Case(SoftNDCG(HARD, gain="linear", mean="arithmetic"), linear, strict=True),
    "SoftNDCG@2": Case(SoftNDCG(HARD, 2, mean="arithmetic"), exp2),
    "ApproxNDCG": Case(ApproxNDCG(), exp2, strict=True),
    "SoftMRR": Case(SoftMRR(HARD), heavy),
    "SoftMRR@2": Case(SoftMRR(HARD, 2), heavy),
    "SoftMAP": Case(SoftMAP(HARD), relevant, strict=True),
    "SoftMAP@2": Case(SoftMAP(HARD, 2), heavy),
    "SoftERR": Case(SoftERR(HARD), stops, strict=True),
    "SoftERR@2": Case(SoftERR(HARD, 2), stops),
    "SoftERR-raw": Case(SoftERR(HARD, None, 5, False), least=stops_of_5, strict=True),
    "SoftPrecision": Case(SoftPrecision(HARD, 2), heavy),
    "SoftPrecision-raw": Case(SoftPrecision(HARD, 2, False), least=heavy),
    "SoftRecall": Case(SoftRecall(HARD, [1, 3]), heavy),
    "SoftRecall-raw": Case(SoftRecall(HARD, 2, False), least=heavy),
    "SpearmanLoss": Case(SpearmanLoss(HARD), by_label, strict=True),
    "SpearmanLoss-sigmoids": Case(SpearmanLoss(), by_label, strict=True),
    "SpearmanLoss-raw": Case(SpearmanLoss(HARD, False), least=by_label, strict=True),
    "NeuralNDCG": Case(NeuralNDCG(), exp2, strict=True),
    "NeuralNDCG@2": Case(NeuralNDCG(SORT, 2), exp2),
    "NeuralNDCG-transposed": Case(NeuralNDCG(transposed=True), exp2, strict=True),
    "NeuralNDCG-scaled": Case(NeuralNDCG(scaling=5), exp2, strict=True),
    "NeuralNDCG-both": Case(NeuralNDCG(transposed=True, scaling=5), exp2, strict=True),
    "PiRank": Case(PiRank(), exp2, strict=True),
    "TopKLoss": Case(TopKLoss(HARD), least=heavy, strict=True),
    "TopKLoss-hard-cutoff": Case(TopKLoss(HARD, 2, "cutoff"), least=heavy),
    "TopKCrossEntropy": Case(TopKCrossEntropy(), least=heavy, strict=False),
    "QuantileLoss": Case(QuantileLoss(), by_label),
    "QuantileLoss-0.3": Case(QuantileLoss(SORT, 0.3), by_label),
    "PermutationCrossEntropy": Case(PermutationCrossEntropy(), by_label, strict=True),
    "KNNLoss": Case(KNNLoss(SORT, 2), least=voters),
    "KNNLoss-log": Case(KNNLoss(SORT, 2, "log"), least=voters),
    "ExposureParity": Case(ExposureParity(HARD)),
    "Penalized": Case(Penalized(SoftNDCG(HARD, mean="arithmetic"), ExposureParity(HARD))),
    "RankNet": Case(RankNet(), by_label, strict=True),
    "RankNet-sum": Case(RankNet(normalize=False), by_label, strict=True),
    "PairwiseHinge": Case(PairwiseHinge(), by_label, strict=True),
    "PairwiseLoss": Case(PairwiseLoss(), by_label, strict=True),
    "PairwiseSoftZeroOne": Case(PairwiseSoftZeroOne(), by_label, strict=True),
    "PairwiseExponential": Case(PairwiseExponential(), by_label, strict=True),
    "PairwiseDCGHinge": Case(PairwiseDCGHinge(), by_label, strict=True),
    "PairwiseMSE": Case(PairwiseMSE(), fitted=by_label),
    "LambdaRank": Case(LambdaRank(), by_label, strict=True),
    "LambdaRank@3": Case(LambdaRank(3), by_label),
    "LambdaLoss-NDCGLoss2PP": Case(LambdaLoss(NDCGLoss2PP()), by_label, strict=True),
    "LambdaLoss-NDCGLoss2": Case(LambdaLoss(NDCGLoss2()), by_label, strict=True),
    "LambdaLoss-NDCGLoss2@3": Case(LambdaLoss(NDCGLoss2(3)), by_label),
    "LambdaLoss-DeltaNDCG": Case(LambdaLoss(DeltaNDCG(2, "any")), by_label),
    "LambdaLoss-DeltaMAP": Case(LambdaLoss(DeltaMAP()), relevant, strict=True),
    "LambdaLoss-DeltaMRR": Case(LambdaLoss(DeltaMRR()), relevant),
    "LambdaLoss-DeltaPrecision": Case(LambdaLoss(DeltaPrecision(2)), relevant),
    "LambdaLoss-LabelDifference": Case(LambdaLoss(LabelDifference()), by_label, strict=True),
    "LambdaLoss-ARPLoss2": Case(LambdaLoss(ARPLoss2()), by_label, strict=True),
    "LambdaLoss-ARPLoss1": Case(LambdaLoss(ARPLoss1())),
    "LambdaLoss-NDCGLoss1": Case(LambdaLoss(NDCGLoss1())),
    "UniqueSoftmax": Case(UniqueSoftmax(), by_label, strict=True),
    "UniqueSoftmax-sum": Case(UniqueSoftmax("linear", False), by_label, strict=True),
    "SoftmaxLoss": Case(SoftmaxLoss(), fitted=shares(linear)),
    "SoftmaxLoss-raw": Case(SoftmaxLoss(normalize=False), fitted=shares(linear)),
    "ListNet": Case(ListNet(), fitted=shares(lambda y, w: w * y.exp())),
    "XENDCG": Case(XENDCG(), fitted=shares(raised)),
    "CalibratedSoftmax": Case(CalibratedSoftmax(), fitted=shares(linear)),
    "ListMLE": Case(ListMLE(), fitted=far_apart),
    "ListMLE@2": Case(ListMLE(2), fitted=far_apart),
    "PListMLE": Case(PListMLE(), fitted=far_apart),
    "PListMLE-log2": Case(PListMLE("log2"), fitted=far_apart),
    "PointwiseMSE": Case(PointwiseMSE(), fitted=by_label),
    "PointwiseHuber": Case(PointwiseHuber(), fitted=by_label),
    "PointwiseSigmoid": Case(PointwiseSigmoid(), fitted=lambda y, w: 200 * (y - 0.5)),
    "Distillation": Case(Distillation(), fitted=by_label),
}
# Unbiased is tested below, with `position`: by default the order of the items is what was shown
tested = {type(case.loss) for case in CASES.values()} | {Unbiased}
CASES |= {name: Case(kind()) for name, kind in LOSSES.items() if kind not in tested}
SHOWN = torch.tensor([3.0, 1.0, 4.0, 2.0], dtype=torch.float64)
ORDERS = torch.tensor([*itertools.permutations(range(4))])
LABELS = [[3, 1, 0, 2], [1, 0, 1, 0], [1, 2, 1, 0], [1, 1, 1, 0], [0, 0, 3, 0], [2, 2, 2, 2]]
WEIGHTS = [
    [1.0, 1.0, 1.0, 1.0],
    [1.0, 0.1, 0.5, 0.5],
    [0.1, 10.0, 1.0, 3.0],
    [7.0, 0.2, 0.3, 2.0],
]
WITH_0 = [0.0, 1.0, 2.0, 0.0]


def for_each(names: Iterable[str]) -> Callable[..., Callable[..., None]]:
    """Call a test with each name, all in one test."""
    return together("name", {name: (name,) for name in names})


cases = for_each(CASES)


def each(loss: RankingLoss, scores: Tensor, labels: Tensor, weights: Tensor, **extra) -> Tensor:
    values = ltr.losses.fairness.unreduced(loss)(scores, labels, None, weights, **extra)
    assert values.shape == scores.shape[:1]
    return values


def lists(weights=WEIGHTS):
    """Yield scores, labels and weights (24, 4) of each list, with scores in all 24 orders."""
    scores = torch.zeros(24, 4, dtype=torch.float64)
    positions = 200 * torch.arange(4, 0, -1, dtype=torch.float64)
    scores = scores.scatter(1, ORDERS, positions.expand(24, 4))
    for y, w in itertools.product(LABELS, weights):
        y, w = (torch.tensor(x, dtype=torch.float64).expand(24, 4) for x in (y, w))
        yield scores, y, w


def in_order(key: Tensor) -> Tensor:
    """Return whether the items, in the order of `ORDERS`, have descending keys."""
    ranked = key.gather(1, ORDERS)
    return (ranked[:, :-1] >= ranked[:, 1:] - 1e-12).all(-1)


@cases
def test_no_order_is_below_0(name):
    scores, y, w = map(torch.cat, zip(*lists([*WEIGHTS, WITH_0]), strict=True))
    assert (each(CASES[name].loss, scores, y, w) >= -1e-12).all()
    assert (each(CASES[name].loss, scores / 1000, y, w) >= -1e-12).all()


@cases
def test_the_order_of_the_items_does_not_matter(name):
    scores = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.float64)
    y, w = (
        torch.tensor(x, dtype=torch.float64)
        for x in zip(*itertools.product(LABELS, [*WEIGHTS, WITH_0]), strict=True)
    )
    columns = (x[:, ORDERS].flatten(0, 1) for x in (scores.expand_as(y), y, w))
    found = each(CASES[name].loss, *columns).unflatten(0, (len(y), 24))
    torch.testing.assert_close(found, found[:, :1].expand_as(found), rtol=1e-9, atol=1e-12)


@for_each(name for name, case in CASES.items() if case.ideal or case.least)
def test_an_order_by_the_key_is_the_best(name):
    loss, ideal, least, _, strict = CASES[name]
    for scores, y, w in lists():
        found = each(loss, scores, y, w)
        right = in_order((ideal or least)(y, w))
        best = found.min() if least else torch.zeros(()).double()
        torch.testing.assert_close(found[right], best.expand(right.sum()), rtol=0, atol=1e-9)
        if strict:
            assert (found[~right] > best + 1e-10).all()


@for_each(name for name, case in CASES.items() if case.fitted)
def test_certain_scores_cost_nothing(name):
    case = CASES[name]
    for _, y, w in lists():
        found = each(case.loss, case.fitted(y, w), y, w)
        torch.testing.assert_close(found, torch.zeros(24).double(), rtol=0, atol=1e-9)


def test_unbiased_losses_weight_items_by_their_position():
    loss, position = Unbiased(SoftNDCG(HARD, mean="arithmetic")), SHOWN.expand(24, 4)
    for scores, y, w in lists():
        found = each(loss, scores, y, w, position=position)
        right = in_order(exp2(y, w) * SHOWN)
        assert (found[right].abs() < 1e-12).all()
        assert (found[~right] > 1e-6).all()
        moved = each(loss, *(x.gather(1, ORDERS) for x in (scores, y, w)), position=SHOWN[ORDERS])
        torch.testing.assert_close(moved, found)

"""The function form of each loss is its class, called: for padded and for ragged lists."""

import inspect

import pytest
import torch

import ltr.losses
from ltr.losses import PairCost, PairWeights
from ltr.operators import RankOperator, SoftSort

CLASSES = {
    "approx_ndcg_loss": "ApproxNDCG",
    "calibrated_softmax_loss": "CalibratedSoftmax",
    "distillation_loss": "Distillation",
    "exposure_parity_loss": "ExposureParity",
    "knn_loss": "KNNLoss",
    "lambda_loss": "LambdaLoss",
    "lambdarank_loss": "LambdaRank",
    "least_quantile_loss": "LeastQuantileRegression",
    "least_trimmed_loss": "LeastTrimmedSquares",
    "list_mle_loss": "ListMLE",
    "listnet_loss": "ListNet",
    "neural_ndcg_loss": "NeuralNDCG",
    "p_list_mle_loss": "PListMLE",
    "pairwise_dcg_hinge_loss": "PairwiseDCGHinge",
    "pairwise_exponential_loss": "PairwiseExponential",
    "pairwise_hinge_loss": "PairwiseHinge",
    "pairwise_loss": "PairwiseLoss",
    "pairwise_mse_loss": "PairwiseMSE",
    "pairwise_soft_zero_one_loss": "PairwiseSoftZeroOne",
    "penalized_loss": "Penalized",
    "permutation_cross_entropy": "PermutationCrossEntropy",
    "pirank_loss": "PiRank",
    "pointwise_huber_loss": "PointwiseHuber",
    "pointwise_mse_loss": "PointwiseMSE",
    "pointwise_ordinal_loss": "PointwiseOrdinal",
    "pointwise_sigmoid_loss": "PointwiseSigmoid",
    "poly_one_softmax_loss": "PolyOneSoftmax",
    "quantile_loss": "QuantileLoss",
    "ranknet_loss": "RankNet",
    "soft_err_loss": "SoftERR",
    "soft_map_loss": "SoftMAP",
    "soft_mrr_loss": "SoftMRR",
    "soft_ndcg_loss": "SoftNDCG",
    "soft_precision_loss": "SoftPrecision",
    "soft_recall_loss": "SoftRecall",
    "softmax_loss": "SoftmaxLoss",
    "spearman_loss": "SpearmanLoss",
    "top_k_cross_entropy": "TopKCrossEntropy",
    "top_k_loss": "TopKLoss",
    "unbiased_loss": "Unbiased",
    "unique_softmax_loss": "UniqueSoftmax",
    "xe_ndcg_loss": "XENDCG",
}


def losses() -> dict[str, object]:
    """The functions of `ltr.losses` that reduce lists to a number."""
    found = {name: getattr(ltr.losses, name) for name in ltr.losses.__all__}
    found = {name: f for name, f in found.items() if inspect.isfunction(f)}
    return {n: f for n, f in found.items() if "reduction" in inspect.signature(f).parameters}


def test_every_loss_is_a_class_and_a_function():
    functions = losses()
    assert not functions.keys() - CLASSES.keys()
    for name, value in vars(ltr.losses).items():
        if inspect.isclass(value) and issubclass(value, ltr.losses.RankingLoss):
            has_one = name == "RankingLoss" or any(
                CLASSES[function] == name for function in functions
            )
            assert has_one, name


@pytest.mark.parametrize("name", losses())
def test_a_function_is_its_class_called(name):
    function, loss = losses()[name], getattr(ltr.losses, CLASSES[name])(reduction="none")
    generator = torch.Generator().manual_seed(0)
    scores, weights = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (12,), generator=generator).double()
    lengths = torch.tensor([3, 0, 5, 4])
    given = {"weights": weights.abs(), "lengths": lengths}
    expected = loss(scores, labels, **given)
    assert expected.shape == (4,)
    assert torch.equal(function(scores, labels, **given, reduction="none"), expected)
    total = function(scores, labels, **given, reduction="sum")
    torch.testing.assert_close(total, expected.sum())

    mask = torch.arange(6) < torch.tensor([[6], [4]])
    scores, labels = scores.view(2, 6), labels.view(2, 6)
    expected = loss(scores, labels, mask)
    assert torch.equal(function(scores, labels, mask, reduction="none"), expected)
    with pytest.raises(ValueError, match="mask must be None if lengths are given"):
        function(scores, labels, mask, lengths=lengths)


def test_what_only_some_take():
    scores, labels = torch.tensor([0.3, 0.1, 0.2, 0.9]), torch.tensor([1.0, 0.0, 0.0, 2.0])
    lengths, groups = torch.tensor([2, 2]), torch.tensor([0, 1, 1, 0])
    given = {"lengths": lengths, "groups": groups}
    expected = ltr.losses.Penalized(strength=0.5)(scores, labels, **given)
    assert ltr.losses.penalized_loss(scores, labels, **given, strength=0.5) == expected
    expected = ltr.losses.QuantileLoss()(scores, labels, lengths=lengths, values=labels)
    found = ltr.losses.quantile_loss(scores, labels, lengths=lengths, values=labels)
    assert found == expected
    shown = torch.tensor([2, 1, 1, 2])
    expected = ltr.losses.Unbiased()(scores, labels, lengths=lengths, shown=shown)
    assert ltr.losses.unbiased_loss(scores, labels, lengths=lengths, shown=shown) == expected


# what a function makes when no object is given: an operator, a cost or weights of pairs
PARTS = (RankOperator, PairCost, PairWeights)
GIVEN = {
    "penalized_loss": {
        "loss": ltr.losses.SoftNDCG(SoftSort()),
        "penalty": ltr.losses.ExposureParity(SoftSort()),
    },
    "unbiased_loss": {"loss": ltr.losses.SoftNDCG(SoftSort()), "bias": ltr.losses.PositionBias()},
}


@pytest.mark.parametrize("name", losses())
def test_a_function_makes_no_loss_module(monkeypatch, name):
    scores, labels = torch.randn(3, 5), torch.randint(0, 3, (3, 5)).float()
    function, lengths = losses()[name], [7, 8]
    options = GIVEN.get(name, {})
    if "operator" in inspect.signature(function).parameters:
        options = {"operator": SoftSort()}
    expected = function(scores, labels, **options)
    make = torch.nn.Module.__init__

    def refuse(self, *args, **kwargs):
        assert isinstance(self, PARTS), f"a {type(self).__name__} was made"
        assert not options, f"a {type(self).__name__} was made, and objects were given"
        make(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    assert function(scores, labels, **options) == expected
    assert function(scores.view(-1), labels.view(-1), lengths=lengths, **options).isfinite()
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'none', got 'max'"):
        function(scores, labels, reduction="max", **options)

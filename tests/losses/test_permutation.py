"""The cross-entropy for sorting compared with the matrix, and over all orders."""

import itertools

import pytest
import torch

from ltr.kernels import use
from ltr.losses import PermutationCrossEntropy
from ltr.losses.permutation import true_order
from ltr.operators import (
    LapSum,
    NeuralSort,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    Stochastic,
)

OPERATORS = [SoftSort(0.3), NeuralSort(), LapSum(0.5), SortingNetwork(), SinkhornSort()]


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_by_the_formula(operator):
    scores, labels = draw(4, 5)
    found = PermutationCrossEntropy(operator, reduction="none")(scores, labels)
    for s, y, value in zip(scores, labels, found, strict=True):
        P, order = operator.permutation(s).dense(), y.argsort(descending=True)
        terms = [-P[i, order[i]].log() for i in range(5)]
        torch.testing.assert_close(value, sum(terms) / 5, rtol=0, atol=1e-9)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_the_order_of_the_scores_is_the_likeliest_of_all(operator):
    scores, _ = draw(4)
    loss = PermutationCrossEntropy(operator)
    best = min(
        itertools.permutations([1.0, 2.0, 3.0, 4.0]),
        key=lambda y: loss(scores, torch.tensor(y)).item(),
    )
    assert torch.tensor(best).argsort().tolist() == scores.argsort().tolist()


def test_equal_labels_may_be_in_any_order():
    scores, _ = draw(6)
    labels = torch.tensor([1.0, 0.0, 1.0, 2.0, 0.0, 1.0])
    found = PermutationCrossEntropy()(scores, labels)
    P = SoftSort().permutation(scores).dense()
    each = [
        -P[range(6), list(order)].log().mean()
        for order in itertools.permutations(range(6))
        if labels[list(order)].tolist() == labels.sort(descending=True).values.tolist()
    ]
    assert len(each) == 12
    torch.testing.assert_close(found, torch.stack(each).amin())
    shuffled = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    again = PermutationCrossEntropy()(scores[shuffled], labels[shuffled])
    torch.testing.assert_close(again, found)


def test_true_order_with_masks_and_extreme_values():
    labels = torch.tensor([[1.0, 2.0, 1.0, 9.0], [1.0, 1.0, 5.0, 5.0]])
    scores = torch.tensor([[0.0, 0.0, 3.0, torch.nan], [-torch.inf, 0.0, 1.0, 2.0]])
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    assert true_order(labels, scores, mask).tolist() == [[1, 2, 0, 3], [3, 2, 1, 0]]


@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0])
@pytest.mark.parametrize("operator", [SoftSort(), NeuralSort(0.1)], ids=repr)
def test_items_far_from_their_positions_have_gradients_and_no_inf(operator, gap):
    scores = torch.tensor([gap, 0.0], requires_grad=True)
    found = PermutationCrossEntropy(operator)(scores, torch.tensor([0.0, 1.0]))
    found.backward()
    assert found.isfinite()
    assert scores.grad[0] > 1
    assert scores.grad[1] < -1


def test_exact_zeros_are_finite():
    scores = torch.tensor([3.0, 2.0, 1.0], requires_grad=True)
    operator = SortingNetwork(distribution="optimal", temperature=1e-6)
    found = PermutationCrossEntropy(operator)(scores, torch.tensor([0.0, 1.0, 2.0]))
    found.backward()
    assert found.isfinite()
    assert scores.grad.isfinite().all()


def test_weights_are_those_of_the_items():
    scores, labels = draw(4)
    weights = torch.tensor([1.0, 2.0, 0.0, 5.0], dtype=torch.float64)
    order = labels.argsort(descending=True)
    log_p = SoftSort().permutation(scores).log_prob(order)
    expected = -(weights[order] * log_p).sum() / 8
    found = PermutationCrossEntropy()(scores, labels, weights=weights)
    torch.testing.assert_close(found, expected)


def test_samples_are_averaged():
    scores, labels = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SoftSort(), samples=4, generator=generator)
    found = PermutationCrossEntropy(operator)(scores, labels)
    generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores)
    expected = PermutationCrossEntropy()(noisy, labels.expand(4, 3, 5))
    torch.testing.assert_close(found, expected)


def test_bad_arguments():
    with pytest.raises(ValueError, match="PermutationCrossEntropy needs a permutation"):
        PermutationCrossEntropy(SigmoidRank())
    with pytest.raises(ValueError, match=r"operator.*3"):
        PermutationCrossEntropy(SinkhornSort(milestones=3))(*draw(5))


@pytest.mark.parametrize("operator", [SoftSort(), NeuralSort()], ids=repr)
def test_no_matrix_is_built_or_kept(operator, monkeypatch):
    kept = []

    def keep(x):
        kept.append(x.numel())
        return x

    scores, labels = torch.randn(500, requires_grad=True), torch.randn(500)
    permutation = type(operator.permutation(scores))
    monkeypatch.setattr(permutation, "dense", None)
    monkeypatch.setattr(permutation, "log_dense", None)
    monkeypatch.setattr("ltr.operators.lazy_permutation.MOST_ELEMENTS", 0)  # as for a longer list
    with use("sums"), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = PermutationCrossEntropy(operator)(scores, labels)
    loss.backward()
    assert max(kept) < 500 * 100

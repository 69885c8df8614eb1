"""NeuralNDCG and PiRank compared with the matrix, the metric and the paper's scaling."""

import pytest
import torch

from ltr.losses import NeuralNDCG, PiRank
from ltr.losses.scaling import sinkhorn_scaled
from ltr.metrics.functional import ndcg
from ltr.operators import (
    DensePermutation,
    LapSum,
    NeuralSort,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    SortOperator,
    Stochastic,
    StraightThrough,
)

FORMS = pytest.mark.parametrize("transposed", [False, True])
OPERATORS = [NeuralSort(), SoftSort(0.5), LapSum(0.5), SortingNetwork()]


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 4, shape, generator=generator).double()


def by_matrix(matrix, labels, top_k):
    gains = 2**labels - 1
    positions = torch.arange(1, len(labels) + 1, dtype=torch.float64)
    discounts = torch.where(positions <= (top_k or len(labels)), 1 / torch.log2(1 + positions), 0.0)
    ideal = (gains.sort(descending=True).values * discounts).sum()
    return 1 - discounts @ matrix @ gains / ideal


@FORMS
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("top_k", [None, 1, 3, 10])
def test_by_the_formula(operator, top_k, transposed):
    scores, labels = draw(4, 6)
    loss = NeuralNDCG(operator, top_k, transposed, reduction="none")(scores, labels)
    for s, y, value in zip(scores, labels, loss, strict=True):
        expected = by_matrix(operator.permutation(s).dense(), y, top_k)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


@FORMS
@pytest.mark.parametrize("scaling", [0, 4])
@pytest.mark.parametrize("operator", [SoftSort(0), StraightThrough(SoftSort())], ids=repr)
@pytest.mark.parametrize("top_k", [None, 3])
def test_a_hard_permutation_makes_it_the_metric(operator, top_k, transposed, scaling):
    scores, labels = draw(20, 8)
    mask = torch.rand(20, 8, generator=torch.Generator().manual_seed(2)) < 0.8
    loss = NeuralNDCG(operator, top_k, transposed, scaling, reduction="none")(scores, labels, mask)
    metric = ndcg(scores, labels, mask=mask, top_k=top_k, empty=1, reduction="none")
    torch.testing.assert_close(1 - loss, metric)


def scaled(matrix, iterations, columns_last):
    """Return the matrix after Sinkhorn scaling, as published."""
    for _ in range(iterations):
        for axis in (-1, -2) if columns_last else (-2, -1):
            matrix = matrix / matrix.sum(axis, keepdim=True)
    return matrix


@FORMS
@pytest.mark.parametrize("top_k", [None, 2])
def test_scaling_is_the_papers(transposed, top_k):
    scores, labels = draw(5, 6)
    loss = NeuralNDCG(NeuralSort(2.0), top_k, transposed, 50, reduction="none")(scores, labels)
    for s, y, value in zip(scores, labels, loss, strict=True):
        matrix = scaled(NeuralSort(2.0).permutation(s).dense(), 50, transposed)
        torch.testing.assert_close(value, by_matrix(matrix, y, top_k), rtol=0, atol=1e-12)


@FORMS
def test_derivatives_go_through_the_scaling(transposed):
    scores, labels = draw(6)
    loss = NeuralNDCG(SoftSort(1.0), 3, transposed, scaling=3)
    one, other = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    loss(one, labels).backward()
    by_matrix(scaled(SoftSort(1.0).permutation(other).dense(), 3, transposed), labels, 3).backward()
    torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)


@FORMS
def test_scaled_rows_or_columns_sum_to_1_and_padding_stays_0(transposed):
    scores, _ = draw(3, 5)
    mask = torch.tensor([[True, False, True, True, True], [True] * 5, [False] * 5])
    found = sinkhorn_scaled(NeuralSort().permutation(scores, mask), 2, columns_last=transposed)
    sums = found.sum(-2 if transposed else -1)
    wanted = mask if transposed else torch.arange(5) < mask.sum(-1, keepdim=True)
    torch.testing.assert_close(sums, wanted.double())


def test_scaling_under_torchs_transforms():
    scores, labels = draw(3, 5)
    loss = NeuralNDCG(SoftSort(1.0), scaling=3)
    one = scores.clone().requires_grad_()
    NeuralNDCG(SoftSort(1.0), scaling=3, reduction="sum")(one, labels).backward()
    found = torch.func.vmap(torch.func.grad(loss))(scores, labels)
    torch.testing.assert_close(found, one.grad)


def test_scaling_keeps_no_matrix_for_each_iteration():
    def saved(iterations):
        kept = {}

        def keep(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        scores, labels = draw(2, 200)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = NeuralNDCG(scaling=iterations)(scores.requires_grad_(), labels)
        assert loss.requires_grad
        return sum(kept.values())

    matrix = 2 * 200 * 200 * 8
    assert saved(50) - saved(1) < 2 * matrix


def test_pirank_is_neural_ndcg_cut_at_10():
    scores, labels = draw(3, 20)
    expected = NeuralNDCG(SoftSort(0.3), top_k=10)(scores, labels)
    torch.testing.assert_close(PiRank(SoftSort(0.3))(scores, labels), expected)


def test_pirank_computes_only_the_first_rows():
    taken = []

    class Counted(DensePermutation):
        def top(self, k):
            taken.append(k)
            return super().top(k)

        def mv(self, v):
            assert self.rows == 3
            return super().mv(v)

    class Operator(SortOperator):
        def permutation(self, scores, mask=None, weights=None):
            tops = scores.sort(descending=True).values.unsqueeze(-1)
            logits = -(tops - scores.unsqueeze(-2)).abs()
            return Counted(logits.log_softmax(-1), scores, mask)

    scores, labels = draw(2, 20)
    found = PiRank(Operator(), top_k=3)(scores, labels)
    assert taken == [3]
    torch.testing.assert_close(found, PiRank(SoftSort(1.0), top_k=3)(scores, labels))


def test_samples_are_averaged():
    scores, labels = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(NeuralSort(), samples=4, generator=generator)
    for transposed in (False, True):
        for scaling in (0, 2):
            generator.manual_seed(1)
            loss = NeuralNDCG(operator, 3, transposed, scaling)(scores, labels)
            generator.manual_seed(1)
            noisy, _, _ = operator.transform(scores)
            plain = NeuralNDCG(NeuralSort(), 3, transposed, scaling)
            torch.testing.assert_close(loss, plain(noisy, labels.expand(4, 3, 5)))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"NeuralNDCG needs a permutation.*got SigmoidRank"):
        NeuralNDCG(SigmoidRank())
    with pytest.raises(ValueError, match=r"scaling.*-1"):
        NeuralNDCG(scaling=-1)
    with pytest.raises(ValueError, match=r"operator.*2"):
        NeuralNDCG(SinkhornSort(milestones=2))(*draw(6))

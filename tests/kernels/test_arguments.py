"""Wrong arguments of the engine's public functions: one ValueError that names the argument."""

import pytest
import torch

from ltr.kernels.lists import pad_lists, sort_lists, sort_ragged
from ltr.kernels.named import gaussian, laplace, survival
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.kernels.two_sets import kernel_sums_at
from ltr.operators import LaplaceRank, NeuralSort, SigmoidRank

SCORES, ONES = torch.tensor([[0.3, 0.1, 0.2], [1.0, 0.0, 2.0]]), torch.ones(2, 3)
LISTS, OUTPUT = sort_lists(SCORES), (0, laplace())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SCORES, [torch.ones(2, 4)], [OUTPUT], LISTS), r"columns must .*\(2, 3\), got \(2, 4\)"),
        ((SCORES, [ONES], [], LISTS), "outputs must name at least one"),
        ((SCORES, [ONES], [(1, laplace())], LISTS), "outputs must name one of 1 columns, got 1"),
        ((SCORES, [ONES], [OUTPUT, (0, gaussian())], LISTS), "outputs must share their nodes"),
        ((SCORES, [ONES], [OUTPUT], LISTS, 0.0), "temperature must be > 0, got 0.0"),
        ((SCORES, [ONES], [OUTPUT], LISTS, -1.0), "temperature must be > 0, got -1.0"),
        ((SCORES, [ONES], [OUTPUT], LISTS, float("nan")), "temperature must be > 0, got nan"),
        ((SCORES.half(), [ONES], [OUTPUT], LISTS), "scores must be float32 or float64"),
        ((SCORES.long(), [ONES], [OUTPUT], LISTS), "scores must be float32 or float64"),
        ((SCORES, [ONES], [OUTPUT], sort_lists(SCORES[:, :2])), r"lists must be .*order \(2, 2\)"),
        ((SCORES, [ONES], [OUTPUT], sort_lists(SCORES[:1])), r"lists must be .*order \(1, 3\)"),
    ],
)
def test_kernel_sums(arguments, words):
    with pytest.raises(ValueError, match=words):
        kernel_sums(*arguments)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sort_lists(SCORES, ONES), "mask must be bool"),
        (lambda: sort_lists(SCORES, ONES[:, :2].bool()), "mask must have the shape of scores"),
        (lambda: sort_lists(SCORES.long()), "scores must be floating point"),
        (lambda: descending_order(SCORES, ONES[:, :2].bool()), r"mask must be bool.*\(2, 2\)"),
        (lambda: sort_ragged(torch.arange(3), torch.tensor([3])), "scores must be floating point"),
        (lambda: sort_ragged([0.1], torch.tensor([1])), "scores must be flat .* got list"),
        (lambda: pad_lists(torch.tensor([1, 1]), torch.ones(3)), "must sum to 3 values, got 2"),
        (lambda: kernel_sums_at(ONES[:1], SCORES, [ONES], [OUTPUT]), r"queries must .*\(1, 3\)"),
        (lambda: kernel_sums_at(ONES.double(), SCORES, [ONES], [OUTPUT]), "queries must .*float64"),
        (lambda: survival("cauchy"), "distribution must be one of .*, got 'cauchy'"),
        (lambda: gaussian("half"), "level must be one of .*, got 'half'"),
    ],
)
def test_the_others(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("operator", [SigmoidRank(), LaplaceRank(), NeuralSort()])
def test_ragged_lists_of_an_operator(operator):
    flat, lengths = SCORES[0], torch.tensor([1, 2])
    with pytest.raises(ValueError, match="scores must be floating point"):
        operator.ragged(flat.long(), lengths)
    with pytest.raises(ValueError, match=r"weights must have the shape of scores \(3,\)"):
        operator.ragged(flat, lengths, torch.ones(2))

"""Wrong arguments of the engine's public functions: one ValueError that names the argument."""

import pytest
import torch

from ltr.kernels.lists import sort_lists
from ltr.kernels.named import gaussian, laplace
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.kernels.two_sets import kernel_sums_at
from ltr.ragged import check_lengths

SCORES, ONES = torch.tensor([[0.3, 0.1, 0.2], [1.0, 0.0, 2.0]]), torch.ones(2, 3)
LISTS, OUTPUT = sort_lists(SCORES), (0, laplace())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SCORES, [torch.ones(2, 4)], [OUTPUT], LISTS), r"columns.*\(2, 4\)"),
        ((SCORES, [ONES], [], LISTS), "outputs must"),
        ((SCORES, [ONES], [(1, laplace())], LISTS), "outputs.*1"),
        ((SCORES, [ONES], [OUTPUT, (0, gaussian())], LISTS), "outputs must"),
        ((SCORES, [ONES], [OUTPUT], LISTS, 0.0), "temperature.*0.0"),
        ((SCORES, [ONES], [OUTPUT], LISTS, -1.0), "temperature.*-1.0"),
        ((SCORES, [ONES], [OUTPUT], LISTS, float("nan")), "temperature.*nan"),
        ((SCORES.half(), [ONES], [OUTPUT], LISTS), "scores must"),
        ((SCORES.long(), [ONES], [OUTPUT], LISTS), "scores must"),
        ((SCORES, [ONES], [OUTPUT], sort_lists(SCORES[:, :2])), r"lists must"),
        ((SCORES, [ONES], [OUTPUT], sort_lists(SCORES[:1])), r"lists must"),
    ],
)
def test_kernel_sums(arguments, words):
    with pytest.raises(ValueError, match=words):
        kernel_sums(*arguments)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sort_lists(SCORES, ONES), "mask must"),
        (lambda: sort_lists(SCORES, ONES[:, :2].bool()), "mask must"),
        (lambda: sort_lists(SCORES.long()), "scores must"),
        (lambda: descending_order(SCORES, ONES[:, :2].bool()), r"mask must"),
        (lambda: check_lengths(torch.arange(3), torch.tensor([3])), "scores must"),
        (lambda: check_lengths([0.1], torch.tensor([1])), "scores.*list"),
        (lambda: kernel_sums_at(ONES[:1], SCORES, [ONES], [OUTPUT]), r"queries must"),
        (lambda: kernel_sums_at(ONES.double(), SCORES, [ONES], [OUTPUT]), "queries must"),
    ],
)
def test_the_others(call, words):
    with pytest.raises(ValueError, match=words):
        call()

"""Kernels that are wrong, or fail, are not used: one warning, and plain PyTorch from then on."""

import warnings

import pytest
import torch

from ltr.kernels import implementations
from ltr.kernels.cpu import CPU
from ltr.kernels.reference import REFERENCE
from ltr.kernels.self_check import checked
from ltr.kernels.triton import TRITON

plain = REFERENCE.kernel_sums


def off_by_little(*arguments):
    return [y * (1 + 1e-3) for y in plain(*arguments)]


def wrong_gradient(*arguments):
    *values, last = plain(*arguments)
    return [*values, -last]


def wrong_for_long_lists(scores, *rest):
    found = plain(scores, *rest)
    return [y.flip(-1) for y in found] if scores.shape[-1] > 4096 else found


def wrong_in_float64(scores, *rest):
    found = plain(scores, *rest)
    return [y.float().double() for y in found] if scores.dtype == torch.float64 else found


def not_a_number(*arguments):
    return [y * torch.nan for y in plain(*arguments)]


def no_compiler(*arguments):
    raise RuntimeError("ptxas fatal")


WRONG = {
    off_by_little: "logistic sums of .* in torch.float32 differ by",
    wrong_gradient: "differ by",
    wrong_for_long_lists: r"of \(1, 9000\)",
    wrong_in_float64: "in torch.float64",
    not_a_number: "differ by nan",
    no_compiler: "RuntimeError: ptxas fatal",
}


@pytest.mark.parametrize("kernels", WRONG, ids=lambda kernels: kernels.__name__)
def test_wrong_kernels_are_not_used(kernels):
    wrong = REFERENCE._replace(kernel_sums=kernels)
    with pytest.warns(UserWarning, match=f"kernels of cpu are not used.*{WRONG[kernels]}") as told:
        assert checked(wrong, REFERENCE, "cpu") is REFERENCE
    assert len(told) == 1


def test_right_kernels_are_used():

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(CPU, REFERENCE, "cpu") is CPU


@pytest.fixture
def fresh():
    """No verdict on a device before the test, nor of the test after it."""
    implementations._fastest.cache_clear()
    yield
    implementations._fastest.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_fails_has_one_warning_a_process(fresh):
    with pytest.warns(UserWarning, match="the kernels of cuda are not used"):
        assert implementations.implementation("cuda") is REFERENCE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert implementations.implementation("cuda") is REFERENCE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_uses_its_kernels(fresh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert implementations.implementation("cuda") is TRITON


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_wrong_kernel_on_a_gpu(fresh, monkeypatch):
    monkeypatch.setattr("ltr.kernels.triton.TRITON", TRITON._replace(kernel_sums=off_by_little))
    with pytest.warns(UserWarning, match="the kernels of cuda are not used"):
        assert implementations.implementation("cuda") is REFERENCE

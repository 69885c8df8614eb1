"""Every operator where the scores are: on the CPU, on a GPU, and on "meta", which has no values."""

import copy

import pytest
import torch
from operator_table import OPERATORS, draw, every
from pairwise import named, split, together
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.kernels import use
from ltr.losses import SoftNDCG
from ltr.operators import SinkhornSort, SortOperator, Stochastic

MASK = torch.tensor([[True, True, False, True, True], [True] * 5, [False] * 5])
TABLE = OPERATORS | {
    "Sinkhorn-3": SinkhornSort(milestones=3),
    "Stochastic in training": Stochastic(OPERATORS["SoftSort"], 2),
}


def results(operator, scores, mask, labels):
    """Ranks, memberships, a loss, the gradient of all, and what a permutation gives."""
    x = scores.detach().clone().requires_grad_()
    found = [operator(x, mask), operator.top_k(2, x, mask)]
    found.append(SoftNDCG(operator, top_k=2, mean="arithmetic")(x, labels, mask))
    total = torch.stack([y.square().sum() for y in found]).sum()
    if total.requires_grad:
        found.append(torch.autograd.grad(total, x)[0])
    inner = getattr(operator, "operator", operator)  # of a wrapper
    if isinstance(inner, SortOperator):
        P = operator.permutation(scores, mask)
        v = P.sort()
        found += [v, P.mT.mv(v), P.top(2).matmul(scores.unsqueeze(-1)), P.dense(), P.ranks()]
        found.append(P.log_prob(torch.zeros_like(v, dtype=torch.int64)))
    return found


ONE_OF_EACH = {type(operator): name for name, operator in reversed(TABLE.items())}.values()
FAST = {name: (name,) for name in TABLE if name in ONE_OF_EACH}
OTHERS = {name: (name,) for name in TABLE if name not in FAST}


@together("name", FAST, OTHERS)
def test_no_tensor_is_left_on_the_cpu(name):
    # "meta" refuses the CPU's tensors as a GPU does, and every machine has it
    operator, scores = TABLE[name], torch.empty(3, 5, device="meta")
    moved = copy.deepcopy(operator).to("meta")
    for found in results(moved, scores, MASK.to("meta"), scores):
        assert found.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@every
def test_a_gpu_gives_what_the_cpu_gives(operator):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        scores, labels = draw(3, 5, dtype=dtype), draw(3, 5, seed=1).abs().to(dtype)
        expected = results(operator, scores, MASK, labels)
        found = results(operator, scores.cuda(), MASK.cuda(), labels.cuda())
        close = {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 1e-2)
        for a, b in zip(found, expected, strict=True):
            assert a.is_cuda
            torch.testing.assert_close(a.cpu(), b, rtol=close, atol=close)


class NoFloat64(TorchDispatchMode):
    """Refuse float64 on "meta", as MPS refuses it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, tuple | list) else [found]:
            if isinstance(x, torch.Tensor) and x.is_meta and x.dtype == torch.float64:
                raise TypeError(f"{func} gives float64, which the device has not")
        return found


WAYS = named("dense", "sums")
SOME, MORE = split({name: TABLE[name] for name in FAST}, WAYS)


@together("operator, form", SOME, MORE | split({name: TABLE[name] for name in OTHERS}, WAYS)[0])
def test_devices_without_float64(operator, form, monkeypatch):
    monkeypatch.setattr("ltr.shapes.NO_FLOAT64", ["mps", "meta"])
    monkeypatch.setattr("ltr.kernels.reference.sums.NO_FLOAT64", ["mps", "meta"])
    scores = torch.empty(3, 5, device="meta")
    moved = copy.deepcopy(operator).to("meta")
    with NoFloat64(), use(form):
        for found in results(moved, scores, MASK.to("meta"), scores):
            assert found.dtype in (torch.float32, torch.int64)


def test_float64_is_refused():
    with NoFloat64(), pytest.raises(TypeError, match="gives float64"):
        torch.empty(3, device="meta").double()

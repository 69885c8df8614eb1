"""The Triton kernels, without a GPU: their values in Triton's interpreter, their code for CUDA.

Whether `triton.jit` interprets is settled when triton is imported. So all but the compilation runs
in a separate process: `TRITON_INTERPRET=1 pytest tests/kernels/test_triton.py`.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.kernels import gaussian, kernel_sums, laplace, sort_lists, survival
from ltr.kernels.implementations import use
from ltr.kernels.interface import SumNumbers
from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists
from ltr.kernels.reference import REFERENCE
from ltr.kernels.self_check import checked
from ltr.kernels.table import Nodes

triton = pytest.importorskip("triton")

from ltr.kernels.triton import TRITON, sweeps  # noqa: E402
from ltr.kernels.triton import sums as triton_sums  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="test_in_the_interpreter runs it")
compiled = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled in the interpreter")

REAL = Kernel(
    Nodes(0.8, 0.5, 2),
    Profile((0.7, -1.1), constant=1.0, linear=0.3, tie=-0.5),
    Profile((0.2, 0.5), constant=-0.4, tie=0.25),
    own=0.6,
)
COMPLEX = Kernel(
    Nodes(0.9 + 0.4j, 0.3 + 0.8j, 2),
    Profile((0.7 + 0.2j, -1.1j), linear=-0.2, tie=0.9),
    Profile((0.2j, 0.5 + 0.3j), constant=0.7, linear=0.5),
    own=-0.3,
)
BARE = Kernel(Nodes(1.0, 1.0, 2), Profile((0.3, 0.4)), Profile((-0.2, 0.9)), own=0.7)
KERNELS = {"real": REAL, "complex": COMPLEX}


def tree_scan(self, inputs):
    """`ScanOps.generic_scan` of the interpreter, in log2 n steps and not one by one."""
    types = [given.dtype for given in inputs]

    def wrap(arrays):
        return [self.to_tensor(a.copy(), t) for a, t in zip(arrays, types, strict=True)]

    def combine(first, second):
        found = self.combine_fn.fn(*wrap(first), *wrap(second))
        return [f.handle.data for f in found]

    def scan(data):
        if data[0].shape[1] == 1:
            return data
        even, odd = [d[:, 0::2] for d in data], [d[:, 1::2] for d in data]
        pairs = scan(combine(even, odd))
        others = combine([np.roll(p, 1, 1) for p in pairs], even)
        found = [d.copy() for d in data]
        for f, p, o in zip(found, pairs, others, strict=True):
            f[:, 1::2], f[:, 2::2] = p, o[:, 1:]
        return found

    assert self.axis == 1
    return wrap(scan([given.handle.data for given in inputs]))


@pytest.fixture(autouse=True)
def _quick_scans(monkeypatch):
    if INTERPRETED:
        from triton.runtime.interpreter import ScanOps

        monkeypatch.setattr(ScanOps, "generic_scan", tree_scan)


@pytest.fixture(params=["one block", "block by block", "side by side"])
def scheme(request, monkeypatch):
    """Each of the ways to go through a list, with blocks of 8 in float64 and 16 in float32."""
    if request.param != "one block":
        monkeypatch.setattr(triton_sums, "BLOCK", 16)
    if request.param == "side by side":
        monkeypatch.setattr(triton_sums, "LONG", 0)
    return request.param


def bare(room, scores, columns, outputs, lists, temperature=1.0):
    nodes = outputs[0][1].nodes
    numbers = nodes.first.real, nodes.first.imag, nodes.step.real, nodes.step.imag, nodes.count
    rows = [number for _, kernel in outputs for number in kernel.row]
    sources = [column for column, _ in outputs]
    numbers = SumNumbers(1 / temperature, list(numbers), rows, sources)
    return room.kernel_sums(scores, lists, columns, numbers)


def profile(kernel, which, gaps):
    weights = torch.tensor(which.weights, dtype=torch.complex128)
    nodes = torch.tensor(kernel.nodes.values(), dtype=torch.complex128)
    terms = (weights * torch.exp(-nodes * gaps.unsqueeze(-1))).sum(-1).real
    return terms + which.constant + which.linear * gaps + which.tie * (gaps == 0).double()


def dense(scores, columns, outputs, lists, temperature=1.0):
    """The definition, list by list and pair by pair, in float64."""
    x = scores.double().reshape(-1, scores.shape[-1])
    columns = [c.double().reshape(x.shape) for c in columns]
    order = torch.arange(x.shape[-1]) if lists.order is None else lists.order
    order = order.expand(scores.shape).reshape(x.shape)
    starts, lengths = (t.reshape(len(x), -1) for t in (lists.starts, lists.lengths))
    found = [torch.zeros_like(x) for _ in outputs]
    for row in range(len(x)):
        for start, length in zip(starts[row].tolist(), lengths[row].tolist(), strict=True):
            items = order[row, start : start + length]
            t = x[row, items]
            gaps = (t.unsqueeze(-1) - t).abs() / temperature
            for o, (c, kernel) in enumerate(outputs):
                over, under = (profile(kernel, p, gaps) for p in (kernel.above, kernel.below))
                matrix = (
                    over.tril(-1) + under.triu(1) + kernel.own * torch.eye(length, dtype=t.dtype)
                )
                found[o] = found[o].index_put(
                    (torch.tensor(row), items), matrix @ columns[c][row, items]
                )
    return [f.reshape(scores.shape) for f in found]


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def tied(*shape, seed=0):
    x = draw(*shape, seed=seed)
    return torch.where(x > 0, (4 * x).round() / 4, x)


def close(found, expected, rtol=1e-13):
    for y, z in zip(found, expected, strict=True):
        assert y.shape == z.shape
        y, z = y.detach().double(), z.detach()
        torch.testing.assert_close(y, z, rtol=rtol, atol=rtol * float(z.abs().max()))


@compiled
def test_in_the_interpreter():
    hidden = ("PYTEST_", "COV_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    command += ["-W", "ignore:Conversion of an array:DeprecationWarning"]  # old interpreters' own
    done = subprocess.run(
        command,
        env=environment | {"TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@compiled
@pytest.mark.parametrize(("dtype", "is_complex"), [("fp32", True), ("fp64", False)])
def test_compiles_for_cuda(dtype, is_complex, tmp_path, monkeypatch):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"order": "*i64", "begins": "*i64", "sizes": "*i64", "labels": "*i32"}
    types |= {"targets": "*i32", "scale": "fp64"}
    types |= dict.fromkeys(["n", "batch", "pieces", "count", "rows"], "i32")
    every = {"BLOCK": 64, "SLOTS": 8, "COMPLEX": is_complex, "TIES": True, "SUMS": True}
    more = every | {"OUTPUTS": 2, "LINEAR": True, "IN_ORDER": False}
    lists = more | {"BLOCKS": False, "ENDS": False, "SINGLE": False}
    blocks = more | {"BLOCKS": True, "ENDS": True, "SINGLE": True}
    sweep, chain = sweeps.sweep, sweeps.chain
    for kernel, constants in [(sweep, lists), (sweep, blocks), (chain, every)]:
        signature = {
            name: "constexpr" if name in constants else types.get(name, f"*{dtype}")
            for name in kernel.arg_names
        }
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        options = {"num_warps": 2, "enable_fp_fusion": True}
        found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        assert f".entry {kernel.__name__}" in found.asm["ptx"]


def test_available():
    assert triton_sums.available() == (INTERPRETED or torch.cuda.is_available())


@interpreted
@pytest.mark.parametrize("name", KERNELS)
def test_padded_lists(name, scheme):
    kernel = KERNELS[name]
    scores, columns = tied(1, 2, 19), [draw(1, 2, 19, seed=s) for s in (1, 2)]
    mask = torch.ones(1, 2, 19, dtype=torch.bool)
    mask[0, 0, 5] = mask[0, 1] = False
    lists = sort_lists(scores, mask)
    outputs = [(1, kernel), (0, kernel.derivative), (1, kernel.transpose)]
    found = bare(TRITON, scores, columns, outputs, lists, 0.5)
    close(found, dense(scores, columns, outputs, lists, 0.5))
    assert all((y[~mask] == 0).all() for y in found)
    assert len({y.data_ptr() for y in found}) == 3
    assert all(y.is_contiguous() and not y.storage_offset() % 19 for y in found)


@interpreted
def test_ragged_lists(scheme):
    lengths = torch.tensor([[1, 0, 20, 2, 3], [0, 2, 0, 0, 21]])
    starts = torch.tensor([[0, 1, 1, 21, 23], [3, 3, 5, 5, 5]])  # 2 items are in no list, and 5
    scores, column = tied(2, 28), draw(2, 28, seed=1)
    order = draw(2, 28, seed=2).argsort(-1)
    for row in range(2):
        for start, length in zip(starts[row].tolist(), lengths[row].tolist(), strict=True):
            items = order[row, start : start + length]
            best = scores[row, items].argsort(descending=True, stable=True)
            order[row, start : start + length] = items[best]
    lists = SortedLists(order, starts, lengths)
    outputs = [(0, COMPLEX)]
    close(
        bare(TRITON, scores, [column], outputs, lists),
        dense(scores, [column], outputs, lists),
    )


@interpreted
def test_scores_in_order(scheme):
    scores, column = tied(2, 20).sort(-1, descending=True).values, draw(2, 20, seed=1)
    lists = SortedLists(None, torch.zeros(2, 1).long(), torch.tensor([[20], [13]]))
    outputs = [(0, REAL)]
    close(
        bare(TRITON, scores, [column], outputs, lists),
        dense(scores, [column], outputs, lists),
    )


@interpreted
def test_strides_and_sizes():
    for n in (0, 1, 2):
        scores, columns = draw(3, n), [draw(3, n, seed=1)]
        lists = sort_lists(scores)
        found = bare(TRITON, scores, columns, [(0, REAL)], lists)
        if n:
            close(found, dense(scores, columns, [(0, REAL)], lists))
        assert found[0].shape == (3, n)
    scores, columns = tied(11, 2).mT, [torch.tensor(0.5).double().expand(2, 11)]
    lists = sort_lists(scores)
    outputs = [(0, COMPLEX)]
    close(
        bare(TRITON, scores, columns, outputs, lists),
        dense(scores, columns, outputs, lists),
    )
    scores, columns = tied(11), [draw(11, seed=1)]
    lists = sort_lists(scores)
    close(
        bare(TRITON, scores, columns, [(0, REAL)], lists),
        dense(scores, columns, [(0, REAL)], lists),
    )


@interpreted
def test_non_finite_numbers_make_their_list_nan(scheme):
    # three lists of 10; the middle one is hit
    scores, columns = draw(30), [draw(30, seed=1), draw(30, seed=2)]
    places = torch.tensor([0, 10, 20])
    order = scores.view(3, 10).argsort(-1, descending=True) + places.unsqueeze(-1)
    lists = SortedLists(order.flatten(), places, torch.full_like(places, 10))
    outputs = [(0, BARE), (1, BARE)]
    right = bare(TRITON, scores, columns, outputs, lists)
    for hit, bad in [(scores, math.nan), (columns[0], -math.inf)]:
        kept, hit[14] = hit[14].clone(), bad
        found = bare(TRITON, scores, columns, outputs, lists)
        hit[14] = kept
        for o, (y, z) in enumerate(zip(found, right, strict=True)):
            if hit is scores or o == 0:
                assert y[10:20].isnan().all()
                y[10:20] = z[10:20]
            torch.testing.assert_close(y, z, rtol=0, atol=0)


@interpreted
@pytest.mark.parametrize(
    ("dtype", "temperature"),
    [(torch.float32, 1e-6), (torch.float64, 1e-4), (torch.float32, 1e6), (torch.float64, 1e6)],
)
def test_extreme_temperatures(dtype, temperature, scheme):
    scores, columns = tied(1, 20).to(dtype), [draw(1, 20, seed=1).to(dtype)]
    kernel, tolerance = (REAL, 1e-12) if dtype == torch.float64 else (COMPLEX, 2e-6)
    lists = sort_lists(scores)
    found = bare(TRITON, scores, columns, [(0, kernel)], lists, temperature)
    close(found, dense(scores, columns, [(0, kernel)], lists, temperature), tolerance)
    assert found[0].dtype == dtype


@interpreted
def test_a_far_crowd_keeps_its_digits():
    # what 1000 tied items leave 12 temperatures further on is exp(-12) of them to float32's digits,
    # not to those of 1 - exp(-12)
    scores = torch.cat([torch.zeros(1), torch.full((1000,), 12.0), torch.full((20,), -9.0)])
    slope = Kernel(laplace().nodes, laplace().above, laplace().below)
    lists = sort_lists(scores)
    found = bare(TRITON, scores, [torch.ones(1021)], [(0, slope)], lists)[0]
    expected = 1000 * math.exp(-12) + 20 * math.exp(-9)
    assert found[0].item() == pytest.approx(expected, rel=1e-6)


@interpreted
def test_rounding_in_float32():
    # 20,000 items evenly spaced, blocks side by side; the sum has a closed form
    n, temperature = 20_000, 100.0  # times the range: decays next to 1 are the hardest
    scores = (n - 1 - torch.arange(n)).float()
    columns, outputs = [torch.ones(n)], [(0, laplace())]
    lists, gap = sort_lists(scores), 1 / (n * temperature)
    found = bare(TRITON, scores, columns, outputs, lists, 1 / gap)[0]
    places = torch.arange(n).double()
    expected = -torch.expm1(-gap * (places + 1)) - torch.expm1(-gap * (n - places))
    expected = expected / -math.expm1(-gap) - 1
    assert ((found - expected) / expected).abs().max() < 1e-6


@interpreted
def test_more_blocks_than_the_chain_takes_at_once(monkeypatch):
    monkeypatch.setattr(triton_sums, "BLOCK", 8)
    monkeypatch.setattr(triton_sums, "LONG", 0)
    scores, columns = tied(1, 22), [draw(1, 22, seed=1)]  # 6 blocks, in fours
    lists = sort_lists(scores)
    for kernel in KERNELS.values():
        found = bare(TRITON, scores, columns, [(0, kernel)], lists)
        close(found, dense(scores, columns, [(0, kernel)], lists))


@interpreted
@pytest.mark.parametrize(
    "kernel", [survival("logistic", "float32"), gaussian("float32")], ids=["logistic", "gauss"]
)
def test_agrees_with_plain_pytorch(kernel):
    scores, columns = tied(1, 30), [draw(1, 30, seed=1)]
    arguments = scores, columns, [(0, kernel), (0, kernel.derivative)], sort_lists(scores), 0.7
    found = bare(TRITON, *arguments)
    close(found, bare(REFERENCE, *arguments), 1e-12)


@interpreted
@pytest.mark.parametrize("kernel", [laplace(), survival("laplace")], ids=["even", "rank"])
def test_derivatives(kernel):
    scores, column, gradient = (draw(1, 9, seed=s) for s in range(3))
    mask = torch.arange(9) != 4
    lists = sort_lists(scores, mask.view(1, 9))
    x, v = scores.clone().requires_grad_(), column.clone().requires_grad_()
    taken = []

    for function in (kernel_sums, dense):
        with use(TRITON):
            y, *_ = function(x, [v], [(0, kernel)], lists, 0.8)
            first = torch.autograd.grad(y, (x, v), gradient, create_graph=True)
            total = (first[0] * gradient).sum() + (first[1] * scores).sum()
            second = torch.autograd.grad(total, (x, v))
        taken.append([y, *first, *second])
    close(*taken, rtol=1e-12)


@interpreted
def test_the_self_check_accepts_it(monkeypatch):
    monkeypatch.setattr("ltr.kernels.self_check.SHAPES", ((2, 12),))
    assert checked(TRITON, REFERENCE, "cpu") is TRITON


@interpreted
def test_the_interpreters_own_scan(monkeypatch):
    monkeypatch.undo()
    scores, columns = tied(1, 20), [draw(1, 20, seed=1)]
    lists = sort_lists(scores)
    outputs = [(0, COMPLEX)]
    close(
        bare(TRITON, scores, columns, outputs, lists),
        dense(scores, columns, outputs, lists),
    )

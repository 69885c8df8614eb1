"""The engine at its edges: each line of its contract, for all operators that use it."""

import json
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import each, named, split, together
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.datasets.batches import pad_documents, real_places
from ltr.kernels.choice import computed_by
from ltr.kernels.choice import use as use_form
from ltr.kernels.cpu import CPU, jit
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import sort_lists
from ltr.kernels.named import COUNT_KERNELS, gaussian, laplace
from ltr.kernels.reference import REFERENCE
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.operators import (
    GaussianRank,
    LaplaceRank,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SoftplusRank,
    SoftSort,
    SoftSortRank,
)

ROOT = Path(__file__).parents[2]
IMPLEMENTATIONS = {"torch": REFERENCE, "numba": CPU}
NOT_FINITE = [float("nan"), float("inf"), -float("inf")]
ENGINE = {
    "SoftSort-1": lambda tau: SoftSort(tau),
    "SoftSort-2": lambda tau: SoftSort(tau, power=2),
    "SoftSortRank-1": lambda tau: SoftSortRank(tau),
    "SoftSortRank-2": lambda tau: SoftSortRank(tau, power=2),
    "SigmoidRank": SigmoidRank,
    "GaussianRank": GaussianRank,
    "LaplaceRank": LaplaceRank,
    "SoftplusRank": SoftplusRank,
    "NeuralSort": NeuralSort,
}
operators = each("make", ENGINE)


@pytest.fixture(params=IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
def implementation(request):
    with computed_by(request.param):
        yield request.param


both = pytest.mark.usefixtures("implementation")


def by_both(arguments: str, *axes: Mapping[str, object]) -> Callable[..., Callable[..., None]]:
    """Call a test, as `together` does, with values of some axes and by either implementation."""
    fast, others = (
        {name: values[1:] for name, values in cases.items()}
        for cases in split(IMPLEMENTATIONS, *axes)
    )
    return together(
        arguments,
        fast,
        others,
        around=lambda name: computed_by(IMPLEMENTATIONS[name.partition("/")[0]]),
    )


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def slope(operator, scores: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
    """The gradient of the ranks times fixed numbers."""
    x = scores.detach().requires_grad_()
    ranks = operator(x, *rest)
    weights = torch.linspace(-1, 1, ranks.numel(), dtype=ranks.dtype).view(ranks.shape)
    return torch.autograd.grad((ranks * weights).sum(), x)[0]


def dense_ranks(make, scores: torch.Tensor, tau: float) -> torch.Tensor:
    """The plain definitions of the pairwise ranks and of SoftSort's, one list (n,), float64."""
    s = scores.double()
    x = (s - s.unsqueeze(-1)) / tau  # [i, j] = s_j - s_i
    above = {
        SigmoidRank: torch.sigmoid,
        LaplaceRank: lambda x: 0.5 - 0.5 * x.sign() * torch.expm1(-x.abs()),
        GaussianRank: lambda x: torch.special.ndtr(x / 2**0.5),
    }
    if make in above:
        return 0.5 + above[make](x).sum(-1)
    if make is SoftplusRank:
        return torch.logaddexp(x, 0 * x).sum(-1) / math.log(2)
    operator, n = make(tau), len(s)
    positions = torch.arange(1, n + 1, dtype=torch.float64)
    tops = s.sort(descending=True).values.unsqueeze(-1)
    if isinstance(operator, NeuralSort):
        sums = (s.unsqueeze(-1) - s).abs().sum(-1)
        logits = ((n + 1 - 2 * positions).unsqueeze(-1) * s - sums) / tau
        return torch.softmax(logits, -1).mT @ positions
    logits = -((tops - s).abs() ** operator.power) / tau
    if isinstance(operator, SoftSortRank):
        return torch.softmax(logits, 0).mT @ positions
    return torch.softmax(logits, -1).mT @ positions


@by_both(
    "make, tau, kind", ENGINE, named(1e-6, 0.1, 1e6), named("random", "tied", "equal", "far apart")
)
def test_values_are_the_dense_ones(make, tau, kind):
    scores = {
        "random": draw(700),
        "tied": draw(700).round(),
        "equal": torch.zeros(700).double(),
        "far apart": torch.arange(700).double().flip(0) * 1e4 * tau,
    }[kind]
    found, expected = make(tau)(scores), dense_ranks(make, scores, tau)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-8)
    assert slope(make(tau), scores).isfinite().all()
    # float32: the rounding of ranks, and of gaps relative to the temperature
    x = scores.float()
    found, expected = make(tau)(x), dense_ranks(make, x, tau)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    assert slope(make(tau), x).isfinite().all()


@both
@operators
@pytest.mark.parametrize("n", [0, 1, 2])
def test_short_lists(make, n):
    scores = draw(3, n)
    ranks = make(0.5)(scores)
    assert ranks.shape == (3, n)
    for row, found in zip(scores, ranks, strict=True):
        torch.testing.assert_close(found, dense_ranks(make, row, 0.5) if n else row)
    if n:
        assert slope(make(0.5), scores).isfinite().all()


LENGTHS = {
    "short": [7, 0, 1, 40, 2],
    "long": [520, 600, 513],
    "very different": [1, 1100, 2, 0, 520, 1],
}


def padded(operator, scores, lengths):
    """Return the ranks (N,) of lists that are padded to the longest one."""
    mask = real_places(lengths)
    return operator(pad_documents(scores, mask), mask)[mask]


def one_by_one(operator, scores, lengths):
    return torch.cat([operator(part) for part in scores.split(lengths)])


@by_both("make, lengths, bad", ENGINE, LENGTHS, named(*NOT_FINITE))
def test_non_finite_numbers_make_only_their_list_nan(make, lengths, bad):
    operator, scores = make(0.1), draw(sum(lengths))
    sizes = torch.tensor(lengths)
    expected = padded(operator, scores, sizes)
    broken = scores.clone()
    broken[0] = bad  # of the first list
    ranks = padded(operator, broken, sizes)
    assert ranks[: lengths[0]].isnan().all()
    torch.testing.assert_close(ranks[lengths[0] :], expected[lengths[0] :])
    gradient = slope(lambda x: padded(operator, x, sizes), broken)
    assert gradient[lengths[0] :].isfinite().all()
    # padded, in one batch
    rows = draw(3, 600)
    expected = operator(rows)
    rows[1, 5] = bad
    ranks = operator(rows)
    assert ranks[1].isnan().all()
    torch.testing.assert_close(ranks[[0, 2]], expected[[0, 2]])
    assert slope(operator, rows)[[0, 2]].isfinite().all()


@by_both("make, lengths, tau", ENGINE, LENGTHS, named(1e-30, 0.1, 1e6))
def test_lists_far_from_each_other_do_not_meet(make, lengths, tau):
    # the gap between a list's last item and the next one's first is of any size and sign
    operator, sizes = make(tau), torch.tensor(lengths)
    for dtype, offset in ((torch.float32, 70.97), (torch.float64, 1e6)):
        shift = (torch.arange(len(lengths)) % 3 - 1).repeat_interleave(sizes) * offset
        scores = (draw(sum(lengths)) + shift).to(dtype)
        found = padded(operator, scores, sizes)
        expected = one_by_one(operator, scores, lengths)
        # short lists take matrices alone, and sums in a longer batch
        close = {"rtol": 3e-5, "atol": 1e-4} if dtype == torch.float32 else {}
        torch.testing.assert_close(found, expected.to(found.dtype), **close)
        assert slope(lambda x: padded(operator, x, sizes), scores).isfinite().all()


@both
@operators
def test_masks_of_very_different_length_and_all_masked(make):
    operator, scores = make(0.3), draw(5, 900)
    counts = torch.tensor([900, 1, 0, 2, 513]).unsqueeze(-1)
    mask = torch.rand(5, 900, generator=torch.Generator().manual_seed(1)).argsort(-1) < counts
    hidden = torch.where(mask, scores, torch.nan)
    ranks, gradient = operator(hidden, mask), slope(operator, hidden, mask)
    for row in range(5):
        m = int(counts[row])
        assert (ranks[row, ~mask[row]] == m + 1).all()
        if m:
            torch.testing.assert_close(
                ranks[row, mask[row]], operator(scores[row, mask[row]]), rtol=1e-9, atol=1e-9
            )
    assert (gradient[~mask] == 0).all()
    assert gradient.isfinite().all()


HALVES = {
    f"{name}, {dtype}": (implementation, dtype)
    for name, implementation in IMPLEMENTATIONS.items()
    for dtype in (torch.float16, torch.bfloat16)
}


@together("make, half", *split(ENGINE, HALVES))
def test_long_lists_in_half_precision(make, half):
    # float16 has steps of 2 beyond 2048, bfloat16 of 16: ranks are in float32
    n, (implementation, dtype) = 2200, half
    scores = draw(n).to(dtype)
    with computed_by(implementation):
        ranks = make(0.2)(scores)
        assert ranks.dtype == torch.float32
        torch.testing.assert_close(ranks, make(0.2)(scores.float()), rtol=0, atol=0)
        gradient = slope(lambda x: make(0.2)(x) / n**2, scores)  # within float16's range
    torch.testing.assert_close(ranks.double(), dense_ranks(make, scores, 0.2), rtol=1e-5, atol=1e-4)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@both
@operators
def test_any_strides(make):
    operator, scores = make(0.3), draw(4, 600)
    expected, gradient = operator(scores), slope(operator, scores)
    for view in (scores.mT.contiguous().mT, scores.repeat_interleave(2, -1)[:, ::2]):
        assert not view.is_contiguous()
        torch.testing.assert_close(operator(view), expected)
        torch.testing.assert_close(slope(operator, view), gradient)
    one = scores[:1].expand(4, 600)
    torch.testing.assert_close(operator(one), expected[:1].expand(4, 600))
    row = scores[0].clone().requires_grad_()
    operator(row.expand(4, 600)).square().sum().backward()
    again = scores[0].clone().requires_grad_()
    (4 * operator(again).square().sum()).backward()
    torch.testing.assert_close(row.grad, again.grad)


@both
@operators
def test_autocast_leaves_ranks_alone(make):
    scores = draw(600).float()
    expected, gradient = make(0.1)(scores), slope(make(0.1), scores)
    with torch.autocast("cpu", torch.bfloat16):
        ranks, slopes = make(0.1)(scores), slope(make(0.1), scores)
    assert ranks.dtype == torch.float32
    assert ranks.equal(expected)
    assert slopes.equal(gradient)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e4, 1e4, width=16), max_size=12), max_size=6),
    st.sampled_from(sorted(ENGINE)),
    st.sampled_from([1e-6, 1e-2, 1.0, 1e6]),
)
def test_padded_is_one_by_one(parts, name, tau):
    operator = ENGINE[name](tau)
    scores = torch.tensor([x for part in parts for x in part]).double()
    lengths = torch.tensor([len(part) for part in parts], dtype=torch.int64)
    found = padded(operator, scores, lengths)
    if not len(scores):
        assert found.shape == (0,)
        return
    expected = one_by_one(operator, scores, lengths.tolist())
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_nan_comes_first_whatever_its_sign():
    nan = torch.tensor([0.0]).double() / 0  # on x86 it has the sign bit
    for dtype in (torch.float32, torch.float64, torch.float16):
        for sign in (nan, -nan):
            scores = torch.cat([torch.tensor([1.0, 2.0]).double(), sign]).to(dtype)
            assert descending_order(scores).tolist() == [2, 1, 0]


def test_a_dispatch_mode_sees_the_op():
    # fake tensors, tracers and counters work by such modes
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    scores = draw(2, 5)
    with Watch():
        kernel_sums(scores, [scores], [(0, laplace())], sort_lists(scores))
    assert "ltr.kernel_sums.default" in seen
    with FakeTensorMode() as mode:
        for make in ENGINE.values():
            assert make(0.1)(mode.from_tensor(scores)).shape == (2, 5)


# threads and processes


def check_ranks_on_threads(scores, expected):
    assert SigmoidRank(0.1)(scores).tolist() == expected  # or the process ends with 1


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads for any amount of work."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(jit, "LEAST_WORK", 1)
    yield
    torch.set_num_threads(before)


@use_form("sums")
def test_a_fork_after_use(two_threads):
    scores = draw(300, 12)
    expected = SigmoidRank(0.1)(scores).tolist()  # the pool's threads run in this process
    assert any(thread.name.startswith("ltr") for thread in threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: on purpose
        context = multiprocessing.get_context("fork")
        children = [
            context.Process(target=check_ranks_on_threads, args=(scores, expected))
            for _ in range(2)
        ]
        for child in children:
            child.start()
    for child in children:
        child.join(60)
        alive = child.is_alive()
        if alive:
            child.kill()
        assert not alive
        assert child.exitcode == 0
    assert SigmoidRank(0.1)(scores).tolist() == expected  # and here again


def test_several_threads_at_once_forward_and_backward(two_threads):
    scores = draw(200, 30)
    makes = [SigmoidRank, GaussianRank, LaplaceRank, SoftSort, SoftSortRank]
    expected = [slope(make(0.1), scores) for make in makes]
    found: dict[int, torch.Tensor] = {}

    def work(i):
        found[i] = slope(makes[i % 5](0.1), scores)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(15))
    assert all(found[i].equal(expected[i % 5]) for i in found)


def test_a_chosen_implementation_holds_in_its_thread_alone():
    seen = []

    def chosen(*arguments):
        seen.append(threading.get_ident())
        return REFERENCE.kernel_sums(*arguments)

    with computed_by(REFERENCE._replace(kernel_sums=chosen)):
        thread = threading.Thread(target=lambda: LaplaceRank(0.1)(draw(2000)))
        thread.start()
        thread.join()
        assert not seen
        LaplaceRank(0.1)(draw(2000))
    assert seen == [threading.get_ident()]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_is_torchs(threads, two_threads):
    torch.set_num_threads(threads)
    used, lock = set(), threading.Barrier(threads, timeout=60)
    chunks = []

    def call(begin, stop):
        used.add(threading.get_ident())
        chunks.append((begin, stop))
        lock.wait()  # all chunks run at once

    jit.run_parallel(call, (), 64 * threads, 10**9)
    assert len(used) == threads
    assert sorted(chunks) == [(64 * i, 64 * i + 64) for i in range(threads)]


# separate processes: without numba, and with its cache


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


GRADIENTS = """
import torch
from ltr.operators import *
results = []
for operator in (SigmoidRank(0.1), GaussianRank(0.1), SoftSort(0.1), SoftSort(0.1, 2),
                 SoftSortRank(0.1), NeuralSort(0.1)):
    x = torch.sin(torch.arange(90.0, dtype=torch.float64) ** 2).view(2, 45).requires_grad_()
    y = operator(x)
    (gradient,) = torch.autograd.grad((y * x.detach().cos()).sum(), x)
    results.append([y.tolist(), gradient.tolist()])
"""
WITHOUT = """
import sys, json, warnings
sys.modules["numba"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
{code}
print(json.dumps([results, [str(w.message) for w in caught]]))
"""


def test_without_numba_plain_pytorch_takes_over_and_says_so_once():
    code = GRADIENTS.strip().replace("\n", "\n    ")
    found, said = json.loads(run_python(WITHOUT.format(code="    " + code)))
    namespace = {}
    exec(GRADIENTS, namespace)
    for name, a, b in zip(ENGINE, found, namespace["results"], strict=False):
        torch.testing.assert_close(
            torch.tensor(a), torch.tensor(b), rtol=1e-8, atol=1e-8, msg=lambda m, n=name: n + m
        )
    said = [words for words in said if "plain PyTorch" in words]
    assert len(said) == 1
    assert "numba" in said[0]


def test_every_compiled_function_is_kept_on_disk():
    from numba.core.dispatcher import Dispatcher

    names = ("sums", "pairs", "softsort")
    modules = [__import__(f"ltr.kernels.cpu.{name}", fromlist=[name]) for name in names]
    functions = [
        f for module in modules for f in vars(module).values() if isinstance(f, Dispatcher)
    ]
    assert len(functions) > 10
    for function in functions:
        assert function.targetoptions["nogil"]
        assert function._cache.cache_path  # which a function without a cache has not


@pytest.mark.slow  # two processes, of which one compiles what an operator needs
@pytest.mark.skipif(sys.platform != "linux", reason="the user's cache folder is set as on Linux")
def test_a_second_process_compiles_nothing_even_where_the_install_cannot_be_written(tmp_path):
    # A file where the folder of an install's cache would be: not even root can write into it.
    shutil.copytree(ROOT / "ltr", tmp_path / "ltr", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ltr" / "kernels" / "cpu" / "__pycache__").write_text("no folder")
    code = (
        "import numpy as np\n"
        "from ltr.kernels.cpu.sums import cut\n"
        "cut(np.full(1, 9), 4)\n"
        "stats = cut.__wrapped__.stats\n"
        "print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), stats.cache_path)"
    )
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    home |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": ""}
    runs = [run_python(f"import os; os.chdir({str(tmp_path)!r})\n{code}", **home) for _ in "12"]
    first, second = (line.split() for line in runs)
    assert first[:2] == ["0", "1"]
    assert second[:2] == ["1", "0"]
    assert Path(second[2]).is_relative_to(tmp_path / "cache")


# accumulation


def exact_laplace_sum(scores: torch.Tensor, tau: float) -> torch.Tensor:
    """sum over j of exp(-|s_i - s_j| / tau) in numpy's long doubles: (n,), descending scores."""
    import numpy as np

    s = scores.double().numpy().astype(np.longdouble)
    decay = np.exp(-(s[:-1] - s[1:]) / np.longdouble(tau))
    up, down = np.ones(len(s), np.longdouble), np.ones(len(s), np.longdouble)
    for p in range(1, len(s)):
        up[p] += decay[p - 1] * up[p - 1]
    for p in range(len(s) - 2, -1, -1):
        down[p] += decay[p] * down[p + 1]
    return torch.from_numpy((up + down - 1).astype(np.float64))


NOISES = {"laplace": LaplaceRank, "logistic": SigmoidRank, "normal": GaussianRank}


def rounding(n: int, tau: float) -> dict[str, tuple[float, float]]:
    """The error of float32 ranks over n, and of their gradients over the largest one."""
    found = {}
    scores = torch.randn(n, generator=torch.Generator().manual_seed(0))
    for name, make in {**NOISES, "softsort": SoftSortRank}.items():
        ranks = [make(tau)(scores.to(dtype)) for dtype in (torch.float32, torch.float64)]
        slopes = [slope(make(tau), scores.to(dtype)) for dtype in (torch.float32, torch.float64)]
        error = (ranks[0].double() - ranks[1]).abs().max() / n
        off = (slopes[0].double() - slopes[1]).abs().max() / slopes[1].abs().max()
        found[name] = float(error), float(off)
    return found


# docs/kernels/index.md states these. A rank near n is rounded by 3e-8 n alone. SoftSortRank is a
# quotient of sums, and its gradient the difference of two that are n / (a row's width) as large.
ROUNDING = dict.fromkeys(NOISES, (6e-08, 1e-06)) | {"softsort": (2e-7, 1e-3)}


def check_rounding(n, tau):
    for name, errors in rounding(n, tau).items():
        assert all(e < bound for e, bound in zip(errors, ROUNDING[name], strict=True)), name


@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_float32_against_float64_at_length(tau):
    check_rounding(100_000, tau)


@pytest.mark.slow  # sums over a million items
@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_float32_against_float64_at_a_million(tau):
    check_rounding(1_000_000, tau)


@pytest.mark.slow  # a loop over a million long doubles
@both
@pytest.mark.parametrize("tau", [0.01, 1.0, 100.0])
def test_a_million_items_against_long_doubles(tau):
    scores = torch.linspace(1, 0, 1_000_000)
    expected = exact_laplace_sum(scores, tau)
    for dtype, bound in ((torch.float32, 2e-7), (torch.float64, 1e-9)):
        s = scores.to(dtype)
        y = kernel_sums(s, [torch.ones_like(s)], [(0, laplace())], sort_lists(s), tau)[0]
        assert ((y.double() - expected).abs() / expected).max() < bound


@pytest.mark.parametrize(
    "kernel",
    [
        laplace(),
        gaussian(),
        *(COUNT_KERNELS[kind][torch.float64] for kind in ("logistic", "normal")),
    ],
)
def test_float32_gradients_of_columns(kernel: Kernel):
    # the transposed sum, at length: relative to the sum of absolute values
    n = 20_000
    scores, v = draw(n).float(), draw(n, seed=1).float()
    results = []
    for dtype in (torch.float32, torch.float64):
        s, w = scores.to(dtype), v.to(dtype).clone().requires_grad_()
        y = kernel_sums(s, [w], [(0, kernel)], sort_lists(s), 0.1)[0]
        results.append(torch.autograd.grad((y * v.to(dtype)).sum(), w)[0].double())
    assert (results[0] - results[1]).abs().max() <= 3e-7 * v.abs().sum()


def test_the_operators_here_are_rank_operators():
    assert all(isinstance(make(0.1), RankOperator) for make in ENGINE.values())

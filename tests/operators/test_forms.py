"""The two forms of an operator, matrices and kernel sums: they agree, and the choice of one."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from operator_table import OPERATORS, TWO_FORMS, draw
from pairwise import each, named, split, together
from torch.func import jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from ltr.kernels import use
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.kernels.sums import ENTRIES, LENGTHS, prefers_dense
from ltr.operators import NeuralSort, SigmoidRank, SoftSort

both = each("name", {name: name for name in sorted(TWO_FORMS)})
TIES = torch.tensor([0.3, -1.0, 0.3, 2.0, 0.5, 0.3, 2.0]).double()
LISTS = {"distinct": draw(3, 40), "ties": TIES, "one": draw(2, 1), "wide": 50 * draw(2, 20)}


def in_both_forms(compute):
    with use("dense"):
        dense = compute()
    with use("sums"):
        return dense, compute()


@together(
    "name, case, masked", *split(named(*sorted(TWO_FORMS)), named(*LISTS), named(False, True))
)
def test_ranks_and_derivatives_agree(name, case, masked):
    operator, x = OPERATORS[name], LISTS[case].clone().requires_grad_()
    mask = draw(*x.shape, seed=3) < 0.8 if masked else None
    weights = draw(*x.shape, seed=4)

    def found():
        ranks = operator(x, mask)
        (slope,) = torch.autograd.grad((ranks * weights).sum(), x, create_graph=True)
        # SoftSort by power 1 has no second derivative at a tie
        twice = torch.autograd.grad((slope * weights).sum(), x)[0] if case != "ties" else slope
        return ranks, slope, twice

    for dense, sums in zip(*in_both_forms(found), strict=True):
        torch.testing.assert_close(dense, sums, rtol=1e-7, atol=1e-9)


@both
def test_float32_agrees(name):
    scores, operator = draw(2, 60, dtype=torch.float32), OPERATORS[name]
    dense, sums = in_both_forms(lambda: operator(scores))
    assert dense.dtype == sums.dtype == torch.float32
    torch.testing.assert_close(dense, sums, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("power", [None, 1, 2, 0.5, 1.5])
@pytest.mark.parametrize("k", [None, 2])
def test_products_agree(power, k):
    mask = torch.tensor([[True, False, True, True, True], [True] * 5, [False] * 5])
    x, v = draw(3, 5).requires_grad_(), draw(3, 5, 2, seed=1)
    operator = SoftSort(power=power) if power else NeuralSort(0.7)

    def found():
        P = operator.permutation(x, mask)
        P = P if k is None else P.top(k)
        rows = torch.arange(P.rows).expand(3, P.rows)
        given = [P.mv(v[..., 0]), P @ v, P.mT.mv(v[:, : P.rows, 0]), P.mT @ v[:, : P.rows]]
        given += [P.sort(), P.log_prob(rows).clamp(min=-50), P @ v[0], P.mv(v[0, :, 0])]
        total = torch.stack([y.square().sum() for y in given]).sum()
        return [*given, torch.autograd.grad(total, x)[0]]

    for dense, sums in zip(*in_both_forms(found), strict=True):
        torch.testing.assert_close(dense, sums, rtol=1e-8, atol=1e-10)


@both
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_list_that_is_not_finite_is_nan_in_both(name, bad):
    scores = draw(2, 6)
    scores[0, 2] = bad
    for ranks in in_both_forms(lambda: OPERATORS[name](scores)):
        assert ranks[0].isnan().all()
        assert ranks[1].isfinite().all()


@both
def test_sums_under_transforms(name):
    operator, x = OPERATORS[name], draw(3, 5)
    with use("sums"):
        torch.testing.assert_close(vmap(operator)(x), operator(x))
        one_by_one = torch.autograd.functional.jacobian(operator, x[0])
        torch.testing.assert_close(jacrev(operator)(x[0]), one_by_one)
        with pytest.raises(RuntimeError, match="forward-mode derivatives are not supported"):
            jvp(operator, (x,), (x,))


class SumsTakenError(Exception):
    pass


def no_sums(*_):
    raise SumsTakenError


def test_softsort_keeps_to_the_pinned_form(monkeypatch):
    def refuse(*arguments):
        raise SumsTakenError

    monkeypatch.setattr("ltr.kernels.softsort_ranks.differentiable", refuse)
    with use("dense"):
        assert SoftSort()(draw(5)).shape == (5,)
        assert SoftSort().permutation(draw(5)).ranks().shape == (5,)
    with pytest.raises(SumsTakenError):
        SoftSort()(draw(5))


def test_a_pin_ends_with_an_error():
    with pytest.raises(KeyError), use("dense"):
        raise KeyError
    assert not prefers_dense("logistic", (100_000,))


@both
@pytest.mark.parametrize("lists", [(), (1,), (3,), (10, 30)], ids=str)
def test_the_choice_is_by_the_shape_alone(name, lists, monkeypatch):
    many = math.prod(lists) > 3
    monkeypatch.setattr("ltr.kernels.sums.LENGTHS", dict.fromkeys(LENGTHS, 5))
    monkeypatch.setattr("ltr.kernels.sums.ENTRIES", dict.fromkeys(ENTRIES, 3 * 6 * 6))
    for dtype in (torch.float32, torch.float64):
        with computed_by(REFERENCE._replace(kernel_sums=no_sums)):
            for n in (4,) if many else (4, 5, 6):
                assert OPERATORS[name](draw(*lists, n, dtype=dtype)).shape == (*lists, n)
            with pytest.raises(SumsTakenError):
                OPERATORS[name](draw(*lists, 5 if many else 11, dtype=dtype))


def test_the_choice_can_be_pinned():
    assert prefers_dense("logistic", (4,))
    assert not prefers_dense("logistic", (100_000,))
    with use("sums"):
        assert not prefers_dense("logistic", (4,))
        with use("dense"):
            assert prefers_dense("logistic", (100_000,))
        assert not prefers_dense("logistic", (4,))
    assert prefers_dense("logistic", (4,))
    with use("dense"), use("sums"):
        with use("dense"):
            pass
        assert not prefers_dense("logistic", (4,))  # the pin of "sums" holds again
    with pytest.raises(ValueError, match=r"form.*'fast'"), use("fast"):  # type: ignore[arg-type]
        pass


def test_empty_lists():
    for shape in ((0,), (3, 0), (0, 5)):
        assert SigmoidRank()(torch.zeros(shape)).shape == shape


SCORES = draw(60, dtype=torch.float32)


def ranks():
    return SigmoidRank(0.1)(SCORES)


def the_two_forms():
    dense, sums = in_both_forms(ranks)
    assert not torch.equal(dense, sums)
    assert torch.equal(ranks(), dense)  # by default
    return dense, sums


def test_a_thread_has_its_own_choice():
    dense, sums = the_two_forms()
    with ThreadPoolExecutor(1) as pool:
        with use("sums"):
            assert torch.equal(pool.submit(ranks).result(), dense)
            with computed_by(REFERENCE._replace(kernel_sums=no_sums)):
                assert torch.equal(pool.submit(lambda: in_both_forms(ranks)[1]).result(), sums)
                with pytest.raises(SumsTakenError):
                    ranks()
            other = use("dense")
            pool.submit(other.__enter__).result()  # it ends after this block
            assert torch.equal(ranks(), sums)
        assert torch.equal(ranks(), dense)
        pool.submit(other.__exit__, None, None, None).result()


def test_an_asyncio_task_has_its_own_choice():
    expected = dict(zip(("dense", "sums"), the_two_forms(), strict=True))

    async def some(form, turns):
        found = []
        with use(form):
            for _ in range(turns):
                await asyncio.sleep(0)  # the other task goes on, and may end its block
                found.append(torch.equal(ranks(), expected[form]))
        return found

    async def later():
        await asyncio.sleep(0)
        return ranks()

    async def all_tasks():
        with use("sums"):
            inherited = asyncio.create_task(later())
            tasks = await asyncio.gather(some("dense", 2), some("sums", 3), some("dense", 4))
        assert torch.equal(await inherited, expected["sums"])
        return tasks

    assert asyncio.run(all_tasks()) == [[True] * turns for turns in (2, 3, 4)]


def test_compiled_code_sees_the_choice_of_each_call():
    dense, sums = the_two_forms()
    torch.compiler.reset()
    compiled = torch.compile(ranks, backend="eager", fullgraph=True)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):  # traced, then found
            assert torch.equal(compiled(), dense)
            with use("sums"):
                assert torch.equal(compiled(), sums)
                assert torch.equal(pool.submit(compiled).result(), dense)


def test_a_checkpoint_keeps_the_form_in_another_thread():
    def gradient(total, run):
        leaf = SCORES.clone().requires_grad_()
        with use("sums"):
            value = total(leaf)
        run(value.backward)
        assert leaf.grad is not None
        return leaf.grad

    def plain(leaf):
        return (SigmoidRank(0.1)(leaf) ** 2).sum()

    def checkpointed(leaf):
        contexts = nullcontext(), use("sums")
        return checkpoint(plain, leaf, use_reentrant=False, context_fn=lambda: contexts)

    expected = gradient(plain, lambda call: call())
    # A backward pass on a GPU runs in a thread of torch's own.
    with ThreadPoolExecutor(1) as pool:
        found = gradient(checkpointed, lambda call: pool.submit(call).result())
    assert torch.equal(found, expected)

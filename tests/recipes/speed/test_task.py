"""The speed comparison: published operators, a step by its formula, costs, and resuming."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from scipy.stats import spearmanr

from ltr.datasets import DigitsDataModule
from ltr.operators import NeuralSort, SigmoidRank, SoftSort, SortOperator, Stochastic
from recipes.speed.published_sorts import MatrixPermutation, PublishedNeuralSort, PublishedSoftSort
from recipes.speed.random_scores import RandomScoresDataModule
from recipes.speed.step_cost import StepCost, peak_memory
from recipes.speed.task import SpeedTask, sorting_loss

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*exists and is not empty.*",
    "ignore:The dirpath has changed.*",
)

CPU = torch.device("cpu")
PAIRS = [
    (PublishedNeuralSort(0.7), NeuralSort(0.7)),
    (PublishedNeuralSort(0.7, fixed=True), NeuralSort(0.7)),
    (PublishedSoftSort(0.3), SoftSort(0.3, power=2)),
    (PublishedSoftSort(0.3, power=1), SoftSort(0.3)),
    (PublishedSoftSort(0.3, power=1.5), SoftSort(0.3, power=1.5)),
]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def identity(lists: int, n: int) -> torch.Tensor:
    return torch.arange(n).expand(lists, n)


# published operators


@pytest.mark.parametrize("n", [1, 2, 7, 80])
@pytest.mark.parametrize(("published", "ours"), PAIRS, ids=lambda op: repr(op))
def test_the_published_operators_are_ours(published: SortOperator, ours: SortOperator, n: int):
    scores = normal(3, n)
    P, Q = published.permutation(scores), ours.permutation(scores)
    torch.testing.assert_close(P.dense(), Q.dense(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(published(scores), ours(scores), rtol=1e-8, atol=1e-8)
    assert torch.equal(P.hard(), Q.hard())
    assert P.rows == n
    assert P.top(2).shape == Q.top(2).shape
    order = scores.argsort(descending=True)
    torch.testing.assert_close(P.log_prob(order), Q.log_prob(order), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("published", "ours"), PAIRS, ids=lambda op: repr(op))
def test_so_are_their_gradients(published: SortOperator, ours: SortOperator):
    scores, order = normal(2, 40), identity(2, 40)
    gradients = []
    for operator in (published, ours):
        x = scores.clone().requires_grad_()
        operator.permutation(x).log_prob(order).mean().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


def test_neuralsort_by_equation_three_written_out():
    s, tau = normal(5).tolist(), 0.7
    rows = []
    for i in range(1, 6):
        logits = [((5 + 1 - 2 * i) * x - sum(abs(x - y) for y in s)) / tau for x in s]
        weights = np.exp(np.array(logits) - max(logits))
        rows.append(weights / weights.sum())
    expected = torch.tensor(np.array(rows))
    for fixed in (False, True):
        P = PublishedNeuralSort(tau, fixed).permutation(torch.tensor(s, dtype=torch.float64))
        torch.testing.assert_close(P.dense(), expected)


def test_the_published_one_takes_cubic_work_and_the_fixed_one_does_not():
    from torch.utils.flop_counter import FlopCounterMode

    def flops(fixed: bool, n: int) -> int:
        with FlopCounterMode(display=False) as counter:
            PublishedNeuralSort(1.0, fixed).permutation(torch.randn(2, n)).dense()
        return counter.get_total_flops()

    assert flops(False, 200) > 7 * flops(False, 100)
    assert flops(True, 200) < 5 * flops(True, 100)


@pytest.mark.parametrize("operator", [PublishedNeuralSort(), PublishedSoftSort()])
def test_the_published_operators_refuse_what_they_do_not_know(operator: SortOperator):
    scores = torch.randn(2, 3)
    with pytest.raises(ValueError, match="mask must"):
        operator(scores, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="weights"):
        operator(scores, None, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PublishedNeuralSort(0.0), "temperature.*0"),
        (lambda: PublishedSoftSort(-1.0), "temperature.*-1"),
        (lambda: PublishedSoftSort(1.0, power=0.0), "power.*0"),
        (lambda: RandomScoresDataModule(n=0), "n.*0"),
        (lambda: RandomScoresDataModule(lists=0), "lists.*0"),
        (lambda: RandomScoresDataModule(seed=-1), "seed.*-1"),
        (lambda: SpeedTask({}), "operators.*{}"),
        (lambda: SpeedTask({"a b": SoftSort()}), "letters, digits and _, got 'a b'"),
        (lambda: SpeedTask(SoftSort()), "operators must"),  # pyright: ignore
        (lambda: SpeedTask(steps={"softsort": 0}), "steps.softsort must"),
        (lambda: SpeedTask(steps={"x": 1}), "steps.*'x'"),
        (lambda: SpeedTask(baselines=["x"]), "baselines.*'x'"),
        (lambda: SpeedTask(lr=-1.0), "lr.*-1"),
    ],
)
def test_wrong_arguments(make: Any, message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_matrix_permutation_keeps_its_matrix():
    matrix = torch.softmax(normal(2, 3, 3), -1)
    P = MatrixPermutation(matrix, normal(2, 3))
    assert P.dense() is matrix
    torch.testing.assert_close(P.log_dense().exp(), matrix)
    with pytest.raises(ValueError, match="order"):
        P.log_prob(torch.zeros(2, 2, dtype=torch.int64))


# a step


def plain_softsort(s: np.ndarray) -> np.ndarray:
    logits = -((np.sort(s)[::-1][:, None] - s[None, :]) ** 2) / 0.1
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def test_the_loss_is_its_formula():
    theta = normal(4, 9)
    lists = []
    for row in theta.numpy():
        scores = (row - row.min()) / (row.max() - row.min())
        lists.append(-np.log(np.diag(plain_softsort(scores))).mean())
    expected = np.mean(lists) + (theta.numpy() ** 2).sum() / 200
    for operator in (SoftSort(0.1, power=2), PublishedSoftSort(0.1)):
        loss = sorting_loss(theta, operator, identity(4, 9))
        torch.testing.assert_close(loss.item(), expected, rtol=1e-9, atol=0)


def test_the_gradient_takes_minimum_and_maximum_as_constants():
    theta = normal(3, 6).requires_grad_()
    sorting_loss(theta, PublishedSoftSort(0.1), identity(3, 6)).backward()
    low, high = theta.detach().min(-1, True).values, theta.detach().max(-1, True).values

    def at(values: torch.Tensor) -> float:
        scores = ((values - low) / (high - low)).numpy()
        lists = [-np.log(np.diag(plain_softsort(row))).mean() for row in scores]
        return float(np.mean(lists) + (values.numpy() ** 2).sum() / 200)

    expected = torch.zeros(3, 6, dtype=torch.float64)
    for position in np.ndindex(3, 6):
        step = torch.zeros(3, 6, dtype=torch.float64)
        step[position] = 1e-6
        expected[position] = (at(theta.detach() + step) - at(theta.detach() - step)) / 2e-6
    assert theta.grad is not None
    torch.testing.assert_close(theta.grad, expected, rtol=1e-6, atol=1e-8)


def test_samples_of_a_stochastic_operator_are_averaged():
    operator = Stochastic(SoftSort(0.1), samples=3)
    loss = sorting_loss(normal(2, 5).requires_grad_(), operator, identity(2, 5))
    assert loss.dim() == 0
    loss.backward()


# training


def train(task: SpeedTask, data: Any, epochs: int, folder: Path, **options: Any) -> Trainer:
    callbacks = options.pop("callbacks", [])
    trainer = Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(task, datamodule=data, **options)
    return trainer


def test_training_is_momentum_sgd_on_the_loss(tmp_path: Path):
    data = RandomScoresDataModule(n=12, lists=3, seed=4)
    task = SpeedTask()
    train(task, data, 5, tmp_path)
    for name, operator in task.operators.items():
        theta, velocity = data.start.requires_grad_(), torch.zeros(3, 12)
        for _ in range(5):
            loss = sorting_loss(theta, operator, identity(3, 12))  # pyright: ignore
            (gradient,) = torch.autograd.grad(loss, theta)
            velocity = 0.5 * velocity + gradient
            theta = (theta - 10 * velocity).detach().requires_grad_()
        torch.testing.assert_close(task.theta[name].detach(), theta.detach())
        assert task.costs[name].steps == 5
        assert len(task.costs[name].wall) == len(task.costs[name].cpu) == 4


def test_the_published_script_has_the_same_gradient():
    """mean(1 - log P) with weight decay 0.01 in SGD."""
    start = normal(4, 20)
    ours, theirs = (start.clone().requires_grad_() for _ in range(2))
    first = torch.optim.SGD([ours], lr=10, momentum=0.5)
    second = torch.optim.SGD([theirs], lr=10, momentum=0.5, weight_decay=0.01)
    for _ in range(5):
        for theta, sgd in ((ours, first), (theirs, second)):
            sgd.zero_grad()
            if theta is ours:
                sorting_loss(theta, SoftSort(0.1, power=2), identity(4, 20)).backward()
            else:
                low = theta.min(-1, keepdim=True).values.detach()
                high = theta.max(-1, keepdim=True).values.detach()
                P = PublishedSoftSort(0.1).permutation((theta - low) / (high - low)).dense()
                (1 - P.diagonal(dim1=-2, dim2=-1).log()).mean().backward()
            sgd.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.slow  # a hundred steps; the test above compares a few with their formulas
def test_scores_get_sorted(tmp_path: Path):
    data = RandomScoresDataModule(n=10, lists=4)
    task = SpeedTask({"softsort": SoftSort(0.03, power=2), "neuralsort": NeuralSort(1.0)}, lr=1.0)
    before = [spearmanr(row, -np.arange(10)).statistic for row in data.start.numpy()]
    assert np.mean(before) < 0.5
    trainer = train(task, data, 100, tmp_path)
    (found,) = trainer.test(task, datamodule=data, verbose=False)
    for name in task.operators:
        rows = task(name).detach().numpy()
        after = np.mean([spearmanr(row, -np.arange(10)).statistic for row in rows])
        assert found[f"test_spearman_{name}"] == pytest.approx(after, abs=1e-6)
        assert after > 0.999


def test_some_operators_take_fewer_steps_of_long_lists(tmp_path: Path):
    for above, expected in ((0, 2), (5, 2), (6, 4)):
        task = SpeedTask(steps={"neuralsort": 2}, steps_above=above)
        train(task, RandomScoresDataModule(n=6, lists=2), 4, tmp_path)
        assert task.costs["neuralsort"].steps == expected
        assert task.costs["softsort"].steps == 4


def test_a_test_logs_medians_and_ratios(tmp_path: Path):
    data = RandomScoresDataModule(n=6, lists=2)
    task = SpeedTask({"a": SoftSort(), "b": PublishedSoftSort()}, baselines=["a"])
    trainer = train(task, data, 3, tmp_path)
    task.costs["a"].cpu, task.costs["b"].cpu = [1.0, 9.0, 2.0], [5.0, 1.0, 6.0]
    task.costs["a"].wall = [0.5]
    (found,) = trainer.test(task, datamodule=data, verbose=False)
    assert found["test_cpu_ms_a"] == 2000
    assert found["test_cpu_ms_b"] == 5000
    assert found["test_ms_a"] == 500
    assert found["test_b_to_a"] == 2.5
    assert found["test_steps_b"] == 3
    assert found["test_loss_a"] == pytest.approx(task.losses["a"])
    assert found["test_mb_b"] > 0
    assert "test_a_to_a" not in found


def test_other_data_are_refused(tmp_path: Path):
    data = DigitsDataModule(list_size=2, train_lists=2, val_lists=1, test_lists=1)
    with pytest.raises(ValueError, match=r"data.*DigitsData"):
        train(SpeedTask(), data, 1, tmp_path)


# costs


def test_peak_memory_is_what_is_held_at_once():
    def call() -> torch.Tensor:
        first = torch.ones(1000)  # 4,000 bytes
        second = first.sqrt()  # and 4,000
        del first
        return second + second  # still 8,000

    assert peak_memory(call, CPU) == 8000
    assert peak_memory(lambda: None, CPU) == 0


def test_an_engine_needs_no_matrix():
    n = 300
    theta = torch.rand(4, n, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def step(operator: SortOperator) -> int:
        def call() -> None:
            sorting_loss(theta, operator, identity(4, n)).backward()

        call()
        theta.grad = None
        return peak_memory(call, CPU)

    matrix = 4 * 4 * n * n
    assert step(SoftSort(0.1, power=2)) < matrix / 4
    assert step(PublishedSoftSort(0.1)) > 3 * matrix
    assert step(PublishedNeuralSort(100.0)) > 3 * matrix


def test_the_first_step_of_a_process_is_not_timed():
    cost = StepCost()
    assert cost.seconds() is None
    for _ in range(3):
        cost.add(lambda: torch.ones(10), CPU)
    assert (cost.steps, len(cost.wall), len(cost.cpu), cost.memory) == (3, 2, 2, 40)
    again = StepCost(**json.loads(json.dumps(cost.state())))
    again.add(lambda: torch.ones(20), CPU)
    assert (again.steps, again.wall, again.memory) == (4, cost.wall, 80)


# checkpoints


def test_a_checkpoint_has_scores_and_costs(tmp_path: Path):
    data = RandomScoresDataModule(n=6, lists=2)
    task = SpeedTask({"a": SoftSort(0.3)}, lr=1.0)
    train(task, data, 3, tmp_path).save_checkpoint(tmp_path / "x.ckpt")
    again = SpeedTask.load_from_checkpoint(
        tmp_path / "x.ckpt", weights_only=True, operators={"a": SoftSort(0.3)}
    )
    assert torch.equal(again("a"), task("a"))
    assert again.costs["a"].wall == task.costs["a"].wall


class Kill(Callback):
    """The process ends without a word, as for want of memory."""

    def on_train_epoch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.current_epoch == 6:
            os.kill(os.getpid(), signal.SIGKILL)


def long_run(folder: Path, *callbacks: Callback, ckpt_path: str | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    task = SpeedTask({"noisy": Stochastic(SoftSort(0.1), samples=2), "neuralsort": NeuralSort(1.0)})
    saver = ModelCheckpoint(folder, save_top_k=-1, save_last=True)
    data = RandomScoresDataModule(n=8, lists=2)
    train(task, data, 10, folder, callbacks=[saver, *callbacks], ckpt_path=ckpt_path)
    return torch.load(folder / "last.ckpt", weights_only=True)


@pytest.mark.slow  # a fresh process imports Lightning, to be killed
def test_a_killed_run_resumes(tmp_path: Path):
    whole = long_run(tmp_path / "whole")
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from pathlib import Path\n"
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('killed', {__file__!r})\n"
        "tests = importlib.util.module_from_spec(spec); spec.loader.exec_module(tests)\n"
        f"tests.long_run(Path({str(tmp_path / 'broken')!r}), tests.Kill())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    last = str(tmp_path / "broken" / "last.ckpt")
    before = torch.load(last, weights_only=True)
    assert 0 < before["costs"]["noisy"]["steps"] < 10
    resumed = long_run(tmp_path / "broken", ckpt_path=last)
    for name, value in whole["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], value)
    for name, cost in resumed["costs"].items():
        assert cost["steps"] == whole["costs"][name]["steps"] == 10
        assert len(cost["wall"]) == 8  # the first step of each process is not timed
    assert resumed["losses"] == whole["losses"]


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ({"a": SoftSort}, "operators.a must"),
        ({"a": SigmoidRank()}, "operators.a must"),
        ({"keys": SoftSort()}, "operators.*'keys'"),
    ],
)
def test_operators_that_are_none(operators, message):
    with pytest.raises(ValueError, match=message):
        SpeedTask(operators)

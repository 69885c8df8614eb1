"""Every loss with every operator is built from YAML and takes a step, with ragged lists too."""

import inspect
import random

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser
from loss_table import LOSSES
from pairwise import each, split, together

import ltr.losses
import ltr.operators
from ltr.losses import RankingLoss
from ltr.operators import HardRank, RankOperator, SortOperator, Stochastic


def classes(module, base):
    found = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, base)]
    return [c for c in found if c not in (RankOperator, SortOperator, HardRank)]


# the operators inside wrappers
INNER = {
    "Stochastic": {"class_path": "ltr.operators.SoftSort"},
    "StraightThrough": {"class_path": "ltr.operators.NeuralSort"},
}


def build(layer):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--loss", type=RankingLoss)
    config = parser.parse_string(yaml.safe_dump({"loss": layer}))
    again = parser.parse_string(parser.dump(config))  # printed and read back
    assert parser.dump(again) == parser.dump(config)
    return parser.instantiate(again).loss


def step(loss):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 7, generator=generator)
    labels = torch.randint(0, 3, (4, 7), generator=generator).float()
    mask = torch.rand(4, 7, generator=generator) < 0.8
    mask[3] = False
    scores.requires_grad_()
    value = loss(scores, labels, mask)
    value.backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~mask] == 0).all()
    return scores.grad


def operators_of(loss):
    """Return the operators that the annotation of the loss admits."""
    parameter = inspect.signature(loss).parameters.get("operator")
    if parameter is None:
        return []
    sorts = "RankOperator" not in str(parameter.annotation)
    return classes(ltr.operators, SortOperator if sorts else RankOperator)


@each("name", {name: name for name in LOSSES})
def test_every_loss_builds_from_yaml_and_takes_a_step(name):
    grad = step(build({"class_path": f"ltr.losses.{name}"}))
    assert (grad != 0).any() or name in ("SoftPrecision", "SoftRecall")


def with_each(base):
    """The losses that take the operators of a base class, and these operators, by name."""
    operators = classes(ltr.operators, base)
    losses = {name: loss for name, loss in LOSSES.items() if operators_of(loss) == operators}
    return losses, {operator.__name__: operator for operator in operators}


@together("loss, operator", *split(*with_each(RankOperator)))
def test_every_loss_takes_a_step_with_every_operator(loss, operator):
    step(loss(operator=operator()))


@together("loss, operator", *split(*with_each(SortOperator)))
def test_every_loss_of_a_matrix_takes_a_step_with_every_operator(loss, operator):
    step(loss(operator=operator()))


# how YAML is read depends on the annotation alone: one loss for each
@pytest.mark.parametrize("name", ["SoftNDCG", "NeuralNDCG"])
def test_every_operator_of_a_loss_builds_from_yaml(name):
    annotation = inspect.signature(LOSSES[name]).parameters["operator"].annotation
    assert ("RankOperator" in str(annotation)) == (name == "SoftNDCG")
    for operator in operators_of(LOSSES[name]):
        inner = INNER.get(operator.__name__)
        arguments = {} if inner is None else {"operator": inner}
        chosen = {"class_path": f"ltr.operators.{operator.__name__}", "init_args": arguments}
        loss = build({"class_path": f"ltr.losses.{name}", "init_args": {"operator": chosen}})
        assert type(loss.operator) is operator


# docs/losses/soft-metrics.md and neural-ndcg.md say when and by how much
BELOW_0 = {"NeuralNDCG", "PiRank", "SoftMAP", "SoftNDCG", "SoftPrecision", "SoftRecall"}
BELOW_0 |= {"SpearmanLoss"}


@pytest.mark.parametrize(
    "most",
    [3, pytest.param(100, id="all", marks=pytest.mark.slow)],  # some twenty operators each
)
@each("name", {name: name for name in LOSSES})
def test_a_loss_is_below_0_only_where_its_page_says_so(name, most):
    generator = torch.Generator().manual_seed(0)
    lists = []
    for n in (4, 8):
        scores = torch.randn(100, n, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 4, (100, n), generator=generator).double()
        tied, few = (2 * scores).round() / 2, (labels > 2).double()
        lists += [(0 * scores, labels), (0 * scores, few), (tied, labels), (scores, few)]
    kind, least = LOSSES[name], 0.0
    cutoffs = [{}, {"top_k": 2}] if "top_k" in inspect.signature(kind).parameters else [{}]
    kinds = operators_of(kind)
    kinds = random.Random(name).sample(kinds, min(most, len(kinds)))
    operators = [{"operator": operator()} for operator in kinds]
    for options in ({**k, **operator} for k in cutoffs for operator in [{}, *operators]):
        loss = kind(reduction="none", **options).eval()
        least = min(least, *(loss(*one).min().item() for one in lists))
    assert (least < -1e-6) == (name in BELOW_0)


@pytest.mark.parametrize("name", [n for n, c in LOSSES.items() if operators_of(c)])
def test_without_noise_samples_change_nothing_on_ragged_lists(name):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 6), generator=generator).double()
    weights = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([[6], [3], [1]])
    plain = LOSSES[name](reduction="none")
    sampled = LOSSES[name](Stochastic(plain.operator, samples=3, scale=0.0), reduction="none")
    torch.testing.assert_close(
        sampled(scores, labels, mask, weights), plain(scores, labels, mask, weights)
    )


@pytest.mark.parametrize("name", [n for n, c in LOSSES.items() if operators_of(c)])
def test_lists_of_no_items_count_0(name):
    for loss in (LOSSES[name](), LOSSES[name](Stochastic(LOSSES[name]().operator))):
        scores = torch.zeros(3, 0, requires_grad=True)
        value = loss(scores, torch.zeros(3, 0))
        value.backward()
        assert value == 0

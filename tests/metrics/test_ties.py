"""Tied scores: the mean, and the least, over all orders by brute force."""

from functools import cache
from inspect import signature
from itertools import chain, permutations, product
from math import isclose
from typing import get_args

import pytest
import torch
from metric_table import WEIGHTED
from pairwise import together

from ltr.metrics import functional as F

# every metric that has all three options, as it is and cut
TIES = {name: signature(getattr(F, name)).parameters.get("ties") for name in F.__all__}
TIED = {
    f"{name}{'' if k is None else f'@{k}'}": (getattr(F, name), {} if k is None else {"top_k": k})
    for name, ties in TIES.items()
    if ties is not None and {"expected", "worst"} <= {*get_args(ties.annotation)}
    if name != "gmap"  # the average precision of each list, but at least 1e-5
    for k in (None, 1, 2, 3)
    if k is None or "top_k" in signature(getattr(F, name)).parameters
} | {
    "average_precision@3 over all": (F.average_precision, {"top_k": 3, "divisor": "relevant"}),
    "graded rbp": (F.rbp, {"gain": "exp2", "max_label": 3}),
    "rbp@2 of 0.5": (F.rbp, {"top_k": 2, "p": 0.5}),
    "f_beta@2 of 2": (F.f_beta, {"top_k": 2, "beta": 2}),
    "average_precision@3 from 2": (F.average_precision, {"top_k": 3, "relevant_from": 2}),
    "mrr from 2": (F.mrr, {"relevant_from": 2}),
}
every = together("metric, options", TIED)


@cache
def cases(lists: int = 25, n: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = []
    for i in range(lists):
        levels = 1 + i % 4
        scores = torch.randint(0, levels, (n,), generator=generator).double() - 1
        found.append((scores, torch.randint(0, 4, (n,), generator=generator) - 1))
    return [(s, y.clamp(min=0).double()) for s, y in found]


def batch(lists: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scores and labels of `cases`, (lists, n) each."""
    scores, labels = zip(*cases(lists), strict=True)
    return torch.stack(scores), torch.stack(labels)


def orders(scores: torch.Tensor) -> torch.Tensor:
    """All orders of the items by descending score: (orders, n)."""
    return _orders(tuple(scores.tolist()))


@cache
def _orders(scores: tuple[float, ...]) -> torch.Tensor:
    of = {s: [i for i, x in enumerate(scores) if x == s] for s in sorted(set(scores))[::-1]}
    return torch.tensor([list(chain(*x)) for x in product(*map(permutations, of.values()))])


def all_values(metric, options, scores, labels, **items) -> torch.Tensor:
    order = orders(scores)
    untied = -torch.arange(len(scores)).double().expand(order.shape)
    items = {name: x[order] for name, x in items.items()}
    return metric(untied, labels[order], **items, **options, reduction="none")


@every
def test_expected_and_worst_are_those_of_all_orders(metric, options):
    each = [
        metric(*batch(), ties=ties, **options, reduction="none") for ties in ("expected", "worst")
    ]
    # one call for the orders of all lists
    order = [orders(scores) for scores, _ in cases()]
    labels = torch.cat([labels[o] for (_, labels), o in zip(cases(), order, strict=True)])
    untied = -torch.arange(6).double().expand(labels.shape)
    values = metric(untied, labels, **options, reduction="none").split([len(o) for o in order])
    extreme = torch.amax if metric is F.arp else torch.amin  # lower is better
    for expected, worst, found in zip(*each, values, strict=True):
        assert isclose(expected.item(), found.mean().item(), abs_tol=1e-12)
        assert isclose(worst.item(), extreme(found).item(), abs_tol=1e-12)


@every
def test_padding_and_batches_change_nothing(metric, options):
    lists = cases(8)
    scores = torch.stack([torch.cat([s, s.new_zeros(2)]) for s, _ in lists])
    labels = torch.stack([torch.cat([y, y.new_ones(2)]) for _, y in lists])
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[:, -2:] = False
    for ties in ("expected", "worst"):
        each = metric(scores, labels, mask=mask, ties=ties, reduction="none", **options)
        alone = torch.stack([metric(s, y, ties=ties, **options) for s, y in lists])
        torch.testing.assert_close(each, alone)


@every
def test_row_order_changes_nothing_with_expected(metric, options):
    generator = torch.Generator().manual_seed(4)
    scores, labels = batch()
    order = torch.stack([torch.randperm(6, generator=generator) for _ in scores])
    one = metric(scores, labels, ties="expected", reduction="none", **options)
    permuted = [x.gather(-1, order) for x in (scores, labels)]
    other = metric(*permuted, ties="expected", reduction="none", **options)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", sorted(WEIGHTED, key=lambda metric: metric.__name__))
def test_expected_with_item_weights(metric):
    generator = torch.Generator().manual_seed(5)
    for scores, labels in cases(8):
        weights = torch.rand(len(scores), dtype=torch.float64, generator=generator)
        values = all_values(metric, {}, scores, labels, weights=weights)
        expected = metric(scores, labels, weights=weights, ties="expected")
        torch.testing.assert_close(expected, values.mean(), rtol=0, atol=1e-12)


def test_an_item_that_is_not_judged_is_no_hit_in_the_worst_order():
    scores, labels = torch.tensor([2.0, 1.0, 1.0]), torch.tensor([1, 1, 1])
    judged = torch.tensor([True, True, False])
    values = all_values(F.bpref, {"top_k": 2}, scores, labels, judged=judged)
    worst = F.bpref(scores, labels, judged=judged, top_k=2, ties="worst")
    assert worst == values.min() == 0.5


ORDERED = {
    "err": (F.err, {}),
    "err@2 of 3": (F.err, {"top_k": 2, "max_label": 3}),
    "bpref": (F.bpref, {}),
    "bpref@2": (F.bpref, {"top_k": 2}),
}


@together("metric, options", ORDERED)
def test_worst_is_the_least_of_all_orders(metric, options):
    for scores, labels in cases():
        values = all_values(metric, options, scores, labels)
        worst = metric(scores, labels, ties="worst", **options)
        torch.testing.assert_close(worst, values.min(), rtol=0, atol=1e-12)
        with pytest.raises(ValueError, match='ties must be "stable" or "worst", got \'expected\''):
            metric(scores, labels, ties="expected")


@every
def test_stable_is_the_list_order(metric, options):
    scores, labels = batch()
    first = -torch.arange(6).double().expand(scores.shape)
    order = scores.argsort(descending=True, stable=True)
    untied = torch.empty_like(scores).scatter(-1, order, first)
    stable = {
        "reduction": "none",
        "ties": "stable",
        **options,
    }  # the default of Kendall's tau is tied
    assert metric(scores, labels, **stable).equal(metric(untied, labels, **stable))


@every
def test_an_unknown_option_is_refused(metric, options):
    with pytest.raises(ValueError, match=r"ties.*'x'"):
        metric(torch.zeros(2), torch.ones(2), ties="x", **options)

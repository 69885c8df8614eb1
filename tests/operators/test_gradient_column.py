"""The column "gradient for every item" in docs/operators/index.md says what is computed."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ltr import operators

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "index.md"
ENTRIES = {
    name: entry.strip()
    for name, entry in re.findall(r"^\| \[`(\w+)`\].*\| ([^|]*) \|$", PAGE.read_text(), re.M)
}
APART = torch.tensor([0.3, -0.5, 1.0, 0.1, 0.7, -1.1, 60.0], dtype=torch.float64)
LEAST = 1e-12  # what is below is rounding
TIED = torch.full((7,), 0.2, dtype=torch.float64)


def moved(name: str, scores: Tensor) -> Tensor:
    """Which items have a gradient, by some weights of what the operator gives."""
    weights = torch.tensor([1.0, -2.0, 3.0, 0.9, -1.5, 2.2, 0.3], dtype=torch.float64)
    if name == "GumbelSinkhorn":  # of a matrix
        x = torch.stack([scores.roll(i) for i in range(7)]).requires_grad_()
        matrix = operators.GumbelSinkhorn(10.0).eval()(x).dense()
        (matrix * torch.outer(weights, weights.flip(0))).sum().backward()
        assert x.grad is not None
        return (x.grad.abs() > LEAST).all(0)
    x = scores.clone().requires_grad_()
    kind = getattr(operators, name)
    found = (kind() if name == "HardRank" else kind(10.0))(x)
    if not found.requires_grad:
        return torch.zeros(7, dtype=torch.bool)
    (found * weights).sum().backward()
    assert x.grad is not None
    return x.grad.abs() > LEAST


def test_the_page_has_all_operators():
    kinds = (operators.RankOperator, operators.SortOperator)
    known = {
        name
        for name in operators.__all__
        if isinstance(one := getattr(operators, name), type) and issubclass(one, kinds)
    }
    assert known - {"RankOperator", "SortOperator"} <= {*ENTRIES}


@pytest.mark.parametrize("name", [name for name in ENTRIES if "operator's" not in ENTRIES[name]])
def test_the_entry_is_what_is_computed(name: str):
    apart, tied, entry = moved(name, APART), moved(name, TIED), ENTRIES[name]
    if entry.startswith("none: ranks are constants"):
        assert not apart.any()
        assert not tied.any()
        for scores in (APART, TIED):
            assert not getattr(operators, name)()(scores.clone().requires_grad_()).requires_grad
    elif entry.startswith("no: 0 for items far from others"):
        assert apart.tolist() == [True] * 6 + [False]
    elif entry.startswith("yes; 0 if all scores tie"):
        assert apart.all()
        assert not tied.any()
    else:
        assert entry.startswith("yes")
        assert apart.all()
        assert tied.all()


NO_RANKS_AT_0 = {"GumbelSinkhorn", "IsotonicSort", "SoftplusRank"}
"""Operators of a matrix, with sorted values, and without a limit at temperature 0."""


def test_ranks_at_temperature_0_are_constants():
    wrong = []
    plain = {name for name, entry in ENTRIES.items() if "operator's" not in entry}
    for name in plain - NO_RANKS_AT_0:
        kind = getattr(operators, name)
        operator = kind() if name == "HardRank" else kind(0.0)
        with pytest.raises(RuntimeError, match="does not require grad"):
            operator(APART.clone().requires_grad_()).sum().backward()
        slopes = torch.func.grad(lambda scores, ranks=operator: ranks(scores).sum())(APART)
        if slopes.any():
            wrong.append(name)
    assert not wrong

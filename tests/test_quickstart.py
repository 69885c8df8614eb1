"""The training loop of docs/quickstart.md, whatever the scorer begins with."""

import doctest
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs" / "quickstart.md"


@pytest.mark.slow  # forty trainings; the page itself is one of the doctests
@pytest.mark.parametrize("seed", range(40))
def test_the_loop_learns_from_any_start(seed: int):
    _, section = PAGE.read_text().split("## A loss in your own loop")
    *steps, claim = doctest.DocTestParser().get_examples(section)
    names = {"torch": torch}
    torch.manual_seed(seed)
    for step in steps:
        exec(step.source, names)
    assert eval(claim.source, names)

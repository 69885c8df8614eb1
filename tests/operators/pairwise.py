"""A few combinations of many values, which every folder of tests shares."""

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest


def chosen(*axes: Mapping[str, object]) -> set[tuple[str, ...]]:
    """Return combinations of names, one of each axis, the same ones at every call.

    Of two axes each value is in one of them; of more axes, each pair of values of two axes.
    """
    strength = min(2, len(axes) - 1)
    every = list(itertools.product(*axes))
    random.Random(0).shuffle(every)

    def parts(one: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
        return set(itertools.combinations(enumerate(one), strength))

    left = set().union(*map(parts, every))
    found = set()
    while left:
        best = max(every, key=lambda one: len(parts(one) & left))
        found.add(best)
        left -= parts(best)
    return found


def covering(
    arguments: str, *axes: Mapping[str, object], indirect: Sequence[str] = ()
) -> pytest.MarkDecorator:
    """Parametrize a test over all combinations of named values; those not `chosen` are slow.

    `indirect` are the arguments that go to a fixture.
    """
    fast = chosen(*axes)
    cases = []
    for names in itertools.product(*axes):
        values = [axis[name] for axis, name in zip(axes, names, strict=True)]
        # thousands of the full product repeat what the chosen ones see
        marks = [] if names in fast else [pytest.mark.slow]
        cases.append(pytest.param(*values, marks=marks, id="-".join(names)))
    return pytest.mark.parametrize(arguments, cases, indirect=list(indirect))


def named(*values: object) -> dict[str, object]:
    """Return the values by their texts, as an axis."""
    return {str(value).removeprefix("torch."): value for value in values}

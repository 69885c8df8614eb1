"""A few combinations of many values, which every folder of tests shares."""

import inspect
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest


def chosen(*axes: Mapping[str, object]) -> set[tuple[str, ...]]:
    """Return combinations of names, one of each axis, the same ones at every call.

    Of one or two axes each value is in one of them; of more axes, each pair of values of two axes.
    """
    strength = 2 if len(axes) > 2 else 1
    every = list(itertools.product(*axes))
    random.Random(0).shuffle(every)

    parts = {one: {*itertools.combinations(enumerate(one), strength)} for one in every}
    left = set().union(*parts.values())
    found = set()
    while left:
        best = max(every, key=lambda one: len(parts[one] & left))
        found.add(best)
        left -= parts[best]
    return found


def split(*axes: Mapping[str, object]) -> tuple[dict[str, tuple], dict[str, tuple]]:
    """Return all combinations of named values: those that are `chosen`, and the others."""
    picked, fast, others = chosen(*axes), {}, {}
    for names in itertools.product(*axes):
        values = tuple(axis[name] for axis, name in zip(axes, names, strict=True))
        (fast if names in picked else others)["/".join(names)] = values
    return fast, others


def covering(
    arguments: str, *axes: Mapping[str, object], indirect: Sequence[str] = ()
) -> pytest.MarkDecorator:
    """Parametrize a test over all combinations of named values; those not `chosen` are slow.

    `indirect` are the arguments that go to a fixture.
    """
    fast, others = split(*axes)
    cases = [pytest.param(*values, id=name) for name, values in fast.items()]
    # thousands of the full product repeat what the chosen ones see
    cases += [pytest.param(*v, id=name, marks=pytest.mark.slow) for name, v in others.items()]
    return pytest.mark.parametrize(arguments, cases, indirect=list(indirect))


Around = Callable[[str], AbstractContextManager[object]]


def together(
    arguments: str,
    fast: Mapping[str, tuple],
    others: Mapping[str, tuple] | None = None,
    around: Around = lambda name: nullcontext(),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with the values of each case, all in one test, since each takes milliseconds.

    pytest and its workers need some milliseconds for a test too. All cases run, and the error of
    the first one that fails is raised with the names of all that fail.

    Args:
        arguments: The test's arguments that the cases give.
        fast: The values of each case by its name.
        others: More cases, which a second, slow test has.
        around: A context for the case of this name.
    """
    given = arguments.split(", ")
    groups = [pytest.param(fast, id="some" if others else "all")]
    if others:
        # many more combinations of what the fast ones show
        groups.append(pytest.param(others, id="others", marks=pytest.mark.slow))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(cases: Mapping[str, tuple], **fixtures: object) -> None:
            __tracebackhide__ = True
            failed: dict[str, BaseException] = {}
            for name, values in cases.items():
                try:
                    with around(name):
                        test(**dict(zip(given, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failed[name] = error
            for first in failed.values():
                first.add_note(f"{len(failed)} of {len(cases)} failed: {', '.join(failed)}")
                raise first

        taken = inspect.signature(test).parameters.values()
        own = inspect.Parameter("cases", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        signature = inspect.Signature([*(one for one in taken if one.name not in given), own])
        run.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        run.pytestmark = list(getattr(test, "pytestmark", ()))  # pyright: ignore[reportFunctionMemberAccess]
        return pytest.mark.parametrize("cases", groups)(run)

    return decorate


def each(argument: str, table: Mapping[str, object]) -> Callable[..., Callable[..., None]]:
    """Call a test with each value of a table, all in one test, as `together` does."""
    return together(argument, {name: (value,) for name, value in table.items()})


def named(*values: object) -> dict[str, object]:
    """Return the values by their texts, as an axis."""
    return {str(value).removeprefix("torch."): value for value in values}

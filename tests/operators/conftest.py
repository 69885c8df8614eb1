"""The property suites run the operators of `TWO_FORMS` by kernel sums too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from operator_table import OPERATORS, SOFT, TWO_FORMS

from ltr.kernels import use

SUITES = ("test_properties", "test_permutation", "test_ragged")
BOTH = [*TWO_FORMS, *(OPERATORS[name] for name in TWO_FORMS), *(SOFT[name] for name in TWO_FORMS)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test of the suites a form."""
    takes_one = {"operator", "name", "make"}.intersection(metafunc.fixturenames)
    if takes_one and Path(metafunc.definition.path).stem in SUITES:
        metafunc.parametrize("form", ["by size", "sums"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the sums of operators that have one form."""

    def is_new(item: pytest.Item) -> bool:
        given = getattr(item, "callspec", None)
        if given is None or given.params.get("form") != "sums":
            return True
        return any(value is one for value in given.params.values() for one in BOTH)

    config.hook.pytest_deselected(items=[item for item in items if not is_new(item)])
    items[:] = [item for item in items if is_new(item)]


@pytest.fixture(autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pin the form of the operators, if the test has one."""
    if getattr(request, "param", "by size") == "sums":
        with use("sums"):
            yield
    else:
        yield

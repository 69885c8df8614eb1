"""Short trials of networks, which several files of tests share."""

from typing import Any

import pytest

from ltr.estimators import parameters
from ltr.estimators.parameters import Choice


@pytest.fixture
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the trials that choose networks and columns take 30 steps, a tenth of the default.

    Of a few lists, a trial has an epoch for each step.
    """

    def choice(**given: Any) -> Choice:
        return Choice(**{**given, "steps": 30, "learning_rate": 1e-2})

    monkeypatch.setattr(parameters, "Choice", choice)

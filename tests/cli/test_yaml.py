"""YAML that cannot be read is one line with exit code 2; anchors and aliases work."""

from pathlib import Path

import pytest

UNREADABLE = {
    "an alias of nothing": "model: *a",
    "a number of 5,000 digits": "seed_everything: " + "1" * 5000,
    "a 13th month": "model: 2026-13-13",
    "no end": "model: [1, 2",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_configuration_that_is_not_yaml(ltr, text: str):
    Path("own.yaml").write_text(text)
    answer = ltr("fit", "--config", "own.yaml")
    assert answer.code == 2, answer.out
    assert answer.err.count("\n") == 1, answer.err
    assert "own.yaml" in answer.err
    assert len(answer.err) < 1000


def test_anchors_and_aliases_stay(ltr):
    Path("own.yaml").write_text("trainer: {max_epochs: &n 3, min_epochs: *n}\n")
    answer = ltr("fit", "--config", "tiny.yaml", "--config", "own.yaml", "--print_config")
    assert answer.code == 0, answer.err
    assert "max_epochs: 3\n  min_epochs: 3\n" in answer.out

"""YAML made to take for ever: one line, exit code 2, on every way into the command line."""

from pathlib import Path

import pytest

BOMB = "\n".join(
    [
        "a0: &a0 [1, 1]",
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)),
        "model: *a29",
    ]
)
HOSTILE = {
    "an alias bomb": (BOMB, "100,000 nodes, aliases written out, got more at line 6"),
    "lists in lists": ("model: " + "[" * 100_000, "at most 64 levels, got more at line 1"),
    "mappings in mappings": ("model: " + "{a: " * 100_000, "at most 64 levels"),
    "blocks in blocks": (
        "\n".join(" " * i + f"a{i}:" for i in range(1000)),
        "at most 64 levels, got more at line 65",
    ),
    "an alias of itself": ("model: &a [*a]", "got *a at line 1"),
    "an alias of nothing": ("model: *a", "got *a at line 1"),
    "much text": ("model: " + "x" * (1 << 21), "1,048,576 characters"),
    "many nodes": ("model: [" + "1," * 100_001 + "]", "100,000 nodes"),
}
SEVERAL = {
    "a number of 5,000 digits": ("seed_everything: " + "1" * 5000, "own.yaml"),
    "a 13th month": ("model: 2026-13-13", "own.yaml"),
}


def assert_refused(answer, *words: str) -> None:
    assert answer.code == 2, answer.out
    assert answer.err.count("\n") == 1, answer.err
    for word in words:
        assert word in answer.err
    assert len(answer.err) < 1000


@pytest.mark.parametrize("name", [*HOSTILE, *SEVERAL])
def test_a_configuration(ltr, name: str):
    text, said = {**HOSTILE, **SEVERAL}[name]
    Path("own.yaml").write_text(text)
    assert_refused(ltr("fit", "--config", "own.yaml"), said, "own.yaml")


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "many nodes"])  # seconds
def test_every_way_in(ltr, name: str):
    text, said = HOSTILE[name]
    Path("own.yaml").write_text(text)
    for command in ("test", "predict"):
        assert_refused(ltr(command, "--config", "own.yaml"), said, "own.yaml")
    assert_refused(ltr("fit", "--config", "tiny.yaml", "--config=own.yaml"), said)
    for option in ("--model", "--data", "--trainer"):
        assert_refused(ltr("fit", "--config", "tiny.yaml", option, "own.yaml"), said)


def test_a_recipe_and_its_overlay(ltr):
    Path("own").mkdir()
    Path("own/config.yaml").write_text(Path("tiny.yaml").read_text())
    Path("own/small.yaml").write_text(BOMB)
    assert_refused(ltr("fit", "--config", "own/small.yaml"), "100,000 nodes")
    Path("own/config.yaml").write_text(BOMB)
    assert_refused(ltr("fit", "--config", "own"), "100,000 nodes")


def test_a_value_of_an_option(ltr):
    for value in ("[" * 50_000, "{a: " * 50_000, "&a [*a]"):
        answer = ltr("fit", "--config", "tiny.yaml", "--trainer.callbacks", value)
        assert_refused(answer, "YAML")
    assert_refused(ltr("fit", "--config", "tiny.yaml", "--model.top_k", "1" * 5000))


def test_anchors_and_aliases_stay(ltr):
    Path("own.yaml").write_text("trainer: {max_epochs: &n 3, min_epochs: *n}\n")
    answer = ltr("fit", "--config", "tiny.yaml", "--config", "own.yaml", "--print_config")
    assert answer.code == 0, answer.err
    assert "max_epochs: 3\n  min_epochs: 3\n" in answer.out

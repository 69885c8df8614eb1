"""The code of the page on text rerankers, and the example, with a tiny model instead."""

import json
import re
import runpy
from pathlib import Path

import pytest
import torch

from .conftest import corpus, save_model

ROOT = Path(__file__).parents[2]

# what torch says of the data loader without an accelerator
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")


def write_lists(path: Path, lists: int) -> None:
    rows = [
        dict(zip(corpus(), row, strict=True)) for row in zip(*corpus(lists).values(), strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(Path("microsoft/MiniLM-L12-H384-uncased"), dropout=0.1)
    write_lists(tmp_path / "lists.jsonl", 20)
    page = (ROOT / "docs" / "text-rerankers.md").read_text(encoding="utf-8")
    names: dict = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "peft" not in block]  # see test_lora.py
    assert len(blocks) == 3
    for block in blocks:
        before = (
            torch.cat([p.detach().flatten() for p in names["model"].parameters()])
            if names
            else None
        )
        exec(block, names)
    assert [one.name for one in names["comparison"].models] == ["before", "after"]
    assert names["comparison"].lists == 4
    after = torch.cat([p.detach().flatten() for p in names["model"].parameters()])
    assert (before - after).abs().max() > 0  # the plain loop has trained


def test_the_example_learns_the_toy_corpus(model_path, tmp_path, monkeypatch, capsys):
    write_lists(tmp_path / "lists.jsonl", 60)
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(ROOT / "examples" / "rerank_text.py"))
    options = [model_path, "lists.jsonl", "--epochs", "12", "--lr", "5e-3"]
    comparison = example["main"](options)
    before, after = comparison.models
    assert comparison.lists == 12
    assert after.mean.mean > before.mean.mean + 0.05
    assert str(comparison) in capsys.readouterr().out


def test_the_example_is_short():
    assert len((ROOT / "examples" / "rerank_text.py").read_text().splitlines()) <= 100

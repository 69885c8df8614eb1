"""The code of the page on text rerankers and of the README, and the examples, with a tiny model."""

import gzip
import itertools
import json
import os
import random
import re
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder

from ltr.integrations import evaluate_reranker
from ltr.rerank import CandidateLists

from .conftest import corpus, save_model

ROOT = Path(__file__).parents[2]

# what torch says of the data loader without an accelerator
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_lists(path: Path, lists: int) -> None:
    columns = corpus(lists)
    write_rows(
        path, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    )


def blocks_of(page: Path) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    save_model(Path("microsoft/MiniLM-L12-H384-uncased"), dropout=0.1)
    lists = {name: corpus(20)[name] for name in ("query", "documents", "labels")}
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    named = [{"qid": str(i), "doc_ids": ["a"], **row} for i, row in enumerate(rows)]
    CandidateLists(named, {}, 0).write(tmp_path / "lists.jsonl")  # as `ltr lists` writes it
    names: dict = {}
    page = ROOT / "docs" / "text-rerankers.md"
    blocks = [block for block in blocks_of(page) if "peft" not in block]  # see test_lora.py
    [retriever] = [block for block in blocks if "EncoderLoss(retriever" in block]
    blocks.remove(retriever)
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
    exec(retriever, names)
    trained = names["retriever"].encode("red cat")
    from sentence_transformers import SentenceTransformer

    untrained = SentenceTransformer("microsoft/MiniLM-L12-H384-uncased").encode("red cat")
    assert abs(trained - untrained).max() > 0


def test_rows_of_one_document_become_lists(model_path):
    page = (ROOT / "docs" / "text-rerankers.md").read_text(encoding="utf-8")
    [made] = re.findall(r"^`(Dataset\.from_pandas.*)`\.$", page, re.MULTILINE)
    columns = corpus(12)
    frame = pd.DataFrame(columns).explode(["documents", "labels"])
    frame = frame.rename(columns={"documents": "document", "labels": "label"})
    lists = eval(made, {"Dataset": Dataset, "frame": frame})
    assert [*lists.to_dict().values()] == [*columns.values()]
    model = CrossEncoder(model_path, device="cpu")
    found, expected = (evaluate_reranker(model, x) for x in (lists, Dataset.from_dict(columns)))
    assert found["ndcg@10"] == expected["ndcg@10"]


def run_readme(model: str, monkeypatch) -> dict:
    """Run the README's code with this model, and return the names that it makes."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(Path.cwd() / "cache"))
    (code,) = [block for block in blocks_of(ROOT / "README.md") if "CrossEncoder" in block]
    Path("sentence-transformers").mkdir()
    Path("sentence-transformers/all-MiniLM-L6-v2").symlink_to(model)
    torch.manual_seed(0)
    names: dict = {}
    exec(code, names)
    return names


def firsts(out: str) -> list[str]:
    """Return the document that is ranked first before training, and after it."""
    [line] = [line for line in out.splitlines() if " -> " in line]
    return line.split(" -> ")


def test_the_code_of_the_readme_runs(model_path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_lists(tmp_path / "train.jsonl", 8)
    write_lists(tmp_path / "test.jsonl", 4)
    names = run_readme(model_path, monkeypatch)
    out = capsys.readouterr().out
    assert str(names["comparison"]) in out
    assert names["comparison"].lists == 4
    after = names["model"].predict([(names["query"], sense) for sense in names["senses"]])
    before = [rank["corpus_id"] for rank in names["before"]]
    assert sorted(before) == [0, 1, 2]
    assert firsts(out) == [names["senses"][i] for i in (before[0], after.argmax())]
    scores = {rank["corpus_id"]: rank["score"] for rank in names["before"]}
    assert any(scores[i] != after[i] for i in range(3))


@pytest.mark.slow  # a real model: minutes
def test_a_pretrained_model_learns(data_root, tmp_path, monkeypatch, capsys):
    folder = os.environ.get("LTR_MINILM")
    if not folder:
        pytest.skip("no pretrained model: set LTR_MINILM to a folder with all-MiniLM-L6-v2")
    rows = {}
    for split, count in {"train": 1000, "test": 400}.items():
        with gzip.open(data_root / "wordnet-senses" / f"{split}.jsonl.gz", "rt") as lines:
            every = [json.loads(line) for line in lines]
        rows[split] = [
            {name: row[name] for name in ("query", "documents", "labels")}
            for row in random.Random(0).sample(every, count)
        ]
    monkeypatch.chdir(tmp_path)
    for split, own in rows.items():
        write_rows(tmp_path / f"{split}.jsonl", own)
    names = run_readme(folder, monkeypatch)
    out = capsys.readouterr().out
    wrong, right = firsts(out)
    printed = f"{wrong} -> {right}\n{names['comparison']}"
    assert printed in out
    torch.manual_seed(0)
    models = [names["CrossEncoder"](folder, num_labels=1), names["model"]]
    before, after = (
        evaluate_reranker(model, rows["test"], ["mrr"], name=name)
        for model, name in zip(models, ("before", "after"), strict=True)
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{printed}\n")  # the README shows these lines
    assert after["mrr"].mean > before["mrr"].mean + 0.05
    difference = names["comparison"].models[1].difference
    assert difference.low > 0.05
    assert wrong != names["senses"][2]
    assert right == names["senses"][2]  # the relevant document, as in the README


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


def test_the_search_reranks_what_the_first_stage_finds(model_path, tmp_path, monkeypatch, capsys):
    # the first stage prefers texts of the query's words alone; those with a third one are relevant
    words = ["red", "green", "blue", "cat", "dog", "bird"]
    rows = [
        {"query": f"{a} {b}", "documents": [f"{a} {b}", f"{b} {a} near far"], "labels": [0, 1]}
        for a, b in itertools.permutations(words, 2)
    ]
    random.Random(0).shuffle(rows)
    write_rows(tmp_path / "lists.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(ROOT / "examples" / "search.py"))
    options = ["--top", "6", "--epochs", "8", "--lr", "5e-3"]
    comparison = example["main"]([model_path, "lists.jsonl", *options])
    first, second = comparison.models
    assert [first.name, second.name, comparison.lists] == ["first stage", "reranked", 6]
    assert second.mean.mean > first.mean.mean + 0.05
    out = capsys.readouterr().out
    recalls = re.findall(r"^recall@6 +(\S+)", out, re.MULTILINE)
    assert len(recalls) == 2
    assert recalls[0] == recalls[1]  # the reranker finds nothing new
    assert str(comparison) in out

"""`ltr lists`: the file it writes, and what it says of mistakes."""

import gzip
import json
from pathlib import Path

import pytest

from ltr.metrics import write_qrels, write_run
from ltr.rerank import lists_from_run

RUN = {"q": {"a": 5.0, "b": 4.0, "c": 3.0, "d": 2.0, "e": 1.0}}
QRELS = {"q": {"b": 2, "c": 0, "e": -1, "z": 1}}
TEXTS = {name: f"text {name}" for name in "abcdez"}


@pytest.fixture
def files(ltr):
    """The run, the judgements and the texts as files, in the working folder."""
    write_run("a.run", RUN)
    write_qrels("qrels.txt", QRELS)
    Path("queries.tsv").write_text("q\tcat\nother\tdog\n")
    rows = [{"_id": name, "title": "text", "text": name} for name in TEXTS]
    with gzip.open("documents.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return ["a.run", "qrels.txt", "--queries", "queries.tsv", "--documents", "documents.jsonl.gz"]


def test_the_command_writes_what_the_function_returns(ltr, files):
    answer = ltr("lists", *files, "--negatives", 2, "--skip", 0.5, "--output", "new/lists.jsonl")
    lists = lists_from_run(RUN, QRELS, {"q": "cat"}, TEXTS, negatives=2, skip=0.5)
    assert answer.out == f"{lists}\nwrote new/lists.jsonl\n"
    lines = Path("new/lists.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == lists.rows


def test_the_command_reports_a_mistake_in_one_line(ltr, files):
    answer = ltr("lists", *files, "--depth", 0, "--output", "b.jsonl")
    assert answer.code == 2
    answer = ltr("lists", *files, "--output", "a.run")
    assert answer.code == 2
    assert "must not be the file that is read" in answer.err

"""`ltr fuse`: the file it writes, the weights it chooses, and what it says of mistakes."""

import random
from pathlib import Path

import pytest

from ltr.cli import fuse as command
from ltr.metrics.trec import read_run, write_qrels, write_run
from ltr.rerank import fuse, fusion_weights
from ltr.rerank.fusion import METHODS
from ltr.rerank.normalization import NORMALIZATIONS


@pytest.fixture
def runs(ltr):
    """Two runs and their judgements; each lacks documents, and the second a query."""
    draw = random.Random(0)
    qrels = {f"q{i}": {f"d{j}": draw.choice([0, 0, 1, 2]) for j in range(9)} for i in range(40)}

    def run(noise):
        return {
            q: {d: r + draw.gauss(0, noise) for d, r in x.items() if draw.random() < 0.8}
            for q, x in qrels.items()
        }

    found = [run(0.5), run(3.0)]
    del found[1]["q5"]
    write_run("a.run", found[0])
    write_run("b.run.gz", found[1])
    write_qrels("qrels.txt", qrels)
    return [*found, qrels]


def test_the_file_is_what_fuse_returns(ltr, runs):
    for options, given in [
        ([], {}),
        (["--k", 7], {"k": 7}),
        (["--method", "combsum", "--normalize", "z"], {"method": "combsum", "normalize": "z"}),
        (["--method", "borda", "--weights", 0.25, 0.75], {"method": "borda", "weights": [1, 3]}),
        (["--method", "condorcet"], {"method": "condorcet"}),
    ]:
        answer = ltr("fuse", "a.run", "b.run.gz", *options, "--output", "new/c.run")
        fused = fuse(runs[:2], **given)
        count = sum(map(len, fused.values()))
        assert answer.out == f"wrote new/c.run: 40 queries, {count} documents\n"
        written = read_run("new/c.run")
        assert {q: [*x] for q, x in written.items()} == {q: [*x] for q, x in fused.items()}
        if "weights" not in given:
            assert written == fused


def test_the_file_is_cut(ltr, runs):
    assert (
        ltr("fuse", "a.run", "b.run.gz", "--top-k", 2, "--tag", "x", "--output", "c.run").code == 0
    )
    lines = [line.split() for line in Path("c.run").read_text().splitlines()]
    assert len(lines) == 80
    assert {(line[3], line[5]) for line in lines} == {("1", "x"), ("2", "x")}
    whole = fuse(runs[:2])
    assert {(q, d) for q, _, d, *_ in lines} == {(q, d) for q in whole for d in [*whole[q]][:2]}


def test_weights_are_chosen_by_judgements(ltr, runs):
    args = ["--method", "combsum", "--qrels", "qrels.txt", "--metric", "ndcg@5"]
    answer = ltr("fuse", "a.run", "b.run.gz", *args, "--output", "c.run")
    weights = fusion_weights(runs[:2], runs[2], metric="ndcg@5")
    assert weights[0] > 0.6
    first = f"weights {weights[0]:.2f} a.run, {weights[1]:.2f} b.run.gz"
    assert answer.out.splitlines()[0] == first
    assert read_run("c.run") == fuse(runs[:2], method="combsum", weights=weights)


def test_the_options_are_those_of_the_function():
    assert (tuple(command._METHODS), tuple(command._NORMALIZATIONS)) == (METHODS, NORMALIZATIONS)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--output", "c.run"], "the following arguments are required: RUN"),
        (["a.run", "--metric", "map", "--output", "c.run"], "--metric is for --qrels, which is"),
        (["a.run", "b.run.gz"], "the following arguments are required: --output"),
        (["a.run", "no.run", "--output", "c.run"], "no.run: no such file"),
        (["a.run", "--qrels", "no.txt", "--output", "c.run"], "no.txt: no such file"),
        (["a.run", "b.run.gz", "--output", "."], "--output must be a file, got the folder ."),
        (
            ["a.run", "b.run.gz", "--output", "./a.run"],
            "--output must not be the file that is read, got a.run",
        ),
        (["a.run", "--k", "0", "--output", "c.run"], "--k must be a whole number >= 1, got '0'"),
        (
            ["a.run", "--top-k", "0", "--output", "c.run"],
            "--top-k must be a whole number >= 1, got '0'",
        ),
        (["a.run", "--method", "sum", "--output", "c.run"], "argument --method: invalid choice"),
        (["a.run", "--weights", "1", "2", "--output", "c.run"], "one number for each of 1 rankers"),
        (
            ["a.run", "--weights", "1", "--qrels", "qrels.txt", "--output", "c.run"],
            "not allowed with argument --weights",
        ),
        (["a.run", "other.run", "--output", "c.run"], "queries in common"),
        (["a.run", "--qrels", "other.txt", "--output", "c.run"], "labels must judge a query"),
        (["a.run", "--tag", "a b", "--output", "c.run"], "names must be one word, got 'a b'"),
        (["qrels.txt", "--output", "c.run"], "qrels.txt, line 1: a line must have 6 fields"),
    ],
)
def test_a_mistake_is_one_line(ltr, runs, args, message):
    write_run("other.run", {"7": {"d1": 1.0}})
    write_qrels("other.txt", {"7": {"d1": 1}})
    answer = ltr("fuse", *args)
    assert answer.code == 2
    assert answer.err.startswith("ltr fuse: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert not Path("c.run").exists()

"""`ltr evaluate`: its numbers, its tables, its file, and what it says of mistakes."""

import csv
import errno
import json
import os
import random
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
import torch

from ltr.cli import evaluate
from ltr.metrics import MAP, NDCG, compare, mean_interval, named
from ltr.metrics.base import RankingMetric
from ltr.metrics.trec import read_qrels, read_run, write_qrels, write_run
from ltr.reports import evaluated

FAST = ("--resamples", "200")
OF_RUN = ("a.run", "--qrels", "qrels.txt", "--metrics")


@pytest.fixture
def files(ltr):
    """Two runs, their qrels, and tables of labels and scores."""
    draw = random.Random(0)
    qrels = {f"q{i}": {f"d{j}": draw.choice([0, 0, 1, 2]) for j in range(20)} for i in range(12)}
    qrels["q3"] = dict.fromkeys(qrels["q3"], 0)

    def run(noise):
        return {
            q: {d: r + draw.gauss(0, noise) for d, r in x.items() if draw.random() < 0.8}
            for q, x in qrels.items()
        }

    a, b = run(2.0), run(0.5)
    del b["q5"]
    b["other"] = {"d0": 1.0}
    write_run("a.run", a)
    write_run("b.run.gz", b)
    write_qrels("qrels.txt", qrels)
    rows = [
        {"qid": q, "label": r, "score": draw.gauss(r, 1), "new": draw.gauss(r, 0.3), "doc_id": d}
        for q, x in qrels.items()
        for d, r in x.items()
    ]
    draw.shuffle(rows)
    with Path("t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), "t.parquet")
    return rows


def content() -> dict:
    return json.loads(Path("o.json").read_text())


def test_files_of_other_tools_are_worth_the_same(ltr, files):
    run, qrels = read_run("a.run"), read_qrels("qrels.txt")
    Path("ranx.json").write_text(json.dumps(run))
    Path("ranx-qrels.json").write_text(json.dumps(qrels))
    ranked = {q: sorted(x, key=lambda d, x=x: (x[d], d), reverse=True) for q, x in run.items()}
    lines = [f"{q}\t{d}\t{i}\n" for q, names in ranked.items() for i, d in enumerate(names, 1)]
    Path("marco.tsv").write_text("".join(lines))
    lines = [f"{q}\t{d}\t{float(r)}\n" for q, x in qrels.items() for d, r in x.items()]
    Path("beir.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    results = []
    for given in (
        ("a.run", "qrels.txt"),
        ("ranx.json", "ranx-qrels.json"),
        ("marco.tsv", "beir.tsv"),
    ):
        assert ltr("evaluate", given[0], "--qrels", given[1], *FAST, "--output", "o.json").code == 0
        results.append([*content()["values"].values()])
    assert results[0] == results[1] == results[2]


def test_a_run_is_worth_what_trec_eval_says(ltr, files):
    args = ["--metrics", "ndcg@5", "map", "mrr", "--output", "sub/o.json"]
    answer = ltr("evaluate", "a.run", "--qrels", "qrels.txt", *args)
    assert (answer.code, answer.err) == (0, "")
    qrels = read_qrels("qrels.txt")
    measures = {"ndcg_cut.5", "map", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(read_run("a.run"))
    written = json.loads(Path("sub/o.json").read_text())
    assert written["qids"] == list(qrels)
    for ours, name in [("ndcg@5", "ndcg_cut_5"), ("map", "map"), ("mrr", "recip_rank")]:
        expected = [theirs[q][name] for q in qrels]
        assert written["values"]["a"][ours] == pytest.approx(expected)
        interval = mean_interval(expected)
        assert written["metrics"][ours]["mean"] == pytest.approx(interval._asdict())
        assert str(interval) in answer.out
    assert "a: 1 of 12 lists have no relevant item: counted 0" in answer.out
    assert "gain: linear" in answer.out
    assert "wrote sub/o.json" in answer.out


def test_several_runs_are_compared_with_the_first(ltr, files):
    args = ["--qrels", "qrels.txt", "--metrics", "map", "--output", "o.json", "--seed", "3", *FAST]
    answer = ltr("evaluate", "a.run", "b.run.gz", *args)
    assert answer.code == 0, answer.err
    written = content()
    values = {name: np.array(x["map"]) for name, x in written["values"].items()}
    assert list(values) == ["a", "b"]
    expected = replace(compare(values, seed=3, resamples=200), note="map, b - a")
    assert written["metrics"]["map"] == json.loads(json.dumps(expected.to_dict()))
    assert str(expected) in answer.out
    assert "b: 1 of 13 judged" not in answer.out
    assert "b: 1 of 12 judged queries are missing: counted as empty lists" in answer.out
    assert "b: 1 query has no judgements: left out" in answer.out
    position = written["qids"].index("q5")
    assert written["values"]["b"]["map"][position] == 0
    ltr("evaluate", "a.run", "b.run.gz", *args, "--skip-missing", "--test", "bootstrap")
    written = content()
    assert written["values"]["b"]["map"][position] is None
    assert written["metrics"]["map"]["left_out"] == 1
    assert written["metrics"]["map"]["test"] == "bootstrap"


@pytest.mark.parametrize("table", ["t.csv", "t.parquet"])
def test_a_table_is_worth_what_the_metrics_say(ltr, files, table):
    answer = ltr("evaluate", table, "--metrics", "ndcg@3", "map", "--output", "o.json", *FAST)
    assert answer.code == 0, answer.err
    assert "gain: exp2" in answer.out
    names = {qid: i for i, qid in enumerate(dict.fromkeys(row["qid"] for row in files))}
    for title, metric in {"ndcg@3": NDCG(top_k=3), "map": MAP()}.items():
        metric.update(
            torch.tensor([row["score"] for row in files], dtype=torch.float64),
            torch.tensor([row["label"] for row in files]),
            indexes=torch.tensor([names[row["qid"]] for row in files]),
        )
        assert content()["metrics"][title]["mean"]["mean"] == pytest.approx(metric.compute().item())
    assert content()["qids"] == list(names)


def test_chunks_of_queries_change_nothing(ltr, files, monkeypatch):
    command = ["evaluate", "a.run", "b.run.gz", "--qrels", "qrels.txt", "--output", "o.json", *FAST]
    whole = ltr(*command).out, content()
    monkeypatch.setattr(evaluated, "_POSITIONS_PER_CHUNK", 200)
    assert (ltr(*command).out, content()) == whole


def test_columns_of_scores_are_compared(ltr, files):
    answer = ltr("evaluate", "t.csv", "--score", "score", "--score", "new", "--output", "o.json")
    assert answer.code == 0, answer.err
    models = content()["metrics"]["ndcg@10"]["models"]
    assert [model["name"] for model in models] == ["score", "new"]
    assert models[1]["difference"]["mean"] > 0
    assert models[1]["exact"]


def test_tables_are_aligned_by_qid(ltr, files):
    rows = [row for row in files[::-1] if row["qid"] != "q1"]
    pq.write_table(pa.Table.from_pylist(rows), "u.parquet")
    answer = ltr("evaluate", "t.parquet", "u.parquet", "--metrics", "map", "--output", "o.json")
    assert answer.code == 0, answer.err
    written = content()
    model = written["metrics"]["map"]["models"][1]
    assert (model["better"], model["equal"], model["worse"]) == (0, 11, 0)
    assert written["metrics"]["map"]["left_out"] == 1
    assert "u: 1 of 12 lists are missing" in answer.out


def test_a_table_of_predictions_with_qrels(ltr, files):
    args = ("--qrels", "qrels.txt", "--gain", "exp2", "--metrics", "ndcg@4", "--output", "o.json")
    assert ltr("evaluate", "t.parquet", *args).code == 0
    first = content()
    assert ltr("evaluate", "t.parquet", *args[2:]).code == 0
    second = content()
    value_of = dict(zip(second["qids"], second["values"]["t"]["ndcg@4"], strict=True))
    expected = [value_of[qid] for qid in first["qids"]]
    assert first["values"]["t"]["ndcg@4"] == pytest.approx(expected)


def test_names_of_queries_that_are_numbers_are_text(ltr):
    rows = [{"qid": 7, "label": 1, "score": 0.5}, {"qid": 7, "label": 0, "score": 1}]
    pq.write_table(pa.Table.from_pylist(rows), "n.parquet")
    Path("n.csv").write_text("score,qid,label,more\n0.5,007,1,x\n1,007,0,y\n")
    for name, qid in [("n.parquet", "7"), ("n.csv", "007")]:
        answer = ltr("evaluate", name, "--metrics", "mrr", "--output", "o.json", *FAST)
        assert answer.code == 0, answer.err
        assert content()["qids"] == [qid]
        assert content()["values"]["n"]["mrr"] == [0.5]


def test_cuts(ltr, files):
    def titles(*args):
        answer = ltr("evaluate", "t.csv", *args, "--output", "o.json", *FAST)
        assert answer.code == 0, answer.err
        return list(content()["metrics"])

    assert titles() == ["ndcg@10", "map", "mrr"]
    assert titles("--at", "3", "5") == ["ndcg@3", "ndcg@5", "map@3", "map@5", "mrr@3", "mrr@5"]
    assert titles("--metrics", "ndcg@2", "kendall_tau", "mrr", "mrr@7", "--at", "7") == [
        "ndcg@2",
        "kendall_tau",
        "mrr@7",
    ]


def test_empty_lists(ltr, files):
    def mean(empty):
        assert ltr("evaluate", "t.csv", "--empty", empty, "--output", "o.json", *FAST).code == 0
        return content()["metrics"]["map"]

    zero, one, skipped = mean("0"), mean("1"), mean("skip")
    assert (zero["lists"], skipped["lists"]) == (12, 11)
    assert one["mean"]["mean"] == pytest.approx(zero["mean"]["mean"] + 1 / 12)
    assert skipped["mean"]["mean"] == pytest.approx(zero["mean"]["mean"] * 12 / 11)
    answer = ltr("evaluate", "t.csv", "--empty", "error")
    assert answer.code == 2
    assert answer.err == "ltr evaluate: empty is 'error' and 1 list has no value\n"


def test_lists_of_very_different_lengths(ltr):
    sizes = [1, 60, 2, 1, 1, 40, 3]
    lines = [f"{q},{int(i == 0)},{-i}\n" for q, n in enumerate(sizes) for i in range(n)]
    Path("r.csv").write_text("qid,label,score\n" + "".join(lines))
    assert ltr("evaluate", "r.csv", "--metrics", "mrr", "--output", "o.json", *FAST).code == 0
    assert content()["values"]["r"]["mrr"] == [1.0] * len(sizes)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.csv"], "none.csv: no such file"),
        (["a.run"], "a.run: --qrels is required for a TREC run; a table ends in .csv or .parquet"),
        (["a.run", "--qrels", "none"], "none: no such file"),
        (["a.run", "--qrels", "a.run"], "a.run, line 1: a line must have 4 fields"),
        (["qrels.txt", "--qrels", "qrels.txt"], "qrels.txt, line 1: a line must have 6 fields"),
        (["c.run", "--qrels", "qrels.txt"], "c.run: none of its queries is in the qrels"),
        (["t.csv", "--metrics", "ndgc"], "metrics: no metric 'ndgc': did you mean ndcg?"),
        (["t.csv", "--metrics", "ndcg@"], "ndcg@K must have a K >= 1, got 'ndcg@'"),
        (["t.csv", "--metrics", "ndcg@0"], "ndcg@K must have a K >= 1, got 'ndcg@0'"),
        (["t.csv", "--metrics", "kendall_tau@3"], "kendall_tau takes no cutoff"),
        (
            ["a.run", "--qrels", "qrels.txt", "--metrics", "kendall_tau"],
            "kendall_tau needs whole lis",
        ),
        (["t.csv", "--ties", "none"], "argument --ties: invalid choice: 'none'"),
        (
            [*OF_RUN, "precision"],
            "metrics: precision of a run needs a cutoff, such as precision@",
        ),
        (["t.csv", "--at", "0"], "--at must be a whole number >= 1, got '0'"),
        (["t.csv", "--at", "ten"], "--at must be a whole number >= 1, got 'ten'"),
        (["t.csv", "--empty", "none"], "empty must be 'skip', 'error' or a number, got 'none'"),
        (["t.csv", "--metrics", "kendall_tau", "--empty", "none"], "empty must be 'skip', 'error'"),
        (["t.csv", "--confidence", "95"], "confidence must lie in (0, 1), got 95.0"),
        (["t.csv", "--resamples", "0"], "resamples must be a whole number >= 1, got 0"),
        (["t.csv", "--seed", "-1"], "seed must be >= 0, got -1"),
        (["double.csv"], "double.csv: column 'label' occurs 2 times"),
        (
            ["t.csv", "--score", "scor"],
            "ltr evaluate: t.csv: no column 'scor': did you mean score?",
        ),
        (["t.parquet", "--label", "rel"], "ltr evaluate: t.parquet: no column 'rel': choose from"),
        (["t.csv", "--score", "new", "--score", "new"], "new is given twice"),
        (["t.csv", "t.csv"], "t.csv is given twice"),
        (["t.csv", "--output", "."], "--output must be a file, got the folder ."),
        (["t.csv", "--plot", "."], "--plot must be a file, got the folder ."),
        (["t.csv", "--plot", "p.txt"], "--plot must end in .png, .svg, .pdf, got p.txt"),
        (["one.csv", "other.csv"], "at least 2 lists with a value in every model, got 1"),
        (["word.csv"], "word.csv: column 'score' must have numbers: In CSV column #2: "),
        (["word.csv"], "invalid value 'high'"),
        (["word.parquet"], "word.parquet: column 'score' must have numbers: "),
        (["t.csv", "word.csv", "--score", "label", "--score", "score"], "column 'score' must have"),
        (["hole.csv"], "hole.csv, row 2: column 'score' must have a value in every row"),
        (["minus.csv"], "minus.csv, row 1: column 'label' must be >= 0, got -1"),
        (["void.csv"], "void.csv: the table must have at least one row, got none"),
        (["blank.csv"], "blank.csv: "),
        (["fake.parquet"], "fake.parquet: "),
        (["twice.csv", "--qrels", "qrels.txt"], "row 2: query 'q1' has 'd1' twice"),
        (
            [*OF_RUN, "mrr", "--score", "a", "--score", "b"],
            "--score names a column of a table, and",
        ),
        ([*OF_RUN, "mrr", "--doc-id", "sku"], "--doc-id names a column of a table, and a TREC run"),
        ([], "the following arguments are required: FILE"),
    ],
)
def test_mistakes_are_one_line(ltr, files, args, message):
    write_run("c.run", {"unknown": {"d0": 1.0}})
    for name, rows in {
        "one.csv": "a,1,2\n",
        "other.csv": "a,1,3\n",
        "word.csv": "a,1,high\n",
        "hole.csv": "a,1,2\na,0,\n",
        "minus.csv": "a,-1,2\n",
        "void.csv": "",
    }.items():
        Path(name).write_text("qid,label,score\n" + rows)
    Path("twice.csv").write_text("qid,doc_id,score\nq1,d1,2\nq1,d1,3\n")
    Path("double.csv").write_text("qid,label,score,label\na,1,2,0\n")
    Path("blank.csv").write_text("")
    Path("fake.parquet").write_text("no parquet")
    words = {"qid": ["a"], "label": [1], "score": ["high"]}
    pq.write_table(pa.table(words), "word.parquet")
    answer = ltr("evaluate", *args)
    assert answer.code == 2
    assert answer.err.startswith("ltr evaluate: ")
    assert message in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("name", sorted(named.metric_names()))
def test_every_metric(ltr, files, name):
    answer = ltr("evaluate", "t.csv", "--metrics", name, "--output", "o.json", *FAST)
    assert answer.code == 0, answer.err
    assert len(content()["values"]["t"][name]) == 12
    (measure,) = named.parse_measures([name])
    if type(measure.metric).of_run is not RankingMetric.of_run:
        title = f"{name}@3" if "top_k" in measure.metric.arguments else name
        answer = ltr("evaluate", "a.run", *OF_RUN[1:], title, "--output", "o.json", *FAST)
        assert answer.code == 0, answer.err
        assert content()["metrics"][title]["mean"]["mean"] > 0


def test_errs_scale_is_that_of_all_lists(ltr):
    write_qrels("q", {"1": {"a": 2}, "2": {"b": 1}})
    write_run("r", {"1": {"a": 1.0}, "2": {"b": 1.0}})
    Path("t.csv").write_text("qid,label,score\n1,2,1\n2,1,1\n")
    for args in (["t.csv"], ["r", "--qrels", "q"]):
        assert ltr("evaluate", *args, "--metrics", "err", "--output", "o.json", *FAST).code == 0
        assert next(iter(content()["values"].values()))["err"] == [3 / 4, 1 / 4]


def test_errs_scale_is_that_of_all_files(ltr):
    Path("t.csv").write_text("qid,label,score\n1,2,1\n2,1,1\n")
    Path("u.csv").write_text("qid,label,score\n1,1,1\n2,1,1\n")
    answer = ltr("evaluate", "t.csv", "u.csv", "--metrics", "err", "--output", "o.json", *FAST)
    assert answer.code == 0, answer.err
    assert content()["values"]["t"]["err"] == [3 / 4, 1 / 4]
    assert content()["values"]["u"]["err"] == [1 / 4, 1 / 4]


@pytest.mark.parametrize("args", [("t.csv",), ("a.run", "b.run.gz", "--qrels", "qrels.txt")])
def test_plots(ltr, files, args):
    answer = ltr("evaluate", *args, "--plot", "sub/p.svg", "--confidence", "0.995", *FAST)
    assert answer.code == 0, answer.err
    assert "wrote sub/p.svg" in answer.out
    picture = Path("sub/p.svg").read_text()
    assert "<svg" in picture
    for text in ("ndcg@10", "map", "mrr", "99.5% interval"):
        assert f"<!-- {text}" in picture or f"{text} -->" in picture


@pytest.mark.parametrize("name", ["p.png", "p.svg", "p.pdf"])
def test_a_full_disk_keeps_the_earlier_plot(ltr, files, name):
    Path(name).write_text("earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        answer = ltr("evaluate", "t.csv", "--plot", name, *FAST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.code == 2
    assert answer.err == f"ltr evaluate: {name}: {os.strerror(errno.EFBIG)}\n"
    assert Path(name).read_text() == "earlier"
    assert not list(Path().glob(".*.ltr-partial"))


def test_a_plot_that_cannot_be_drawn(ltr, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = ltr("evaluate", "t.csv", "--plot", "p.png", *FAST)
    assert answer.code == 2
    assert answer.err == "ltr evaluate: --plot needs matplotlib: pip install 'ltr-torch[plots]'\n"


def test_ties(ltr):
    Path("t.csv").write_text("qid,label,score\n1,1,0\n1,0,0\n2,1,1\n2,0,0\n")

    def mean(ties):
        args = ("--metrics", "mrr", "--output", "o.json", *FAST)
        assert ltr("evaluate", "t.csv", "--ties", ties, *args).code == 0
        return content()["metrics"]["mrr"]["mean"]["mean"]

    assert [mean(ties) for ties in ("stable", "expected", "worst")] == [1.0, 0.875, 0.75]


def test_names_of_models():
    assert evaluate._names(["x/a.run.gz", "b.csv"], ["s"]) == [["a"], ["b"]]
    assert evaluate._names(["x/a.run", "y/a.run"], ["s"]) == [["x/a.run"], ["y/a.run"]]
    two = ["s", "t"]
    assert evaluate._names(["a.csv"], two) == [["s", "t"]]
    assert evaluate._names(["a.csv", "b.csv"], two) == [["a:s", "a:t"], ["b:s", "b:t"]]


def test_help_loads_no_torch(tmp_path):
    code = (
        "import sys; from ltr.cli import main\n"
        "main(['evaluate', '--help']); main(['evaluate', '--at', 'x'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--qrels" in done.stdout

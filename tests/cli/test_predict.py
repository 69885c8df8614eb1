"""`ltr predict MODEL TABLE` and `ltr test MODEL TABLE`: one row per document, in three formats."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from lightgbm import LGBMRanker
from model_folders import file_in

from ltr.arrays import rank
from ltr.cli import predict as module
from ltr.cli.errors import CommandError
from ltr.cli.models import find_model
from ltr.cli.predict import descending
from ltr.datasets import Standardize, TableTransform, convert
from ltr.estimators import Blend, NeuralRanker
from ltr.export import describe
from ltr.metrics import functional as F
from ltr.metrics.trec import read_run
from ltr.models import AttentionScorer, LinearScorer, MLPScorer, RankingModel
from ltr.models.predictor import score_table

COLUMNS = ["price", "stock", "shop"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, write_table):
    """A model in a folder, its ONNX file, a blend, a model that looks at lists, and a table."""
    folder = tmp_path_factory.mktemp("models")
    train = write_table(folder / "train.parquet", 240)
    write_table(folder / "new.csv", 61, seed=1)
    given = train[COLUMNS], train["grade"]
    small: dict[str, Any] = {"members": 1, "max_epochs": 1, "verbose": 0, "random_state": 0}
    small["transform"] = TableTransform(Standardize())  # quick to export
    ranker = NeuralRanker(scorer=MLPScorer(hidden=(4,)), **small).fit(*given, qid=train["query"])
    ranker.save(folder / "model")
    ranker.export(folder / "model.onnx")
    of_lists = NeuralRanker(scorer=AttentionScorer(hidden=(8,), heads=2), **small)
    of_lists.fit(*given, qid=train["query"]).save(folder / "of-lists")
    trees = LGBMRanker(n_estimators=5, verbose=-1, n_jobs=1)
    blend = Blend([of_lists, trees], verbose=0).fit(*given, qid=train["query"])
    blend.save(folder / "blend")
    return folder, {"model": ranker, "model.onnx": ranker, "of-lists": of_lists, "blend": blend}


@pytest.fixture
def models(ltr, saved, tmp_path):
    """`ltr`, in a folder with the models."""
    shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)
    return ltr


@pytest.fixture
def older(models, saved, monkeypatch):
    """The name of an ONNX file as older versions wrote it, without the names of the keys."""

    def without_keys(module):
        return {name: x for name, x in describe(module).items() if name != "keys"}

    monkeypatch.setattr("ltr.export.write.describe", without_keys)
    saved[1]["model"].export("older.onnx")
    return "older.onnx"


def test_explain_takes_an_onnx_file_and_the_column_of_its_queries(models, older):
    answer = models("explain", older, "new.csv", "--query", "q1")
    assert answer.code == 2
    message = "--qid is required: older.onnx names no column of the queries\n"
    assert answer.err == f"ltr explain: {message}"
    found = [
        models("explain", name, "new.csv", "--query", "q1", *more).out
        for name, more in [("model", ()), ("model.onnx", ()), (older, ("--qid", "query"))]
    ]
    assert "query q1: " in found[0]
    assert found[0] == found[1] == found[2]


def test_scores_do_not_replace_the_table(models):
    before = Path("new.csv").read_bytes()
    answer = models("predict", "model", "new.csv", "--output", "./new.csv")
    assert answer.code == 2
    message = "--output must not be the file that is read, got new.csv\n"
    assert answer.err == f"ltr predict: {message}"
    assert Path("new.csv").read_bytes() == before


@pytest.mark.parametrize("name", ["model", "model.onnx", "of-lists", "blend"])
def test_every_model_scores_a_file_as_it_does_in_python(models, saved, name, monkeypatch):
    monkeypatch.setattr("ltr.datasets.table_files.ROWS", 7)
    new = pd.read_csv("new.csv")
    answer = models("predict", name, "new.csv", "--output", "p.parquet", "--doc-id", "sku")
    assert answer.code == 0, answer.err
    assert answer.out == "wrote p.parquet: 61 rows\n"
    found = pd.read_parquet("p.parquet")
    assert list(found.columns) == ["query", "sku", "grade", "score", "rank"]
    assert found["score"].dtype == np.float32
    assert found["rank"].dtype == np.int32
    for column in ("query", "sku"):
        assert found[column].tolist() == new[column].astype(str).tolist()
    assert found["grade"].tolist() == new["grade"].tolist()
    expected = saved[1][name].predict(new[COLUMNS], qid=new["query"])
    np.testing.assert_allclose(found["score"], expected, rtol=1e-4, atol=1e-5)
    ranks = found.groupby("query")["score"].rank(ascending=False, method="first")
    assert found["rank"].tolist() == ranks.tolist()
    # another order of rows and columns, another format: the same scores
    order = np.random.default_rng(0).permutation(61)
    new.iloc[order][new.columns[::-1]].to_parquet("shuffled.parquet")
    assert models("predict", name, "shuffled.parquet", "--output", "s.csv").code == 0
    again = pd.read_csv("s.csv")
    assert list(again.columns) == ["query", "grade", "score", "rank"]
    np.testing.assert_allclose(again["score"], expected[order], rtol=1e-4, atol=1e-5)
    # the metrics are those of the scores
    answer = models("test", name, "new.csv", "--metrics", "ndcg@3", "--output", "m.json")
    assert answer.code == 0, answer.err
    lists = [group for _, group in new.assign(score=expected).groupby("query", sort=False)]
    values = [
        F.ndcg(
            torch.tensor(one["score"].to_numpy()), torch.tensor(one["grade"].to_numpy()), top_k=3
        )
        for one in lists
    ]
    assert f"{float(torch.stack(values).mean()):.4f}" in answer.out
    assert '"new.csv"' in Path("m.json").read_text()


def test_an_empty_table_has_no_scores(models, saved, ltr):
    pd.read_csv("new.csv").iloc[:0].to_csv("empty.csv", index=False)
    model = saved[1]["model"].model_
    [(table, scores)] = score_table(model, "empty.csv", share=(0, 2))
    assert table.num_rows == len(scores) == 0
    assert not [*score_table(model, "empty.csv", share=(1, 2))]
    for output in ("x.csv", "x.parquet", "x.run"):
        answer = ltr("predict", "model", "empty.csv", "--output", output)
        assert (answer.code, answer.out) == (0, f"wrote {output}: 0 rows\n"), answer.err
    assert Path("x.csv").read_text() == '"query","grade","score","rank"\n'
    assert Path("x.run").read_text() == ""
    answer = ltr("test", "model", "empty.csv")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "at least one row" in answer.err


def test_a_trec_run(models):
    assert models("predict", "model", "new.csv", "--output", "p.csv").code == 0
    assert models("predict", "model", "new.csv", "--output", "p.trec").code == 0
    lines = [line.split() for line in Path("p.trec").read_text().splitlines()]
    names = ["query", "Q0", "at", "rank", "score", "tag"]
    run = pd.DataFrame(lines, columns=names).astype({"rank": int, "at": int, "score": float})
    assert {*run["Q0"]} == {"Q0"}
    assert {*run["tag"]} == {"ltr"}
    table = pd.read_csv("new.csv").assign(**pd.read_csv("p.csv", dtype={"query": str}))
    table["at"] = table.groupby("query").cumcount()
    both = run.merge(table, on=["query", "at"], suffixes=("", "_table"))
    assert len(both) == 61
    assert both["rank"].tolist() == both["rank_table"].tolist()
    np.testing.assert_allclose(both["score"], both["score_table"], rtol=1e-6)
    for query, one in run.groupby("query", sort=False):
        assert one["rank"].tolist() == [*range(1, len(one) + 1)], query
        assert one["score"].is_monotonic_decreasing
    assert len(read_run("p.trec")) == run["query"].nunique()  # as `ltr evaluate` reads it
    answer = models("predict", "model", "new.csv", "--output", "p.run", "--doc-id", "sku")
    assert answer.code == 0, answer.err
    assert {name for one in read_run("p.run").values() for name in one} == {*table["sku"]}
    answer = models("predict", "model", "new.csv", "--output", "q.run", "--doc-id", "shop")
    assert answer.code == 2
    assert "a TREC run names a document once, got two in query 'q" in answer.err
    new = pd.read_csv("new.csv")
    new.assign(sku="my " + new["sku"]).to_csv("new.csv", index=False)
    answer = models("predict", "model", "new.csv", "--output", "q.run", "--doc-id", "sku")
    assert answer.code == 2
    assert "names must be one word, got 'my S" in answer.err
    assert not Path("q.run").exists()


def test_a_table_without_queries_has_no_ranks(models):
    new = pd.read_csv("new.csv")
    new[COLUMNS].to_csv("plain.csv", index=False)
    assert models("predict", "model", "plain.csv", "--output", "p.csv").code == 0
    assert list(pd.read_csv("p.csv").columns) == ["score"]
    answer = models("predict", "of-lists", "plain.csv", "--output", "p.csv")
    assert answer.code == 2
    assert "the table has no column 'query'" in answer.err
    answer = models("test", "model", "plain.csv")
    assert answer.code == 2
    assert "--qid is required: the table has no column 'query'" in answer.err


def test_letor_text_and_lists_on_disk(models, saved):
    uses = {"qid": "query", "label": "grade", "doc_id": "sku", "features": ["price", "stock"]}
    convert("train.parquet", "lists", **uses, categories=["shop"])
    for source in ("lists", "train.parquet"):
        answer = models("predict", "of-lists", source, "--output", f"{source}.csv")
        assert answer.code == 0, answer.err
    one, two = pd.read_csv("lists.csv"), pd.read_csv("train.parquet.csv")
    assert list(one.columns) == ["qid", "doc_id", "label", "score", "rank"]
    one, two = (
        x.sort_values([x.columns[0], "rank"], kind="stable").reset_index() for x in (one, two)
    )
    np.testing.assert_allclose(one["score"], two["score"], rtol=1e-4, atol=1e-5)
    model = RankingModel(LinearScorer(3))
    model.save("letor")
    Path("t.txt").write_text("1 qid:7 1:0.5 3:2 # docid = a\n0 qid:7 2:1 # docid = b\n")
    assert models("predict", "letor", "t.txt", "--output", "t.csv").code == 0
    found = pd.read_csv("t.csv")
    assert found["doc_id"].tolist() == ["a", "b"]
    with torch.no_grad():
        expected = model(torch.tensor([[[0.5, 0, 2], [0, 1, 0]]]))[0].numpy()
    np.testing.assert_allclose(found["score"], expected, rtol=1e-5, atol=1e-6)
    Path("t.txt").write_text("1 qid:7 1:0.5 3:2\n1 qid:x 2:one\n")
    answer = models("predict", "letor", "t.txt", "--output", "t.csv")
    assert answer.code == 2
    assert "t.txt, line 2" in answer.err


def test_ties_and_digits():
    tied = np.array([2.0, 2.0, 2.0, np.nextafter(2.0, 1.0), 0.0, 0.0, -1e-45, -3.0])
    scores = descending(tied)
    assert scores.dtype == np.float32
    read_back = np.array([np.float32(f"{score:.9g}") for score in scores])
    assert (np.diff(read_back) < 0).all()
    one = np.zeros(4, int)
    assert rank(np.zeros(4), one).tolist() == [1, 2, 3, 4]
    assert rank(np.array([0.0, -0.0, 1.0]), one[:3]).tolist() == [2, 3, 1]
    assert rank(np.zeros(0), np.zeros(0, int)).tolist() == []


BAD = {
    "no output": (["model", "new.csv"], "the following arguments are required: --output"),
    "no table": (["model", "--output", "x.csv"], "the following arguments are required: TABLE"),
    "ending": (["model", "new.csv", "--output", "p.xlsx"], "--output must end in .csv, .parquet"),
    "no ending": (["model", "new.csv", "--output", "x"], "--output must end in .csv, .parquet"),
    "folder": (
        ["model", "new.csv", "--output", "blend"],
        "--output must be a file, got the folder",
    ),
    "missing table": (["model", "nope.csv", "--output", "x.csv"], "nope.csv"),
    "a folder as table": (["model", "empty", "--output", "x.csv"], "must hold CSV, Parquet or"),
    "missing model": (["nope", "new.csv", "--output", "x.csv"], "nope is no model"),
    "no model": (["empty", "new.csv", "--output", "x.csv"], "empty holds no model"),
    "checkpoint": (["a/1/checkpoints/last.ckpt", "new.csv", "--output", "x.csv"], "a/1/model"),
    "program": (["one.pt2", "new.csv", "--output", "x.csv"], "torch.export program"),
    "damaged": (["damaged", "new.csv", "--output", "x.csv"], ".txt is missing"),
    "another table": (["model", "other.csv", "--output", "x.csv"], "must have the column 'price'"),
    "text": (["model", "text.csv", "--output", "x.csv"], "text.csv: cannot be read: "),
    "no qid": (["model", "gap.csv", "--output", "x.csv"], "a qid must not be missing"),
    "column": (["model", "new.csv", "--output", "x.csv", "--qid", "quer"], "did you mean query?"),
    "score": (["model", "score.csv", "--output", "x.csv", "--doc-id", "score"], "'score'"),
}


def test_mistakes_are_one_line_and_leave_nothing(models):
    new = pd.read_csv("new.csv")
    Path("empty").mkdir()
    new.iloc[:0].to_csv("empty.csv", index=False)
    Path("one.pt2").write_bytes(b"refused by its name")
    shutil.copytree("blend", "damaged")
    file_in(Path("damaged"), "ranker-1.txt").unlink()
    new.drop(columns="price").to_csv("other.csv", index=False)
    cheap = new["price"].astype(str).where(new.index != 7, "cheap")
    new.assign(price=cheap).to_csv("text.csv", index=False)
    new.assign(query=new["query"].where(new.index != 50)).to_csv("gap.csv", index=False)
    new.assign(score="a").to_csv("score.csv", index=False)
    before = {*Path().rglob("*")}
    for args, message in BAD.values():
        answer = models("predict", *args)
        assert (answer.code, answer.out) == (2, ""), args
        assert answer.err.startswith("ltr predict: ")
        assert answer.err.count("\n") == 1
        assert message in answer.err
        assert {*Path().rglob("*")} == before
    Path("p.csv").mkdir()
    answer = models("predict", "model", "new.csv", "--output", "p.csv")
    assert answer.err.startswith("ltr predict: --output must be a file, got the folder p.csv (see")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_have_no_rank(models, bad, monkeypatch):
    def broken(self, lists, exact=None):
        return np.where(np.arange(len(lists.features)) == 4, np.float32(bad), np.float32(0))

    monkeypatch.setattr(RankingModel, "score", broken)
    answer = models("predict", "model", "new.csv", "--output", "p.csv")
    assert answer.code == 2
    assert f"scores must be finite, got {bad} in row 4" in answer.err
    assert not list(Path().glob("*p.csv*"))


def test_the_old_file_stays_until_the_new_one_is_complete(models, monkeypatch):
    Path("p.csv").write_text("old")

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", full)
        answer = models("predict", "model", "new.csv", "--output", "p.csv")
    assert answer.code == 2
    assert answer.err == "ltr predict: p.csv: No space left on device\n"
    assert Path("p.csv").read_text() == "old"
    assert not list(Path().glob(".*"))


@pytest.mark.slow  # a process that is killed twenty times
def test_killed_at_random_moments(models):
    assert models("predict", "model", "train.parquet", "--output", "whole.parquet").code == 0
    whole = Path("whole.parquet").read_bytes()
    code = "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["predict", "model", "train.parquet", "--output", "p.parquet"]
    draw = np.random.default_rng(7)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", code, *command], check=True)
    seconds = time.monotonic() - begun
    for _ in range(20):
        Path("p.parquet").write_text("old")
        run = subprocess.Popen([sys.executable, "-c", code, *command])
        time.sleep(draw.uniform(0.5, 1) * seconds)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert Path("p.parquet").read_bytes() in (b"old", whole)


def test_a_model_in_the_working_folder_has_a_name(models, monkeypatch):
    monkeypatch.chdir("model")
    options = ("../new.csv", "--metrics", "mrr", "--resamples", "20")
    answers = [models("test", name, *options) for name in (".", "../model")]
    assert answers[0].code == 0, answers[0].err
    assert answers[0].out == answers[1].out
    assert answers[0].out.split()[0] == "model"


def test_the_folder_of_a_run(tmp_path, saved):
    for run in ("a/1", "a/2", "b/1"):
        (tmp_path / run).mkdir(parents=True)
    for run in ("a/1", "b/1"):
        shutil.copytree(saved[0] / "model", tmp_path / run / "model")
    assert find_model(str(tmp_path / "a/1")) == tmp_path / "a/1/model"
    assert find_model(str(tmp_path / "a/1/model")) == tmp_path / "a/1/model"
    assert find_model(str(tmp_path / "a")) == tmp_path / "a/1/model"
    with pytest.raises(CommandError, match="holds no model"):
        find_model(str(tmp_path / "a/2"))


def test_names_are_written_as_they_are(models):
    new = pd.read_csv("new.csv").head(3)
    names = ["=1+1", 'a "b", c', "x\ny"]
    new.assign(sku=names, query=["007", "7", "007"]).to_csv("odd.csv", index=False)
    for output in ("p.csv", "p.parquet"):
        assert (
            models("predict", "model", "odd.csv", "--output", output, "--doc-id", "sku").code == 0
        )
    assert pq.read_table("p.parquet").column("sku").to_pylist() == names
    found = pd.read_csv("p.csv", dtype={"query": str})
    assert found["sku"].tolist() == names
    assert found["query"].tolist() == ["007", "7", "007"]
    assert pq.read_schema("p.parquet").field("query").type == pa.string()

"""`ltr predict`: one row per document, in three formats."""

import csv
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ltr.modules.prediction_files import descending, hard_ranks
from ltr.modules.prediction_writer import PredictionWriter


@pytest.fixture
def trained(ltr, fit_once):
    """`ltr`, with a run in runs/tiny."""
    fit_once("--config", "tiny.yaml", "--trainer.max_epochs", 1)
    return ltr


def predict(ltr, output, *more):
    return ltr(
        *("predict", "--config", "tiny.yaml", "--ckpt_path", "best", "--output", output, *more)
    )


def test_the_three_formats_say_the_same(trained):
    for name in ("p.csv", "deep/p.parquet", "p.run"):
        answer = predict(trained, name)
        assert answer.code == 0, answer.err
        assert f"wrote {name}: 20 rows" in answer.out
    table = pd.read_csv("p.csv", dtype={"doc_id": str})
    assert list(table.columns) == ["qid", "doc_id", "score", "rank"]
    assert table["qid"].tolist() == [f"digits-test-{i // 4}" for i in range(20)]
    for _, documents in table.groupby("qid"):
        assert sorted(documents["rank"]) == [1, 2, 3, 4]
        falling_scores = documents.sort_values("rank")["score"]
        assert falling_scores.is_monotonic_decreasing
    parquet = pd.read_parquet("deep/p.parquet")
    assert pq.read_schema("deep/p.parquet").types == [
        pa.string(),
        pa.string(),
        pa.float32(),
        pa.int32(),
    ]
    assert parquet["doc_id"].tolist() == table["doc_id"].tolist()
    assert parquet["rank"].tolist() == table["rank"].tolist()
    # nine digits bring back every float32
    assert parquet["score"].tolist() == table["score"].astype(np.float32).tolist()
    lines = [line.split() for line in Path("p.run").read_text().splitlines()]
    names = ["qid", "Q0", "doc_id", "rank", "score", "tag"]
    run = pd.DataFrame(lines, columns=names).astype({"rank": int})
    assert set(run["Q0"]) == {"Q0"}
    assert set(run["tag"]) == {"ltr"}
    expected = table.sort_values(["qid", "rank"])
    assert run["doc_id"].tolist() == expected["doc_id"].tolist()
    assert run["rank"].tolist() == expected["rank"].tolist()
    assert not [path.name for path in Path().glob("**/*.part")]


@pytest.mark.slow  # a fresh process imports all that `ltr predict` needs; test_main.py has others
def test_a_closed_stdout_is_no_error(trained):
    """Nothing is printed, and the file is whole: no other file took the number of stdout."""
    assert predict(trained, "p.csv").code == 0
    code = "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"
    args = ["--config", "tiny.yaml", "--ckpt_path", "best", "--output", "closed.csv"]
    command = shlex.join([sys.executable, "-c", code, "predict", *args])
    done = subprocess.run(["bash", "-c", f"{command} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Path("closed.csv").read_bytes() == Path("p.csv").read_bytes()


def test_a_mistake_in_the_data_names_no_checkpoint(trained, letor_root):
    data = ["--data", "LetorDataModule", "--data.root", letor_root]
    new = ["--data.predict_path", "none.txt", "--ckpt_path", "best", "--output", "p.csv"]
    answer = trained("predict", *data, *new)
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == ("ltr predict: predict_path must be a file, got none.txt")


def test_the_format_can_be_said(trained):
    assert predict(trained, "p.tsv", "--format", "trec").code == 0
    assert Path("p.tsv").read_text().startswith("digits-test-0 Q0 ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--output", "p.xlsx"], "--output must end in .csv, .parquet, .run, .trec or .txt"),
        ([], "--output is required"),
        (
            ["--output", "p.tsv", "--format", "xlsx"],
            "--format: Expected a typing.Literal['csv', 'parquet', 'trec'], got 'xlsx'",
        ),
    ],
)
def test_an_output_that_cannot_be(ltr, args, message):
    answer = ltr("predict", "--config", "tiny.yaml", *args)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_an_output_that_is_a_folder(ltr):
    Path("p.csv").mkdir()
    answer = ltr("predict", "--config", "tiny.yaml", "--output", "p.csv")
    assert answer.code == 2
    assert answer.err == "ltr predict: --output must be a file, got the folder p.csv\n"


def test_no_checkpoint(ltr):
    answer = ltr("predict", "--config", "tiny.yaml", "--output", "p.csv")
    assert answer.code == 2
    assert "--ckpt_path is required" in answer.err


def test_letor_documents_keep_their_ids(ltr, fit_once, letor_root):
    options = ["--config", "letor/smoke", "--data.root", letor_root]
    fit_once(*options)
    assert ltr("predict", *options, "--ckpt_path", "last", "--output", "p.csv").code == 0
    with Path("p.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["doc_id"] for row in rows[:4]] == ["D0-0", "D0-1", "D0-2", "D1-0"]


def write(path: Path, scores, batch) -> list[str]:
    """What a writer makes of a batch."""
    writer, trainer = PredictionWriter(str(path)), SimpleNamespace(world_size=1)
    writer.on_predict_start(trainer, None)
    try:
        writer.on_predict_batch_end(trainer, None, scores, batch, 0)
    except Exception as error:
        writer.on_exception(trainer, None, error)
        raise
    writer.on_predict_end(trainer, None)
    return path.read_text().splitlines()


def test_ties_rank_in_list_order_and_padding_is_left_out(tmp_path):
    batch = {
        "qid": ["a", "", "b"],
        "mask": torch.tensor([[True, True, True], [False] * 3, [True, False, False]]),
    }
    scores = torch.tensor([[1.0, 2.0, 2.0], [9.0, 9.0, 9.0], [-1.0, 5.0, float("nan")]])
    assert write(tmp_path / "p.csv", {"scores": scores}, batch) == [
        "qid,doc_id,score,rank",
        "a,0,1,3",
        "a,1,2,1",
        "a,2,2,2",
        "b,0,-1,1",
    ]
    assert write(tmp_path / "p.run", scores, batch) == [
        "a Q0 1 1 2 ltr",
        "a Q0 2 2 1.99999988 ltr",
        "a Q0 0 3 1 ltr",
        "b Q0 0 1 -1 ltr",
    ]


def test_trec_scores_fall_strictly_as_float32():
    tied = np.array([2.0, 2.0, 2.0, np.nextafter(2.0, 1.0), 0.0, 0.0, -1e-45, -3.0])
    scores = descending(tied)
    assert scores.dtype == np.float32
    read_back = np.array([np.float32(f"{score:.9g}") for score in scores])
    assert (np.diff(read_back) < 0).all()


def test_hard_ranks_are_stable():
    assert hard_ranks(np.zeros(4)).tolist() == [1, 2, 3, 4]
    assert hard_ranks(np.array([0.0, -0.0, 1.0])).tolist() == [2, 3, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_have_no_rank(tmp_path, bad):
    batch = {"qid": ["a"], "mask": torch.ones(1, 2, dtype=torch.bool)}
    with pytest.raises(ValueError, match=r"scores.*\d of \d in list 'a'"):
        write(tmp_path / "p.csv", torch.tensor([[0.0, bad]]), batch)


def test_a_name_with_a_blank_is_no_trec_name(tmp_path):
    batch = {"qid": ["a"], "mask": torch.ones(1, 1, dtype=torch.bool), "doc_id": [["my doc"]]}
    with pytest.raises(ValueError, match="must be one word, got 'my doc' in qid 'a'"):
        write(tmp_path / "p.run", torch.zeros(1, 1), batch)
    assert write(tmp_path / "p.csv", torch.zeros(1, 1), batch)[1] == "a,my doc,0,1"


def test_a_prediction_that_fails_leaves_nothing(trained, monkeypatch):
    def broken(self, *args):
        raise ValueError("out of order")

    monkeypatch.setattr(PredictionWriter, "_ranked", broken)
    answer = predict(trained, "p.csv")
    assert answer.code == 2
    assert answer.err.endswith("out of order\n")
    assert not list(Path().glob("*p.csv*"))


def test_ragged_batches_are_written_as_padded_ones(tmp_path):
    ragged = {
        "qid": ["a", "", "b"],
        "lengths": torch.tensor([3, 0, 1]),
        "doc_id": ["x", "y", "z", "w"],
    }
    scores = torch.tensor([1.0, 2.0, 2.0, -1.0])
    lines = ["qid,doc_id,score,rank", "a,x,1,3", "a,y,2,1", "a,z,2,2", "b,w,-1,1"]
    assert write(tmp_path / "p.csv", {"scores": scores}, ragged) == lines
    # a module that pads the lists itself
    padded = torch.tensor([[1.0, 2.0, 2.0], [9.0, 9.0, 9.0], [-1.0, 0.0, 0.0]])
    assert write(tmp_path / "p.csv", {"scores": padded}, ragged) == lines
    with pytest.raises(ValueError, match=r"scores.*1 of 3 in list 'a'"):
        write(tmp_path / "p.csv", torch.tensor([0.0, float("inf"), 0.0, 0.0]), ragged)

"""One way to name a model, for `ltr predict`, `test` and `export`."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker

from ltr.cli.errors import CommandError
from ltr.cli.named_models import find_model
from ltr.estimators import Blend, NeuralRanker
from ltr.models import AttentionScorer, MLPScorer


def scores(path: str) -> np.ndarray:
    return pd.read_csv(path)["score"].to_numpy()


def predict(ltr, model: object, output: str, *more: object) -> np.ndarray:
    given = ("--ckpt_path", model, "--data.path", "new.csv", "--output", output)
    answer = ltr("predict", *given, *more)
    assert answer.code == 0, answer.err
    return scores(output)


def test_a_run_its_checkpoint_and_its_exports(ltr, write_table):
    write_table(Path("train.parquet"), 300)
    write_table(Path("new.csv"), 61, seed=1)
    names = ("--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku")
    answer = ltr("fit", "--config", "table/smoke", "--data.path", "train.parquet", *names)
    assert answer.code == 0, answer.err
    run = Path("runs/table-smoke/1")
    assert f"run: {run}\n" in answer.out
    expected = predict(ltr, run / "checkpoints/best.ckpt", "a.csv")
    np.testing.assert_array_equal(predict(ltr, run, "a1.csv"), expected)

    assert ltr("export", "best", "--out", "folder").code == 0
    shutil.copy("folder/model.onnx", "one.onnx")
    Path("one.pt2").write_bytes(b"refused by its name")
    before = sorted(Path().rglob("*"))
    for number, (name, more) in enumerate([("folder", ()), ("one.onnx", names[:2])]):
        found = predict(ltr, name, f"b{number}.csv", *more)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    # a prediction leaves its output and nothing else
    assert {*Path().rglob("*")} - {*before} == {Path("b0.csv"), Path("b1.csv")}

    metrics = []
    for name, more in ((run, ()), ("one.onnx", names)):
        answer = ltr("test", "--ckpt_path", name, "--data.path", "new.csv", *more)
        assert answer.code == 0, answer.err
        metrics.append([line for line in answer.out.splitlines() if "test_ndcg" in line])
        assert metrics[-1] == metrics[0]

    for args, message in (
        (["predict", "--ckpt_path", "one.pt2", "--output", "x.csv"], "torch.export program"),
        (["predict", "--ckpt_path", "one.onnx", "--output", "x.csv"], "--data.qid is required"),
        (["export", "one.onnx", "--out", "x"], "one.onnx is already exported"),
        (["fit", "--config", "table", "--ckpt_path", "folder"], "resumes only from a checkpoint"),
        (["export", "runs/none", "--out", "x"], "no checkpoint 'runs/none'"),
    ):
        answer = ltr(*args, *(() if args[0] == "export" else ("--data.path", "new.csv")))
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert message in answer.err


def test_a_saved_estimator(ltr, write_table):
    train = write_table(Path("train.csv"), 240)
    new = write_table(Path("new.csv"), 61, seed=1)
    columns = ["price", "stock", "shop"]
    scorer = MLPScorer(hidden=(4,))  # scores rows; the blend below has a scorer of lists
    ranker = NeuralRanker(scorer=scorer, members=1, max_epochs=1, verbose=0)
    ranker.fit(train[columns], train["grade"], qid=train["query"])
    ranker.save("saved")
    ranker.export("saved.onnx")
    expected = ranker.predict(new[columns], qid=new["query"])
    for name in ("saved", "saved.onnx"):
        found = predict(ltr, name, "p.csv", "--data.qid", "query")
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    options = "--ckpt_path", "saved", "--output", "p.csv", "--data.path", "new.csv"
    answer = ltr("predict", *options)  # the queries of the training had no name
    assert answer.code == 2
    assert "the column 'qid', the query of each row (qid, or --data.qid, names it)" in answer.err
    assert "as in training" not in answer.err


def test_a_saved_blend(ltr, write_table):
    train = write_table(Path("train.parquet"), 240)
    new = write_table(Path("new.csv"), 61, seed=1)
    columns = ["price", "stock", "shop"]
    scorer = AttentionScorer(hidden=(8,), heads=2)
    network = NeuralRanker(scorer=scorer, members=1, max_epochs=1, verbose=0)
    blend = Blend([network, LGBMRanker(n_estimators=5, verbose=-1)], verbose=0)
    blend.fit(train[columns], train["grade"], qid=train["query"]).save("saved")
    expected = blend.predict(new[columns], qid=new["query"])
    found = predict(ltr, "saved", "p.csv", "--data.qid", "query")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    given = ("--data.path", "new.csv", "--data.qid", "query", "--data.label", "grade")
    answer = ltr("test", "--ckpt_path", "saved", *given)
    assert answer.code == 0, answer.err
    score = blend.score(new[columns], new["grade"], qid=new["query"])
    (line,) = (one for one in answer.out.splitlines() if "test_ndcg_10" in one)
    assert float(line.split()[-2 if line.endswith("│") else -1]) == pytest.approx(score, abs=1e-4)
    new.rename(columns={"query": "qid", "grade": "label"}).to_parquet("test.parquet")
    answer = ltr("export", "saved", "--out", "one.onnx", "--test", "test.parquet")
    assert answer.code == 2
    assert "'y'" in answer.err
    new.rename(columns={"query": "qid", "grade": "y"}).to_parquet("test.parquet")
    answer = ltr("export", "saved", "--out", "one.onnx", "--test", "test.parquet")
    assert answer.code == 0, answer.err
    assert "; 0 of 1424 rows differ by more than 1e-4" in answer.out
    assert f"{score:.4f}" in Path("one.md").read_text()
    found = predict(ltr, "one.onnx", "p.csv", "--data.qid", "query")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    answer = ltr("export", "saved", "--out", "one.pt2")
    assert answer.code == 2
    assert "--to must be onnx" in answer.err
    (Path("saved") / "ranker-1.txt").unlink()
    answer = ltr("predict", "--ckpt_path", "saved", "--data.path", "new.csv", "--output", "x.csv")
    assert answer.code == 2
    assert "ranker-1.txt is damaged or missing" in answer.err


def test_a_file_is_missed_before_an_option(ltr):
    answer = ltr("predict", "--ckpt_path", "nope.ckpt", "--data.path", "new.csv", "--no.option", 3)
    assert answer.code == 2
    assert answer.err == "ltr predict: no checkpoint 'nope.ckpt': runs has none\n"
    Path("cut.ckpt").write_bytes(b"PK\x03\x04" + bytes(100))
    for command in ("fit", "predict"):
        answer = ltr(command, "--ckpt_path", "cut.ckpt", "--data.path", "new.csv", "--no.option", 3)
        assert answer.code == 2
        assert answer.err.startswith(f"ltr {command}: cut.ckpt is not a checkpoint")
        assert answer.err.count("\n") == 1


def test_the_folder_of_a_run(tmp_path):
    for position in ("a/1", "a/2", "b/1"):
        for name in ("best", "last") if position == "a/1" else ("last",):
            file = tmp_path / position / f"checkpoints/{name}.ckpt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    one = tmp_path / "a/1/checkpoints"
    assert find_model(str(tmp_path / "a/1")) == one / "best.ckpt"
    assert find_model(str(tmp_path / "a/1"), resume=True) == one / "last.ckpt"
    assert find_model(str(tmp_path / "b")) == tmp_path / "b/1/checkpoints/last.ckpt"
    assert find_model("best", tmp_path / "a") == one / "best.ckpt"
    assert find_model("last", tmp_path / "c", resume=True) is None
    shutil.rmtree(tmp_path / "b/1")
    with pytest.raises(CommandError, match=r"no checkpoint '.*/b'"):
        find_model(str(tmp_path / "b"))

"""`ltr export`, from the folder of a run, from one of NeuralRanker, and from files of trees."""

import json
import os
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from lightgbm import LGBMRanker, LGBMRegressor

from ltr.cli import main
from ltr.cli.export import _ENGINES
from ltr.datasets import TableTransform, convert
from ltr.datasets.prepare import prepare
from ltr.datasets.transforms import fit_documents
from ltr.estimators import Blend, Calibrated, NeuralRanker
from ltr.export import export_model
from ltr.export.card import Difference
from ltr.export.engines import ENGINES
from ltr.models import LinearScorer, MLPScorer, RankingModel
from ltr.serving import OnnxRanker


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query": np.arange(240) // 6, "price": rng.normal(size=240)})
    frame["shop"] = rng.choice(["a", "b", None], 240)
    return frame.assign(grade=(frame["price"] > 0).astype(int) + (frame["shop"] == "b"))


def test_a_model_with_test_lists(frame, tmp_path, capsys):
    frame.to_parquet(tmp_path / "test.parquet")
    found = prepare(frame, {"qid": "query", "label": "grade"})
    lists, transform = found.train, TableTransform()
    fit_documents(transform, lists)
    model = RankingModel(MLPScorer(transform.out_features, hidden=(8,)), transform, found.schema)
    model.save(tmp_path / "runs/1/model")
    args = ["export", str(tmp_path / "runs/1"), str(tmp_path / "out")]
    assert main([*args, "--test", str(tmp_path / "test.parquet")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"wrote {tmp_path}/out/model.onnx and {tmp_path}/out/README.md\n")
    assert "largest difference from the model: " in out
    assert "On 40 test lists with 240 documents." in (tmp_path / "out" / "README.md").read_text()
    expected = model.predict(frame)
    np.testing.assert_array_equal(RankingModel.load(tmp_path / "out").predict(frame), expected)
    scores = OnnxRanker(str(tmp_path / "out" / "model.onnx")).predict(frame)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_folder_and_mistakes(frame, tmp_path, capsys, monkeypatch):
    small = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    small.fit(frame[["price", "shop"]], frame["grade"], qid=frame["query"])
    small.save(tmp_path / "model")
    args = ["export", str(tmp_path / "model")]
    with monkeypatch.context() as patch:  # tests/export has the content, which takes a second
        patch.setattr("ltr.export.write._checked", lambda *_: (b"", Difference(0, 1, 0)))
        assert main([*args, str(tmp_path / "one.pt2"), "--per-document"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "one.md", "one.pt2"]
    trees = LGBMRegressor(n_estimators=2, verbose=-1).fit(frame[["price"]], frame["grade"])
    exported = export_model(trees, tmp_path / "trees.onnx").model
    capsys.readouterr()
    for wrong, message in (
        ([*args, str(tmp_path / "x.onnx"), "--opset", "3"], "opset must be >= 14"),
        ([*args, str(tmp_path / "x.pt2"), "--to", "onnx"], "path must end in .onnx"),
        ([*args, str(tmp_path / "x.onnx"), "--float32"], "--float32 is for trees: the features of"),
        ([*args, "x", "--to", "tflite"], "invalid choice: 'tflite'"),
        ([*args, str(tmp_path / "one.md" / "x")], "path must be writable"),
        (["export", "none", "x"], "none is no model"),
        (["export", "runs/1/checkpoints/best.ckpt", "x"], "give the folder of the model"),
        (["export", str(exported), "x"], "is already exported"),
    ):
        assert main(wrong) == 2
        error = capsys.readouterr().err
        assert error.startswith("ltr export: ")
        assert error.count("\n") == 1
        assert message in error


def test_the_card_of_a_blend_is_that_of_its_own_method(frame, tmp_path):
    test = frame.iloc[:180].sample(frac=1, random_state=0)
    test.to_csv(tmp_path / "test.csv", index=False)
    blend = Blend([LGBMRanker(n_estimators=5, verbose=-1)], verbose=0)
    X = frame[["query", "price", "shop", "grade"]]
    blend.fit(prepare(X, {"qid": "query", "label": "grade"}, exact=True)).save(tmp_path / "model")
    args = ["export", str(tmp_path / "model"), str(tmp_path / "out")]
    assert main([*args, "--test", str(tmp_path / "test.csv")]) == 0
    written = blend.export(tmp_path / "own", test=(test, test["grade"], test["query"]))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "On 30 test lists with 180 documents." in card
    assert card == written.card.read_text()
    assert (Blend.load(tmp_path / "out").predict(frame) == blend.predict(frame)).all()


@pytest.mark.parametrize("kind", [NeuralRanker, Blend])
def test_a_folder_keeps_the_estimator_and_its_calibration(frame, tmp_path, monkeypatch, kind):
    X, y, qid = frame[["price", "shop"]], frame["grade"], frame["query"]
    ranker: Any = NeuralRanker(scorer=LinearScorer(), members=1, max_epochs=1, verbose=0)
    if kind is Blend:
        ranker = Blend([LGBMRanker(n_estimators=3, verbose=-1), ranker], verbose=0)
    ranker.fit(X, y, qid=qid)
    calibrated = Calibrated(ranker).fit(X, y, qid=qid)
    calibrated.save(tmp_path / "model")
    monkeypatch.setattr("ltr.export.write._checked", lambda *_: (b"", Difference(0, 1, 0)))
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "out")]) == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {*written} == {"model.onnx", "README.md", *os.listdir(tmp_path / "model")}
    for path in (tmp_path / "model").iterdir():
        assert written[path.name] == path.read_bytes()
    probabilities = Calibrated.load(tmp_path / "out").probability(X)
    np.testing.assert_array_equal(probabilities, calibrated.probability(X))


REPORT = re.compile(
    r"wrote (\S+) and (\S+)\nlargest difference from the model: \S+ of the largest score; "
    r"rows whose position in their list changes: 0 of \d+\n(note: .*\n)*"
)


def test_trees_for_search_engines(frame, tmp_path, capsys):
    assert _ENGINES == ENGINES
    X = frame[["price"]].assign(age=np.arange(240) % 7)
    ranker = LGBMRanker(n_estimators=5, verbose=-1).fit(X, frame["grade"], group=[6] * 40)
    ranker.booster_.save_model(tmp_path / "trees.txt")
    X.assign(query=frame["query"]).to_csv(tmp_path / "rows.csv", index=False)
    blend = Blend([LGBMRanker(n_estimators=5, verbose=-1)], verbose=0)
    blend.fit(X, frame["grade"], qid=frame["query"]).save(tmp_path / "blend")
    frame.assign(age=X["age"]).to_parquet(tmp_path / "rows.parquet")
    for to in _ENGINES:
        out = tmp_path / to
        args = ["export", str(tmp_path / "trees.txt"), str(out), "--to", to]
        assert main([*args, "--test", str(tmp_path / "rows.csv"), "--qid", "query"]) == 0
        written = REPORT.fullmatch(capsys.readouterr().out)
        assert written is not None
        assert written.groups()[:2] == (str(out / "model.json"), str(out / "features.json"))
        args = ["export", str(tmp_path / "blend"), str(tmp_path / "b.json"), "--to", to]
        assert main([*args, "--missing", "zero", "--test", str(tmp_path / "rows.parquet")]) == 0
        assert REPORT.fullmatch(capsys.readouterr().out)
        assert "price" in json.dumps(json.loads((tmp_path / "b.json").read_text()))
    assert main(["export", str(tmp_path / "trees.txt"), str(tmp_path / "trees.onnx")]) == 0
    assert "0 of 1424 rows differ" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["trees.ubj", "trees.json"])
def test_the_file_of_a_ranker_that_stopped_early_scores_as_the_ranker(frame, tmp_path, file):
    X = frame[["price"]].assign(age=np.arange(240) % 7)
    noise = np.random.default_rng(0).permutation(frame["grade"])
    ranker = xgboost.XGBRanker(n_estimators=50, early_stopping_rounds=2, n_jobs=1)
    given = {"eval_set": [(X, noise)], "eval_qid": [frame["query"]], "verbose": False}
    ranker.fit(X, frame["grade"], qid=frame["query"], **given)
    assert ranker.best_iteration < ranker.get_booster().num_boosted_rounds() - 1
    ranker.save_model(tmp_path / file)
    ranker.get_booster().save_model(tmp_path / f"all.{file}")
    for name, part in ((file, ranker), (f"all.{file}", ranker.get_booster())):
        assert main(["export", str(tmp_path / name), str(tmp_path / "m.onnx")]) == 0
        export_model(part, tmp_path / "own.onnx")
        found, expected = (OnnxRanker(tmp_path / x).score(X) for x in ("m.onnx", "own.onnx"))
        np.testing.assert_array_equal(found, expected)


def test_rows_of_lists_for_search_engines(frame, tmp_path, capsys):
    lines = (
        f"{grade} qid:{query} 1:{price:.3f} 2:{query % 7}\n"
        for query, price, grade in zip(frame["query"], frame["price"], frame["grade"], strict=True)
    )
    (tmp_path / "letor.txt").write_text("".join(lines))
    roles: dict[str, Any] = {"qid": "query", "label": "grade"}
    numbers = frame[["query", "price", "grade"]]
    numbers.to_parquet(tmp_path / "rows.parquet")
    convert(tmp_path / "rows.parquet", tmp_path / "lists", **roles)
    for name, source in (("letor.txt", tmp_path / "letor.txt"), ("lists", prepare(numbers, roles))):
        blend = Blend([LGBMRegressor(n_estimators=5, verbose=-1)], verbose=0).fit(source)
        blend.save(tmp_path / "blend")
        args = ["export", str(tmp_path / "blend"), "--test", str(tmp_path / name)]
        assert main([*args, str(tmp_path / "m.onnx")]) == 0
        capsys.readouterr()
        assert main([*args, str(tmp_path / "out"), "--to", "solr"]) == 0
        out = capsys.readouterr().out
        assert REPORT.fullmatch(out)
        assert "of 740" in out  # 500 rows are generated
        assert "On 40 test lists with 240 documents." in (tmp_path / "m.md").read_text()


def test_mistakes_with_search_engines(frame, tmp_path, capsys):
    ranker = LGBMRegressor(n_estimators=2, verbose=-1).fit(frame[["price"]], frame["grade"])
    trees, rows = str(tmp_path / "trees.txt"), str(tmp_path / "rows.parquet")
    ranker.booster_.save_model(trees)
    frame.to_parquet(rows)
    (tmp_path / "bad.txt").write_text("no trees")
    network = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    network.fit(frame[["price"]], frame["grade"], qid=frame["query"]).save(tmp_path / "network")
    out = str(tmp_path / "out")
    for args, message in (
        ([str(tmp_path / "network"), out, "--to", "solr"], "export it to ONNX, for Vespa or"),
        ([trees, out, "--to", "solr", "--per-document"], "--per-document is for --to onnx"),
        ([trees, out, "--to", "solr", "--opset", "16"], "--opset is for --to onnx"),
        ([trees, out, "--to", "solr", "--qid", "q"], "--qid is for the rows of --test, got q"),
        ([trees, out, "--missing", "zero"], "--missing is for --to opensearch, elasticsearch"),
        ([trees, out, "--to", "solr", "--test", rows, "--qid", "q"], "--qid must be a column of"),
        ([trees, f"{out}.onnx", "--to", "solr"], "path must end in .json"),
        ([trees, f"{out}.json"], "to must be one of opensearch, elasticsearch, solr for a path in"),
        ([str(tmp_path / "bad.txt"), out, "--to", "solr"], "bad.txt cannot be read by lightgbm"),
        ([trees, out, "--to", "onnx", "--test", rows], "--test needs the folder of a model"),
    ):
        assert main(["export", *args]) == 2, args
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["model.json", "features.json"])
def test_a_search_engine_gets_no_file_in_the_place_of_the_trees(frame, tmp_path, capsys, name):
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(frame[["price"]], frame["grade"])
    (tmp_path / "trees").mkdir()
    trees = tmp_path / "trees" / name
    xgboost.train({"max_depth": 2}, data, 2).save_model(trees)
    (tmp_path / "linked").symlink_to(tmp_path / "trees")
    before = trees.read_bytes()
    for folder in ("trees", "linked"):
        assert main(["export", str(trees), str(tmp_path / folder), "--to", "solr"]) == 2
        told = f"OUTPUT must not be the file that is read, got {tmp_path / folder / name}"
        assert capsys.readouterr().err == f"ltr export: {told}\n"
    assert trees.read_bytes() == before
    assert [path.name for path in trees.parent.iterdir()] == [name]
    assert main(["export", str(trees), str(tmp_path / "solr"), "--to", "solr"]) == 0

"""`ltr export`, from the folder of a run and from one of NeuralRanker."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor

from ltr.cli import main
from ltr.datasets import TableTransform
from ltr.datasets.prepare import prepare
from ltr.datasets.transforms import fit_documents
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.models import MLPScorer, RankingModel
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
    fit_documents(transform, lists.features, lists.categories, lists.labels, lists.offsets)
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


def test_a_folder_and_mistakes(frame, tmp_path, capsys):
    small = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    small.fit(frame[["price", "shop"]], frame["grade"], qid=frame["query"])
    small.save(tmp_path / "model")
    args = ["export", str(tmp_path / "model")]
    assert main([*args, str(tmp_path / "one.pt2"), "--per-document"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "one.md", "one.pt2"]
    trees = LGBMRegressor(n_estimators=2, verbose=-1).fit(frame[["price"]], frame["grade"])
    exported = export_model(trees, tmp_path / "trees.onnx").model
    capsys.readouterr()
    for wrong, message in (
        ([*args, str(tmp_path / "x.onnx"), "--opset", "3"], "opset must be >= 14"),
        ([*args, str(tmp_path / "x.pt2"), "--to", "onnx"], "path must end in .onnx"),
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

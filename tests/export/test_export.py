"""Exported models give the model's scores, and need no ltr."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import ltr.serving
from ltr.datasets import (
    Join,
    PiecewiseLinearBins,
    Quantile,
    RankPerList,
    SignedLog1pStandardize,
    Standardize,
    TableTransform,
)
from ltr.estimators import NeuralRanker
from ltr.export import ExportedRanker, evaluate, export_model
from ltr.models import LinearScorer, MLPScorer, Scorer
from ltr.serving import OnnxRanker


def table(rows: int = 240) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.3, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(["a", "b", None], rows),
            "new": rng.random(rows) < 0.5,
        }
    )
    y = (X["price"] > 0).to_numpy() + 2 * (X["shop"] == "b").to_numpy()
    return X, y.astype(int), np.arange(rows) // 6


@pytest.fixture(scope="module")
def ranker() -> NeuralRanker:
    X, y, qid = table()
    small = NeuralRanker(
        members=2, max_epochs=2, scorer=MLPScorer(hidden=(8,)), verbose=0, random_state=0
    )
    return small.fit(X, y, qid=qid)


@pytest.fixture(scope="module")
def folder(ranker, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("exported")
    X, y, qid = table()
    written = ranker.export(path, test=(X, y, qid))
    assert written.model == path / "model.onnx"
    assert written.difference < 1e-6
    return path


def alone(code: str, cwd: Path) -> str:
    """Run code in a process that cannot import ltr."""
    start = "import sys; sys.modules['ltr'] = None\n"
    command = [sys.executable, "-c", start + code]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_file_is_onnx_that_needs_no_ltr(ranker, folder):
    model = onnx.load(folder / "model.onnx")
    assert [one.name for one in model.graph.input] == ["features", "categories"]
    assert [one.version for one in model.opset_import if one.domain == ""] == [17]
    found = alone(
        """
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
features = np.array([[[0.5, np.nan], [-1.0, 3.0]]], dtype=np.float32)
categories = np.array([[[1, 2], [0, 1]]])
print(session.run(None, {"features": features, "categories": categories})[0].tolist())
""",
        folder,
    )
    levels = {name: one.levels for name, one in ranker.schema_.categories.items()}
    X = pd.DataFrame(
        {
            "price": [0.5, -1.0],
            "stock": [np.nan, 3.0],
            "shop": [levels["shop"][0], None],
            "new": [levels["new"][1] == "true", levels["new"][0] == "true"],
        }
    )
    np.testing.assert_allclose(json.loads(found)[0], ranker.predict(X), atol=1e-6)


def test_serving_needs_no_ltr(ranker, folder, tmp_path):
    shutil.copy(ltr.serving.__file__, tmp_path / "serving.py")
    X, _, _ = table()
    rows = json.loads(X[:7].to_json(orient="records"))
    code = f"""
from serving import OnnxRanker
rows = {rows!r}
print(OnnxRanker({str(folder / "model.onnx")!r}).score(rows).tolist())
"""
    found = json.loads(alone(code, tmp_path))
    np.testing.assert_allclose(found, ranker.predict(X[:7]), atol=1e-6)


def test_a_program_opens_without_ltr(ranker, tmp_path):
    written = ranker.export(tmp_path / "model.pt2", per_document=True)
    assert written.difference < 1e-6
    assert written.card.name == "model.md"
    code = """
import torch
program = torch.export.load("model.pt2").module()
features, categories = torch.tensor([[0.5, float("nan")]]), torch.tensor([[1, 0]])
print(program(features, categories).tolist())
"""
    shop = ranker.schema_.categories["shop"].levels[0]
    X = pd.DataFrame({"price": [0.5], "stock": [np.nan], "shop": [shop], "new": [None]})
    X["new"] = X["new"].astype("boolean")
    found = json.loads(alone(code, tmp_path))
    np.testing.assert_allclose(found, ranker.predict(X), atol=1e-6)


values = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "price": values,
                "stock": values,
                "shop": st.sampled_from(["a", "b", "unseen", "", None]),
                "new": st.sampled_from([True, False, None]),
            }
        ),
        min_size=1,
        max_size=40,
    )
)
def test_serving_scores_as_the_model(ranker, folder, rows):
    X = pd.DataFrame(rows)
    X = X.astype({"price": float, "stock": float, "shop": "str", "new": "boolean"})
    X["shop"] = X["shop"].where([row["shop"] is not None for row in rows])
    expected = ranker.predict(X)
    scale = np.abs(expected).max()
    found = OnnxRanker(folder / "model.onnx").score(rows)
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale + 1e-7)


def test_serving_from_a_data_frame(ranker, folder):
    X, _, _ = table()
    served = OnnxRanker(folder / "model.onnx")
    np.testing.assert_allclose(served.score(X.assign(other=1)), ranker.predict(X), atol=1e-6)
    assert served.score([]).shape == (0,)
    with pytest.raises(ValueError, match="documents must have the column 'shop'"):
        served.score(X.drop(columns="shop"))
    with pytest.raises(ValueError, match="column 'price' must hold 1 number"):
        served.score([{"price": "cheap", "stock": 1, "shop": "a", "new": True}])


def test_files_of_a_folder(ranker, folder):
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "config.json", "model.onnx", "model.safetensors"]
    card = (folder / "README.md").read_text()
    for part in ("`price`", "string with 2 levels", "NDCG@10", "95 % interval", "To be filled in"):
        assert part in card
    state = load_file(folder / "model.safetensors")
    assert torch.equal(state["scorer.scales"], ranker.scorer_.scales)
    content = json.loads((folder / "config.json").read_text())
    assert content["scorer"]["class_path"] == "ltr.models.Ensemble"


def test_the_card_has_the_estimators_own_score(ranker):
    X, y, qid = table()
    module = ExportedRanker(ranker.transform_, ranker.scorer_, ranker.schema_)
    from ltr.datasets import read_table

    frame = X.assign(**{ranker.schema_.qid: qid, ranker.schema_.label: y})
    found = evaluate(module, read_table(frame, ranker.schema_))
    assert found.lists == 40
    assert found.metrics["NDCG@10"].mean == pytest.approx(ranker.score(X, y, qid=qid), abs=1e-6)


class Centered(Scorer):
    """A scorer that looks at the list."""

    def score(self, features, mask):
        total = features.sum(-1)
        count = features.shape[-2] if mask is None else mask.sum(-1, keepdim=True).clamp(min=1)
        return total - total.sum(-1, keepdim=True) / count


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_a_scorer_of_lists_says_so(to, tmp_path):
    module = ExportedRanker(
        Standardize().fit(np.random.default_rng(0).normal(size=(50, 3))), Centered(), None
    )
    assert module.inputs == ("features", "mask")
    written = export_model(module, tmp_path, to=to)
    assert written.difference < 1e-5
    if to == "onnx":
        served = OnnxRanker(written.model)
        assert served.about["looks_at_list"]
        scores = served.score_arrays(np.ones((4, 3), dtype=np.float32))
        np.testing.assert_allclose(scores, 0, atol=1e-5)
        with pytest.raises(ValueError, match="the model has no names of columns"):
            served.score([{"a": 1}])
    assert "depends on the whole list" in written.card.read_text()
    with pytest.raises(ValueError, match="per_document must be False"):
        ExportedRanker(None, Centered(), None, per_document=True)


@pytest.mark.parametrize(
    "transform",
    [SignedLog1pStandardize(), Join([Standardize(), PiecewiseLinearBins(4)]), RankPerList()],
    ids=lambda x: type(x).__name__,
)
def test_transforms_are_inside(transform, tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    fitted = TableTransform(transform).fit(rows)
    scorer = LinearScorer(fitted.out_features)
    written = export_model(ExportedRanker(fitted, scorer, None), tmp_path / "m.pt2", to="torch")
    assert written.difference < 1e-5


@pytest.mark.parametrize(
    "transform", [Standardize(), SignedLog1pStandardize(), PiecewiseLinearBins(), Quantile()]
)
def test_the_range_of_training(transform):
    rows = np.random.default_rng(0).normal(10, 2, size=(500, 2)).astype(np.float32)
    for one in (transform.fit(rows), TableTransform(type(transform)()).fit(rows)):
        low, high = one.training_range()
        assert low.shape == high.shape == (2,)
        assert ((low < 7) & (low > 1) & (high > 13) & (high < 25)).all()


def test_bad_arguments(ranker, tmp_path):
    module = ExportedRanker(None, LinearScorer(2), None)
    for arguments, message in (
        ({"to": "tflite"}, 'to must be "onnx" or "torch"'),
        ({"opset": 3}, "opset must be a whole number >= 13, got 3"),
        ({"to": "torch", "path": tmp_path / "a.onnx"}, "path must end in .pt2"),
    ):
        with pytest.raises(ValueError, match=message):
            export_model(module, **{"path": tmp_path / "out", **arguments})
    with pytest.raises(ValueError, match="num_features must be known: train the model first"):
        ExportedRanker(None, MLPScorer(), None)
    assert not list(tmp_path.iterdir())


def test_a_difference_is_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    module = ExportedRanker(None, LinearScorer(2), None)
    monkeypatch.setattr(
        "ltr.export.write._program_runner", lambda path: lambda x: x.numpy()[..., 0]
    )
    with pytest.raises(ValueError, match="the exported model differs from the model by"):
        export_model(module, tmp_path / "m.pt2", to="torch")
    assert not list(tmp_path.iterdir())

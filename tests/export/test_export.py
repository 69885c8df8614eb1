"""Exported models give the model's scores, and need no ltr."""

import json
import shutil

import numpy as np
import onnx
import pandas as pd
import pyarrow as pa
import pytest
import torch
from lightgbm import LGBMRegressor
from model_folders import file_in, names_in
from safetensors.torch import load_file
from torch import nn

from ltr.config.folder import Saved, with_digest
from ltr.datasets import (
    Join,
    ListDataset,
    MinMaxPerList,
    PeriodicEmbedding,
    PiecewiseLinearBins,
    Quantile,
    RankPerList,
    SignedLog1pStandardize,
    Standardize,
    StandardizePerList,
    TableTransform,
)
from ltr.estimators import NeuralRanker
from ltr.export import card_metrics, export_model
from ltr.export.card import Difference
from ltr.export.program import ExportedRanker
from ltr.models import LinearScorer, MLPScorer, MonotoneScorer, RankingModel, Scorer
from ltr.serving import OnnxRanker


def test_the_file_is_onnx_that_needs_no_ltr(alone, ranker, folder):
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


def test_a_program_opens_without_ltr(alone, ranker, tmp_path):
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


def test_a_card_of_one_feature_and_one_level(tmp_path):
    X = pd.DataFrame({"price": np.arange(8.0), "shop": pd.Categorical(["a", None] * 4)})
    options = {"members": 1, "max_epochs": 1, "verbose": 0, "validation": 0}
    model = NeuralRanker(scorer=MLPScorer(hidden=(2,)), **options)
    model.fit(X, [0, 1] * 4, qid=[0, 0, 1, 1, 2, 2, 3, 3])
    text = model.export(tmp_path / "m.pt2").card.read_text()
    assert "1 feature and 1 category.\n" in text
    assert "| `shop` | string with 1 level |" in text
    assert "and 0 rows differ by more than 1e-4 of it." in text


def test_files_of_a_folder(ranker, folder):
    assert names_in(folder) == ["README.md", "config.json", "model.onnx", "model.safetensors"]
    card = (folder / "README.md").read_text()
    for part in ("`price`", "string with 2 levels", "NDCG@10", "95 % interval", "To be filled in"):
        assert part in card
    state = load_file(file_in(folder, "model.safetensors"))
    assert torch.equal(state["scorer.scales"], ranker.scorer_.scales)


def test_the_folder_loads_again_as_it_was_saved(table, ranker, folder, tmp_path):
    X, y, qid = table
    again = NeuralRanker.load(folder)
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
    assert again.score(X, y, qid=qid) == ranker.score(X, y, qid=qid)
    ranker.save(tmp_path)
    for name in ("config.json", "model.safetensors"):
        exported, saved = (file_in(one, name) for one in (folder, tmp_path))
        assert exported.name == saved.name
        assert exported.read_bytes() == saved.read_bytes()
    loaded = RankingModel.load(folder)
    np.testing.assert_array_equal(loaded.predict(X, qid=qid), ranker.predict(X))
    assert loaded.schema == ranker.schema_


def test_folders_that_cannot_be_loaded(folder, tmp_path):
    with pytest.raises(ValueError, match="path must"):
        RankingModel.load(tmp_path / "none")
    shutil.copytree(folder, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    content = json.loads(path.read_text())
    for changed, message in (
        ([], "is not the configuration of a model"),
        ({}, "is not of this version of ltr: fit the model and save it again"),
        ({"sha256": {}}, "is not of this version of ltr: fit the model and save it again"),
        ({**content, "sha256": "0"}, "is damaged: its digest is not the one that it holds"),
        ({"kind": "Blend", "sha256": ""}, "of a RankingModel, but of a Blend"),
        (
            {"kind": "RankingModel", "files": content["files"], "sha256": ""},
            "is not the configuration of a model",
        ),
        ({**content, "scorer": None}, "scorer must be a Scorer, got None"),
        (
            {**content, "unsaved": {"scorer": "a lambda"}},
            "scorer of .* cannot be loaded, .* not be saved: a lambda",
        ),
        ({**content, "num_features": 2}, "the weights do not fit the configuration"),
        ({**content, "transform": {"class_path": "os.system"}}, "os.system"),
    ):
        if "kind" in changed and changed["sha256"] != "0":
            changed = with_digest(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            RankingModel.load(tmp_path / "m")


def test_a_model_whose_parts_have_no_configuration(tmp_path):
    class Local(LinearScorer):
        pass

    module = RankingModel(Local(2))
    with pytest.warns(UserWarning, match="scorer was not saved; give it again"):
        export_model(module, tmp_path, to="torch")
    with pytest.raises(
        ValueError, match=r"scorer of .* cannot be loaded, because it could not be saved"
    ):
        RankingModel.load(tmp_path)


def test_the_card_has_the_estimators_own_score(table, ranker):
    X, y, qid = table
    module = ranker.model_
    from ltr.datasets import read_table

    frame = X.assign(**{ranker.schema_.qid: qid, ranker.schema_.label: y})
    found = card_metrics(module, read_table(frame, ranker.schema_))
    assert found.lists == 40
    grades, unlabeled = [0, 1, 0, 1], X.assign(**{ranker.schema_.qid: qid})
    for data, message in (
        (frame, "data must be a ListDataset, got DataFrame"),
        (read_table(unlabeled, ranker.schema_, needs_label=False), "data must have labels"),
        (ListDataset.from_arrays(np.zeros((4, 2)), grades, [1] * 4), "at least two lists, got 1"),
        (ListDataset.from_arrays(np.zeros((4, 3)), grades, [1, 1, 2, 2]), "2 features, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            card_metrics(module, data)
    assert found.metrics["NDCG@10"].mean == pytest.approx(ranker.score(X, y, qid=qid), abs=1e-6)


class Centered(Scorer):
    """A scorer that looks at the list."""

    def score(self, features, mask):
        total = features.sum(-1)
        count = features.shape[-2] if mask is None else mask.sum(-1, keepdim=True).clamp(min=1)
        return total - total.sum(-1, keepdim=True) / count


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_a_scorer_of_lists_says_so(to, tmp_path):
    fitted = Standardize().fit(np.random.default_rng(0).normal(size=(50, 3)))
    module = RankingModel(Centered(), fitted)
    assert ExportedRanker(module).inputs == ("features", "mask")
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
    with pytest.raises(ValueError, match="per_document must"):
        ExportedRanker(module, per_document=True)


@pytest.mark.parametrize(
    "transform",
    [
        Join([Standardize(), PiecewiseLinearBins(4)]),
        # exports more; tests/datasets/test_transforms.py has torch.export of each of them
        pytest.param(SignedLog1pStandardize(), marks=pytest.mark.slow),
        pytest.param(RankPerList(), marks=pytest.mark.slow),
    ],
    ids=lambda x: type(x).__name__,
)
def test_transforms_are_inside(transform, tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    fitted = TableTransform(transform).fit(rows)
    scorer = LinearScorer(fitted.out_features)
    written = export_model(RankingModel(scorer, fitted), tmp_path / "m.pt2", to="torch")
    assert written.difference < 1e-5


def test_embeddings_and_columns_relative_to_the_list_in_onnx(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)).round(1).astype(np.float32)
    rows[3, 0] = np.nan
    of_list = RankPerList(), StandardizePerList(), MinMaxPerList()
    fitted = TableTransform(Join([PeriodicEmbedding(), *of_list])).fit(rows)
    scorer = MLPScorer(fitted.out_features, hidden=(8,), activation=nn.SiLU)
    model = RankingModel(scorer, fitted).eval()
    written = export_model(model, tmp_path / "m.onnx")
    assert written.difference < 1e-5
    # lists with ties, a missing value, equal values, and one document alone
    lists = [rows[:7], np.repeat(rows[8:9], 3, 0), rows[9:10]]
    ranker = OnnxRanker(tmp_path / "m.onnx")
    for features in lists:
        with torch.no_grad():
            want = model(torch.from_numpy(features).unsqueeze(0))[0]
        np.testing.assert_allclose(ranker.score_arrays(features), want, atol=1e-5)


@pytest.mark.slow  # three seconds; the parts of the layers are those of other exports
def test_a_monotone_scorer(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    rows[3, 0] = np.nan
    fitted = TableTransform(Join([PiecewiseLinearBins(3), Standardize()])).fit(rows)
    scorer = MonotoneScorer(
        torch.tensor([1, 0, 0])[fitted.monotone_columns()].tolist(), hidden=(4,)
    )
    scorer.build(fitted.out_features)
    written = export_model(RankingModel(scorer, fitted), tmp_path / "m.onnx")  # in opset 17
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


@pytest.mark.parametrize("lists", [0, 1])
def test_a_card_needs_two_test_lists_for_its_intervals(table, ranker, tmp_path, lists):
    X, y, qid = (part[: 6 * lists] for part in table)
    for file in ("m.onnx", "m.pt2", "folder"):
        with pytest.raises(ValueError, match=f"test must have at least two lists, got {lists}"):
            ranker.export(tmp_path / file, test=(X, y, qid))
    assert not [*tmp_path.iterdir()]


def test_bad_arguments(ranker, tmp_path):
    module = RankingModel(LinearScorer(2))
    for arguments, message in (
        ({"to": "tflite"}, "to must be one of 'onnx', 'torch'"),
        ({"opset": 3}, "opset must be >= 14, got 3"),
        ({"to": "torch", "opset": 17}, "opset must not be given for to='torch', got 17"),
        ({"to": "solr", "opset": 17}, "opset must not be given for to='solr', got 17"),
        ({"opset": 99}, "opset must be one that torch and onnx can write, got 99"),
        ({"single": True}, "single must be False for a RankingModel"),
        ({"evaluation": 0.5}, "evaluation must be a result of `card_metrics`, got 0.5"),
        ({"to": "torch", "path": tmp_path / "a.onnx"}, "path must end in .pt2"),
        ({"path": tmp_path / "a.onnx", "saved": Saved({}, {})}, "path must be a folder if saved"),
        ({"path": tmp_path / "a.json"}, "to must be one of opensearch, elasticsearch, solr for"),
        ({"to": "torch", "path": tmp_path / "a.json"}, "for a path in .json, got 'torch'"),
    ):
        with pytest.raises(ValueError, match=message):
            export_model(module, **{"path": tmp_path / "out", **arguments})
    with pytest.raises(ValueError, match="num_features must"):
        export_model(RankingModel(MLPScorer()), tmp_path)
    with pytest.raises(ValueError, match=r"model.*LinearScorer"):
        export_model(LinearScorer(2), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"test.*int"):
        ranker.export(tmp_path / "out", test=5)
    with pytest.raises(ValueError, match="single must be False for a RankingModel"):
        ranker.export(tmp_path / "out", single=True)
    for arguments, message in (
        ((LinearScorer(2), "standardize"), "transform must be a FeatureTransform or None"),
        ((torch.nn.Linear(2, 1),), "scorer must be a Scorer, got Linear"),
        ((LinearScorer(2), None, {"price": 1}), "schema must be a Schema or None"),
    ):
        with pytest.raises(ValueError, match=message):
            RankingModel(*arguments)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_a_place_that_cannot_be_written(to, tmp_path, monkeypatch):
    # the place does not depend on the content, which takes a second to make
    monkeypatch.setattr("ltr.export.write._checked", lambda *_: (b"model", Difference(0, 1, 0)))
    (tmp_path / "file").write_text("")
    module = RankingModel(LinearScorer(2))
    for path in (tmp_path / "file", tmp_path / "file" / "m", tmp_path / ("x" * 300)):
        with pytest.raises(ValueError, match=r"path.*.*/(file|x)"):
            export_model(module, path, to=to)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("to", ["onnx", "torch"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite(to, bad, tmp_path):
    module = RankingModel(LinearScorer(2))
    torch.nn.init.constant_(next(module.parameters()), bad)
    with pytest.raises(ValueError, match=r"the model's scores.*(nan|-?inf): train"):
        export_model(module, tmp_path / "m", to=to)
    assert not list(tmp_path.iterdir())


def test_a_model_in_double_precision_is_exported_in_single_and_stays(tmp_path):
    scorer = MLPScorer(2).double()
    written = export_model(RankingModel(scorer), tmp_path, to="torch")
    assert written.difference < 1e-5
    assert {x.dtype for x in scorer.parameters()} == {torch.float64}
    assert (
        load_file(file_in(tmp_path, "model.safetensors"))["scorer.layers.0.bias"].dtype
        == torch.float64
    )


def test_a_difference_is_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    module = RankingModel(LinearScorer(2))
    for wrong in (lambda x: x.numpy()[..., 0], lambda x: np.full(x.shape[:2], np.nan)):
        monkeypatch.setattr("ltr.export.write._program_runner", lambda path, run=wrong: run)
        with pytest.raises(ValueError, match="the exported model must score like the model"):
            export_model(module, tmp_path / "m.pt2", to="torch")
    assert not list(tmp_path.iterdir())


def test_an_opset_that_onnx_cannot_write_is_refused_at_once(tmp_path):
    model = RankingModel(LinearScorer(2))
    with pytest.raises(ValueError, match=r"^opset must be >= 14, got 13$"):
        export_model(model, tmp_path / "m.onnx", opset=13)
    written = export_model(model, tmp_path / "m.onnx", opset=14)
    [version] = [x.version for x in onnx.load(written.model).opset_import if x.domain == ""]
    assert version == 14
    trees = LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1)
    trees.fit(np.arange(40.0).reshape(-1, 1), np.arange(40))
    with pytest.raises(ValueError, match=r"^opset must be >= 15, got 14$"):
        export_model(trees, tmp_path / "t.onnx", opset=14)
    assert export_model(trees, tmp_path / "t.onnx", opset=15).difference < 1e-5


@pytest.mark.parametrize(
    ("folder", "file", "to"),
    [
        ("a.md", "a.onnx", "onnx"),
        ("a.onnx", "a.onnx", "onnx"),
        ("README.md", "", "onnx"),
        ("a.features.json", "a.json", "solr"),
        ("a.json", "a.json", "solr"),
    ],
)
def test_a_folder_with_the_name_of_a_file(folder, file, to, tmp_path):
    (tmp_path / folder).mkdir()
    model = RankingModel(LinearScorer(2))
    message = rf"path must be writable, got .*Is a directory: .*{folder}"
    with pytest.raises(ValueError, match=message):
        export_model(model, tmp_path / file, to=to)
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_a_category_of_float32_has_the_digits_of_float32(tmp_path):
    values = np.random.default_rng(0).choice([0.1, 0.25, 1.7, 3], 60)
    made = {"c": pd.Categorical(values.astype(np.float32)), "x": np.arange(60.0)}
    table, qid = pd.DataFrame(made), np.arange(60) // 5
    given = {"scorer": LinearScorer(), "transform": TableTransform(Standardize())}
    ranker = NeuralRanker(**given, members=1, max_epochs=3, verbose=0)
    ranker.fit(table, values > 1, qid=qid)
    assert ranker.schema_.categories["c"].levels == ("0.1", "0.25", "1.7", "3")
    expected = ranker.predict(table)
    served = OnnxRanker(ranker.export(tmp_path / "m.onnx").model)
    table.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(ranker.model_.predict(tmp_path / "t.csv"), expected)
    for column in (values, values.astype(np.float32), pd.Categorical(values)):
        other = table.assign(c=column)
        np.testing.assert_array_equal(ranker.predict(other), expected)
        for given in (other, pa.Table.from_pandas(other), other.to_dict("records")):
            np.testing.assert_allclose(served.score(given), expected, atol=1e-5)

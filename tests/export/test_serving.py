"""`ltr/serving.py` scores as the model, and needs no part of ltr but `ltr/columns.py`."""

import json
import random
import shutil
from hashlib import sha256

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRegressor

import ltr.columns
import ltr.serving
from ltr.datasets import Schema
from ltr.datasets.column_steps import Number
from ltr.export import export_model
from ltr.models import AttentionScorer, RankingModel
from ltr.serving import OnnxRanker


def test_serving_needs_no_ltr(alone, table, ranker, folder, tmp_path):
    service = tmp_path / "ltr"
    service.mkdir()
    for module in (ltr.columns, ltr.serving):
        shutil.copy(module.__file__, service)
    X, _, _ = table
    rows = json.loads(X[:7].to_json(orient="records"))
    code = f"""
from ltr.serving import OnnxRanker
rows = {rows!r}
print(OnnxRanker({str(folder / "model.onnx")!r}).score(rows).tolist())
"""
    found = json.loads(alone(code, tmp_path))
    np.testing.assert_allclose(found, ranker.predict(X[:7]), atol=1e-6)


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
    X = pd.DataFrame(rows, columns=["price", "stock", "shop", "new"])
    X = X.astype({"price": float, "stock": float, "shop": "str", "new": "boolean"})
    X["shop"] = X["shop"].where([row["shop"] is not None for row in rows])
    expected = ranker.predict(X)
    scale = np.abs(expected).max()
    found = OnnxRanker(folder / "model.onnx").score(rows)
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale + 1e-7)


def test_serving_from_a_data_frame(table, ranker, folder):
    X, _, _ = table
    served = OnnxRanker(folder / "model.onnx")
    np.testing.assert_allclose(served.score(X.assign(other=1)), ranker.predict(X), atol=1e-6)
    assert served.score([]).shape == (0,)
    with pytest.raises(ValueError, match="documents must"):
        served.score(X.drop(columns="shop"))
    with pytest.raises(ValueError, match="column 'price' must"):
        served.score([{"price": "cheap", "stock": 1, "shop": "a", "new": True}])


def test_serving_refuses_bad_arguments_by_name(ranker, folder, tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    model = onnx.load(folder / "model.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")  # which has no end
    for path in ("none.onnx", "text.onnx", "other.onnx", "zero.onnx"):
        with pytest.raises(ValueError, match=f"path.*.*{path}"):
            OnnxRanker(tmp_path / path)
    for threads in (0, -1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="threads must"):
            OnnxRanker(folder / "model.onnx", threads=threads)
    served = OnnxRanker(folder / "model.onnx")
    good, codes = np.zeros((3, 2)), np.zeros((3, 2), dtype=np.int64)
    for arguments, message in (
        ((np.zeros((3, 5)), codes), r"features must be of shape \(3, 2\), got \(3, 5\)"),
        ((np.zeros(2), codes), r"features must be of shape .*, got \(2,\)"),
        ((0.0, codes), r"features must be of shape \(2,\), got \(\)"),
        (([["a", "b"]], codes), "features must be an array of numbers, got could not convert"),
        ((good, None), r"categories must be of shape \(3, 2\), got None"),
        ((good, codes[:2]), r"categories must be of shape \(3, 2\), got \(2, 2\)"),
        ((good, codes + 0.5), "categories must be an array of numbers, got float64 instead of"),
    ):
        with pytest.raises(ValueError, match=message):
            served.score_arrays(*arguments)
    row = {"price": 1.0, "stock": 2, "shop": "a", "new": True}
    columns = {name: [value] * 2 for name, value in row.items()}
    for documents, message in (
        (7, "documents must be a data frame"),
        ("text", "documents must be a data frame"),
        ([row, 3], "documents must be a data frame"),
        (row, "column 'price' must hold one value for each document, got 1.0"),
        ({**columns, "shop": ["a"]}, "documents must have columns of one length, got 1 in 'shop'"),
        ([{**row, "stock": [1, 2]}], "column 'stock' must hold 1 number"),
        ([{**row, "stock": []}], "column 'stock' must hold 1 number"),
        ({**columns, "stock": [[1, 2], [2, 3]]}, "column 'stock' must hold 1 number"),
        ([{"stock": 1, "shop": "a", "new": 1}], "document 0 must have the key 'price'"),
    ):
        with pytest.raises(ValueError, match=message):
            served.score(documents)


@pytest.mark.parametrize("key", ["price", "stock", "shop", "new"])
@pytest.mark.parametrize("lacking", [{0}, {1}, {0, 1, 2}])
def test_a_key_that_some_document_lacks(folder, key, lacking):
    served = OnnxRanker(folder / "model.onnx")
    row = {"price": 1.0, "stock": 2, "shop": "a", "new": True}
    rest = {name: value for name, value in row.items() if name != key}
    documents = [rest if number in lacking else row for number in range(3)]
    with pytest.raises(ValueError, match=rf"document {min(lacking)} must have the key '{key}'"):
        served.score(documents)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e39, -1e300])
def test_infinities_are_refused_as_predict_refuses_them(table, ranker, folder, bad):
    X = table[0][:5].copy()
    X.loc[3, "stock"] = bad
    message = r"{} 3, column 'stock': must be finite in float32, got -?inf"
    if np.isinf(bad):  # beyond float32, `predict` shows the number itself
        with pytest.raises(ValueError, match=message.format("row")):
            ranker.predict(X)
    served = OnnxRanker(folder / "model.onnx")
    for documents in (X, X.to_dict("list"), X.to_dict("records")):
        with pytest.raises(ValueError, match=message.format("document")):
            served.score(documents)
    numbers = X[["price", "stock"]].to_numpy()
    with pytest.raises(ValueError, match=message.format("document")):
        served.score_arrays(numbers, np.zeros((5, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="column 'price' must"):
        served.score([{"price": 10**400, "stock": 1, "shop": "a", "new": True}])


def test_every_flipped_bit_is_found(folder, tmp_path):
    whole, draw = (folder / "model.onnx").read_bytes(), random.Random(0)
    path = tmp_path / "model.onnx"
    positions = [
        *draw.sample(range(8 * len(whole)), 150),
        *range(8 * (len(whole) - 80), 8 * len(whole)),
    ]
    for position in positions:
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.onnx: it (is damaged|has no digest)"):
            OnnxRanker(path)
    for content in (b"", whole[:-1], whole[:-80], whole[: len(whole) // 2], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.onnx: it (is damaged|has no digest)"):
            OnnxRanker(path)


def test_the_digest_is_metadata_of_the_file(folder, tmp_path):
    metadata = {one.key: one.value for one in onnx.load(folder / "model.onnx").metadata_props}
    assert [*metadata] == ["ltr", "ltr.sha256"]
    whole = (folder / "model.onnx").read_bytes()
    assert metadata["ltr.sha256"] == sha256(whole[:-80]).hexdigest()
    changed = onnx.load(folder / "model.onnx")
    changed.producer_name = "another program"
    onnx.save(changed, tmp_path / "again.onnx")
    with pytest.raises(ValueError, match=r"again\.onnx: it (is damaged|has no digest)"):
        OnnxRanker(tmp_path / "again.onnx")


def test_serving_without_categories_refuses_them(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    trees = LGBMRegressor(n_estimators=2, verbose=-1).fit(X, X[:, 0])
    served = OnnxRanker(export_model(trees, tmp_path / "m.onnx").model)
    assert served.score_arrays(np.zeros((3, 2))).shape == (3,)
    assert served.score_arrays(np.zeros((0, 2))).shape == served.score_arrays([]).shape == (0,)
    with pytest.raises(ValueError, match=r"categories.*\(3, 1\)"):
        served.score_arrays(np.zeros((3, 2)), np.zeros((3, 1), dtype=np.int64))


def test_queries_of_a_model_of_lists(tmp_path):
    schema = Schema("qid", steps={"a": Number()})
    model = RankingModel(AttentionScorer(1, hidden=(4,), heads=1, blocks=1), schema=schema)
    served = OnnxRanker(export_model(model, tmp_path / "m.onnx").model)
    for qid, message in (
        (7, "'qid' must hold one value for each document, got 7"),
        (["a", None, "a"], "qid must name a query in each row, got None in row 1"),
        ([1.0, 1.0, np.nan], "qid must name a query in each row, got nan in row 2"),
        (["a"], "qid must have one value for each of the 3 rows, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            served.predict({"a": [1.0, 2.0, 3.0]}, qid)


def test_serving_takes_what_services_and_pandas_give(table, ranker, folder):
    served = OnnxRanker(folder / "model.onnx")
    X, _, _ = table
    nullable = X.assign(stock=X["stock"].astype("Int64"), new=X["new"].astype("boolean"))
    nullable.loc[::3, "new"] = None
    np.testing.assert_allclose(served.score(nullable), ranker.predict(nullable), atol=1e-6)
    text = [{**row, "new": str(row["new"]).lower()} for row in X[:9].to_dict("records")]
    np.testing.assert_allclose(served.score(text), ranker.predict(X[:9]), atol=1e-6)
    some = [
        {"price": 1.0, "stock": None, "shop": None, "new": None},
        {"price": None, "stock": 3, "shop": "a", "new": None},
    ]
    np.testing.assert_array_equal(
        served.score(some),
        served.score(
            {"price": [1.0, None], "stock": [None, 3], "shop": [None, "a"], "new": [None] * 2}
        ),
    )

"""The snippets of "Into production" for MLflow, Spark, Triton and a hub, run without a server."""

import re
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from lightgbm import LGBMRanker

from ltr.estimators import Blend

PAGE = (Path(__file__).parents[2] / "docs" / "production.md").read_text("utf-8")
TYPES = {
    "TYPE_FP64": "tensor(double)",
    "TYPE_FP32": "tensor(float)",
    "TYPE_INT64": "tensor(int64)",
}


def snippet(start: str) -> str:
    """The code block after the paragraph that starts with a text."""
    return (
        PAGE[PAGE.index(f"\n{start}") :].partition("```")[2].partition("```")[0].partition("\n")[2]
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> tuple[Path, Any, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"price": rng.normal(size=200), "shop": rng.choice(["a", "b"], 200)})
    y, qid = (X["price"] < 0) + (X["shop"] == "b") * 1, np.arange(200) // 10
    blend = Blend([LGBMRanker(n_estimators=5, verbose=-1)], verbose=0).fit(X, y, qid=qid)
    folder = tmp_path_factory.mktemp("served")
    blend.export(folder)
    return folder, blend, X


def test_mlflow(served, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    folder, blend, X = served
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    names = {"X": X, "__name__": "served_by_mlflow"}
    with warnings.catch_warnings(action="ignore"):  # MLflow warns of types and versions
        exec(snippet("**MLflow**"), names)
    np.testing.assert_allclose(names["scores"], blend.predict(X), atol=1e-6)


def test_spark(served, monkeypatch):
    folder, blend, X = served
    monkeypatch.chdir(folder)

    class Rows:
        def mapInPandas(self, function: Any, schema: str) -> pd.DataFrame:
            frame = X.assign(query=np.arange(200) // 10, id=np.arange(200))
            found = pd.concat([*function(iter([frame[:150], frame[150:]]))])
            assert [*found.columns] == [part.split()[0] for part in schema.split(", ")]
            return found

    names: dict[str, Any] = {"rows": Rows()}
    exec(snippet("**Spark.**"), names)
    np.testing.assert_allclose(names["scored"]["score"], blend.predict(X), atol=1e-6)


def test_triton_s_configuration_is_that_of_the_model(served):
    session = onnxruntime.InferenceSession(served[0] / "model.onnx")
    row = r'name: "(\w+)", data_type: (\w+), dims: \[ ([-\d, ]+) \]'
    given = {
        name: (TYPES[kind], [int(x) for x in dims.split(",")])
        for name, kind, dims in re.findall(row, snippet("**Triton**"))
    }
    both = [*session.get_inputs(), *session.get_outputs()]
    shapes = {x.name: [n if isinstance(n, int) else -1 for n in x.shape] for x in both}
    assert given == {one.name: (one.type, shapes[one.name]) for one in both}


def test_a_hub_gets_the_folder(served, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(served[0].parent)
    api = create_autospec(hub.HfApi)
    monkeypatch.setattr(hub, "HfApi", api)
    exec(snippet("**Hugging Face Hub.**"), {})
    folder = api.return_value.upload_folder.call_args.kwargs["folder_path"]
    assert folder == "served"
    assert (served[0] / "README.md").read_text().startswith("# A ranking model")

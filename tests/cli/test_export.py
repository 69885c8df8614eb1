"""`ltr export`, from a folder of NeuralRanker and from a checkpoint."""

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from ltr.cli import main
from ltr.datasets import TableDataModule
from ltr.estimators import NeuralRanker
from ltr.export import load_model
from ltr.models import MLPScorer
from ltr.modules import Ranker
from ltr.serving import OnnxRanker


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query": np.arange(240) // 6, "price": rng.normal(size=240)})
    frame["shop"] = rng.choice(["a", "b", None], 240)
    return frame.assign(grade=(frame["price"] > 0).astype(int) + (frame["shop"] == "b"))


def test_a_checkpoint_with_test_lists(frame, tmp_path, capsys):
    frame.to_parquet(tmp_path / "test.parquet")
    data = TableDataModule(frame, qid="query", label="grade", validation=0.2)
    ranker = Ranker(MLPScorer(hidden=(8,)))
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ranker, datamodule=data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    capsys.readouterr()
    args = ["export", str(tmp_path / "a.ckpt"), "--out", str(tmp_path / "out")]
    assert main([*args, "--test", str(tmp_path / "test.parquet")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"wrote {tmp_path}/out/model.onnx and {tmp_path}/out/README.md\n")
    assert "largest difference from the model: " in out
    assert "On 40 test lists with 240 documents." in (tmp_path / "out" / "README.md").read_text()
    loaded = load_model(tmp_path / "out")
    ranker.eval()
    for name, part in (("scorer", ranker.scorer), ("transform", ranker.transform)):
        for key, value in part.state_dict().items():
            assert torch.equal(getattr(loaded, name).state_dict()[key], value)
    again = ["export", str(tmp_path / "out"), "--out", str(tmp_path / "again.pt2")]
    assert main(again) == 0
    scores = OnnxRanker(str(tmp_path / "out" / "model.onnx")).score(frame[:6])
    batch = next(iter(data.train_dataloader()))
    assert scores.shape == (6,)
    assert ranker.eval()(batch["features"], None, batch["categories"]).shape == (
        len(batch["labels"]),
    )


def test_a_folder_and_mistakes(frame, tmp_path, capsys):
    small = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    small.fit(frame[["price", "shop"]], frame["grade"], qid=frame["query"])
    small.save(tmp_path / "model")
    args = ["export", str(tmp_path / "model"), "--out"]
    assert main([*args, str(tmp_path / "one.pt2"), "--per-document"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "one.md", "one.pt2"]
    capsys.readouterr()
    for wrong, message in (
        ([*args, str(tmp_path / "x.onnx"), "--opset", "3"], "opset must be a whole number >= 13"),
        ([*args, str(tmp_path / "x.pt2"), "--to", "onnx"], "path must end in .onnx"),
        ([*args, "x", "--to", "tflite"], "invalid choice: 'tflite'"),
        ([*args, str(tmp_path / "one.md" / "x")], "path must be writable"),
        (["export", "none.ckpt", "--out", "x"], "no checkpoint 'none.ckpt'"),
    ):
        assert main(wrong) == 2
        error = capsys.readouterr().err
        assert error.startswith("ltr export: ")
        assert error.count("\n") == 1
        assert message in error

"""`Ranker` with several labels: each metric for each label, their means, and floors."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from ltr.datasets import TableDataModule
from ltr.losses import SeveralLabels, SoftmaxLoss
from ltr.metrics import NDCG
from ltr.models import LinearScorer
from ltr.modules import Ranker
from ltr.reports import evaluate_labels


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(600, 2)), columns=["a", "b"])
    rows["qid"] = np.arange(600) // 6
    rows["click"], rows["buy"] = (rows["a"] > 0.7) * 1.0, (rows["b"] > 0.7) * 1.0
    rows.loc[::4, "buy"] = np.nan
    return rows


def trained(table, loss, epochs=4) -> tuple[Ranker, Trainer]:
    roles: dict[str, Any] = {"qid": "qid", "label": ["click", "buy"]}
    data = TableDataModule(table, val_path=table, **roles, batch_size=16)
    optimizer = partial(torch.optim.AdamW, lr=0.05)
    ranker = Ranker(LinearScorer(), loss, {"ndcg": NDCG(top_k=10)}, optimizer)
    options: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **options)
    trainer.fit(ranker, data)
    return ranker, trainer


@pytest.mark.parametrize("buy", [0.0, 4.0])
def test_metrics_of_each_label_and_their_mean(table, buy):
    losses = {"click": (SoftmaxLoss(), 1.0), "buy": (SoftmaxLoss(), buy)}
    ranker, trainer = trained(table, SeveralLabels(losses))
    logged = {name: float(x) for name, x in trainer.callback_metrics.items()}
    scores = ranker.model.predict(table)
    found = evaluate_labels(table[["click", "buy"]], scores, table["qid"], ["ndcg@10"])
    means = [x["ndcg@10"].mean for x in found.values()]
    assert [logged["val_ndcg_click"], logged["val_ndcg_buy"]] == pytest.approx(means, abs=1e-5)
    expected = (means[0] + buy * means[1]) / (1 + buy)
    assert logged["val_ndcg"] == pytest.approx(expected, abs=1e-5)


def test_a_floor_raises_its_label(table):
    losses = {"click": (SoftmaxLoss(), 0.0), "buy": (SoftmaxLoss(), 1.0)}
    free, _ = trained(table, SeveralLabels(losses), epochs=8)
    floor = SeveralLabels(losses, how="floor", floors={"click": 0.8})
    held, _ = trained(table, floor, epochs=8)
    assert isinstance(held.loss, SeveralLabels)
    assert held.loss.weights[0] > 0
    values = []
    for ranker in (free, held):
        scores = ranker.model.predict(table)
        found = evaluate_labels(table[["click"]], scores, table["qid"], ["ndcg@10"])
        values.append(found["click"]["ndcg@10"].mean)
    assert values[1] > values[0] + 0.05

"""Lightning logs the metric itself: it copies objects of dataclasses."""

import pickle
from dataclasses import dataclass, is_dataclass

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning_utilities.core.apply_func import apply_to_collection
from torch.utils.data import DataLoader

from ltr.metrics import MRR, NDCG, RankingMetric


@pytest.mark.parametrize("metric", [NDCG(top_k=3), MRR(), pickle.loads(pickle.dumps(NDCG()))])
def test_a_metric_with_lists_is_not_copied(metric):
    metric.update(torch.rand(2, 3), torch.ones(2, 3))
    assert not is_dataclass(metric)
    assert apply_to_collection(metric, float, str) is metric


def test_a_subclass_keeps_the_arguments_of_its_base():
    class Own(NDCG):
        factor: float = 2.0

    own = Own(top_k=3, factor=4.0)
    assert repr(own) == "Own(top_k=3, factor=4.0)"
    for metric in (NDCG(), own):
        assert not is_dataclass(metric)


def test_a_dataclass_is_refused():
    @dataclass(eq=False, repr=False)
    class Own(RankingMetric):
        per_list = NDCG.per_list

    with pytest.raises(TypeError, match="Own must not have @dataclass"):
        Own()


def test_a_module_logs_the_value_of_all_batches(tmp_path):
    scores = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0.0, 1.0, 2.0, 0.0]]).repeat(6, 1)

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.ndcg = NDCG(top_k=3)

        def validation_step(self, batch, index):
            self.ndcg.update(scores[batch], labels[batch])
            self.log("ndcg", self.ndcg)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", default_root_dir=tmp_path, **quiet)
    found = trainer.validate(Module(), DataLoader(torch.arange(6), batch_size=2), verbose=False)
    assert found[0]["ndcg"] == pytest.approx(NDCG(top_k=3).measure(scores, labels).item())

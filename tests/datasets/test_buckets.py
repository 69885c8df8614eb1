"""Batches of lists of similar length: little padding, each list once, by seed and epoch alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch import Callback, Trainer
from torch import nn

from ltr.datasets import BucketSampler, ListDataModule, ListDataset, NoTransform, read_letor
from ltr.datasets.splits import find_splits
from ltr.models import LinearScorer, Scorer
from ltr.modules import Ranker

UNIFORM = np.random.default_rng(0).integers(20, 221, 1000)
TAILED = 5 + np.random.default_rng(1).geometric(1 / 13, 471)  # like MQ2008's, 5 to about 100


def batches_of(sampler: BucketSampler, batch_size: int) -> list[list[int]]:
    indices = list(sampler)
    assert len(indices) == len(sampler)
    assert len(indices) % batch_size == 0
    return [indices[i : i + batch_size] for i in range(0, len(indices), batch_size)]


def padding(lengths: np.ndarray, batches: list[list[int]]) -> float:
    """The share of padded cells if each batch is padded to its longest list."""
    own = [lengths[[i for i in batch if i >= 0]] for batch in batches]
    cells = sum(len(x) * x.max() for x in own if len(x))
    return 1 - sum(x.sum() for x in own) / cells


@pytest.mark.parametrize("lengths", [UNIFORM, TAILED], ids=["uniform", "tailed"])
@pytest.mark.parametrize("batch_size", [8, 64])
@pytest.mark.parametrize("replicas", [1, 2])
def test_little_padding_and_each_list_once(lengths, batch_size: int, replicas: int):
    plain = np.random.default_rng(0).permutation(len(lengths))
    assert padding(lengths, np.array_split(plain, len(lengths) // 64)) > 0.4
    for epoch in range(3):
        every, counts = [], set()
        for rank in range(replicas):
            sampler = BucketSampler(lengths, batch_size, num_replicas=replicas, rank=rank)
            sampler.set_epoch(epoch)
            batches = batches_of(sampler, batch_size)
            counts.add(len(batches))
            every += batches
        assert len(counts) == 1
        assert padding(lengths, every) <= 0.1
        flat = [i for batch in every for i in batch]
        assert sorted(i for i in flat if i >= 0) == list(range(len(lengths)))
    if replicas == 1 and batch_size == 64:  # most positions hold a list
        assert len(lengths) / len(flat) > 0.4


def test_of_real_lists(data_root, tmp_path):
    lists = read_letor(find_splits(data_root / "MQ2008", 1)["train"])
    sampler = BucketSampler(lists.lengths, 64)
    assert padding(lists.lengths, batches_of(sampler, 64)) <= 0.1


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    batch_size=st.integers(1, 9),
    replicas=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_any_lengths(lengths, batch_size, replicas):
    lengths, every = np.array(lengths), []
    for rank in range(replicas):
        sampler = BucketSampler(lengths, batch_size, num_replicas=replicas, rank=rank)
        every.append(batches_of(sampler, batch_size))
    assert len({len(batches) for batches in every}) == 1
    joined = [batch for batches in every for batch in batches]
    assert padding(lengths, joined) <= 0.1 + 1e-9
    assert sorted(i for b in joined for i in b if i >= 0) == list(range(len(lengths)))
    for step in zip(*every, strict=True):  # the processes have equally many lists, or one more
        counts = [sum(i >= 0 for i in batch) for batch in step]
        assert max(counts) - min(counts) <= 1


def test_order_is_by_seed_and_epoch_alone():
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        sampler = BucketSampler(UNIFORM, 16, seed=seed)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9
    # not only the order of the batches changes: the lists of a batch do
    batches = [
        {frozenset(b) for b in np.reshape(order(0, epoch), (-1, 16)).tolist()} for epoch in (0, 1)
    ]
    assert len(batches[0] & batches[1]) < len(batches[0]) / 10


def test_bad_batch_size():
    with pytest.raises(ValueError, match=r"batch_size.*0"):
        BucketSampler([1, 2], 0)


class Whole(Scorer):
    """Looks at the whole list, and notes the padded shapes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.cells = self.documents = 0

    def score(self, features, mask):
        self.cells += mask.numel()
        self.documents += int(mask.sum())
        return (features - features.mean(-2, keepdim=True)) @ self.weight


class Module(ListDataModule):
    def load_splits(self):
        lengths = np.random.default_rng(0).integers(20, 221, 90)
        rng = np.random.default_rng(1)
        lists = ListDataset(
            rng.normal(size=(lengths.sum(), 2)).astype(np.float32),
            rng.integers(0, 3, lengths.sum()).astype(np.float32),
            np.r_[0, np.cumsum(lengths)],
            [str(i) for i in range(len(lengths))],
        )
        return dict.fromkeys(("train", "val", "test", "predict"), lists)


def module() -> Module:
    return Module(batch_size=16, transform=NoTransform(), seed=2)


class Seen(Callback):
    def __init__(self):
        self.qids: list[list[str]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.qids.append([qid for qid in batch["qid"] if qid])


def trainer(folder, *callbacks, **options) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    return Trainer(**{**quiet, **options}, callbacks=list(callbacks))


def test_a_scorer_of_the_list_gets_little_padding(tmp_path):
    ranker = Ranker(Whole())
    fit = trainer(tmp_path, seen := Seen(), max_epochs=2, num_sanity_val_steps=0)
    fit.fit(ranker, module())
    fit.test(ranker, module(), verbose=False)
    assert ranker.scorer.documents > 0
    assert 1 - ranker.scorer.documents / ranker.scorer.cells <= 0.1
    half = len(seen.qids) // 2
    for epoch in (seen.qids[:half], seen.qids[half:]):
        assert sorted(int(qid) for qids in epoch for qid in qids) == list(range(90))
    data = module()
    data.setup("predict")
    batches = data.predict_dataloader()  # in the order of the data
    assert [int(qid) for batch in batches for qid in batch["qid"]] == list(range(90))


def test_a_scorer_of_one_document_gets_full_batches(tmp_path):
    fit = trainer(tmp_path, seen := Seen(), max_epochs=1)
    fit.fit(Ranker(LinearScorer()), module())
    assert [len(qids) for qids in seen.qids] == [16] * 5 + [10]
    chosen = module()
    chosen.bucket = True
    fit = trainer(tmp_path, seen := Seen(), max_epochs=1)
    fit.fit(Ranker(LinearScorer()), chosen)
    assert len(seen.qids) > 6


def test_a_resumed_run_has_the_same_batches(tmp_path):
    whole = trainer(tmp_path, seen := Seen(), max_epochs=2, limit_val_batches=0)
    whole.fit(ranker := Ranker(Whole()), module())
    file, first, second = tmp_path / "x.ckpt", Seen(), Seen()
    one = trainer(tmp_path, first, max_epochs=1, limit_val_batches=0)
    one.fit(Ranker(Whole()), module())
    one.save_checkpoint(file)
    resumed = Ranker(Whole())
    resumed.trust = [__name__]
    two = trainer(tmp_path, second, max_epochs=2, limit_val_batches=0)
    two.fit(resumed, module(), ckpt_path=file)
    assert first.qids + second.qids == seen.qids
    torch.testing.assert_close(resumed.scorer.weight, ranker.scorer.weight)


def test_equal_labels_are_refused_after_a_test_too():
    class Equal(Module):
        def load_splits(self):
            lists = super().load_splits()["train"]
            equal = np.zeros_like(lists.labels)
            train = ListDataset(lists.features, equal, lists.offsets, lists.qids)
            return {"train": train, "test": lists}

    data = Equal(batch_size=16, transform=NoTransform())
    data.setup("test")
    with pytest.raises(ValueError, match="labels must not all be equal, got 0 in all"):
        data.setup("fit")

"""The line for lack of memory names the longest list, of ragged batches and of padded ones."""

from types import SimpleNamespace

import pytest
import torch

from ltr.datasets import pad_batch
from ltr.modules.watching import BatchInMemory

RAGGED = {
    "features": torch.zeros(6, 1),
    "lengths": torch.tensor([2, 0, 4]),
    "qid": ["a", "", "c"],
}


@pytest.mark.parametrize("batch", [RAGGED, pad_batch(RAGGED)], ids=["ragged", "padded"])
def test_the_longest_list_is_named(batch):
    kept = BatchInMemory()
    kept.batch = batch
    said = r"at a batch of 2 lists, the longest of 4 items \(qid c\): try --data.batch_size 1 "
    with pytest.raises(ValueError, match=said), kept.explained(SimpleNamespace(batch_size=3)):
        raise MemoryError("out of memory")


def test_a_batch_that_has_neither():
    kept = BatchInMemory()
    with (
        pytest.raises(ValueError, match=r"out of memory: try --data.batch_size 4 "),
        kept.explained(SimpleNamespace(batch_size=8)),
    ):
        raise MemoryError("out of memory")

"""Batches of lists, padded."""

from collections.abc import Sequence
from typing import Any

import torch


def collate_lists(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Make a batch of lists, padded to the longest.

    Args:
        items: what `ListDataset` gives; all with the same keys.

    Returns:
        `features` float32 (B, n, d), `mask` bool (B, n), `qid`, B strings, and, where the items
        have them, `labels` float32 (B, n) and `doc_ids`, B lists of strings (the real documents
        alone). Every other tensor (n, ...) of the items, such as `weights`, is padded with 0 in the
        same way.

    Raises:
        ValueError: the items' tensors differ in more than their length.

    >>> from ltr.datasets import ListDataset
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> batch = collate_lists([data[0], data[1]])
    >>> batch["labels"]
    tensor([[0., 2.],
            [1., 0.]])
    >>> batch["mask"]
    tensor([[ True,  True],
            [ True, False]])
    """
    longest = max(len(item["mask"]) for item in items)
    batch: dict[str, Any] = {}
    for key, value in items[0].items():
        if isinstance(value, torch.Tensor):
            padded = value.new_zeros((len(items), longest, *value.shape[1:]))
            if any(item[key].shape[1:] != value.shape[1:] for item in items):
                shapes = sorted({tuple(item[key].shape[1:]) for item in items})
                raise ValueError(f"items must have {key} of one width, got {shapes}")
            for row, item in zip(padded, items, strict=True):
                row[: len(item[key])] = item[key]
            batch[key] = padded
        else:
            batch[key] = [item[key] for item in items]
    return batch

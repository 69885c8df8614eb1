"""Batches of lists: ragged, or padded with a mask."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def collate_ragged(given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make a ragged batch: the documents of the lists follow each other, without padding.

    Use it as `collate_fn` of a `DataLoader` to get ragged batches. A batch of a `ListDataset` is
    already ragged and is returned unchanged.

    Args:
        given: a ragged batch, or items of a `ListDataset`, all with the same keys.

    Returns:
        A batch of B lists with N documents in all: `features` float32 (N, d), `lengths` int64 (B,)
        and `qid` (B strings). If the items have them, the batch also has `labels` float32 (N,), or
        (N, labels) if there are several, and `doc_id` (N strings). Every other tensor (n, ...) of
        the items becomes (N, ...). A filler is a list of length 0.

    Raises:
        ValueError: there are no items, or tensors of one key differ in more than their length.

    >>> from ltr.datasets import ListDataset
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> batch = collate_ragged([data[1], data[0]])
    >>> batch["labels"], batch["lengths"], batch["qid"]
    (tensor([1., 0., 2.]), tensor([1, 2]), ['8', '7'])
    """
    if isinstance(given, Mapping):
        return dict(given)
    if (
        not isinstance(given, Sequence)
        or not given
        or not all(isinstance(item, Mapping) for item in given)
    ):
        raise ValueError(f"given must be a ragged batch, or items of a ListDataset, got {given!r}")
    masks = [item["mask"] for item in given]
    batch: dict[str, Any] = {}
    for key, value in given[0].items():
        arrays = [item[key] for item in given]
        if key == "mask":
            batch["lengths"] = torch.stack([mask.sum() for mask in masks])
        elif isinstance(value, Tensor):
            _check_widths(key, arrays)
            batch[key] = torch.cat([x[mask] for x, mask in zip(arrays, masks, strict=True)])
        elif key == "doc_id":
            batch[key] = [name for names in arrays for name in names]
        else:
            batch[key] = arrays
    return batch


def collate_lists(given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make a padded batch, in which every list is as long as the longest list.

    Use it as `collate_fn` of a `DataLoader` to get padded batches.

    Args:
        given: a ragged batch, or items of a `ListDataset`, all with the same keys.

    Returns:
        A batch of B lists, padded to n documents: `features` float32 (B, n, d), `mask` bool (B, n)
        and `qid` (B strings). If the items have them, the batch also has `labels` float32 (B, n)
        and `doc_id` (B lists of strings, without padding). Every other tensor of the items, such as
        `weight`, is also padded with 0, to (B, n, ...).

    Raises:
        ValueError: there are no items, or tensors of one key differ in more than their length.

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
    return pad_batch(collate_ragged(given))


def pad_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ragged batch in padded form; a batch without `lengths` is returned unchanged.

    Args:
        batch: a ragged batch, as the data modules make it; see `collate_ragged`.

    Returns:
        The padded batch; see `collate_lists`. n is at least 1, even if all lists are empty.

    >>> batch = {"features": torch.tensor([[1.0], [2.0], [3.0]]), "lengths": torch.tensor([1, 2])}
    >>> pad_batch(batch)["features"].shape
    torch.Size([2, 2, 1])
    """
    if not isinstance(batch, Mapping):
        raise ValueError(f"batch must be a ragged batch, a dict, got {batch!r}")
    if "lengths" not in batch:
        return dict(batch)
    lengths = batch["lengths"]
    mask = real_places(lengths)
    padded: dict[str, Any] = {}
    for key, value in batch.items():
        if key == "lengths":
            padded["mask"] = mask
        elif key == "doc_id":
            ends = lengths.cumsum(0).tolist()
            padded[key] = [value[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        else:
            padded[key] = pad_documents(value, mask) if isinstance(value, Tensor) else value
    return padded


def real_places(lengths: Tensor) -> Tensor:
    """Return the mask (B, n) for lists of `lengths` (B,); n is the largest length, at least 1.

    >>> real_places(torch.tensor([1, 2]))
    tensor([[ True, False],
            [ True,  True]])
    """
    longest = max(1, int(lengths.max())) if len(lengths) else 1
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(-1)


def pad_documents(values: Tensor, mask: Tensor) -> Tensor:
    """Pad ragged values (N, ...) to (B, n, ...) with zeros; `padded[mask]` restores them.

    Args:
        values: (N, ...), one value per document, list after list.
        mask: (B, n) bool with N real positions; see `real_places`.

    >>> pad_documents(torch.tensor([3, 4, 5]), real_places(torch.tensor([1, 2])))
    tensor([[3, 0],
            [4, 5]])
    """
    padded = values.new_zeros((*mask.shape, *values.shape[1:]))
    return padded.index_put((mask,), values)


def _check_widths(key: str, tensors: Sequence[Tensor]) -> None:
    shapes = sorted({tuple(x.shape[1:]) for x in tensors})
    if len(shapes) > 1:
        raise ValueError(f"items must have {key} of one width, got {shapes}")

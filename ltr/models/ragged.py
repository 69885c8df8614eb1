"""Scores of ragged lists, by any scorer."""

from torch import Tensor, nn

from ltr.datasets.batches import pad_documents, real_places
from ltr.datasets.coded import Coded
from ltr.ragged import check_lengths


def score_ragged(scorer: nn.Module, features: Tensor | Coded, lengths: Tensor) -> Tensor:
    """Return the scores (N,) of ragged lists.

    A scorer with `per_document` scores the documents directly, without padding. Any other scorer
    gets the lists that are not empty, padded to the length of the longest, with a mask.

    Args:
        scorer: a `Scorer`, or a module that is called in the same way.
        features: (N, *item), or `Coded` for (N, d): the documents, one list after the other.
        lengths: (B,) whole numbers >= 0, which sum to N; their values are checked only on the CPU.

    Raises:
        ValueError: the features do not have the axes (N, *item), or the lengths do not fit N.

    >>> import torch
    >>> from ltr.models import LinearScorer
    >>> score_ragged(LinearScorer(3), torch.zeros(5, 3), torch.tensor([2, 3])).shape
    torch.Size([5])
    """
    coded = isinstance(features, Coded)
    numbers = features.numbers if coded else features
    item_dims = getattr(scorer, "item_dims", features.dim() - 1)
    if features.dim() != 1 + item_dims:
        raise ValueError(
            f"features must be (N, *item) if lengths are given, got {tuple(features.shape)} "
            f"with {item_dims} axes of an item"
        )
    lengths = check_lengths(numbers.new_empty(len(numbers)), lengths, "documents")
    if getattr(scorer, "per_document", False):
        return scorer(features)
    filled = lengths[lengths > 0]
    mask = real_places(filled if len(filled) else lengths)
    padded = pad_documents(numbers, mask)
    if coded:
        padded = Coded(padded, pad_documents(features.codes, mask), features.width)
    return scorer(padded, mask)[mask]

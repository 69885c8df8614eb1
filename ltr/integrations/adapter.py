"""What the losses for models of sentence-transformers share."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ltr.config import to_config
from ltr.losses import RankingLoss
from ltr.losses.base import check_one_number
from ltr.operators import RankOperator
from ltr.shapes import check_flag, check_whole


class TextLoss(nn.Module):
    """Base class: a model of sentence-transformers, a `RankingLoss`, and mini-batches.

    Args:
        model: the model.
        loss: a `RankingLoss` with reduction "mean" or "sum" that needs only labels.
        mini_batch_size: the number of texts that the model reads at a time, >= 1. Default: the
            number of queries in the batch.
        cached: whether mini-batches are computed again in the backward pass.

    Raises:
        ValueError: an argument is invalid.
    """

    def __init__(
        self, model: nn.Module, loss: RankingLoss, mini_batch_size: int | None, cached: bool
    ):
        super().__init__()
        check_ranking_loss(loss)
        check_one_number(loss)
        if loss.side_inputs:
            raise ValueError(f"loss must need only labels, got one that needs {loss.side_inputs}")
        self.model = model
        self.loss = loss
        wanted = "a whole number >= 1, or None"
        self.mini_batch_size = (
            None
            if mini_batch_size is None
            else check_whole("mini_batch_size", mini_batch_size, wanted)
        )
        self.cached = check_flag("cached", cached)

    def of_mini_batch(self, forward: Callable[[Any], Any], inputs: Any) -> Any:
        """Return `forward(inputs)`, computed again in the backward pass if `cached` is True."""
        if self.cached and torch.is_grad_enabled():
            return checkpoint(forward, inputs, use_reentrant=False)
        return forward(inputs)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for the model card."""
        try:
            loss = to_config(self.loss)
        except ValueError:  # the loss has a lambda or a local class, and is shown as text
            loss = repr(self.loss)
        return {"loss": loss, "mini_batch_size": self.mini_batch_size, "cached": self.cached}

    @property
    def citation(self) -> str:
        """BibTeX for the model card: this package and the references of the loss."""
        kinds = [
            type(part)
            for part in self.loss.modules()
            if isinstance(part, RankingLoss | RankOperator)
        ]
        notes = dict.fromkeys(
            f"{kind.__name__}: {text}" for kind in kinds if (text := reference(kind))
        )
        lines = ["", "@misc{ltr-torch,", f"  title = {{{type(self.loss).__name__} of ltr-torch}},"]
        lines += ["  howpublished = {Python package},"]
        lines += [f"  note = {{{' '.join(notes)}}},"] if notes else []
        return "\n".join([*lines, "}", ""])


ADVICE = ": choose three with `data.select_columns`"
"""What to do about a data set of more columns."""


def check_ranking_loss(loss: Any) -> None:
    """Raise `ValueError` if loss is not a `RankingLoss`.

    >>> check_ranking_loss(nn.Linear(2, 2))
    Traceback (most recent call last):
    ValueError: loss must be a RankingLoss, got a Linear
    """
    if not isinstance(loss, RankingLoss):
        given = (
            f"the class {loss.__name__}" if isinstance(loss, type) else f"a {type(loss).__name__}"
        )
        raise ValueError(f"loss must be a RankingLoss, got {given}")


def check_texts(query: Any, documents: Any, where: str) -> None:
    """Raise `ValueError` if a query or one of its documents is missing or a number.

    A `CrossEncoder` may also read images and other values.

    >>> check_texts("q", ["a", None], " in row 3")
    Traceback (most recent call last):
    ValueError: documents must be texts, got None in row 3
    >>> check_texts(["a", "b"], "q", " in row 3")
    Traceback (most recent call last):
    ValueError: the column of queries must stand before that of documents, got a list in row 3
    """
    if isinstance(query, list | tuple):
        raise ValueError(
            f"the column of queries must stand before that of documents, got a list{where}"
        )
    if isinstance(documents, str) or not hasattr(documents, "__len__"):
        raise ValueError(
            f"documents must be a list of texts for each query, got {documents!r}{where}"
        )
    for name, texts in (("query", [query]), ("documents", documents)):
        for text in texts:
            if text is None or isinstance(text, Number):
                raise ValueError(f"{name} must be texts, got {text!r}{where}")


def mini_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return the indices of texts in mini-batches of texts of similar length, longest first.

    A mini-batch is padded to its longest text, so this saves padding.

    >>> mini_batches([3, 9, 4], 2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


def in_first_order(parts: Sequence[Tensor], batches: Sequence[Sequence[int]]) -> Tensor:
    """Return the rows of mini-batches in the order that they had before `mini_batches`.

    >>> in_first_order([torch.tensor([9, 4]), torch.tensor([3])], [[1, 2], [0]])
    tensor([3, 9, 4])
    """
    order = torch.tensor([i for batch in batches for i in batch])
    return torch.cat([*parts])[order.argsort().to(parts[0].device)]


LABELS = ("label", "labels", "score", "scores")
"""The names of a column of labels, as in sentence-transformers."""


def columns_of(row: Mapping[str, Any], where: str = "") -> tuple[str, str, str]:
    """Return the names of the columns of the query, of its documents and of their labels.

    Args:
        row: a row of a data set.
        where: the end of the error message.

    >>> columns_of({"query": "q", "scores": [1, 0], "docs": ["a", "b"]})
    ('query', 'docs', 'scores')
    """
    columns = [name for name in row if name != "dataset_name"]
    labels = [name for name in LABELS if name in columns]
    texts = [name for name in columns if name not in labels]
    if not labels or len(texts) != 2:
        raise ValueError(
            "data must have a query, its documents and labels (label, labels, score or scores) in "
            f"each row, got columns {columns}{where}{ADVICE * (len(columns) > 3)}"
        )
    return texts[0], texts[1], labels[0]


def check_columns(
    queries: Sequence[Any], documents: Sequence[Sequence[Any]], labels: Sequence[Any]
) -> list[int]:
    """Return the number of documents of each query; raise `ValueError` if the columns do not match.

    >>> check_columns(["q"], [["a", "b"]], [torch.ones(3)])
    Traceback (most recent call last):
    ValueError: labels must have one value for each document, got 3 for the 2 documents of 'q'
    """
    if isinstance(labels, Tensor) or labels is None:
        raise ValueError("labels must be a list of numbers for each query, got one number or none")
    if not len(queries) == len(documents) == len(labels):
        raise ValueError(
            "inputs must have documents and labels for each query, got "
            f"{len(queries)} queries, {len(documents)} lists and {len(labels)} labels"
        )
    for query, each, own in zip(queries, documents, labels, strict=True):
        check_texts(query, each, f" for the query {query!r}")
        if not isinstance(own, Tensor) or own.dim() != 1:
            raise ValueError(f"labels must be a tensor (documents,), got {own!r} for {query!r}")
        if len(each) != len(own):
            raise ValueError(
                f"labels must have one value for each document, got {len(own)} for the "
                f"{len(each)} documents of {query!r}"
            )
    lengths = [len(each) for each in documents]
    if not any(lengths):
        raise ValueError(f"documents must not all be empty, got {len(queries)} empty lists")
    return lengths


def reference(kind: type) -> str:
    """Return the reference in the docstring of a class, or else of a base class; "" if none.

    >>> from ltr.losses import LambdaRank
    >>> reference(LambdaRank)[:23]
    'Burges, Ragno and Le, "'
    """
    for base in kind.__mro__:
        _, _, text = inspect.cleandoc(base.__doc__ or "").partition("\nReference: ")
        if text:
            return " ".join(text.partition("\n\n")[0].split())
    return ""

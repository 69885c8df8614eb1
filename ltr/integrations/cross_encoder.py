"""A loss for sentence-transformers' `CrossEncoder`."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.util import batch_to_device, fullname
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ltr.config import to_config
from ltr.losses import RankingLoss
from ltr.losses.base import check_one_number
from ltr.operators import RankOperator
from ltr.shapes import check_flag, check_whole, upcast


class CrossEncoderLoss(nn.Module):
    """Trains a `CrossEncoder` on any `RankingLoss`, in `CrossEncoderTrainer`.

    A row of the data set is a query, its documents and their labels; lists may differ in length:

    | query | documents | labels |
    | --- | --- | --- |
    | a text | a list of texts | a list of numbers, one for each document |

    Exactly one score is computed for each document: lists are not padded. Mini-batches hold texts
    of similar length, which saves padding inside the model too. Scores in half precision become
    float32 before `activation_fn`. A list whose loss is undefined, such as one without a relevant
    document, adds nothing to the gradient. The loss is in training mode only if the model is, so
    `Stochastic` operators add no noise in evaluation.

    With `cached=True` the activations of only one mini-batch are in memory at a time. The forward
    pass stores no activations. The backward pass computes each mini-batch again, with the same
    random numbers and autocast. The gradients are those of `cached=False`, even with dropout. The
    cost is a second forward pass. The memory then depends on `mini_batch_size`, and hardly on the
    number of documents.

    Args:
        model: a `CrossEncoder` with one output label.
        loss: a `RankingLoss` with reduction "mean" or "sum".
        mini_batch_size: the number of documents that the model scores at a time, >= 1. Default: the
            number of queries in the batch, as in the losses of sentence-transformers.
        cached: whether mini-batches are computed again in the backward pass. Default: False.
        activation_fn: the function applied to the scores (N,) before the loss. Default:
            `torch.nn.Identity()`, which suits losses on differences of scores. (`model.predict`
            applies the model's own function, a sigmoid by default, which does not change the
            order.)

    Raises:
        ValueError: the model has more than one output label; the loss is not a `RankingLoss`, has
            reduction "none" or needs more than labels; or an option is invalid.

    Reference (`cached`): Gao, Zhang, Han and Callan, "Scaling deep contrastive learning batch size
    under memory limited setup", RepL4NLP 2021; Chen, Xu, Zhang and Guestrin, "Training deep nets
    with sublinear memory cost", 2016.
    """

    def __init__(
        self,
        model: CrossEncoder,
        loss: RankingLoss,
        mini_batch_size: int | None = None,
        cached: bool = False,
        activation_fn: nn.Module | None = None,
    ):
        super().__init__()
        if not isinstance(loss, RankingLoss):
            raise ValueError(f"loss must be a RankingLoss, got {loss!r}")
        check_one_number(loss)
        if loss.side_inputs:
            raise ValueError(f"loss must need only labels, got one that needs {loss.side_inputs}")
        if model.num_labels != 1:
            raise ValueError(f"model must have one output label, got {model.num_labels}")
        self.model = model
        self.loss = loss
        wanted = "a whole number >= 1, or None"
        self.mini_batch_size = (
            None
            if mini_batch_size is None
            else check_whole("mini_batch_size", mini_batch_size, wanted)
        )
        self.cached = check_flag("cached", cached)
        if activation_fn is not None and (
            not callable(activation_fn) or isinstance(activation_fn, type)
        ):
            raise ValueError(f"activation_fn must be a module or None, got {activation_fn!r}")
        self.activation_fn = nn.Identity() if activation_fn is None else activation_fn

    def forward(
        self,
        inputs: list[Any],
        labels: Sequence[Tensor],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Return the loss of a batch of lists, a scalar.

        Args:
            inputs: two columns: the queries, one for each list, and the documents of each query.
            labels: for each query, the labels (documents,) of its documents.
            prompt: passed to the model's `preprocess`.
            task: passed to the model's `preprocess`.

        Raises:
            ValueError: inputs are not two columns, labels do not match the documents, there is no
                document, or the loss refuses the labels.
        """
        if len(inputs) != 2:
            raise ValueError(
                f"inputs must be two columns, queries and lists of documents, got {len(inputs)}"
            )
        queries, documents = inputs
        lengths = check_columns(queries, documents, labels)
        pairs = [(q, d) for q, each in zip(queries, documents, strict=True) for d in each]
        size = self.mini_batch_size or len(queries)
        # A mini-batch is padded to its longest text, so texts of similar length go together.
        order = sorted(range(len(pairs)), key=lambda i: text_length(pairs[i]), reverse=True)
        scores = [
            self._score([pairs[i] for i in order[begin : begin + size]], prompt, task)
            for begin in range(0, len(pairs), size)
        ]
        self.loss.train(self.model.training)
        back = torch.tensor(order).argsort().to(scores[0].device)
        flat = self.activation_fn(upcast(torch.cat(scores)[back]))
        return self.loss(flat, torch.cat([*labels]).to(flat.device), lengths=lengths)

    def _score(self, pairs: list[tuple[Any, Any]], prompt: str | None, task: str | None) -> Tensor:
        """Return the model's scores of one mini-batch: (pairs,)."""
        tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
        tokens = batch_to_device(tokens, torch.device(self.model.device))

        def forward(tokens: dict[str, Any]) -> Tensor:
            # The model adds outputs to the copy, since backward passes read `tokens` again.
            return self.model(dict(tokens))["scores"].view(-1)

        if self.cached and torch.is_grad_enabled():
            return checkpoint(forward, tokens, use_reentrant=False)
        return forward(tokens)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for the model card."""
        try:
            loss = to_config(self.loss)
        except ValueError:  # the loss has a lambda or a local class, and is shown as text
            loss = repr(self.loss)
        return {
            "loss": loss,
            "mini_batch_size": self.mini_batch_size,
            "cached": self.cached,
            "activation_fn": fullname(self.activation_fn),
        }

    @property
    def citation(self) -> str:
        """BibTeX for the model card: this package and the references of the loss."""
        kinds = [
            type(one) for one in self.loss.modules() if isinstance(one, RankingLoss | RankOperator)
        ]
        notes = dict.fromkeys(
            f"{kind.__name__}: {found}" for kind in kinds if (found := reference(kind))
        )
        lines = ["", "@misc{ltr-torch,", f"  title = {{{type(self.loss).__name__} of ltr-torch}},"]
        lines += ["  howpublished = {Python package},"]
        lines += [f"  note = {{{' '.join(notes)}}},"] if notes else []
        return "\n".join([*lines, "}", ""])


def check_columns(
    queries: Sequence[Any], documents: Sequence[Sequence[Any]], labels: Sequence[Tensor]
) -> list[int]:
    """Return the number of documents of each query; raise `ValueError` if the columns do not match.

    >>> check_columns(["q"], [["a", "b"]], [torch.ones(3)])
    Traceback (most recent call last):
    ValueError: labels must have one value for each document, got 3 for the 2 documents of 'q'
    """
    if isinstance(labels, Tensor) or labels is None:
        raise ValueError("labels must be a list of numbers for each query, got one number")
    if not len(queries) == len(documents) == len(labels):
        raise ValueError(
            "inputs must have documents and labels for each query, got "
            f"{len(queries)} queries, {len(documents)} lists and {len(labels)} labels"
        )
    for query, each, own in zip(queries, documents, labels, strict=True):
        if isinstance(each, str) or not hasattr(each, "__len__"):
            raise ValueError(f"documents must be a list of texts for each query, got {each!r}")
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


def text_length(pair: tuple[Any, Any]) -> int:
    """Return the number of characters of a query and a document; only values that are text count.

    >>> text_length(("ab", "cde"))
    5
    """
    return sum(len(part) for part in pair if isinstance(part, str))


def reference(kind: type) -> str:
    """Return the reference in the docstring of a class, or else of a base class; "" if none.

    >>> from ltr.losses import LambdaRank
    >>> reference(LambdaRank)[:23]
    'Burges, Ragno and Le, "'
    """
    for one in kind.__mro__:
        _, _, found = inspect.cleandoc(one.__doc__ or "").partition("\nReference: ")
        if found:
            return " ".join(found.partition("\n\n")[0].split())
    return ""

"""A loss for sentence-transformers' `CrossEncoder`."""

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.util import batch_to_device, fullname
from torch import Tensor, nn

from ltr.integrations.adapter import (
    ADVICE,
    LABELS,
    TextLoss,
    check_columns,
    in_first_order,
    mini_batches,
)
from ltr.losses import RankingLoss
from ltr.shapes import upcast


class CrossEncoderLoss(TextLoss):
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
        ValueError: the model is not a `CrossEncoder` or has more than one output label; the loss is
            not a `RankingLoss`, has reduction "none" or needs more than labels; or an option is
            invalid. In training: see `forward`.

    Reference (`cached`): Gao, Zhang, Han and Callan, "Scaling deep contrastive learning batch size
    under memory limited setup", RepL4NLP 2021; Chen, Xu, Zhang and Guestrin, "Training deep nets
    with sublinear memory cost", 2016.
    """

    model: CrossEncoder

    def __init__(
        self,
        model: CrossEncoder,
        loss: RankingLoss,
        mini_batch_size: int | None = None,
        cached: bool = False,
        activation_fn: nn.Module | None = None,
    ):
        super().__init__(model, loss, mini_batch_size, cached)
        if not isinstance(model, CrossEncoder):
            raise ValueError(f"model must be a CrossEncoder, got a {type(model).__name__}")
        if model.num_labels != 1:
            raise ValueError(f"model must have one output label, got {model.num_labels}")
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
            ValueError: inputs are not two columns, a text is missing or a number, labels do not
                match the documents, there is no document, or the loss refuses the labels.
        """
        if len(inputs) != 2:
            raise ValueError(
                "inputs must be two columns, queries and lists of documents, beside the labels "
                f"({', '.join(LABELS)}), got {len(inputs)}{ADVICE * (len(inputs) > 2)}"
            )
        queries, documents = inputs
        lengths = check_columns(queries, documents, labels)
        pairs = [(q, d) for q, each in zip(queries, documents, strict=True) for d in each]
        size = self.mini_batch_size or len(queries)
        batches = mini_batches([text_length(pair) for pair in pairs], size)
        scores = [self._score([pairs[i] for i in batch], prompt, task) for batch in batches]
        self.loss.train(self.model.training)
        flat = self.activation_fn(upcast(in_first_order(scores, batches)))
        return self.loss(flat, torch.cat([*labels]).to(flat.device), lengths=lengths)

    def _score(self, pairs: list[tuple[Any, Any]], prompt: str | None, task: str | None) -> Tensor:
        """Return the model's scores of one mini-batch: (pairs,)."""
        tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
        tokens = batch_to_device(tokens, torch.device(self.model.device))

        def forward(tokens: dict[str, Any]) -> Tensor:
            # The model adds outputs to the copy, since backward passes read `tokens` again.
            return self.model(dict(tokens))["scores"].view(-1)

        return self.of_mini_batch(forward, tokens)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for the model card."""
        return {**super().get_config_dict(), "activation_fn": fullname(self.activation_fn)}


def text_length(pair: tuple[Any, Any]) -> int:
    """Return the number of characters of a query and a document; only values that are text count.

    >>> text_length(("ab", "cde"))
    5
    """
    return sum(len(part) for part in pair if isinstance(part, str))

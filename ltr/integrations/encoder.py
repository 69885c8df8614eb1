"""A loss for sentence-transformers' models that embed queries and documents, for retrieval."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.multi_vector_encoder import MultiVectorEncoder
from sentence_transformers.util import SimilarityFunction
from torch import Tensor, nn

from ltr.integrations.adapter import (
    LABELS,
    TextLoss,
    check_columns,
    columns_of,
    in_first_order,
    mini_batches,
)
from ltr.losses import RankingLoss
from ltr.ragged import list_ids
from ltr.shapes import check_choice, check_number, upcast

Encoder = SentenceTransformer | SparseEncoder | MultiVectorEncoder
Negatives = Literal["own", "batch"]

TEXT_ID = "text_id"
"""The feature in which `ListCollator` numbers the texts of a batch."""


class EncoderLoss(TextLoss):
    """Trains a model that embeds texts on any `RankingLoss` of graded lists.

    The model is a `SentenceTransformer`, a `SparseEncoder` or a `MultiVectorEncoder`. A row of the
    data set is a query, its documents and their labels, as for `CrossEncoderLoss`; lists may differ
    in length:

    | query | documents | labels |
    | --- | --- | --- |
    | a text | a list of texts | a list of numbers, one for each document |

    The library's own collators take one text a column, so the trainer needs `ListCollator`:

    ```python
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=ListCollator(model),
        loss=EncoderLoss(model, SoftmaxLoss()),
    )
    ```

    A score is `scale` times the similarity of the embeddings of a query and a document, in float32.
    With negatives="batch", the documents of the other queries have label 0. A text that is also
    among a query's own documents is left out there, since it may be relevant, and a text that
    several other queries have counts once. Each process uses the documents of its own batch. A
    teacher's scores have no such 0: among logits it may be the highest. So a loss with `grades`
    False, such as `Distillation` and `PairwiseMSE`, uses the query's own documents by default.

    A list whose loss is undefined, such as one without a relevant document, adds nothing to the
    gradient. The loss is in training mode only if the model is.

    With `cached=True` the activations of only one mini-batch are in memory at a time, as in
    `CrossEncoderLoss`. The gradients are those of `cached=False`, even with dropout. The cost is a
    second forward pass.

    Args:
        model: the model that embeds.
        loss: a `RankingLoss` with reduction "mean" or "sum" that needs only labels.
        similarity: the name of a similarity function of the library: "cosine", "dot", "euclidean"
            or "manhattan"; for a `MultiVectorEncoder` "maxsim" or "meanmaxsim". Default: the
            model's own, with which it searches later.
        scale: the factor of the similarities, > 0. Default: 20 for "cosine", whose values lie in
            [-1, 1], and 1 for the others, as in the library's `MultipleNegativesRankingLoss`.
        negatives: "batch", or "own" for the documents of the query alone. Default: "batch" if the
            loss has `grades`, else "own": give such a loss "batch" only if its labels are grades.
        mini_batch_size: the number of texts that the model embeds at a time, >= 1. Default: the
            number of queries in the batch.
        cached: whether mini-batches are computed again in the backward pass. Default: False.

    Raises:
        ValueError: the model is not one of the three; the loss is not a `RankingLoss`, has
            reduction "none" or needs more than labels; or an option is invalid.

    Cost of a step: one forward and backward pass of each text, and Q x D similarities for Q queries
    and D documents with negatives="batch", D with "own".

    Reference: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP
    2020, for negatives of the batch; Gao, Zhang, Han and Callan, "Scaling deep contrastive learning
    batch size under memory limited setup", RepL4NLP 2021, for `cached`.
    """

    def __init__(
        self,
        model: Encoder,
        loss: RankingLoss,
        similarity: str | None = None,
        scale: float | None = None,
        negatives: Negatives | None = None,
        mini_batch_size: int | None = None,
        cached: bool = False,
    ):
        super().__init__(model, loss, mini_batch_size, cached)
        if not isinstance(model, Encoder):
            raise ValueError(
                "model must be a SentenceTransformer, SparseEncoder or MultiVectorEncoder, got a "
                f"{type(model).__name__}"
            )
        if negatives is None:
            negatives = "batch" if loss.grades else "own"
        check_choice("negatives", negatives, "own", "batch")
        self.negatives: Negatives = negatives
        self.many_vectors = isinstance(model, MultiVectorEncoder)
        names = ("maxsim", "meanmaxsim") if self.many_vectors else SINGLE
        self.similarity = str(model.similarity_fn_name if similarity is None else similarity)
        check_choice("similarity", self.similarity, *names)
        default = 20.0 if self.similarity == "cosine" else 1.0
        self.scale = check_number(
            "scale", default if scale is None else scale, minimum=0.0, strict=True
        )

    def forward(
        self, sentence_features: Sequence[dict[str, Any]], labels: Sequence[Tensor]
    ) -> Tensor:
        """Return the loss of a batch of lists, a scalar.

        Args:
            sentence_features: the tokens of the queries, and the tokens of the documents of all
                queries, one list after the other, as `ListCollator` makes them.
            labels: for each query, the labels (documents,) of its documents.

        Raises:
            ValueError: the features are not those of `ListCollator`, labels do not match the
                documents, there is no document, or the loss refuses the labels.
        """
        features = [dict(each) for each in sentence_features]
        if len(features) != 2 or any(TEXT_ID not in each for each in features):
            raise ValueError(
                "data_collator must be ltr.integrations.ListCollator(model), got features of "
                "another collator"
            )
        query_ids, text_ids = (each.pop(TEXT_ID) for each in features)
        lengths = torch.tensor([len(each) for each in labels], device=text_ids.device)
        if len(query_ids) != len(labels) or len(text_ids) != lengths.sum():
            raise ValueError(
                f"labels must have a value for each of {len(text_ids)} documents of "
                f"{len(query_ids)} queries, got {int(lengths.sum())} of {len(labels)}: if the data "
                'are an IterableDataset, set accelerator_config={"dispatch_batches": False}'
            )
        size = self.mini_batch_size or len(query_ids)
        queries = self._embed(features[0], len(query_ids), size, "query")
        documents = self._embed(features[1], len(text_ids), size, "document")
        self.loss.train(self.model.training)
        grades = torch.cat([*labels]).to(text_ids.device)
        lists = list_ids(grades, lengths)
        if self.negatives == "own":
            pairs = [x[lists] for x in queries], documents
            scores = self.scale * self._similarity(*pairs, pairwise=True)
            return self.loss(scores, grades, lengths=lengths)
        scores = self.scale * self._similarity(queries, documents, pairwise=False)
        own = lists == torch.arange(len(labels), device=lists.device).unsqueeze(-1)
        mask = own | ~(repeated(text_ids) | own_texts(text_ids, own))
        return self.loss(scores, torch.where(own, grades, 0), mask)

    def _embed(
        self, tokens: dict[str, Any], count: int, size: int, task: str
    ) -> tuple[Tensor, ...]:
        """Return the embeddings (texts, width), or (texts, tokens, width) and their mask."""

        def forward(part: dict[str, Any]) -> tuple[Tensor, ...]:
            outputs = self.model(dict(part), task=task)
            if not self.many_vectors:
                return (upcast(outputs["sentence_embedding"]),)
            return upcast(outputs["token_embeddings"]), outputs["attention_mask"].bool()

        lengths = text_lengths(tokens, count)
        batches = [[*range(count)]] if lengths is None else mini_batches(lengths, size)
        parts = [
            self.of_mini_batch(forward, tokens if lengths is None else rows_of(tokens, batch))
            for batch in batches
        ]
        if self.many_vectors:
            width = max(vectors.shape[1] for vectors, _ in parts)
            parts = [tuple(padded(x, width) for x in part) for part in parts]
        return tuple(in_first_order(each, batches) for each in zip(*parts, strict=True))

    def _similarity(
        self, queries: Sequence[Tensor], documents: Sequence[Tensor], *, pairwise: bool
    ) -> Tensor:
        find = SimilarityFunction.to_similarity_fn
        find = SimilarityFunction.to_similarity_pairwise_fn if pairwise else find
        similarity: Callable[..., Tensor] = find(SimilarityFunction(self.similarity))
        masks = {"a_mask": queries[1], "b_mask": documents[1]} if self.many_vectors else {}
        return similarity(queries[0], documents[0], **masks)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for the model card."""
        own = {"similarity": self.similarity, "scale": self.scale, "negatives": self.negatives}
        return {**super().get_config_dict(), **own}


SINGLE = ("cosine", "dot", "euclidean", "manhattan")
"""The similarities of one vector a text."""


class ListCollator:
    """Makes batches of lists for `EncoderLoss`: tokens of all queries, and of all documents.

    The data set has three columns: a query, a list of documents, and a list of labels in a column
    named label, labels, score or scores. The other two are taken in their order.

    Args:
        model: the model, whose `preprocess` makes the tokens.
        prompts: texts put before each "query" and each "document". Default: the model's own
            `prompts` of these names, which `encode_query` and `encode_document` use. The argument
            `prompts` of the trainer has no effect, since it is for the library's collators.

    Raises:
        ValueError: prompts have another name. In training: a row has other columns, labels are not
            numbers or do not match the documents, a query or a document is not a text, or no query
            of the batch has a document.
    """

    valid_label_columns = LABELS

    def __init__(self, model: Encoder, prompts: Mapping[str, str] | None = None):
        given = getattr(model, "prompts", {}) if prompts is None else prompts
        unknown = sorted({*given} - {"query", "document"})
        if prompts is not None and unknown:
            raise ValueError(f"prompts must be of query or document, got {unknown[0]!r}")
        self.preprocess = model.preprocess
        self.prompts = {name: given.get(name) or None for name in ("query", "document")}

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the tokens and text ids of both columns, and the labels of each query.

        Args:
            features: the rows of a batch.
        """
        names = columns_of(features[0])
        queries, documents, given = ([row[name] for row in features] for name in names)
        labels = []
        for query, own in zip(queries, given, strict=True):
            try:
                labels.append(torch.as_tensor(own, dtype=torch.float32))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{names[2]} must be numbers, got {own!r} for the query {query!r}"
                ) from None
        check_columns(queries, documents, labels)
        flat = [text for each in documents for text in each]
        ids: dict[str, int] = {}
        batch: dict[str, Any] = {"label": labels}
        if "dataset_name" in features[0]:
            batch["dataset_name"] = features[0]["dataset_name"]
        for name, task, column in zip(names, ("query", "document"), (queries, flat), strict=False):
            for text in column:
                if not isinstance(text, str):
                    raise ValueError(f"{name} must be texts, got {text!r}")
            tokens = self.preprocess(column, prompt=self.prompts[task], task=task)
            batch |= {f"{name}_{key}": value for key, value in tokens.items()}
            batch[f"{name}_{TEXT_ID}"] = torch.tensor([ids.setdefault(x, len(ids)) for x in column])
        return batch


def repeated(ids: Tensor) -> Tensor:
    """Return whether each of the ids (n,) stands further left too, bool (n,).

    >>> repeated(torch.tensor([4, 7, 4]))
    tensor([False, False,  True])
    """
    return (ids.unsqueeze(-1) == ids).tril(-1).any(-1)


def own_texts(ids: Tensor, own: Tensor) -> Tensor:
    """Return whether the text of each document is among the own documents of each query.

    Args:
        ids: (documents,), equal for equal texts.
        own: (queries, documents) bool.

    >>> own = torch.tensor([[True, True, False], [False, False, True]])
    >>> own_texts(torch.tensor([4, 7, 4]), own)
    tensor([[ True,  True,  True],
            [ True, False,  True]])
    """
    same = ids.unsqueeze(-1) == ids
    return own.float() @ same.float() > 0


def text_lengths(tokens: Mapping[str, Any], count: int) -> list[int] | None:
    """Return the number of tokens of each text, or None if the texts cannot be taken apart.

    Token streams, as of static embeddings, have no row for each text.
    """
    mask = tokens.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2 or len(mask) != count:
        return None
    if "cu_seq_lens_q" in tokens or not all(
        len(x) == count for x in tokens.values() if isinstance(x, Tensor) and x.dim() > 0
    ):
        return None
    return mask.sum(-1).tolist()


def rows_of(tokens: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Return the tokens of some texts, without the columns that are padding in all of them.

    >>> tokens = {"attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]])}
    >>> rows_of(tokens, [0, 2])["attention_mask"]
    tensor([[1, 1],
            [1, 0]])
    """
    mask = tokens["attention_mask"]
    index = torch.tensor(rows, device=mask.device)
    real = mask[index].bool().any(0)
    real[:1] |= ~real.any()  # a batch of empty texts keeps one column
    part = dict(tokens)
    for name, x in tokens.items():
        if isinstance(x, Tensor) and x.dim() > 0:
            part[name] = x[index]
            if x.shape[:2] == mask.shape:
                part[name] = part[name][:, real]
    return part


def padded(x: Tensor, width: int) -> Tensor:
    """Return tokens (texts, tokens, ...) with zeros at the end, up to a width."""
    return nn.functional.pad(x, [0, 0] * (x.dim() - 2) + [0, width - x.shape[1]])

"""How well a reranker or retriever ranks lists: metrics with intervals, also after training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from sentence_transformers import (
    SentenceTransformerTrainer,
    SparseEncoder,
    SparseEncoderTrainer,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.multi_vector_encoder import MultiVectorEncoderTrainer
from torch import nn

from ltr.gains import Gain
from ltr.integrations.adapter import check_texts, columns_of
from ltr.integrations.encoder import Encoder
from ltr.metrics import Comparison
from ltr.metrics.named import Metric
from ltr.reports import Evaluation, evaluate
from ltr.reports.evaluation import DEFAULT

Trainer = (
    CrossEncoderTrainer
    | SentenceTransformerTrainer
    | SparseEncoderTrainer
    | MultiVectorEncoderTrainer
)


class JudgedList(NamedTuple):
    """A list of documents to score: the query's name and text, the documents and their labels."""

    qid: str
    query: Any
    documents: Sequence[Any]
    labels: Sequence[float]


def evaluate_reranker(
    model: CrossEncoder | Encoder,
    data: Any,
    metrics: Sequence[Metric] = DEFAULT,
    *,
    gain: Gain = "exp2",
    ties: Literal["stable", "expected", "worst"] = "expected",
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    batch_size: int | None = None,
    prompt_name: str | None = None,
    name: str = "reranker",
) -> Evaluation:
    """Evaluate a reranker: return metrics with bootstrap intervals over the lists.

    A model that embeds is evaluated as a reranker of the lists: the scores are the similarities of
    its embeddings. (How well it searches a collection, `ltr.metrics.trec.join` measures of a run.)

    For an evaluator of sentence-transformers, the lists, documents and binary labels are the
    evaluator's. By default, tied scores count as the average over all their orders, so NDCG@k of
    each query equals the evaluator's. A `CrossEncoder` gives logits: its activation function is not
    applied, because it could round distinct scores to the same value. The mean for a
    `CrossEncoderNanoBEIREvaluator` is over all queries; the evaluator's own mean is over the data
    sets.

    Args:
        model: a `CrossEncoder`, or a `SentenceTransformer`, `SparseEncoder` or
            `MultiVectorEncoder`.
        data: a `CrossEncoderRerankingEvaluator` or `CrossEncoderNanoBEIREvaluator`; or a data set
            (or an iterable of dicts) with the columns of training: a query, its documents, and
            their graded labels in a column "label", "labels", "score" or "scores".
        metrics: names, objects or functions, as in `ltr.reports.evaluate`.
        gain: "exp2" (default) or "linear"; the two differ only for labels other than 0 and 1.
        ties: the order of equal scores, as in `ltr.reports.evaluate`. Default: "expected".
        confidence: the level of the intervals, in (0, 1).
        resamples: the number of bootstrap samples.
        seed: the seed of the bootstrap samples.
        batch_size: the number of documents to score at a time. Default: the evaluator's, or 32.
        prompt_name: the name of one of the model's prompts, in a model that embeds for the queries.
            Default: the evaluator's, or none; in a model that embeds its prompts for queries and
            documents.
        name: a name for the scores, in tables and plots.

    Raises:
        ValueError: model or data is of another type; data has no document; a row has other columns,
            or a sample lacks a key; a sample has both "negative" and "documents", or an empty
            "documents"; a text is missing or a number; labels are no numbers, below 0 or not
            finite, or do not match the documents; or an option is invalid.
    """
    if not isinstance(model, CrossEncoder | Encoder):
        raise ValueError(
            "model must be a CrossEncoder, SentenceTransformer, SparseEncoder or "
            f"MultiVectorEncoder, got a {type(model).__name__}"
        )
    lists, (own_batch, own_prompt) = read(data)
    if not any(len(judged.documents) for judged in lists):
        raise ValueError("data must have at least one document, got none")
    options = {
        "prompt_name": prompt_name or own_prompt,
        "batch_size": own_batch if batch_size is None else batch_size,
        "show_progress_bar": False,
    }
    if isinstance(model, CrossEncoder):
        scores = logits(model, lists, **options)
    else:
        scores = similarities(model, lists, **options)
    return evaluate(
        np.concatenate([np.asarray(judged.labels, np.float64) for judged in lists]),
        scores,
        np.repeat([judged.qid for judged in lists], [len(judged.labels) for judged in lists]),
        metrics,
        gain=gain,
        ties=ties,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
        name=name,
    )


def logits(model: CrossEncoder, lists: list[JudgedList], **options: Any) -> np.ndarray:
    """Return a reranker's scores of all documents, before its activation function."""
    pairs = [(judged.query, document) for judged in lists for document in judged.documents]
    return model.predict(pairs, activation_fn=nn.Identity(), **options)


def similarities(
    model: Encoder, lists: list[JudgedList], *, prompt_name: str | None, **options: Any
) -> np.ndarray:
    """Return the similarities of all documents to their queries, by the model's embeddings."""
    if isinstance(model, SparseEncoder):  # PyTorch warns that its sparse products are in beta state
        options["convert_to_sparse_tensor"] = False
    parts = []
    for judged in lists:
        if len(judged.documents):
            query = model.encode_query([judged.query], prompt_name=prompt_name, **options)
            documents = model.encode_document([*judged.documents], **options)
            scores = model.similarity(query, documents)
            parts.append(torch.as_tensor(scores).float().cpu().numpy()[0])
    return np.concatenate(parts)


def compare_training(
    trainer: Trainer,
    data: Any,
    metric: Metric = "ndcg@10",
    *,
    resume_from_checkpoint: str | bool | None = None,
    **options: Any,
) -> Comparison:
    """Evaluate a reranker or retriever, train it, evaluate it again, and compare both results.

    Pass lists that are neither in the training data nor in the trainer's `eval_dataset` or
    evaluator: lists that influenced training prove nothing.

    Args:
        trainer: the trainer of a model that `evaluate_reranker` takes; its `train` is called once.
        data: the lists to evaluate on; see `evaluate_reranker`.
        metric: the metric. Default: "ndcg@10".
        resume_from_checkpoint: passed to the trainer's `train`. Even then, "before" is the
            trainer's current model, not that of the checkpoint.
        options: further arguments of `evaluate_reranker`.

    Returns:
        A `Comparison` of "before" and "after": both means, their difference with its interval, and
        the p-value of a paired test.

    Raises:
        ValueError: see `evaluate_reranker`, or fewer than two lists have a value of the metric;
            raised before training, except for a trained model with scores that are not finite.
    """
    before = evaluate_reranker(trainer.model, data, [metric], name="before", **options)
    before.compare(before)  # with too few lists, this raises the error before training
    trainer.train(resume_from_checkpoint=resume_from_checkpoint)
    after = evaluate_reranker(trainer.model, data, [metric], name="after", **options)
    return before.compare(after)


def read(data: Any) -> tuple[list[JudgedList], tuple[int, str | None]]:
    """Return the lists of an evaluator or a data set, and its batch size and prompt name."""
    if isinstance(data, CrossEncoderRerankingEvaluator):
        return samples([data]), (data.batch_size, data.prompt_name)
    several = getattr(data, "evaluators", None)
    if several and all(isinstance(x, CrossEncoderRerankingEvaluator) for x in several):
        return samples(several), (several[0].batch_size, several[0].prompt_name)
    if isinstance(data, BaseEvaluator | str) or not isinstance(data, Iterable):
        raise ValueError(f"data must be a reranking evaluator or a data set, got {data!r}")
    return rows(data), (32, None)


def samples(evaluators: Sequence[CrossEncoderRerankingEvaluator]) -> list[JudgedList]:
    """Return the lists of reranking evaluators, with documents in the evaluators' order."""
    lists = []
    for evaluator in evaluators:
        for number, sample in enumerate(evaluator.samples):
            _check_sample(sample, number)
            positive = sample["positive"]
            positive = [positive] if isinstance(positive, str) else list(positive)
            if "documents" in sample:
                documents = list(sample["documents"])
                if evaluator.always_rerank_positives:
                    documents = positive + [text for text in documents if text not in positive]
                labels = [float(text in positive) for text in documents]
            else:
                negative = list(sample["negative"])
                documents = positive + negative
                labels = [1.0] * len(positive) + [0.0] * len(negative)
            qid = f"{evaluator.name} {number}".strip()
            lists.append(JudgedList(qid, sample["query"], documents, labels))
    return lists


def _check_sample(sample: Mapping[str, Any], number: int) -> None:
    """Check the keys of a sample, by the rules of sentence-transformers' evaluator."""
    for key in ("query", "positive"):
        if key not in sample:
            raise ValueError(f"sample {number} must have the key {key!r}, got {list(sample)}")
    if ("negative" in sample) == ("documents" in sample):
        raise ValueError(
            f"sample {number} must have exactly one of the keys 'negative' and 'documents', "
            f"got {list(sample)}"
        )
    for key in ("negative", "documents"):
        if isinstance(sample.get(key), str):
            raise ValueError(f"sample {number} must have a list in {key!r}, got {sample[key]!r}")
    if "documents" in sample and not len(sample["documents"]):
        raise ValueError(f"sample {number} must have at least one of 'documents', got none")


def rows(data: Iterable[dict[str, Any]]) -> list[JudgedList]:
    """Return the lists of a data set that has the columns of training.

    >>> rows([{"query": "q", "docs": ["a", "b"], "labels": [1]}])
    Traceback (most recent call last):
    ValueError: labels must have one value for each document, got 1 for 2 documents in row 0
    """
    lists = []
    for number, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise ValueError(f"data must have a dict in each row, got {row!r} in row {number}")
        where = f" in row {number}"
        names = columns_of(row, where)
        query, documents, labels = (row[name] for name in names)
        check_texts(query, documents, where)
        if isinstance(labels, str) or not hasattr(labels, "__len__"):
            raise ValueError(f"{names[2]} must be a list of numbers, got {labels!r}{where}")
        if len(documents) != len(labels):
            raise ValueError(
                f"{names[2]} must have one value for each document, got {len(labels)} for "
                f"{len(documents)} documents{where}"
            )
        values = np.asarray(labels)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{names[2]} must be numbers, got {labels!r}{where}")
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"{names[2]} must be finite and >= 0, got {labels!r}{where}")
        lists.append(JudgedList(str(number), query, documents, labels))
    return lists

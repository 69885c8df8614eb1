"""How well a reranker ranks: metrics with intervals, before and after training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from torch import nn

from ltr.gains import Gain
from ltr.metrics import Comparison
from ltr.metrics.named import Metric
from ltr.reports import Evaluation, evaluate
from ltr.reports.evaluation import DEFAULT

LABELS = ("label", "labels", "score", "scores")
"""The column names that sentence-transformers accepts for labels."""


class Lists(NamedTuple):
    """Lists of documents to score, with one value per list in each attribute."""

    qids: list[str]
    queries: list[Any]
    documents: list[Sequence[Any]]
    labels: list[Sequence[float]]


def evaluate_reranker(
    model: CrossEncoder,
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

    For an evaluator of sentence-transformers, the lists, documents and binary labels are the
    evaluator's. By default, tied scores count as the average over all their orders, so NDCG@k of
    each query equals the evaluator's. Scores are logits: the model's activation function is not
    applied, because it could round distinct scores to the same value. The mean for a
    `CrossEncoderNanoBEIREvaluator` is over all queries; the evaluator's own mean is over the data
    sets.

    Args:
        model: a `CrossEncoder`.
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
        prompt_name: the name of one of the model's prompts. Default: the evaluator's, or none.
        name: a name for the scores, in tables and plots.

    Raises:
        ValueError: data is of another type, or has no document; a row lacks a column, or a sample
            lacks a key; a sample has both "negative" and "documents", or an empty "documents";
            labels do not match the documents; or `ltr.reports.evaluate` refuses a label or an
            option.
    """
    lists, (own_batch, own_prompt) = read(data)
    pairs = [
        (query, document)
        for query, documents in zip(lists.queries, lists.documents, strict=True)
        for document in documents
    ]
    if not pairs:
        raise ValueError("data must have at least one document, got none")
    scores = model.predict(
        pairs,
        prompt_name=prompt_name or own_prompt,
        batch_size=own_batch if batch_size is None else batch_size,
        show_progress_bar=False,
        activation_fn=nn.Identity(),
    )
    return evaluate(
        np.concatenate([np.asarray(own, np.float64) for own in lists.labels]),
        scores,
        np.repeat(lists.qids, [len(own) for own in lists.labels]),
        metrics,
        gain=gain,
        ties=ties,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
        name=name,
    )


def compare_training(
    trainer: CrossEncoderTrainer,
    data: Any,
    metric: Metric = "ndcg@10",
    *,
    resume_from_checkpoint: str | bool | None = None,
    **options: Any,
) -> Comparison:
    """Evaluate a reranker, train it, evaluate it again, and compare both results.

    Pass lists that are neither in the training data nor in the trainer's `eval_dataset` or
    evaluator: lists that influenced training prove nothing.

    Args:
        trainer: the trainer of the model; its `train` is called once.
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


def read(data: Any) -> tuple[Lists, tuple[int, str | None]]:
    """Return the lists of an evaluator or a data set, and its batch size and prompt name."""
    if isinstance(data, CrossEncoderRerankingEvaluator):
        return samples([data]), (data.batch_size, data.prompt_name)
    several = getattr(data, "evaluators", None)
    if several and all(isinstance(one, CrossEncoderRerankingEvaluator) for one in several):
        return samples(several), (several[0].batch_size, several[0].prompt_name)
    if isinstance(data, BaseEvaluator | str) or not isinstance(data, Iterable):
        raise ValueError(f"data must be a reranking evaluator or a data set, got {data!r}")
    return rows(data), (32, None)


def samples(evaluators: Sequence[CrossEncoderRerankingEvaluator]) -> Lists:
    """Return the lists of reranking evaluators, with documents in the evaluators' order."""
    found = Lists([], [], [], [])
    for evaluator in evaluators:
        for number, sample in enumerate(evaluator.samples):
            _check_sample(sample, number)
            positive = sample["positive"]
            positive = [positive] if isinstance(positive, str) else list(positive)
            if "documents" in sample:
                retrieved = list(sample["documents"])
                documents = retrieved
                if evaluator.always_rerank_positives:
                    documents = positive + [one for one in retrieved if one not in positive]
                labels = [float(one in positive) for one in documents]
            else:
                negative = list(sample["negative"])
                documents = positive + negative
                labels = [1.0] * len(positive) + [0.0] * len(negative)
            found.qids.append(f"{evaluator.name} {number}".strip())
            found.queries.append(sample["query"])
            found.documents.append(documents)
            found.labels.append(labels)
    return found


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
    if "documents" in sample and not len(sample["documents"]):
        raise ValueError(f"sample {number} must have at least one of 'documents', got none")


def rows(data: Iterable[dict[str, Any]]) -> Lists:
    """Return the lists of a data set that has the columns of training.

    >>> rows([{"query": "q", "docs": ["a", "b"], "labels": [1]}])
    Traceback (most recent call last):
    ValueError: labels must have one value for each document, got 1 for 2 documents in row 0
    """
    found = Lists([], [], [], [])
    for number, row in enumerate(data):
        if not isinstance(row, Mapping):
            raise ValueError(f"data must have a dict in each row, got {row!r} in row {number}")
        named = [name for name in LABELS if name in row]
        texts = [name for name in row if name not in named]
        if not named or len(texts) != 2:
            raise ValueError(
                "data must have a query, its documents and labels in each row, "
                f"got columns {list(row)} in row {number}"
            )
        query, documents = (row[name] for name in texts)
        labels = row[named[0]]
        sized = all(hasattr(x, "__len__") for x in (documents, labels))
        if isinstance(documents, str) or not sized:
            raise ValueError(
                "data must have a list of documents and a list of labels in each row, "
                f"got {documents!r} and {labels!r} in row {number}"
            )
        if len(documents) != len(labels):
            raise ValueError(
                f"{named[0]} must have one value for each document, got {len(labels)} for "
                f"{len(documents)} documents in row {number}"
            )
        found.qids.append(str(number))
        found.queries.append(query)
        found.documents.append(documents)
        found.labels.append(labels)
    return found

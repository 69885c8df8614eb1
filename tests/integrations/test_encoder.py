"""EncoderLoss: values and gradients beside a plain computation, caching, training, bad input."""

import itertools
from typing import Any

import pytest
import torch
from pairwise import covering, named
from torch import Tensor, nn

from ltr.integrations import EncoderLoss, ListCollator, compare_training, evaluate_reranker
from ltr.losses import (
    ADRMSE,
    Distillation,
    LambdaLoss,
    PairwiseMSE,
    RankNet,
    SoftmaxLoss,
    SoftNDCG,
)
from ltr.metrics.functional import ndcg
from ltr.operators import SoftSort, Stochastic

from .conftest import WORDS, corpus

sentence_transformers = pytest.importorskip("sentence_transformers")
from sentence_transformers import (  # noqa: E402
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SparseEncoder,
)
from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.multi_vector_encoder import MultiVectorEncoder  # noqa: E402
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask  # noqa: E402
from sentence_transformers.sentence_transformer import losses  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding  # noqa: E402
from sentence_transformers.sparse_encoder.modules import SpladePooling  # noqa: E402

KINDS = ("dense", "sparse", "vectors")


def encoder(kind: str, path: str) -> Any:
    """Return a tiny model of one of the three classes."""
    torch.manual_seed(0)
    if kind == "sparse":
        modules = [Transformer(path, transformer_task="fill-mask"), SpladePooling()]
        return SparseEncoder(modules=modules, device="cpu")
    body = Transformer(path)
    if kind == "dense":
        return SentenceTransformer(modules=[body, Pooling(32)], device="cpu")
    dense = Dense(
        32, 8, bias=False, activation_function=nn.Identity(), module_input_name="token_embeddings"
    )
    modules = [body, dense, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    return MultiVectorEncoder(modules=modules, device="cpu")


@pytest.fixture(params=KINDS)
def model(request, model_path: str) -> Any:
    return encoder(request.param, model_path)


@pytest.fixture(params=KINDS)
def dropout_model(request, dropout_path: str) -> Any:
    return encoder(request.param, dropout_path).train()


def rows(lists: int = 6, seed: int = 0) -> list[dict[str, Any]]:
    columns = corpus(lists, seed)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def of_rows(model: Any, data: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Tensor]]:
    """Return what the trainer hands to the loss for some rows."""
    collated = ListCollator(model)(data)
    features = [
        {key[len(name) :]: x for key, x in collated.items() if key.startswith(name)}
        for name in ("query_", "documents_")
    ]
    return features, collated["label"]


def batch(model: Any, lists: int = 6, seed: int = 0) -> tuple[list[dict[str, Any]], list[Tensor]]:
    """Return what the trainer hands to the loss for a part of the corpus."""
    return of_rows(model, rows(lists, seed))


def value_and_gradient(loss: nn.Module, *given: Any) -> tuple[float, Tensor]:
    torch.manual_seed(1)
    loss.zero_grad()
    value = loss(*given)
    value.backward()
    gradients = [p.grad.flatten() for p in loss.parameters() if p.grad is not None]
    return value.item(), torch.cat(gradients)


def texts_and_scores(model: Any, lists: int) -> tuple[list[dict[str, Any]], Tensor, list[str]]:
    """Return the rows, the similarities of queries and documents by `encode`, and the documents."""
    data = rows(lists)
    flat = [text for row in data for text in row["documents"]]
    options = {"convert_to_sparse_tensor": False} if isinstance(model, SparseEncoder) else {}
    queries = model.encode_query([row["query"] for row in data], **options)
    documents = model.encode_document(flat, **options)
    return data, torch.as_tensor(model.similarity(queries, documents)), flat


def test_own_documents_are_scored_as_the_model_searches(model):
    data, scores, _ = texts_and_scores(model, 6)
    ends = [*itertools.accumulate(len(row["documents"]) for row in data)]
    loss = EncoderLoss(model, SoftNDCG(), scale=3.0, negatives="own").eval()
    each = [
        SoftNDCG()(3 * scores[i, start:end], torch.tensor(data[i]["labels"]))
        for i, (start, end) in enumerate(itertools.pairwise([0, *ends]))
    ]
    value = loss(*batch(model)).item()
    assert value == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)


def test_the_batchs_documents_are_negatives_but_for_the_same_texts(model):
    data, scores, flat = texts_and_scores(model, 12)
    numbers = [i for i, row in enumerate(data) for _ in row["documents"]]
    each = []
    for i, row in enumerate(data):
        others = [text for text in dict.fromkeys(flat) if text not in row["documents"]]
        own = [j for j, number in enumerate(numbers) if number == i]
        chosen = own + [flat.index(text) for text in others]
        labels = torch.tensor([*row["labels"], *[0] * len(others)])
        each.append(SoftmaxLoss()(scores[i, chosen], labels))
    assert len(dict.fromkeys(flat)) < len(flat)  # some texts stand in several lists
    found = EncoderLoss(model, SoftmaxLoss(), scale=1.0).eval()(*batch(model, 12)).item()
    assert found == pytest.approx(torch.stack(each).mean().item(), abs=1e-4)


@covering("size, negatives", named(1, 4, 100), named("own", "batch"))
def test_mini_batches_and_caching_change_nothing(dropout_model, negatives, size):
    loss = SoftNDCG(Stochastic(SoftSort(), samples=2))
    given = batch(dropout_model)
    options = {"negatives": negatives, "mini_batch_size": size}
    plain = value_and_gradient(EncoderLoss(dropout_model, loss, **options), *given)
    state = torch.get_rng_state()
    cached = value_and_gradient(EncoderLoss(dropout_model, loss, cached=True, **options), *given)
    assert cached[0] == plain[0]
    assert torch.equal(cached[1], plain[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert plain[1].abs().max() > 0


def test_mini_batches_have_the_value_of_one(model):
    values = [
        EncoderLoss(model.eval(), RankNet(), mini_batch_size=size)(*batch(model)).item()
        for size in (1, 3, 100)
    ]
    assert values == pytest.approx([values[0]] * 3, abs=1e-5)


def test_pairs_have_the_gradient_of_the_librarys_loss(model_path):
    model = encoder("dense", model_path)
    pairs = [(WORDS[i], f"{WORDS[i]} {WORDS[i + 1]}") for i in range(6)]
    data = [{"query": q, "documents": [d], "labels": [1]} for q, d in pairs]
    features, labels = of_rows(model, data)
    ours = value_and_gradient(EncoderLoss(model, SoftmaxLoss()), features, labels)
    plain = [{k: v for k, v in each.items() if k != "text_id"} for each in features]
    theirs = value_and_gradient(losses.MultipleNegativesRankingLoss(model), plain, None)
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("loss", [Distillation(), PairwiseMSE(), ADRMSE()])
def test_a_teachers_scores_are_not_beside_zeros_of_other_queries(model, loss):
    data = rows()
    low = [{**row, "labels": [label - 9.0 for label in row["labels"]]} for row in data]
    values = [EncoderLoss(model, loss).eval()(*of_rows(model, some)).item() for some in (data, low)]
    assert values[1] == pytest.approx(values[0], abs=1e-5)  # a teacher's logits have no zero point
    of_grades = EncoderLoss(model, loss, negatives="batch").eval()(*of_rows(model, data)).item()
    assert of_grades != pytest.approx(values[0], abs=1e-3)
    assert EncoderLoss(model, SoftmaxLoss()).negatives == "batch"


def test_half_precision_gives_float32_scores(model):
    with torch.autocast("cpu", torch.bfloat16):
        value = EncoderLoss(model, SoftmaxLoss())(*batch(model))
    assert value.dtype == torch.float32
    exact = EncoderLoss(model, SoftmaxLoss())(*batch(model)).item()
    assert value.item() == pytest.approx(exact, rel=0.1)


def test_texts_that_are_streams_of_tokens(model_path):
    tokenizer = encoder("dense", model_path)[0].processor
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    value, gradient = value_and_gradient(
        EncoderLoss(model, SoftmaxLoss(), mini_batch_size=2), *batch(model)
    )
    assert value > 0
    assert gradient.abs().max() > 0


def test_lists_are_evaluated_by_similarity(model):
    data, scores, _ = texts_and_scores(model, 12)
    ends = [*itertools.accumulate(len(row["documents"]) for row in data)]
    each = [
        ndcg(scores[i, start:end], torch.tensor(row["labels"]), top_k=10)
        for i, (row, (start, end)) in enumerate(
            zip(data, itertools.pairwise([0, *ends]), strict=True)
        )
    ]
    data.append({"query": "red", "documents": [], "labels": []})  # an empty list does not count
    found = evaluate_reranker(model, data, ["ndcg@10"], ties="stable")["ndcg@10"]
    assert found.mean == pytest.approx(torch.stack(each).mean().item(), abs=1e-6)


def test_a_named_prompt_is_for_the_queries(model_path):
    model = encoder("dense", model_path)
    model.prompts = {"odd": "far sleeps far "}
    odd = [{**row, "query": f"far sleeps far {row['query']}"} for row in rows(12)]
    named = evaluate_reranker(model, rows(12), ["ndcg@10"], prompt_name="odd")["ndcg@10"].mean
    assert named == pytest.approx(evaluate_reranker(model, odd, ["ndcg@10"])["ndcg@10"].mean)
    assert named != evaluate_reranker(model, rows(12), ["ndcg@10"])["ndcg@10"].mean


@pytest.mark.slow  # seconds of imports, and a training run of each class
def test_trainers_learn(model, tmp_path):
    from datasets import Dataset
    from sentence_transformers.multi_vector_encoder import (
        MultiVectorEncoderTrainer,
        MultiVectorEncoderTrainingArguments,
    )
    from sentence_transformers.sparse_encoder import (
        SparseEncoderTrainer,
        SparseEncoderTrainingArguments,
    )

    kinds = {
        SentenceTransformer: (SentenceTransformerTrainer, SentenceTransformerTrainingArguments),
        SparseEncoder: (SparseEncoderTrainer, SparseEncoderTrainingArguments),
        MultiVectorEncoder: (MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments),
    }
    trainer_class, arguments_class = kinds[type(model)]
    loss = EncoderLoss(model, SoftmaxLoss(), negatives="own")
    some = batch(model, 16, seed=1)  # the first lists of the training data
    before = loss.eval()(*some).item()
    data = Dataset.from_list(rows(200, seed=1))
    arguments = arguments_class(
        output_dir=str(tmp_path),
        num_train_epochs=4,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = trainer_class(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=ListCollator(model),
        loss=loss,
    )
    comparison = compare_training(trainer, rows(200, seed=1))
    assert comparison.models[1].difference.low > 0
    assert loss.eval()(*some).item() < 0.8 * before


def test_prompts_are_those_of_encode_query(model_path):
    model = encoder("dense", model_path)
    model.prompts = {"query": "red ", "document": "", "other": "x"}
    with_prompt = ListCollator(model)(rows(2))["query_input_ids"]
    plain = ListCollator(model, prompts={})(rows(2))["query_input_ids"]
    assert with_prompt.shape[1] == plain.shape[1] + 1
    expected = model.preprocess([f"red {row['query']}" for row in rows(2)])["input_ids"]
    assert torch.equal(with_prompt, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1.0]}, "labels must have one value for each document"),
        ({"labels": 1.0}, r"labels must be a tensor \(documents,\)"),
        ({"documents": "a text"}, "documents must be a list of texts"),
        ({"documents": [], "labels": []}, "documents must not all be empty"),
        ({"documents": [1, 2], "labels": [0, 1]}, "documents must be texts, got 1"),
        ({"documents": ["a", None]}, "documents must be texts, got None for the query 'red'"),
        ({"query": None}, "query must be texts, got None"),
        ({"query": ["red"]}, r"column of queries .* got a list for the query \['red'\]$"),
        ({"labels": ["1", "0"]}, r"labels must be numbers, got \['1', '0'\] for the query 'red'"),
        ({"labels": [1, None]}, r"labels must be numbers, got \[1, None\] for the query 'red'"),
        ({"more": "x"}, r"data must have a query.*'more'\]: choose three with .data\.select"),
        ({"labels": [float("nan"), 1.0]}, "labels must be finite"),
        ({"labels": [-1.0, 1.0]}, "labels must be >= 0"),
    ],
)
def test_bad_rows(model_path, change, message):
    model = encoder("dense", model_path)
    row = {"query": "red", "documents": ["red cat", "dog"], "labels": [1, 0], **change}
    with pytest.raises(ValueError, match=message):
        EncoderLoss(model, SoftmaxLoss())(*of_rows(model, [row]))


def test_one_document_and_no_relevant_one_add_nothing(model_path):
    model = encoder("dense", model_path)
    data = [
        {"query": "red", "documents": ["red cat"], "labels": [1]},
        {"query": "dog", "documents": ["dog", ""], "labels": [0, 0]},
    ]
    value = EncoderLoss(model, SoftmaxLoss(), negatives="own")(*of_rows(model, data))
    assert value.item() == 0


def test_bad_arguments(model_path):
    model = encoder("dense", model_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": nn.Linear(2, 2)}, "model must be a SentenceTransformer"),
        ({"loss": nn.MSELoss()}, "loss must be a RankingLoss"),
        ({"loss": SoftmaxLoss(reduction="none")}, "reduction must be"),
        ({"similarity": "maxsim"}, "similarity must be"),
        ({"scale": 0.0}, "scale must be"),
        ({"negatives": "all"}, "negatives must be"),
        ({"mini_batch_size": 0}, "mini_batch_size must be"),
        ({"cached": "yes"}, "cached must be"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            EncoderLoss(**{"model": model, "loss": LambdaLoss(), **change})
    with pytest.raises(ValueError, match="prompts must be of query or document, got 'passage'"):
        ListCollator(model, {"passage": "x"})
    tokens = model.preprocess(["red"])
    with pytest.raises(ValueError, match="data_collator must be"):
        EncoderLoss(model, SoftmaxLoss())([tokens, tokens], [torch.ones(1)])
    features, labels = batch(model)
    with pytest.raises(ValueError, match=r"labels must have a value for each of.*dispatch_batches"):
        EncoderLoss(model, SoftmaxLoss())(features, labels[1:])


def test_the_model_card_has_the_options(model):
    loss = EncoderLoss(model, SoftmaxLoss(), cached=True)
    found = loss.get_config_dict()
    assert found["loss"]["class_path"] == "ltr.losses.SoftmaxLoss"
    assert found["similarity"] in ("cosine", "dot", "maxsim")
    assert found["scale"] == (20.0 if found["similarity"] == "cosine" else 1.0)
    assert "ltr-torch" in loss.citation

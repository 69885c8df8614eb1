"""Metrics of rerankers: the library's numbers, with intervals."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder.evaluation import (
    CrossEncoderNanoBEIREvaluator,
    CrossEncoderRerankingEvaluator,
)
from torch import nn

from ltr.integrations import (
    CollapseAlarm,
    CrossEncoderLoss,
    compare_training,
    evaluate_reranker,
)
from ltr.losses import SoftmaxLoss
from ltr.reports import evaluate

from .conftest import corpus

# what torch says of the data loader without an accelerator
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")


@pytest.fixture
def model(model_path: str) -> CrossEncoder:
    return CrossEncoder(model_path, device="cpu")


def samples(lists: int = 12) -> list[dict[str, Any]]:
    """The toy corpus with binary labels, as the library's evaluators take it."""
    found = []
    for query, documents, labels in zip(*corpus(lists).values(), strict=True):
        rated = [*zip(documents, labels, strict=True)]
        found.append(
            {"query": query, "positive": [d for d, y in rated if y], "documents": documents}
        )
    return found


@pytest.mark.parametrize("always", [True, False])
def test_ndcg_is_the_librarys_with_an_interval(model, always):
    given = samples()
    given[0]["positive"] = ["red cat", *given[0]["positive"]]  # one that was not retrieved
    given[1]["positive"] = ["red cat"]
    given[2]["documents"] = given[2]["documents"] * 2  # ties
    evaluator = CrossEncoderRerankingEvaluator(
        given, at_k=3, always_rerank_positives=always, name="toy", write_csv=False
    )
    expected = evaluator(model)["toy_ndcg@3"]
    found = evaluate_reranker(model, evaluator, ["ndcg@3"])
    assert found["ndcg@3"].mean == pytest.approx(expected, abs=1e-6)
    assert found["ndcg@3"].low < found["ndcg@3"].mean < found["ndcg@3"].high
    assert found.qids == [f"toy {i}" for i in range(12)]


def test_samples_with_negatives(model):
    given = [
        {"query": "red cat", "positive": "red cat", "negative": ["dog", "bird"]},
        {"query": "blue dog", "positive": ["blue dog", "dog"], "negative": ["far"]},
    ]
    evaluator = CrossEncoderRerankingEvaluator(given, write_csv=False)
    found = evaluate_reranker(model, evaluator, ["ndcg@10"])
    assert found["ndcg@10"].mean == pytest.approx(evaluator(model)["ndcg@10"], abs=1e-6)


def test_a_model_of_equal_scores_gets_no_credit_for_the_order(model):
    with torch.no_grad():
        model[0].auto_model.classifier.weight.zero_()
    given = [{"query": "red", "positive": ["red"], "negative": ["dog"] * 9}]
    evaluator = CrossEncoderRerankingEvaluator(given, write_csv=False)
    found = evaluate_reranker(model, evaluator, ["ndcg@10"])["ndcg@10"].mean
    assert found == pytest.approx(np.mean(1 / np.log2(np.arange(2, 12))))


def nano_beir(folder: Any) -> None:
    """Write two data sets in NanoBEIR's form, to be loaded from the disk."""
    configs = []
    for split, lists in (("NanoMSMARCO", samples(8)), ("NanoNQ", samples(12)[8:])):
        texts = sorted({d for one in lists for d in one["documents"]})
        parts = {
            "corpus": [{"_id": text, "text": text} for text in texts],
            "queries": [{"_id": str(i), "text": one["query"]} for i, one in enumerate(lists)],
            "qrels": [
                {"query-id": str(i), "corpus-id": d}
                for i, one in enumerate(lists)
                for d in one["positive"]
            ],
            "bm25": [
                {"query-id": str(i), "corpus-ids": one["documents"]} for i, one in enumerate(lists)
            ],
        }
        for name, rows in parts.items():
            (folder / name).mkdir(exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / name / f"{split}.jsonl").write_text(text)
    for name in ("corpus", "queries", "qrels", "bm25"):
        configs += [f"- config_name: {name}", "  data_files:"]
        for split in ("NanoMSMARCO", "NanoNQ"):
            configs += [f"  - split: {split}", f"    path: {name}/{split}.jsonl"]
    (folder / "README.md").write_text("\n".join(["---", "configs:", *configs, "---", ""]))


@pytest.mark.slow  # two data sets are read from files, and a model is evaluated twice
def test_nano_beir_from_the_disk(model, tmp_path):
    nano_beir(tmp_path)
    evaluator = CrossEncoderNanoBEIREvaluator(
        ["msmarco", "nq"], dataset_id=str(tmp_path), write_csv=False
    )
    results = evaluator(model)
    found = evaluate_reranker(model, evaluator, ["ndcg@10"])
    names = ("NanoMSMARCO_R100", "NanoNQ_R100")
    by_set = found.per_list["ndcg@10"].groupby(lambda qid: qid.partition(" ")[0]).mean()
    assert [by_set[name] for name in names] == pytest.approx(
        [results[f"{name}_ndcg@10"] for name in names], abs=1e-6
    )
    assert len(found.qids) == 12


def test_graded_labels_in_the_form_of_training(model):
    data = corpus(12)
    scores, labels, qid = [], [], []
    for i, (query, documents, own) in enumerate(zip(*data.values(), strict=True)):
        pairs = [(query, d) for d in documents]
        scores += model.predict(pairs, activation_fn=nn.Identity()).tolist()
        labels += own
        qid += [i] * len(own)
    expected = evaluate(labels, scores, qid, ["ndcg@5", "map"], gain="linear", ties="expected")
    rows = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    for given in (Dataset.from_dict(data), rows):
        found = evaluate_reranker(model, given, ["ndcg@5", "map"], gain="linear")
        for name in ("ndcg@5", "map"):
            assert found[name] == pytest.approx(expected[name], abs=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a file", r"^data must be a reranking evaluator or a data set, got 'a file'"),
        (3, r"^data must be a reranking evaluator or a data set, got 3"),
        (
            [{"query": "a", "documents": ["b"]}],
            r"^data must have .*'documents'\] in row 0$",
        ),
        ([{"query": "a", "label": [1]}], r"^data must have .*\['query', 'label'\] in row 0$"),
        (
            [{"qid": 1, "query": "a", "d": ["b"], "label": [1]}],
            r"^data must have .*'label'\] in row 0: choose three with .data\.select",
        ),
        ([{"d": ["b"], "query": "a", "label": [1]}], r"^the column of queries must stand before"),
        (
            [{"query": "a", "d": [None], "label": [1]}],
            r"^documents must be texts, got None in row",
        ),
        (
            [{"query": "a", "d": ["b"], "label": ["1"]}],
            r"^label must be numbers, got \['1'\] in",
        ),
        ([{"query": "a", "d": ["b"], "label": [None]}], r"^label must be numbers, got \[None\] in"),
        ([{"query": "a", "d": ["b"], "label": [1, 2]}], r"^label must have one value .*2 for 1"),
        ([], r"^data must have at least one document, got none"),
        ([3], r"^data must have a dict in each row, got 3 in row 0"),
        ([{"query": "a", "d": "bc", "label": [1, 2]}], r"^documents must be a list .* 'bc' in row"),
        ([{"query": "a", "d": ["b"], "label": None}], r"^label must be a list .* got None in row"),
    ],
)
def test_wrong_data(model, data, message):
    with pytest.raises(ValueError, match=message):
        evaluate_reranker(model, data)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf")])
def test_a_wrong_label_is_named_by_its_row(model, wrong):
    good = {"query": "a", "d": ["b", "c", "d"], "label": [1, 0, 0]}
    with pytest.raises(ValueError, match=r"^label must be finite and >= 0, got .* in row 1$"):
        evaluate_reranker(model, [good, {**good, "label": [1, 0, wrong]}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": None}, r"^sample 1 must have the key 'query', got \['positive', 'negative'\]"),
        ({"positive": None}, r"^sample 1 must have the key 'positive'"),
        ({"negative": None}, r"^sample 1 must have exactly one of the keys 'negative' and 'docu"),
        ({"documents": ["c"]}, r"^sample 1 must have exactly one .*'negative', 'documents'\]$"),
        ({"documents": []}, r"^sample 1 must have exactly one"),
        ({"negative": "cat"}, r"^sample 1 must have a list in 'negative', got 'cat'"),
    ],
)
def test_samples_without_the_keys(model, change, message):
    good = {"query": "a", "positive": ["b"], "negative": ["c"]}
    bad = {key: value for key, value in {**good, **change}.items() if value is not None}
    data = CrossEncoderRerankingEvaluator([good, bad], write_csv=False)
    with pytest.raises(ValueError, match=message):
        evaluate_reranker(model, data)
    with pytest.raises((ValueError, TypeError), match=r"key|exactly|concatenate"):  # as the library
        data(model)


def test_a_sample_of_no_documents(model):
    sample = {"query": "a", "positive": ["b"], "documents": []}
    data = CrossEncoderRerankingEvaluator([sample], write_csv=False)
    with pytest.raises(ValueError, match=r"^sample 0 must have at least one of 'documents'"):
        evaluate_reranker(model, data)


def test_a_model_of_another_class_is_an_error():
    with pytest.raises(ValueError, match=r"^model must be a CrossEncoder, Sent.* got a Linear"):
        evaluate_reranker(nn.Linear(2, 1), [{"query": "a", "d": ["b"], "label": [1]}])


def test_a_wrong_batch_size_is_an_error(model):
    with pytest.raises(ValueError, match="batch_size"):
        evaluate_reranker(model, [{"query": "a", "d": ["b"], "label": [1]}], batch_size=0)


def test_one_list_is_too_few_before_training(model):
    trainer = SimpleNamespace(model=model, train=lambda **_: pytest.fail("trained"))
    with pytest.raises(ValueError, match="at least 2 lists"):
        compare_training(trainer, [{"query": "a", "d": ["b", "c"], "label": [1, 0]}])


def test_one_call_trains_and_compares(model, tmp_path):
    data = Dataset.from_dict(corpus(16))
    loss = SoftmaxLoss()
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=15,
        per_device_train_batch_size=8,
        learning_rate=5e-3,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    alarm = CollapseAlarm(loss, window=5)
    trainer = CrossEncoderTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=CrossEncoderLoss(model, loss),
        callbacks=[alarm],
    )
    held_out = CrossEncoderRerankingEvaluator(samples(16), write_csv=False)
    before = evaluate_reranker(model, held_out)["ndcg@10"]
    found = compare_training(trainer, held_out, resamples=1000)
    assert [one.name for one in found.models] == ["before", "after"]
    assert found.models[0].mean.mean == before.mean
    assert found.models[1].mean.mean == evaluate_reranker(model, held_out)["ndcg@10"].mean
    assert found.models[1].difference.low > 0
    assert trainer.state.global_step == 30
    assert alarm.largest > 0.1  # it has read the scores
    assert not alarm.warned

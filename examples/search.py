"""Search end to end: a first stage finds candidates, a reranker trained on such lists orders them.

    python examples/search.py MODEL lists.jsonl --top 50

MODEL and the file are as in rerank_text.py; the last fifth of the queries is held out.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments as Arguments

from ltr.integrations import CrossEncoderLoss
from ltr.losses import SoftmaxLoss
from ltr.reports import evaluate


def main(argv: list[str] | None = None):
    """Train, and print the first stage's recall and NDCG@10 of both stages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    for name, default in {"top": 50, "epochs": 1, "lr": 5e-5}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    end = len(rows) * 4 // 5
    documents = sorted({text for row in rows for text in row["documents"]})
    grades = [dict(zip(row["documents"], row["labels"], strict=True)) for row in rows]
    labels = torch.tensor([[own.get(text, 0.0) for text in documents] for own in grades])
    model, lists = CrossEncoder(options.model, num_labels=1), []
    table = next(p for name, p in model.named_parameters() if "word_embeddings" in name).detach()
    texts = [*[row["query"] for row in rows], *documents]
    tokens = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    vectors = torch.nn.functional.normalize(torch.stack([table[own].mean(0) for own in tokens]))
    scores = (vectors[: len(rows)] @ vectors[len(rows) :].T).cpu()  # cosines of the means
    top = scores.topk(min(options.top, len(documents))).indices
    for row, own, y in zip(rows, top, labels, strict=True):
        own = torch.cat([own, y.nonzero()[:, 0]]).unique()  # with the relevant ones that it missed
        lists.append({"query": row["query"], "documents": [documents[i] for i in own]})
        lists[-1]["labels"] = y[own].tolist()
    how = Arguments("runs/search", num_train_epochs=options.epochs, learning_rate=options.lr)
    loss = CrossEncoderLoss(model, SoftmaxLoss(), mini_batch_size=16, cached=True)
    CrossEncoderTrainer(model, how, Dataset.from_list(lists[:end]), loss=loss).train()
    qid = torch.arange(len(rows) - end).repeat_interleave(len(documents))
    y, names = labels[end:].ravel(), ["ndcg@10", f"recall@{options.top}"]
    first = evaluate(y, scores[end:].ravel(), qid, names, name="first stage")
    for row, own, new in zip(rows[end:], top[end:], scores[end:], strict=True):
        new[own] = 2 + torch.tensor(model.predict([(row["query"], documents[i]) for i in own]))
    second = evaluate(y, scores[end:].ravel(), qid, names, name="reranked")
    print(first, second, comparison := first.compare(second), sep="\n\n")
    return comparison


if __name__ == "__main__":
    main()

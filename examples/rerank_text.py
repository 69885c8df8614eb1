"""Fine-tune a text reranker with a loss of ltr in Hugging Face's Trainer.

    python examples/rerank_text.py MODEL data.jsonl --output runs/reranker

MODEL is the name or folder of a model for sequence classification. Each line of the file is a list:

    {"query": "...", "documents": ["...", "..."], "labels": [2, 0]}

The last fifth is held out. Needs pip install 'ltr-torch[text]'. For a CrossEncoder of
sentence-transformers, `ltr.integrations.CrossEncoderLoss` does the same in less code.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer

from ltr.integrations import CollapseAlarm
from ltr.losses import SoftmaxLoss
from ltr.metrics import Comparison
from ltr.reports import Evaluation, evaluate


class Collator:
    """Makes a batch of whole lists: a row of tokens for each document, with its label and qid."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, lists: list[dict]) -> dict[str, torch.Tensor]:
        """Return the tokens (N, t) and `labels` (N, 2): the label, and the list's number."""
        documents = [text for row in lists for text in row["documents"]]
        queries = [row["query"] for row in lists for _ in row["documents"]]
        labels = [(y, i) for i, row in enumerate(lists) for y in row["labels"]]
        how = {"truncation": True, "padding": True, "return_tensors": "pt"}
        tokens = self.tokenizer(queries, documents, **how)
        return {**tokens, "labels": torch.tensor(labels, dtype=torch.float32)}


def scored(model, collator: Collator, lists: list[dict], name: str) -> Evaluation:
    """Return NDCG@10 of a model; each list is scored alone."""
    model, scores = model.eval(), []
    for row in lists:
        batch = {key: x.to(model.device) for key, x in collator([row]).items()}
        del batch["labels"]
        with torch.no_grad():
            scores += model(**batch).logits[:, 0].tolist()
    labels, qid = zip(*[(y, i) for i, row in enumerate(lists) for y in row["labels"]], strict=True)
    return evaluate(labels, scores, qid, ["ndcg@10"], ties="expected", name=name)


def main(argv: list[str] | None = None) -> Comparison:
    """Train, and print NDCG@10 on the held-out lists before and after."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", default="runs/reranker")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--lists", type=int, default=8, help="in a batch")
    parser.add_argument("--lr", type=float, default=2e-5)
    options = parser.parse_args(argv)
    transformers.set_seed(0)
    lists = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    end = len(lists) * 4 // 5
    collator = Collator(AutoTokenizer.from_pretrained(options.model))
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=1)
    loss = SoftmaxLoss()

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return loss(outputs.logits[:, 0], labels[:, 0], qid=labels[:, 1].long())

    trainer = Trainer(
        model,
        transformers.TrainingArguments(
            output_dir=options.output,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.lists,
            learning_rate=options.lr,
            remove_unused_columns=False,  # the collator reads all columns
        ),
        data_collator=collator,
        train_dataset=Dataset.from_list(lists[:end]),
        compute_loss_func=compute_loss,
        callbacks=[CollapseAlarm(loss)],
    )
    trainer.loss_is_scaled_for_ga = False  # a mean over the lists of one accumulated batch
    before = scored(model, collator, lists[end:], "before")
    trainer.train()
    trainer.save_model()
    comparison = before.compare(scored(model, collator, lists[end:], "after"))
    print(comparison)
    return comparison


if __name__ == "__main__":
    main()

"""Fine-tune a text reranker with a loss of ltr in Hugging Face's Trainer.

python examples/rerank_text.py MODEL data.jsonl --output runs/reranker

A line of the file is a list: {"query": "...", "documents": ["...", "..."], "labels": [2, 0]}
The last fifth is held out. It needs ltr-torch[text]. search.py does it with a CrossEncoder.
"""

import argparse

import torch
import transformers
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder

from ltr.integrations import CollapseAlarm, evaluate_reranker
from ltr.losses import SoftmaxLoss


def main(argv: list[str] | None = None):
    """Train, and print NDCG@10 on the held-out lists before and after."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data")
    for name, default in {"output": "runs/reranker", "epochs": 1.0, "lr": 2e-5}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args(argv)
    transformers.set_seed(0)
    lists, loss = Dataset.from_json(given.data).train_test_split(0.2, shuffle=False), SoftmaxLoss()
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    classifier = transformers.AutoModelForSequenceClassification
    model = classifier.from_pretrained(given.model, num_labels=1)

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        pairs = [(row["query"], text) for row in rows for text in row["documents"]]
        labels = [(label, i) for i, row in enumerate(rows) for label in row["labels"]]
        tokens = tokenizer(pairs, truncation=True, padding=True, return_tensors="pt")
        return {**tokens, "labels": torch.tensor(labels, dtype=torch.float32)}

    def compute_loss(outputs, labels, num_items_in_batch=None):
        return loss(outputs.logits[:, 0], labels[:, 0], qid=labels[:, 1].long())

    def evaluated(name: str):
        trainer.save_model(folder := f"{given.output}/{name}")
        return evaluate_reranker(CrossEncoder(folder), lists["test"], ["ndcg@10"], name=name)

    options = {"num_train_epochs": given.epochs, "learning_rate": given.lr}
    settings = transformers.TrainingArguments(given.output, remove_unused_columns=False, **options)
    options = {"processing_class": tokenizer, "callbacks": [CollapseAlarm(loss)]}
    options |= {"data_collator": collate, "compute_loss_func": compute_loss}
    trainer = transformers.Trainer(model, settings, train_dataset=lists["train"], **options)
    trainer.loss_is_scaled_for_ga = False  # a mean over the lists of one accumulated batch
    before = evaluated("before")
    trainer.train()
    print(comparison := before.compare(evaluated("after")))
    return comparison


if __name__ == "__main__":
    main()

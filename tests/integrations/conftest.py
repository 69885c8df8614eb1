"""A tiny transformer with its tokenizer, and a toy corpus; nothing is downloaded."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

WORDS = ["red", "green", "blue", "cat", "dog", "bird", "sings", "runs", "sleeps", "near", "far"]


def save_model(folder: Path, dropout: float = 0.0, seed: int = 0) -> str:
    """Write a BERT of two layers and a tokenizer of single words; return the folder's path."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    known = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])],
    )
    PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=32, **special).save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(known),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model without dropout."""
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def dropout_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model with much dropout."""
    return save_model(tmp_path_factory.mktemp("dropout"), dropout=0.3)


def corpus(lists: int = 16, seed: int = 0) -> dict[str, list[Any]]:
    """Return queries of two words and documents; the label is the number of the query's words."""
    draw = random.Random(seed)
    found: dict[str, list[Any]] = {"query": [], "documents": [], "labels": []}
    for number in range(lists):
        query = draw.sample(WORDS, 2)
        others = [word for word in WORDS if word not in query]
        documents, labels = [], []
        for position in range(2 + number % 5):
            label = position % 3
            words = draw.sample(query, label) + draw.sample(others, 1 + draw.randrange(4))
            draw.shuffle(words)
            documents.append(" ".join(words))
            labels.append(label)
        found["query"].append(" ".join(query))
        found["documents"].append(documents)
        found["labels"].append(labels)
    return found

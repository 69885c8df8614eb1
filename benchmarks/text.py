"""Losses of rerankers beside sentence-transformers' own: time of a step, and memory with caching.

    python benchmarks/text.py

A batch is 32 queries of 8 to 200 documents, 3,328 in all. `given logits` is a step in which the
model only hands out scores: it is the time of the loss, with what both libraries do around it.
`whole` is a step of a small BERT (2 layers of width 64, texts of 30 words), scored 16 documents at
a time. Memory is the peak of a step of that model, for one query of 16 and of 100 documents, and
for the batch. Needs pip install 'ltr-torch[text]'; nothing is downloaded. Takes ten minutes; writes
benchmarks/results/text.json.
"""

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import sentence_transformers
import torch
import transformers
from measure import RESULTS, environment, peak_memory, rounded, times, write
from sentence_transformers.cross_encoder import CrossEncoder, losses
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from ltr.integrations import CrossEncoderLoss
from ltr.losses import LambdaLoss, ListNet, SoftmaxLoss, SoftNDCG

QUERIES, SHORTEST, LONGEST, MINI_BATCH = 32, 8, 200, 16
WORDS = [f"word{number}" for number in range(500)]


class Given(CrossEncoder):
    """A model that hands out the scores of its parameter: document i has score i."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, documents: int):
        nn.Module.__init__(self)  # without the files of a model
        self.logits = nn.Parameter(torch.randn(documents))

    def preprocess(self, inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the numbers of the documents."""
        return {"rows": torch.tensor([int(document) for _, document in inputs])}

    def forward(self, input: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Return their scores."""
        return {"scores": self.logits[input["rows"]].unsqueeze(1)}


def small_model() -> CrossEncoder:
    """Return a BERT of two layers with random weights, dropout and a tokenizer of single words."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    special |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    known = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    words = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, known[name]) for name in ("[CLS]", "[SEP]")],
    )
    config = BertConfig(
        vocab_size=len(known),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        num_labels=1,
    )
    with TemporaryDirectory() as folder:
        PreTrainedTokenizerFast(
            tokenizer_object=words, model_max_length=64, **special
        ).save_pretrained(folder)
        BertForSequenceClassification(config).save_pretrained(folder)
        return CrossEncoder(folder, device="cpu").train()


def batch(sizes: list[int], text: bool) -> tuple[list[Any], list[Tensor]]:
    """Return queries, their documents (texts, or numbers as text) and labels from 0 to 3."""
    draw = random.Random(0)
    phrase = lambda length: " ".join(draw.choices(WORDS, k=length))  # noqa: E731
    numbers = map(str, range(sum(sizes)))
    documents = [[phrase(30) if text else next(numbers) for _ in range(n)] for n in sizes]
    labels = [torch.tensor(draw.choices(range(4), weights=[6, 2, 1, 1], k=n)) for n in sizes]
    return [[phrase(4) for _ in sizes], documents], labels


def step(loss: nn.Module, given: tuple[Any, ...]) -> Callable[[], None]:
    """Return a function that does a forward and a backward pass."""

    def run() -> None:
        loss.zero_grad()
        loss(*given).backward()

    return run


def losses_of(model: Any, size: int, more: bool) -> dict[str, nn.Module]:
    """Return the contestants by name; `more` adds losses that the library does not have."""
    ours: dict[str, Any] = {"ListNet": ListNet(), "LambdaLoss": LambdaLoss()}
    ours |= (
        {"SoftmaxLoss": SoftmaxLoss(), 'SoftNDCG(mean="harmonic")': SoftNDCG(mean="harmonic")}
        if more
        else {}
    )
    return {
        **{f"ltr {name}": CrossEncoderLoss(model, loss, size) for name, loss in ours.items()},
        "library ListNetLoss": losses.ListNetLoss(model, mini_batch_size=size),
        "library LambdaLoss": losses.LambdaLoss(model, mini_batch_size=size),
    }


def main() -> None:
    """Measure, print and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--longest", type=int, default=LONGEST)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "text.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = torch.linspace(SHORTEST, options.longest, options.queries).round().int().tolist()
    versions = {
        "sentence-transformers": sentence_transformers.__version__,
        "transformers": transformers.__version__,
    }
    result: dict[str, Any] = {"environment": environment() | versions}
    result |= {"queries": options.queries, "documents": sum(sizes), "mini_batch": MINI_BATCH}

    given = batch(sizes, text=False)
    contestants = losses_of(Given(sum(sizes)), sum(sizes), more=True)
    calls = {name: step(loss, given) for name, loss in contestants.items()}
    found = times(calls, 4 * options.rounds)
    memory = {name: peak_memory(call) for name, call in calls.items()}
    result["given logits"] = {
        name: {"seconds": rounded(found[name]), "MiB": rounded(memory[name] / 2**20)}
        for name in calls
    }
    for name, row in result["given logits"].items():
        print(f"given logits  {name:24} {1e3 * row['seconds']:9.2f} ms {row['MiB']:9.2f} MiB")

    model = small_model()
    given = batch(sizes, text=True)
    contestants = losses_of(model, MINI_BATCH, more=False)
    contestants["ltr ListNet, cached"] = CrossEncoderLoss(model, ListNet(), MINI_BATCH, cached=True)
    found = times({name: step(loss, given) for name, loss in contestants.items()}, options.rounds)
    result["whole"] = {name: {"seconds": rounded(seconds)} for name, seconds in found.items()}
    for name, seconds in found.items():
        print(f"whole         {name:24} {seconds:9.2f} s", flush=True)

    result["memory"] = []
    several = {"16 documents": [16], "100 documents": [100], "the batch": sizes}
    for kind, lengths in several.items():
        given = batch(lengths, text=True)
        for cached in (False, True):
            run = step(CrossEncoderLoss(model, ListNet(), MINI_BATCH, cached), given)
            run()
            mib = rounded(peak_memory(run) / 2**20)
            result["memory"].append({"lists": kind, "cached": cached, "MiB": mib})
            print(f"memory        {kind}, {cached=} {mib:9.2f} MiB", flush=True)
    write(options.output, result)


if __name__ == "__main__":
    main()

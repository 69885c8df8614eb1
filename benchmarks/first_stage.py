"""Search in a dictionary: a first stage finds candidates, a trained reranker orders them.

    pip install bm25s
    python benchmarks/first_stage.py MODEL LISTS

MODEL and LISTS are those of benchmarks/rerankers.py. The documents are all entries of all lists, a
word and a gloss of one of its senses. The query is a word in a sentence, and the entry of its sense
is relevant. First stages: BM25, "static" (the cosine of the means of the model's token embeddings,
each times the token's idf), and both, by reciprocal rank fusion of their top `DEEP`. Rerankers
order the top `TOP` of the fused list; the rest of the list keeps its order:

- "trained on senses": the lists of benchmarks/rerankers.py, where all entries are of the word;
- "trained on candidates": the same queries, each with the relevant entry and the first others that
  the first stage retrieves.

Both see equally many lists, at most `LONGEST` documents a list, and `LOSS`. The seed draws the
training lists, the new last layer and dropout; the first stages draw nothing, and have the same
result under each seed. A result is the position of the relevant entry for each query (the last of
tied ones); what is in benchmarks/results/first_stage.json is not run again. Comparisons are paired
over the queries, with the mean of a query over the seeds, as in benchmarks/rerankers.py. It takes
half an hour of one core for a seed, and half of that with `--bfloat16`, on a processor that
multiplies in it.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bm25s  # pyright: ignore[reportMissingImports]
import numpy as np
import rerankers
import torch
from measure import RESULTS, environment, rounded, write
from rerankers import Row
from sentence_transformers.cross_encoder import CrossEncoder
from torch import nn

from ltr.rerank import fuse

RESULT = RESULTS / "first_stage.json"
LOSS = "SoftmaxLoss()"
TOP, DEEP, LONGEST = 50, 200, 8
FUSED = "BM25 and static, fused"
SENSES, CANDIDATES = "trained on senses", "trained on candidates"
STAGES = ("BM25", "static", FUSED, SENSES, CANDIDATES)
RECALLS = (1, 10, TOP)


def entry(row: Row, document: str) -> str:
    """Return the entry of a gloss.

    >>> entry({"lemma": "ice_cream.n"}, "frozen dessert")
    'ice cream: frozen dessert'
    """
    return f"{row['lemma'].rpartition('.')[0].replace('_', ' ')}: {document}"


def relevant(row: Row) -> str:
    """Return the entry of the sense that the sentence has."""
    return entry(row, row["documents"][row["labels"].index(1)])


class BM25:
    """The index of the documents, with bm25s' defaults."""

    def __init__(self, documents: list[str]):
        self.index = bm25s.BM25()
        self.index.index(self.tokens(documents), show_progress=False)

    def tokens(self, texts: list[str]) -> list[list[str]]:
        """Return the words of each text."""
        return bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)

    def __call__(self, queries: list[str]) -> np.ndarray:
        """Return the scores (queries, documents)."""
        return np.stack([self.index.get_scores(words) for words in self.tokens(queries)])


class Static:
    """The means of the model's token embeddings, each times the idf of its token."""

    def __init__(self, model: CrossEncoder, documents: list[str]):
        network: Any = model.model
        self.table = network.get_input_embeddings().weight.detach().numpy()
        self.tokenizer = model.tokenizer
        held = np.zeros(len(self.table))
        for own in self.tokens(documents):
            held[np.unique(own)] += 1
        self.idf = np.log((1 + len(documents)) / (1 + held)).astype(np.float32)
        self.documents = self.means(documents)

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]

    def means(self, texts: list[str]) -> np.ndarray:
        """Return one vector of length 1 for each text."""
        found = np.stack([self.idf[own] @ self.table[own] for own in self.tokens(texts)])
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def __call__(self, queries: list[str]) -> np.ndarray:
        """Return the scores (queries, documents)."""
        return self.means(queries) @ self.documents.T


def best(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the documents with the highest scores of each query, the best one first.

    >>> best(np.array([[0.1, 0.3, 0.2]]), 2)
    array([[1, 2]])
    """
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def fused(stages: list[np.ndarray]) -> np.ndarray:
    """Return reciprocal rank fusion of the top `DEEP` of each stage; 0 for all other documents."""
    found = np.zeros(stages[0].shape)
    for number in range(len(found)):
        runs = []
        for scores in stages:
            own = best(scores[number : number + 1], DEEP)[0]
            run = np.full(found.shape[1], np.nan)
            run[own] = scores[number, own]
            runs.append(run)
        some = np.flatnonzero(~np.isnan(runs).all(axis=0))
        found[number, some] = fuse([run[some] for run in runs])
    return found


def positions(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of the wanted document of each query, the last of tied ones.

    >>> positions(np.array([[0.1, 0.3, 0.3]]), np.array([1]))
    array([2])
    """
    return (scores >= np.take_along_axis(scores, wanted[:, None], 1)).sum(1)


def order(first: np.ndarray, candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return scores of all documents by which the candidates come first, in their new order.

    >>> order(np.array([[0.1, 0.3, 0.2]]), np.array([[1, 2]]), np.array([[-5.0, -1.0]])).argsort()
    array([[0, 1, 2]])
    """
    found = first.copy()
    lift = found.max() + 1 - scores.min(axis=1, keepdims=True)
    np.put_along_axis(found, candidates, scores + lift, axis=1)
    return found


def hard_lists(rows: list[Row], documents: list[str], first: np.ndarray) -> list[Row]:
    """Return each query with its relevant entry and the first others of the first stage."""
    found = []
    for row, own in zip(rows, best(first, LONGEST), strict=True):
        right = relevant(row)
        others = [documents[i] for i in own if documents[i] != right][: LONGEST - 1]
        labels = [1] + [0] * len(others)
        found.append({"query": row["query"], "documents": [right, *others], "labels": labels})
    return found


def summary(trials: list[Row], lists: int) -> list[Row]:
    """Return the metrics of each stage with rerankers of this number of training lists."""
    rows = rerankers.summary(trials, lists, FUSED, STAGES)
    for row in rows:
        own = [one for one in trials if (one["loss"], one["lists"]) == (row["loss"], lists)]
        row |= recalls(own, RECALLS)
        row["query_ms"] = rounded(float(np.median([one["query_ms"] for one in own])))
    return rows


def recalls(trials: list[Row], cutoffs: Sequence[int]) -> Row:
    """Return the recall at each cutoff over all trials, and the MRR of each trial.

    >>> recalls([{"positions": "1 2"}, {"positions": "1 4"}], [2])
    {'recall': {'2': 0.75}, 'seed_mrr': [0.75, 0.625]}
    """
    each = [rerankers.numbers(trial["positions"]) for trial in trials]
    return {
        "recall": {str(k): rounded(float((np.stack(each) <= k).mean())) for k in cutoffs},
        "seed_mrr": [rounded(float((1 / at).mean())) for at in each],
    }


def main() -> None:
    """Measure the stages that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path, metavar="LISTS")
    parser.add_argument("--lists", type=int, default=4000, help="to train on")
    parser.add_argument("--queries", type=int, default=500, help="of the test lists")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--bfloat16", action="store_true", help="train under torch.autocast")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rerankers.prepare(options.model)
    splits = {name: rerankers.read(options.folder, name) for name in ("train", "val", "test")}
    every = {
        entry(row, text) for rows in splits.values() for row in rows for text in row["documents"]
    }
    documents = sorted(every)
    number = {text: i for i, text in enumerate(documents)}
    test = random.Random(0).sample(splits["test"], options.queries)
    queries = [row["query"] for row in test]
    wanted = np.array([number[relevant(row)] for row in test])
    trials: list[Row] = []
    if options.output.exists():
        trials = json.loads(options.output.read_text())["trials"]

    def is_there(name: str, seed: int) -> bool:
        done = {(one["loss"], one["seed"], one["lists"]) for one in trials}
        return (name, seed, options.lists) in done

    def save() -> None:
        sizes = sorted({one["lists"] for one in trials})
        kept = {
            "environment": environment() | rerankers.versions() | {"bm25s": bm25s.__version__},
            "documents": len(documents),
            "queries": len(test),
            "candidates": TOP,
            "training": {"loss": LOSS, "documents": LONGEST},
            "summary": {str(size): summary(trials, size) for size in sizes},
            "trials": trials,
        }
        write(options.output, kept)

    def add(name: str, seed: int, at: np.ndarray, seconds: float, step: float = 0.0) -> None:
        if is_there(name, seed):
            return
        found = {"loss": name, "seed": seed, "lists": options.lists, "step_seconds": rounded(step)}
        found["precision"] = "bfloat16" if options.bfloat16 else "float32"
        found["query_ms"] = rounded(1000 * seconds / len(test))
        trials.append(found | {"positions": " ".join(map(str, at))})
        recall = (at <= TOP).mean()
        print(f"{name}, seed {seed}: MRR {(1 / at).mean():.3f}, recall {recall:.3f}", flush=True)
        save()

    def timed(call: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
        start = time.process_time()
        return call(), time.process_time() - start

    stages = {
        "BM25": BM25(documents),
        "static": Static(rerankers.encoder(options.model), documents),
    }
    scored = {name: timed(lambda stage=stage: stage(queries)) for name, stage in stages.items()}
    first, seconds = timed(lambda: fused([scores for scores, _ in scored.values()]))
    scored[FUSED] = first, seconds + sum(spent for _, spent in scored.values())
    candidates = best(first, TOP)
    pairs = [(q, documents[i]) for q, own in zip(queries, candidates, strict=True) for i in own]

    def score(model: CrossEncoder) -> np.ndarray:
        how = {"batch_size": 64, "show_progress_bar": False, "activation_fn": nn.Identity()}
        return np.asarray(model.predict(pairs, **how)).reshape(candidates.shape)

    for seed in options.seeds:
        for name, (scores, seconds) in scored.items():
            add(name, seed, positions(scores, wanted), seconds)
        train = random.Random(seed).sample(splits["train"], options.lists)
        for name in (SENSES, CANDIDATES):
            if is_there(name, seed):
                continue
            rows = [row | {"documents": [entry(row, x) for x in row["documents"]]} for row in train]
            rows = [rerankers.shortened(row, LONGEST) for row in rows]
            if name == CANDIDATES:
                asked = [row["query"] for row in train]
                retrieved = fused([stage(asked) for stage in stages.values()])
                rows = hard_lists(train, documents, retrieved)
            torch.manual_seed(seed)
            model = rerankers.encoder(options.model)
            step = rerankers.trained(model, f"ltr {LOSS}", rows, options.bfloat16)
            scores, seconds = timed(lambda model=model: score(model))
            add(name, seed, positions(order(first, candidates, scores), wanted), seconds, step)
    save()


if __name__ == "__main__":
    main()

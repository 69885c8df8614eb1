"""A student of two layers, trained on labels or on a teacher's scores: MRR and seconds.

    python benchmarks/distillation.py MODEL LISTS --cache runs/teacher

MODEL and LISTS are those of benchmarks/rerankers.py, and a trial is one of it, with a smaller
model: the student has the embeddings and the first two of the six layers. The teacher has all six.
It is trained with `TEACHER` for one epoch over twice as many lists. The folder of `--cache` keeps
its weights.

A student's trial of 2,000 lists takes some three minutes. "labels" are losses of the labels;
"teacher" those of the teacher's scores of the same documents. Nothing else differs.

The positions of the relevant documents of the test lists are kept in
benchmarks/results/distillation.json, one trial a line, and what is there is not run again.
Comparisons are paired over the test lists, as in benchmarks/rerankers.py.
"""

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import rerankers
import torch
from measure import RESULTS, environment, rounded, write
from rerankers import NONE, Row
from sentence_transformers.cross_encoder import CrossEncoder
from torch import nn

RESULT = RESULTS / "distillation.json"
LAYERS = 2
TEACHER = "SoftmaxLoss()"
BASE = "labels SoftmaxLoss()"
STUDENTS = (
    NONE,
    BASE,
    "labels LambdaLoss()",
    "teacher PairwiseMSE()",
    "teacher Distillation()",
    "teacher ADRMSE()",
)
CONTESTANTS = ("the teacher", *STUDENTS)


def student(folder: Path) -> CrossEncoder:
    """Return the model with its first layers alone, and a new last layer."""
    model = rerankers.encoder(folder)
    network: Any = model.model
    network.bert.encoder.layer = network.bert.encoder.layer[:LAYERS]
    network.config.num_hidden_layers = LAYERS
    return model


def trained_teacher(folder: Path, train: list[Row], cache: Path) -> tuple[CrossEncoder, float]:
    """Return the teacher and the CPU seconds of its step; train it if the cache has none."""
    seconds = cache / "seconds.json"
    if not seconds.exists():
        torch.manual_seed(0)
        model = rerankers.encoder(folder)
        rows = [rerankers.shortened(row, rerankers.LONGEST) for row in train]
        step = rerankers.trained(model, f"ltr {TEACHER}", rows)
        model.save_pretrained(str(cache))
        seconds.write_text(json.dumps(step))
    model = CrossEncoder(str(cache), max_length=rerankers.TOKENS, device="cpu")
    return model, json.loads(seconds.read_text())


def scored(model: CrossEncoder, rows: list[Row]) -> list[Row]:
    """Return the lists with the model's scores as labels."""
    pairs = [(row["query"], text) for row in rows for text in row["documents"]]
    scores = model.predict(
        pairs, batch_size=64, show_progress_bar=False, activation_fn=nn.Identity()
    )
    own = iter(scores.tolist())
    return [row | {"labels": [next(own) for _ in row["documents"]]} for row in rows]


def scoring(model: CrossEncoder, rows: list[Row]) -> float:
    """Return the CPU seconds of scoring 1,000 documents."""
    start = time.process_time()
    scored(model, rows)
    documents = sum(len(row["documents"]) for row in rows)
    return rounded((time.process_time() - start) / documents * 1000)


def main() -> None:
    """Run the trials that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path, metavar="LISTS")
    parser.add_argument("--cache", type=Path, required=True, help="the teacher's folder")
    parser.add_argument("--students", nargs="+", default=STUDENTS, choices=STUDENTS)
    parser.add_argument("--lists", type=int, default=2000)
    parser.add_argument("--teacher-lists", type=int, default=4000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rerankers.prepare(options.model)
    train, test = (rerankers.read(options.folder, split) for split in ("train", "test"))
    result: dict[str, Any] = {"trials": [], "scoring": {}}
    if options.output.exists():
        result = json.loads(options.output.read_text())

    def save() -> None:
        # the teacher is compared too: with the students of each seed, though it saw other lists
        seeds = sorted({one["seed"] for one in result["trials"] if one["loss"] == BASE})
        same = [
            one | {"lists": options.lists, "seed": seed}
            for one in result["trials"]
            for seed in (seeds if one["loss"] == "the teacher" else [one["seed"]])
        ]
        kept = {
            "environment": environment() | rerankers.versions(),
            "test_lists": len(test),
            "student": {"layers": LAYERS, "lists": options.lists},
            "teacher": {"loss": TEACHER, "lists": options.teacher_lists},
            "scoring": result["scoring"],
            "summary": rerankers.summary(same, options.lists, BASE, CONTESTANTS),
            "trials": result["trials"],
        }
        write(options.output, kept)

    def add(found: Row) -> None:
        result["trials"].append(found)
        mrr = float((1 / rerankers.numbers(found["positions"])).mean())
        print(f"{found['loss']}, seed {found['seed']}: MRR {mrr:.3f}", flush=True)
        save()

    done = {(one["loss"], one["seed"]) for one in result["trials"]}
    taught: dict[int, list[Row]] = {}
    teacher = None
    if any(name.startswith("teacher") for name in options.students):
        lists = random.Random(0).sample(train, options.teacher_lists)
        teacher, step = trained_teacher(options.model, lists, options.cache)
        if ("the teacher", 0) not in done:
            found = {"loss": "the teacher", "seed": 0, "lists": options.teacher_lists}
            found["precision"] = "float32"
            found["step_seconds"] = rounded(step)
            found["positions"] = " ".join(map(str, rerankers.positions(teacher, test)))
            add(found)
        if not result["scoring"]:
            models = {"teacher": teacher, "student": student(options.model)}
            result["scoring"] = {name: scoring(one, test[:100]) for name, one in models.items()}
    for seed in options.seeds:
        lists = random.Random(seed).sample(train, options.lists)
        lists = [rerankers.shortened(row, rerankers.LONGEST) for row in lists]
        for name in options.students:
            if (name, seed) in done:
                continue
            kind, _, loss = name.partition(" ")
            rows = lists
            if kind == "teacher":
                assert teacher is not None
                taught[seed] = rows = taught.get(seed) or scored(teacher, lists)
            own = f"ltr {loss}" if loss else NONE
            add(rerankers.trial(own, seed, options.model, rows, test, student) | {"loss": name})
    save()


if __name__ == "__main__":
    main()

"""Where the time of a fit goes: CPU seconds of `NeuralRanker()` by parts, on generated tables.

    python benchmarks/fit_parts.py --tables noise steps
    python benchmarks/fit_parts.py --columns 25 100

The functions of each part are wrapped by a clock, and a part's seconds leave out those of the parts
that it calls. What the choice of columns and the validation call counts as theirs. "first layer" is
the product of the binned columns with the weights of all members, and in "backward" that with the
gradient of its output. Takes a minute a table.

With `--columns`, CPU milliseconds of one training step of 64 lists of 25 rows, as it is and by the
tries of `tries.py`, which take turns.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tries
from generated_tables import TABLES, generated_table, grades
from measure import RESULTS, environment, rounded, times, write
from torch import Tensor

from ltr.datasets.coded import Coded
from ltr.estimators import NeuralRanker, neural_ranker, training
from ltr.losses import XENDCG
from ltr.models.coded import CodedLinear, level_rows
from ltr.models.dropout import Dropout

CHOICE = "choice of the kind and of relative columns"
WHOLE = (CHOICE, "choice of columns: a member", "choice of columns: shuffling", "validation")
"""Parts to which everything belongs that they call, but these parts themselves."""

STEPS = ("OneProduct", "Bfloat16", "OneProductBfloat16", "Autocast", "OneLayer", "Compiled")
"""The tries of a step."""


class Clock:
    """Sums up the CPU seconds of parts that may call each other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.stack = ["the rest"]
        self.last = time.process_time()

    def switch(self) -> None:
        """Count the time since the last switch."""
        now = time.process_time()
        self.seconds[self.stack[-1]] += now - self.last
        self.last = now

    def wrap(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose time counts as that of a part."""

        def timed(*args: Any, **named: Any) -> Any:
            self.switch()
            inside = self.stack[-1] in WHOLE and part not in WHOLE
            self.stack.append(self.stack[-1] if inside else part)
            try:
                return call(*args, **named)
            finally:
                self.switch()
                self.stack.pop()

        return timed


class Product(torch.autograd.Function):
    """The first layer's product; the numbers need a gradient if embeddings are trained."""

    clock: Clock

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the product."""
        ctx.save_for_backward(numbers, weight)
        product = Product.clock.wrap("first layer, forward", torch.nn.functional.linear)
        return product(numbers, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the gradients of the numbers, the weight and the bias."""
        (numbers, weight), (gradient,) = ctx.saved_tensors, gradients
        product = Product.clock.wrap("first layer, backward", torch.mm)
        below = product(gradient, weight) if ctx.needs_input_grad[0] else None
        return below, product(gradient.t(), numbers), gradient.sum(0)


def first_layer(self: CodedLinear, given: Tensor | Coded) -> Tensor:
    """Return what `CodedLinear` returns, timed."""
    if isinstance(given, Tensor):
        return Product.apply(given, self.weight, self.bias)
    numbers, levels = self.weight.split([self.in_features - given.width, given.width], dim=1)
    out = Product.apply(given.numbers, numbers, self.bias)
    return sum(level_rows(levels.t(), given.codes), out)


def parts(table: str, rows: int, seed: int) -> dict[str, float]:
    """Return the CPU seconds of each part of a fit, the longest first."""
    fold = generated_table(table, rows, seed)
    clock = Product.clock = Clock()
    patched: list[tuple[Any, str, Any]] = []
    for owner, name, part in (
        (neural_ranker, "choose_settings", CHOICE),
        (NeuralRanker, "_select", "choice of columns: a member"),
        (neural_ranker, "choose_columns", "choice of columns: shuffling"),
        (training, "fit_documents", "fitting of the bins"),
        (training, "transformed", "binning or embedding, forward"),
        (training, "all_finite", "check of the gradients"),
        (training.Training, "_validate", "validation"),
        (training.Training, "_loss", "other layers, forward"),
        (XENDCG, "forward", "loss, forward"),
        (Dropout, "forward", "dropout, forward"),
        (torch.nn.Linear, "forward", "second layer and last, forward"),
        (torch.Tensor, "backward", "other layers and loss, backward"),
        (torch.optim.AdamW, "step", "optimizer"),
    ):
        patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, clock.wrap(part, getattr(owner, name)))
    patched.append((CodedLinear, "forward", CodedLinear.forward))
    CodedLinear.forward = first_layer
    train, val = fold.train, fold.val
    try:
        ranker = NeuralRanker(random_state=seed, verbose=0)
        held: dict[str, Any] = {"eval_set": [(val.X, val.y)], "eval_qid": [val.qid]}
        clock.last = time.process_time()
        ranker.fit(train.X, train.y, qid=train.qid, **held)
        clock.switch()
    finally:
        for owner, name, original in patched:
            setattr(owner, name, original)
    return dict(sorted(clock.seconds.items(), key=lambda pair: -pair[1]))


def steps(columns: int) -> dict[str, float]:
    """Return the CPU milliseconds of a training step of five members, by each try."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4000, columns)).astype(np.float32)
    y = grades(X[:, :5].sum(1) + draw.normal(size=4000))
    calls: dict[str, Callable[[], Any]] = {}
    plain = tries.kind()
    kinds = {"NeuralRanker": plain, **{x: tries.TRIES[x] for x in STEPS}}
    for name, kind in kinds.items():
        made: list[Any] = []

        class Kept(kind.by):
            def run(self, *given: Any, made: list[Any] = made) -> None:
                made[:] = [self, given[0].__getitems__(range(64))]
                super().run(*given)

        ranker = tries.kind(Kept)(members=5, max_epochs=1, random_state=0, verbose=0)
        ranker.fit(X, y, qid=np.arange(4000) // 25)
        by, batch = made
        by.parts.train()
        by.planned = 10**9
        calls[name] = partial(_step, by, batch, kind.bfloat16)
    return {name: 1000 * seconds for name, seconds in times(calls, 20).items()}


def _step(by: Any, batch: dict[str, Any], bfloat16: bool) -> None:
    with tries.bfloat16_products() if bfloat16 else nullcontext():
        by._step(batch, 0, 0)


def main() -> None:
    """Measure and write, beside what the file has."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="*", default=["noise", "steps"], choices=TABLES)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", nargs="*", type=int, default=[])
    parser.add_argument("--output", type=Path, default=RESULTS / "fit_parts.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    kept = {"fits": [], "steps": [], **kept, "environment": environment()}
    for columns in given.columns:
        found = {name: rounded(x) for name, x in steps(columns).items()}
        kept["steps"] = [one for one in kept["steps"] if one["columns"] != columns]
        kept["steps"].append({"columns": columns, "milliseconds": found})
        print(kept["steps"][-1], flush=True)
    for table in () if given.columns else given.tables:
        found = {part: rounded(x) for part, x in parts(table, given.rows, 100).items()}
        kept["fits"] = [one for one in kept["fits"] if one["table"] != table]
        kept["fits"].append({"table": table, "rows": given.rows, "seconds": found})
        print(kept["fits"][-1], flush=True)
    write(given.output, kept)


if __name__ == "__main__":
    main()

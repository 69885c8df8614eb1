"""Tries of cheaper or other `NeuralRanker`s, as rankers for `large_tables.py`.

`Bfloat16` and the others of training differ from `NeuralRanker` in how a step is computed, and take
its arguments. `rare(ranker, fewest)` changes the columns of a ranker. None of them is in the
package, unless it was worth it; see `docs/quality.md`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.datasets.coded import Coded
from ltr.estimators import NeuralRanker, parameters, training
from ltr.estimators.parameters import Choice
from ltr.models.coded import level_rows
from ltr.models.scorer import transformed

Training = training.Training


def layers_of(copy: Any) -> nn.Sequential:
    """Return the layers of a member."""
    return copy.layers


def together(layers: list[nn.Linear], given: Tensor | Coded) -> Tensor:
    """Return the outputs (N, outputs of all) of the members' first layers in one product."""
    weight = torch.cat([one.weight for one in layers])
    bias = torch.cat([one.bias for one in layers])
    if isinstance(given, Tensor):
        return functional.linear(given, weight, bias)
    numbers, levels = weight.split([weight.shape[1] - given.width, given.width], dim=1)
    out = functional.linear(given.numbers, numbers, bias)
    return sum(level_rows(levels.t().to(out.dtype), given.codes), out)


def inputs(training_: Any, batch: dict[str, Any]) -> Tensor | Coded:
    """Return the members' input."""
    given = batch["features"], None, batch.get("categories"), batch["lengths"]
    return transformed(training_.scorer, training_.transform, *given)


class OneProduct(Training):
    """The members' first layers are one product."""

    def _scores(self, batch: dict[str, Any]) -> Tensor:
        stacks = [layers_of(self.scorer.copies[i]) for i in self.active]
        first = together([one[0] for one in stacks], inputs(self, batch))
        parts = first.chunk(len(stacks), -1)
        return torch.stack([one[1:](x).squeeze(-1) for one, x in zip(stacks, parts, strict=True)])


class OneLayer(Training):
    """The members have the weights of one first layer together, and stop together."""

    def __init__(self, settings: Any, scorer: Any, *given: Any) -> None:
        stacks = [layers_of(one) for one in scorer.copies]
        for one in stacks:
            one[0] = stacks[0][0]
        super().__init__(settings, scorer, *given)
        self.best = [training._Best([*self.active], nn.ModuleList(scorer.copies))]

    def _scores(self, batch: dict[str, Any]) -> Tensor:
        stacks = [layers_of(self.scorer.copies[i]) for i in self.active]
        first = stacks[0][0](inputs(self, batch))
        return torch.stack([one[1:](first).squeeze(-1) for one in stacks])


class Compiled(Training):
    """The members are compiled by `torch.compile`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        for one in self.scorer.copies:
            for layer in layers_of(one)[1:]:
                layer.compile(dynamic=True)


class Autocast(Training):
    """The layers compute in bfloat16 by autocast."""

    def _scores(self, batch: dict[str, Any]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super()._scores(batch).float()


class Decayed(Training):
    """The weights of the levels have a weight decay of their own."""

    factor = 1.0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.levels = int(getattr(self.transform, "_codes", 0))

    def _step(self, *given: Any) -> None:
        super()._step(*given)
        if self.levels:
            rate = self.optimizer.param_groups[0]["lr"] * self.factor
            with torch.no_grad():
                for one in self.scorer.copies:
                    layers_of(one)[0].weight[:, -self.levels :].mul_(1 - rate)


class Dropped(Training):
    """A level counts as missing in a fraction of the rows that are trained on."""

    fraction = 0.1

    def _loss(self, batch: dict[str, Any]) -> Tensor:
        if "categories" in batch:
            codes = batch["categories"]
            kept = torch.rand(codes.shape) >= self.fraction
            batch = {**batch, "categories": codes * kept}
        return super()._loss(batch)


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Multiply float32 matrices in bfloat16, with sums in float32, where the CPU has AMX."""
    options: Any = torch.backends.mkldnn.matmul
    before = options.fp32_precision
    options.fp32_precision = "bf16"
    try:
        yield
    finally:
        options.fp32_precision = before


class Try(NeuralRanker):
    """A `NeuralRanker` that is trained by another class, or chooses columns in another way."""

    by: ClassVar[type[Training]] = Training
    bfloat16: ClassVar[bool] = False
    choice: ClassVar[Choice] = Choice()

    def fit(self, *given: Any, **named: Any) -> Any:
        """Train."""
        training.Training = self.by
        parameters.Choice = lambda **_: self.choice
        try:
            with bfloat16_products() if self.bfloat16 else nullcontext():
                return super().fit(*given, **named)
        finally:
            training.Training = Training
            parameters.Choice = Choice


def kind(by: type[Training] = Training, **attributes: Any) -> type[Try]:
    """Return a class of rankers."""
    return type("Tried", (Try,), {"by": by, **attributes})


def choosing(lists: int, epochs: int, steps: int, **attributes: Any) -> type[Try]:
    """Return rankers that choose columns at another price."""
    return kind(choice=Choice(lists, epochs, steps), **attributes)


def rare(ranker: Any, fewest: int, own: bool = False) -> Any:
    """Return a ranker for which levels of fewer training rows count as missing.

    With `own`, they and unseen ones are one level of their own.
    """
    found = Rare(**ranker.get_params())
    found.fewest, found.own = fewest, own
    return found


class Rare(NeuralRanker):
    """See `rare`."""

    fewest = 1
    own = False
    levels: dict[str, pd.Index]

    def fit(self, X: Any, y: Any = None, **given: Any) -> Any:
        """Train."""
        self.levels = {}
        for name in X.columns[X.dtypes == "category"]:
            counts = X[name].value_counts()
            self.levels[name] = counts.index[counts >= self.fewest]
        ((X_val, y_val),) = given.pop("eval_set")
        return super().fit(self.seen(X), y, eval_set=[(self.seen(X_val), y_val)], **given)

    def predict(self, X: Any, *given: Any, **named: Any) -> np.ndarray:
        """Return the scores."""
        return super().predict(self.seen(X), *given, **named)

    def seen(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the columns with the levels that were kept."""
        columns = {}
        for name, kept in self.levels.items():
            values = X[name].astype(object)
            rest = "rare" if self.own else None
            values = values.where(X[name].isin(kept) | X[name].isna(), rest)
            columns[name] = pd.Categorical(values)
        return X.assign(**columns)


def level_decay(factor: float) -> type[Try]:
    """Return rankers with a decay of the levels' weights."""
    return kind(type("Decay", (Decayed,), {"factor": factor}))


def level_dropout(fraction: float) -> type[Try]:
    """Return rankers that drop levels in training."""
    return kind(type("Drop", (Dropped,), {"fraction": fraction}))


TRIES: dict[str, Any] = {
    "Bfloat16": kind(bfloat16=True),
    "OneProduct": kind(OneProduct),
    "OneProductBfloat16": kind(OneProduct, bfloat16=True),
    "OneLayer": kind(OneLayer),
    "Compiled": kind(Compiled),
    "Autocast": kind(Autocast),
    "choosing": choosing,
    "level_decay": level_decay,
    "level_dropout": level_dropout,
    "rare": rare,
}
"""By their names in expressions."""

"""Side inputs, such as position and protected, reach the loss with their documents."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from ltr.datasets import (
    ListDataModule,
    ListDataset,
    NoTransform,
    TableDataModule,
    collate_lists,
    collate_ragged,
    convert,
)
from ltr.losses import ExposureParity, ListNet, Penalized, RankingLoss, SoftmaxLoss, Unbiased
from ltr.models import LinearScorer
from ltr.modules import Ranker
from ltr.operators import SigmoidRank

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*`isinstance.treespec, LeafSpec.*"
)
LISTS, COLLATE = 40, {"ragged": collate_ragged, "padded": collate_lists}


def trainer(folder: Path, **options: Any) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    return Trainer(**{**quiet, "max_epochs": 2, **options})


def frame(seed: int = 0) -> pd.DataFrame:
    """Lists of several lengths, in a random order of rows; the label tells the side inputs."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(LISTS), rng.integers(1, 9, LISTS))
    position = pd.Series(query).groupby(query).cumcount() + 1
    table = pd.DataFrame({"query": query, "x": rng.normal(size=len(query)), "shown": position})
    table["kind"] = -2.0 * table["shown"]
    table["label"] = table["shown"]
    return table.sample(frac=1, random_state=seed)


def lists(table: pd.DataFrame, **columns: str) -> ListDataset:
    """The rows as lists, with side inputs of some columns."""
    table = table.sort_values("query", kind="stable")
    offsets = np.r_[0, np.cumsum(table.groupby("query").size())]
    kinds = {"position": np.int64, "protected": np.float32}
    return ListDataset(
        table[["x"]].to_numpy(np.float32),
        table["label"].to_numpy(np.float32),
        offsets,
        [f"q{i}" for i in range(LISTS)],
        **{name: table[column].to_numpy(kinds[name]) for name, column in columns.items()},
    )


class Compare(RankingLoss):
    """Keeps whether each item had the side inputs that its label tells."""

    side_inputs = ("position", "protected")

    def __init__(self) -> None:
        super().__init__()
        self.right: list[bool] = []

    def per_list(self, scores, labels, mask, weights, position=None, protected=None):
        assert position is not None
        assert protected is not None
        right = (position == labels) & (protected == -2 * labels)
        self.right += right[torch.ones_like(right) if mask is None else mask].tolist()
        return (scores - scores.detach()).sum(-1)


class Module(ListDataModule):
    """Training lists of a data set, and the same to validate on."""

    def __init__(self, data: ListDataset, bucket: bool) -> None:
        super().__init__(batch_size=3, transform=NoTransform(), seed=1)
        self.data, self.bucket = data, bucket

    def load_splits(self) -> dict[str, ListDataset]:
        return {"train": self.data, "val": self.data}


def table_module(table: pd.DataFrame, kind: str, folder: Path) -> TableDataModule:
    uses: dict[str, Any] = {
        "qid": "query",
        "label": "label",
        "position": "shown",
        "protected": "kind",
    }
    source: Any = table
    if kind == "store":
        table.to_parquet(folder / "t.parquet", index=False)
        convert(folder / "t.parquet", source := folder / "t.lists", **uses)
    return TableDataModule(source, **uses, validation=0.3, batch_size=3)


@pytest.mark.parametrize("form", ["padded", "ragged", "shuffled", "bucketed", "frame", "store"])
def test_each_item_keeps_its_side_inputs(tmp_path: Path, form: str):
    table, loss = frame(), Compare()
    ranker = Ranker(LinearScorer(1), loss)
    data = lists(table, position="shown", protected="kind")
    fit = trainer(tmp_path)
    if form in COLLATE:
        options = {"batch_size": 3, "collate_fn": COLLATE[form]}
        fit.fit(ranker, DataLoader(data, shuffle=True, **options), DataLoader(data, **options))
    elif form in ("shuffled", "bucketed"):
        fit.fit(ranker, datamodule=Module(data, bucket=form == "bucketed"))
    else:
        fit.fit(ranker, datamodule=table_module(table, form, tmp_path))
    assert len(loss.right) > 2 * len(table)
    assert all(loss.right)


def test_an_epoch_that_is_cut_short(tmp_path: Path):
    loss = Compare()
    data = Module(lists(frame(), position="shown", protected="kind"), bucket=True)
    trainer(tmp_path, limit_train_batches=2).fit(Ranker(LinearScorer(), loss), datamodule=data)
    assert loss.right
    assert all(loss.right)


def weight_of(scorer: LinearScorer) -> torch.Tensor:
    [weight] = (x for name, x in scorer.named_parameters() if name.endswith("weight"))
    return weight


def weight_after(folder: Path, loss: RankingLoss, data: ListDataset, form: str) -> float:
    scorer = LinearScorer(1)
    torch.nn.init.zeros_(weight_of(scorer))
    ranker = Ranker(scorer, loss, {}, partial(torch.optim.SGD, lr=0.5))
    whole = DataLoader(data, batch_size=LISTS, collate_fn=COLLATE[form])
    trainer(folder, max_epochs=10).fit(ranker, whole, whole)
    return weight_of(scorer).item()


def clicks(seed: int = 0) -> pd.DataFrame:
    """Lists in which relevance rises with x, shown in another order, clicked if seen."""
    rng = np.random.default_rng(seed)
    table = frame(seed).assign(constant=1)
    relevant = rng.random(len(table)) < 1 / (1 + np.exp(-2 * table["x"]))
    seen = rng.random(len(table)) < 1 / table["shown"]
    return table.assign(label=(relevant & seen).astype(int))


def weight_by_hand(loss: RankingLoss, table: pd.DataFrame, **columns: str) -> float:
    """The plain definition of `weight_after`: the loss of all lists, step by step."""
    table = table.sort_values("query", kind="stable")
    x, y, *side = (torch.tensor(table[c].to_numpy()) for c in ("x", "label", *columns.values()))
    more = {
        "lengths": table.groupby("query").size().tolist(),
        **dict(zip(columns, side, strict=True)),
    }
    weight = torch.zeros((), requires_grad=True)
    for _ in range(10):
        [gradient] = torch.autograd.grad(loss(weight * x.float(), y, **more), weight)
        weight = (weight - 0.5 * gradient).detach().requires_grad_()
    return weight.item()


@pytest.mark.parametrize("form", [*COLLATE])
def test_unbiased_learns_from_the_positions(tmp_path: Path, form: str):
    table, loss = clicks(), Unbiased(SoftmaxLoss())
    found = weight_after(tmp_path, loss, lists(table, position="shown"), form)
    # each click counts 1 / propensity, divided by the number of clicks in its list
    number = table.groupby("query")["label"].transform("sum").clip(lower=1)
    table = table.assign(weight=table["shown"] / number)
    expected = weight_by_hand(SoftmaxLoss(normalize=False), table, weights="weight")
    assert found == pytest.approx(expected, abs=1e-5)
    equal = weight_after(tmp_path, loss, lists(table, position="constant"), form)
    assert equal == pytest.approx(weight_by_hand(SoftmaxLoss(), table), abs=1e-5)
    assert abs(found - equal) > 0.01


@pytest.mark.parametrize("form", [*COLLATE])
def test_a_penalty_takes_protected_and_not_the_labels(tmp_path: Path, form: str):
    table = clicks().assign(minority=lambda t: (t["x"] > 0).astype(float))
    loss = Penalized(ListNet(), ExposureParity(SigmoidRank(1.0)), strength=20.0)
    found = weight_after(tmp_path, loss, lists(table, protected="minority"), form)
    assert found == pytest.approx(weight_by_hand(loss, table, protected="minority"), abs=1e-5)
    assert abs(found - weight_by_hand(loss, table, protected="label")) > 0.01


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        (Unbiased(SoftmaxLoss()), r"Unbiased .*'position'.*position.*--data\.position.*'position'"),
        (
            Penalized(ListNet()),
            r"Penalized .*'protected'.*protected.*--data\.protected.*'protected'",
        ),
        (Penalized(Unbiased()), "Penalized .*'position'"),
    ],
)
@pytest.mark.parametrize("sanity", [0, 2])
def test_one_that_is_missing_is_an_error_before_the_first_step(tmp_path, loss, named, sanity):
    scorer = LinearScorer(1)
    before = weight_of(scorer).item()
    loader = DataLoader(lists(clicks()), batch_size=4, collate_fn=collate_ragged)
    ranker = Ranker(scorer, loss, {}, partial(torch.optim.SGD, lr=0.5))
    with pytest.raises(ValueError, match=named):
        trainer(tmp_path, num_sanity_val_steps=sanity).fit(ranker, loader, loader)
    assert weight_of(scorer).item() == before


def test_a_test_needs_none(tmp_path: Path):
    table = frame()
    ranker = Ranker(LinearScorer(), Unbiased(Penalized(ListNet())))
    trainer(tmp_path).fit(ranker, datamodule=table_module(table, "frame", tmp_path))
    new = table.drop(columns=["shown", "kind"])
    [tested] = trainer(tmp_path).test(ranker, datamodule=TableDataModule(test_path=new))
    assert tested["test_mrr"] > 0


def test_a_loss_of_ones_own_names_the_key_of_the_batch(tmp_path: Path):
    class Aged(RankingLoss):
        side_inputs = ("age",)

        def per_list(self, scores, labels, mask, weights, age=None):
            return (scores * age).sum(-1)

    batch = lists(clicks()).__getitems__(range(5))
    loader = DataLoader([batch], batch_size=None)  # pyright: ignore
    with pytest.raises(ValueError, match=r"Aged .*'age'"):
        trainer(tmp_path).fit(Ranker(LinearScorer(1), Aged(), {}), loader, loader)
    batch["age"] = torch.ones_like(batch["labels"])
    trainer(tmp_path).fit(Ranker(LinearScorer(1), Aged(), {}), loader, loader)

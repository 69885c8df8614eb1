"""What the forms of `SeveralLabels` keep and cost, beside labels that are added up.

    LTR_DATA=data python benchmarks/several_labels.py

Two labels, A and B, of the same documents:

- "shop": generated; A are clicks, B purchases, which are rare and depend on other columns. Each
  seed has its own table of 1,000 lists to train on, 500 to choose by and 500 to test.
- "MQ2008": A is the grade, B the third of the list in which a document's last column lies; that
  column is left out. Seed s has fold s % 5.
- "MSLR-WEB10K, part": A is the grade; B is 1 for any clicks on the page (column 135), and 2 for
  more than the median of those; columns 134 to 136, of clicks and their time, are left out.

All train the same network in a plain loop with `XENDCG`, and keep the epoch that is best on the
validation lists: by NDCG@10 of the label, of the sum of labels, or by `SeveralLabels.quality`.
"added up" trains on A + B. The floor is .01 below the NDCG of A that "A alone" has on the
validation lists. benchmarks/results/several_labels.json has NDCG@10 of both labels on the test
lists, means over the seeds; the difference from "added up", paired by list, with its 95 % interval;
and in how many seeds the test lists hold the floor, and come within .01 of it.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, environment, rounded, write
from quality_sets import Lists, load
from torch import Tensor

from ltr.losses import XENDCG, SeveralLabels
from ltr.metrics import compare
from ltr.metrics.functional import ndcg
from ltr.models import MLPScorer

RESULT = RESULTS / "several_labels.json"
SEEDS, EPOCHS, LISTS = 10, 12, 32
MARGIN = 0.01
NAMES = ("A", "B")
FORMS: dict[str, dict[str, Any]] = {
    "A alone": {"weights": (1.0, 0.0)},
    "added up": {},
    "sum, 1 : 1": {"weights": (1.0, 1.0)},
    "sum, 1 : 4": {"weights": (1.0, 4.0)},
    "largest, 1 : 1": {"weights": (1.0, 1.0), "how": "chebyshev"},
    "floor for A": {"weights": (1.0, 1.0), "how": "floor"},
}

Part = tuple[Tensor, Tensor, Tensor]
"""Features (rows, columns), labels (rows, 2) and lengths (lists,)."""


def shop(seed: int) -> list[Part]:
    """Return lists of 20 documents with clicks and purchases."""
    draw = np.random.default_rng(seed)
    parts = []
    attracts, sells = draw.normal(size=(2, 12)) / 12**0.5
    for lists in (1000, 500, 500):
        x = draw.normal(size=(lists * 20, 12))
        chance = [1 / (1 + np.exp(2 - 2 * x @ attracts)), 1 / (1 + np.exp(2 - 3 * x @ sells))]
        click = draw.random(len(x)) < chance[0]
        purchase = click & (draw.random(len(x)) < chance[1])
        parts.append(part(x, click, purchase, np.full(lists, 20)))
    return parts


def part(x: np.ndarray, a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> Part:
    """Return arrays as tensors."""
    labels = np.stack([a, b], 1)
    return (
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.float32),
        torch.tensor(lengths),
    )


def thirds(lists: Lists) -> Part:
    """Return the lists of MQ2008 with the thirds of the last column as second label."""
    x, last = lists.X[:, :-1], lists.X[:, -1]
    labels = np.zeros(len(last))
    for rows in np.split(np.arange(len(last)), lists.lengths.cumsum()[:-1]):
        labels[rows] = (last[rows].argsort(kind="stable").argsort() * 3) // len(rows)
    return part(x, lists.y, labels, lists.lengths)


def visited(lists: Lists, median: float) -> Part:
    """Return the lists of MSLR with clicks on the page as second label."""
    clicks = lists.X[:, 134]
    x = np.log1p(np.abs(lists.X[:, :133])) * np.sign(lists.X[:, :133])
    return part(x, lists.y, (clicks > 0) + 1.0 * (clicks > median), lists.lengths)


def parts_of(data: str, seed: int) -> list[Part]:
    """Return the training, validation and test lists of a set, standardized by the first."""
    if data == "shop":
        parts = shop(seed)
    else:
        folds = load(data)
        fold = folds[seed % len(folds)]
        three = [fold.train, fold.val, fold.test]
        clicks = fold.train.X[:, -2]
        median = float(np.median(clicks[clicks > 0])) if data != "MQ2008" else 0.0
        parts = [thirds(x) if data == "MQ2008" else visited(x, median) for x in three]
    mean, deviation = parts[0][0].mean(0), parts[0][0].std(0).clamp(min=1e-6)
    return [(((x - mean) / deviation).clamp(-5, 5), y, lengths) for x, y, lengths in parts]


def per_list(scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Return NDCG@10 of each label and list, NaN for lists without a relevant document."""
    options: dict[str, Any] = {
        "top_k": 10,
        "lengths": lengths,
        "reduction": "none",
        "empty": "skip",
    }
    return torch.stack([ndcg(scores, own, **options) for own in labels.unbind(-1)])


def trained(parts: list[Part], form: str, floor: float, seed: int) -> tuple[Tensor, list[float]]:
    """Return NDCG@10 of both labels on each test list, and the means on the validation lists."""
    torch.manual_seed(seed)
    (x, y, lengths), (val_x, val_y, val_lengths), test = parts
    options = dict(FORMS[form])
    together = None
    if options:
        weights = options.pop("weights")
        floors = {"A": floor} if options.get("how") == "floor" else None
        pairs = {name: (XENDCG(), w) for name, w in zip(NAMES, weights, strict=True)}
        together = SeveralLabels(pairs, floors=floors, **options)
    summed = XENDCG()
    model = MLPScorer(hidden=(64, 32))
    model.build(x.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ends = lengths.cumsum(0)
    best, quality, chosen = copy.deepcopy(model.state_dict()), -np.inf, [0.0, 0.0]
    for _ in range(EPOCHS):
        for lists in torch.randperm(len(lengths)).split(LISTS):
            rows = torch.cat([torch.arange(ends[i] - lengths[i], ends[i]) for i in lists])
            scores, own = model(x[rows]), y[rows]
            if together is None:
                loss = summed(scores, own.sum(-1), lengths=lengths[lists])
            else:
                loss = together(scores, own, lengths=lengths[lists])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores = model(val_x)
            means = per_list(scores, val_y, val_lengths).nanmean(1).tolist()
            if together is None:
                value = float(per_list(scores, val_y.sum(-1, keepdim=True), val_lengths).nanmean())
            else:
                named = dict(zip(NAMES, means, strict=True))
                value = together.quality(named)
                together.update(named)
        if value > quality:
            best, quality, chosen = copy.deepcopy(model.state_dict()), value, means
    model.load_state_dict(best)
    with torch.no_grad():
        return per_list(model(test[0]), test[1], test[2]), chosen


def measured(data: str, seeds: int) -> list[dict[str, Any]]:
    """Return a row for each form."""
    lists: dict[str, list[Tensor]] = {form: [] for form in FORMS}
    floors = []
    for seed in range(seeds):
        parts = parts_of(data, seed)
        floor = 0.0
        for form in FORMS:
            found, chosen = trained(parts, form, floor, seed)
            if form == "A alone":
                floor = chosen[0] - MARGIN
                floors.append(floor)
            lists[form].append(found)
    rows = []
    for form, own in lists.items():
        each, base = torch.cat(own, 1), torch.cat(lists["added up"], 1)
        row: dict[str, Any] = {"data": data, "form": form}
        for k, name in enumerate(NAMES):
            known = ~each[k].isnan()
            row[name] = rounded(float(each[k][known].mean()))
            if form != "added up":
                difference = (
                    compare(base[k][known].numpy(), each[k][known].numpy()).models[1].difference
                )
                assert difference is not None
                row[f"difference, {name}"] = [rounded(v) for v in difference]
        means = [float(x[0].nanmean()) for x in own]
        row["floor held"] = sum(m >= floor for m, floor in zip(means, floors, strict=True))
        row["within .01"] = sum(m >= floor - MARGIN for m, floor in zip(means, floors, strict=True))
        rows.append(row)
        print(row, flush=True)
    return rows


def page(result: dict[str, Any]) -> str:
    """Return the table of the page on several labels."""
    titles = ["", "form", "NDCG@10 of A", "NDCG@10 of B", "B, difference from added up"]
    titles += [f"floor held, of {result['seeds']} seeds", "within .01 of it"]
    lines = [titles, [":--", ":--", *["--:"] * 5]]
    for row in result["rows"]:
        difference = row.get("difference, B")
        told = "" if difference is None else "{:+.4f} [{:+.4f}, {:+.4f}]".format(*difference)
        numbers = [f"{row['A']:.4f}", f"{row['B']:.4f}", told, row["floor held"], row["within .01"]]
        lines.append([row["data"], row["form"], *map(str, numbers)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sets = ["shop", "MQ2008", "MSLR-WEB10K, part"]
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = [row for data in given.sets for row in measured(data, given.seeds)]
    result = {"environment": environment(), "seeds": given.seeds, "rows": found}
    write(given.output, result)
    print(page(result))

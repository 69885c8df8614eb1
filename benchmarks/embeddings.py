"""A recommender of embeddings in a loop of one's own, trained with several losses: NDCG@10.

    python benchmarks/embeddings.py

A generated table of ratings: 943 users, 1,682 items, about 70,000 ratings from 1 to 5 by eight
hidden factors, popularity and noise; the popular items are rated more often. A model scores an item
for a user by the product of two embeddings of 32 numbers and a bias of the item. A list is a user:
60 % of the ratings train, 20 % choose the learning rate and the epoch, 20 % test. Every loss gets
the same learning rates, weight decay, steps and epochs; the seed draws the ratings, the split and
the first weights. Writes benchmarks/results/embeddings.json; the differences from `SoftmaxLoss()`
are paired over the users of all seeds. Takes twenty minutes of one core.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, environment, rounded, write
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import ltr.losses
from ltr.losses import RankingLoss
from ltr.metrics import compare, holm
from ltr.metrics.functional import ndcg

USERS, ITEMS, FACTORS, WIDTH = 943, 1682, 8, 32
RATES, EPOCHS, BATCH, DECAY = (3e-3, 1e-2, 3e-2), 40, 32, 1e-5
BASE = "SoftmaxLoss()"
LOSSES = (
    BASE,
    "XENDCG()",
    "SoftNDCG()",
    "SoftNDCG(softmax=1.0)",
    'SoftNDCG(mean="harmonic")',
    'SoftNDCG(mean="harmonic", gain="linear", dequantize=True, softmax=1.0)',
    "LambdaLoss()",
    "RankNet()",
)


class Lists:
    """Lists of users, padded: `users` (b,), and `items`, `labels`, `mask` (b, n)."""

    def __init__(self, users: list[int], items: list[Tensor], labels: list[Tensor]):
        self.users = torch.tensor(users)
        self.items = pad_sequence(items, batch_first=True)
        self.labels = pad_sequence(labels, batch_first=True)
        self.mask = pad_sequence([torch.ones_like(x) for x in items], batch_first=True) > 0

    def __getitem__(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.users[rows], self.items[rows], self.labels[rows], self.mask[rows]


class Embeddings(nn.Module):
    """The product of a user's and an item's embedding, and the item's bias: (b, n) scores."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH)
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.bias = nn.Embedding(ITEMS, 1)
        for one in (self.users, self.items):
            nn.init.normal_(one.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores of items (b, n) for users (b,)."""
        product = (self.items(items) @ self.users(users).unsqueeze(-1)).squeeze(-1)
        return product + self.bias(items).squeeze(-1)


def ratings(seed: int) -> tuple[Lists, Lists, Lists]:
    """Return the lists to train on, to choose by, and to test on."""
    draw = np.random.default_rng(seed)
    tastes = draw.normal(size=(USERS, FACTORS))
    kinds = draw.normal(size=(ITEMS, FACTORS))
    popular = draw.normal(size=ITEMS)
    odds = np.exp(1.2 * popular)
    parts: list[tuple[list[int], list[Tensor], list[Tensor]]] = [([], [], []) for _ in range(3)]
    for user in range(USERS):
        count = int(np.clip(draw.lognormal(4.0, 0.75), 20, 400))
        items = draw.choice(ITEMS, count, replace=False, p=odds / odds.sum())
        value = 0.5 * kinds[items] @ tastes[user] / FACTORS**0.5 + 0.4 * popular[items]
        value = value + 0.6 * draw.normal(size=count)
        grades = torch.tensor(np.digitize(value, [-0.9, -0.3, 0.4, 1.1]), dtype=torch.float32)
        side = np.minimum(draw.permutation(count) * 5 // count, 4)  # three fifths train
        for number, chosen in enumerate((side < 3, side == 3, side == 4)):
            parts[number][0].append(user)
            parts[number][1].append(torch.tensor(items[chosen]))
            parts[number][2].append(grades[torch.tensor(chosen)])
    train, val, test = (Lists(*part) for part in parts)
    return train, val, test


def values(model: Embeddings, lists: Lists) -> Tensor:
    """Return NDCG@10 of each user."""
    with torch.no_grad():
        scores = model(lists.users, lists.items)
    return ndcg(scores, lists.labels, mask=lists.mask, top_k=10, reduction="none")


def trained(loss: RankingLoss, rate: float, seed: int, data: tuple[Lists, Lists, Lists]) -> Any:
    """Return the best mean over the validation lists, and the values of the test lists there."""
    train, val, test = data
    torch.manual_seed(seed)
    model = Embeddings()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=DECAY)
    best: tuple[float, Any] = (-1.0, None)
    for _ in range(EPOCHS):
        for rows in torch.randperm(USERS).split(BATCH):
            users, items, labels, mask = train[rows]
            optimizer.zero_grad()
            loss(model(users, items), labels, mask).backward()
            optimizer.step()
        mean = float(values(model, val).nanmean())
        if mean > best[0]:
            best = mean, values(model, test).numpy()
    return best


def main() -> None:
    """Train with each loss, rate and seed, print the means and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("losses", nargs="*", default=LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=RESULTS / "embeddings.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[np.ndarray]] = {name: [] for name in options.losses}
    rates: dict[str, list[float]] = {name: [] for name in options.losses}
    seconds = dict.fromkeys(options.losses, 0.0)
    for seed in options.seeds:
        data = ratings(seed)
        for name in options.losses:
            start = time.process_time()
            tries = {}
            for rate in RATES:
                tries[rate] = trained(eval(name, vars(ltr.losses)), rate, seed, data)
            rate = max(tries, key=lambda x: tries[x][0])
            found[name].append(tries[rate][1])
            rates[name].append(rate)
            seconds[name] += time.process_time() - start
            print(f"{name}, seed {seed}: {found[name][-1].mean():.4f} at {rate}", flush=True)
    rows: list[dict[str, Any]] = []
    base = np.concatenate(found[BASE]) if BASE in found else None
    for name, lists in found.items():
        each = np.concatenate(lists)
        row: dict[str, Any] = {"loss": name, "ndcg_10": rounded(float(each.mean()))}
        row |= {"rates": rates[name], "seconds": round(seconds[name], 1)}
        if base is not None and name != BASE:
            result = compare(base, each).models[1]
            assert result.difference is not None
            row |= {"difference": [rounded(x) for x in result.difference], "p": result.p}
        rows.append(row)
    tested = [row for row in rows if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]) if tested else (), strict=True):
        row["p_holm"] = rounded(p)
    about = {"users": USERS, "items": ITEMS, "seeds": options.seeds}
    write(options.output, {"environment": environment(), **about, "losses": rows})


if __name__ == "__main__":
    main()

"""Every loss trains a small scorer on real data to a better NDCG than random scores."""

import pytest
import torch
from loss_variants import LOSSES, VARIANTS

from ltr.datasets import Standardize, collate_lists, read_letor
from ltr.metrics.functional import ndcg
from ltr.models import LinearScorer

# these do not ask for an order, but for the value of one element or for equal exposure of groups
NO_ORDER = {"QuantileLoss", "QuantileLoss-0.3", "ExposureParity", "ExposureParity-one-sided"}


def relevance(labels):
    """Return grades 3 and 4 as 1 and 2, and lower grades as 0.

    In the example four of five documents have a grade above 0. Losses that only ask for relevance
    (reciprocal rank, precision) could learn almost nothing from them.
    """
    return (labels - 2).clamp(min=0)


@pytest.fixture(scope="module")
def lists(data_root):
    """Return the training lists and the test lists of LightGBM's example, as one batch each."""
    folder = data_root / "lightgbm-lambdarank"
    if not folder.is_dir():
        pytest.skip(f"no LightGBM example at {folder}: set LTR_DATA to the folder that holds it")
    train, test = read_letor(folder / "rank.train"), read_letor(folder / "rank.test")
    scale = Standardize().fit(train.features)
    batches = []
    for data in (train, test.widen(train.num_features)):
        batch = collate_lists([data[i] for i in range(len(data))])
        batch["features"] = scale(batch["features"], batch["mask"])
        batches.append(batch)
    return batches


def ndcg_10(scores, batch):
    return ndcg(scores, relevance(batch["labels"]), mask=batch["mask"], top_k=10)


@pytest.fixture(scope="module")
def random_ndcg(lists):
    """Return mean and standard deviation over random orders of the test lists."""
    test, generator = lists[1], torch.Generator().manual_seed(0)
    draws = [torch.rand(test["labels"].shape, generator=generator) for _ in range(100)]
    values = torch.stack([ndcg_10(scores, test) for scores in draws])
    return values.mean(), values.std()


@pytest.mark.parametrize(
    "name",
    [  # 25 steps on 200 lists; steps on a small batch lower the variants in test_properties.py
        pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else [])
        for name in LOSSES
        if name not in NO_ORDER
    ],
)
def test_it_trains_a_linear_scorer_to_above_random(name, lists, random_ndcg):
    train, test = lists
    torch.manual_seed(0)
    scorer, loss = LinearScorer(train["features"].shape[-1]), LOSSES[name]()
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter *= 0.1
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.02)
    labels = relevance(train["labels"])
    for _ in range(25):
        optimizer.zero_grad()
        loss(scorer(train["features"], train["mask"]), labels, train["mask"]).backward()
        optimizer.step()
    with torch.no_grad():
        reached = ndcg_10(scorer(test["features"], test["mask"]), test)
    mean, deviation = random_ndcg
    assert reached > mean + 2 * deviation

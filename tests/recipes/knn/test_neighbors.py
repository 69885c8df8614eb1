"""Nearest neighbors and their votes against scikit-learn and brute force."""

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from recipes.images import DigitImages
from recipes.knn.neighbors import Neighbors, vote


def digits(kind: type = torch.float64):
    splits = DigitImages().load(None)
    points = {name: part.pixels.flatten(1).to(kind) / 255 for name, part in splits.items()}
    return points, {name: part.labels for name, part in splits.items()}


@pytest.mark.parametrize("weighting", ["uniform", "distance"])
@pytest.mark.parametrize("k", [1, 3, 5, 9])
def test_scikit_learns_classes(k: int, weighting):
    points, labels = digits()
    generator = torch.Generator().manual_seed(0)
    for name, part in points.items():  # no two distances are the same
        points[name] = part + 1e-3 * torch.rand(
            part.shape, generator=generator, dtype=torch.float64
        )
    oracle = KNeighborsClassifier(k, weights=weighting, algorithm="brute")
    oracle.fit(points["train"], labels["train"])
    found = Neighbors(points["train"], labels["train"]).classify(points["test"], k, weighting)
    assert found.tolist() == oracle.predict(points["test"]).tolist()


def test_scikit_learns_distances_far_from_the_origin():
    points, labels = digits(torch.float32)
    train, test = points["train"] + 1000, points["test"] + 1000
    expected, _ = (
        NearestNeighbors(n_neighbors=5, algorithm="brute")
        .fit(points["train"])
        .kneighbors(points["test"])
    )
    distances, index = Neighbors(train, labels["train"]).nearest(test, 5)
    torch.testing.assert_close(distances, torch.from_numpy(expected).float(), rtol=0, atol=3e-3)
    direct = (points["test"].unsqueeze(1) - points["train"][index]).norm(dim=-1)
    torch.testing.assert_close(direct, distances, rtol=0, atol=3e-3)
    assert (distances.diff() >= 0).all()


def test_accuracies_are_those_of_classify():
    points, labels = digits()
    known = Neighbors(points["train"], labels["train"])
    choices = [(1, "uniform"), (4, "distance"), (9, "uniform")]
    found = known.accuracies(points["test"], labels["test"], choices)
    for (k, weighting), accuracy in zip(choices, found, strict=True):
        classes = known.classify(points["test"], k, weighting)
        assert accuracy == pytest.approx((classes == labels["test"]).double().mean().item())


@pytest.mark.parametrize(
    ("labels", "distances", "weighting", "expected"),
    [
        ([2, 1], [1.0, 2.0], "uniform", 1),  # equal votes: the first class, as scikit-learn's
        ([2, 1, 1, 2, 0], [1.0, 2.0, 3.0, 4.0, 5.0], "uniform", 1),
        ([0, 1, 1], [1.0, 2.5, 2.5], "distance", 0),  # 1 against 0.8
        ([0, 1, 1], [1.0, 1.5, 1.5], "distance", 1),  # 1 against 1.33
        ([2, 1, 1], [0.0, 1e-9, 1e-9], "distance", 2),  # one that is the query itself
        ([2, 2, 0, 1], [0.0, 0.0, 0.0, 1.0], "distance", 2),
    ],
)
def test_votes(labels, distances, weighting, expected):
    found = vote(torch.tensor(labels), torch.tensor(distances), 3, weighting)
    assert found.item() == expected


def test_half_precision_and_autocast():
    points = torch.tensor([[0.0, 256.0], [1.0, 256.0], [3.0, 256.0]])
    queries = torch.tensor([[0.4, 256.0], [2.5, 256.0]])
    labels = torch.tensor([0, 1, 2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Neighbors(points, labels).classify(queries, 1)
    assert found.tolist() == [0, 2]
    half = Neighbors(points.bfloat16(), labels)
    assert half.points.dtype == torch.float32
    assert half.nearest(queries.bfloat16(), 1)[0].dtype == torch.float32


def test_errors():
    points, labels = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"points.*\(0, 2\)"):
        Neighbors(points[:0], labels[:0])
    with pytest.raises(ValueError, match=r"labels must"):
        Neighbors(points, labels[:3])
    known = Neighbors(points, labels)
    with pytest.raises(ValueError, match=r"queries.*\(3, 4\)"):
        known.nearest(torch.zeros(3, 4), 1)
    with pytest.raises(ValueError, match=r"k.*5"):
        known.nearest(points, 5)
    with pytest.raises(ValueError, match=r"weighting.*'near'"):
        known.classify(points, 1, "near")
    with pytest.raises(ValueError, match=r"distances.*\(2,\)"):
        vote(torch.zeros(3, dtype=torch.int64), torch.zeros(2), 2)

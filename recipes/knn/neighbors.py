"""Exact nearest neighbors and their votes."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ltr.shapes import check_whole

Weighting = Literal["uniform", "distance"]

_CHUNK = 500  # queries in one search


class Neighbors:
    """Labeled points, among which `nearest` finds the nearest ones of others.

    Distances are Euclidean, computed in float32 at least, outside of autocast. One matrix product
    finds the nearest points; they are centered first, so that little is lost in rounding. Their
    distances are then computed from the differences. Points at the same distance come in an
    unspecified order, the same each time.

    Args:
        points: (N, d).
        labels: (N,) int64, classes from 0.
        classes: the number of classes. Default: the largest label plus one.

    Cost: a search for B points takes O(B N d) time and O(B N) memory.

    Raises:
        ValueError: points are not (N, d), labels are not int64 (N,), or there is no point.

    >>> known = Neighbors(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([2, 2, 0]))
    >>> known.nearest(torch.tensor([[0.4], [4.0]]), k=2)[1]
    tensor([[0, 1],
            [2, 1]])
    >>> known.classify(torch.tensor([[0.4], [4.0]]), k=2)
    tensor([2, 0])
    """

    def __init__(self, points: Tensor, labels: Tensor, classes: int | None = None):
        if points.dim() != 2 or not len(points):
            raise ValueError(f"points must be (N, d) with N >= 1, got {tuple(points.shape)}")
        if labels.shape != points.shape[:1] or labels.dtype != torch.int64:
            raise ValueError(
                f"labels must be int64 of shape ({len(points)},), "
                f"got {labels.dtype} {tuple(labels.shape)}"
            )
        if not points.dtype.is_floating_point or points.dtype.itemsize < 4:
            points = points.float()
        self.center = points.mean(0)
        self.points = points - self.center
        self.labels = labels
        self.classes = int(labels.max()) + 1 if classes is None else check_whole("classes", classes)
        self._squares = self.points.square().sum(-1)

    def with_more(self, points: Tensor, labels: Tensor) -> "Neighbors":
        """Return these points joined with others (M, d), which have labels (M,)."""
        points = torch.cat([self.points + self.center, points.to(self.points.dtype)])
        return Neighbors(points, torch.cat([self.labels, labels]), self.classes)

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k nearest points, the nearest first: distances (B, k) and indices (B, k).

        Args:
            queries: (B, d).
            k: the number of points to find, 1 <= k <= N.

        Raises:
            ValueError: queries are not (B, d), or k is out of range.
        """
        if queries.dim() != 2 or queries.shape[1] != self.points.shape[1]:
            raise ValueError(
                f"queries must be (B, {self.points.shape[1]}), got {tuple(queries.shape)}"
            )
        if check_whole("k", k) > len(self.points):
            raise ValueError(f"k must be <= {len(self.points)}, the number of points, got {k}")
        with torch.autocast(queries.device.type, enabled=False):
            q = queries.to(self.points.dtype) - self.center
            # the squares of the queries do not change the order
            keys = torch.addmm(self._squares, q, self.points.mT, alpha=-2)
            index = keys.topk(k, dim=-1, largest=False).indices
            squares = (self.points[index] - q.unsqueeze(1)).square().sum(-1)
            squares, order = squares.sort(dim=-1, stable=True)
        return squares.sqrt(), index.gather(-1, order)

    def classify(self, queries: Tensor, k: int, weighting: Weighting = "uniform") -> Tensor:
        """Return the classes (B,) that the k nearest points of queries (B, d) `vote` for."""
        distances, index = self.nearest(queries, k)
        return vote(self.labels[index], distances, self.classes, weighting)

    def accuracies(
        self, queries: Tensor, targets: Tensor, choices: Sequence[tuple[int, Weighting]]
    ) -> list[float]:
        """Return the share of right classes for each k and weighting.

        One search for the largest k serves all of them. Queries are searched in chunks.

        Args:
            queries: (B, d).
            targets: (B,) int64, the right classes.
            choices: pairs of k and weighting.
        """
        most = max(k for k, _ in choices)
        right = torch.zeros(len(choices), dtype=torch.int64, device=targets.device)
        for part, wanted in zip(queries.split(_CHUNK), targets.split(_CHUNK), strict=True):
            distances, index = self.nearest(part, most)
            labels = self.labels[index]
            for number, (k, weighting) in enumerate(choices):
                votes = vote(labels[:, :k], distances[:, :k], self.classes, weighting)
                right[number] += (votes == wanted).sum()
        return (right / len(targets)).tolist()


def vote(
    labels: Tensor, distances: Tensor, classes: int, weighting: Weighting = "uniform"
) -> Tensor:
    """Return the class with most votes; of equal classes the first, as in scikit-learn.

    Args:
        labels: (..., k) int64, the neighbors' labels, the nearest first.
        distances: (..., k), the neighbors' distances.
        classes: the number of classes.
        weighting: "uniform", one vote each; or "distance", 1 / distance votes each (if there are
            neighbors at distance 0, these have one vote each and the others none).

    Returns:
        (...) int64.

    Raises:
        ValueError: the weighting is unknown, or the shapes differ.

    >>> labels, distances = torch.tensor([1, 0, 0]), torch.tensor([1.0, 3.0, 3.0])
    >>> vote(labels, distances, classes=2), vote(labels, distances, 2, "distance")
    (tensor(0), tensor(1))
    """
    if labels.shape != distances.shape:
        raise ValueError(
            f"distances must be {tuple(labels.shape)} as labels, got {tuple(distances.shape)}"
        )
    if weighting == "uniform":
        weights = torch.ones_like(distances)
    elif weighting == "distance":
        same = distances == 0
        weights = torch.where(same.any(-1, keepdim=True), same, 1 / distances)
        weights = weights.to(distances.dtype)
    else:
        raise ValueError(f"weighting must be 'uniform' or 'distance', got {weighting!r}")
    votes = distances.new_zeros((*labels.shape[:-1], classes)).scatter_add_(-1, labels, weights)
    return votes.argmax(-1)  # the first of the largest

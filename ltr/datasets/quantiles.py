"""Transforms fitted by quantiles: piecewise-linear bins, and ranks in the training data."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import as_numbers
from ltr.datasets.transforms import LARGEST, FeatureTransform, NoTransform, present_columns
from ltr.shapes import check_at_least, check_choice, check_whole

_SAMPLE = 50_000  # thresholds are sought in at most this many documents
_NARROW = 400  # a narrow bin has 1/400 of the documents on each side of its threshold
_FEWEST, _SHARE = 50, 200  # at least 50 documents and 1/200 of all lie between two thresholds
_GAIN = 15.0  # a threshold must reduce the squared error by this many variances of the labels


class PiecewiseLinearBins(FeatureTransform):
    """Splits each feature into bins, so that a linear layer becomes a piecewise-linear function.

    Each output is the fraction of a bin that lies below the feature's value. The edges
    b_0 <= ... <= b_bins of a feature's bins are its quantiles at equal steps, from the smallest
    value in training to the largest. For a value x, the bin from b_(t-1) to b_t gives one output,
    (x - b_(t-1)) / (b_t - b_(t-1)), clipped to [0, 1]: 1 for each bin below x, 0 for each bin above
    x, and a fraction for the bin that contains x. A linear layer on these outputs is a
    piecewise-linear function of the feature. Its slope can change at each edge, so most often where
    there are many documents. "On Embeddings for Numerical Features in Tabular Deep Learning"
    (Gorishniy et al., 2022) extends the first and the last bin beyond the training data. Here these
    bins are clipped: a value beyond the training data gives the outputs of the nearest training
    value, as in boosted trees. So an extreme or infinite value does no harm.

    If many documents have the same value, some quantiles are equal; the bins between equal
    quantiles are left out. A feature that is constant or always missing in training gives one
    output, which is always 0. Quantiles ignore missing values.
    `TableTransform(PiecewiseLinearBins())` replaces a missing value by the median and adds an
    indicator. For a linear layer, the median is as good as any other value, because the indicator
    has its own weight. A feature that was never missing in training has no indicator: if it is
    missing later, it gets only the median.

    If `thresholds` is not 0, a small regression tree on each feature alone looks for values at
    which the labels jump. Each such value, a threshold, gets a narrow bin with 0.5 % of the
    documents. In a narrow bin, a linear layer can make a step, as boosted trees do; in a wide bin
    it would make a ramp. The labels are the training labels minus the mean label of their list. A
    threshold must reduce the sum of squared errors by more than 15 times the variance of the
    labels, so uninformative features get no threshold.

    Cost: one pass over the output. Fitting sorts each feature once. The tree of a feature is fitted
    on at most 50,000 documents, in some 40 ms.

    Args:
        bins: the largest number of wide bins per feature, >= 1. Wide bins have equal numbers of
            documents, apart from ties.
        num_features: d, the number of features, if it is already known.
        thresholds: the largest number of thresholds, and so of narrow bins, per feature, >= 0. If
            it is above 0, `fit` needs labels.

    Attributes:
        out_features: the number of bins of all features together, at most
            (bins + 2 * thresholds) * d; None before `fit` or the loading of a state.

    >>> fitted = PiecewiseLinearBins(bins=2).fit(torch.tensor([[0.0], [4.0], [8.0]]))
    >>> fitted(torch.tensor([[1.0], [4.0], [5.0], [99.0]]))
    tensor([[0.2500, 0.0000],
            [1.0000, 0.0000],
            [1.0000, 0.2500],
            [1.0000, 1.0000]])

    >>> x = torch.linspace(0, 10, 1001).unsqueeze(1)
    >>> steps = PiecewiseLinearBins(bins=1, thresholds=1).fit(x, labels=(x > 3).double().squeeze())
    >>> steps(torch.tensor([[2.9], [3.1]]))  # below 3, around 3, above 3
    tensor([[0.9699, 0.0000, 0.0000],
            [1.0000, 1.0000, 0.0115]])
    """

    fits_missing = True
    columns: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, bins: int = 8, num_features: int | None = None, thresholds: int = 0) -> None:
        super().__init__(num_features)
        self.bins = check_whole("bins", bins)
        self.thresholds = check_at_least("thresholds", thresholds, 0)
        self.fits_labels = self.thresholds > 0
        self.register_buffer("columns", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("low", torch.zeros(0))
        self.register_buffer("high", torch.zeros(0))

    @property
    def out_features(self) -> int | None:
        """The number of bins, or None before it is known."""
        return len(self.columns) or None

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Learn the edges of the bins of each feature.

        Raises:
            ValueError: `thresholds` is not 0, and the labels are missing, not one per document, or
                not finite.
        """
        steps = np.linspace(0, 1, self.bins + 1)
        bounds = [np.quantile(values, steps) for values in _columns(features)]
        if self.thresholds:
            narrow = self._narrow_bins(features, labels)
            bounds = [np.concatenate(pair) for pair in zip(bounds, narrow, strict=True)]
        # Edges are compared in the dtype in which they are stored.
        edges = [torch.from_numpy(column).to(self.low).unique() for column in bounds]
        # A constant feature has one bin.
        low = [column[: max(1, len(column) - 1)] for column in edges]
        columns = torch.arange(len(edges)).repeat_interleave(torch.tensor([*map(len, low)]))
        self.columns = columns.to(self.columns)
        self.low = torch.cat(low)
        self.high = torch.cat(
            [column[-len(start) :] for column, start in zip(edges, low, strict=True)]
        )

    def _narrow_bins(
        self, features: np.ndarray, labels: np.ndarray | Tensor | None
    ) -> list[np.ndarray]:
        """Return the edges of the bins around the thresholds of each feature."""
        if labels is None:
            raise ValueError(f"labels must be given to fit with thresholds={self.thresholds}")
        y = as_numbers("labels", labels)
        if y.shape != (len(features),):
            raise ValueError(f"labels must be ({len(features)},), got {y.shape}")
        if len(wrong := np.flatnonzero(~np.isfinite(y))):
            raise ValueError(f"labels must be finite, got {y[wrong[0]]} at row {wrong[0]}")
        if len(features) > _SAMPLE:
            rows = np.linspace(0, len(features) - 1, _SAMPLE).astype(np.int64)
            features, y = features[rows], y[rows]
        jumps = []
        for column in features.T:
            present = ~np.isnan(column)
            values = column[present].astype(np.float64).clip(-LARGEST, LARGEST)
            jumps.append(_jumps(values, y[present], self.thresholds))
        return jumps

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the fraction of each bin that is below the feature, (..., n, out_features)."""
        if not len(self.columns):
            raise self.not_fitted()
        # Neither a difference of edges nor an edge in half precision may overflow.
        limit = torch.finfo(features.dtype).max / 4
        low = self.low.to(features.dtype).clamp(-limit, limit)
        high = self.high.to(features.dtype).clamp(-limit, limit)
        width = torch.where(high > low, high - low, 1)
        if torch.compiler.is_exporting():  # onnxruntime copies rows 10 times as fast as columns
            rows = features.transpose(-1, -2).index_select(-2, self.columns)
            values = rows.transpose(-1, -2)
        else:
            values = features.index_select(-1, self.columns)
        # In-place operations take half as long.
        return values.clamp_(low, high).sub_(low).div_(width)

    def monotone_columns(self) -> Tensor:
        """Return the column of each bin's feature."""
        return self.columns

    source_columns = monotone_columns

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest value of each feature in training, (d,) each."""
        width = self.num_features or 0
        low, high = self.low.new_full((width,), torch.inf), self.low.new_full((width,), -torch.inf)
        low = low.scatter_reduce(0, self.columns, self.low, "amin")
        return low, high.scatter_reduce(0, self.columns, self.high, "amax")

    def _end_loading(self) -> None:
        if len(self.columns):
            self.num_features = int(self.columns[-1]) + 1


class Quantile(FeatureTransform):
    """Replaces each feature by its rank in the training data, as a fraction or a normal score.

    A value in the training data gets the fraction (rank - 1/2) / n, if n training documents have
    the feature. Ranks count from 1, and documents with equal values all get the mean of their
    ranks. The normal score is the normal distribution's quantile for this fraction (Bliss's
    rankit). Training documents then have nearly normal features, whatever the distribution was. A
    value between two training values gets an interpolated output; a value beyond the training data
    gets the output of the nearest training value. A feature that is constant or always missing in
    training gives a normal score of 0, or a fraction of 1/2. If there are more training documents
    than `quantiles`, only `quantiles` quantiles at equal steps are kept. NaN gives NaN;
    `TableTransform(Quantile())` fills in missing values.

    Cost: a binary search and an interpolation for each value; fitting sorts each feature once.

    Args:
        output: "normal" for the normal score, "uniform" for the fraction.
        quantiles: the largest number of quantiles that are kept for a feature, >= 2.
        num_features: d, the number of features, if it is already known.

    >>> fitted = Quantile("uniform").fit(torch.tensor([[0.0], [0.0], [5.0], [9.0]]))
    >>> fitted(torch.tensor([[-1.0], [0.0], [5.0], [7.0], [99.0]])).flatten()
    tensor([0.2500, 0.2500, 0.6250, 0.7500, 0.8750])
    """

    fits_missing = True
    values: Tensor
    scores: Tensor

    def __init__(
        self,
        output: Literal["normal", "uniform"] = "normal",
        quantiles: int = 1000,
        num_features: int | None = None,
    ) -> None:
        super().__init__(num_features)
        check_choice("output", output, "normal", "uniform")
        self.output: Literal["normal", "uniform"] = output
        self.quantiles = check_at_least("quantiles", quantiles, 2)
        self.register_buffer("values", torch.zeros(0, 0))
        self.register_buffer("scores", torch.zeros(0, 0))

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Learn the quantiles of each feature."""
        pairs = [self._fit_column(values) for values in _columns(features)]
        longest = max(len(values) for values, _ in pairs)
        # A feature with fewer quantiles than another feature repeats its last quantile.
        padded = [
            [np.pad(array, (0, longest - len(array)), mode="edge") for array in pair]
            for pair in pairs
        ]
        self.values = torch.from_numpy(np.stack([values for values, _ in padded])).to(self.values)
        self.scores = torch.from_numpy(np.stack([scores for _, scores in padded])).to(self.scores)

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the normal score or the fraction of each feature."""
        if not len(self.values):
            raise self.not_fitted()
        dtype = features.dtype if features.dtype == torch.float64 else torch.float32
        limit = torch.finfo(dtype).max / 4  # no difference may overflow
        values = self.values.to(dtype).clamp(-limit, limit)
        scores = self.scores.to(dtype)
        x = features.to(dtype).reshape(-1, len(values)).t().contiguous()
        x = x.clamp(values[:, :1], values[:, -1:])
        # `searchsorted` puts NaN after the last value.
        right = torch.searchsorted(values, x.detach()).clamp(max=values.shape[1] - 1)
        left = (right - 1).clamp(min=0)
        low, width = values.gather(1, left), values.gather(1, right) - values.gather(1, left)
        share = (x - low) / torch.where(width > 0, width, 1)
        outputs = torch.lerp(scores.gather(1, left), scores.gather(1, right), share)
        return outputs.t().reshape(features.shape).to(features.dtype)

    monotone_columns = source_columns = NoTransform.monotone_columns

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest quantile of each feature, (d,) each."""
        return self.values[:, 0], self.values[:, -1]

    def _fit_column(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct quantiles of a feature and their normal scores or fractions."""
        count = min(self.quantiles, len(values))
        shares = (np.arange(count) + 0.5) / count
        # Hazen's quantile for the fraction (k - 1/2) / n is the k-th smallest of n values.
        quantiles = np.quantile(values, shares, method="hazen").astype(np.float32)
        quantiles, inverse, times = np.unique(quantiles, return_inverse=True, return_counts=True)
        shares = np.bincount(inverse, shares) / times
        if self.output == "normal":  # torch has this function, so scipy need not be loaded
            shares = torch.special.ndtri(torch.from_numpy(shares)).numpy()
        return quantiles, shares

    def _end_loading(self) -> None:
        self.num_features = len(self.values) or self.num_features


def _jumps(values: np.ndarray, labels: np.ndarray, most: int) -> np.ndarray:
    """Return the two edges of a narrow bin around each value at which the labels jump."""
    if len(values) < 2 * _FEWEST or labels.var() == 0:
        return np.zeros(0)
    from sklearn.tree import DecisionTreeRegressor  # the import is slow

    fewest = max(_FEWEST, len(values) // _SHARE)
    tree = DecisionTreeRegressor(max_leaf_nodes=most + 1, min_samples_leaf=fewest, random_state=0)
    # The tree compares values in float32.
    nodes = tree.fit(values[:, None].astype(np.float32), labels).tree_
    left, right, split = nodes.children_left, nodes.children_right, nodes.children_left >= 0
    errors = nodes.weighted_n_node_samples * nodes.impurity
    explained = errors - errors[left] - errors[right]
    jumps = nodes.threshold[split & (explained > _GAIN * nodes.impurity[0])]
    ordered = np.sort(values)
    width = max(1, len(values) // _NARROW)
    above = np.searchsorted(ordered, jumps, side="right")
    low = ordered[(above - width).clip(min=0)]
    high = ordered[(above + width - 1).clip(max=len(ordered) - 1)]
    return np.r_[low, high]


def _columns(features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield each feature's values in float64, clipped to the range of float32; 0 for no value."""
    for values in present_columns(features):
        yield values.astype(np.float64).clip(-LARGEST, LARGEST) if len(values) else np.zeros(1)

"""Transforms that are fitted by quantiles: piecewise-linear bins, and the distribution itself."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr._shapes import check_at_least, check_whole
from ltr.datasets.transforms import FeatureTransform

_VALUES = 1 << 24  # values at a time, so that fitting copies little of a mapped file
_LARGEST = float(np.finfo(np.float32).max)


class PiecewiseLinearBins(FeatureTransform):
    """Piecewise-linear encoding: how much of each bin of a feature lies below the value.

    The edges b_0 <= ... <= b_bins of a feature's bins are its quantiles at equal steps, from the
    smallest value in training to the largest. The bin from b_(t-1) to b_t gives one number,
    (x - b_(t-1)) / (b_t - b_(t-1)), clipped to [0, 1]: 1 for each bin below x, 0 for each bin above
    it, and a share for the bin that x lies in. A linear layer on these numbers is a
    piecewise-linear function of the feature, so a network bends where the data are. "On Embeddings
    for Numerical Features in Tabular Deep Learning" (Gorishniy et al., 2022) lets the first and the
    last bin go on beyond the training data. Here they are clipped too: beyond them a score stays as
    it is, as it does in boosted trees, and an extreme or infinite value does no harm.

    Equal quantiles, of a value that many documents have, leave out the bins between them. A feature
    that is constant or missing throughout in training gives one number, always 0. Quantiles are of
    the values that are there; `TableTransform(PiecewiseLinearBins())` puts a missing value at the
    median and adds an indicator. In front of a linear layer that is as general as any other place,
    since the indicator has a weight of its own; and a feature that is missing for the first time
    after training then looks average.

    Cost: one pass over the numbers that come out; fitting sorts each feature once.

    Args:
        bins: how many bins a feature has at most, >= 1.
        num_features: d, if it is known already.

    Attributes:
        out_features: the bins of all features together, at most bins * d; after `fit`, or after a
            state is loaded.

    >>> fitted = PiecewiseLinearBins(bins=2).fit(torch.tensor([[0.0], [4.0], [8.0]]))
    >>> fitted(torch.tensor([[1.0], [4.0], [5.0], [99.0]]))
    tensor([[0.2500, 0.0000],
            [1.0000, 0.0000],
            [1.0000, 0.2500],
            [1.0000, 1.0000]])
    """

    fits_missing = True
    columns: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, bins: int = 8, num_features: int | None = None) -> None:
        super().__init__(num_features)
        self.bins = check_at_least("bins", check_whole("bins", bins), 1)
        self.register_buffer("columns", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("low", torch.zeros(0))
        self.register_buffer("high", torch.zeros(0))

    @property
    def out_features(self) -> int | None:
        """How many bins there are, or None before that is known."""
        return len(self.columns) or None

    def fit(
        self, features: np.ndarray | Tensor, categories: np.ndarray | Tensor | None = None
    ) -> "PiecewiseLinearBins":
        """Take the edges of the bins of each feature; see `FeatureTransform.fit`."""
        super().fit(features, categories)
        steps = np.linspace(0, 1, self.bins + 1)
        found = [np.quantile(values, steps) for values in _columns(features)]
        # compared in the type in which they are kept
        edges = torch.from_numpy(np.stack(found)).to(self.low)
        low, high = edges[:, :-1], edges[:, 1:]
        kept = high > low
        kept[:, 0] |= ~kept.any(dim=1)
        self.columns = kept.nonzero()[:, 0].to(self.columns)
        self.low, self.high = low[kept], high[kept]
        return self

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the share of each bin that lies below the value, (..., n, out_features)."""
        if not len(self.columns):
            raise self.not_fitted()
        # no difference may overflow, nor an edge that has been converted to half precision
        limit = torch.finfo(features.dtype).max / 4
        low = self.low.to(features.dtype).clamp(-limit, limit)
        high = self.high.to(features.dtype).clamp(-limit, limit)
        width = torch.where(high > low, high - low, 1)
        # in place in what `clamp` has made: half the time, and autograd does not need it
        clipped = features.index_select(-1, self.columns).clamp(low, high)
        return clipped.sub_(low).div_(width)

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if len(self.columns):
            self.num_features = int(self.columns[-1]) + 1


def _columns(features: np.ndarray | Tensor) -> Iterator[np.ndarray]:
    """The values of each feature that are there, finite and in float64; a 0 where none is."""
    if isinstance(features, Tensor):
        features = features.detach().cpu().numpy()
    block = max(1, _VALUES // len(features))
    for start in range(0, features.shape[1], block):
        part = np.asarray(features[:, start : start + block])
        for place in range(part.shape[1]):
            values = part[:, place].astype(np.float64)
            values = values[~np.isnan(values)].clip(-_LARGEST, _LARGEST)
            yield values if len(values) else np.zeros(1)

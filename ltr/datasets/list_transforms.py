"""Transforms that compare a document with the others of its list."""

import math

import torch
from torch import Tensor

from ltr.datasets.transforms import FeatureTransform
from ltr.kernels.lists import list_ids

_FAR = torch.iinfo(torch.int64).max


class ListTransform(FeatureTransform):
    """Base class of transforms that look at the whole list; a subclass writes `transform_lists`.

    `forward` must know the lists: from a mask, from the shape (..., n, d), or from `lengths`.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> class Count(ListTransform):
    ...     def transform_lists(self, features, lists, num_lists):
    ...         return lists.bincount(minlength=num_lists)[lists].unsqueeze(-1)
    >>> Count()(torch.zeros(3, 1), lengths=torch.tensor([2, 1])).flatten()
    tensor([2, 2, 1])
    """

    fits_missing = True
    within_list = True

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the transformed features of the documents; their order does not matter.

        Args:
            features: (N, d).
            lists: (N,), the list of each document, from 0.
            num_lists: how many lists there are; some may be empty.
        """
        raise NotImplementedError

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Transform each list; see `FeatureTransform.forward`.

        Without mask and lengths, each (n, d) is one list.
        """
        self._refuse_categories(categories)
        self.check_shapes(features, mask, lengths)
        if features.dim() < 2:
            raise ValueError(f"features must be (..., n, d), got {tuple(features.shape)}")
        if lengths is not None:
            lists = list_ids(features, lengths)
            return self.transform_lists(features, lists, len(lengths))
        flat = features.reshape(-1, features.shape[-1])
        count = math.prod(features.shape[:-2])
        positions = torch.arange(count, device=features.device).unsqueeze(-1)
        lists = positions.expand(count, features.shape[-2]).reshape(-1)
        if mask is None:
            return self.transform_lists(flat, lists, count).unflatten(0, features.shape[:-1])
        padding = ~mask.reshape(-1)
        # what stands under the mask is a list of its own
        flat = flat.masked_fill(padding.unsqueeze(-1), 0)
        found = self.transform_lists(flat, 2 * lists + padding, 2 * count)
        return found.masked_fill(padding.unsqueeze(-1), 0).unflatten(0, features.shape[:-1])


class MinMaxPerList(ListTransform):
    """Scales each feature to [0, 1] within its list.

    The result is (x - min) / (max - min) over the list's real documents; 0 for a constant feature.
    This is LETOR's "query level normalization". There is nothing to fit.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> MinMaxPerList()(torch.tensor([[1.0, 7.0], [3.0, 7.0], [2.0, 7.0]]))
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0000],
            [0.5000, 0.0000]])
    """

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the features, scaled to 0..1 in each list."""
        return _min_max(features, lists, num_lists).to(features.dtype)


class StandardizePerList(ListTransform):
    """Standardizes each feature within its list.

    The result is (x - mean) / standard deviation over the list's real documents; 0 for a constant
    feature.

    The deviation divides by the number of documents n, not by n - 1. A list of one gives 0. There
    is nothing to fit.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> StandardizePerList()(torch.tensor([[1.0, 7.0], [3.0, 7.0], [2.0, 7.0]]))
    tensor([[-1.2247,  0.0000],
            [ 1.2247,  0.0000],
            [ 0.0000,  0.0000]])
    """

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the features, with mean 0 and standard deviation 1 in each list."""
        # from 0 to 1 first: a constant feature is exactly 0, and no square overflows
        x = _min_max(features, lists, num_lists)
        zeros = x.new_zeros(num_lists, x.shape[1])
        counts = x.new_zeros(num_lists).index_add(0, lists, torch.ones_like(x[:, 0]))
        counts = counts.clamp(min=1).unsqueeze(-1)
        x = x - (zeros.index_add(0, lists, x) / counts).index_select(0, lists)
        variance = zeros.index_add(0, lists, x * x) / counts
        deviation = torch.where(variance > 0, variance, 1).sqrt()
        return (x / deviation.index_select(0, lists)).to(features.dtype)


class RankPerList(ListTransform):
    """Replaces each feature by its rank within the list, scaled from -1 (smallest) to 1 (largest).

    The result is (2 r - n - 1) / (n - 1) for the rank r from 1 to n; ties have their mean rank. A
    list of one gives 0, and so does a constant feature. A NaN gives NaN, and ranks above the
    others. There is nothing to fit, and no gradient.

    Cost: two sorts of each feature over the batch.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> RankPerList()(torch.tensor([[5.0], [900.0], [5.0], [6.0], [-1.0]])).flatten()
    tensor([-0.2500,  1.0000, -0.2500,  0.5000, -1.0000])
    """

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the ranks."""
        # (d, N), since sorting is fastest along the last axis: by list, and by value within it
        values, order = features.detach().t().contiguous().sort(stable=True)
        owners, again = lists[order].sort(stable=True)
        values, order = values.gather(1, again), order.gather(1, again)
        owner = owners[0]  # of a position, the same for each feature
        positions = torch.arange(lists.shape[0], device=lists.device)
        before, after = (positions - 1).clamp(min=0), (positions + 1).clamp(max=lists.shape[0] - 1)
        # of each run of ties: the first position and the last
        new_list, end_list = owner != owner[before], owner != owner[after]
        starts = (values != values.index_select(1, before)) | new_list | (positions == 0)
        ends = (values != values.index_select(1, after)) | end_list | (positions == after)
        first = torch.where(starts, positions, 0).cummax(dim=1).values
        last = torch.where(ends, positions, _FAR).flip(1).cummin(dim=1).values.flip(1)
        counts = lists.new_zeros(num_lists).index_add(0, lists, torch.ones_like(lists))
        start, room = (counts.cumsum(0) - counts)[owner], (counts - 1)[owner]
        dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
        ranks = (first + last - 2 * start - room).to(dtype) / room.clamp(min=1)
        found = torch.empty_like(ranks).scatter(1, order, ranks).t().to(features.dtype)
        return found.masked_fill(features.isnan(), torch.nan)


def _min_max(features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
    """The features (N, d) from 0 to 1 in each list, in at least float32."""
    x = features if features.dtype == torch.float64 else features.float()
    limit = torch.finfo(x.dtype).max / 4  # no difference may overflow
    x = x.clamp(-limit, limit)
    index = lists.unsqueeze(-1).expand_as(x)
    ends = x.new_zeros(num_lists, x.shape[1])
    low = ends.scatter_reduce(0, index, x, "amin", include_self=False).index_select(0, lists)
    high = ends.scatter_reduce(0, index, x, "amax", include_self=False).index_select(0, lists)
    return (x - low) / torch.where(high > low, high - low, 1)

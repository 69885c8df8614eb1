"""Feature transforms, which are fitted on the training lists or compare a list's documents."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import as_numbers
from ltr.datasets.lists import ListDataset
from ltr.ragged import check_lengths, list_ids
from ltr.shapes import check_at_least, check_mask

LARGEST = float(np.finfo(np.float32).max)
"""The largest number of float32, the type of features."""

_OUTPUTS = frozenset({"transform", "forward", "coded", "transform_lists", "_outputs"})
"""The methods that compute a transform's outputs."""

# Copying 8 columns of a matrix is as fast as copying one, so a block has at most 8 columns; and at
# most this many values, unless one column has more.
_COLUMNS, _VALUES = 8, 1 << 24


class FeatureTransform(nn.Module):
    """Base class of transforms of the features, which are fitted on the training lists.

    A transform maps features (..., n, d) with a mask (..., n) to (..., n, out_features), with 0 for
    masked documents.

    A subclass defines `transform`. If it learns from the data, it also defines `learn`, and keeps
    the result in buffers, or in parameters that training changes. Both may be empty until the
    transform is fitted; when a state is loaded, they get the shape of the loaded value. A
    checkpoint has the state and the constructor's arguments, so each argument must be an attribute
    of the same name. `TableTransform` handles missing values and categories, and passes the
    features to another transform. A transform that looks at the other documents of a list is a
    `ListTransform`.

    Args:
        num_features: d, the number of features, if it is already known; fitting sets it, and so
            does loading a state with learned values.

    Attributes:
        takes_missing: whether features may be NaN and categories may be given.
        fits_missing: whether `fit` accepts NaN, and ignores it.
        fits_labels: whether `fit` needs labels. If not, it gets none.
        within_list: whether a document's output depends on the other documents of its list, so that
            `forward` must know the lists.

    >>> class Halve(FeatureTransform):
    ...     def transform(self, features, mask):
    ...         return features / 2
    >>> Halve()(torch.tensor([[2.0], [float("nan")]]), mask=torch.tensor([True, False]))
    tensor([[1.],
            [0.]])
    """

    takes_missing = False
    fits_missing = False
    fits_labels = False
    within_list = False

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        # What a base class says of its outputs need not hold for other outputs.
        if "source_columns" not in vars(cls) and not _OUTPUTS.isdisjoint(vars(cls)):
            cls.source_columns = FeatureTransform.source_columns

    def __init__(self, num_features: int | None = None) -> None:
        super().__init__()
        if num_features is not None:
            check_at_least("num_features", num_features, 1)
        self.num_features = num_features
        self.register_load_state_dict_pre_hook(_before_loading)
        self.register_load_state_dict_post_hook(_after_loading)

    @property
    def out_features(self) -> int | None:
        """The number of features after the transform, or None before it is known."""
        return self.num_features

    def fit(
        self,
        features: np.ndarray | Tensor,
        categories: np.ndarray | Tensor | None = None,
        labels: np.ndarray | Tensor | None = None,
    ) -> Self:
        """Learn from the documents of the training lists.

        Args:
            features: (documents, d), without padding; NaN where missing, if `fits_missing`.
            categories: (documents, c), codes; must be None unless the transform takes categories.
            labels: (documents,), the grades minus the mean grade of their list, if `fits_labels`.

        Returns:
            Itself.

        Raises:
            ValueError: the shape is wrong, there is no document, categories are given, or the
                features are not numbers.
        """
        self._refuse_categories(categories)
        features = as_numbers("features", features)
        if features.ndim != 2 or 0 in features.shape:
            raise ValueError(f"features must be (documents, d), not empty, got {features.shape}")
        self._check_width(features.shape[1])
        self.num_features = features.shape[1]
        self.learn(features, labels)
        return self

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Learn from the checked arguments of `fit`. By default there is nothing to learn."""

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the output for features (..., n, d), which are 0 for masked documents."""
        raise NotImplementedError

    def monotone_columns(self) -> Tensor:
        """Return for each output the feature with which it rises, (out_features,), after `fit`.

        This is the index of the feature, from 0, if the output depends on that feature alone and
        never falls as the feature rises; otherwise it is -1. `NeuralRanker(monotone=...)` needs the
        indices.

        Raises:
            ValueError: the subclass does not define this method.
        """
        raise ValueError(
            f"{type(self).__name__} does not say which columns its outputs rise with, as monotone "
            "needs: give it a method `monotone_columns`"
        )

    def source_columns(self) -> Tensor:
        """Return for each output the column that it depends on, (out_features,), after `fit`.

        The columns are the features 0 to d - 1, and then the categories, from d. The output may
        depend on the column's values in the other documents of the list. The index is -1 if the
        output depends on several columns, or on an unknown one. That is the default, and also what
        a class inherits if it defines `transform` or `forward` but not this method. With all
        indices, `contributions` exchanges a column by exchanging its outputs.
        """
        return torch.full((self.out_features or 0,), -1)

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return roughly the smallest and the largest value of each feature in training, (d,) each.

        They are derived from the state of the transform, such as the mean minus and plus three
        standard deviations. A transform that learns nothing gives -1 and 1.
        """
        width = self.num_features or 0
        return torch.full((width,), -1.0), torch.ones(width)

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Transform the features of real documents; the output of masked documents is 0.

        Args:
            features: (..., n, d), or (N, d) with `lengths`; masked documents are ignored.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c), codes; must be None unless the transform takes categories.
            lengths: (B,), how many documents each list has, if the lists are ragged; the lengths
                must sum to N.

        Raises:
            ValueError: a shape or dtype is wrong, mask and lengths are both given, lengths do not
                sum to N, categories are given, or the transform is not fitted.
        """
        self._refuse_categories(categories)
        self.check_shapes(features, mask, lengths)
        return self._outputs(features, mask, lengths)

    def _outputs(self, features: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
        """Return what `forward` returns, for arguments that it has checked."""
        if mask is None:
            every = torch.ones(features.shape[:-1], dtype=torch.bool, device=features.device)
            return self.transform(features, every)
        padding = ~mask.unsqueeze(-1)
        clean = features.masked_fill(padding, 0)
        return self.transform(clean, mask).masked_fill(padding, 0)

    def check_shapes(self, features: Tensor, mask: Tensor | None, lengths: Tensor | None) -> None:
        """Raise `ValueError` unless there are d features, and the mask or the lengths fit them.

        The values of lengths are checked only on the CPU; on a GPU the check would wait for the
        device.
        """
        if not isinstance(features, Tensor) or not features.is_floating_point():
            got = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(f"features must be a floating-point tensor, got {got}")
        if not features.dim():
            raise ValueError("features must be (..., n, d), got a single number")
        self._check_width(features.shape[-1])
        if mask is not None:
            check_mask(mask, features.shape[:-1])
        if lengths is None:
            return
        if mask is not None:
            raise ValueError("mask must be None if lengths are given")
        if features.dim() != 2:
            raise ValueError(
                f"features must be (documents, d) if lengths are given, got {tuple(features.shape)}"
            )
        check_lengths(features.new_empty(len(features)), lengths, "documents")

    def not_fitted(self) -> ValueError:
        """Return the error of a transform that is used before it is fitted."""
        return ValueError(
            f"{type(self).__name__} must first be fitted, or loaded from a checkpoint"
        )

    def _end_loading(self) -> None:
        # This method is called after the buffers have been loaded.
        pass

    def _set_width(self, width: int) -> None:
        # The state of a transform that learns nothing does not have the number of features.
        self.num_features = width

    def _refuse_categories(self, categories: np.ndarray | Tensor | None) -> None:
        if categories is not None:
            raise ValueError(
                f"{type(self).__name__} takes no categories: give TableTransform("
                f"{type(self).__name__}())"
            )

    def _check_width(self, width: int) -> None:
        if self.num_features is not None and width != self.num_features:
            raise ValueError(f"features must have num_features={self.num_features}, got {width}")


def fit_documents(transform: FeatureTransform, lists: ListDataset) -> None:
    """Fit a transform, in place, on the documents of the training lists.

    Raises:
        ValueError: there are categories or missing features that the transform does not accept.
    """
    features, categories, within = lists.features, lists.categories, None
    if transform.fits_labels:
        lengths, labels = lists.lengths, lists.relevance
        sums = np.bincount(np.repeat(np.arange(len(lengths)), lengths), labels, len(lengths))
        within = labels - np.repeat(sums / np.maximum(lengths, 1), lengths)
    if categories is None and not transform.takes_missing:
        for position in np.flatnonzero(np.isnan(features).any(axis=0))[:1]:
            name = type(transform).__name__
            raise ValueError(
                f"features must not be missing for {name}, got some in column "
                f"{position}: give TableTransform({name}())"
            )
    fit_numbers(transform, features, within, categories)


def fit_numbers(
    transform: FeatureTransform,
    features: np.ndarray | Tensor,
    labels: np.ndarray | Tensor | None,
    categories: np.ndarray | Tensor | None = None,
) -> None:
    """Fit a transform, with labels only if it needs them, and categories only if there are any."""
    given = {"categories": categories} if categories is not None else {}
    given |= {"labels": labels} if transform.fits_labels else {}
    transform.fit(features, **given)


# The hooks are module-level functions, so that a transform can be copied and pickled.
def _before_loading(
    transform: FeatureTransform, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    own = [*transform.named_buffers(recurse=False), *transform.named_parameters(recurse=False)]
    for name, empty in own:
        value = state_dict.get(prefix + name)
        if isinstance(value, Tensor) and not empty.numel():
            new = empty.detach().new_zeros(value.shape)
            setattr(transform, name, nn.Parameter(new) if isinstance(empty, nn.Parameter) else new)


def _after_loading(transform: FeatureTransform, _: Any) -> None:
    transform._end_loading()


class NoTransform(FeatureTransform):
    """Leaves the features of real documents unchanged; those of masked documents become 0.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> NoTransform()(torch.tensor([[3.0, -1.0]]))
    tensor([[ 3., -1.]])
    """

    fits_missing = True

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the features."""
        return features

    def monotone_columns(self) -> Tensor:
        """Return 0 to d - 1: each output rises with the feature in the same column."""
        return torch.arange(self.num_features or 0)

    source_columns = monotone_columns


class Standardize(FeatureTransform):
    """Standardizes each feature by its mean and standard deviation in training.

    The result is (x - mean) / standard deviation, or 0 for a feature that is constant in training.

    Mean and deviation are computed in float64 over the n documents that have the feature. The
    deviation divides by n, not by n - 1. A feature that is always missing in training gives 0.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> fitted = Standardize().fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> fitted(torch.tensor([[1.0, 5.0], [4.0, 9.0]]))
    tensor([[-1.,  0.],
            [ 2.,  0.]])
    """

    fits_missing = True
    mean: Tensor
    scale: Tensor

    def __init__(self, num_features: int | None = None) -> None:
        super().__init__(num_features)
        self.register_buffer("mean", torch.zeros(0))
        self.register_buffer("scale", torch.zeros(0))

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Learn the mean and the standard deviation of each feature.

        Raises:
            ValueError: a feature is infinite in float32.
        """
        mean, scale = np.zeros((2, features.shape[1]))
        for position, present in enumerate(present_columns(features)):
            if not len(present):
                continue
            values = self._warp(torch.from_numpy(present.astype(np.float64))).numpy()
            low, high = values.min(), values.max()
            if low < -LARGEST or high > LARGEST:
                raise ValueError(
                    f"features must be finite in float32 for {type(self).__name__}, got an "
                    f"infinite or larger number in column {position}: use PiecewiseLinearBins "
                    "or Quantile"
                )
            mean[position] = values.mean()
            values -= mean[position]
            deviation = math.sqrt(values @ values / len(values))
            if low < high and deviation > 0:
                scale[position] = min(1 / deviation, LARGEST)
        self.mean = torch.as_tensor(mean).to(self.mean)
        self.scale = torch.as_tensor(scale).to(self.scale)

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the standardized features."""
        if not len(self.mean):
            raise self.not_fitted()
        return self._warp(features).sub(self.mean).mul_(self.scale)

    monotone_columns = source_columns = NoTransform.monotone_columns

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return the mean minus and plus three standard deviations, (d,) each."""
        spread = torch.where(self.scale > 0, 3 / self.scale, 0)
        return self._unwarp(self.mean - spread), self._unwarp(self.mean + spread)

    def _warp(self, features: Tensor) -> Tensor:
        return features

    def _unwarp(self, features: Tensor) -> Tensor:
        return features

    def _end_loading(self) -> None:
        self.num_features = len(self.mean) or self.num_features


def present_columns(features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield each feature's values that are not NaN, as a copy.

    Args:
        features: (documents, d).

    >>> [values.tolist() for values in present_columns(np.array([[1.0, np.nan], [2.0, 3.0]]))]
    [[1.0, 2.0], [3.0]]
    """
    block = max(1, min(_COLUMNS, _VALUES // max(1, len(features))))
    for start in range(0, features.shape[1], block):
        for column in features[:, start : start + block].T.copy():
            absent = np.isnan(column)
            yield column[~absent] if absent.any() else column


class SignedLog1pStandardize(Standardize):
    """Takes logarithms of features, such as counts with a long tail, then standardizes them.

    Each feature x becomes sign(x) log(1 + |x|), which is then standardized as in `Standardize`.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> fitted = SignedLog1pStandardize().fit(torch.tensor([[-1.0], [1.0]]))
    >>> fitted(torch.tensor([[-1.0], [3.0]]))
    tensor([[-1.],
            [ 2.]])
    """

    def _warp(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs().log1p()

    def _unwarp(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs().expm1()


class Join(FeatureTransform):
    """Applies several transforms to the same features, and concatenates their outputs.

    For missing values and categories, wrap the `Join` in `TableTransform`.

    Args:
        transforms: one or more transforms; each is fitted on the training lists.

    Attributes:
        out_features: the sum of the transforms' `out_features`; None before they are known.

    Raises:
        ValueError: `transforms` is empty, or has an element that is not a `FeatureTransform` or
            that has `takes_missing`.

    >>> fitted = Join([NoTransform(), Standardize()]).fit(torch.tensor([[1.0], [3.0]]))
    >>> fitted(torch.tensor([[1.0], [4.0]])), fitted.out_features
    (tensor([[ 1., -1.],
            [ 4.,  2.]]), 2)
    """

    def __init__(self, transforms: list[FeatureTransform]) -> None:
        super().__init__()
        if not isinstance(transforms, Iterable) or isinstance(transforms, str):
            raise ValueError(f"transforms must be a list of FeatureTransforms, got {transforms!r}")
        transforms = [*transforms]
        for transform in transforms:
            if not isinstance(transform, FeatureTransform) or transform.takes_missing:
                raise ValueError(
                    "transforms must be FeatureTransforms that take no missing values (put "
                    f"the Join into a TableTransform), got {transform!r}"
                )
        if not transforms:
            raise ValueError("transforms must have at least one transform, got none")
        self.transforms = nn.ModuleList(transforms)
        self.within_list = any(transform.within_list for transform in transforms)
        self.fits_missing = all(transform.fits_missing for transform in transforms)
        self.fits_labels = any(transform.fits_labels for transform in transforms)

    @property
    def out_features(self) -> int | None:
        """The number of features after all transforms, or None before it is known."""
        widths = [part.out_features for part in self._parts()]
        return None if None in widths else sum(width or 0 for width in widths)

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Fit each transform."""
        for part in self._parts():
            fit_numbers(part, features, labels)

    def _outputs(self, features: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
        outputs = [part(features, mask, None, lengths) for part in self._parts()]
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]

    def monotone_columns(self) -> Tensor:
        """Return the `monotone_columns` of all transforms, concatenated."""
        return torch.cat([part.monotone_columns() for part in self._parts()])

    def source_columns(self) -> Tensor:
        """Return the `source_columns` of all transforms, concatenated."""
        return torch.cat([part.source_columns() for part in self._parts()])

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return the smallest lower end and the largest upper end of the transforms' ranges."""
        lows, highs = zip(*(part.training_range() for part in self._parts()), strict=True)
        return torch.stack(lows).amin(0), torch.stack(highs).amax(0)

    def _end_loading(self) -> None:
        for width in [part.num_features for part in self._parts() if part.num_features][:1]:
            self._set_width(width)

    def _set_width(self, width: int) -> None:
        super()._set_width(width)
        for part in self._parts():
            part._set_width(width)

    def _parts(self) -> list[FeatureTransform]:
        return [part for part in self.transforms if isinstance(part, FeatureTransform)]


class ListTransform(FeatureTransform):
    """Base class of transforms that look at the whole list; a subclass defines `transform_lists`.

    `forward` takes the lists from `lengths`. Without them, each matrix (n, d) of features
    (..., n, d) is a list, and a mask may mark padding.

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
        """Return the transformed features of the documents, which may be in any order.

        Args:
            features: (N, d), the features of all documents.
            lists: (N,), the number of each document's list, from 0.
            num_lists: how many lists there are; some may be empty.
        """
        raise NotImplementedError

    def _outputs(self, features: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor:
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
        # The masked documents of each list form a separate list.
        flat = flat.masked_fill(padding.unsqueeze(-1), 0)
        outputs = self.transform_lists(flat, 2 * lists + padding, 2 * count)
        return outputs.masked_fill(padding.unsqueeze(-1), 0).unflatten(0, features.shape[:-1])


class MinMaxPerList(ListTransform):
    """Scales each feature to [0, 1] within its list.

    The result is (x - min) / (max - min) over the list's real documents; 0 for a constant feature.
    This is LETOR's "query level normalization". NaN gives NaN, and does not count for the other
    documents. There is nothing to fit.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> MinMaxPerList()(torch.tensor([[1.0, 7.0], [3.0, 7.0], [2.0, 7.0]]))
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0000],
            [0.5000, 0.0000]])
    """

    source_columns = NoTransform.source_columns

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the features, scaled to [0, 1] in each list."""
        return _min_max(features, lists, num_lists).to(features.dtype)


class StandardizePerList(ListTransform):
    """Standardizes each feature within its list.

    The result is (x - mean) / standard deviation over the list's real documents; 0 for a constant
    feature.

    The deviation divides by the number of documents n, not by n - 1. A list of one document gives
    0. NaN gives NaN, and does not count for the other documents. There is nothing to fit.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> StandardizePerList()(torch.tensor([[1.0, 7.0], [3.0, 7.0], [2.0, 7.0]]))
    tensor([[-1.2247,  0.0000],
            [ 1.2247,  0.0000],
            [ 0.0000,  0.0000]])
    """

    source_columns = NoTransform.source_columns

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the features, with mean 0 and standard deviation 1 in each list."""
        # After scaling to [0, 1], a constant feature is exactly 0, and no square overflows.
        x = _min_max(features, lists, num_lists)
        zeros, present = x.new_zeros(num_lists, x.shape[1]), ~x.isnan()
        counts = zeros.index_add(0, lists, present.to(x.dtype)).clamp(min=1)
        total = zeros.index_add(0, lists, torch.where(present, x, 0))
        x = x - (total / counts).index_select(0, lists)
        known = torch.where(present, x, 0)
        variance = zeros.index_add(0, lists, known * known) / counts
        deviation = torch.where(variance > 0, variance, 1).sqrt()
        return (x / deviation.index_select(0, lists)).to(features.dtype)


class RankPerList(ListTransform):
    """Replaces each feature by its rank within the list, scaled from -1 (smallest) to 1 (largest).

    The result is (2 r - n - 1) / (n - 1) for the rank r, from 1 to n, in a list of n documents.
    Tied documents have the mean of their ranks. A list of one document gives 0, and so does a
    constant feature. NaN gives NaN, and counts as larger than all other values. There is nothing to
    fit, and no gradient.

    Cost: two sorts of each feature over the batch.

    Args:
        num_features: d, the number of features, if it is already known.

    >>> RankPerList()(torch.tensor([[5.0], [900.0], [5.0], [6.0], [-1.0]])).flatten()
    tensor([-0.2500,  1.0000, -0.2500,  0.5000, -1.0000])
    """

    source_columns = NoTransform.source_columns

    def transform_lists(self, features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
        """Return the scaled ranks."""
        order, keys = _order_in_lists(features, lists)
        # Equal keys are ties: the same value in the same list. Each run of them is a group.
        groups = _runs(keys)
        sizes = torch.zeros_like(keys).scatter_add(1, groups, torch.ones_like(keys))
        ends = sizes.cumsum(1)
        both = (2 * ends - sizes - 1).gather(1, groups)  # the first plus the last position, from 0
        counts = lists.new_zeros(num_lists).index_add(0, lists, torch.ones_like(lists))
        owner = lists[order]
        start, room = (counts.cumsum(0) - counts)[owner], (counts - 1)[owner]
        dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
        ranks = (both - 2 * start - room).to(dtype) / room.clamp(min=1)
        scaled = torch.empty_like(ranks).scatter(1, order, ranks).t().to(features.dtype)
        return scaled.masked_fill(features.isnan(), torch.nan)


def _order_in_lists(features: Tensor, lists: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each feature (N, d) by list, and by value within each list.

    ONNX has no stable sort. So the values are numbered first, equal ones alike, and the second sort
    is by one whole number that has both the list and the number of the value.

    Returns:
        order: (d, N), the documents in sorted order; missing values are the last of their list.
        keys: (d, N), the sorted whole numbers; equal ones are ties.
    """
    x = features.detach().t()
    missing = x.isnan()
    values, order = x.masked_fill(missing, torch.inf).contiguous().sort(dim=1)
    numbers = torch.empty_like(order).scatter(1, order, _runs(values))
    numbers = numbers.masked_fill(missing, features.shape[0])
    keys, order = (lists * (features.shape[0] + 1) + numbers).sort(dim=1)
    return order, keys


def _runs(values: Tensor) -> Tensor:
    """Return for sorted values (d, N) the index of each one's run of equal values, from 0."""
    before = (torch.arange(values.shape[1], device=values.device) - 1).clamp(min=0)
    return (values != values.index_select(1, before)).long().cumsum(1)


def _min_max(features: Tensor, lists: Tensor, num_lists: int) -> Tensor:
    """Return the features (N, d), scaled to [0, 1] in each list, in at least float32."""
    x = features if features.dtype == torch.float64 else features.float()
    limit = torch.finfo(x.dtype).max / 4  # no difference may overflow
    x = x.clamp(-limit, limit)
    if torch.compiler.is_exporting():
        low, high = _ends_by_sorting(x, lists, num_lists)
    else:
        index = lists.unsqueeze(-1).expand_as(x)
        ends, missing = x.new_zeros(num_lists, x.shape[1]), x.isnan()
        least, most = x.masked_fill(missing, limit), x.masked_fill(missing, -limit)
        low = ends.scatter_reduce(0, index, least, "amin", include_self=False)
        high = ends.scatter_reduce(0, index, most, "amax", include_self=False)
    low, high = (end.index_select(0, lists) for end in (low, high))
    return (x - low) / torch.where(high > low, high - low, 1)


def _ends_by_sorting(x: Tensor, lists: Tensor, num_lists: int) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest value (num_lists, d) of each list.

    ONNX has no minimum by index before opset 18.
    """
    order, _ = _order_in_lists(x, lists)
    values = x.t().gather(1, order)
    known = x.new_zeros(num_lists, x.shape[1]).index_add(0, lists, (~x.isnan()).to(x.dtype))
    counts = lists.new_zeros(num_lists).index_add(0, lists, torch.ones_like(lists))
    start = (counts.cumsum(0) - counts).unsqueeze(0).expand(x.shape[1], -1)
    last = start + known.t().long() - 1
    low, high = (values.gather(1, i.clamp(0, max(x.shape[0] - 1, 0))) for i in (start, last))
    return low.t(), high.t()

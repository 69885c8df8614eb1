"""The transform of tables: missing values and categories become plain numbers."""

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import as_numbers
from ltr.datasets.coded import Coded
from ltr.datasets.transforms import (
    FeatureTransform,
    Standardize,
    fit_numbers,
    present_columns,
)
from ltr.shapes import check_at_least


class TableTransform(FeatureTransform):
    """Fills in missing values, encodes categories, and transforms the features.

    The output is the concatenation of three parts, with d' values in total:

    - the d features, transformed by the argument `features`. Before this, a missing feature (NaN)
      is replaced by its median over the training documents that have it (0 if none has it);
    - for each feature that is missing in some training document, an indicator: 1 if the feature is
      missing and 0 otherwise;
    - for each category, 1 in the column of its level and 0 in the columns of its other levels
      (one-hot). Followed by a linear layer, this is a learned embedding. Code 0, of missing and
      unseen values, has a column too; the column is always 0 if no training document had this code.
      `coded` returns the indices of columns instead of zeros and ones.

    A feature that was never missing in training may be missing later: it is replaced by the median.

    Args:
        features: the transform of the features. If it has `fits_missing`, it is fitted on the
            values that are not missing; if not, on all values, after missing values have been
            replaced. Use `Join` for several transforms. Default: `Standardize()`.
        num_features: d, the number of features, if it is already known; 0 if there are only
            categories.

    Attributes:
        out_features: d', the width of the output; None before `fit` or the loading of a state.

    >>> rows = np.array([[1.0], [np.nan], [3.0]], dtype=np.float32)
    >>> fitted = TableTransform().fit(rows, categories=np.array([[1], [2], [1]]))
    >>> fitted.out_features
    5
    >>> fitted(torch.tensor([[2.0], [float("nan")]]), categories=torch.tensor([[2], [0]]))
    tensor([[0., 0., 0., 0., 1.],
            [0., 1., 0., 0., 0.]])
    """

    takes_missing = True
    fits_missing = True
    median: Tensor
    indicators: Tensor
    levels: Tensor
    has_zero: Tensor

    def __init__(
        self, features: FeatureTransform | None = None, num_features: int | None = None
    ) -> None:
        super().__init__()
        if num_features is not None:
            check_at_least("num_features", num_features, 0)
        self.num_features = num_features
        if features is not None and not isinstance(features, FeatureTransform):
            raise ValueError(f"features must be a FeatureTransform, got {features!r}")
        self.features = Standardize() if features is None else features
        self.register_buffer("median", torch.zeros(0))
        self.register_buffer("indicators", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("levels", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("has_zero", torch.zeros(0, dtype=torch.bool))
        # This is the column of each category's code 0; `_lay_out` computes it from `levels`.
        self.register_buffer("starts", torch.zeros(0, dtype=torch.int64), persistent=False)
        self._codes = 0  # this is the width of the one-hot codes
        self.within_list = self.features.within_list
        self.fits_labels = self.features.fits_labels
        self._fitted = False

    @property
    def out_features(self) -> int | None:
        """d', the width of the output, or None before it is known."""
        if not self._fitted:
            return None
        numbers = self.features.out_features if len(self.median) else 0
        return (numbers or 0) + len(self.indicators) + self._codes

    def fit(
        self,
        features: np.ndarray | Tensor,
        categories: np.ndarray | Tensor | None = None,
        labels: np.ndarray | Tensor | None = None,
    ) -> "TableTransform":
        """Learn medians, indicators and levels from the documents of the training lists.

        Args:
            features: (documents, d), NaN where missing; d may be 0 if there are categories.
            categories: (documents, c), codes from 0; None if there are no categories.
            labels: (documents,), which the transform `features` needs if it has `fits_labels`.

        Returns:
            Itself.

        Raises:
            ValueError: a shape is wrong, there is no document, the features are not numbers, or a
                code is not a whole number >= 0.
        """
        features = as_numbers("features", features)
        codes = None if categories is None else as_numbers("categories", categories)
        if features.ndim != 2 or not len(features):
            raise ValueError(f"features must be (documents, d), not empty, got {features.shape}")
        if codes is not None:
            if codes.ndim != 2 or len(codes) != len(features):
                raise ValueError(f"categories must be ({len(features)}, c), got {codes.shape}")
            whole = codes.dtype.kind in "iu"
            if not whole or codes.min(initial=0) < 0:
                got = codes.min(initial=0) if whole else codes.dtype
                raise ValueError(f"categories must be whole numbers >= 0, got {got}")
        if not features.shape[1] and (codes is None or not codes.shape[1]):
            raise ValueError("features must have a column if there are no categories, got none")
        self._check_width(features.shape[1])
        self.num_features = features.shape[1]
        median = np.zeros(features.shape[1], dtype=np.float32)
        missing = np.zeros(features.shape[1], dtype=bool)
        for position, present in enumerate(present_columns(features)):
            missing[position] = len(present) < len(features)
            if len(present):
                median[position] = np.median(present.astype(np.float64))
        self.median = torch.from_numpy(median).to(self.median)
        self.indicators = torch.from_numpy(np.flatnonzero(missing)).to(self.indicators)
        if features.shape[1]:
            fill = missing.any() and not self.features.fits_missing
            numbers = np.where(np.isnan(features), median, features) if fill else features
            fit_numbers(self.features, numbers, labels)
        if codes is not None:
            self.levels = torch.from_numpy(codes.max(axis=0)).to(self.levels)
            self.has_zero = torch.from_numpy((codes == 0).any(axis=0)).to(self.has_zero)
        self._lay_out()
        self._fitted = True
        return self

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the output, (..., n, d'), without missing values; 0 for masked documents.

        See `coded` for the arguments and the errors.
        """
        coded = self.coded(features, mask, categories, lengths)
        return coded.dense() if self._codes else coded.numbers

    def coded(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Coded:
        """Return the output with the indices of the levels' columns instead of one-hot codes.

        Args:
            features: (..., n, d), or (N, d) with `lengths`, NaN where missing; masked documents are
                ignored.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c) codes; a code that is negative or above the largest in training
                counts as 0. None if the transform was fitted without categories.
            lengths: (B,), how many documents each list has; see `FeatureTransform.forward`.

        Raises:
            ValueError: d, c, another shape or a dtype is wrong, mask and lengths are both given, or
                the transform is not fitted.
        """
        self.check_shapes(features, mask, lengths)
        if not self._fitted:
            raise self.not_fitted()
        if categories is not None:
            _check_codes(categories, features)
        width = 0 if categories is None else categories.shape[-1]
        if width != len(self.levels):
            raise ValueError(f"categories must have {len(self.levels)} columns, got {width}")
        parts = []
        if len(self.median):
            filled = torch.where(features.isnan(), self.median.to(features.dtype), features)
            known = () if lengths is None else (None, lengths)  # not all transforms take lengths
            parts.append(self.features(filled, mask, *known))
        if len(self.indicators):
            missing = features.index_select(-1, self.indicators).isnan()
            parts.append(missing.to(features.dtype))
        numbers = torch.cat(parts, dim=-1) if len(parts) > 1 else (parts or [features])[0]
        if categories is None:
            codes = torch.zeros((*features.shape[:-1], 0), dtype=torch.int64, device=numbers.device)
        else:
            levels = torch.where((categories < 0) | (categories > self.levels), 0, categories)
            known = (levels > 0) | self.has_zero
            codes = torch.where(known, levels + self.starts, self._codes)
        coded = Coded(numbers, codes, self._codes)
        return coded if mask is None else coded.where(mask.unsqueeze(-1))

    def monotone_columns(self) -> Tensor:
        """Return the `monotone_columns` of `features`, and -1 for each other output."""
        others = torch.full((len(self.indicators) + self._codes,), -1)
        return torch.cat([self.features.monotone_columns(), others]) if len(self.median) else others

    def source_columns(self) -> Tensor:
        """Return the `source_columns` of `features`, of the indicators and of the levels."""
        levels = torch.arange(len(self.levels), device=self.levels.device)
        others = [self.indicators, (levels + len(self.median)).repeat_interleave(self.levels + 1)]
        return torch.cat([*([self.features.source_columns()] * bool(len(self.median))), *others])

    def training_range(self) -> tuple[Tensor, Tensor]:
        """Return the range of the features in training; see `FeatureTransform.training_range`."""
        if not len(self.median):
            return self.median, self.median
        return self.features.training_range()

    def _lay_out(self) -> None:
        """Give each level a column of the one-hot codes."""
        counts = self.levels + 1
        self.starts = counts.cumsum(0) - counts
        self._codes = int(counts.sum())

    def _end_loading(self) -> None:
        if len(self.median) or len(self.levels):  # otherwise the saved transform was not fitted
            self._set_width(len(self.median))
            self._fitted = True
        self._lay_out()

    def _set_width(self, width: int) -> None:
        super()._set_width(width)
        if width:
            self.features._set_width(width)


def _check_codes(categories: Tensor, features: Tensor) -> None:
    if not isinstance(categories, Tensor) or categories.is_floating_point():
        got = getattr(categories, "dtype", type(categories).__name__)
        raise ValueError(f"categories must be a tensor of whole numbers, got {got}")
    if categories.shape[:-1] != features.shape[:-1]:
        raise ValueError(
            f"categories must have shape {tuple(features.shape[:-1])} and an axis of "
            f"columns, got {tuple(categories.shape)}"
        )

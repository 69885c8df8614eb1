"""Sorting handwritten numbers, and their quantiles (Grover et al. 2019; Cuturi et al. 2019)."""

from ltr.papers.sorting.matrix_sorter import MatrixSorter
from ltr.papers.sorting.numbers import NumberLists, NumbersDataModule
from ltr.papers.sorting.quantile import QuantileRegressor

__all__ = ["MatrixSorter", "NumberLists", "NumbersDataModule", "QuantileRegressor"]

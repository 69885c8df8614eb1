"""Readers, lists on disk, samplers, transforms and Lightning data modules.

Each data module is imported on its first use, because it imports Lightning, which takes seconds.
"""

from typing import TYPE_CHECKING

from ltr.datasets.batches import collate_lists, collate_ragged, pad_batch
from ltr.datasets.column_steps import Category
from ltr.datasets.conversion import convert
from ltr.datasets.letor import read_letor
from ltr.datasets.list_files import open_lists, write_lists
from ltr.datasets.lists import ListDataset, ListSummary
from ltr.datasets.periodic import PeriodicEmbedding
from ltr.datasets.quantiles import PiecewiseLinearBins, Quantile
from ltr.datasets.reading import read_table
from ltr.datasets.samplers import BucketSampler, ListSampler
from ltr.datasets.schema import Schema
from ltr.datasets.splits import QueryFolds, find_splits, query_folds
from ltr.datasets.table_files import load_table
from ltr.datasets.table_transform import TableTransform
from ltr.datasets.transforms import (
    FeatureTransform,
    Join,
    ListTransform,
    MinMaxPerList,
    NoTransform,
    RankPerList,
    SignedLog1pStandardize,
    Standardize,
    StandardizePerList,
)
from ltr.names import package_names

if TYPE_CHECKING:
    from ltr.datasets.digits import DigitsDataModule
    from ltr.datasets.loaders import ListDataModule, SplitDataModule
    from ltr.datasets.table_data import TableDataModule

_LAZY = {
    "DigitsDataModule": "ltr.datasets.digits",
    "ListDataModule": "ltr.datasets.loaders",
    "SplitDataModule": "ltr.datasets.loaders",
    "TableDataModule": "ltr.datasets.table_data",
}

__all__ = [
    "BucketSampler",
    "Category",
    "DigitsDataModule",
    "FeatureTransform",
    "Join",
    "ListDataModule",
    "ListDataset",
    "ListSampler",
    "ListSummary",
    "ListTransform",
    "MinMaxPerList",
    "NoTransform",
    "PeriodicEmbedding",
    "PiecewiseLinearBins",
    "Quantile",
    "QueryFolds",
    "RankPerList",
    "Schema",
    "SignedLog1pStandardize",
    "SplitDataModule",
    "Standardize",
    "StandardizePerList",
    "TableDataModule",
    "TableTransform",
    "collate_lists",
    "collate_ragged",
    "convert",
    "find_splits",
    "load_table",
    "open_lists",
    "pad_batch",
    "query_folds",
    "read_letor",
    "read_table",
    "write_lists",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)

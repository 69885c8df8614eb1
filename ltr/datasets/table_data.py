"""The data module for tables: CSV, Parquet, LETOR text, lists on disk, pandas, polars, Arrow."""

from dataclasses import replace
from typing import Any

from lightning.pytorch.utilities import rank_zero_info, rank_zero_only

from ltr.arrays import check_columns
from ltr.datasets.list_tables import find_folds
from ltr.datasets.lists import ListDataset
from ltr.datasets.loaders import VALIDATION, ListDataModule
from ltr.datasets.prepare import prepare
from ltr.datasets.reading import read_table
from ltr.datasets.schema import Schema, one_or_several
from ltr.datasets.table_files import naming
from ltr.datasets.table_notices import warn_caller
from ltr.datasets.table_transform import TableTransform
from ltr.datasets.transforms import FeatureTransform
from ltr.shapes import check_at_least, check_fraction

_SPLITS = {"train": "path", "val": "val_path", "test": "test_path", "predict": "predict_path"}


class TableDataModule(ListDataModule):
    """Lists from tables: files, or data frames in Python.

    `fit` makes the schema of the training table, and the model saves the schema. So `test` and
    `predict` match the columns of their tables by name, and you need not name the columns again. A
    column that is missing or has another type than in training is an error. One notice names the
    unused columns.

    LETOR text (`.txt`, `.svm` and the like, plain or compressed; see `read_letor`) is a table with
    the columns `qid`, `label` and the features, which are named by their indices. You need not name
    these columns. A feature that no line has is 0, not an error. Comments are document ids.

    `path` may also be a folder of LETOR text with a train, a validation and a test file, under any
    usual name (train.txt, vali.txt, valid.txt, trainingset.txt, rank.train, ...), or with folders
    Fold1, Fold2, ... of such files. These files serve as `path`, `val_path` and `test_path`, and
    `predict` takes the test file.

    A folder that `ltr convert` has written is a table too, and need not fit into memory. The names
    of its columns and the levels of its categories are those of the conversion.

    Args:
        path: the table to train on, in any form that `load_table` takes or that is described above.
            Without a `test_path`, `test` takes this table too (but after a `fit` of this object,
            `test` requires a `test_path`). Without a `predict_path`, `predict` takes this table.
        qid: the column of the query that a row belongs to. `fit` requires it.
        label: the column of graded relevance, or several columns. `fit` and `test` require it.
        weight: the column of the rows' weights, for the loss. Tables to test on or to score may
            lack the columns `weight`, `position` and `protected`.
        position: the column of the positions at which documents were shown, which `Unbiased` needs.
        protected: the column of the protected group (above 0 for its documents), which
            `ExposureParity` needs.
        doc_id: the column of the documents' names.
        features: the columns of numbers, embeddings or dates. Default: see `Schema.infer`.
        categories: the columns of categories. Default: see `Schema.infer`.
        validation: the fraction of the queries of `path` that is held out for validation, in (0,
            1). A hash of the qid and `seed` decides, so a query is either always held out or never.
            Default: a fifth, unless there is a table to validate on.
        val_path: the table to validate on, instead of `validation`.
        test_path: the table to test on.
        predict_path: the table to score.
        batch_size: lists in a batch, in each process.
        transform: the transform of features and categories, which is fitted on the training lists.
            Default: `TableTransform()`.
        max_levels: see `Schema.fit_levels`.
        num_workers: processes that make batches.
        seed: seed of the shuffling and of `validation`, >= 0. Default: see `SplitDataModule`.
        fold: the number of the fold or set, if `path` has several; see `find_splits`.

    Attributes:
        schema: the schema of the table that `fit` has read, or the schema of the model; None until
            `fit` or `use_schema`.

    Raises:
        ValueError: an argument is out of range; or, later, `read_table` refuses a table.

    >>> import pyarrow as pa
    >>> frame = pa.table({"q": [1, 1, 2, 2], "y": [0, 1, 1, 0], "x": [0.1, 0.5, 0.7, 0.2]})
    >>> data = TableDataModule(frame, qid="q", label="y", val_path=frame)
    >>> data.setup("fit")
    >>> len(data.splits["train"]), data.schema.features
    (2, {'x': 1})
    """

    def __init__(
        self,
        path: Any = None,
        qid: str | None = None,
        label: str | list[str] | None = None,
        weight: str | None = None,
        position: str | None = None,
        protected: str | None = None,
        doc_id: str | None = None,
        features: list[str] | None = None,
        categories: list[str] | None = None,
        validation: float | None = None,
        val_path: Any = None,
        test_path: Any = None,
        predict_path: Any = None,
        batch_size: int = 64,
        transform: FeatureTransform | None = None,
        max_levels: int = 256,
        num_workers: int = 0,
        seed: int | None = None,
        fold: int = 1,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            transform=TableTransform() if transform is None else transform,
            num_workers=num_workers,
            seed=seed,
        )
        given = {"train": path, "val": val_path, "test": test_path, "predict": predict_path}
        self.given = {split: source for split, source in given.items() if source is not None}
        if validation is not None:
            check_fraction("validation", validation)
        if validation is not None and val_path is not None:
            raise ValueError(f"val_path must be None where validation is given, got {val_path!r}")
        check_at_least("max_levels", max_levels, 1)
        labels = one_or_several(label)
        self.uses = {"qid": qid, "label": labels, "weight": weight, "position": position}
        self.uses |= {"protected": protected, "doc_id": doc_id}
        check_columns({**self.uses, "features": features, "categories": categories})
        self.features = features
        self.categories = categories
        self.validation = validation
        self.max_levels = max_levels
        self.fold = check_at_least("fold", fold, 1)
        self.schema: Schema | None = None

    def setup(self, stage: str | None = None) -> None:
        """Read the tables to train and validate on; a loader reads other tables when it needs them.

        Raises:
            ValueError: a table or a column is missing, the data are invalid, or all training
                labels are equal.
        """
        if stage in ("fit", None) and "train" not in self.splits:
            self._setup_fit()

    def dataset(self, split: str) -> ListDataset:
        """Return the lists of a split, read when they are first requested.

        Raises:
            ValueError: the split has no lists, or the data are invalid.
        """
        if split not in self.splits:
            if split == "val" and "val" not in self._sources():
                self._setup_fit()
            else:
                self._load(split)
        return super().dataset(split)

    def missing_split(self, split: str) -> ValueError:
        """Return an error that names the missing argument."""
        name, path = _SPLITS[split], self.given.get("train")
        if path is not None and find_folds(path, self.fold):
            file = "test" if split == "predict" else split
            return ValueError(
                f"{name} must be given if path has no {file} file, got None (path {path}, fold "
                f"{self.fold})"
            )
        alone = "" if split == "train" or path is not None else " (or path)"
        return ValueError(f"{name} must be given{alone}, a table with the {split} lists, got None")

    def use_schema(self, schema: Schema) -> None:
        """Use the schema of a model.

        Raises:
            ValueError: the lists were made with another schema, or an argument (such as `label`)
                and the schema name different columns.
        """
        if self.schema is not None and (difference := schema.difference(self.schema)):
            raise ValueError(
                f"the data must have the schema of the model, got a difference: {difference} "
                "(train a new model on a table with other columns or levels)"
            )
        for key in ("qid", "label", "weight", "position", "protected"):
            given, known = self.uses[key], getattr(schema, key)
            if given is not None and known is not None and given != known:
                raise ValueError(f"{key} must be {known!r}, as in training, got {given!r}")
        self.schema = schema

    def _sources(self) -> dict[str, Any]:
        """Return the table of each split that has one."""
        path = self.given.get("train")
        if path is None:
            return self.given
        tables: dict[str, Any] = find_folds(path, self.fold)
        if "test" in tables:
            tables["predict"] = tables["test"]
        elif not tables:
            # After training, `test` does not take the training table: a test on it would not show
            # how good the model is.
            uses = ("train", "predict") if "train" in self.splits else ("train", "test", "predict")
            tables = dict.fromkeys(uses, path)
        return {**tables, **{x: table for x, table in self.given.items() if x != "train"}}

    def _setup_fit(self) -> None:
        sources = self._sources()
        source = sources.get("train")
        if source is None:
            raise self.missing_split("train")
        validation = self.validation or 0
        if "val" not in sources and not validation:
            validation = VALIDATION
        elif "val" in sources and validation:
            raise ValueError(
                "validation must be None if path has a validation file, got "
                f"{validation} ({sources['val']})"
            )
        prepared = prepare(
            source,
            {**self.uses, "features": self.features, "categories": self.categories},
            validation=validation,
            seed=self.seed,
            max_levels=self.max_levels,
            schema=self.schema,
            tell=rank_zero_info,
        )
        if prepared.val is None and validation:
            raise ValueError(
                "validation must leave queries for training and for validation, got "
                f"{validation} of {len(prepared.train)} queries (seed {self.seed})"
            )
        rank_zero_only(warn_caller)(prepared.notice)
        self.splits["train"], self.schema = prepared.train, prepared.schema
        self.num_features = prepared.schema.num_features
        with naming(source):
            self.refuse_equal_labels(prepared.train, f"column {prepared.schema.label!r}: labels")
        if prepared.val is None:
            self._load("val")
        else:
            self.splits["val"] = prepared.val
            queries = len(prepared.train) + len(prepared.val)
            rank_zero_info(
                f"val: {len(prepared.val)} of the {queries} queries are held out for validation, "
                f"by a hash of the qid (validation {validation}, seed {self.seed})"
            )
        self.fit_transform(prepared.train)
        for split in ("train", "val"):
            rank_zero_info(f"{split}: {self.splits[split].summary()}")

    def _load(self, split: str) -> None:
        sources = self._sources()
        source = sources.get(split, sources.get("train") if split == "val" else None)
        if source is None:
            raise self.missing_split(split)
        data = read_table(
            source,
            self._schema_of(split),
            needs_label=split != "predict",
            needs_weight=split == "val",
            tell=None if split == "val" else rank_zero_info,
        )
        self.splits[split] = data
        if split != "val":
            rank_zero_info(f"{split}: {data.summary()}")

    def _schema_of(self, split: str) -> Schema:
        if self.schema is None:
            raise ValueError(
                f"{split} needs the schema of a model that was trained on a table: give a "
                "checkpoint, or fit first"
            )
        doc_id = self.uses["doc_id"]
        schema = self.schema if doc_id is None else replace(self.schema, doc_id=doc_id)
        if split == "test":  # metrics use neither position nor protected
            schema = replace(schema, position=None, protected=None)
        label = self.uses["label"]
        return schema if label is None or schema.label else replace(schema, label=label)

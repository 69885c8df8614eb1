"""The data module for LETOR / svmlight files."""

import warnings
from pathlib import Path
from typing import Literal

import numpy as np

from ltr.datasets.letor import read_letor
from ltr.datasets.lists import ListDataset
from ltr.datasets.loaders import VALIDATION, ListDataModule
from ltr.datasets.splits import find_splits, list_folder
from ltr.datasets.table_transform import TableTransform
from ltr.datasets.transforms import FeatureTransform
from ltr.files import check_path
from ltr.shapes import check_at_least


class LetorDataModule(ListDataModule):
    """Lists from a folder of LETOR / svmlight files: train, validation and test, or folds.

    Args:
        root: a folder with a train, a validation and a test file, plain or compressed, under any
            usual name (train.txt, vali.txt, valid.txt, trainingset.txt, rank.train, ...), or with
            folders Fold1, Fold2, ... of such files.
        fold: which fold, if there are folds.
        batch_size: lists in a batch, in each process.
        transform: of the features, fitted on the training lists; None for `TableTransform()`,
            which fills in missing values and standardizes. `NoTransform()` leaves them unchanged.
        num_features: how many features there are; None takes the largest index in any split.
        sort_by_qid: see `read_letor`.
        validation: if there is no validation file, the fraction of the training lists to hold out
            for it, in [0, 1). A hash of the qid and `seed` decides, so a query always stays on its
            side. None: a fifth is held out for `fit` and `validate`. 0: none is held out.
        predict_path: the file to score with `predict`; None takes the test file.
        num_workers: processes that make batches.
        seed: seed of the shuffling and of `validation`, >= 0. Default: see `SplitDataModule`.
        missing: see `read_letor`.

    Raises:
        ValueError: at construction for an argument out of range, in `setup` for files that are
            missing or that `read_letor` refuses.

    >>> LetorDataModule("data/MQ2008", fold=2).batch_size
    64
    """

    def __init__(
        self,
        root: str | Path,
        fold: int = 1,
        batch_size: int = 64,
        transform: FeatureTransform | None = None,
        num_features: int | None = None,
        sort_by_qid: bool = False,
        validation: float | None = None,
        predict_path: str | Path | None = None,
        num_workers: int = 0,
        seed: int | None = None,
        missing: Literal["keep", "error"] = "keep",
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            transform=TableTransform() if transform is None else transform,
            num_workers=num_workers,
            seed=seed,
        )
        with warnings.catch_warnings():  # Lightning warns of modules among the arguments
            warnings.filterwarnings("ignore", ".*already saved during checkpointing.*")
            self.save_hyperparameters(logger=False)  # names may be the model's too
        if num_features is not None:
            check_at_least("num_features", num_features, 1)
        if validation is not None and not 0 <= validation < 1:
            raise ValueError(f"validation must be in [0, 1), got {validation}")
        self.root = check_path("root", root)
        self.fold = fold
        self.declared_features = num_features
        self.sort_by_qid = sort_by_qid
        self.validation = validation
        self._held_out = validation  # `setup` chooses it if validation is None
        self.predict_path = None
        if predict_path is not None:
            self.predict_path = check_path("predict_path", predict_path)
        self.missing: Literal["keep", "error"] = missing

    def setup(self, stage: str | None = None) -> None:
        """Load the splits; hold out lists for validation if there is no validation file."""
        if self.validation is None and stage in ("fit", "validate") and not self.splits:
            self._held_out = None if "val" in self._files() else VALIDATION
        super().setup(stage)

    def load_splits(self) -> dict[str, ListDataset]:
        """Load the existing files; hold out validation lists if `validation` requires it."""
        files = self._files()
        splits = {split: self._load(path) for split, path in files.items()}
        if "train" in splits and self._held_out:
            if "val" in splits:
                raise ValueError(
                    "validation must be None if root has a validation file, got "
                    f"{self._held_out} (root {self.root} holds {files['val'].name})"
                )
            train = splits["train"]
            held = self.hold_out(train.qids, self._held_out)
            splits["train"] = train.select(np.flatnonzero(~held))
            splits["val"] = train.select(np.flatnonzero(held))
        if "test" in splits:
            splits.setdefault("predict", splits["test"])
        return splits

    def missing_split(self, split: str) -> ValueError:
        """The message names the root, the split and the existing files."""
        if split == "predict":
            return ValueError(
                "predict_path must be a file if root has no test file, got "
                f"{self.predict_path} (root {self.root} holds {list_folder(self.root)})"
            )
        name = {"val": "vali"}.get(split, split)
        return ValueError(
            f"root must hold a {split} file (such as {name}.txt or {name}.txt.gz), got "
            f"{self.root}, fold {self.fold}, which holds {list_folder(self.root)}"
        )

    def _files(self) -> dict[str, Path]:
        files = find_splits(self.root, self.fold)
        if self.predict_path is not None:
            if not self.predict_path.is_file():
                raise ValueError(f"predict_path must be a file, got {self.predict_path}")
            files["predict"] = self.predict_path
        return files

    def _load(self, path: Path) -> ListDataset:
        return read_letor(
            path,
            num_features=self.declared_features,
            sort_by_qid=self.sort_by_qid,
            missing=self.missing,
        )

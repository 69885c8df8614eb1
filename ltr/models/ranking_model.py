"""A trained ranker: the schema of its tables, its transform and its scorer, in one folder."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ltr.config import check_trust
from ltr.config.folder import (
    CONFIG,
    WEIGHTS,
    Saved,
    configs,
    describing,
    load_weights,
    read_folder,
    read_part,
    write_folder,
)
from ltr.datasets.coded import Coded
from ltr.datasets.infer import ROWS
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.transforms import FeatureTransform
from ltr.models.predictor import predict_table
from ltr.models.ragged import score_ragged
from ltr.models.scorer import Scorer, transformed


class RankingModel(nn.Module):
    """A trained ranker: the schema of its tables, the transform of their columns, and the scorer.

    `NeuralRanker.model_` and `Ranker.model` are such models, and `ltr fit` writes one. A model is
    saved in a folder, from which it can be loaded, exported, served and explained.

    Args:
        scorer: the scorer, with its weights; it may be an `Ensemble`.
        transform: the fitted transform of features and categories; None for no transform.
        schema: how the columns of a table are used; None if the model was trained on arrays or on
            LETOR text without a schema.

    Attributes:
        num_features: the number of features of a document, before the transform; None if the
            scorer does not know it yet.
        looks_at_list: whether a score depends on the other documents of the list.
        takes_exact: False, because networks compute in float32; see `Predictor`.

    Raises:
        ValueError: an argument has the wrong type.

    >>> from ltr.models import LinearScorer
    >>> model = RankingModel(LinearScorer(3))
    >>> model(torch.zeros(2, 5, 3)).shape, model.predict(np.zeros((7, 3))).shape
    (torch.Size([2, 5]), (7,))
    """

    takes_exact = False

    def __init__(
        self,
        scorer: Scorer,
        transform: FeatureTransform | None = None,
        schema: Schema | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(scorer, Scorer):
            raise ValueError(f"scorer must be a Scorer, got {scorer!r}")
        for name, value, kind in (
            ("transform", transform, FeatureTransform),
            ("schema", schema, Schema),
        ):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__} or None, got {value!r}")
        self.scorer = scorer
        self.transform = transform
        self.schema = schema

    @property
    def num_features(self) -> int | None:
        """The number of features of a document, before the transform."""
        source = self.scorer if self.transform is None else self.transform
        return getattr(source, "num_features", None)

    @property
    def looks_at_list(self) -> bool:
        """Whether a score depends on the other documents of the list."""
        within = self.transform is not None and self.transform.within_list
        return within or not self.scorer.per_document

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Return the scores (..., n) of raw features (..., n, *item); 0 for masked documents.

        With `lengths` the lists are ragged: features (N, *item), categories (N, c), scores (N,).

        Args:
            features: (..., n, *item), with NaN for missing values, if the transform takes NaN.
            mask: (..., n) bool, True for a real document. Default: all are real.
            categories: (..., n, c), codes, if the transform takes categories.
            lengths: (B,) int64, the number of documents of each list; instead of a mask.

        Raises:
            ValueError: there are categories but no transform that takes them; `mask` and `lengths`
                are both given; or a shape or dtype is wrong.
        """
        if mask is not None and lengths is not None:
            raise ValueError("mask must be None if lengths are given: ragged lists have no mask")
        inputs = self.scorer_inputs(features, mask, categories, lengths)
        # After `half()` or `double()`, the weights have another type than the features.
        if (weight := next(self.scorer.parameters(), None)) is not None:
            inputs = inputs.to(weight.dtype)
        if lengths is None:
            return self.scorer(inputs, mask)
        return score_ragged(self.scorer, inputs, lengths)

    def scorer_inputs(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        categories: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor | Coded:
        """Return what the scorer gets, the output of the transform; the arguments are of `forward`.

        Raises:
            ValueError: there are categories but no transform that takes them.
        """
        if self.transform is not None:
            return transformed(self.scorer, self.transform, features, mask, categories, lengths)
        if categories is not None:
            raise ValueError("categories must be None: there is no transform that takes them")
        return features

    def score(
        self,
        lists: ListDataset,
        exact: np.ndarray | None = None,
        *,
        device: str | torch.device = "cpu",
    ) -> np.ndarray:
        """Return the scores of lists, float32 (documents,), in the order of the documents.

        Args:
            lists: the lists, with the model's features and categories, in memory or on disk.
            exact: not used, because networks compute in float32; see `Predictor`.
            device: where to compute.
        """
        device = torch.device(device)
        model = self
        if device.type != "cpu" or any(x.training for x in self.modules() if x is not self):
            model = copy.deepcopy(self).to(device).eval()  # other threads may use `self`
        with torch.inference_mode():
            parts = [model(**x).float().cpu().numpy() for x in model.batches(lists, device)]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def batches(
        self, lists: ListDataset, device: str | torch.device = "cpu"
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the arguments of `forward` for all documents, some thousand documents at a time.

        If `looks_at_list`, they are whole lists, with their lengths.

        Args:
            lists: the lists, in memory or on disk.
            device: the device of the tensors.
        """
        for part in lists.blocks():
            for start, end in _bounds(part, self.looks_at_list):
                batch = {"features": torch.from_numpy(part.features[start:end]).to(device)}
                if part.categories is not None:
                    batch["categories"] = torch.from_numpy(part.categories[start:end]).to(device)
                if self.looks_at_list:
                    inside = part.offsets[(part.offsets >= start) & (part.offsets <= end)]
                    batch["lengths"] = torch.from_numpy(np.diff(inside)).to(device)
                yield batch

    def predict(
        self, table: Any, qid: Any = None, *, device: str | torch.device = "cpu"
    ) -> np.ndarray:
        """Return a score for each row, float32 (rows,); in a query, the highest score ranks first.

        A file is read chunk by chunk, unless scores depend on the whole list.

        Args:
            table: a pandas or polars data frame, an Arrow table, or an array (rows, d), whose
                columns are called x0, x1 and so on; a file, a folder or a pattern of CSV, Parquet
                or LETOR text; a folder that `ltr convert` wrote; or a `ListDataset`, whose scores
                are in the order of its documents. Columns are matched by name; other columns are
                ignored.
            qid: the name of the query column, or an array (rows,) with the query of each row.
                Needed only if scores depend on the whole list. Default: the query column of the
                training data.
            device: where to compute.

        Raises:
            ValueError: a column is missing or has another type than in training; a value is
                infinite in float32; or `qid` is missing but needed.
        """
        return predict_table(self, table, qid, device=device)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model into a folder: `config.json`, and a file with the weights.

        Even if the process is killed, `load` finds either the folder's old model or this one. Other
        files in the folder stay. A part without a configuration (see `ltr.config.to_config`), such
        as a scorer whose class is in `__main__`, is left out with a warning; `load` then raises an
        error.

        Args:
            folder: the folder, made if it is missing.

        Raises:
            ValueError: a weight is not finite.
            OSError: a file cannot be written, for example because the disk is full. The folder is
                then unchanged.
        """
        write_folder(folder, Saved(self.parts, self.to_dict()))

    @property
    def parts(self) -> dict[str, nn.Module | None]:
        """The scorer and transform by name. The names of saved weights begin with these names."""
        return {"scorer": self.scorer, "transform": self.transform}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `config.json`: the configurations of the parts, and the schema.

        A part without a configuration is None; the value of `unsaved` gives the reason.
        """
        unsaved: dict[str, str] = {}
        parts = configs(self.parts, unsaved)
        return {
            "kind": "RankingModel",
            "unsaved": unsaved,
            "num_features": getattr(self.scorer, "num_features", None),
            **parts,
            "schema": None if self.schema is None else self.schema.to_dict(),
        }

    @classmethod
    def load(cls, folder: str | PathLike[str], *, trust: Sequence[str] = ()) -> Self:
        """Return the model of a folder. Loading runs no code from the files.

        Args:
            folder: a folder that `save`, `ltr fit`, `NeuralRanker.save` or an export wrote.
            trust: packages whose classes the configuration may use, besides `ltr` and `torch.nn`.

        Raises:
            ValueError: the folder holds no model, a file is damaged or names a class that is
                not trusted, the weights do not match their digest, a weight is not finite, or a
                part has no configuration.

        >>> from tempfile import mkdtemp
        >>> from ltr.models import LinearScorer
        >>> model, folder = RankingModel(LinearScorer(3)), mkdtemp()
        >>> model.save(folder)
        >>> features = torch.randn(2, 5, 3)
        >>> bool((RankingModel.load(folder)(features) == model(features)).all())
        True
        """
        trusted = check_trust(trust)
        content, files = read_folder(folder, "RankingModel", "NeuralRanker")
        with describing(folder):
            return cls.from_dict(content, files[WEIGHTS], folder=folder, trusted=trusted)

    @classmethod
    def from_dict(
        cls,
        content: Mapping[str, Any],
        weights: bytes,
        *,
        folder: str | PathLike[str],
        trusted: Sequence[str],
        prefix: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the model that `to_dict` described, with its weights.

        Args:
            content: what `to_dict` returned.
            weights: the content of `model.safetensors`.
            folder: the folder, for error messages.
            trusted: see `ltr.config.check_trust`.
            prefix: the text that stands before a part's name in the names of its weights.
            given: parts by name, used instead of parts made from their configurations.

        Raises:
            ValueError: see `load`.
        """
        made: dict[str, Any] = {"scorer": None, "transform": None, **(given or {})}
        if not {"unsaved", "num_features", "scorer", "transform", "schema"} <= {*content}:
            raise ValueError(f"{folder}: {CONFIG} is not the configuration of a model")
        kinds: dict[str, type[nn.Module]] = {"scorer": Scorer, "transform": FeatureTransform}
        for name, kind in kinds.items():
            if made[name] is not None:
                continue
            if reason := content["unsaved"].get(name):
                raise ValueError(
                    f"{name} of {folder} cannot be loaded, because it could not be saved: {reason}"
                )
            if content[name] is not None:
                made[name] = read_part(content[name], name, kind, trusted)
        schema = None if content["schema"] is None else Schema.from_dict(content["schema"])
        model = cls(**made, schema=schema)
        if content["num_features"] is not None:
            model.scorer.build(content["num_features"])
        parts = {f"{prefix}{name}": part for name, part in model.parts.items() if part is not None}
        load_weights(folder, weights, parts)
        return model.eval()


def _bounds(lists: ListDataset, whole: bool) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of at most `ROWS` documents; whole lists if `whole` is set."""
    ends = lists.offsets if whole else np.arange(len(lists.features) + 1)
    start = 0
    while start < ends[-1]:
        last, following = np.searchsorted(ends, [start + ROWS, start], side="right")
        stop = int(max(ends[last - 1], ends[following]))  # a longer list is a chunk of its own
        yield start, stop
        start = stop

"""The exported form of a model: a module that computes the scores from the raw columns."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import ltr
from ltr.datasets import Schema, TableTransform
from ltr.models import RankingModel

Target = Literal["onnx", "torch"]

Examples = list[tuple[tuple[Any, ...], np.ndarray]]
"""Pairs of inputs and the scores that an export must give for them."""

SHAPES = ((1, 1), (2, 5), (3, 1), (6, 40), (9, 130))
"""The shapes (lists, documents) of the inputs with which each export is checked."""


class ExportedModule(nn.Module):
    """A model in the form that the exporters need, with its inputs in a fixed order.

    Args:
        schema: the columns; None if the model was not trained on a table.
        num_features: how many features a document has.
        num_categories: how many categories a document has.
        looks_at_list: whether a score depends on the other documents of the list.
        per_document: whether the inputs are single documents (N, d), not lists (B, n, d).

    Attributes:
        inputs: the names of the inputs, in order: "features", then "categories" if there are any,
            then "mask" if a score depends on the other documents of the list.
        single: whether features are float32, not float64.
        lowest_opset: the lowest version of the ONNX operator set that the model can have.

    Raises:
        ValueError: `per_document` is True, but the scores depend on the list.
    """

    single = True
    lowest_opset = 14

    def __init__(
        self,
        schema: Schema | None,
        num_features: int,
        num_categories: int,
        looks_at_list: bool,
        per_document: bool,
    ) -> None:
        super().__init__()
        if per_document and looks_at_list:
            raise ValueError(
                "per_document must be False: the model's scores depend on the whole list"
            )
        self.schema, self.per_document = schema, bool(per_document)
        self.num_features, self.num_categories = num_features, num_categories
        self.looks_at_list = looks_at_list
        self.inputs = ("features",)
        self.inputs += ("categories",) * (num_categories > 0)
        self.inputs += ("mask",) * looks_at_list

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores (B, n), or (N,) with `per_document`.

        Args:
            inputs: the tensors that the attribute `inputs` names: `features` (B, n, d) or (N, d),
                NaN for a missing value; `categories` (B, n, c) or (N, c) int64, codes of the
                levels, 0 for a missing or unseen value; `mask` (B, n) bool, True for a real
                document.
        """
        return self.score(**dict(zip(self.inputs, inputs, strict=True)))

    def score(self, features: Tensor, *others: Any, **named: Any) -> Tensor:
        """Return the scores of inputs that are passed by name; subclasses define this method."""
        raise NotImplementedError

    def examples(self) -> Examples:
        """Return inputs of several shapes, with scores; subclasses define this method."""
        raise NotImplementedError

    def complete(self, graph: Any) -> None:
        """Add to an ONNX graph what torch cannot write; by default nothing."""


class ExportedRanker(ExportedModule):
    """A `RankingModel` in the form that is exported.

    Args:
        model: the model.
        per_document: whether the inputs are single documents (N, d), not lists (B, n, d).

    Raises:
        ValueError: the number of features is unknown, or `per_document` is True but the scores
            depend on the list.

    >>> from ltr.models import LinearScorer
    >>> module = ExportedRanker(RankingModel(LinearScorer(3)))
    >>> module(torch.zeros(2, 5, 3)).shape, module.inputs
    (torch.Size([2, 5]), ('features',))
    """

    def __init__(self, model: RankingModel, per_document: bool = False) -> None:
        if not isinstance(width := model.num_features, int):
            raise ValueError(f"num_features must be known: train the model first, got {width}")
        levels = model.transform.levels if isinstance(model.transform, TableTransform) else ()
        super().__init__(model.schema, width, len(levels), model.looks_at_list, per_document)
        self.model, self.transform, self.scorer = model, model.transform, model.scorer
        self.eval()

    def score(self, features: Tensor, **others: Tensor) -> Tensor:
        """Return the scores of inputs that are passed by name."""
        return self.model(features, **others)

    @property
    def summary(self) -> str:
        """The description of the model for the model card."""
        weights = sum(x.numel() for x in self.scorer.parameters())
        behind = f", behind `{type(self.transform).__name__}`" if self.transform else ""
        return f"`{type(self.scorer).__name__}` with {weights:,} weights{behind}."

    def example(self, lists: int, length: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Return random inputs, based on what the transform learned from the training data.

        Features of every third list lie far outside the range of the training data, those of the
        other lists within it. If the transform allows missing values, documents of another third
        of the lists lack some or all features. In all lists, some categories are missing or unseen.
        """
        draws = torch.Generator().manual_seed(seed)
        shape = (lists, length, self.num_features)
        low, high = torch.full((self.num_features,), -1.0), torch.ones(self.num_features)
        if self.transform is not None:
            low, high = (x.float().cpu() for x in self.transform.training_range())
        features = low + torch.rand(shape, generator=draws) * (high - low)
        part = torch.arange(lists) % 3
        features[part == 2] += (
            100 * (high - low) * torch.randn(features[part == 2].shape, generator=draws)
        )
        if self.transform is not None and self.transform.takes_missing:
            gone = torch.rand(shape, generator=draws) < 0.3
            # With probability 1/2, every second document of a list lacks all features.
            gone[..., ::2, :] |= torch.rand((lists, 1, 1), generator=draws) < 0.5
            features[gone & (part == 1)[:, None, None]] = torch.nan
        inputs: list[Tensor] = [features]
        if self.num_categories:
            assert isinstance(self.transform, TableTransform)
            top = self.transform.levels.cpu() + 3  # the codes include two beyond the last level
            codes = torch.rand((*shape[:-1], self.num_categories), generator=draws) * top
            inputs.append(codes.long())
        if self.looks_at_list:
            mask = torch.rand(shape[:-1], generator=draws) < 0.8
            mask[:, 0] = True
            inputs.append(mask)
        if self.per_document:
            inputs = [x.flatten(0, 1) for x in inputs]
        return tuple(inputs)

    def examples(self) -> Examples:
        """Return inputs of several shapes, with the model's scores."""
        inputs = [self.example(*shape, seed) for seed, shape in enumerate(SHAPES)]
        with torch.no_grad():
            return [(given, self(*given).numpy()) for given in inputs]


def describe(module: ExportedModule) -> dict[str, Any]:
    """Return the information for readers of the exported file, as plain values.

    Args:
        module: the exported form of the model.

    Returns:
        `ltr`: the version of ltr; `inputs`: the names of the inputs; `num_features`;
        `per_document`; `looks_at_list`: whether a score depends on the whole list, which must then
        be complete; `features`: the columns, each with its number of features, or None if the model
        was not trained on a table; `dates`: the columns of `features` that are days since
        1970-01-01 (and, with two features, the hour of the day), each with its zone: "utc" or,
        without a time zone, "naive"; `categories`: for each column its kind and its levels, whose
        codes count from 1; `keys`: the names of the columns "qid", "label" (a list for several)
        and "doc_id" in training, each None if there was none.

    >>> from ltr.models import LinearScorer
    >>> describe(ExportedRanker(RankingModel(LinearScorer(3))))["inputs"]
    ['features']
    """
    columns = {} if module.schema is None else module.schema.to_dict()
    return {
        "ltr": ltr.__version__,
        "inputs": list(module.inputs),
        "num_features": module.num_features,
        "per_document": module.per_document,
        "looks_at_list": module.looks_at_list,
        **{key: columns.get(key) for key in ("features", "dates", "categories")},
        "keys": {key: columns.get(key) for key in ("qid", "label", "doc_id")},
    }

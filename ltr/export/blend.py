"""A blend of networks and boosted trees as one ONNX graph."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ltr.columns import FIRST_DAY, LAST_DAY
from ltr.datasets import Schema
from ltr.datasets.column_steps import Category, Number, Step
from ltr.export.program import SHAPES, Examples, ExportedModule, ExportedRanker
from ltr.export.trees import Trees, draw_near, member_trees, read_trees, scores_of_columns
from ltr.models import RankingModel
from ltr.models.blend import BlendModel
from ltr.models.trees import (
    category_of,
    relative_to_list,
    tree_positions,
    tree_values,
)

_DOMAIN = "ai.onnx.ml"
"""The domain of ONNX's operators for trees."""


class Part(NamedTuple):
    """A ranker of a blend.

    Attributes:
        ranker: a network, or trees.
        factor: the factor of the ranker's scores in the sum.
        positions: if the ranker is trees, the index of each of its columns in
            `[*schema.feature_names, *schema.categories]`.
        relative: whether the ranker is trees with columns relative to the list, which follow the
            others.
    """

    ranker: ExportedRanker | Trees
    factor: float
    positions: Sequence[int]
    relative: bool = False


class ExportedBlend(ExportedModule):
    """Networks and trees over the same raw columns; the output is a weighted sum of their scores.

    Args:
        parts: the rankers.
        schema: the columns.
        predict: a function that returns the scores of one list from features (documents, d) and
            codes (documents, c), both in the order of the schema. The export must give these
            scores.
        per_document: whether the inputs are single documents (N, d), not lists (B, n, d).
        single: whether features are float32; else float64, as in the trees of LightGBM.
    """

    lowest_opset = 15
    schema: Schema
    levels: Tensor

    def __init__(
        self,
        parts: Sequence[Part],
        schema: Schema,
        predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
        per_document: bool,
        single: bool,
    ) -> None:
        categories = [len(category.levels) for category in schema.categories.values()]
        networks = [part.ranker for part in parts if isinstance(part.ranker, ExportedRanker)]
        looks_at_list = any(network.looks_at_list for network in networks)
        super().__init__(schema, schema.num_features, len(categories), looks_at_list, per_document)
        self.parts, self.networks = parts, networks
        self.predict, self.single = predict, single
        self.register_buffer("levels", torch.tensor(categories, dtype=torch.int64))
        self.terms = nn.ModuleList(
            _Network(part.ranker, part.factor, schema)
            if isinstance(part.ranker, ExportedRanker)
            else _Forest(part.ranker, part, schema, single)
            for part in parts
            if part.factor
        )
        self.eval()

    def score(
        self, features: Tensor, categories: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the scores (..., n) of the inputs. Only ONNX computes the scores of trees."""
        codes = categories
        if codes is not None:
            codes = torch.where((codes < 0) | (codes > self.levels), 0, codes)
        given = features, codes, mask
        return torch.stack([term(*given, at) for at, term in enumerate(self.terms)]).sum(0)

    def complete(self, graph: Any) -> None:
        """Set the attributes of the nodes that stand for trees in an ONNX graph."""
        from onnx import helper

        for node in graph.node:
            if node.domain == _DOMAIN:
                forest = self.terms[helper.get_node_attr_value(node, "term")]
                assert isinstance(forest, _Forest)
                node.ClearField("attribute")
                attributes = forest.trees.attributes(forest.factor, forest.single)
                node.attribute.extend(
                    helper.make_attribute(*attribute) for attribute in attributes.items()
                )

    @property
    def summary(self) -> str:
        """The description of the model for the model card."""
        kinds = ["trees" if isinstance(x.ranker, Trees) else "networks" for x in self.parts]
        return f"A sum of the scores of {' and '.join(kinds)}."

    @classmethod
    def of_blend(cls, blend: BlendModel, per_document: bool, single: bool) -> "ExportedBlend":
        """Return the exported form of a blend.

        Raises:
            ValueError: a ranker is neither a network nor trees of LightGBM and XGBoost.
        """
        parts = [
            Part(
                ExportedRanker(member.ranker, per_document)
                if isinstance(member.ranker, RankingModel)
                else member_trees(member),
                factor,
                blend.positions_of(member),
                member.relative,
            )
            for member, factor in zip(blend.members, blend.factors, strict=True)
        ]
        return cls(parts, blend.schema, blend.score_codes, per_document, single)

    @classmethod
    def of(cls, ranker: Any, per_document: bool, single: bool) -> "ExportedBlend":
        """Return a blend with a single fitted ranker of trees; see `read_trees`.

        Raises:
            ValueError: `ranker` is of another kind, or the levels of a column are not all text, all
                numbers or all booleans.
        """
        trees = read_trees(ranker)
        if trees is None:
            raise ValueError(
                "model must be a RankingModel or fitted trees of LightGBM, XGBoost, CatBoost or "
                f"scikit-learn, got {type(ranker).__name__}"
            )
        names = trees.names
        levels = {names[at]: pd.Index(known) for at, known in trees.levels.items()}
        steps: dict[str, Step] = {name: Number() for name in names if name not in levels}
        for name, known in levels.items():
            if (category := category_of(known)) is None:
                raise ValueError(
                    f"levels must be text, numbers or booleans alone, got {known.dtype} in {name!r}"
                )
            steps[name] = category
        schema = Schema("qid", steps=steps)

        def predict(features: np.ndarray, codes: np.ndarray) -> np.ndarray:
            columns: dict[str, Any] = dict(zip(schema.features, features.T, strict=True))
            for (name, known), own in zip(levels.items(), codes.T, strict=True):
                columns[name] = pd.Categorical.from_codes(own - 1, known)
            columns = {name: columns[name] for name in names}  # in the order of the trees
            return scores_of_columns(ranker, pd.DataFrame(columns))

        part = Part(trees, 1.0, tree_positions(schema, names))
        return cls([part], schema, predict, per_document, single)

    def examples(self) -> Examples:
        """Return inputs of several shapes, with the scores that the libraries compute.

        See `draw_near` for the features. If a network does not take missing values, none is
        missing. Some categories are missing.
        """
        rng, examples = np.random.default_rng(0), []
        splits = [self._splits(at) for at in range(self.schema.num_features)]
        for lists, length in SHAPES:
            rows = lists * length
            columns = [draw_near(rng, values, rows, self._takes_missing) for values in splits]
            features = np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
            _make_dates(features, self.schema)
            tops = [len(category.levels) for category in self.schema.categories.values()]
            codes = rng.integers(0, np.array(tops, dtype=np.int64) + 1, (rows, len(tops)))
            scores = [
                self.predict(features[start : start + length], codes[start : start + length])
                for start in range(0, rows, length)
            ]
            if self.single:  # the cast follows scoring, so that the check sees rounding errors
                features = features.astype(np.float32)
            given = {"features": features, "categories": codes, "mask": np.ones(rows, dtype=bool)}
            shape = (rows,) if self.per_document else (lists, length)
            inputs = (torch.from_numpy(given[name]) for name in self.inputs)
            inputs = tuple(x.reshape(*shape, *x.shape[1:]) for x in inputs)
            examples.append((inputs, np.stack(scores).reshape(shape)))
        return examples

    @property
    def _takes_missing(self) -> bool:
        transforms = [network.transform for network in self.networks]
        return all(transform is None or transform.takes_missing for transform in transforms)

    def _splits(self, at: int) -> np.ndarray:
        """Return a feature's splits in all trees, with the ends of its training range if known."""
        splits, name = set[float](), self.schema.feature_names[at]
        for part in self.parts:
            if isinstance(part.ranker, Trees):
                if at in part.positions:
                    splits |= {*part.ranker.splits([*part.positions].index(at))}
            elif part.ranker.transform is not None and part.ranker.schema:
                own = part.ranker.schema.feature_names
                if name in own:
                    ends = part.ranker.transform.training_range()
                    splits |= {x[own.index(name)].item() for x in ends}
        return np.array(sorted(splits))


class _Network(nn.Module):
    """A network of a blend, which gets only the columns that it was trained on.

    Args:
        member: the network.
        factor: the factor of the network's scores.
        schema: the schema of the blend.
    """

    positions: Tensor
    categories: Tensor
    starts: Tensor
    codes: Tensor

    def __init__(self, member: ExportedRanker, factor: float, schema: Schema) -> None:
        super().__init__()
        self.member, self.factor = member, factor
        known, levels = schema.feature_names, schema.categories
        own = member.schema.feature_names if member.schema else known
        categories = member.schema.categories if member.schema else {}
        if missing := {*own} - {*known} | {*categories} - {*levels}:
            raise ValueError(f"column {min(missing)!r} must be a column of the blend, got {known}")
        # Each table after the first belongs to a category, and has the network's code for each code
        # of the blend.
        tables = [[0]]
        for name, category in categories.items():
            codes = {level: code for code, level in enumerate(category.levels, start=1)}
            tables.append([0, *(codes.get(level, 0) for level in levels[name].levels)])
        starts = np.cumsum([len(table) for table in tables])[:-1]
        numbers = {
            "positions": [known.index(name) for name in own],
            "categories": [[*levels].index(name) for name in categories],
            "starts": starts.tolist(),
            "codes": [code for table in tables for code in table],
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.int64))

    def forward(
        self, features: Tensor, codes: Tensor | None, mask: Tensor | None, term: int
    ) -> Tensor:
        given = {}
        if codes is not None and len(self.categories):
            own = codes.index_select(-1, self.categories) + self.starts
            given["categories"] = self.codes[own]
        if mask is not None and self.member.looks_at_list:
            given["mask"] = mask
        return self.member.score(features[..., self.positions].float(), **given) * self.factor


class _Forest(nn.Module):
    """Trees of a blend: a node of ONNX, which gets the numbers that the trees compare.

    Args:
        trees: the trees.
        part: the trees and how the blend uses them.
        schema: the schema of the blend.
        single: whether features are float32.
    """

    order: Tensor
    starts: Tensor
    values: Tensor

    def __init__(self, trees: Trees, part: Part, schema: Schema, single: bool) -> None:
        super().__init__()
        self.trees, self.factor, self.single = trees, part.factor, single or trees.single
        self.relative = part.relative
        width = schema.num_features
        start = width + len(schema.categories)
        order = [*part.positions, *(range(start, start + 2 * width) if part.relative else ())]
        self.register_buffer("order", torch.tensor(order, dtype=torch.int64))
        tables = []
        for at, category in enumerate(schema.categories.values(), start=width):
            own = [known for column, known in trees.levels.items() if part.positions[column] == at]
            tables.append([math.nan, *_tree_values(category, *own)])
        starts = np.cumsum([0, *(len(table) for table in tables)])[:-1]
        self.register_buffer("starts", torch.tensor(starts))
        values = [value for table in tables for value in table]
        self.register_buffer("values", torch.tensor(values, dtype=torch.float64))

    def forward(
        self, features: Tensor, codes: Tensor | None, mask: Tensor | None, term: int
    ) -> Tensor:
        numbers = features
        if codes is not None:
            values = self.values.to(features.dtype)[codes + self.starts]
            features = torch.cat([features, values], dim=-1)
        if self.relative:
            features = torch.cat([features, relative_to_list(numbers, mask=mask)], dim=-1)
        rows = features.flatten(0, -2).index_select(1, self.order)
        rows = rows.float() if self.single else rows
        if not math.isnan(self.trees.missing):
            rows = torch.where(rows == self.trees.missing, torch.nan, rows)
        if self.trees.whole:  # -0.5 becomes 0, as in a C cast to int
            whole = torch.tensor([at in self.trees.whole for at in range(rows.shape[1])])
            rows = torch.where(whole, rows.trunc(), rows)
        operator = f"{_DOMAIN}::TreeEnsembleRegressor"
        # The operator has attributes that torch cannot write. `complete` sets them, and finds the
        # term by its index.
        more: dict[str, Any] = {"shape": [rows.shape[0], 1], "version": 3}
        scores = torch.onnx.ops.symbolic(
            operator, [rows], {"term": term}, dtype=torch.float32, **more
        )
        return scores.reshape(features.shape[:-1])


def _tree_values(category: Category, known: Sequence[Any] | None = None) -> list[float]:
    """Return the number that stands for each level of a category in trees; NaN if none does.

    Args:
        category: the category of the blend.
        known: the levels of a column of pandas' categories, which the trees compare by their
            indices. Default: the trees got the column from `tree_table`.
    """
    if known is None:
        return tree_values(category)
    own = category_of(known)
    indices = {} if own is None else {x: float(at) for at, x in enumerate(own.levels)}
    return [indices.get(level, math.nan) for level in category.levels]


def _make_dates(features: np.ndarray, schema: Schema) -> None:
    """Turn the random values in columns of dates into days and hours of dates, in place."""
    names = schema.feature_names
    for name in schema.dates:
        start, width = names.index(name), schema.features[name]
        numbers = np.zeros((len(features), 2))
        numbers[:, :width] = features[:, start : start + width]
        numbers = np.floor(numbers.clip([FIRST_DAY, 0], [LAST_DAY, 23.999]) * [1, 3600]) / [1, 3600]
        numbers[np.isnan(numbers).any(axis=1)] = np.nan
        features[:, start : start + width] = numbers[:, :width].astype(np.float32)

"""A blend of networks and boosted trees as one ONNX graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ltr.config.folder import Saved
from ltr.datasets import Schema
from ltr.datasets.column_steps import Number, Step, as_dates, read_dates
from ltr.estimators.categories import category_of, from_codes
from ltr.export.program import SHAPES, Examples, ExportedRanker
from ltr.export.trees import Trees, read_trees
from ltr.models import RankingModel
from ltr.serving import FIRST_DAY, LAST_DAY

_FEATURES, _CODES, _MASK = "features", "categories", "mask"


@dataclass
class ExportedBlend:
    """Networks and trees over the same columns: the input is the raw columns, the output one score.

    Attributes:
        members: the rankers.
        factors: of their scores, which are added.
        schema: the columns. Trees take a category, or a column of booleans, as the position of its
            level, counted from 0.
        columns: the names of all columns, in the order of the training, in which a column of dates
            may be two; see `Schema.feature_names`.
        predict: returns the scores of one list, from features (documents, d) and codes
            (documents, c), as the schema orders them; what an export is compared with.
        per_document: whether the inputs are single documents (N, d), not lists (B, n, d).
        single: whether features are float32; else float64, as the trees of LightGBM take them.
        saved: what the folder of an export gets, so that it can be loaded; None for nothing.
    """

    members: list[ExportedRanker | Trees]
    factors: list[float]
    schema: Schema
    columns: list[str]
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray]
    per_document: bool = False
    single: bool = False
    saved: Saved | None = None
    inputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        dates = self.schema.dates
        wide = [x for x, width in self.schema.features.items() if width > 1 and x not in dates]
        if wide:
            raise ValueError(f"columns must be single numbers, got several in {wide[0]!r}")
        networks = [one for one in self.members if isinstance(one, ExportedRanker)]
        self.looks_at_list = any(one.looks_at_list for one in networks)
        if self.per_document and self.looks_at_list:
            raise ValueError(
                "per_document must be False: the model's scores depend on the whole list"
            )
        self.num_features = self.schema.num_features
        self.num_categories = len(self.schema.categories)
        self.inputs = (_FEATURES,) + (_CODES,) * (self.num_categories > 0)
        self.inputs += (_MASK,) * self.looks_at_list

    @property
    def summary(self) -> str:
        """The description of the model for the model card."""
        kinds = ["trees" if isinstance(one, Trees) else "networks" for one in self.members]
        return f"A sum of the scores of {' and '.join(kinds)}."

    @classmethod
    def of_blend(
        cls, blend: Any, names: Sequence[str], per_document: bool, single: bool
    ) -> "ExportedBlend":
        """Return the exported form of a fitted `Blend`; `names` are those of its rankers.

        Raises:
            ValueError: a ranker is neither a network nor trees, or the columns have no schema.
        """
        members: list[ExportedRanker | Trees] = []
        for name, one in zip(names, blend.rankers_, strict=True):
            if isinstance(model := getattr(one, "model_", None), RankingModel):
                members.append(ExportedRanker(model, per_document))
            elif (trees := read_trees(one)) is not None:
                members.append(trees)
            else:
                raise ValueError(
                    f"rankers must be NeuralRankers or trees of LightGBM and XGBoost, got {name}"
                )
        schema = blend.schema_
        if schema is None and blend.levels_:
            raise ValueError("columns must have text as names, and levels of one type")
        if schema is None:
            columns = [f"x{i}" for i in range(blend.n_features_in_)]
            schema = Schema("qid", steps=dict.fromkeys(columns, Number()))
        else:
            own = {name: schema.steps[name].feature_names(name) for name in schema.features}
            columns = [x for name in blend.feature_names_in_ for x in own.get(name, [name])]
        factors = (blend.weights_ * blend.scales_).tolist()
        predict = blend.model_.score_codes
        return cls(members, factors, schema, columns, predict, per_document, single)

    @classmethod
    def of(cls, ranker: Any, per_document: bool, single: bool) -> "ExportedBlend":
        """Return the blend of one fitted ranker of LightGBM or XGBoost.

        Raises:
            ValueError: it is not such a ranker, or has levels of several types.
        """
        trees = read_trees(ranker)
        if trees is None:
            raise ValueError(
                "model must be a RankingModel or a fitted ranker of LightGBM or XGBoost, got "
                f"{type(ranker).__name__}"
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
        model = getattr(ranker, "booster_", ranker)  # LightGBM's estimator warns of arrays

        def predict(features: np.ndarray, codes: np.ndarray) -> np.ndarray:
            X: Any = features
            if levels:
                X = from_codes(schema, levels, features, codes)[names]
            return np.asarray(model.predict(X), dtype=np.float64)

        return cls([trees], [1.0], schema, names, predict, per_document, single)

    def examples(self) -> Examples:
        """Return inputs of several shapes, with the scores that the libraries compute.

        A third of the numbers lies exactly on a split of the trees, others next to it or between
        splits. A fifth of the numbers is missing, and so are some categories.
        """
        rng, found = np.random.default_rng(0), []
        splits = [self._splits(name) for name in self.schema.feature_names]
        for lists, length in SHAPES:
            rows = lists * length
            columns = [_draw(rng, values, rows, self._takes_missing) for values in splits]
            features = np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
            _make_dates(features, self.schema)
            tops = [len(one.levels) for one in self.schema.categories.values()]
            codes = rng.integers(0, np.array(tops, dtype=np.int64) + 1, (rows, len(tops)))
            scores = [
                self.predict(features[start : start + length], codes[start : start + length])
                for start in range(0, rows, length)
            ]
            if self.single:  # after the scores, so that the rounding shows
                features = features.astype(np.float32)
            given = {_FEATURES: features, _CODES: codes, _MASK: np.ones(rows, dtype=bool)}
            shape = (rows,) if self.per_document else (lists, length)
            inputs = (given[name] for name in self.inputs)
            inputs = tuple(x.reshape(*shape, *x.shape[1:]) for x in inputs)
            found.append((inputs, np.stack(scores).reshape(shape)))
        return found

    @property
    def _takes_missing(self) -> bool:
        networks = [one for one in self.members if isinstance(one, ExportedRanker)]
        return all(one.transform is None or one.transform.takes_missing for one in networks)

    def _splits(self, name: str) -> list[float]:
        """Return the splits of a column in all trees, or the range of its training values."""
        position = self.columns.index(name)
        trees = [one for one in self.members if isinstance(one, Trees)]
        found = sorted({x for one in trees for x in one.splits(position)})
        for one in self.members:
            if isinstance(one, ExportedRanker) and one.transform is not None:
                own = one.schema.feature_names if one.schema else self.columns
                if name in own:
                    low, high = (x[own.index(name)].item() for x in one.transform.training_range())
                    return [low, *found, high]
        return found or [-1.0, 0.0, 1.0]

    def graph(self, opset: int, network: Callable[[ExportedRanker, int], Any]) -> Any:
        """Return the ONNX model.

        Args:
            opset: the version of the ONNX operator set.
            network: writes the ONNX model of a network, of this opset.
        """
        from onnx import TensorProto, compose, helper

        number = TensorProto.FLOAT if self.single else TensorProto.DOUBLE
        lead = ["documents"] if self.per_document else ["lists", "documents"]
        kinds = {
            _FEATURES: (number, [*lead, self.num_features]),
            _CODES: (TensorProto.INT64, [*lead, self.num_categories]),
            _MASK: (TensorProto.BOOL, lead),
        }
        build = _Builder(number)
        build.common(self.schema, [*lead])
        scores = []
        for position, (member, factor) in enumerate(zip(self.members, self.factors, strict=True)):
            if not factor:
                continue
            if isinstance(member, Trees):
                scores.append(build.trees(member, factor, self._order(), self.single))
                continue
            model = compose.add_prefix(network(member, opset), f"network{position}.")
            given = self._network_inputs(build, member)
            build.extend(model.graph, given)
            scores.append(build.node("Mul", [model.graph.output[0].name, build.number(factor)]))
        build.nodes.append(helper.make_node("Sum", scores, ["scores"]))
        graph = helper.make_graph(
            build.nodes,
            "blend",
            [helper.make_tensor_value_info(name, *kinds[name]) for name in self.inputs],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, lead)],
            build.constants,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _order(self) -> list[int]:
        """Return the position of each column of the training among features and categories."""
        positions = {
            name: at
            for at, name in enumerate([*self.schema.feature_names, *self.schema.categories])
        }
        return [positions[name] for name in self.columns]

    def _network_inputs(self, build: "_Builder", member: ExportedRanker) -> list[str]:
        """Return the names of a network's inputs."""
        known = self.schema.feature_names
        own = member.schema.feature_names if member.schema else known
        categories = member.schema.categories if member.schema else {}
        if missing := {*own} - {*known} | {*categories} - {*self.schema.categories}:
            raise ValueError(f"column {min(missing)!r} must be a column of the blend, got {known}")
        found = [build.columns("float32", [known.index(name) for name in own])]
        if categories:
            all_levels = {name: one.levels for name, one in self.schema.categories.items()}
            positions = [[*all_levels].index(name) for name in categories]
            tables = []
            for name, one in categories.items():
                codes = {level: code for code, level in enumerate(one.levels, start=1)}
                tables.append([0, *(codes.get(level, 0) for level in all_levels[name])])
            found.append(build.recoded(positions, tables))
        return found + [_MASK] * member.looks_at_list


class _Builder:
    """Nodes and constants of an ONNX graph.

    Args:
        number: the type of the features.
    """

    def __init__(self, number: int) -> None:
        self.number_type = number
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        from onnx import helper

        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, dtype=dtype), name))
        return name

    def number(self, value: float) -> str:
        """Add a float32 number; return its name."""
        return self.constant(value, np.float32)

    def common(self, schema: Schema, lead: list[str]) -> None:
        """Add the nodes that all rankers share: codes within the levels, and columns as numbers."""
        dtype = np.float32 if self.number_type == 1 else np.float64
        self.flat = _FEATURES
        if schema.categories:
            tops = self.constant([len(one.levels) for one in schema.categories.values()], np.int64)
            zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
            above = self.node("Greater", [_CODES, tops])
            below = self.node("Less", [_CODES, zero])
            self.codes = self.node("Where", [self.node("Or", [above, below]), zero, _CODES])
            positions = self.node(
                "Cast", [self.node("Sub", [self.codes, one])], to=self.number_type
            )
            missing = self.node("Equal", [self.codes, zero])
            numbers = self.node("Where", [missing, self.constant(np.nan, dtype), positions])
            self.flat = self.node("Concat", [_FEATURES, numbers], axis=-1)
        width = schema.num_features + len(schema.categories)
        self.flat = self.node("Reshape", [self.flat, self.constant([-1, width], np.int64)])
        shape = self.node("Shape", [_FEATURES])
        ends = [self.constant([at], np.int64) for at in (0, len(lead))]
        self.lead = self.node("Slice", [shape, *ends])

    def trees(self, trees: Trees, factor: float, order: list[int], single: bool) -> str:
        """Add an ensemble of trees; return the name of its scores."""
        from onnx import TensorProto, helper

        positions = self.constant(order, np.int64)
        rows = self.node("Gather", [self.flat, positions], axis=1)
        single = single or trees.single
        dtype = np.float32 if single else np.float64
        if single:
            rows = self.node("Cast", [rows], to=TensorProto.FLOAT)
        if trees.missing == trees.missing:
            gone = self.node("Equal", [rows, self.constant(trees.missing, dtype)])
            rows = self.node("Where", [gone, self.constant(np.nan, dtype), rows])
        if trees.whole:  # -0.5 is 0, as in C
            cut = self.node("Floor", [self.node("Abs", [rows])])
            cut = self.node("Mul", [cut, self.node("Sign", [rows])])
            which = self.constant([at in trees.whole for at in range(len(order))], bool)
            rows = self.node("Where", [which, cut, rows])
        name = f"trees{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                "TreeEnsembleRegressor",
                [rows],
                [name],
                domain="ai.onnx.ml",
                **trees.attributes(factor, single),
            )
        )
        return self.node("Reshape", [name, self.lead])

    def columns(self, kind: str, positions: list[int]) -> str:
        """Add some of the features in float32; return their name."""
        from onnx import TensorProto

        rows = self.node("Gather", [_FEATURES, self.constant(positions, np.int64)], axis=-1)
        return self.node("Cast", [rows], to=TensorProto.FLOAT)

    def recoded(self, positions: list[int], tables: list[list[int]]) -> str:
        """Add the codes of some categories, each mapped by a table; return their name."""
        own = self.node("Gather", [self.codes, self.constant(positions, np.int64)], axis=-1)
        starts = np.cumsum([0, *(len(one) for one in tables[:-1])])
        at = self.node("Add", [own, self.constant(starts, np.int64)])
        table = self.constant([code for one in tables for code in one], np.int64)
        return self.node("Gather", [table, at])

    def extend(self, graph: Any, inputs: list[str]) -> None:
        """Add a graph, with its inputs in order."""
        from onnx import helper

        for one, given in zip(graph.input, inputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [given], [one.name]))
        self.nodes.extend(graph.node)
        self.constants.extend(graph.initializer)


def _make_dates(features: np.ndarray, schema: Schema) -> None:
    """Turn random numbers into dates for columns of dates."""
    names = schema.feature_names
    for name in schema.dates:
        start, width = names.index(name), schema.features[name]
        numbers = np.zeros((len(features), 2))
        numbers[:, :width] = features[:, start : start + width]
        numbers = np.floor(numbers.clip([FIRST_DAY, 0], [LAST_DAY, 23.999]) * [1, 3600]) / [1, 3600]
        dates = pa.chunked_array([pa.array(as_dates(numbers))])
        features[:, start : start + width] = read_dates(dates, name, "naive")[:, :width]


def _draw(rng: np.random.Generator, splits: list[float], rows: int, missing: bool) -> np.ndarray:
    values = rng.choice(splits, rows)
    inside = rng.uniform(splits[0], splits[-1], rows)
    draw = rng.random(rows)
    toward = np.where(draw < 0.5, -np.inf, np.inf)
    values = np.where(draw > 0.35, np.nextafter(values, toward), values)
    values = np.where(draw > 0.6, inside, values)
    return np.where((draw > 0.8) & missing, np.nan, values)

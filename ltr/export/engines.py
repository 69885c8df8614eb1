"""Write trees and linear models for search engines, and check the written files.

Each engine has a writer, and a reader that follows the rule of the engine's own code. An export
reads the written JSON again, and compares the reader's scores with those of the model.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ltr.arrays import rank
from ltr.export.engine_models import EngineModel
from ltr.export.forest import Forest, Node
from ltr.export.trees import draw_near
from ltr.files import check_path, write_files
from ltr.names import plural

Engine = Literal["opensearch", "elasticsearch", "solr"]
Missing = Literal["model", "zero"]

LIMIT = 1e-5
"""The largest allowed difference of scores, as a fraction of the sum of the absolute leaves."""

_LARGEST = np.finfo(np.float32).max
_SLACK = np.float32(1e-6)
"""Solr adds this to the threshold of a split."""

_LIST = 10
"""The generated rows of the check are lists of this length."""

_ROWS = 500, 100_000
"""The check generates at least and at most so many rows."""


@dataclass(frozen=True)
class EngineExport:
    """The result of an export for a search engine.

    Attributes:
        model: the file of the model.
        features: the file of the features, with placeholders for their queries.
        difference: the largest difference from the model's scores, as a fraction of the largest
            absolute score.
        rows: how many rows were compared.
        moved: how many of them have another position in their list.
        notes: what users should know, one sentence each.
    """

    model: Path
    features: Path
    difference: float
    rows: int
    moved: int
    notes: tuple[str, ...]


def export_engine(
    model: Any,
    path: str | PathLike[str],
    to: Engine,
    missing: Missing = "model",
    rows: Any = None,
    qid: Any = None,
) -> EngineExport:
    """Write a model for a search engine; see `ltr.export.export_model`."""
    if missing not in ("model", "zero"):
        raise ValueError(f'missing must be "model" or "zero", got {missing!r}')
    if rows is None and qid is not None:
        raise ValueError("rows must be given with qid, got None")
    target, beside = engine_files(path)
    if (suffix := Path(path).suffix) in (".onnx", ".pt2"):
        raise ValueError(f"path must end in .json or be a folder for to={to!r}, got {suffix}")
    folder = os.path.abspath(target.parent)  # this gives the folder "." its name
    name = target.stem if suffix == ".json" else os.path.basename(folder)
    source, writer = EngineModel.of(model), WRITERS[to]
    if not source.used:
        raise ValueError("the scores of the model must depend on a column, got a constant")
    if isinstance(source.form, Forest):
        content = writer.trees(source.form, name, missing)
    elif writer.linear is None:
        raise ValueError(
            "model must be trees for Elasticsearch's own learning to rank, got a linear model"
        )
    else:
        content = writer.linear({x: source.form.weights[x] for x in source.used}, name)
    model_text = json.dumps(content, allow_nan=False) + "\n"
    features = writer.features(source.used, name, missing)
    features_text = json.dumps(features, indent=1, ensure_ascii=False) + "\n"
    report = _Check(source, to, missing, json.loads(model_text)).report(rows, qid)
    write_files({beside: features_text.encode(), target: model_text.encode()})
    return EngineExport(target, beside, *report)


def engine_files(path: str | PathLike[str]) -> tuple[Path, Path]:
    """Return the files of the model and of its features that an export to a path writes.

    >>> [str(file) for file in engine_files("shop.json")], str(engine_files("shop")[1])
    (['shop.json', 'shop.features.json'], 'shop/features.json')
    """
    path = check_path("path", path)
    if path.suffix == ".json":
        return path, path.with_suffix(".features.json")
    return path / "model.json", path / "features.json"


Columns = Mapping[str, np.ndarray]
Rule = Literal["file", "zero", "right"]
"""What an engine does with a missing value: what the file says, as with 0, or to the right."""


class _Scores:
    """Scores of rows, added up term by term.

    Args:
        columns: the columns of the rows.
        dtype: the type in which the engine adds.

    Attributes:
        single: the scores of the engine, (rows,).
        exact: the same sums in float64, (rows,).
        size: the sums of the absolute terms, (rows,).
    """

    def __init__(self, columns: Columns, dtype: type) -> None:
        rows = len(next(iter(columns.values())))
        self.single, self.exact, self.size = np.zeros(rows, dtype), np.zeros(rows), np.zeros(rows)

    def add(self, at: np.ndarray | slice, terms: Any) -> None:
        """Add terms, rounded to the type of the engine, to the scores of some rows."""
        rounded = np.asarray(terms, self.single.dtype)
        self.single[at] += rounded
        self.exact[at] += rounded
        self.size[at] += np.abs(rounded)

    def add_tree(self, root: Any, leaf: str, split: "Split") -> None:
        """Add the leaves of a tree; `leaf` is the key of a leaf's value."""
        waiting = [(root, np.arange(len(self.single)))]
        while waiting:
            node, rows = waiting.pop()
            if leaf in node:
                self.add(rows, node[leaf])
                continue
            goes_left, left, right = split(node, rows)
            waiting += [(left, rows[goes_left]), (right, rows[~goes_left])]

    def add_linear(self, weights: Mapping[str, Any], columns: Columns) -> None:
        """Add the columns times their weights; a missing value counts as 0."""
        for name, weight in weights.items():
            self.add(slice(None), np.float32(weight) * np.nan_to_num(columns[name]))


Split = Callable[[Any, np.ndarray], tuple[np.ndarray, Any, Any]]
"""A function of a node and row indices: which rows go left, and the left and the right child."""


# OpenSearch, and the plugin for Elasticsearch: `model/xgboost+json` and `model/linear`


def _write_opensearch(forest: Forest, name: str, missing: Missing) -> dict[str, Any]:
    def node(tree: list[Node], at: int, depth: int) -> dict[str, Any]:
        own = tree[at]
        if not own.left:
            return {"nodeid": at, "leaf": _short(own.value)}
        return {
            "nodeid": at,
            "depth": depth,
            "split": forest.names[own.column],
            "split_condition": _short(_above(own.most)),
            "yes": own.left,
            "no": own.right,
            "missing": own.left if _missing_left(own, missing) else own.right,
            "children": [node(tree, child, depth + 1) for child in (own.left, own.right)],
        }

    splits = [node(tree, 0, 0) for tree in forest.trees]
    return _of_plugin(name, "model/xgboost+json", {"objective": "rank:ndcg", "splits": splits})


def _of_plugin(name: str, kind: str, definition: Any) -> dict[str, Any]:
    return {"model": {"name": name, "model": {"type": kind, "definition": definition}}}


def _write_opensearch_linear(weights: Mapping[str, float], name: str) -> dict[str, Any]:
    return _of_plugin(name, "model/linear", {x: _short(weight) for x, weight in weights.items()})


def _write_opensearch_features(names: list[str], name: str, missing: Missing) -> dict[str, Any]:
    features = [
        {"name": x, "params": [], "template_language": "mustache", "template": _field_score(x)}
        for x in names
    ]
    return {"featureset": {"name": name, "features": features}}


def _field_score(field: str) -> dict[str, Any]:
    """Return the placeholder of a feature's query: the value of the field of the same name."""
    value = {"field_value_factor": {"field": field}, "boost_mode": "replace"}
    return {"function_score": {"query": {"exists": {"field": field}}, **value}}


def _read_opensearch(content: Any, columns: Columns, rule: Rule) -> _Scores:
    model, scores = content["model"]["model"], _Scores(columns, np.float32)
    if model["type"] == "model/linear":
        scores.add_linear(model["definition"], columns)
        return scores

    def split(node: Any, rows: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        values = columns[node["split"]][rows]
        yes = values < np.float32(node["split_condition"])
        yes[np.isnan(values)] = rule != "right" and node["missing"] == node["yes"]
        return yes, *node["children"]

    for tree in model["definition"]["splits"]:
        scores.add_tree(tree, "leaf", split)
    return scores


# Elasticsearch's own learning to rank: nodes in a list, compared and summed in float64


def _write_elasticsearch(forest: Forest, name: str, missing: Missing) -> dict[str, Any]:
    used = forest.columns
    names = [forest.names[at] for at in used]

    def node(at: int, own: Node) -> dict[str, Any]:
        if not own.left:
            return {"node_index": at, "leaf_value": own.value}
        return {
            "node_index": at,
            "default_left": _missing_left(own, missing),
            "split_feature": used.index(own.column),
            "decision_type": "lte",
            "threshold": float(np.clip(own.most, -_LARGEST, _LARGEST)),  # compared in float64
            "left_child": own.left,
            "right_child": own.right,
        }

    trees = [
        {
            "tree": {
                "feature_names": names,
                "tree_structure": [node(*pair) for pair in enumerate(tree)],
                "target_type": "regression",
            }
        }
        for tree in forest.trees
    ]
    ensemble = {"feature_names": names, "trained_models": trees, "target_type": "regression"}
    ensemble["aggregate_output"] = {"weighted_sum": {}}
    return {
        "description": name,
        "input": {"field_names": names},
        "definition": {"trained_model": {"ensemble": ensemble}},
    }


def _write_elasticsearch_features(names: list[str], name: str, missing: Missing) -> dict[str, Any]:
    extractors = [{"query_extractor": {"feature_name": x, "query": _field_score(x)}} for x in names]
    return {"inference_config": {"learning_to_rank": {"feature_extractors": extractors}}}


def _read_elasticsearch(content: Any, columns: Columns, rule: Rule) -> _Scores:
    scores = _Scores(columns, np.float64)

    def split(tree: Any, node: Any, rows: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        name, nodes = tree["feature_names"][node["split_feature"]], tree["tree_structure"]
        values = columns[name][rows].astype(np.float64)
        left = np.where(np.isnan(values), node["default_left"], values <= node["threshold"])
        return left, nodes[node["left_child"]], nodes[node["right_child"]]

    for model in content["definition"]["trained_model"]["ensemble"]["trained_models"]:
        tree = model["tree"]
        scores.add_tree(tree["tree_structure"][0], "leaf_value", partial(split, tree))
    return scores


# Solr: `MultipleAdditiveTreesModel` and `LinearModel`


def _write_solr(forest: Forest, name: str, missing: Missing) -> dict[str, Any]:
    def node(tree: list[Node], at: int) -> dict[str, Any]:
        own = tree[at]
        if not own.left:
            return {"value": str(_short(own.value))}
        split: dict[str, Any] = {
            "feature": forest.names[own.column],
            "threshold": str(_short(_less_slack(own.most))),
        }
        if missing == "model":
            split["missing"] = "left" if own.missing_left else "right"
        return split | {"left": node(tree, own.left), "right": node(tree, own.right)}

    trees = [{"weight": "1", "root": node(tree, 0)} for tree in forest.trees]
    params: dict[str, Any] = {"trees": trees}
    if missing == "model":
        params = {"isNullSameAsZero": False, **params}
    names = [forest.names[at] for at in forest.columns]
    return _of_solr("MultipleAdditiveTreesModel", name, names, params)


def _of_solr(kind: str, name: str, names: Sequence[str], params: Any) -> dict[str, Any]:
    return {
        "class": f"org.apache.solr.ltr.model.{kind}",
        "store": name,
        "name": name,
        "features": [{"name": x} for x in names],
        "params": params,
    }


def _write_solr_linear(weights: Mapping[str, float], name: str) -> dict[str, Any]:
    own = {x: _short(weight) for x, weight in weights.items()}
    return _of_solr("LinearModel", name, [*own], {"weights": own})


def _write_solr_features(names: list[str], name: str, missing: Missing) -> list[Any]:
    more = {"defaultValue": "NaN"} if missing == "model" else {}
    kind = "org.apache.solr.ltr.feature.FieldValueFeature"
    return [
        {"store": name, "name": x, "class": kind, "params": {"field": x, **more}} for x in names
    ]


def _above(most: float) -> np.float32:
    """Return the next float32 value, at most the largest one: x <= most if x < the result."""
    if abs(most) >= _LARGEST:
        return np.float32(np.clip(most, -_LARGEST, _LARGEST))
    return np.nextafter(np.float32(most), np.float32(np.inf))


def _less_slack(most: float) -> np.float32:
    """Return the threshold that Solr, with its slack, turns into `most`, or into a value near it.

    0 stays on the side of the split on which it is.
    """
    if abs(most) >= _LARGEST:
        return np.float32(np.clip(most, -_LARGEST, _LARGEST))
    start = np.float32(most - float(_SLACK))
    with np.errstate(over="ignore"):
        near = [start, *(np.nextafter(start, np.float32(x)) for x in (-np.inf, np.inf))]
        near = [x for x in near if (x + _SLACK >= 0) == (most >= 0)]
        return min(near, key=lambda x: abs(float(x + _SLACK) - most))


def _read_solr(content: Any, columns: Columns, rule: Rule) -> _Scores:
    params, scores = content["params"], _Scores(columns, np.float32)
    if "weights" in params:
        scores.add_linear(params["weights"], columns)
        return scores
    zero = params.get("isNullSameAsZero", True)

    def split(node: Any, rows: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        values = columns[node["feature"]][rows]
        values = np.nan_to_num(values) if zero else values
        left = values <= np.float32(node["threshold"]) + _SLACK
        left[np.isnan(values)] = node.get("missing") == "left"
        return left, node["left"], node["right"]

    for tree in params["trees"]:
        scores.add_tree(tree["root"], "value", split)
    return scores


class _Writer(NamedTuple):
    """How models are written for an engine, and how the engine reads them.

    Attributes:
        trees: returns the JSON of a forest with a name.
        linear: returns the JSON of weights with a name; None if the engine takes no such model.
        features: returns the JSON of the features with these names.
        read: returns the scores of float32 columns by the JSON of a model.
    """

    trees: Callable[[Forest, str, Missing], Any]
    linear: Callable[[Mapping[str, float], str], Any] | None
    features: Callable[[list[str], str, Missing], Any]
    read: Callable[[Any, Columns, Rule], _Scores]


WRITERS = {
    "opensearch": _Writer(
        _write_opensearch, _write_opensearch_linear, _write_opensearch_features, _read_opensearch
    ),
    "elasticsearch": _Writer(
        _write_elasticsearch, None, _write_elasticsearch_features, _read_elasticsearch
    ),
    "solr": _Writer(_write_solr, _write_solr_linear, _write_solr_features, _read_solr),
}
ENGINES = tuple(WRITERS)

_VERSIONS: dict[str, dict[str, Rule]] = {
    "opensearch": {"up to 3.1": "zero", "3.2 to 3.7": "right", "from 3.8 on": "file"},
    "elasticsearch": {},
    "solr": {"up to 9.1": "zero", "from 9.2 on": "file"},
}
"""What the versions of an engine do with a missing value, where that depends on the version."""


def _short(value: Any) -> float:
    """Return the number with the fewest digits that reads as a value in float32.

    It does so both in one step and by way of float64. Infinite values become the largest ones.
    """
    single = np.float32(np.clip(value, -_LARGEST, _LARGEST))
    short = float(str(single))
    return short if np.float32(short) == single else float(single)


def _missing_left(node: Node, missing: Missing) -> bool:
    return node.missing_left if missing == "model" else node.most >= 0


class _Check:
    """Compares the scores of a written file with those of its model.

    Args:
        source: the model.
        to: the engine.
        missing: see `export_engine`.
        content: the JSON of the file, read again.
    """

    def __init__(self, source: EngineModel, to: Engine, missing: Missing, content: Any) -> None:
        self.source, self.to, self.missing, self.content = source, to, missing, content
        form = source.form
        self.bias = 0.0 if isinstance(form, Forest) else form.bias

    def report(self, rows: Any, qid: Any) -> tuple[float, int, int, tuple[str, ...]]:
        """Return `difference`, `rows`, `moved` and `notes` of an `EngineExport`.

        Raises:
            ValueError: a score of the file differs by more than its sum can.
        """
        columns = self._generated()
        groups = np.arange(len(columns)) // _LIST
        self._verify(columns)
        compared = [self._differences(columns, self._reference(columns), groups, "file")]
        notes = [*self._notes()]
        if rows is not None:
            given = self.source.read(rows)
            if not len(given):
                raise ValueError("rows must have at least one row, got none")
            rounded = given.astype(np.float32).astype(np.float64)
            expected = self.source.predict(given)
            if not np.isfinite(expected).all():
                raise ValueError("rows must have finite scores by the model, got NaN or inf")
            changed = self._moved_by_solr(rounded)
            if not isinstance(self.source.form, Forest):
                changed |= np.isnan(rounded)  # the sum takes 0 for a missing value
            if not (differs := changed.any(axis=1)).all():  # trees score no empty table
                self._verify(rounded[~differs])
            compared.append(self._differences(given, expected, qid, "file"))
            notes += self._costs(given, rounded, qid)
        differences, counts, moved = zip(*compared, strict=True)
        return max(differences), sum(counts), sum(moved), tuple(notes)

    def _reference(self, columns: np.ndarray) -> np.ndarray:
        """Return the scores that the file must give."""
        zero = self.missing == "zero"
        return self.source.predict(np.nan_to_num(columns) if zero else columns)

    def _read(self, columns: np.ndarray, rule: Rule) -> _Scores:
        columns = np.where(np.isnan(columns), 0, columns) if rule == "zero" else columns
        by_name = dict(zip(self.source.names, columns.astype(np.float32).T, strict=True))
        return WRITERS[self.to].read(self.content, by_name, rule)

    def _verify(self, columns: np.ndarray) -> None:
        """Raise a `ValueError` if a score differs by more than rounding can explain."""
        scores, expected = self._read(columns, "file"), self._reference(columns)
        wrong = np.abs(scores.exact + self.bias - expected)
        limit = LIMIT * float((scores.size + abs(self.bias)).max(initial=0))
        if not wrong.max(initial=0) <= limit:
            raise ValueError(
                "the written model must score like the model, but differs by "
                f"{wrong.max():.2g} (limit {limit:.2g}) in {int((~(wrong <= limit)).sum())} of "
                f"{len(columns)} rows"
            )

    def _moved_by_solr(self, columns: np.ndarray) -> np.ndarray:
        """Return which values (rows, columns) Solr's slack sends to the other side of a split."""
        moved = np.zeros(columns.shape, dtype=bool)
        if self.to != "solr" or not isinstance(self.source.form, Forest):
            return moved
        for at in self.source.form.columns:
            values = columns[:, at]
            for most in self.source.form.splits(at):
                low, high = sorted((most, float(_less_slack(most) + _SLACK)))
                moved[:, at] |= (values > low) & (values <= high)
        return moved

    def _differences(
        self, columns: np.ndarray, expected: np.ndarray, qid: Any, rule: Rule
    ) -> tuple[float, int, int]:
        """Return the largest difference, the number of rows, and how many change position."""
        scores = self._read(columns, rule).single.astype(np.float64)
        largest = float(np.abs(expected).max()) or 1.0
        difference = float(np.abs(scores + self.bias - expected).max()) / largest
        moved = int((rank(scores, qid) != rank(expected, qid)).sum())
        return difference, len(columns), moved

    def _generated(self) -> np.ndarray:
        """Return rows at, next to and between all thresholds, also with missing values."""
        rng, form = np.random.default_rng(0), self.source.form
        if not isinstance(form, Forest):
            low, high = np.array(form.ends).T
            rows = low + rng.random((_ROWS[0], len(low))) * (high - low)
            return rows.astype(np.float32).astype(np.float64)
        splits = [
            np.array([x for x in form.splits(at) if abs(x) < _LARGEST], np.float32)
            for at in range(len(form.names))
        ]
        most = 3 * max(map(len, splits), default=0)
        count = int(np.clip(most, *_ROWS))
        columns = [draw_near(rng, values, count) for values in splits]
        for name in self.source.booleans:
            columns[self.source.names.index(name)] = rng.choice([0, 1, np.nan], count)
        rows = np.stack(columns, axis=1)
        rows[self._moved_by_solr(rows)] = np.nan
        return rows

    def _notes(self) -> Iterator[str]:
        form = self.source.form
        if not isinstance(form, Forest):
            yield f"the bias {form.bias:.6g} is left out: it changes no ranking"
            yield "the engine takes a missing value for 0"
            return
        splits = [node for tree in form.trees for node in tree if node.left]
        if self.to == "solr":
            thresholds = {node.most for node in splits if abs(node.most) < _LARGEST}
            gaps = [abs(float(_less_slack(x) + _SLACK) - x) for x in thresholds]
            if inexact := [gap for gap in gaps if gap]:
                yield (
                    f"Solr adds 1e-6 to a threshold: {len(inexact)} of {len(gaps)} thresholds are "
                    f"off by at most {max(inexact):.1g} afterwards"
                )
        if all(node.missing_left == (node.most >= 0) for node in splits):
            return  # a missing value counts as 0 in the model too
        if self.missing == "zero":
            yield "a missing value counts as 0, otherwise than in the model"
        if self.to == "opensearch":
            yield (
                "OpenSearch takes a missing value for 0 up to 3.1, sends it to the right at every "
                "split from 3.2 to 3.7, and where the file says from 3.8 on"
            )
        elif self.to == "solr" and self.missing == "model":
            yield "missing values need Solr 9.2 or later, and features whose default is NaN"

    def _costs(self, given: np.ndarray, rounded: np.ndarray, qid: Any) -> Iterator[str]:
        """Yield what float32 columns and missing values cost on the given rows."""
        expected = self.source.predict(rounded)
        if moved := int(self._moved_by_solr(rounded).any(axis=1).sum()):
            rows = f"{moved} {plural(moved, 'row')}"
            yield f"Solr's 1e-6 sends values of {rows} to the other side of a split"
        if moved := int((rank(self.source.predict(given), qid) != rank(expected, qid)).sum()):
            change = plural(moved, "row changes", "rows change")
            yield (
                f"the engine rounds columns to float32, so that {moved} {change} position: fit "
                "the model on float32 columns"
            )
        used = [self.source.names.index(name) for name in self.source.used]
        missing = int(np.isnan(given[:, used]).any(axis=1).sum())
        if not missing:
            return
        is_forest = isinstance(self.source.form, Forest)
        rules = (_VERSIONS[self.to] if is_forest else {}) or {"in all versions": "file"}
        counts = [
            f"{self._differences(rounded, expected, qid, rule)[2]} {version}"
            for version, rule in rules.items()
        ]
        yield (
            f"{missing} of {len(given)} rows have missing values; rows that change position: "
            f"{', '.join(counts)}"
        )

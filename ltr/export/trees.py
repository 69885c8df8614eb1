"""Boosted trees of LightGBM, XGBoost, CatBoost and scikit-learn, read into one form.

`Trees.attributes` writes them for ONNX's operator of tree ensembles.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr.models.blend import Member
from ltr.models.trees import is_booster, scores_of

# For these objectives, `predict` returns the sum of the leaves. For others, it transforms the sum.
_LIGHTGBM = {"lambdarank", "rank_xendcg", "regression", "regression_l1", "huber", "fair"}
_LIGHTGBM |= {"quantile", "mape", "custom", "none", ""}
_XGBOOST = {"reg:squarederror", "reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror"}
_XGBOOST |= {"rank:ndcg", "rank:map", "rank:pairwise"}
_CATBOOST_TRANSFORMED = {"Poisson", "Tweedie", "RMSEWithUncertainty", "Cox", "SurvivalAft"}
_SKLEARN_TRANSFORMED = {"poisson", "gamma"}

_ZERO = float(np.float32(1e-35))  # LightGBM treats absolute values up to this one as 0
_INFINITE = 1e300
"""LightGBM's splits >= this value are infinite: they separate missing values from other values."""
LESS_OR_EQUAL, _LESS, EQUAL, _LEAF = "BRANCH_LEQ", "BRANCH_LT", "BRANCH_EQ", "LEAF"


@dataclass
class Trees:
    """Trees as rows of tables, one row per node and one per leaf.

    A node compares a column with a value. The true child follows if the comparison holds.

    Attributes:
        single: whether the library compares float32 values (XGBoost, CatBoost), not float64
            (LightGBM, scikit-learn).
        missing: a value that counts as missing, besides NaN.
        base: the value that is added to the sum of the leaves.
        nodes: one tuple per node: (tree, node, column, mode, value, true child, false child,
            whether a missing value takes the true branch).
        leaves: one tuple per leaf: (tree, node, value).
        whole: the columns whose categories are numbers; the library truncates their values to
            whole numbers.
        levels: for each column that held categories of pandas in training, its levels.
        names: the names of the columns.
    """

    single: bool
    names: list[str]
    missing: float = float("nan")
    base: float = 0.0
    nodes: list[tuple[int, int, int, str, float, int, int, int]] = field(default_factory=list)
    leaves: list[tuple[int, int, float]] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    levels: dict[int, list[Any]] = field(default_factory=dict)

    def splits(self, column: int) -> list[float]:
        """Return the finite values that a column of numbers is compared with, ascending."""
        return sorted({x for _, _, at, _, x, *_ in self.nodes if at == column and math.isfinite(x)})

    def attributes(self, factor: float, single: bool) -> dict[str, Any]:
        """Return the attributes of `TreeEnsembleRegressor` in ONNX's domain ai.onnx.ml, version 3.

        Args:
            factor: the factor by which the scores are multiplied.
            single: whether values are float32, in Python lists. Otherwise they are float64, in
                ONNX tensors.
        """
        from onnx import numpy_helper

        rows = sorted(
            [*self.nodes, *((tree, node, 0, _LEAF, 0.0, 0, 0, 0) for tree, node, _ in self.leaves)]
        )
        trees, nodes, columns, modes, values, true, false, missing = zip(*rows, strict=True)
        dtype = np.float32 if single else np.float64
        numbers = {
            # A float32 value is <= a split exactly if it is <= the split rounded down to float32.
            "nodes_values": np.where(np.array(modes) == LESS_OR_EQUAL, down(values), values)
            if single
            else np.array(values),
            "target_weights": factor * np.array([value for *_, value in self.leaves]),
            "base_values": factor * np.array([self.base]),
        }
        attributes: dict[str, Any] = {
            "n_targets": 1,
            "nodes_treeids": trees,
            "nodes_nodeids": nodes,
            "nodes_featureids": columns,
            "nodes_modes": modes,
            "nodes_truenodeids": true,
            "nodes_falsenodeids": false,
            "nodes_missing_value_tracks_true": missing,
            "target_treeids": [tree for tree, _, _ in self.leaves],
            "target_nodeids": [node for _, node, _ in self.leaves],
            "target_ids": [0] * len(self.leaves),
        }
        for name, values in numbers.items():
            array = np.asarray(values, dtype=dtype)
            if single:
                attributes[name] = array.tolist()
            else:
                attributes[f"{name}_as_tensor"] = numpy_helper.from_array(array)
        return attributes


def read_trees(ranker: Any) -> Trees | None:
    """Return the trees of a fitted ranker of one of the libraries, or of a `Booster`; else None.

    Raises:
        ValueError: `Trees` cannot express this kind of tree, or the transformation of the trees'
            sum.
    """
    package = type(ranker).__module__.partition(".")[0]
    booster = getattr(ranker, "booster_", ranker)
    if package == "lightgbm" and hasattr(booster, "dump_model"):
        return _read_lightgbm(booster)
    if package == "xgboost" and (hasattr(ranker, "get_booster") or hasattr(ranker, "save_raw")):
        return _read_xgboost(ranker)
    if package == "catboost" and hasattr(ranker, "save_model"):
        return _read_catboost(ranker)
    if isinstance(ranker, HistGradientBoostingRegressor):
        return _read_sklearn(ranker)
    return None


def member_trees(member: Member) -> Trees:
    """Return the trees of a ranker of a blend.

    Raises:
        ValueError: they are not trees of these libraries, or as in `read_trees`.
    """
    if (trees := read_trees(member.ranker)) is None:
        raise ValueError(
            "rankers of a Blend must be trees of LightGBM, XGBoost, CatBoost or scikit-learn, or "
            f"NeuralRankers for ONNX, got {member.name}"
        )
    # Only a `Booster` that the user trained has levels of its own.
    return trees if member.named else replace(trees, levels={})


def _read_lightgbm(booster: Any) -> Trees:
    dump = booster.dump_model()
    objective = dump.get("objective", "")
    if objective.partition(" ")[0] not in _LIGHTGBM or "sqrt" in objective:
        raise ValueError(f"a ranker must predict the sum of its trees, got objective {objective!r}")
    trees = Trees(single=False, names=list(dump["feature_names"]))
    scale = 1 / len(dump["tree_info"]) if dump["average_output"] else 1.0
    for number, tree in enumerate(dump["tree_info"]):
        _add_lightgbm(trees, number, tree["tree_structure"], scale)
    if known := dump["pandas_categorical"]:
        match = re.search(r"\[categorical_feature: ([\d,]+)\]", booster.model_to_string())
        columns = [int(column) for column in match[1].split(",")] if match else []
        if len(columns) != len(known):
            raise ValueError(
                "a ranker of LightGBM must have pandas' categories or whole numbers as categories, "
                f"not both, got {len(columns)} columns of categories, {len(known)} of pandas"
            )
        trees.levels = dict(zip(columns, known, strict=True))
    trees.whole -= {*trees.levels}
    return trees


def _add_lightgbm(trees: Trees, tree: int, root: dict[str, Any], scale: float) -> None:
    waiting, free = [(root, 0)], count(1)
    while waiting:
        node, number = waiting.pop()
        if "leaf_value" in node:
            if "leaf_const" in node:
                raise ValueError("a ranker must have constant leaves, got linear_tree=True")
            trees.leaves.append((tree, number, scale * node["leaf_value"]))
            continue
        column, left, right = node["split_feature"], next(free), next(free)
        waiting += [(node["left_child"], left), (node["right_child"], right)]
        if node["decision_type"] == "==":  # these categories go left, and missing values go right
            trees.whole.add(column)
            categories = [float(category) for category in node["threshold"].split("||")]
            _add_any(trees, tree, number, column, categories, (left, right, 0), free)
            continue
        kind, split = node["missing_type"], node["threshold"]
        if kind == "Zero":
            raise ValueError("a ranker must not treat zeros as missing, got zero_as_missing=True")
        # If no value was missing in training, LightGBM treats a missing value as 0.
        goes_left = node["default_left"] if kind == "NaN" else split >= 0
        if abs(split) <= _ZERO:
            split = _ZERO if split >= 0 else math.nextafter(-_ZERO, -math.inf)
        split = math.inf if split >= _INFINITE else split
        trees.nodes.append(
            (tree, number, column, LESS_OR_EQUAL, split, left, right, int(goes_left))
        )


def _add_any(
    trees: Trees,
    tree: int,
    number: int,
    column: int,
    categories: Sequence[float],
    branches: tuple[int, int, int],
    free: Iterator[int],
) -> None:
    """Add a chain of nodes that compares a feature with each of the categories.

    Args:
        trees: the trees that get the nodes.
        tree: the index of the tree.
        number: the index of the chain's first node.
        column: the index of the feature to compare.
        categories: the categories that take the true branch.
        branches: the true child, the false child, and whether a missing value takes the true
            branch.
        free: the indices that no node uses yet.
    """
    true, false, missing = branches
    chain = [number, *islice(free, len(categories) - 1)]
    for node, following, category in zip(chain, [*chain[1:], false], categories, strict=True):
        row = (tree, node, column, EQUAL, float(category), true, following, missing)
        trees.nodes.append(row)


def _read_xgboost(ranker: Any) -> Trees:
    booster, missing = ranker, None
    if hasattr(ranker, "get_booster"):
        booster, missing = ranker.get_booster(), ranker.get_params().get("missing")
        best = booster.attr("best_iteration")
        if best is not None:  # `predict` of a `Booster`, unlike that of a ranker, uses all trees
            booster = booster[: int(best) + 1]
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective, kind = learner["objective"]["name"], learner["gradient_booster"]["name"]
    if objective not in _XGBOOST:
        raise ValueError(f"a ranker must predict the sum of its trees, got objective {objective!r}")
    if kind != "gbtree" or int(learner["learner_model_param"]["num_target"]) > 1:
        raise ValueError(f"a ranker of XGBoost must have booster='gbtree', got {kind!r}")
    model = learner["gradient_booster"]["model"]
    width = int(learner["learner_model_param"]["num_feature"])
    base = float(learner["learner_model_param"]["base_score"].strip("[]"))
    names = booster.feature_names or [f"x{i}" for i in range(width)]
    trees = Trees(True, names, float("nan") if missing is None else float(missing), base)
    for number, tree in enumerate(model["trees"]):
        _add_xgboost(trees, number, tree)
    if "c" in (booster.feature_types or []):
        known = booster.get_categories(export_to_arrow=True).to_arrow()
        for column, (_, levels) in enumerate(known):
            if levels is not None and len(levels):
                trees.levels[column] = levels.to_pylist()
    trees.whole -= {*trees.levels}
    return trees


def _add_xgboost(trees: Trees, tree: int, arrays: dict[str, Any]) -> None:
    free = count(len(arrays["left_children"]))
    starts = zip(arrays["categories_segments"], arrays["categories_sizes"], strict=True)
    own = {
        node: arrays["categories"][start : start + size]
        for node, (start, size) in zip(arrays["categories_nodes"], starts, strict=True)
    }
    names = "split_indices", "split_conditions", "left_children", "right_children", "default_left"
    rows = list(zip(*(arrays[name] for name in names), strict=True))
    waiting = [0]  # walk from the root: the arrays still contain pruned nodes
    while waiting:
        node = waiting.pop()
        column, split, left, right, default = rows[node]
        if left < 0:
            trees.leaves.append((tree, node, split))
            continue
        waiting += [left, right]
        if node in own:  # these categories go right
            trees.whole.add(column)
            branches = (right, left, int(not default))
            _add_any(trees, tree, node, column, own[node], branches, free)
        else:
            trees.nodes.append((tree, node, column, _LESS, split, left, right, int(default)))


def _read_catboost(ranker: Any) -> Trees:
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        ranker.save_model(str(path), format="json")
        model = json.loads(path.read_text())
    loss = model["model_info"]["params"]["loss_function"]["type"]
    scale, bias = model["scale_and_bias"]
    if loss in _CATBOOST_TRANSFORMED or len(bias) > 1:
        raise ValueError(f"a ranker must predict the sum of its trees, got loss {loss!r}")
    features = {x["feature_index"]: x for x in model["features_info"]["float_features"]}
    trees = Trees(True, list(ranker.feature_names_), base=float(bias[0]))

    def add(tree: int, number: int, split: dict[str, Any], left: int, right: int) -> None:
        if split["split_type"] != "FloatFeature":
            raise ValueError(
                "a ranker of CatBoost must split numbers alone, got cat_features, text or "
                f"embeddings ({split['split_type']})"
            )
        feature = features[split["float_feature_index"]]
        row = tree, number, feature["flat_feature_index"], LESS_OR_EQUAL, split["border"]
        # A missing value is below all borders, unless it is above all.
        goes_left = int(feature["nan_value_treatment"] != "AsTrue")
        trees.nodes.append((*row, left, right, goes_left))

    for tree, content in enumerate(model.get("oblivious_trees", ())):
        # Every node of a level has the same split; the last split stands in the root. The nodes
        # are numbered as in a heap. A split that holds sets its bit in the index of the leaf.
        splits, values = content.get("splits") or [], content["leaf_values"]
        for level, split in enumerate(reversed(splits)):
            for number in range(2**level - 1, 2 ** (level + 1) - 1):
                add(tree, number, split, 2 * number + 1, 2 * number + 2)
        trees.leaves += [
            (tree, len(values) - 1 + at, scale * value) for at, value in enumerate(values)
        ]
    for tree, root in enumerate(model.get("trees", ())):
        waiting, free = [(root, 0)], count(1)
        while waiting:
            node, number = waiting.pop()
            if "split" not in node:
                trees.leaves.append((tree, number, scale * node["value"]))
                continue
            left, right = next(free), next(free)
            add(tree, number, node["split"], left, right)
            waiting += [(node["left"], left), (node["right"], right)]
    return trees


def _read_sklearn(ranker: Any) -> Trees:
    if ranker.loss in _SKLEARN_TRANSFORMED:
        raise ValueError(f"a ranker must predict the sum of its trees, got loss {ranker.loss!r}")
    names = getattr(ranker, "feature_names_in_", None)
    width = ranker.n_features_in_
    names = [f"x{i}" for i in range(width)] if names is None else [*names]
    # scikit-learn has no public view of these trees.
    trees = Trees(False, names, base=float(np.ravel(ranker._baseline_prediction)[0]))
    for tree, (predictor,) in enumerate(ranker._predictors):
        for number, node in enumerate(predictor.nodes):
            if node["is_leaf"]:
                trees.leaves.append((tree, number, float(node["value"])))
                continue
            if node["is_categorical"]:
                raise ValueError(
                    "a ranker of scikit-learn must split numbers alone, got categorical_features"
                )
            column, split = int(node["feature_idx"]), float(node["num_threshold"])
            children = int(node["left"]), int(node["right"]), int(node["missing_go_to_left"])
            trees.nodes.append((tree, number, column, LESS_OR_EQUAL, split, *children))
    return trees


def down(values: Any) -> np.ndarray:
    """Return the largest float32 values that are at most the values."""
    exact = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
        below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded.astype(np.float64) > exact, below, rounded)


def scores_of_columns(ranker: Any, columns: pd.DataFrame) -> np.ndarray:
    """Return the scores (rows,) of columns with the names that the ranker's trees have, float64."""
    model = getattr(ranker, "booster_", ranker)  # LightGBM's estimator warns if it gets an array
    takes_frame = is_booster(model) or hasattr(model, "feature_names_in_")
    return scores_of(model, columns if takes_frame else columns.to_numpy())


def draw_near(
    rng: np.random.Generator, splits: np.ndarray, count: int, missing: bool = True
) -> np.ndarray:
    """Return values (count,) at and next to splits, with a few between them or missing.

    Args:
        rng: the source of random numbers.
        splits: the splits, ascending, in the type that is compared. Default, if empty: -1, 0, 1.
        count: the number of values. From three times the number of splits on, each value at or
            next to a split is drawn, before others replace some of them.
        missing: whether values may be missing.
    """
    if not len(splits):
        splits = np.array([-1, 0, 1], splits.dtype)
    infinite = splits.dtype.type(np.inf)
    near = [splits, np.nextafter(splits, -infinite), np.nextafter(splits, infinite)]
    values = np.resize(rng.permutation(np.concatenate(near)), count)
    values = rng.permutation(values).astype(np.float64)
    inside = rng.uniform(splits[0], splits[-1], count).astype(splits.dtype)
    draw = rng.random(count)
    values = np.where(draw < 0.15, inside, values)
    return np.where((draw > 0.85) & missing, np.nan, values)

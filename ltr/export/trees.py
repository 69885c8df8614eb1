"""Boosted trees of LightGBM and XGBoost, as attributes of ONNX's operator for tree ensembles."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# For these objectives, `predict` returns the sum of the leaves. For others, it transforms the sum.
_LIGHTGBM = {"lambdarank", "rank_xendcg", "regression", "regression_l1", "huber", "fair"}
_LIGHTGBM |= {"quantile", "mape", "custom", "none", ""}
_XGBOOST = {"reg:squarederror", "reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror"}
_XGBOOST |= {"rank:ndcg", "rank:map", "rank:pairwise"}

_ZERO = float(np.float32(1e-35))  # LightGBM treats absolute values up to this one as 0
_INFINITE = 1e300
"""LightGBM's splits >= this value are infinite: they separate missing values from other values."""
_LESS_OR_EQUAL, _LESS, _EQUAL, _LEAF = "BRANCH_LEQ", "BRANCH_LT", "BRANCH_EQ", "LEAF"


@dataclass
class Trees:
    """Trees as rows of tables, one row per node and one per leaf.

    A node compares a column with a value. The true child follows if the comparison holds.

    Attributes:
        single: whether the library compares float32 values (XGBoost), not float64 (LightGBM).
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
            "nodes_values": _down(values, modes) if single else np.array(values),
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
    """Return the trees of a fitted ranker or a `Booster` of LightGBM or XGBoost; else None.

    Raises:
        ValueError: ONNX cannot express this kind of tree, or the transformation of the trees' sum.
    """
    package = type(ranker).__module__.partition(".")[0]
    booster = getattr(ranker, "booster_", ranker)
    if package == "lightgbm" and hasattr(booster, "dump_model"):
        return _read_lightgbm(booster)
    if package == "xgboost" and (hasattr(ranker, "get_booster") or hasattr(ranker, "save_raw")):
        return _read_xgboost(ranker)
    return None


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
        said = re.search(r"\[categorical_feature: ([\d,]+)\]", booster.model_to_string())
        columns = [int(column) for column in said[1].split(",")] if said else []
        if len(columns) != len(known):
            raise ValueError(
                "a ranker of LightGBM must have pandas' categories or whole numbers as categories, "
                f"not both, got {len(columns)} columns of categories, {len(known)} of pandas"
            )
        trees.levels = dict(zip(columns, known, strict=True))
    trees.whole -= {*trees.levels}
    return trees


def _add_lightgbm(trees: Trees, tree: int, root: dict[str, Any], scale: float) -> None:
    waiting, free = [(root, 0)], 1
    while waiting:
        node, number = waiting.pop()
        if "leaf_value" in node:
            if "leaf_const" in node:
                raise ValueError("a ranker must have constant leaves, got linear_tree=True")
            trees.leaves.append((tree, number, scale * node["leaf_value"]))
            continue
        column, left, right = node["split_feature"], free, free + 1
        free += 2
        waiting += [(node["left_child"], left), (node["right_child"], right)]
        if node["decision_type"] == "==":  # these categories go left, and missing values go right
            trees.whole.add(column)
            categories = [float(category) for category in node["threshold"].split("||")]
            free = _add_any(trees, tree, number, column, categories, (left, right, 0), free)
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
            (tree, number, column, _LESS_OR_EQUAL, split, left, right, int(goes_left))
        )


def _add_any(
    trees: Trees,
    tree: int,
    number: int,
    column: int,
    categories: Sequence[float],
    branches: tuple[int, int, int],
    free: int,
) -> int:
    """Add a chain of nodes that compares a feature with each of the categories.

    Args:
        trees: the trees that get the nodes.
        tree: the index of the tree.
        number: the index of the chain's first node.
        column: the index of the feature to compare.
        categories: the categories that take the true branch.
        branches: the true child, the false child, and whether a missing value takes the true
            branch.
        free: the first index that no node uses yet.

    Returns:
        The first index that no node uses after the chain is added.
    """
    true, false, missing = branches
    chain = [number, *range(free, free + len(categories) - 1)]
    for node, following, category in zip(chain, [*chain[1:], false], categories, strict=True):
        row = (tree, node, column, _EQUAL, float(category), true, following, missing)
        trees.nodes.append(row)
    return free + len(categories) - 1


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
    free = len(arrays["left_children"])
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
            free = _add_any(trees, tree, node, column, own[node], branches, free)
        else:
            trees.nodes.append((tree, node, column, _LESS, split, left, right, int(default)))


def _down(values: Sequence[float], modes: Sequence[str]) -> np.ndarray:
    """Return values in float32, rounded down if their mode is <=, otherwise to the nearest."""
    exact = np.array(values)
    rounded = exact.astype(np.float32)
    above = (rounded.astype(np.float64) > exact) & (np.array(modes) == _LESS_OR_EQUAL)
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)

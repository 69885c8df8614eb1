"""A forest as search engines take it: every split compares one number with a float32 value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ltr.export.trees import EQUAL, LESS_OR_EQUAL, Trees, down

DEEPEST = 100
"""The most levels of a tree: JSON nests twice for a level, and parsers bound the nesting."""


class Node(NamedTuple):
    """A split or, without children, a leaf.

    Attributes:
        column: the index of the column that is compared.
        most: the largest float32 value that goes left.
        left: the index of the left child in the tree; 0 in a leaf.
        right: the index of the right child in the tree; 0 in a leaf.
        missing_left: whether a missing value goes left.
        value: the score of a leaf.
    """

    column: int = 0
    most: float = 0.0
    left: int = 0
    right: int = 0
    missing_left: bool = False
    value: float = 0.0


@dataclass(frozen=True)
class Forest:
    """Trees whose leaves are summed.

    Attributes:
        names: the names of the columns.
        trees: the nodes of each tree, the root first; one tree or more.
    """

    names: list[str]
    trees: list[list[Node]]

    @property
    def columns(self) -> list[int]:
        """The indices of the columns that some split compares, ascending."""
        return sorted({node.column for tree in self.trees for node in tree if node.left})

    def splits(self, column: int) -> list[float]:
        """Return the values of `Node.most` of a column, ascending."""
        own = (node for tree in self.trees for node in tree if node.left)
        return sorted({node.most for node in own if node.column == column})


def forest_of(parts: Iterable[tuple[Trees, float, Sequence[int]]], names: Sequence[str]) -> Forest:
    """Return the forest whose scores are a weighted sum of the scores of trees.

    Trees of one leaf, and the values that the libraries add to the sum, are added to the leaves of
    the first tree.

    Args:
        parts: for each of the trees, the factor of their scores, and the position of each of their
            columns in `names`.
        names: the names of all columns.

    Raises:
        ValueError: a split compares categories, a library counts another value than NaN as
            missing, or a tree is too deep.
    """
    kept, base = [], 0.0
    for trees, factor, positions in parts:
        base += factor * trees.base
        for tree in _trees(trees, factor, positions, names):
            if tree[0].left:
                kept.append(tree)
            else:
                base += tree[0].value
    first = kept[0] if kept else [Node()]
    first = [node if node.left else node._replace(value=node.value + base) for node in first]
    return Forest([*names], [first, *kept[1:]])


def is_category(name: str) -> ValueError:
    """Return the error for a column of categories."""
    return ValueError(
        f"column {name!r} must be a number: search engines know no categories (a ranker can be "
        "fitted on numbers that stand for them)"
    )


def _trees(
    trees: Trees, factor: float, positions: Sequence[int], names: Sequence[str]
) -> list[list[Node]]:
    if not np.isnan(trees.missing):
        raise ValueError(
            f"missing of a ranker of XGBoost must be NaN for a search engine, got {trees.missing}"
        )
    rows: dict[int, dict[int, Node]] = {}
    for tree, number, column, mode, value, left, right, missing in trees.nodes:
        if mode == EQUAL:
            raise is_category(names[positions[column]])
        if mode == LESS_OR_EQUAL:
            most = down(value)
        else:  # XGBoost compares float32 values by <
            most = np.nextafter(np.float32(value), np.float32(-np.inf))
        node = Node(positions[column], float(most), left, right, bool(missing))
        rows.setdefault(tree, {})[number] = node
    for tree, number, value in trees.leaves:
        rows.setdefault(tree, {})[number] = Node(value=factor * value)
    return [_nodes(rows[tree]) for tree in sorted(rows)]


def _nodes(rows: dict[int, Node]) -> list[Node]:
    """Return the nodes of a tree, numbered without gaps; the root has the number 0."""
    nodes: list[Node] = [Node()]
    waiting = [(0, 0, 1)]
    while waiting:
        number, at, level = waiting.pop()
        if level > DEEPEST + 1:
            raise ValueError(
                f"trees must have at most {DEEPEST} levels for a search engine: set max_depth"
            )
        nodes[at] = node = rows[number]
        if node.left:
            left, right = len(nodes), len(nodes) + 1
            nodes[at] = node._replace(left=left, right=right)
            waiting += [(node.left, left, level + 1), (node.right, right, level + 1)]
            nodes += [Node(), Node()]
    return nodes

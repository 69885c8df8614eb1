"""Use LETOR text and lists on disk like tables. Both already consist of lists.

The columns of LETOR text are `qid`, `label`, `doc_id`, and the features, named by their indices.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.column_steps import Category, Date, Step
from ltr.datasets.letor import read_letor_files
from ltr.datasets.list_files import is_list_folder, letor_schema, open_lists
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema, one_or_several
from ltr.datasets.splits import check_one_split, find_splits
from ltr.datasets.table_files import find_files, kind_of_file
from ltr.files import check_path
from ltr.names import shown_names


def holds_lists(source: Any) -> bool:
    """Return whether a source is a folder of lists, or files that are named like LETOR text.

    Raises:
        ValueError: `source` is a path or pattern without a file.
    """
    return is_list_folder(source) or is_letor(source)


def is_letor(source: Any) -> bool:
    """Return whether a source is a path or pattern of files that are named like LETOR text.

    Raises:
        ValueError: `source` is a path or pattern without a file.
    """
    if not isinstance(source, str | PathLike) or is_list_folder(source):
        return False
    return kind_of_file(find_files(check_path("source", source))[0]) == "letor"


def find_folds(path: Any, fold: int) -> dict[str, Path]:
    """Return the files of "train", "val" and "test" in a folder of LETOR text with splits.

    The folder may hold files of other kinds, such as the scores of a model.

    Args:
        path: the folder. For any other source, and for a folder of one split, the result is empty.
        fold: the number of the fold or set, if there are several; see `find_splits`.

    Raises:
        ValueError: the fold does not exist, or two files could be the same split.
    """
    if is_list_folder(path) or not isinstance(path, str | PathLike):
        return {}
    all_letor, root = is_letor(path), check_path("path", path)
    if not root.is_dir():
        return {}
    try:
        files = find_splits(root, fold)
    except ValueError:
        if all_letor:
            raise
        return {}
    return files if len(files) > 1 or any(file.parent != root for file in files.values()) else {}


def load_lists(source: Any) -> ListDataset:
    """Open lists on disk, or read LETOR text: a file, a folder, or the files of a pattern.

    Files are read in the order of their names, and a list may continue in the next file. `rows` of
    the result gives each document's row, counted from 0 through all files.

    Args:
        source: the path or pattern.

    Raises:
        ValueError: a file has an error that `read_letor` refuses, or a folder holds several splits.
    """
    path = check_path("source", source)
    if is_list_folder(path):
        return open_lists(path).numbered()
    check_one_split(path)
    return read_letor_files(find_files(path)).numbered()


def schema_of(data: ListDataset, roles: Mapping[str, Any]) -> Schema:
    """Return the schema of lists, with all features or only with the named ones.

    Args:
        data: the result of `load_lists`.
        roles: the names of columns by their use; see `prepare`. Any use may be left out. The
            categories are always those of the lists.

    Raises:
        ValueError: a named feature does not exist; `roles` gives a column a use that it does not
            have in the lists; categories are named; or the lists have categories but no schema.
    """
    if roles.get("categories"):
        raise ValueError(
            f"categories must be None for LETOR text or lists, got {roles['categories']!r}"
        )
    features = roles.get("features")
    uses = {key: name for key, name in roles.items() if key not in ("features", "categories")}
    uses["label"] = one_or_several(uses.get("label"))
    own = data.schema
    names = {"qid": "qid", "label": "label", "doc_id": "doc_id"}
    what = "LETOR text"
    if own is not None:
        names = {key: getattr(own, key) for key in uses}
        what = "these lists"
    for key, name in uses.items():
        if name and name != names.get(key):
            wanted = f"None or {names[key]!r}" if own and names.get(key) else "None"
            raise ValueError(f"{key} must be {wanted} for {what}, got {name!r}")
    if own is None and data.num_categories:
        raise ValueError("lists with categories need their schema: give the result of `prepare`")
    whole = own or letor_schema(data)
    for name in features or ():
        if name not in whole.features:
            known = shown_names(whole.features)
            raise ValueError(f"features must be the columns of {what}, {known}, got {name!r}")
    if features is None:
        return whole
    steps = {name: whole.steps[name] for name in features}
    return replace(whole, steps={**steps, **whole.categories})


def with_schema(
    data: ListDataset, schema: Schema, tell: Callable[[str], Any] | None = None
) -> ListDataset:
    """Return lists with the features and categories of a schema, matched by name.

    If no line of LETOR text has a feature of the schema, the feature is 0.

    Args:
        data: the result of `load_lists`.
        schema: the model's schema.
        tell: called with a message about the columns that the schema does not have, if any.

    Raises:
        ValueError: a column is missing or is of another kind.
    """
    own = data.schema
    if own is None:
        numbers = [int(x) for x in schema.features if re.fullmatch("0|[1-9][0-9]*", x)]
        if 0 in numbers and data.first_feature:
            data = data.take_features(np.arange(-1, data.num_features))
            data.first_feature = 0
        data = data.widen(max(data.num_features, *(x + 1 - data.first_feature for x in numbers), 0))
        own = letor_schema(data)
    return of_columns(data, own, schema, tell)


def of_columns(
    data: ListDataset, own: Schema, schema: Schema, tell: Callable[[str], Any] | None = None
) -> ListDataset:
    """Return lists with the features and categories of another schema, matched by name.

    Args:
        data: the lists.
        own: the schema of `data`.
        schema: the other schema; see `with_schema`.
        tell: see `with_schema`.

    Raises:
        ValueError: see `with_schema`.
    """
    starts = dict(zip(own.features, np.cumsum([0, *own.features.values()]), strict=False))
    used = {*schema.features, *schema.categories}
    schema.check_names(own.columns, {*schema.columns} - used)
    positions: list[int] = []
    for name, step in schema.steps.items():
        stored = own.steps.get(name)
        if not _holds(stored, step):
            raise ValueError(f"column {name!r} must be {step}, as in training, got {stored}")
        if not isinstance(step, Category):
            positions += range(int(starts[name]), int(starts[name]) + step.width)
    unused = [name for name in own.features if name not in schema.features]
    unused += [name for name in own.categories if name not in schema.categories]
    if unused and tell is not None:
        tell(f"columns that the model does not use: {shown_names(unused)}")
    if positions != list(range(data.num_features)):
        data = data.take_features(np.array(positions, np.int64))
    if schema.categories == own.categories and [*schema.categories] == [*own.categories]:
        return data
    return data.with_codes([_codes(own, schema, name) for name in schema.categories])


def _holds(stored: Step | None, step: Step) -> bool:
    """Return whether a column has all that a step needs; dates may have an unused hour."""
    if isinstance(step, Category):
        return isinstance(stored, Category) and stored.kind == step.kind
    if isinstance(step, Date) and isinstance(stored, Date):
        return stored.zone == step.zone and stored.width >= step.width
    return stored == step


def _codes(own: Schema, schema: Schema, name: str) -> tuple[int, np.ndarray]:
    """Return a category's index in the lists, and the schema's code for each stored code."""
    stored, wanted = own.categories[name], schema.categories[name]
    table = np.array([0, *(wanted.codes.get(level, 0) for level in stored.levels)], np.int64)
    return [*own.categories].index(name), table


def keys_of(data: ListDataset, qid: str) -> pa.Table:
    """Return a table of the documents' qids and any document ids, in the order of `data.rows`."""
    lists = np.repeat(np.arange(len(data)), data.lengths)
    columns = {qid: data.qid_texts.take(pa.array(lists))}
    if data.doc_id is not None:
        columns["doc_id"] = data.doc_id
    rows = data.rows
    back = np.arange(len(lists)) if rows is None else np.argsort(rows)
    return pa.table(columns).take(pa.array(back))

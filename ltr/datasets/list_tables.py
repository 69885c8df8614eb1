"""Sources that are lists already: LETOR text and stores, in the place of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from ltr.datasets.letor_tables import by_schema, is_letor, letor_schema, load_letor_table
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.store import is_store
from ltr.datasets.stored_lists import StoredLists, open_store


def holds_lists(source: Any) -> bool:
    """Whether a source is a store, or LETOR text by its files' names.

    Raises:
        ValueError: there is no such file.
    """
    return is_store(source) or is_letor(source)


def load_lists(
    source: Any,
    *,
    sort_by_qid: bool = False,
    missing: Literal["keep", "error"] = "keep",
    keep_order: bool = False,
) -> ListDataset:
    """Load the lists of a store or of LETOR text; see `load_letor_table`.

    Raises:
        ValueError: the source is not as it should be, or `missing` is "error" for a store that was
            made with missing values.
    """
    if not is_store(source):
        return load_letor_table(
            source, sort_by_qid=sort_by_qid, missing=missing, keep_order=keep_order
        )
    data = open_store(Path(source).expanduser())
    made_of = data.store.source
    if missing == "error" and (not isinstance(made_of, dict) or made_of.get("missing") != missing):
        raise ValueError(
            f'missing must be "keep" for a store that was converted so, got "error" for {source}'
        )
    return data.numbered(0) if keep_order else data


def schema_of(
    data: ListDataset, uses: Mapping[str, str | None], features: Sequence[str] | None
) -> Schema:
    """Return the schema of lists: all features, or those that are named.

    Args:
        data: what `load_lists` gives.
        uses: the columns that arguments name, by their uses.
        features: the names of features, or None for all.

    Raises:
        ValueError: a name is not that of the lists.
    """
    whole = data.store.schema if isinstance(data, StoredLists) else None
    names = {"qid": "qid", "label": "label", "doc_id": "doc_id"}
    what = "LETOR text"
    if whole is not None:
        names = {key: getattr(whole, key) for key in uses}
        what = "this store"
    for key, name in uses.items():
        if name and name != names.get(key):
            wanted = f"None or {names[key]!r}" if whole and names.get(key) else "None"
            raise ValueError(f"{key} must be {wanted} for {what}, got {name!r}")
    if whole is None:
        return letor_schema(data, features)
    for name in features or ():
        if name not in whole.features:
            raise ValueError(
                f"features must be those of the store, {', '.join(map(repr, whole.features))}, got "
                f"{name!r}"
            )
    if features is None:
        return whole
    return replace(whole, features={name: whole.features[name] for name in features})


def with_schema(data: ListDataset, schema: Schema) -> ListDataset:
    """Return lists with the features and categories of a schema, matched by name.

    Raises:
        ValueError: there is no such column, or it is of another kind.
    """
    found = data.store.schema if isinstance(data, StoredLists) else None
    if found is None:
        return by_schema(data, schema)
    assert isinstance(data, StoredLists)
    starts = dict(zip(found.features, np.cumsum([0, *found.features.values()]), strict=False))
    for name in (*schema.features, *schema.categories):
        if name not in found.columns:
            raise ValueError(
                f"the table must have the column {name!r}, as in training, got "
                f"{', '.join(map(repr, found.columns))}"
            )
    places: list[int] = []
    for name, width in schema.features.items():
        if found.features.get(name) != width:
            raise ValueError(
                f"column {name!r} must be a feature of size {width}, as in training, got "
                f"{found.features.get(name, 'a category')}"
            )
        places += range(int(starts[name]), int(starts[name]) + width)
    unused = [name for name in found.features if name not in schema.features]
    unused += [name for name in found.categories if name not in schema.categories]
    if unused:
        rank_zero_info(f"columns that the model does not use: {', '.join(unused)}")
    if places != list(range(data.num_features)):
        data = data.take_features(np.array(places, np.int64))
    if schema.categories == found.categories and [*schema.categories] == [*found.categories]:
        return data
    return data.with_codes([_codes(found, schema, name) for name in schema.categories])


def _codes(found: Schema, schema: Schema, name: str) -> tuple[int, np.ndarray]:
    """Return the place of a category in the store, and the schema's code of each of its codes."""
    one, wanted = found.categories.get(name), schema.categories[name]
    if one is None or one.kind != wanted.kind:
        kind = "a feature" if one is None else f"a {one.kind} category"
        raise ValueError(
            f"column {name!r} must be a {wanted.kind} category, as in training, got {kind}"
        )
    known = {level: code for code, level in enumerate(wanted.levels, start=1)}
    table = np.array([0, *(known.get(level, 0) for level in one.levels)], np.int64)
    return [*found.categories].index(name), table
